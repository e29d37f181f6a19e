/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's side of the mover: shapes the boxes, starts the workers, watches and stops them. Everything
 * here runs on the caller's thread. */
#include "mover.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mover_worker.h"

#define POLL_MS       50                 /* longest time between two calls of the progress function */
#define MAX_BOX_BYTES (64 * 1024 * 1024) /* source and output; larger boxes are not faster */
#define MIN_BOX_BYTES (1024 * 1024)      /* boxes are not made smaller just to keep all workers busy */
#define BOXES_EACH    4                  /* number of boxes for each worker, in a small job */

static void mover_init(struct mover *m, const struct tmactl *t, const struct mover_job *job);
static int mover_plan(struct mover *m, struct failure *f);
static int mover_start(struct mover *m, struct failure *f);
static int mover_watch(struct mover *m, mover_progress_fn *progress, void *arg, struct failure *f);
static void mover_stop(struct mover *m, int n_started);
static void mover_deinit(struct mover *m);

/* ---- The caller's thread ---------------------------------------------------------------------------- */

int mover_run(const struct tmactl *t, const struct mover_job *job, mover_progress_fn *progress, void *arg,
              struct mover_result *ret, struct failure *f)
{
	struct mover m;
	int rc;

	mover_init(&m, t, job);
	rc = mover_plan(&m, f);
	if (!rc)
		rc = mover_start(&m, f);
	if (!rc)
		rc = mover_watch(&m, progress, arg, f);
	*ret = m.result;
	mover_deinit(&m);
	return rc;
}

/* Reduces the number of workers if a block that has a scale needs more memory than a worker's share. Fails if
 * there is not enough for one worker. */
static int plan_blocks(struct mover *m, uint64_t memory, struct failure *f)
{
	const struct box_plan *plan = &m->plan;
	const uint64_t bytes = plan->src_bytes + plan->dst_bytes + plan->scale_bytes;

	if (!m->job->view->scale_element || bytes <= memory / (uint64_t)m->n_workers)
		return 0;
	m->n_workers = (int)(memory / bytes);
	if (m->n_workers)
		return 0;
	return fail(f, EXIT_FAILED,
	            "--amax-block %s: a block, with its input, has %" PRIu64
	            " bytes, but there is memory for %" PRIu64 "; --memory allows more",
	            m->job->cast->args->amax.block_text, bytes, memory);
}

/* Plans boxes of at most slot_bytes for at most n_workers. Sets *ret_reads_on and *ret_writes_on to whether
 * the source and the output can be used without spooling, because they are not sequential or the boxes come
 * in the order of their bytes. */
static int plan_for(struct mover *m, int n_workers, uint64_t slot_bytes, uint64_t memory, bool *ret_reads_on,
                    bool *ret_writes_on, struct failure *f)
{
	const struct mover_job *job = m->job;

	box_plan_deinit(&m->plan);
	if (box_plan_init(&m->plan, job->view, slot_bytes, f) < 0)
		return -1;
	m->n_workers = m->plan.n_boxes < (uint64_t)n_workers ? (int)m->plan.n_boxes : n_workers;
	if (plan_blocks(m, memory, f) < 0)
		return -1;
	*ret_reads_on = !job->source->is_sequential || box_plan_reads_on(&m->plan);
	*ret_writes_on = !is_sent(job->output) || box_plan_writes_on(&m->plan);
	return 0;
}

/* Chooses the boxes. The first choice is boxes that keep all workers busy. If the order of a pipe's bytes
 * does not allow them, tries the largest boxes that all workers can have, then those that one worker can
 * have. If these do not help either, spools a pipe, which may take some of the memory, and starts again. */
static int mover_plan(struct mover *m, struct failure *f)
{
	const struct mover_job *job = m->job;
	uint64_t memory = job->memory;
	uint64_t fair = 2 * (job->view->dst_bytes / (MAX_WORKERS * BOXES_EACH));

	fair = fair < MIN_BOX_BYTES ? MIN_BOX_BYTES : fair > MAX_BOX_BYTES ? MAX_BOX_BYTES : fair;
	for (;;) {
		uint64_t most = memory / MAX_WORKERS;
		bool reads_on, writes_on;

		if (plan_for(m, MAX_WORKERS, fair < most ? fair : most, memory, &reads_on, &writes_on, f) <
		        0 ||
		    (!(reads_on && writes_on) &&
		     plan_for(m, MAX_WORKERS, most, memory, &reads_on, &writes_on, f) < 0) ||
		    (!(reads_on && writes_on) &&
		     plan_for(m, 1, memory, memory, &reads_on, &writes_on, f) < 0))
			return -1;
		if (reads_on && writes_on)
			return 0;
		if (!reads_on && source_spool(job->source, job->source_end, &memory, f) < 0)
			return -1;
		if (reads_on && output_spool(job->output, &memory, f) < 0)
			return -1;
	}
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
	pthread_cond_init(&m->written, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->reading, NULL);
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
	pthread_cond_destroy(&m->written);
	pthread_mutex_destroy(&m->reading);
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

/* Waits until the workers have ended and calls the progress function meanwhile. Stops them if one of them or
 * that function fails. */
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
			rc = fail_as(f, &m->error);
		pthread_mutex_unlock(&m->lock);
		if (!rc)
			rc = progress(arg, done, f);
		pthread_mutex_lock(&m->lock);
	}
	if (m->error.code)
		rc = fail_as(f, &m->error);
	pthread_mutex_unlock(&m->lock);
	if (rc)
		mover_stop(m, m->n_workers);
	else
		for (int i = 0; i < m->n_workers; i++)
			pthread_join(m->workers[i].thread, NULL);
	return rc;
}

/* Stops the first n_started workers and joins their threads. Shuts their connections down, so that none of
 * them waits for an answer. */
static void mover_stop(struct mover *m, int n_started)
{
	pthread_mutex_lock(&m->lock);
	atomic_store(&m->job->stop->failed, true);
	pthread_cond_broadcast(&m->written);
	for (int i = 0; i < n_started; i++)
		if (m->workers[i].hang_up >= 0)
			shutdown(m->workers[i].hang_up, SHUT_RDWR);
	pthread_mutex_unlock(&m->lock);
	for (int i = 0; i < n_started; i++)
		pthread_join(m->workers[i].thread, NULL);
}
