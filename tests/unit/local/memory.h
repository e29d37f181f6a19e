/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for tests that run twice: unit_local moves memory of the host, and unit_streams memory of the
 * stand-in driver's device. Failures are Criterion's. */
#ifndef TESTS_UNIT_LOCAL_MEMORY_H
#define TESTS_UNIT_LOCAL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <criterion/criterion.h>

#include "client/tmaclient.h"

/* The test's client of "local:". memory_open and memory_close are the setup and the teardown of a test. */
extern tma_client *client;
void memory_open(void);
void memory_close(void);

/* Every other thread of a test calls this before it uses memory. */
void memory_enter(void);

/* Returns the address of new memory, which is aligned to 256 bytes and has 0xee everywhere. */
uint64_t memory_new(size_t size);
void memory_put(uint64_t to, const void *from, size_t size);
void memory_get(void *to, uint64_t from, size_t size);

/* Writes a word after everything that this thread has put. */
void memory_signal(uint64_t word, uint64_t value);

/* Makes the memory a region; flags are those of enum tma_region_flags. */
tma_region *memory_region(uint64_t address, size_t size, unsigned flags);

/* Returns the next number of a sequence, in [low, high]. */
static inline int64_t draw(uint64_t *state, int64_t low, int64_t high)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

#endif
