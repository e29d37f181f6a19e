/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that only the test moves, and timers that run by it. A process has one such clock. */
#ifndef TESTS_UNIT_DAEMON_FAKE_CLOCK_H
#define TESTS_UNIT_DAEMON_FAKE_CLOCK_H

#include <stdint.h>

#include "daemon/loop/loop.h"

extern const struct clock fake_clock;

/* Moves the clock, and calls the timers that are due, each at its time. */
void fake_clock_pass_ms(uint64_t ms);

/* Moves the clock without calling any timer. */
void fake_clock_pass_ns(uint64_t ns);

/* Makes each later reading move the clock by ns. */
void fake_clock_tick(uint64_t ns);

/* Returns how often the clock has been read. */
uint64_t fake_clock_readings(void);

#endif
