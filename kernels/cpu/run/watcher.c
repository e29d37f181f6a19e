/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher's thread makes passes. Each pass reads every word and ends the watches whose point has come or
 * whose time is over. If there are none, the thread sleeps until one of the values that it read changes. */
#include "watcher.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/host/fault.h"
#include "kernels/thread.h"
#include "proto/clock.h"

#define NS_A_SECOND    UINT64_C(1000000000)
#define TIMER_SLACK_NS 1000

/* Longest sleep in ns. The kernel compares only the low half of a word. If only the high half changed while
 * the thread fell asleep, or if the writer of the word wakes nobody, the thread sees the change after this
 * time. NAP_LEAST_NS and NAP_MOST_NS limit the time between two polls, and a word that has changed more than
 * MOST_STIRS times without its point coming is only polled. */
#define LOOK_AGAIN_NS 10000000
#define NAP_LEAST_NS  20000
#define NAP_MOST_NS   1000000
#define MOST_STIRS    1000

/* The headers may be older than the kernel. Linux before 5.16 answers ENOSYS. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WAITV_U32 2 /* FUTEX_32 of the kernel's headers */

struct waitv {
	uint64_t value;
	uint64_t address;
	uint32_t flags;
	uint32_t reserved;
};

static void *watcher_main(void *arg);
static void look(struct watcher *watcher, struct watched_list *ret_ended);
static void rest(struct watcher *watcher, uint32_t poked);
static void end(struct watcher *watcher, struct watched_list *ended);

void watcher_init(struct watcher *watcher, const struct watcher_options *options)
{
	watcher->options = *options;
	watcher->started = watcher->closing = false;
	watcher->asked = watcher->answered = 0;
	TAILQ_INIT(&watcher->added);
	TAILQ_INIT(&watcher->watched);
	atomic_init(&watcher->poked, 0);
	atomic_init(&watcher->asleep, false);
	watcher->nap_ns = NAP_LEAST_NS;
	assert(options->words <= WATCHER_MOST_WORDS);
}

int watcher_start(struct watcher *watcher)
{
	if (watcher->started)
		return 0;
	int r = (watcher->options.is_apart ? thread_start_apart : thread_start)(&watcher->thread,
	                                                                        watcher_main, watcher);
	watcher->started = r == 0;
	return r;
}

/* Tells the thread that something has changed. It reads the count `poked` before it looks at its lists and
 * words, and falls asleep only if the count has not changed since. */
static void poke(struct watcher *watcher)
{
	atomic_fetch_add(&watcher->poked, 1);
	if (atomic_load(&watcher->asleep))
		syscall(SYS_futex, &watcher->poked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void watcher_close(struct watcher *watcher)
{
	assert(TAILQ_EMPTY(&watcher->added));
	watcher->closing = true;
	poke(watcher);
}

void watcher_deinit(struct watcher *watcher)
{
	if (watcher->started)
		pthread_join(watcher->thread, NULL);
	assert(TAILQ_EMPTY(&watcher->watched));
}

void watcher_add(struct watcher *watcher, struct watched *watched, const struct engine_point *point,
                 uint64_t until_ns)
{
	watched->point = point;
	watched->until_ns = until_ns;
	atomic_init(&watched->canceled, false);
	watched->status = 0;
	watched->low = 0;
	watched->stirs = 0;
	TAILQ_INSERT_HEAD(&watcher->added, watched, entry);
	poke(watcher);
}

void watcher_cancel(struct watcher *watcher, struct watched *watched)
{
	atomic_store(&watched->canceled, true);
	poke(watcher);
}

bool watcher_probe(struct watcher *watcher)
{
	if (watcher->answered != watcher->asked)
		return false;
	watcher->asked++;
	poke(watcher);
	return true;
}

/* ---- The thread ------------------------------------------------------------------------------------- */

static void *watcher_main(void *arg)
{
	struct watcher *watcher = arg;
	pthread_setname_np(pthread_self(), watcher->options.is_apart ? "own-wait" : "engine-wait");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	pthread_mutex_lock(watcher->options.lock);
	while (!watcher->closing) {
		struct watched_list ended = TAILQ_HEAD_INITIALIZER(ended);
		uint32_t poked = atomic_load(&watcher->poked);
		watcher->answered = watcher->asked;
		if (!TAILQ_EMPTY(&watcher->added)) {
			TAILQ_CONCAT(&watcher->added, &watcher->watched, entry);
			TAILQ_CONCAT(&watcher->watched, &watcher->added, entry);
			watcher->nap_ns = NAP_LEAST_NS;
		}
		pthread_mutex_unlock(watcher->options.lock);
		look(watcher, &ended);
		if (TAILQ_EMPTY(&ended))
			rest(watcher, poked);
		pthread_mutex_lock(watcher->options.lock);
		end(watcher, &ended);
	}
	pthread_mutex_unlock(watcher->options.lock);
	return NULL;
}

/* Returns 0 if the watch goes on, 1 if its point has come, or a status. A watch whose futex could not be
 * slept on has its status already. */
static int look_at(struct watched *watched, uint64_t now)
{
	if (watched->status)
		return watched->status;
	if (atomic_load(&watched->canceled))
		return STATUS_CANCELED;
	uint32_t before = watched->low;
	int r = timeline_read(watched->point, &watched->low);
	watched->stirs += watched->low != before;
	return r == 0 && now >= watched->until_ns ? STATUS_TIMEOUT : r;
}

static void look(struct watcher *watcher, struct watched_list *ret_ended)
{
	struct watched *watched, *next;
	uint64_t now = clock_ns();
	for (watched = TAILQ_FIRST(&watcher->watched); watched; watched = next) {
		int r = look_at(watched, now);
		next = TAILQ_NEXT(watched, entry);
		if (r == 0)
			continue;
		watched->status = r < 0 ? r : 0;
		TAILQ_REMOVE(&watcher->watched, watched, entry);
		TAILQ_INSERT_TAIL(ret_ended, watched, entry);
	}
}

/* Calls on_end for the watches that have ended, and then `wake` if on_end has asked for that. The caller must
 * hold the engine's lock, which is released while wake is called. */
static void end(struct watcher *watcher, struct watched_list *ended)
{
	struct watched *watched;
	bool wake = false;
	while ((watched = TAILQ_FIRST(ended))) {
		TAILQ_REMOVE(ended, watched, entry);
		watcher->nap_ns = NAP_LEAST_NS;
		wake |= watcher->options.on_end(watched, watched->status);
	}
	if (!wake)
		return;
	pthread_mutex_unlock(watcher->options.lock);
	watcher->options.wake(watcher->options.wake_arg);
	pthread_mutex_lock(watcher->options.lock);
}

/* ---- Sleeping --------------------------------------------------------------------------------------- */

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / NS_A_SECOND), (long)(ns % NS_A_SECOND) };
}

