/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher is a thread that sleeps on the words of points that have not come, and says when they have.
 *
 * It touches words and their futexes without the engine's lock. What it watches stays its own until it has
 * called on_end: until then the point's memory must stay mapped, even when the watch was canceled. It sleeps
 * on the newest points together, by futex_waitv. Where the kernel does not have that, and for points beyond
 * those that one call takes, it polls, less and less often. It also polls a word that keeps changing without
 * its point coming: otherwise a client could keep the thread awake with it.
 */
#ifndef KERNELS_CPU_RUN_WATCHER_H
#define KERNELS_CPU_RUN_WATCHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"

#define WATCHER_MOST_WORDS 127 /* futex_waitv takes 128, one of which is the watcher's own. */

/* This is a point that is waited for. The caller embeds it; its fields are the watcher's. */
struct watched {
	const struct engine_point *point;
	uint64_t until_ns;
	atomic_bool canceled;
	int status;
	uint32_t low;   /* The low half of the word had this value when it was last read. */
	uint32_t stirs; /* So many times the word changed, or woke the thread, before the point had come. */
	TAILQ_ENTRY(watched) entry;
};

TAILQ_HEAD(watched_list, watched);

struct watcher_options {
	pthread_mutex_t *lock; /* It is the engine's. */
	uint32_t words; /* The thread sleeps on up to so many at a time, at most WATCHER_MOST_WORDS. If it is
	                   0, the thread only naps. */
	bool is_apart;  /* The words are in memory that may stall, so thread_start_apart starts the thread. */
	/* The watcher's thread calls this with the engine's lock held, when a watch has ended. The status is
	 * 0 if the point has come, or else TIMEOUT, CANCELED, or DEVICE if its memory is gone. The caller may
	 * use *watched again from then on. The function returns whether `wake` is to be called. */
	bool (*on_end)(struct watched *watched, int status);
	/* The thread calls this without the lock, once for the watches that have ended together. */
	void (*wake)(void *arg);
	void *wake_arg;
};

struct watcher {
	struct watcher_options options;
	pthread_t thread;
	bool started;
	bool closing;
	struct watched_list added; /* The engine's lock guards it. The newest one is first. */
	uint32_t asked, answered;  /* They count probes. The engine's lock guards them. */
	atomic_uint poked;         /* This futex counts how many times there was news for the thread. */
	atomic_bool asleep;

	/* The thread alone uses these. */
	struct watched_list watched; /* The newest one is first. */
	uint64_t nap_ns;             /* The next nap takes so long. */
};

void watcher_init(struct watcher *watcher, const struct watcher_options *options);

/* Starts the thread if it has not been started, and returns 0 or an errno. */
int watcher_start(struct watcher *watcher);

/* The first one tells the thread to end; its caller holds the engine's lock, and nothing is watched any more.
 * The second one waits for the end; its caller does not hold the lock. */
void watcher_close(struct watcher *watcher);
void watcher_deinit(struct watcher *watcher);

/* Watches a point until it has come, or until the monotonic clock is past until_ns. *point must live until
 * on_end is called. The caller holds the engine's lock. */
void watcher_add(struct watcher *watcher, struct watched *watched, const struct engine_point *point,
                 uint64_t until_ns);

/* Cancels a watch that has not ended: it ends soon, as CANCELED unless it ends otherwise before. The caller
 * holds the engine's lock. */
void watcher_cancel(struct watcher *watcher, struct watched *watched);

/* Returns whether the thread has made a pass since the last call, and asks for another one if so. The caller
 * holds the engine's lock. */
bool watcher_probe(struct watcher *watcher);

#endif
