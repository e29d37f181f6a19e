/* SPDX-License-Identifier: Apache-2.0 */
/* The queue that the owner's thread and the engine's thread share: waiting jobs, by stream, and finished
 * jobs.
 *
 * The owner's thread only takes the lock, queues and signals; the engine's thread does the rest, and never
 * holds the lock during a call of the driver. A stream stands in the fair queue while its first job waits and
 * is not cancelled, or in the list `waiting` while that job's point has not come. A sticky error ends
 * everything: every job, waiting, under way or submitted later, ends as DEVICE_LOST.
 */
#ifndef KERNELS_CUDA_QUEUE_H
#define KERNELS_CUDA_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "in_flight.h"
#include "kernels/engine.h"
#include "kernels/fair_queue.h"
#include "staging.h"

TAILQ_HEAD(in_flight_list, in_flight_job);

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t work; /* by the monotonic clock */
	void (*wake)(void *arg);
	void *wake_arg;
	struct fair_queue fair_queue;
	TAILQ_HEAD(, engine_stream) waiting; /* for a point */
	struct engine_job *done;
	struct engine_job **done_end;
	bool changed; /* since the engine's thread began its pass */
	bool drives;  /* the owner: it calls engine_drive, which wakes the engine's thread, or works for it */
	bool is_parked; /* the engine's thread sleeps, with nothing to do */
	bool is_driven; /* the owner's thread works for it */
	bool closing;
	bool lost;
	char lost_why[256];
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct queue *queue;
	struct engine_job *first; /* waiting */
	struct engine_job **end;
	struct in_flight_list in_flight; /* under way */
	uint32_t n_in_flight;
	bool planned; /* staging is the first job's */

	/* Of the first job's point; see timeline.h. */
	TAILQ_ENTRY(engine_stream) waiting_entry;
	bool is_waiting; /* in the queue's list */
	bool is_polled;  /* without the lock: the job may not end */
	bool has_come;
	uint64_t since_ns; /* it is waited for; 0: it has not been polled */
	uint64_t poll_ns;  /* the next time */

	/* The engine's thread's own. */
	struct staging staging;
	uint64_t held; /* see scheduler.c */
};

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg);
void queue_deinit(struct queue *queue);

/* ---- The owner's thread's: as engine_stream_new and its kin ---------------------------------------------
 */

struct engine_stream *queue_stream_new(struct queue *queue, struct engine_owner *owner);
void queue_stream_free(struct engine_stream *stream);
void queue_submit(struct engine_stream *stream, struct engine_job *job);
void queue_cancel(struct engine_stream *stream);
bool queue_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* The finished jobs, linked by next. When the device is lost *lost is set and why filled. */
struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size);

/* ---- Any thread's ---------------------------------------------------------------------------------------
 */

/* The device is lost. */
void queue_lose(struct queue *queue, const char *why);

/* Under the lock: the engine's thread makes another pass. */
void queue_stir(struct queue *queue);

/* 0, or DEVICE_LOST. */
int queue_check(struct queue *queue, struct error *err);

/* ---- The engine's thread's, under the lock; bool: whether the owner has to be woken -------------------- */

/* Takes the first waiting job of a stream in the queue. */
struct engine_job *queue_take(struct engine_stream *stream);

bool queue_done(struct queue *queue, struct engine_job *job);

/* After in-flight jobs of the stream have begun or ended. */
bool queue_settle(struct engine_stream *stream);

/* What waits, and nothing is under way: all of it ends as DEVICE_LOST. */
bool queue_lose_waiting(struct queue *queue);

/* Until something has changed or it is that late, by the monotonic clock; 0: however late. False: late. */
bool queue_wait(struct queue *queue, uint64_t until_ns);

/* Not under the lock after it. */
void queue_unlock_and_wake(struct queue *queue, bool wake);

/* ---- Jobs of any kind: one move, a move over a list of blocks, or a batch ----------------------------- */

/* Read and written, by all of it; at most 2^62. */
uint64_t job_bytes(const struct engine_job *job);

/* Whether it has more than one move: it then runs in one go, each side where it is. */
static inline bool job_is_many(const struct engine_job *job)
{
	return job->blocks || job->moves;
}

/* Every move ends so, and the job. */
void job_end_all(struct engine_job *job, int status);

/* The first of a batch's moves that has failed by now, its status; else 0. */
int job_first_failure(const struct engine_job *job);

#endif
