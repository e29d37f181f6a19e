/* SPDX-License-Identifier: Apache-2.0 */
/* It is worth starting as many threads as there are CPUs that the process can keep busy. The CPU engine has
 * that many unless told otherwise, and the packers have a share of them.
 *
 * The CPUs are those of its affinity mask, or fewer where the CPU quota of a cgroup, its own or one above,
 * allows less time than they have. More threads than that would be stopped together, in the middle of their
 * work items, for the rest of each period of the quota. A cpuset is part of the affinity mask.
 *
 * Each hardware thread of a core (SMT) counts as a CPU. A second one adds little to what memory answers, but
 * it adds instructions where a transpose of short elements lacks them, and a virtual machine often hides
 * which CPUs share a core, or calls two CPUs one core: to count cores would leave half of it idle. The kernel
 * wakes threads on idle cores before it wakes them beside busy ones, so jobs for few threads do not share
 * cores. Not measured.
 *
 * Threads are bound neither to CPUs nor to nodes. The memory of a request is where its client touched it
 * first, on any node or on several, so no order of threads suits all requests; the kernel knows which CPUs
 * other programs of the host use, and a bound thread would wait for its CPU meanwhile. That is not measured;
 * memcpy's threads, bound, were faster beside two other processes than unbound (tests/bench/EXPERIMENTS.md).
 * So nothing here needs the machine's topology (hwloc). A service of one node is made with CPUAffinity=
 * (systemd/GUIDE.md).
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

/* Returns how many are worth starting in this process, by the calling thread's affinity mask; at least 1. */
uint32_t threads_default(void);

/* Does so for a process that may run on so many CPUs, in the cgroups that the files below root name; root is
 * "" but for tests. */
uint32_t threads_for(uint32_t cpus, const char *root);

/* ---- Packers ------------------------------------------------------------------------------------------- */

/* Packers are threads that copy between clients' scattered memory and buffers that a device's copy engines
 * read and write. They know no device.
 *
 * What is to be copied is a task, of parts that may run side by side and in any order. Tasks begin in the
 * order in which they were added. The threads start with the first task; one that finds nothing to do spins
 * for a while, so that a pipeline does not stall on its waking up, and then sleeps.
 *
 * All functions but packers_init and packers_deinit are for one thread alone, which never waits for a part.
 */
#define PACKERS_MOST_THREADS 64

/* A group of tasks shares a bound on the number of threads that work on them. */
struct pack_group {
	uint32_t most;    /* > 0 */
	uint32_t running; /* threads of the packers that work on it now */
};

struct pack_task {
	/* The caller of packers_add sets these. The task stays where it is until it is over. */
	struct pack_group *group;
	void (*run)(void *arg, uint32_t part); /* is called under a guard (fault.h) */
	void *arg;
	const struct fault_range *ranges; /* clients' memory, which may fail */
	uint32_t n_ranges;
	uint32_t parts; /* > 0 */

	/* The packers set these. */
	uint32_t next; /* next part to begin */
	bool is_queued;
	atomic_uint left; /* parts that are not over */
	atomic_bool failed;
	TAILQ_ENTRY(pack_task) entry;
};

struct packers {
	pthread_mutex_t lock;
	pthread_cond_t work;
	TAILQ_HEAD(, pack_task) tasks; /* tasks with parts that nobody has begun */
	atomic_uint queued;            /* number of these tasks */
	uint32_t most;
	uint32_t threads; /* threads that were started */
	uint32_t sleepers;
	bool closing;
	bool is_guarded; /* fault_init has been called */
	pthread_t thread[PACKERS_MOST_THREADS];
};

/* Returns how many there are by default: half of the CPUs that the process can keep busy, at most 8. */
uint32_t packers_default_threads(void);

/* Starts no thread yet. */
void packers_init(struct packers *packers, uint32_t threads);

/* Every task must be over. */
void packers_deinit(struct packers *packers);

/* Starts the threads, unless an earlier call has. Returns false if none can be started, or the guard cannot
 * be had. */
bool packers_start(struct packers *packers);

/* Adds a task. packers_start must have returned true. */
void packers_add(struct packers *packers, struct pack_task *task);

/* Has parts that nobody has begun not run. The task is over once the others are. */
void packers_drop(struct packers *packers, struct pack_task *task);

/* Tells if all parts are over. What they wrote is then visible. */
static inline bool pack_task_is_over(const struct pack_task *task)
{
	return atomic_load_explicit(&task->left, memory_order_acquire) == 0;
}

/* Tells if the memory failed under a part of a task that is over. */
static inline bool pack_task_has_failed(const struct pack_task *task)
{
	return atomic_load_explicit(&task->failed, memory_order_relaxed);
}

/* ---- Copies past the caches ---------------------------------------------------------------------------- */

#ifdef __SSE2__
#include <emmintrin.h>

#define STREAM_COPY_LINE 64

/* Copies as memcpy does, to memory that the copier does not read again soon: it writes whole lines past the
 * caches, which saves reading them first. What it wrote is visible to whoever sees a store that the caller
 * makes afterwards. */
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
