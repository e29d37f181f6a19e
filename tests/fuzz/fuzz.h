/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target is: one file with LLVMFuzzerTestOneInput and LLVMFuzzerCustomMutator. libFuzzer runs it
 * (make fuzz); so does replay.c, by any compiler, over the corpus and over inputs that the mutator makes.
 *
 * A target keeps nothing between inputs that could change what the next one does, so that a finding is one
 * file. What it finds ends the process.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

/* The target's. The mutator changes data[size] in place, within max_size, by the seed alone, and returns the
 * new size; of an empty input it makes a whole one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* libFuzzer's, or replay.c's: a change that knows no structure. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* A finding: says it and aborts. */
#define fuzz_check(condition, ...)                                                   \
	do {                                                                         \
		if (!(condition))                                                    \
			fuzz_found(__FILE__, __LINE__, #condition, " " __VA_ARGS__); \
	} while (0)

void fuzz_found(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* An error as people may see it: a status of ours and one sentence in printable ASCII. */
void fuzz_check_error(const struct error *err);

#endif