/* Sleeps until the thread is poked, or until the time `until` of the monotonic clock; UINT64_MAX means no
 * limit. poked is the count that the thread has read. */
static void nap(struct watcher *watcher, uint32_t poked, uint64_t until)
{
	struct timespec t = timespec_of(until);
	syscall(SYS_futex, &watcher->poked, FUTEX_WAIT_BITSET_PRIVATE, poked, until < UINT64_MAX ? &t : NULL,
	        NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Called after the kernel has refused to sleep on words: gives the watches whose memory has gone their
 * status, so that the next pass ends them. Returns whether there are any. */
static bool find_failed(struct watcher *watcher)
{
	static const struct timespec at_once;
	struct watched *watched;
	bool found = false;
	TAILQ_FOREACH(watched, &watcher->watched, entry) {
		if (syscall(SYS_futex, timeline_futex(watched->point), FUTEX_WAIT, ~watched->low, &at_once,
		            NULL, 0) == 0 ||
		    errno != EFAULT)
			continue;
		watched->status = STATUS_DEVICE;
		found = true;
	}
	return found;
}

/* Sleeps on n words, the first of which is the thread's own (`poked`), until one of them changes or the time
 * `until` has come. Returns false if the kernel has refused and the thread must sleep in another way. */
static bool sleep_on(struct watcher *watcher, const struct waitv *words, struct watched **watched, uint32_t n,
                     uint64_t until)
{
	struct timespec t = timespec_of(until);
	long r = syscall(SYS_futex_waitv, words, n, 0, &t, CLOCK_MONOTONIC);
	if (r > 0)
		watched[r]->stirs++;
	if (r >= 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR)
		return true;
	/* The kernel is too old, or a seccomp filter forbids the call. */
	if (errno == ENOSYS || errno == EPERM)
		watcher->options.words = 0;
	return errno == EFAULT && find_failed(watcher);
}

/* Sleeps until a word changes, at most until the next deadline. */
static void rest(struct watcher *watcher, uint32_t poked)
{
	struct waitv words[1 + WATCHER_MOST_WORDS];
	struct watched *slept_on[1 + WATCHER_MOST_WORDS], *watched;
	uint64_t now = clock_ns(), nap_end = now + watcher->nap_ns, sleep_end = now + LOOK_AGAIN_NS;
	uint32_t n = 1;
	words[0] = (struct waitv){ poked, (uintptr_t)&watcher->poked, WAITV_U32 | FUTEX_PRIVATE_FLAG, 0 };
	TAILQ_FOREACH(watched, &watcher->watched, entry) {
		if (watched->until_ns < sleep_end)
			sleep_end = watched->until_ns;
		if (n > watcher->options.words || watched->stirs > MOST_STIRS) {
			if (nap_end < sleep_end)
				sleep_end = nap_end;
			continue;
		}
		slept_on[n] = watched;
		words[n++] =
		    (struct waitv){ watched->low, (uintptr_t)timeline_futex(watched->point), WAITV_U32, 0 };
	}
	atomic_store(&watcher->asleep, true);
	if (TAILQ_EMPTY(&watcher->watched))
		nap(watcher, poked, UINT64_MAX);
	else if (!watcher->options.words || !sleep_on(watcher, words, slept_on, n, sleep_end))
		nap(watcher, poked, sleep_end < nap_end ? sleep_end : nap_end);
	atomic_store(&watcher->asleep, false);
	if (watcher->nap_ns < NAP_MOST_NS)
		watcher->nap_ns *= 2;
}
