/* SPDX-License-Identifier: Apache-2.0 */
/* Test Anything Protocol, for programs that run where no test framework is. A program counts its cases and
 * says how many there were at the end.
 */
#ifndef TESTS_SUPPORT_TAP_H
#define TESTS_SUPPORT_TAP_H

#include <stdbool.h>

/* From here on the counts are shared with the children of this process. */
void tap_share(void);

/* Cases so far. */
int tap_count(void);

/* One case; its name by format. Returns passed. */
bool tap_case(bool passed, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line for people, about the case that follows or the one before. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* There is nothing to test here; the program returns what this returns. */
int tap_skip_all(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The rest cannot be tested: ends the program. */
void tap_bail_out(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* How many repetitions, of a test's full number: TEST_SHARE of them, a tenth unless given, at least one. */
long tap_portion(long full);

/* The plan: main returns what this returns. */
int tap_end(void);

#endif
