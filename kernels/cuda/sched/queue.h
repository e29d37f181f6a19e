/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's thread and the engine's thread share the queue, which has the waiting jobs, by stream, and the
 * finished ones. Admission, which belongs to the engine's thread, decides which waiting job may start now.
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
#include "kernels/cuda/stage/jobs.h"
#include "kernels/cuda/stage/staging.h"
#include "kernels/engine.h"
#include "kernels/queue/fair_queue.h"

/* This is what the engine's thread does. */
enum queue_thread {
	QUEUE_POLLED, /* It makes pass after pass, with rests in between. */
	QUEUE_PARKED, /* It sleeps, with nothing to do. */
	QUEUE_DRIVEN, /* It sleeps, and the owner's thread works for it. */
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t work; /* waits by the monotonic clock */
	void (*wake)(void *arg);
	void *wake_arg;
	struct fair_queue fair_queue;
	TAILQ_HEAD(, engine_stream) waiting; /* streams whose first job waits for a point */
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
	struct flight_list flights; /* flights under way, in order */
	uint32_t n_flights;
	bool planned; /* `staging` is the plan of the first job. */

	/* The first job may wait for a point (flight.h). */
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

/* ---- Admission ----------------------------------------------------------------------------------------- */

/* A job may start within what the engine, its owner and its stream may have under way, and with room in
 * scratch memory. A job of more than one launch has its stream to itself. While a job waits for scratch
 * memory, no other job that needs scratch memory overtakes it.
 *
 * Admission knows what the jobs under way have taken, and what is missing for those that cannot start: plans,
 * which are made between passes, and scratch memory. All of it is the engine's thread's own.
 */

/* Jobs wait for at most so many plans at a time. */
#define ADMISSION_PLANS 8

/* Jobs wait for this plan. */
struct wanted_plan {
	struct engine_plan *plan;   /* with a reference */
	struct engine_owner *owner; /* is charged for it; NULL once that has been done */
};

struct admission {
	const struct cuda_limits *limits;
	uint32_t staged; /* jobs under way of more than one launch */
	struct scratch scratch;
	uint64_t scratch_failed_ns; /* The device had none at that time; 0: it has not been asked. */
	bool scratch_missing;       /* A job waits for scratch memory to be opened. */
	bool scratch_full;          /* A job waits for ranges that others have, and nobody overtakes it. */
	struct sharing sharing;
	struct wanted_plan wanted[ADMISSION_PLANS];
	uint32_t n_wanted;
};

void admission_init(struct admission *admission, const struct cuda_limits *limits, bool by_mps);

/* This is the condition of fair_queue_next_if, whose argument is a struct admission. It plans the stream's
 * first job if that is not planned yet, and sets scratch_missing and scratch_full. The lock must be held. */
bool admission_can_start(struct fair_stream *fair, void *admission);

/* Returns whether the owner's thread may start the stream's first job, which `next` would carry: it is
 * launched in a few microseconds without an allocation, and its end wakes no sleepers. */
bool admission_is_quick(const struct admission *admission, const struct fair_stream *fair,
                        const struct flight *next);

/* A job that could start starts, and takes the scratch memory that it needs; later it ends, and gives it
 * back. */
void admission_start(struct admission *admission, struct flight *flight);
void admission_end(struct admission *admission, struct flight *flight);

/* Weighs a job, so that others need not wait for a long one. */
enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits);

/* ---- What is missing; the lock must be held ------------------------------------------------------------ */

/* Opens scratch memory, and releases the lock meanwhile. A device that has none is asked again later; until
 * then jobs do without. */
void admission_open_scratch(struct admission *admission, struct queue *queue);

/* Charges owners for the plans that their jobs want. It must be called before the lock is released, because
 * an owner may be gone after that. */
void admission_charge_plans(struct admission *admission, struct queue *queue);

/* Makes some of the plans, and releases the lock meanwhile. A job that waits for one may be canceled then,
 * but the plan stays. */
void admission_make_plans(struct admission *admission, struct queue *queue);

/* Drops the first n plans, for which nobody waits any more. */
void admission_drop_plans(struct admission *admission, uint32_t n);

#endif
