/* Workers and boxes. A worker touches its own struct and, under the lock, the mover's tally. */
#include "mover.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"

#define MAX_WORKERS   3
#define POLL_MS       50
#define MAX_BOX_BYTES (64 * 1024 * 1024) /* source and output; more does not pay */
#define MIN_BOX_BYTES (1024 * 1024)      /* not cut further to keep all workers busy */
#define BOXES_EACH    4                  /* of a small job, for each worker */

struct worker {
	struct mover *mover;
	pthread_t thread;
	tma_client *client;
	int hang_up; /* a second fd of the client's connection, to end the calls of its thread from another;
	                -1 until there is one; under the mover's lock */
	tma_region *src;
	tma_region *dst;
	struct failure error;
};

struct mover {
	const struct tmactl *t;
	const struct mover_job *job;
	struct box_plan plan;
	struct worker workers[MAX_WORKERS];
	int n_workers;
	atomic_bool stop;
	pthread_mutex_t writing; /* a file takes one writer at a time, and the others would spin for it */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t ended;
	uint64_t next_box;
	uint64_t done_bytes;    /* of the output */
	uint64_t largest_bytes; /* of the box that result.path is from */
	int n_moving;           /* boxes that are with the service, since moving_ns */
	uint64_t moving_ns;
	int running;
	struct failure error;
	struct mover_result result;
};

static void mover_init(struct mover *m, const struct tmactl *t, const struct mover_job *job);
static int mover_start(struct mover *m, struct failure *f);
static int mover_watch(struct mover *m, mover_progress_fn *progress, void *arg, struct failure *f);
static void mover_stop(struct mover *m, int n_started);
static void mover_deinit(struct mover *m);
static void *worker_main(void *arg);
static int worker_open(struct worker *w);
static bool worker_next(struct worker *w, uint64_t *ret_box);
static int worker_read(struct worker *w, const struct box *box);
static int worker_transform(struct worker *w, const struct box *box);
static int worker_write(struct worker *w, const struct box *box);
static void worker_moves(struct worker *w, int change);
static void worker_tally(struct worker *w, const struct box *box);

/* ---- The caller's thread ---------------------------------------------------------------------------- */

int mover_run(const struct tmactl *t, const struct mover_job *job, mover_progress_fn *progress, void *arg,
              struct mover_result *ret, struct failure *f)
{
	struct mover m;
	uint64_t most = job->memory / MAX_WORKERS;
	uint64_t fair = 2 * (job->view->dst_bytes / (MAX_WORKERS * BOXES_EACH));
	int rc;

	fair = fair < MIN_BOX_BYTES ? MIN_BOX_BYTES : fair > MAX_BOX_BYTES ? MAX_BOX_BYTES : fair;
	mover_init(&m, t, job);
	rc = box_plan_init(&m.plan, job->view, fair < most ? fair : most, f);
	m.n_workers = m.plan.n_boxes < MAX_WORKERS ? (int)m.plan.n_boxes : MAX_WORKERS;
	if (!rc)
		rc = mover_start(&m, f);
	if (!rc)
		rc = mover_watch(&m, progress, arg, f);
	*ret = m.result;
	mover_deinit(&m);
	return rc;
}

static void mover_init(struct mover *m, const struct tmactl *t, const struct mover_job *job)
{
	pthread_condattr_t attr;

	*m = (struct mover){ .t = t, .job = job };
	for (int i = 0; i < MAX_WORKERS; i++)
		m->workers[i] = (struct worker){ .mover = m, .hang_up = -1 };
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&m->ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->writing, NULL);
}

static void mover_deinit(struct mover *m)
{
	for (int i = 0; i < m->n_workers; i++) {
		if (m->workers[i].hang_up >= 0)
			close(m->workers[i].hang_up);
		tma_free(m->workers[i].client);
	}
	box_plan_deinit(&m->plan);
	pthread_cond_destroy(&m->ended);
	pthread_mutex_destroy(&m->writing);
	pthread_mutex_destroy(&m->lock);
}

static int mover_start(struct mover *m, struct failure *f)
{
	int rc = 0;
	int n;

	m->running = m->n_workers;
	for (n = 0; n < m->n_workers && !rc; n++)
		rc = pthread_create(&m->workers[n].thread, NULL, worker_main, &m->workers[n]);
	if (!rc)
		return 0;
	mover_stop(m, n - 1);
	return fail(f, EXIT_FAILED, "a thread cannot be started (%s)", strerror(rc));
}

