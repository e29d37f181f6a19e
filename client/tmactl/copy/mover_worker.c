/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of the mover. It uses its own struct worker, and the mover's counters under mover->lock. */
#include "mover_worker.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "proto/clock.h"

#define PAUSE_MS       20 /* pause between two attempts to connect */
#define TRIES_AT_LEAST 3  /* attempts to connect even if each takes as long as its timeout allows */
#define MAX_TRIES      5  /* attempts to move a box, which may be what brings the service down each time */

static int stopped(struct worker *w);
static int worker_open(struct worker *w);
static int worker_take(struct worker *w, uint64_t *ret_i, struct box *ret);
static int worker_transform(struct worker *w, const struct box *box);
static int worker_write(struct worker *w, uint64_t i, const struct box *box);
static void worker_moves(struct worker *w, int change);
static void worker_tally(struct worker *w, const struct box *box);

/* ---- A worker's thread ------------------------------------------------------------------------------ */

void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct mover *m = w->mover;
	struct box box;
	uint64_t i;
	int rc = worker_open(w);

	while (!rc && (rc = worker_take(w, &i, &box)) > 0) {
		rc = box.is_missing ? 0 : worker_transform(w, &box);
		if (!rc)
			rc = worker_write(w, i, &box);
		if (!rc && !box.is_missing)
			worker_tally(w, &box);
	}
	pthread_mutex_lock(&m->lock);
	if (rc && !atomic_exchange(&m->job->stop->failed, true))
		m->error = w->error;
	m->running--;
	pthread_cond_signal(&m->ended);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* Fails if the job is to stop. */
static int stopped(struct worker *w)
{
	return stop_is_asked(w->mover->job->stop) ? fail(&w->error, EXIT_FAILED, "stopped") : 0;
}

/* ---- The connection --------------------------------------------------------------------------------- */

static bool is_gone(int rc)
{
	return rc == TMA_DISCONNECTED || rc == TMA_DEVICE_LOST;
}

/* Returns the life of the service (lives.h) to which a connection will belong if it is made now. If lost is
 * set, also records that the worker has just lost its connection. */
static uint32_t worker_next_life(struct worker *w, bool lost)
{
	struct mover *m = w->mover;
	uint32_t life;

	pthread_mutex_lock(&m->lock);
	if (lost)
		lives_lose(&m->lives, w->life);
	life = lives_next(&m->lives);
	pthread_mutex_unlock(&m->lock);
	return life;
}

/* Records that the worker is connected, to this life of the service, and publishes hang_up, so that
 * mover_stop() can end its calls from here on. */
static int worker_joined(struct worker *w, uint32_t life)
{
	struct mover *m = w->mover;

	pthread_mutex_lock(&m->lock);
	w->life = life;
	if (w->hang_up >= 0)
		close(w->hang_up);
	w->hang_up = stop_is_asked(m->job->stop) ? -1 : fcntl(tma_fd(w->client), F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&m->lock);
	if (w->hang_up >= 0) {
		atomic_store(&m->was_served, true);
		return 0;
	}
	return stopped(w) < 0 ? -1
	                      : fail(&w->error, EXIT_FAILED, "out of file descriptors (%s)", strerror(errno));
}

/* Waits for a service that has gone away to come back, and reconnects; the library then registers the regions
 * again. The state of the box in flight is unknown, so the caller moves it once more. */
static int worker_rejoin(struct worker *w)
{
	const struct tmactl *t = w->mover->t;
	int64_t patience_ms = tmactl_patience_ms(t);
	int64_t until = clock_ms() + patience_ms;
	uint32_t life = worker_next_life(w, true);
	struct failure lost = { 0 };
	int rc;

	tmactl_refused(w->client, &lost);
	/* A short timeout, so that a service that hangs while it starts does not keep this thread from
	 * stopping. */
	tma_set_timeout(w->client, (int)(patience_ms / TRIES_AT_LEAST));
	while ((rc = tma_fd(w->client) < 0 ? tma_connect(w->client, t->socket) : tma_restore(w->client)) <
	           0 &&
	       rc != TMA_PERMISSION) {
		if (stopped(w) < 0)
			return -1;
		fail_status(&w->error, lost.status);
		if (clock_ms() >= until)
			return fail(&w->error, EXIT_FAILED, "%s, and it did not come back within %d s",
			            lost.text, (int)(patience_ms + 999) / 1000);
		poll(NULL, 0, PAUSE_MS);
		life = worker_next_life(w, false);
	}
	tma_set_timeout(w->client, t->timeout_ms);
	return rc < 0 ? tmactl_refused(w->client, &w->error) : worker_joined(w, life);
}

/* Connects for the first time. The service has to be there at once, unless another worker was connected
 * already: then it may be restarting and is waited for. */
