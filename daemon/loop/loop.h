/* SPDX-License-Identifier: Apache-2.0 */
/* Extensions of libuv: a clock that tests can replace, polling that reports a lack of memory instead of
 * aborting, and an eventfd by which other processes wake the loop.
 */
#ifndef DAEMON_LOOP_LOOP_H
#define DAEMON_LOOP_LOOP_H

#include <stdint.h>

#include <uv.h>

#include "proto/status.h"

/* The clock of time slices and of the deadlines of sessions: that of libuv, or in unit tests one that the
 * test controls. It does not change while the service exists (service->clock). Times that are only measured
 * and reported, such as latencies, are read from uv_hrtime directly. */
struct clock {
	/* now_ns returns the current time, and now_ms the start of the loop's current iteration; both are
	 * monotonic. */
	uint64_t (*now_ns)(void);
	uint64_t (*now_ms)(const uv_loop_t *loop);
	/* These work as uv_timer_start and uv_timer_stop do. */
	int (*timer_start)(uv_timer_t *timer, uv_timer_cb on_time, uint64_t after_ms, uint64_t every_ms);
	int (*timer_stop)(uv_timer_t *timer);
};

/* The clock of libuv. */
extern const struct clock clock_uv;

/* libuv aborts the process if the kernel has no memory for another descriptor in the epoll set, or the
 * process has none for libuv's table of descriptors. The following functions report these errors instead. */

/* Makes room in the loop's table for all descriptors below `most`, the number that the process may open. Runs
 * the loop once, so it must be called before any handle is started. If out of memory, libuv aborts the
 * process here. Returns 0 or a negative errno. */
int watch_reserve(uv_loop_t *loop, uint64_t most);

/* Works as uv_poll_start does, but returns a negative errno if the kernel has no memory; the descriptor is
 * then not polled. */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb on_event);

/* An eventfd by which processes that run engines wake the loop when jobs have ended. They write to it
 * directly, because relaying through a thread of this process would cost another wake-up each time. A zeroed
 * doorbell is not open. */
struct doorbell {
	int fd; /* the eventfd; 0: not open */
	uv_poll_t poll;
	void (*on_ring)(void *arg); /* called with arg when the eventfd has been written to */
	void *arg;
};

/* Opens the doorbell. on_ring(arg) is called on the loop's thread; one call may stand for several writes.
 * Returns 0 or INTERNAL. */
int doorbell_open(struct doorbell *doorbell, uv_loop_t *loop, void (*on_ring)(void *arg), void *arg,
                  struct error *err);

/* Closes the doorbell if it is open. Its poll handle closes in the loop's next iteration. */
void doorbell_close(struct doorbell *doorbell);

#endif
