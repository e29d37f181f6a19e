/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is what the owner's thread and the engine's thread share: the waiting jobs, by engine stream, and
 * the finished ones. Admission belongs to the engine's thread and decides which waiting job may start now.
 *
 * The owner's thread only takes the lock, queues jobs and signals; the engine's thread does everything else,
 * and never holds the lock during a driver call. A stream is in the fair queue while its first job waits to
 * start and is not cancelled, or in the list `waiting` while that job's point has not come. An error after
 * which the driver's context is unusable ends everything: every job that waits, is under way or is submitted
 * later ends as DEVICE_LOST.
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

/* State of the engine's thread. */
enum queue_thread {
	QUEUE_POLLED, /* It makes one pass after another, with rests in between. */
	QUEUE_PARKED, /* It sleeps because there is nothing to do. */
	QUEUE_DRIVEN, /* It sleeps while the owner's thread does its work (scheduler_drive). */
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t work; /* timed waits use the monotonic clock */
	void (*wake)(void *arg);
	void *wake_arg;
	struct fair_queue fair_queue;
	TAILQ_HEAD(, engine_stream) waiting; /* streams whose first job waits for a point */
	struct job_list done;                /* jobs that have ended and wait to be reaped */
	bool changed; /* Something has changed since the engine's thread began its pass. */
	/* The owner promises to call engine_drive after it has submitted jobs. That call wakes the engine's
	 * thread or does its work. */
	bool drives;
	enum queue_thread thread;
	bool closing;
	bool lost;
	char lost_why[256];
};

struct engine_stream {
	struct fair_stream fair; /* must be first: fair_queue_next returns it, and it is cast to the stream */
	struct queue *queue;
	struct job_list unstarted;  /* jobs that have not started, in order */
	struct flight_list flights; /* flights under way, in order */
	uint32_t n_flights;
	bool planned; /* `staging` says how the first unstarted job travels. */

	/* State of the point that the first unstarted job waits for, if any (flight.h). */
	TAILQ_ENTRY(engine_stream) waiting_entry;
	bool is_waiting; /* The stream is in the queue's list `waiting`. */
	bool is_polled;  /* The point is being read without the lock, and the job must not end meanwhile. */
	bool has_come;   /* The point has come. */
	/* Monotonic time since which the point has been waited for; 0: it was never polled. */
	uint64_t since_ns;
	uint64_t poll_ns; /* monotonic time from which on it is polled again */

	/* Only the engine's thread uses these. */
	struct staging staging;
	/* Number of the last pass in which a flight of this stream was found not to have ended
	 * (scheduler.c). */
	uint64_t held;
};

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg);
void queue_deinit(struct queue *queue);

/* ---- For the owner's thread, as engine_stream_new and its kin ------------------------------------------ */

struct engine_stream *queue_stream_new(struct queue *queue, struct engine_owner *owner);
void queue_stream_free(struct engine_stream *stream);
void queue_submit(struct engine_stream *stream, struct engine_job *job);
void queue_cancel(struct engine_stream *stream);
bool queue_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* Returns the finished jobs, linked by next, or NULL. If the device is lost, sets *lost and copies the reason
 * to why, which has room for `size` bytes. */
struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size);

/* ---- For any thread ------------------------------------------------------------------------------------ */

/* Records that the device is lost and why, and wakes the owner the first time. */
void queue_lose(struct queue *queue, const char *why);

/* Makes the engine's thread begin another pass. Caller holds queue->lock. */
void queue_stir(struct queue *queue);

/* Returns 0, or DEVICE_LOST if the device is lost. */
int queue_check(struct queue *queue, struct error *err);

/* ---- For the engine's thread, which holds the lock; true: the owner has to be woken -------------------- */

/* Removes and returns the stream's first unstarted job. */
struct engine_job *queue_take(struct engine_stream *stream);

/* Moves the stream's ended jobs to the done list, and puts the stream in the fair queue, in the list
 * `waiting` or in neither. Must be called whenever its jobs or flights have changed. */
