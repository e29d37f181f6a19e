/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that stands still until the test moves it, and the timers that are started by it. One a process. */
#ifndef TESTS_UNIT_DAEMON_FAKE_CLOCK_H
#define TESTS_UNIT_DAEMON_FAKE_CLOCK_H

#include <stdint.h>

#include "daemon/loop/loop.h"

extern const struct clock fake_clock;

/* Moves it, and calls the timers that are due, each at its time. */
void fake_clock_pass_ms(uint64_t ms);

/* Moves it, and calls nothing. */
void fake_clock_pass_ns(uint64_t ns);

/* From now on each reading moves it by so much. */
void fake_clock_tick(uint64_t ns);

/* How often it has been read. */
uint64_t fake_clock_readings(void);

#endif
