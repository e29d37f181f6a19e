/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines, as a client has them. */
#ifndef TESTS_UNIT_CPU_WORDS_H
#define TESTS_UNIT_CPU_WORDS_H

#include <stdint.h>

#include "kernels/engine.h"

uint64_t word_get(struct engine_memory *memory, uint64_t offset);

/* And wakes who sleeps on it. */
void word_set(struct engine_memory *memory, uint64_t offset, uint64_t value);

#endif
