/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the entries of a list that the host has. */
#include "blocks.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

static int64_t entry_at(const struct engine_blocks *blocks, uint64_t i)
{
	const char *at = (const char *)blocks->index + i * blocks->index_bytes;
	uint32_t half;
	uint64_t whole;

	if (blocks->index_bytes == sizeof half) {
		memcpy(&half, at, sizeof half);
		return (int32_t)le32toh(half);
	}
	memcpy(&whole, at, sizeof whole);
	return (int64_t)le64toh(whole);
}

/* A slot of a table of 2^bits. */
static uint32_t slot_of(uint64_t entry, uint64_t seed, int bits)
{
	const unsigned __int128 mixed =
	    (unsigned __int128)(entry ^ seed) * (seed * UINT64_C(0x9e3779b97f4a7c15) | 1);

	return (uint32_t)(((uint64_t)mixed ^ (uint64_t)(mixed >> 64)) >> (64 - bits));
}

/* Names the first two that are the same. */
static int check_twice(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	int bits = 1;

	while (UINT64_C(1) << bits < 2 * blocks->n)
		bits++;
	memset(seen->slot, 0, sizeof *seen->slot << bits);
	for (uint32_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		uint32_t s = slot_of((uint64_t)entry, seen->seed, bits);

		if (entry == -1)
			continue;
		for (; seen->slot[s]; s = (s + 1) & ((UINT32_C(1) << bits) - 1))
			if (entry_at(blocks, seen->slot[s] - 1) == entry)
				return error_set(err, STATUS_OVERLAP,
				                 "index[%" PRIu32 "]: %" PRId64 ", as index[%" PRIu32
				                 "]: two blocks would be written to the same place in dst",
				                 i, entry, seen->slot[s] - 1);
		seen->slot[s] = i + 1;
	}
	return 0;
}

/* By a bit a block: where there are no more of those than the table has room for, much faster. */
static bool has_twice(const struct engine_blocks *blocks, struct blocks_seen *seen)
{
	bool twice = false;

	memset(seen->slot, 0, (blocks->limit + 31) / 32 * sizeof *seen->slot);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		const uint64_t block = entry < 0 ? 0 : (uint64_t)entry;
		const uint32_t bit = (uint32_t)(entry >= 0) << block % 32;

		twice |= (seen->slot[block / 32] & bit) != 0;
		seen->slot[block / 32] |= bit;
	}
	return twice;
}

int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	if (blocks->n > BLOCKS_LIST_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "index: %" PRIu64 " entries, at most %d",
		                 blocks->n, BLOCKS_LIST_MOST);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);

		if (entry < -1 || (entry >= 0 && (uint64_t)entry >= blocks->limit))
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "index[%" PRIu64 "]: %" PRId64 ", but %s has %" PRIu64
			                 " blocks (limit)",
			                 i, entry, blocks->scatter ? "dst" : "src", blocks->limit);
	}
	if (!blocks->scatter || (blocks->limit <= 8 * sizeof seen->slot && !has_twice(blocks, seen)))
		return 0;
	return check_twice(blocks, seen, err);
}
