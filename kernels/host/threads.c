/* SPDX-License-Identifier: Apache-2.0 */
/* Determines the number of threads from the affinity mask and the quotas of cgroups, which limit CPU time per
 * period. Also implements packers, which take their lock once for each part, to report one part done and to
 * take the next. */
#include "threads.h"

#include <assert.h>
#include <sched.h>
#include <stddef.h>

#include "kernels/thread.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"
#include "proto/memory/headroom.h"

#define MOST_CPUS (1 << 20) /* largest affinity mask that is tried, in CPUs */

/* Returns a quota per period in CPUs, rounded up. UINT64_MAX: there is no limit. */
static uint64_t cpus_of(int64_t quota_us, int64_t period_us)
{
	if (quota_us <= 0 || period_us <= 0)
		return UINT64_MAX;
	return (uint64_t)divide_up_i64(quota_us, period_us);
}

static uint64_t read_quota(const struct cgroup *group, int version)
{
	int64_t quota_us[2]; /* quota and period */
	bool found = version == 2 ? cgroup_read(group, "cpu.max", 2, quota_us)
	                          : cgroup_read(group, "cpu.cfs_quota_us", 1, &quota_us[0]) &&
	                                cgroup_read(group, "cpu.cfs_period_us", 1, &quota_us[1]);
	return found ? cpus_of(quota_us[0], quota_us[1]) : UINT64_MAX;
}

/* Both versions of cgroups may be mounted, either of them with quotas. */
uint32_t threads_for(uint32_t cpus, const char *root)
{
	uint64_t least = cpus;
	for (int version = 1; version <= 2; version++) {
		struct cgroup group;
		bool found = cgroup_init(&group, version, "cpu", root);
		for (; found; found = cgroup_ascend(&group))
			least = min_u64(least, read_quota(&group, version));
	}
	return least > 1 ? (uint32_t)least : 1;
}

/* The kernel refuses a mask that is too small for all CPUs that the machine could have, so larger and larger
 * ones are tried. */
static uint32_t count_affinity(void)
{
	int r = -1;
	uint32_t n = 0;
	for (int most = 64; r < 0 && most <= MOST_CPUS; most *= 2) {
		cpu_set_t *set = CPU_ALLOC(most);
		if (!set)
			return 0;
		r = sched_getaffinity(0, CPU_ALLOC_SIZE(most), set);
		if (r == 0)
			n = (uint32_t)CPU_COUNT_S(CPU_ALLOC_SIZE(most), set);
		CPU_FREE(set);
	}
	return n;
}

uint32_t threads_default(void)
{
	return threads_for(count_affinity(), "");
}

/* ---- Packers ------------------------------------------------------------------------------------------- */

/* Time for which a thread looks for the next part before it sleeps: longer than one buffer of a pipeline
 * takes on the bus. */
#define SPIN_NS  100000
#define LOOKS    64 /* number of looks between two readings of the clock */
#define MOST_OWN 8  /* maximum number of threads by default */

static void *thread_main(void *arg);

uint32_t packers_default_threads(void)
{
	return min_u32(max_u32(threads_default() / 2, 1), MOST_OWN);
}

void packers_init(struct packers *packers, uint32_t threads)
{
	*packers =
	    (struct packers){ .most = threads < PACKERS_MOST_THREADS ? threads : PACKERS_MOST_THREADS };
	TAILQ_INIT(&packers->tasks);
	pthread_mutex_init(&packers->lock, NULL);
	pthread_cond_init(&packers->work, NULL);
}

void packers_deinit(struct packers *packers)
{
	pthread_mutex_lock(&packers->lock);
	assert(TAILQ_EMPTY(&packers->tasks));
	packers->closing = true;
	pthread_cond_broadcast(&packers->work);
	pthread_mutex_unlock(&packers->lock);
	for (uint32_t i = 0; i < packers->threads; i++)
		pthread_join(packers->thread[i], NULL);
	if (packers->is_guarded)
		fault_deinit();
	pthread_cond_destroy(&packers->work);
	pthread_mutex_destroy(&packers->lock);
}

bool packers_start(struct packers *packers)
{
	if (!packers->is_guarded)
		packers->is_guarded = fault_init() == 0;
	if (!packers->is_guarded)
		return false;
	while (packers->threads < packers->most &&
	       thread_start(&packers->thread[packers->threads], thread_main, packers) == 0)
		packers->threads++;
	return packers->threads > 0;
}

