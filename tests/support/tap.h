/* SPDX-License-Identifier: Apache-2.0 */
/* Test Anything Protocol, for programs that run where no test framework is installed. A program counts its
 * cases and prints their number at the end. */
#ifndef TESTS_SUPPORT_TAP_H
#define TESTS_SUPPORT_TAP_H

#include <stdbool.h>

/* Shares the counts with children forked from now on. */
void tap_share(void);

/* Returns the number of cases so far. */
int tap_count(void);

/* Reports one case, whose name is formatted. Returns passed. */
bool tap_case(bool passed, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a line of diagnostics about the next case or the previous one. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports that there is nothing to test. main returns the result. */
int tap_skip_all(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program because the remaining cases cannot be tested. */
void tap_bail_out(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Returns the number of repetitions for a test whose full number is given: the share TEST_SHARE of it, by
 * default a tenth, at least one. */
long tap_portion(long full);

/* Prints the plan. main returns the result. */
int tap_end(void);

#endif
