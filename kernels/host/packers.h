/* SPDX-License-Identifier: Apache-2.0 */
/* Packers: threads that copy between clients' scattered memory and buffers that a device's copy engines read
 * and write. They know no device.
 *
 * What is to be copied is a task, of parts that may run side by side and in any order. Tasks begin in the
 * order in which they were added. The threads start with the first task; one that finds nothing to do
 * spins for a while, so that a pipeline does not stall on its waking up, and then sleeps.
 *
 * All functions but packers_init and packers_deinit are for one thread alone, which never waits for a part.
 */
#ifndef KERNELS_HOST_PACKERS_H
#define KERNELS_HOST_PACKERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "fault.h"

#define PACKERS_MOST_THREADS 64

/* Tasks that share a bound on the threads that work on them. */
struct pack_group {
	uint32_t most;    /* > 0 */
	uint32_t running; /* by the packers */
};

struct pack_task {
	/* By who adds it; it stays where it is until the task is over. */
	struct pack_group *group;
	void (*run)(void *arg, uint32_t part); /* under a guard (fault.h) */
	void *arg;
	const struct fault_range *ranges; /* of clients' memory: what may fail */
	uint32_t n_ranges;
	uint32_t parts; /* > 0 */

	/* By the packers. */
	uint32_t next; /* part */
	bool is_queued;
	atomic_uint left; /* parts that are not over */
	atomic_bool failed;
	TAILQ_ENTRY(pack_task) entry;
};

struct packers {
	pthread_mutex_t lock;
	pthread_cond_t work;
	TAILQ_HEAD(, pack_task) tasks; /* with parts that nobody has begun */
	atomic_uint queued;            /* of them */
	uint32_t most;
	uint32_t threads; /* started */
	uint32_t sleepers;
	bool closing;
	bool is_guarded; /* by fault_init */
	pthread_t thread[PACKERS_MOST_THREADS];
};

/* By default: half of the CPUs that the process can keep busy (threads.h), at most 8. */
uint32_t packers_default_threads(void);

/* Starts nothing yet. */
void packers_init(struct packers *packers, uint32_t threads);

/* Every task must be over. */
void packers_deinit(struct packers *packers);

/* Once any thread can be started; false: none can, or the guard cannot be had. The first call of many starts
 * them. */
bool packers_start(struct packers *packers);

/* After packers_start. */
void packers_add(struct packers *packers, struct pack_task *task);

/* Parts that nobody has begun do not run. The task is over once the others are. */
void packers_drop(struct packers *packers, struct pack_task *task);

/* Whether all parts are over; what they wrote is then visible. */
static inline bool pack_task_is_over(const struct pack_task *task)
{
	return atomic_load_explicit(&task->left, memory_order_acquire) == 0;
}

/* Of one that is over: whether the memory failed under a part. */
static inline bool pack_task_has_failed(const struct pack_task *task)
{
	return atomic_load_explicit(&task->failed, memory_order_relaxed);
}

#endif
