/* SPDX-License-Identifier: Apache-2.0 */
/* The threads, and the list of tasks that they take parts of. A thread takes the lock once for each part: to
 * say that it has done one, and to take the next. */
#include "packers.h"

#include <assert.h>
#include <sched.h>

#include "kernels/thread.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"
#include "threads.h"

/* How long a thread looks for the next part before it sleeps: longer than a pipeline's buffer is on the bus.
 */
#define SPIN_NS  100000
#define LOOKS    64 /* between two looks at the clock */
#define MOST_OWN 8  /* threads, unless more are asked for */

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

/* Under the lock. */
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
	struct pack_task *task; /* NULL: none */
	uint32_t i;
};

/* Under the lock. */
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

/* Once one has failed, the others need not run. */
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

/* Under the lock, after it has found nothing: first without it. A task that others have to be done with first
 * is no work; those take its next part. */
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
