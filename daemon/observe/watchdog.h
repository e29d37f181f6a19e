/* The service manager's watchdog (WATCHDOG_USEC, sd_watchdog_enabled(3)): fed three times within its time, as
 * long as the loop turns, which is the timer's to show, and the engine answers (engine_probe). What is stuck
 * is not mended here: the service manager ends the process and starts it again. */
#ifndef DAEMON_OBSERVE_WATCHDOG_H
#define DAEMON_OBSERVE_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct server;

struct watchdog {
	uv_timer_t timer; /* runs while there is a watchdog */
	bool is_silent;   /* the engine, as of the last probe */
	uint64_t probed_ms;
};

void watchdog_open(struct watchdog *watchdog, struct server *server);

/* When the server's engine is open and the loop is about to run. */
void watchdog_start(struct watchdog *watchdog);

/* Whether the engine is there, and gave a sign of life since the last look at it. Where no watchdog looks,
 * this does: it asks for a sign by the next call. */
bool watchdog_engine_up(struct watchdog *watchdog);

/* Before what keeps the loop from turning for a while. */
void watchdog_feed(void);

void watchdog_close(struct watchdog *watchdog);

#endif
