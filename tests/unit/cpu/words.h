/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines, read and set as a client does. */
#ifndef TESTS_UNIT_CPU_WORDS_H
#define TESTS_UNIT_CPU_WORDS_H

#include <stdint.h>

#include "kernels/engine.h"

uint64_t word_get(struct engine_memory *memory, uint64_t offset);

/* Sets the word and wakes all who sleep on it. */
void word_set(struct engine_memory *memory, uint64_t offset, uint64_t value);

#endif