void packers_add(struct packers *packers, struct pack_task *task)
{
	task->next = 0;
	task->is_queued = true;
	atomic_store_explicit(&task->failed, false, memory_order_relaxed);
	atomic_store_explicit(&task->left, task->parts, memory_order_relaxed);
	pthread_mutex_lock(&packers->lock);
	TAILQ_INSERT_TAIL(&packers->tasks, task, entry);
	atomic_fetch_add_explicit(&packers->queued, 1, memory_order_relaxed);
	if (packers->sleepers > 0)
		pthread_cond_broadcast(&packers->work);
	pthread_mutex_unlock(&packers->lock);
}

/* The caller must hold packers->lock. */
static void unqueue(struct packers *packers, struct pack_task *task)
{
	TAILQ_REMOVE(&packers->tasks, task, entry);
	task->is_queued = false;
	atomic_fetch_sub_explicit(&packers->queued, 1, memory_order_relaxed);
}

void packers_drop(struct packers *packers, struct pack_task *task)
{
	pthread_mutex_lock(&packers->lock);
	if (task->is_queued) {
		unqueue(packers, task);
		atomic_fetch_sub_explicit(&task->left, task->parts - task->next, memory_order_release);
	}
	pthread_mutex_unlock(&packers->lock);
}

/* ---- A thread ----------------------------------------------------------------------------------------- */

struct part {
	struct pack_task *task; /* NULL: there is no part */
	uint32_t i;
};

/* Takes the next part of the first task whose group may use another thread. The caller must hold
 * packers->lock. */
static struct part take(struct packers *packers)
{
	struct pack_task *task;
	struct part part = { NULL, 0 };

	TAILQ_FOREACH(task, &packers->tasks, entry)
		if (task->group->running < task->group->most)
			break;
	if (!task)
		return part;
	part = (struct part){ task, task->next++ };
	task->group->running++;
	if (task->next == task->parts)
		unqueue(packers, task);
	return part;
}

static void run_part(void *arg)
{
	const struct part *part = arg;

	part->task->run(part->task->arg, part->i);
}

/* Runs a part under a guard, unless another part of the task has failed already. */
static void run_guarded(struct part *part)
{
	struct pack_task *task = part->task;

	if (!pack_task_has_failed(task) && !fault_guard_ranges(task->ranges, task->n_ranges, run_part, part))
		atomic_store_explicit(&task->failed, true, memory_order_relaxed);
}

static void look_for_work(struct packers *packers)
{
	const uint64_t until = clock_ns() + SPIN_NS;

	do {
		for (int i = 0; i < LOOKS; i++) {
			if (atomic_load_explicit(&packers->queued, memory_order_relaxed) > 0)
				return;
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		}
		sched_yield();
	} while (clock_ns() < until);
}

/* Waits for a part, after take has found none. Looks without the lock for a while before it sleeps. A task
 * whose group has all its threads busy does not wake a sleeper: those threads take its next parts. Returns no
 * part if the packers are closing. The caller must hold packers->lock. */
static struct part wait_for_part(struct packers *packers)
{
	struct part part;

	pthread_mutex_unlock(&packers->lock);
	look_for_work(packers);
	pthread_mutex_lock(&packers->lock);
	while (!(part = take(packers)).task && !packers->closing) {
		packers->sleepers++;
		pthread_cond_wait(&packers->work, &packers->lock);
		packers->sleepers--;
	}
	return part;
}

static void *thread_main(void *arg)
{
	struct packers *packers = arg;

	pthread_setname_np(pthread_self(), "packer");
	pthread_mutex_lock(&packers->lock);
	while (!packers->closing) {
		struct part part = take(packers);

		if (!part.task)
			part = wait_for_part(packers);
		if (!part.task)
			continue;
		pthread_mutex_unlock(&packers->lock);
		run_guarded(&part);
		pthread_mutex_lock(&packers->lock);
		part.task->group->running--;
		atomic_fetch_sub_explicit(&part.task->left, 1, memory_order_release);
	}
	pthread_mutex_unlock(&packers->lock);
	return NULL;
}
