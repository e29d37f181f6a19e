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

static int bits_of(uint64_t n)
{
	int bits = 1;

	while (UINT64_C(1) << bits < 2 * n)
		bits++;
	return bits;
}

size_t blocks_slots(uint64_t n)
{
	return (size_t)1 << bits_of(n);
}

/* Names the first two that are the same. */
static int check_twice(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, struct error *err)
{
	const int bits = bits_of(blocks->n);

	memset(slot, 0, sizeof *slot << bits);
	for (uint32_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		uint32_t s = slot_of((uint64_t)entry, seed, bits);

		if (entry == -1)
			continue;
		for (; slot[s]; s = (s + 1) & ((UINT32_C(1) << bits) - 1))
			if (entry_at(blocks, slot[s] - 1) == entry)
				return error_set(err, STATUS_OVERLAP,
				                 "index[%" PRIu32 "]: %" PRId64 ", as index[%" PRIu32
				                 "]: two blocks would be written to the same place in dst",
				                 i, entry, slot[s] - 1);
		slot[s] = i + 1;
	}
	return 0;
}

/* By a bit a block: where there are no more of those than the table has room for, much faster. */
static bool has_twice(const struct engine_blocks *blocks, uint32_t *slot)
{
	bool twice = false;

	memset(slot, 0, (blocks->limit + 31) / 32 * sizeof *slot);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		const uint64_t block = entry < 0 ? 0 : (uint64_t)entry;
		const uint32_t bit = (uint32_t)(entry >= 0) << block % 32;

		twice |= (slot[block / 32] & bit) != 0;
		slot[block / 32] |= bit;
	}
	return twice;
}

static int check_range(const struct engine_blocks *blocks, struct error *err)
{
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);

		if (entry < -1 || (entry >= 0 && (uint64_t)entry >= blocks->limit))
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "index[%" PRIu64 "]: %" PRId64 ", but %s has %" PRIu64
			                 " blocks (limit)",
			                 i, entry, blocks->scatter ? "dst" : "src", blocks->limit);
	}
	return 0;
}

int blocks_check_entries(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, size_t n_slots,
                         struct error *err)
{
	int r = check_range(blocks, err);

	if (r < 0 || !blocks->scatter)
		return r;
	if (blocks->limit <= 8 * sizeof *slot * n_slots && !has_twice(blocks, slot))
		return 0;
	return check_twice(blocks, seed, slot, err);
}

int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	if (blocks->n > BLOCKS_LIST_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "index: %" PRIu64 " entries, at most %d",
		                 blocks->n, BLOCKS_LIST_MOST);
	return blocks_check_entries(blocks, seen->seed, seen->slot, 2 * BLOCKS_LIST_MOST, err);
}