bool queue_settle(struct engine_stream *stream);

/* Ends all unstarted jobs as DEVICE_LOST. No flight may be under way. */
bool queue_lose_waiting(struct queue *queue);

/* Waits until something has changed, or until the monotonic time until_ns; 0: no limit. Returns false if
 * nothing has changed until then. */
bool queue_wait(struct queue *queue, uint64_t until_ns);

/* Releases the lock, and then wakes the owner if `wake` is true. */
void queue_unlock_and_wake(struct queue *queue, bool wake);

/* ---- Admission ----------------------------------------------------------------------------------------- */

/* A job may start if it stays within what the engine, its owner and its stream may have under way, and if
 * there is room in scratch memory. A job of more than one launch has its stream to itself. While a job waits
 * for scratch memory, no other job that needs scratch memory overtakes it.
 *
 * Admission knows what the jobs under way have taken, and what the jobs that cannot start are waiting for:
 * plans, which are made between passes, and scratch memory. Only the engine's thread uses it, or the owner's
 * thread while it drives the engine.
 */

/* Maximum number of plans that jobs wait for at a time. */
#define ADMISSION_PLANS 8

/* A plan that a job waits for. */
struct wanted_plan {
	struct engine_plan *plan;   /* admission holds a reference to it */
	struct engine_owner *owner; /* owner to be charged for the plan; NULL once it has been charged */
};

struct admission {
	const struct cuda_limits *limits;
	uint32_t staged; /* jobs under way that take more than one launch */
	struct scratch scratch;
	/* Monotonic time at which the device had no memory for scratch; 0: it has not failed. */
	uint64_t scratch_failed_ns;
	bool scratch_missing; /* A job waits for scratch memory to be allocated. */
	/* A job waits for scratch memory that other jobs use, and no other job that needs some overtakes it
	 * in this pass. */
	bool scratch_full;
	struct sharing sharing;
	struct wanted_plan wanted[ADMISSION_PLANS];
	uint32_t n_wanted;
};

void admission_init(struct admission *admission, const struct cuda_limits *limits, bool by_mps);

/* Returns whether the stream's first job may start. Serves as the condition of fair_queue_next_if; the second
 * argument must be a struct admission. Plans the job if it is not planned yet, and may set scratch_missing
 * and scratch_full. Caller holds queue->lock. */
bool admission_can_start(struct fair_stream *fair, void *admission);

/* Returns whether the owner's thread may start the stream's first job itself: the job is launched in a few
 * microseconds without allocating anything, and its end wakes no sleeping threads. next is the flight that
 * would carry it, or NULL. */
bool admission_is_quick(const struct admission *admission, const struct fair_stream *fair,
                        const struct flight *next);

/* admission_start counts a job that starts and takes its scratch memory; admission_end reverses this when the
 * job has ended. */
void admission_start(struct admission *admission, struct flight *flight);
void admission_end(struct admission *admission, struct flight *flight);

/* Returns how the job shares the device with others (enum job_weight), so that short jobs need not wait for
 * long ones. */
enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits);

/* ---- What is missing; the lock must be held ------------------------------------------------------------ */

/* Allocates scratch memory, releasing the lock meanwhile. If the device has no memory for it, the next
 * attempt follows after a while; until then jobs do without scratch memory. */
void admission_open_scratch(struct admission *admission, struct queue *queue);

/* Charges owners for the plans that their jobs wait for. Must be called before the lock is released, because
 * an owner may be freed after that. */
void admission_charge_plans(struct admission *admission, struct queue *queue);

/* Makes some of the wanted plans, releasing the lock meanwhile. If a job that waits for one is cancelled
 * during that time, the plan is kept all the same. */
void admission_make_plans(struct admission *admission, struct queue *queue);

/* Drops the first n wanted plans, which are made or no longer needed. The lock need not be held. */
void admission_drop_plans(struct admission *admission, uint32_t n);

#endif
