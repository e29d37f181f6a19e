/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher: a thread that sleeps on the words of points that have not come, and says when they have.
 *
 * It touches words and their futexes without the engine's lock. What it watches stays its own until it has
 * called on_end: until then the point's memory must stay mapped, even when the watch was cancelled. The
 * newest points are slept on together by futex_waitv; where that is not to be had, and for points beyond
 * those that one call takes, it polls, less and less often. It also polls a word that keeps changing without
 * its point coming: otherwise a client could keep the thread awake with it.
 */
#ifndef KERNELS_CPU_WATCHER_H
#define KERNELS_CPU_WATCHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"

#define WATCHER_MOST_WORDS 127 /* of one sleep: futex_waitv's 128, less the watcher's own */

/* A point that is waited for. The caller embeds it; its fields are the watcher's. */
struct watched {
	const struct engine_point *point;
	uint64_t until_ns;
	atomic_bool canceled;
	int status;
	uint32_t low;   /* half of the word, as it was read last */
	uint32_t stirs; /* times that it changed, or woke the thread, and had not come */
	TAILQ_ENTRY(watched) entry;
};

TAILQ_HEAD(watched_list, watched);

struct watcher_options {
	pthread_mutex_t *lock; /* the engine's */
	uint32_t words;        /* of one sleep, up to WATCHER_MOST_WORDS; 0: it only naps */
	/* Under the lock. status: 0: the point has come; TIMEOUT, CANCELED, DEVICE. The watched is free
	 * again. Gives back whether wake is to be called. */
	bool (*on_end)(struct watched *watched, int status);
	void (*wake)(void *arg); /* not under the lock */
	void *wake_arg;
};

struct watcher {
	struct watcher_options options;
	pthread_t thread;
	bool closing;
	struct watched_list added; /* under the lock, newest first */
	uint32_t asked, answered;  /* under the lock: probes */
	atomic_uint poked;         /* a futex: times that there was news for the thread */
	atomic_bool asleep;

	/* The thread's own. */
	struct watched_list watched; /* newest first */
	uint64_t nap_ns;             /* the next one's */
};

/* 0 or an errno. Both not under the lock; nothing may be watched at the end. */
int watcher_init(struct watcher *watcher, const struct watcher_options *options);
void watcher_deinit(struct watcher *watcher);

/* Under the lock. Watches a point until it has come or until_ns, by the monotonic clock, has passed. *point
 * must live until on_end. */
void watcher_add(struct watcher *watcher, struct watched *watched, const struct engine_point *point,
                 uint64_t until_ns);

/* Under the lock, of one that is watched: it ends soon, as CANCELED if not otherwise. */
void watcher_cancel(struct watcher *watcher, struct watched *watched);

/* Under the lock. Whether the thread has made a pass since the last call; asks for another one if so. */
bool watcher_probe(struct watcher *watcher);

#endif
