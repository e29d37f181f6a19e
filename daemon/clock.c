/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of a service: libuv's functions as they are. */
#include "clock.h"

const struct clock clock_uv = {
	.now_ns = uv_hrtime, .now_ms = uv_now, .timer_start = uv_timer_start, .timer_stop = uv_timer_stop
};