static int worker_connect(struct worker *w)
{
	const struct tmactl *t = w->mover->t;
	int64_t until = clock_ms() + tmactl_patience_ms(t);

	for (;;) {
		uint32_t life = worker_next_life(w, false);
		struct failure f = { 0 };

		w->client = tmactl_connect(t, &f);
		if (w->client)
			return worker_joined(w, life);
		if (stopped(w) < 0)
			return -1;
		if (!atomic_load(&w->mover->was_served) || clock_ms() >= until)
			return fail_as(&w->error, &f);
		poll(NULL, 0, PAUSE_MS);
	}
}

static int worker_create(struct worker *w, uint64_t bytes, tma_region **ret)
{
	int rc;

	for (int i = 0; i < MAX_TRIES; i++) {
		rc = tma_region_create_kind(w->client, TMA_REGION_MEMFD, bytes ? bytes : 1, ret);
		if (rc >= 0)
			return 0;
		if (!is_gone(rc))
			break;
		if (worker_rejoin(w) < 0)
			return -1;
	}
	return tmactl_refused(w->client, &w->error);
}

static int worker_open(struct worker *w)
{
	const struct box_plan *plan = &w->mover->plan;
	const struct cast *cast = w->mover->job->cast;

	if (worker_connect(w) < 0 || worker_create(w, plan->src_bytes, &w->src) < 0 ||
	    worker_create(w, plan->dst_bytes, &w->dst) < 0 ||
	    (plan->scale_bytes && worker_create(w, plan->scale_bytes, &w->scales) < 0))
		return -1;
	if (!cast_bytes(cast))
		return 0;
	if (worker_create(w, cast_bytes(cast), &w->operands) < 0)
		return -1;
	cast_fill(cast, tma_region_data(w->operands));
	return 0;
}

/* ---- Boxes ------------------------------------------------------------------------------------------ */

static bool worker_next(struct worker *w, uint64_t *ret_box)
{
	struct mover *m = w->mover;
	bool more;

	pthread_mutex_lock(&m->lock);
	more = m->next_box < m->plan.n_boxes && !stop_is_asked(m->job->stop);
	*ret_box = m->next_box;
	m->next_box += more;
	pthread_mutex_unlock(&m->lock);
	return more;
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
		rc = source_read(w->mover->job->source, data, box->src.bytes, offset, &w->error);
		data += box->src.bytes;
		if (!rc)
			rc = stopped(w);
	} while (!rc && box_runs_next(&box->src, position, &offset));
	return rc;
}

/* Takes the next box and reads its source. Returns 1, 0 if no box is left or the job is to stop, or -1. */
static int worker_take(struct worker *w, uint64_t *ret_i, struct box *ret)
{
	struct mover *m = w->mover;
	bool in_order = m->job->source->is_sequential;
	int rc = 0;
	bool more;

	if (in_order)
		pthread_mutex_lock(&m->reading);
	more = worker_next(w, ret_i);
	if (more) {
		box_get(&m->plan, *ret_i, ret);
		rc = worker_read(w, ret);
	}
	if (in_order)
		pthread_mutex_unlock(&m->reading);
	return rc < 0 ? rc : more;
}

/* Waits until all boxes before box i are written, if the output is streamed. Fails if the job is to stop. */
static int worker_await_turn(struct worker *w, uint64_t i)
{
	struct mover *m = w->mover;

	if (!is_sent(m->job->output))
		return 0;
	pthread_mutex_lock(&m->lock);
	while (m->n_written != i && !stop_is_asked(m->job->stop)) {
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&m->written, &m->lock, &until);
	}
	pthread_mutex_unlock(&m->lock);
	return stopped(w);
}

static void worker_has_written(struct worker *w)
{
	struct mover *m = w->mover;

	pthread_mutex_lock(&m->lock);
	m->n_written++;
	pthread_cond_broadcast(&m->written);
	pthread_mutex_unlock(&m->lock);
}

/* Writes packed runs to their places after the header of an output. Caller holds mover->writing. */
static int worker_write_runs(struct worker *w, struct output *output, uint64_t header_bytes,
                             const struct box_runs *runs, const uint8_t *data)
{
	int64_t position[BOX_MAX_RANK] = { 0 };
	uint64_t offset = runs->offset;
	int rc;

	do {
		rc = output_write(output, data, runs->bytes, header_bytes + offset, &w->error);
		data += runs->bytes;
		if (!rc)
			rc = stopped(w);
	} while (!rc && box_runs_next(runs, position, &offset));
	return rc;
}

static int worker_write(struct worker *w, uint64_t i, const struct box *box)
{
	const struct mover_job *job = w->mover->job;
	int rc;

	if (worker_await_turn(w, i) < 0)
		return -1;
	if (box->is_missing) {
		worker_has_written(w);
		return 0;
	}
	pthread_mutex_lock(&w->mover->writing);
	rc = worker_write_runs(w, job->output, job->header_bytes, &box->dst, tma_region_data(w->dst));
	if (!rc && w->scales)
		rc = worker_write_runs(w, job->scale_output, job->scale_header_bytes, &box->scale,
		                       tma_region_data(w->scales));
	pthread_mutex_unlock(&w->mover->writing);
	worker_has_written(w);
	return rc;
}

