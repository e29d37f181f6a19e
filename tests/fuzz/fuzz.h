/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one file with LLVMFuzzerTestOneInput and LLVMFuzzerCustomMutator. libFuzzer runs it (make
 * fuzz); replay.c, which needs no particular compiler, runs it on the corpus and on inputs that the mutator
 * makes.
 *
 * A target keeps no state between inputs that could affect the next one, so a finding is a single file. A
 * finding ends the process.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

/* Defined by the target. The mutator changes data[size] in place, within max_size, by the seed alone, and
 * returns the new size; from an empty input it makes a whole one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Defined by libFuzzer or replay.c: makes a change without regard to structure. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Reports a finding and aborts unless the condition holds. */
#define fuzz_check(condition, ...)                                                   \
	do {                                                                         \
		if (!(condition))                                                    \
			fuzz_found(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
	} while (0)

void fuzz_found(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* Checks that users may see the error: it has a known status and one sentence in printable ASCII. */
void fuzz_check_error(const struct error *err);

#endif
