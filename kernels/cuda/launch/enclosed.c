/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a client's index list to the entries in a launch's arguments, a group at a time: thousands of them
 * have to be ready before the launch. */
#include "enclosed.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "kernels/cuda/device/args.h"

#define GROUP 32

static_assert(ENCLOSED_SHORT % (4 * GROUP) == 0 && ENCLOSED_LONG % (4 * GROUP) == 0, "groups are whole");

uint32_t enclosed_entry_bytes(const struct plan *plan, const struct engine_blocks *blocks)
{
	const bool for_lists = plan->tma.strategy == STRATEGY_memcpy || plan->tma.strategy == STRATEGY_copy;
	const uint32_t bytes = blocks->limit <= UINT16_MAX ? 2 : 4;

	if (!for_lists || !blocks->index || blocks->dst.layers || blocks->src.layers ||
	    blocks->limit > INT32_MAX || blocks->n > ENCLOSED_LONG / bytes)
		return 0;
	return bytes;
}

bool enclosed_is_short(const struct engine_blocks *blocks, uint32_t entry_bytes)
{
	return blocks->n <= ENCLOSED_SHORT / entry_bytes;
}

/* One that takes more than 32 bits becomes another that there is no block of. */
static void read_group(const char *from, uint8_t index_bytes, int32_t group[GROUP])
{
	uint64_t entries[GROUP], beyond = 0;

	if (index_bytes == sizeof *group) {
		memcpy(group, from, GROUP * sizeof *group);
		for (int i = 0; i < GROUP; i++)
			group[i] = (int32_t)le32toh((uint32_t)group[i]);
		return;
	}
	memcpy(entries, from, sizeof entries);
	for (int i = 0; i < GROUP; i++) {
		const uint64_t entry = le64toh(entries[i]);

		group[i] = (int32_t)entry;
		beyond |= entry + INT32_MAX + 1;
	}
	for (int i = 0; i < GROUP && beyond >> 32; i++)
		if ((int64_t)le64toh(entries[i]) != group[i])
			group[i] = INT32_MIN;
}

static bool is_all_blocks(const int32_t group[GROUP], int32_t limit)
{
	uint32_t bits = 0; /* the highest: of a negative one, or of one past the last */

	for (int i = 0; i < GROUP; i++)
		bits |= (uint32_t)group[i] | (uint32_t)(limit - 1 - (group[i] & INT32_MAX));
	return bits <= INT32_MAX;
}

/* Counts -1, and what is neither that nor a block; both become -1. */
static void judge_group(int32_t group[GROUP], int32_t limit, struct engine_blocks *blocks)
{
	if (is_all_blocks(group, limit))
		return;
	for (int i = 0; i < GROUP; i++) {
		if (group[i] >= 0 && group[i] < limit)
			continue;
		blocks->passed += group[i] == -1;
		blocks->beyond += group[i] != -1;
		group[i] = -1;
	}
}

static void write_group(const int32_t group[GROUP], uint32_t entry_bytes, char *to)
{
	uint16_t half[GROUP];

	if (entry_bytes == sizeof *group) {
		memcpy(to, group, GROUP * sizeof *group);
		return;
	}
	for (int i = 0; i < GROUP; i++)
		half[i] = (uint16_t)group[i];
	memcpy(to, half, sizeof half);
}

void enclosed_write(struct engine_blocks *blocks, uint32_t entry_bytes, void *to)
{
	const uint64_t rest = blocks->n % GROUP;
	const char *from = blocks->index;
	char last[GROUP * sizeof(uint64_t)];
	int32_t group[GROUP];

	for (uint64_t i = 0; i < blocks->n; i += GROUP, from += GROUP * blocks->index_bytes) {
		if (blocks->n - i < GROUP) {
			memset(last, 0xff, sizeof last);
			memcpy(last, from, rest * blocks->index_bytes);
			from = last;
			blocks->passed -= GROUP - rest;
		}
		read_group(from, blocks->index_bytes, group);
		judge_group(group, (int32_t)blocks->limit, blocks);
		write_group(group, entry_bytes, (char *)to + i * entry_bytes);
	}
}
