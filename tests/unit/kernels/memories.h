/* SPDX-License-Identifier: Apache-2.0 */
/* Memories that share allocations, each of whose bytes has a number. */
#ifndef TESTS_UNIT_KERNELS_MEMORIES_H
#define TESTS_UNIT_KERNELS_MEMORIES_H

#include <criterion/criterion.h>

#include "kernels/transform/aliases.h"
#include "tests/support/oracle.h"

#define MOST  60 /* allocations of a memory; few of them are looked up, many are walked along */
#define KINDS 80 /* that there are */
#define SIZE  5  /* bytes of each */

struct memory {
	struct memory_chunks chunks;
	struct memory_chunk list[MOST];
	struct memory_chunk by_id[MOST];
	int bytes[MOST * SIZE]; /* which byte of which allocation */
	uint64_t size;
};

/* Allocations in an order of their own, each once. */
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
