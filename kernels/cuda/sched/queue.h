/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's thread and the engine's thread share the queue: it has the waiting jobs, by stream, and the
 * finished ones.
 *
 * The owner's thread only takes the lock, queues and signals; the engine's thread does the rest, and never
 * holds the lock during a call of the driver. A stream stands in the fair queue while its first job waits and
 * is not cancelled, or in the list `waiting` while that job's point has not come. A sticky error ends
 * everything: every job, waiting, under way or submitted later, ends as DEVICE_LOST.
 */
#ifndef KERNELS_CUDA_SCHED_QUEUE_H
#define KERNELS_CUDA_SCHED_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "flight.h"
#include "kernels/cuda/stage/staging.h"
#include "kernels/engine.h"
#include "kernels/queue/fair_queue.h"
#include "kernels/queue/job_list.h"

/* This is what the engine's thread does. */
enum queue_thread {
	QUEUE_POLLED, /* It makes pass after pass, with rests in between. */
	QUEUE_PARKED, /* It sleeps, with nothing to do. */
	QUEUE_DRIVEN, /* It sleeps, and the owner's thread works for it. */
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t work; /* by the monotonic clock */
	void (*wake)(void *arg);
	void *wake_arg;
	struct fair_queue fair_queue;
	TAILQ_HEAD(, engine_stream) waiting; /* for a point */
	struct job_list done;
	bool changed; /* Something has, since the engine's thread began its pass. */
	bool drives;  /* The owner calls engine_drive, which wakes the engine's thread or works for it. */
	enum queue_thread thread;
	bool closing;
	bool lost;
	char lost_why[256];
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct queue *queue;
	struct job_list unstarted;
	struct flight_list flights; /* under way */
	uint32_t n_flights;
	bool planned; /* staging is the first job's */

	/* The first job may wait for a point (timeline.h). */
	TAILQ_ENTRY(engine_stream) waiting_entry;
	bool is_waiting; /* It is in the queue's list. */
	bool is_polled;  /* The point is read without the lock, and the job may not end meanwhile. */
	bool has_come;
	uint64_t since_ns; /* It has been waited for since then; 0: it has not been polled. */
	uint64_t poll_ns;  /* It is polled again then. */

	/* These are the engine's thread's own. */
	struct staging staging;
	uint64_t held; /* the pass in which a flight of the stream had not ended (scheduler.c) */
};

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg);
void queue_deinit(struct queue *queue);

/* ---- For the owner's thread, as engine_stream_new and its kin ------------------------------------------ */

struct engine_stream *queue_stream_new(struct queue *queue, struct engine_owner *owner);
void queue_stream_free(struct engine_stream *stream);
void queue_submit(struct engine_stream *stream, struct engine_job *job);
void queue_cancel(struct engine_stream *stream);
bool queue_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* Returns the finished jobs, linked by next. If the device is lost, *lost is set and why filled. */
struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size);

/* ---- For any thread ------------------------------------------------------------------------------------ */

/* Records that the device is lost, and why. */
void queue_lose(struct queue *queue, const char *why);

/* Has the engine's thread make another pass. The lock must be held. */
void queue_stir(struct queue *queue);

/* Returns 0 or DEVICE_LOST. */
int queue_check(struct queue *queue, struct error *err);

/* ---- For the engine's thread, which holds the lock; true: the owner has to be woken -------------------- */

/* Takes the first waiting job of a stream in the queue. */
struct engine_job *queue_take(struct engine_stream *stream);

/* Puts the stream where it belongs, after flights of it have begun or ended. */
bool queue_settle(struct engine_stream *stream);

/* Ends all that waits as DEVICE_LOST, when nothing is under way. */
bool queue_lose_waiting(struct queue *queue);

/* Waits until something has changed, or until that time by the monotonic clock; 0 has no limit. Returns false
 * if it is late. */
bool queue_wait(struct queue *queue, uint64_t until_ns);

/* Releases the lock, and wakes the owner if `wake` is true. */
void queue_unlock_and_wake(struct queue *queue, bool wake);

#endif
