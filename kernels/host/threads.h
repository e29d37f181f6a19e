/* SPDX-License-Identifier: Apache-2.0 */
/* Determines how many threads are worth starting: as many as there are CPUs that the process can keep busy.
 * The CPU engine has that many unless told otherwise, and the packers have a share of them.
 *
 * These CPUs are those of the affinity mask, or fewer if the CPU quota of a cgroup, the process's own or one
 * above, allows less time. More threads than that would all be stopped at once, in the middle of their work
 * items, for the rest of each period of the quota. A cpuset is part of the affinity mask.
 *
 * Each hardware thread of a core (SMT) counts as a CPU. A second one adds little to the memory throughput of
 * a core, but it adds instructions where a transpose of short elements lacks them. A virtual machine often
 * hides which CPUs share a core, or presents two CPUs as one core, so that counting cores would leave half of
 * it idle. The kernel wakes threads on idle cores before it wakes them beside busy ones, so that jobs for few
 * threads do not share cores. These effects have not been measured.
 *
 * Threads are bound neither to CPUs nor to NUMA nodes. The memory of a request is where its client touched it
 * first, on any node or on several, so no assignment of threads suits all requests. The kernel knows which
 * CPUs other programs of the host use, and a bound thread would have to wait for its CPU. That has not been
 * measured either; memcpy's threads were faster bound than unbound beside two other processes
 * (tests/bench/EXPERIMENTS.md). Nothing here needs the machine's topology (hwloc). A service for one node is
 * made with CPUAffinity= (systemd/GUIDE.md).
 */
#ifndef KERNELS_HOST_THREADS_H
#define KERNELS_HOST_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include "fault.h"

/* Returns how many threads are worth starting in this process, by the calling thread's affinity mask; at
 * least 1. */
uint32_t threads_default(void);

/* Returns the same for a process that may run on `cpus` CPUs, with the quotas that files below the directory
 * root describe. root is "" except in tests. */
uint32_t threads_for(uint32_t cpus, const char *root);

/* ---- Packers ------------------------------------------------------------------------------------------- */

/* Packers are threads that copy between clients' scattered memory and the buffers that a device's copy
 * engines read and write. They know no device.
 *
 * A task is something to be copied, made of parts that may run concurrently and in any order. Tasks begin in
 * the order in which they were added. The threads are started with the first task. A thread that finds
 * nothing to do spins for a while before it sleeps, so that a pipeline does not have to wait for it to wake
 * up.
 *
 * All functions but packers_init and packers_deinit must be called by one thread only, and never wait for a
 * part.
 */
#define PACKERS_MOST_THREADS 64

/* Tasks that share a limit on the number of threads that work on them. */
struct pack_group {
	uint32_t most; /* maximum number of threads at a time; > 0 */
	/* Number of packers' threads that work on the group now; protected by the packers' lock. */
	uint32_t running;
};

struct pack_task {
	/* The caller of packers_add sets these fields, and keeps the task in place until it is over. */
	struct pack_group *group;
	void (*run)(void *arg, uint32_t part); /* copies one part; called under a guard (fault.h) */
	void *arg;
	const struct fault_range *ranges; /* clients' memory that the parts touch, which may fail */
	uint32_t n_ranges;
	uint32_t parts; /* number of parts; > 0 */

	/* The packers set the fields below. */
	uint32_t next; /* index of the next part to begin */
	bool is_queued;
	atomic_uint left; /* number of parts that are not over */
	atomic_bool failed;
	TAILQ_ENTRY(pack_task) entry;
};

struct packers {
	pthread_mutex_t lock;
	pthread_cond_t work;
	TAILQ_HEAD(, pack_task) tasks; /* tasks with parts that have not begun */
	atomic_uint queued;            /* number of tasks in the list; read without the lock */
	uint32_t most;
	uint32_t threads; /* number of threads that were started */
	uint32_t sleepers;
	bool closing;
	bool is_guarded; /* fault_init has been called */
	pthread_t thread[PACKERS_MOST_THREADS];
};

/* Returns the default number of threads: half of the CPUs that the process can keep busy, at most 8. */
uint32_t packers_default_threads(void);

/* Sets up packers that will have `threads` threads. Starts none yet. */
void packers_init(struct packers *packers, uint32_t threads);

/* Ends the threads. Every task must be over. */
void packers_deinit(struct packers *packers);

/* Starts the threads unless an earlier call has. Returns false if none can be started, or if the guard cannot
 * be set up. */
bool packers_start(struct packers *packers);

/* Adds a task. packers_start must have returned true. */
void packers_add(struct packers *packers, struct pack_task *task);

/* Cancels the task's parts that have not begun. The task is over once its other parts are. */
void packers_drop(struct packers *packers, struct pack_task *task);

/* Returns whether all parts are over. What they wrote is then visible. */
static inline bool pack_task_is_over(const struct pack_task *task)
{
	return atomic_load_explicit(&task->left, memory_order_acquire) == 0;
}

/* Returns whether clients' memory failed while a part touched it. The task must be over. */
static inline bool pack_task_has_failed(const struct pack_task *task)
{
	return atomic_load_explicit(&task->failed, memory_order_relaxed);
}

/* ---- Copies past the caches ---------------------------------------------------------------------------- */

#ifdef __SSE2__
#include <emmintrin.h>

#define STREAM_COPY_LINE 64

/* Copies as memcpy does, for memory that will not be read again soon: writes whole cache lines past the
 * caches, which saves reading them first. Whoever sees a store that the caller makes afterwards also sees
 * what was copied. */
static inline void stream_copy(void *dst, const void *src, size_t n)
{
	const size_t to_line = (size_t)(-(uintptr_t)dst % STREAM_COPY_LINE);
	const size_t head = n < to_line ? n : to_line;
	char *to = (char *)dst + head;
	const char *from = (const char *)src + head;

	memcpy(dst, src, head);
	for (n -= head; n >= STREAM_COPY_LINE; n -= STREAM_COPY_LINE) {
		for (int i = 0; i < STREAM_COPY_LINE; i += 16)
			_mm_stream_si128((__m128i *)(void *)(to + i),
			                 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
		to += STREAM_COPY_LINE;
		from += STREAM_COPY_LINE;
	}
	memcpy(to, from, n);
	_mm_sfence();
}
#else
static inline void stream_copy(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}
#endif

#endif
