/* SPDX-License-Identifier: Apache-2.0 */
/* Memories that share allocations and in which every byte has a number, for tests to compare with. */
#ifndef TESTS_UNIT_KERNELS_MEMORIES_H
#define TESTS_UNIT_KERNELS_MEMORIES_H

#include <criterion/criterion.h>

#include "kernels/transform/aliases.h"
#include "tests/support/oracle.h"

/* A memory has up to MOST allocations, enough that a range of few of them is looked up and one of many is
 * walked. */
#define MOST  60
#define KINDS 80 /* allocations that exist */
#define SIZE  5  /* bytes of an allocation */

struct memory {
	struct memory_chunks chunks;
	struct memory_chunk list[MOST];
	struct memory_chunk by_id[MOST];
	int bytes[MOST * SIZE]; /* number of each byte: its allocation, and its place there */
	uint64_t size;
};

/* Draws a memory of allocations in random order, each at most once. */
static inline void memory_draw(struct memory *memory, uint64_t *state)
{
	uint64_t ignored;
	bool is_taken[KINDS] = { false };

	*memory = (struct memory){ .chunks = { .by_place = memory->list, .by_id = memory->by_id } };
	atomic_init(&memory->chunks.shared, true);
	memory->chunks.n = 1 + (uint32_t)(oracle_random(state) % (oracle_random(state) % 4 ? 6 : MOST));
	for (uint32_t i = 0; i < memory->chunks.n; i++) {
		size_t kind = oracle_random(state) % (memory->chunks.n > 6 ? KINDS : 8);

		while (is_taken[kind])
			kind = (kind + 1) % KINDS;
		is_taken[kind] = true;
		memory->list[i] = (struct memory_chunk){ 1 + kind, i * SIZE, SIZE };
		for (int b = 0; b < SIZE; b++)
			memory->bytes[i * SIZE + (uint32_t)b] = (int)kind * SIZE + b;
	}
	memory->size = memory->chunks.n * SIZE;
	cr_assert(memory_chunks_sort(&memory->chunks, &ignored));
}

#endif
