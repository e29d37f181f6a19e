/* SPDX-License-Identifier: Apache-2.0 */
/* The service's loop needs more than libuv gives it: a clock that a test can set, polling that no lack of
 * memory aborts, and a bell that other processes ring.
 */
#ifndef DAEMON_LOOP_LOOP_H
#define DAEMON_LOOP_LOOP_H

#include <stdint.h>

#include <uv.h>

#include "proto/status.h"

/* Time slices and the deadlines of sessions use this clock: libuv's, or in a unit test one that the test
 * sets.
 *
 * A service has one (service->clock) for its whole life. What is only measured and reported, such as
 * latencies, is read from uv_hrtime directly.
 */

/* now_ns and now_ms are monotonic; now_ms is the time at which the loop's current iteration began. The others
 * work as uv_timer_start and uv_timer_stop do. */
struct clock {
	uint64_t (*now_ns)(void);
	uint64_t (*now_ms)(const uv_loop_t *loop);
	int (*timer_start)(uv_timer_t *timer, uv_timer_cb on_time, uint64_t after_ms, uint64_t every_ms);
	int (*timer_stop)(uv_timer_t *timer);
};

extern const struct clock clock_uv;

/* libuv ends the process when the kernel has no memory for one more descriptor in its epoll set, or the
 * process has none for its table of them. Descriptors are polled with these functions instead, which report
 * an error. */

/* Makes room in the loop's table for every descriptor that the process may open (most). Runs the loop once,
 * so it comes before any handle is started; libuv may end the process here. Returns 0 or a negative errno. */
int watch_reserve(uv_loop_t *loop, uint64_t most);

/* Works as uv_poll_start does. Returns 0, or a negative errno if the kernel has no memory for it; the
 * descriptor is not polled then. */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb on_event);

/* Other processes wake the loop by this eventfd: those that run engines, when jobs have ended. A thread of
 * this process in between would cost each of them another wake-up. */

/* A zero-initialised doorbell is not open. */
struct doorbell {
	int fd;
	uv_poll_t poll;
	void (*on_ring)(void *arg);
	void *arg;
};

/* on_ring is called on the loop's thread, once for any number of rings. Returns 0 or INTERNAL. */
int doorbell_open(struct doorbell *doorbell, uv_loop_t *loop, void (*on_ring)(void *arg), void *arg,
                  struct error *err);

/* Does nothing if it is not open. */
void doorbell_close(struct doorbell *doorbell);

#endif
