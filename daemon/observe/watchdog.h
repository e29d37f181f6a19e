/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's watchdog (WATCHDOG_USEC, sd_watchdog_enabled(3)). It is fed three times per interval
 * as long as the loop iterates, which its timer proves, and the engine answers (engine_probe). If either
 * hangs, nothing is repaired here: the service manager ends the process and starts it again. Engines in
 * processes of their own are not its concern: each is ended by itself (kernels/process/front_pulse.c). */
#ifndef DAEMON_OBSERVE_WATCHDOG_H
#define DAEMON_OBSERVE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct server;

struct watchdog {
	uv_timer_t timer; /* runs if there is a watchdog */
	bool is_silent;   /* the engine of this process, as of the last probe */
	uint64_t probed_ms;
};

void watchdog_open(struct watchdog *watchdog, struct server *server);

/* To be called when the engine is open and the loop is about to run. */
void watchdog_start(struct watchdog *watchdog);

/* Whether all engines are there, and have given a sign of life since the last probe. Without a watchdog, this
 * call probes: they have until the next call. */
bool watchdog_engine_up(struct watchdog *watchdog);

/* Feeds the watchdog before something that keeps the loop from iterating for a while. */
void watchdog_feed(void);

void watchdog_close(struct watchdog *watchdog);

#endif