/* Waits for the workers, and tells how far they are. */
static int mover_watch(struct mover *m, mover_progress_fn *progress, void *arg, struct failure *f)
{
	struct timespec until;
	double done;
	int rc = 0;

	pthread_mutex_lock(&m->lock);
	while (m->running && !rc) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += POLL_MS * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&m->ended, &m->lock, &until);
		done = (double)m->done_bytes / (double)m->job->view->dst_bytes;
		if (m->error.code)
			rc = fail(f, m->error.code, "%s", m->error.text);
		pthread_mutex_unlock(&m->lock);
		if (!rc)
			rc = progress(arg, done, f);
		pthread_mutex_lock(&m->lock);
	}
	if (m->error.code)
		rc = fail(f, m->error.code, "%s", m->error.text);
	pthread_mutex_unlock(&m->lock);
	if (rc)
		mover_stop(m, m->n_workers);
	else
		for (int i = 0; i < m->n_workers; i++)
			pthread_join(m->workers[i].thread, NULL);
	return rc;
}

/* Ends the workers where they are: their connections are hung up, so that none waits for an answer. */
static void mover_stop(struct mover *m, int n_started)
{
	pthread_mutex_lock(&m->lock);
	atomic_store(&m->stop, true);
	for (int i = 0; i < n_started; i++)
		if (m->workers[i].hang_up >= 0)
			shutdown(m->workers[i].hang_up, SHUT_RDWR);
	pthread_mutex_unlock(&m->lock);
	for (int i = 0; i < n_started; i++)
		pthread_join(m->workers[i].thread, NULL);
}

/* ---- A worker's thread ------------------------------------------------------------------------------ */

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct mover *m = w->mover;
	struct box box;
	uint64_t i;
	int rc = worker_open(w);

	while (!rc && worker_next(w, &i)) {
		box_get(&m->plan, i, &box);
		rc = worker_read(w, &box);
		if (!rc)
			rc = worker_transform(w, &box);
		if (!rc)
			rc = worker_write(w, &box);
		if (!rc)
			worker_tally(w, &box);
	}
	pthread_mutex_lock(&m->lock);
	if (rc && !atomic_exchange(&m->stop, true))
		m->error = w->error;
	m->running--;
	pthread_cond_signal(&m->ended);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static int worker_open(struct worker *w)
{
	struct mover *m = w->mover;
	const struct box_plan *plan = &m->plan;

	w->client = tmactl_connect(m->t, &w->error);
	if (!w->client)
		return -1;
	pthread_mutex_lock(&m->lock);
	if (!atomic_load(&m->stop))
		w->hang_up = fcntl(tma_fd(w->client), F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&m->lock);
	if (w->hang_up < 0)
		return fail(&w->error, EXIT_FAILED, "out of file descriptors (%s)", strerror(errno));
	if (tma_region_create_kind(w->client, TMA_REGION_MEMFD, plan->src_bytes ? plan->src_bytes : 1,
	                           &w->src) < 0 ||
	    tma_region_create_kind(w->client, TMA_REGION_MEMFD, plan->dst_bytes, &w->dst) < 0)
		return tmactl_refused(w->client, &w->error);
	return 0;
}

static bool worker_next(struct worker *w, uint64_t *ret_box)
{
	struct mover *m = w->mover;
	bool more;

	pthread_mutex_lock(&m->lock);
	more = m->next_box < m->plan.n_boxes && !atomic_load(&m->stop);
	*ret_box = m->next_box;
	m->next_box += more;
	pthread_mutex_unlock(&m->lock);
	return more;
}

static int stopped(struct worker *w)
{
	return atomic_load(&w->mover->stop) ? fail(&w->error, EXIT_FAILED, "stopped") : 0;
}

/* One run of the source file. */
static int read_run(struct worker *w, void *data, size_t len, uint64_t offset)
{
	const struct mover_job *job = w->mover->job;
	ssize_t n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pread(job->src_fd, (char *)data + at, len - at, (off_t)(offset + at));
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return fail(&w->error, EXIT_FAILED, "%s: cannot be read (%s)", job->src_path,
			            strerror(errno));
		else if (n == 0)
			return fail(&w->error, EXIT_FAILED,
			            "%s: cut short while it was read: it ends at byte %" PRIu64,
			            job->src_path, offset + at);
	}
	return 0;
}

