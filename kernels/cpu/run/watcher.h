/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher is a thread that sleeps on the words of points that have not come yet, and reports when they
 * have come.
 *
 * It touches words and their futexes without the engine's lock. What it watches belongs to it until it has
 * called on_end: until then the point's memory must stay mapped, even if the watch was canceled. It sleeps on
 * the newest points together, by futex_waitv. Where the kernel does not have that call, and for points beyond
 * those that one call takes, it polls, less and less often. It also polls a word that keeps changing without
 * its point coming, because a client could otherwise keep the thread awake with it.
 */
#ifndef KERNELS_CPU_RUN_WATCHER_H
#define KERNELS_CPU_RUN_WATCHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"

#define WATCHER_MOST_WORDS 127 /* futex_waitv takes 128, one of which is the watcher's own */

/* A point that is watched. The caller embeds this; its fields belong to the watcher. */
struct watched {
	const struct engine_point *point;
	uint64_t until_ns;
	atomic_bool canceled;
	int status;
	uint32_t low; /* low half of the word when it was last read */
	/* Number of times that the word changed, or woke the thread, without the point having come. */
	uint32_t stirs;
	TAILQ_ENTRY(watched) entry;
};

TAILQ_HEAD(watched_list, watched);

struct watcher_options {
	pthread_mutex_t *lock; /* the engine's lock */
	/* Number of words that the thread sleeps on at a time, at most WATCHER_MOST_WORDS. If it is 0, the
	 * thread only polls. */
	uint32_t words;
	/* The words are in memory that may stall, so the thread is started by thread_start_apart. */
	bool is_apart;
	/* Called on the watcher's thread with the engine's lock held, when a watch has ended. The status is 0
	 * if the point has come, or else TIMEOUT, CANCELED, or DEVICE if its memory has failed. *watched may
	 * be reused from then on. Returns whether `wake` is to be called. */
	bool (*on_end)(struct watched *watched, int status);
	/* Called on the watcher's thread without the lock, once for all watches that have ended together. */
	void (*wake)(void *arg);
	void *wake_arg;
};

struct watcher {
	struct watcher_options options;
	pthread_t thread;
	bool started;
	bool closing;
	struct watched_list added; /* new watches, the newest first; protected by the engine's lock */
	/* Numbers of the last probe and of the last one answered; protected by the engine's lock. */
	uint32_t asked, answered;
	atomic_uint poked; /* futex; incremented whenever something has changed for the thread */
	atomic_bool asleep;

	/* The fields below are used by the watcher's thread alone. */
	struct watched_list watched; /* the newest first */
	uint64_t nap_ns;             /* length of the next nap between two polls */
};

void watcher_init(struct watcher *watcher, const struct watcher_options *options);

/* Starts the thread if it has not been started. Returns 0 or an errno. */
int watcher_start(struct watcher *watcher);

/* watcher_close tells the thread to end; the caller must hold the engine's lock, and nothing may be watched
 * any more. watcher_deinit waits for the thread's end; the caller must not hold the lock. */
void watcher_close(struct watcher *watcher);
void watcher_deinit(struct watcher *watcher);

/* Watches a point until it has come, or until the monotonic clock is past until_ns. *point must live until
 * on_end is called. The caller must hold the engine's lock. */
void watcher_add(struct watcher *watcher, struct watched *watched, const struct engine_point *point,
                 uint64_t until_ns);

/* Cancels a watch that has not ended. The watch ends soon, as CANCELED unless it ends in another way before.
 * The caller must hold the engine's lock. */
void watcher_cancel(struct watcher *watcher, struct watched *watched);

/* Returns whether the thread has made a pass since the last call, and if so asks it for another one. The
 * caller must hold the engine's lock. */
bool watcher_probe(struct watcher *watcher);

#endif