/* Returns the type that stands for elements of `element` bytes in transforms that do not convert them. Only
 * the type's size matters. */
static enum tma_dtype carrier(uint32_t element)
{
	return element == 1   ? TMA_UINT8
	       : element == 2 ? TMA_UINT16
	       : element == 4 ? TMA_UINT32
	       : element == 8 ? TMA_UINT64
	                      : TMA_COMPLEX128;
}

/* Returns an element's bits as a number of the type that carrier() returns. */
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

/* Sets w->error to the failure that --cast exact met values that the type does not have, and returns -1. The
 * service counts them in one box only, so the message adds how many elements the box and the array have. */
static int worker_is_inexact(struct worker *w, const struct tma_tensor *src)
{
	const struct mover *m = w->mover;
	const char *why = tma_last_error(w->client);
	const int len = (int)strcspn(why, ";");
	uint64_t n = 1;

	for (int d = 0; d < src->rank; d++)
		n *= (uint64_t)src->shape[d];
	fail_status(&w->error, TMA_OUT_OF_RANGE);
	if (m->plan.n_boxes > 1)
		return fail(&w->error, EXIT_FAILED,
		            "%s: %.*s, among the %" PRIu64
		            " elements of a part of the array, which has %" PRIu64
		            " in all; --cast saturate takes the nearest values that there are",
		            m->job->source->path, len, why, n, m->job->source_items);
	return fail(&w->error, EXIT_FAILED,
	            "%s: %.*s, among the %" PRIu64
	            " elements of the array; --cast saturate takes the nearest values that there are",
	            m->job->source->path, len, why, m->job->source_items);
}

/* Runs a transform. If the service goes away, repeats it on the new connection: the regions and the source in
 * them are still there. */
static int worker_ask(struct worker *w, const struct tma_transform *transform)
{
	int rc;

	for (int i = 0; i < MAX_TRIES; i++) {
		worker_moves(w, 1);
		rc = tma_transform(w->client, transform);
		worker_moves(w, -1);
		if (rc >= 0)
			return 0;
		if (stopped(w) < 0)
			return -1;
		if (!is_gone(rc))
			break;
		if (worker_rejoin(w) < 0)
			return -1;
	}
	return rc == TMA_OUT_OF_RANGE && w->mover->job->cast->is ? worker_is_inexact(w, transform->src)
	                                                         : tmactl_refused(w->client, &w->error);
}

/* Sets *ret to the conversion of a box, with the part of the lists that belongs to its channels. */
static void worker_cast(const struct worker *w, const struct box *box, struct cast_request *ret)
{
	const struct mover_job *job = w->mover->job;
	const struct view *view = job->view;
	const int axis = view->channel < 0 ? 0 : view->channel;
	const struct box_piece *p = &box->piece[axis];

	cast_request_init(ret, job->cast, w->operands, view->rank, axis,
	                  view->channel < 0 ? 0 : view->first_channel + p->src, p->src_len, p->step);
}

static int worker_transform(struct worker *w, const struct box *box)
{
	const struct mover_job *job = w->mover->job;
	const struct view *view = job->view;
	int64_t strides[TMA_MAX_RANK];
	int64_t before[TMA_MAX_RANK];
	int64_t after[TMA_MAX_RANK];
	const bool casts = job->cast->is;
	struct tma_tensor dst = { .region = w->dst,
		                  .dtype = casts ? job->cast->to : carrier(view->element),
		                  .rank = view->rank };
	struct tma_tensor src = { .region = w->src,
		                  .dtype = casts ? job->cast->from : dst.dtype,
		                  .rank = view->rank,
		                  .strides = strides };
	struct tma_transform transform = { .dst = &dst, .src = &src, .order = job->order };
	struct cast_request cast;

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
		transform.value = casts ? job->value : carried(view->element, job->fill);
	if (casts) {
		worker_cast(w, box, &cast);
		if (cast_has_scales(job->cast))
			cast_request_scales(&cast, job->cast, w->scales, view, dst.shape);
		transform.conversion = &cast.conversion;
	}
	return worker_ask(w, &transform);
}

/* Counts a box that goes to the service (change 1) or comes back (-1), and adds up the time during which at
 * least one is there. */
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

/* Adds a box that has been moved and written to the result. */
static void worker_tally(struct worker *w, const struct box *box)
{
	const struct tma_result *result = tma_last_result(w->client);
	struct mover *m = w->mover;

	pthread_mutex_lock(&m->lock);
	lives_join(&m->lives, w->life);
	m->result.reconnects = m->lives.newest;
	m->done_bytes += box->dst.bytes * box->dst.count;
	m->result.bytes += result->bytes;
	if (result->bytes > m->largest_bytes) {
		m->largest_bytes = result->bytes;
		memcpy(m->result.path, result->path, sizeof m->result.path);
	}
	pthread_mutex_unlock(&m->lock);
}