static int worker_read(struct worker *w, const struct box *box)
{
	int64_t position[BOX_MAX_RANK] = { 0 };
	uint64_t offset = box->src.offset;
	uint8_t *data = tma_region_data(w->src);
	int rc = 0;

	if (!box->src.count)
		return 0;
	assert(box->src.bytes * box->src.count <= tma_region_size(w->src));
	do {
		rc = read_run(w, data, box->src.bytes, offset);
		data += box->src.bytes;
		if (!rc)
			rc = stopped(w);
	} while (!rc && box_runs_next(&box->src, position, &offset));
	return rc;
}

static int worker_write(struct worker *w, const struct box *box)
{
	const struct mover_job *job = w->mover->job;
	int64_t position[BOX_MAX_RANK] = { 0 };
	uint64_t offset = box->dst.offset;
	const uint8_t *data = tma_region_data(w->dst);
	int rc;

	pthread_mutex_lock(&w->mover->writing);
	do {
		rc = output_write(job->output, data, box->dst.bytes, job->header_bytes + offset, &w->error);
		data += box->dst.bytes;
		if (!rc)
			rc = stopped(w);
	} while (!rc && box_runs_next(&box->dst, position, &offset));
	pthread_mutex_unlock(&w->mover->writing);
	return rc;
}

/* The dtype that carries elements of so many bytes. */
static enum tma_dtype carrier(uint32_t element)
{
	return element == 1   ? TMA_UINT8
	       : element == 2 ? TMA_UINT16
	       : element == 4 ? TMA_UINT32
	       : element == 8 ? TMA_UINT64
	                      : TMA_COMPLEX128;
}

/* An element's bits as a number of its carrier. */
static struct tma_number carried(uint32_t element, const uint8_t *bits)
{
	struct tma_number n = { .kind = element == 16 ? TMA_NUMBER_COMPLEX : TMA_NUMBER_UINT };

	if (element == 16) {
		memcpy(&n.re, bits, 8);
		memcpy(&n.im, bits + 8, 8);
	} else {
		for (uint32_t i = 0; i < element; i++)
			n.u |= (uint64_t)bits[i] << (8 * i);
	}
	return n;
}

static int worker_transform(struct worker *w, const struct box *box)
{
	const struct mover_job *job = w->mover->job;
	const struct view *view = job->view;
	int64_t strides[TMA_MAX_RANK];
	int64_t before[TMA_MAX_RANK];
	int64_t after[TMA_MAX_RANK];
	struct tma_tensor dst = { .region = w->dst, .dtype = carrier(view->element), .rank = view->rank };
	struct tma_tensor src = {
		.region = w->src, .dtype = dst.dtype, .rank = view->rank, .strides = strides
	};
	struct tma_transform transform = { .dst = &dst, .src = &src };
	int rc = 0;

	src.offset = box->src_start;
	for (int d = 0; d < view->rank; d++) {
		const struct box_piece *p = &box->piece[d];

		dst.shape[d] = p->len;
		src.shape[d] = p->step ? p->src_len : p->len;
		strides[d] = box->src_stride[d] / (int64_t)view->element;
		before[d] = p->before;
		after[d] = p->after;
		if (!p->before && !p->after)
			continue;
		transform.before = before;
		transform.after = after;
		transform.mode = view->mode;
	}
	if (transform.before && view->mode == TMA_PAD_CONSTANT)
		transform.value = carried(view->element, job->fill);
	worker_moves(w, 1);
	if (tma_transform(w->client, &transform) < 0)
		rc = tmactl_refused(w->client, &w->error);
	worker_moves(w, -1);
	return rc;
}

/* A box goes to the service, or comes back: times when several are there count once. */
static void worker_moves(struct worker *w, int change)
{
	struct mover *m = w->mover;

	pthread_mutex_lock(&m->lock);
	if (m->n_moving == 0)
		m->moving_ns = clock_ns();
	m->n_moving += change;
	if (m->n_moving == 0)
		m->result.ns += clock_ns() - m->moving_ns;
	pthread_mutex_unlock(&m->lock);
}

static void worker_tally(struct worker *w, const struct box *box)
{
	const struct tma_result *result = tma_last_result(w->client);
	struct mover *m = w->mover;

	pthread_mutex_lock(&m->lock);
	m->done_bytes += box->dst.bytes * box->dst.count;
	m->result.bytes += result->bytes;
	if (result->bytes > m->largest_bytes) {
		m->largest_bytes = result->bytes;
		memcpy(m->result.path, result->path, sizeof m->result.path);
	}
	pthread_mutex_unlock(&m->lock);
}
