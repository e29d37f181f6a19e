/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that time slices and the deadlines of sessions use: libuv's, or in a unit test one that the test
 * sets.
 *
 * A server has one (server->clock) for its whole life. What is only measured and reported, such as latencies,
 * is read from uv_hrtime directly.
 */
#ifndef DAEMON_CLOCK_H
#define DAEMON_CLOCK_H

#include <stdint.h>

#include <uv.h>

/* now_ns and now_ms are monotonic; now_ms is the time at which the loop's current iteration began. The others
 * are as uv_timer_start and uv_timer_stop. */
struct clock {
	uint64_t (*now_ns)(void);
	uint64_t (*now_ms)(const uv_loop_t *loop);
	int (*timer_start)(uv_timer_t *timer, uv_timer_cb on_time, uint64_t after_ms, uint64_t every_ms);
	int (*timer_stop)(uv_timer_t *timer);
};

extern const struct clock clock_uv;

#endif
