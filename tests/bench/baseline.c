/* SPDX-License-Identifier: Apache-2.0 */
/* There is a helper thread for each stretch except the caller's. */
#include "baseline.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/thread.h"

#define SPINS 4096 /* spins before a thread yields the CPU, as there may be more threads than CPUs */

struct helper {
	struct baseline *baseline;
	pthread_t thread;
	char *dst;
	const char *src;
	size_t n;
	/* Copies handed to the thread and copies done. Each counter has a cache line of its own, since the
	 * two sides would slow each other down. */
	_Alignas(CPU_LINE) atomic_uint given;
	_Alignas(CPU_LINE) atomic_uint done;
};

struct baseline {
	cpu_set_t usable; /* CPUs that the process may use */
	bool pins;        /* there is a CPU for each thread */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	atomic_uint wanted; /* helpers that have to spin, counted from the first */
	unsigned standing;
	bool closing;
	unsigned n_helpers;
	struct helper helper[];
};

static void *helper_main(void *arg);

/* ---- The owner's side ------------------------------------------------------------------------------- */

/* Binds the thread to a CPU, because a thread that was just woken may share its waker's CPU for
 * milliseconds. */
static void pin(const struct baseline *b, pthread_t thread, unsigned nth)
{
	cpu_set_t set;
	int cpu = 0;

	if (!b->pins)
		return;
	while (!CPU_ISSET(cpu, &b->usable) || nth-- > 0)
		cpu++;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_setaffinity_np(thread, sizeof(set), &set);
}

int baseline_new(struct baseline **ret, unsigned threads, struct error *err)
{
	size_t size = sizeof(struct baseline) + threads * sizeof(struct helper);
	struct baseline *b = aligned_alloc(CPU_LINE, (size + CPU_LINE - 1) / CPU_LINE * CPU_LINE);

	if (!b)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memset(b, 0, size);
	b->pins = sched_getaffinity(0, sizeof(b->usable), &b->usable) == 0 &&
	          (unsigned)CPU_COUNT(&b->usable) >= threads;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	for (; b->n_helpers + 1 < threads; b->n_helpers++) {
		struct helper *helper = &b->helper[b->n_helpers];

		helper->baseline = b;
		if (thread_start(&helper->thread, helper_main, helper)) {
			baseline_free(b);
			return error_set(err, STATUS_NO_MEMORY, "threads: %u cannot be started", threads);
		}
		pin(b, helper->thread, b->n_helpers + 1);
	}
	*ret = b;
	return 0;
}

void baseline_free(struct baseline *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&b->lock);
	b->closing = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	for (unsigned i = 0; i < b->n_helpers; i++)
		pthread_join(b->helper[i].thread, NULL);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static void set_standing(struct baseline *b, unsigned wanted)
{
	pthread_mutex_lock(&b->lock);
	atomic_store(&b->wanted, wanted);
	pthread_cond_broadcast(&b->changed);
	while (b->standing != wanted)
		pthread_cond_wait(&b->changed, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

void baseline_start(struct baseline *b, size_t n)
{
	size_t stretches = n / BASELINE_STRETCH;
	unsigned helpers = stretches > b->n_helpers ? b->n_helpers
	                   : stretches > 1          ? (unsigned)stretches - 1
	                                            : 0;

	pin(b, pthread_self(), 0);
	set_standing(b, helpers);
}

void baseline_stop(struct baseline *b)
{
	set_standing(b, 0);
	if (b->pins)
		pthread_setaffinity_np(pthread_self(), sizeof(b->usable), &b->usable);
}

static inline void relax(unsigned *spins)
{
	if (++*spins % SPINS == 0)
		sched_yield();
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

void baseline_copy(struct baseline *b, void *dst, const void *src, size_t n)
{
	unsigned helpers = b->standing, spins = 0;
	size_t stretch = n / (helpers + 1) / CPU_LINE * CPU_LINE, at = 0;

	for (unsigned i = 0; i < helpers; i++, at += stretch) {
		struct helper *helper = &b->helper[i];

		helper->dst = (char *)dst + at;
		helper->src = (const char *)src + at;
		helper->n = stretch;
		atomic_store_explicit(&helper->given, helper->given + 1, memory_order_release);
	}
	memcpy((char *)dst + at, (const char *)src + at, n - at);
	for (unsigned i = 0; i < helpers; i++)
		while (atomic_load_explicit(&b->helper[i].done, memory_order_acquire) != b->helper[i].given)
			relax(&spins);
}

/* ---- A helper's ------------------------------------------------------------------------------------- */

static void stand_by(struct helper *helper, unsigned index)
{
	unsigned done = helper->done, spins = 0;

	while (index < atomic_load_explicit(&helper->baseline->wanted, memory_order_relaxed)) {
		if (atomic_load_explicit(&helper->given, memory_order_acquire) == done) {
			relax(&spins);
			continue;
		}
		memcpy(helper->dst, helper->src, helper->n);
		atomic_store_explicit(&helper->done, ++done, memory_order_release);
	}
}

static void *helper_main(void *arg)
{
	struct helper *helper = arg;
	struct baseline *b = helper->baseline;
	unsigned index = (unsigned)(helper - b->helper);

	pthread_mutex_lock(&b->lock);
	while (!b->closing) {
		if (index >= b->wanted) {
			pthread_cond_wait(&b->changed, &b->lock);
			continue;
		}
		b->standing++;
		pthread_cond_broadcast(&b->changed);
		pthread_mutex_unlock(&b->lock);

		stand_by(helper, index);

		pthread_mutex_lock(&b->lock);
		b->standing--;
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}
