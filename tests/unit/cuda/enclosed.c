/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks that travel in a launch's arguments: which lists do, with how many bytes an entry,
 * and that what is written and counted is what each entry by itself says. */
#include "kernels/cuda/launch/launch.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <endian.h>
#include <string.h>

#include "kernels/cuda/device/args.h"
#include "tests/support/oracle.h"

#define MOST 8192

/* ---- Which -----------------------------------------------------------------------------------------------
 */

struct which_row {
	char name[40];
	enum strategy_id strategy;
	uint64_t n, limit;
	bool in_region, layers;
	uint32_t bytes;
	bool is_short;
};

ParameterizedTestParameters(enclosed, which)
{
	static struct which_row rows[] = {
		{ "one of one", STRATEGY_memcpy, 1, 1, false, false, 2, true },
		{ "most short", STRATEGY_memcpy, 1024, 65535, false, false, 2, true },
		{ "one more", STRATEGY_memcpy, 1025, 65535, false, false, 2, false },
		{ "most", STRATEGY_copy, 8192, 65535, false, false, 2, false },
		{ "too many", STRATEGY_copy, 8193, 65535, false, false, 0, false },
		{ "most short of 4 bytes", STRATEGY_copy, 512, 65536, false, false, 4, true },
		{ "one more of 4 bytes", STRATEGY_copy, 513, 65536, false, false, 4, false },
		{ "most of 4 bytes", STRATEGY_memcpy, 4096, INT32_MAX, false, false, 4, false },
		{ "too many of 4 bytes", STRATEGY_memcpy, 4097, INT32_MAX, false, false, 0, false },
		{ "too many blocks", STRATEGY_memcpy, 9, (uint64_t)INT32_MAX + 1, false, false, 0, false },
		{ "no block", STRATEGY_memcpy, 9, 0, false, false, 2, true },
		{ "in a region", STRATEGY_memcpy, 9, 9, true, false, 0, false },
		{ "layers by a list", STRATEGY_memcpy, 9, 9, false, true, 0, false },
		{ "rows", STRATEGY_rows, 9, 9, false, false, 0, false },
		{ "nothing", STRATEGY_none, 9, 9, false, false, 0, false },
	};
	return cr_make_param_array(struct which_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct which_row *row, enclosed, which)
{
	static const int64_t layers[1];
	static const int32_t index[1];
	static struct plan plan;
	struct engine_blocks blocks = { .n = row->n,
		                        .layers = 1,
		                        .index_bytes = 4,
		                        .limit = row->limit,
		                        .index = row->in_region ? NULL : index,
		                        .src.layers = row->layers ? layers : NULL };

	plan.tma.strategy = row->strategy;
	cr_assert_eq(enclosed_entry_bytes(&plan, &blocks), row->bytes, "%s", row->name);
	if (row->bytes > 0)
		cr_assert_eq(enclosed_is_short(&blocks, row->bytes), row->is_short, "%s", row->name);
}

/* ---- What ------------------------------------------------------------------------------------------------
 */

/* Returns the number of a block or, once in one_in, a value at one of the limits. */
static int64_t draw(uint64_t *state, uint64_t limit, uint64_t one_in)
{
	const int64_t odd[] = { -1,
		                -1,
		                -2,
		                (int64_t)limit,
		                (int64_t)limit - 1,
		                INT32_MIN,
		                INT32_MAX,
		                INT64_MIN,
		                INT64_MAX,
		                (INT64_C(1) << 32) - 1,
		                (INT64_C(1) << 32) | 3,
		                -(INT64_C(1) << 32) + 3 };

	if (one_in == 0 || oracle_random(state) % one_in > 0)
		return limit > 0 ? (int64_t)(oracle_random(state) % limit) : -1;
	return odd[oracle_random(state) % (sizeof odd / sizeof *odd)];
}

static void pack(char *to, uint8_t bytes, int64_t entry)
{
	const uint64_t whole = htole64((uint64_t)entry);
	const uint32_t half = htole32((uint32_t)entry);

	memcpy(to, bytes == 8 ? (const void *)&whole : &half, bytes);
}

static void check(uint64_t n, uint64_t limit, uint8_t index_bytes, uint32_t entry_bytes, uint64_t *state)
{
	static char index[MOST * 8 + 1];
	static int64_t drawn[MOST];
	static unsigned char written[ENCLOSED_LONG + 64];
	const uint64_t one_in = oracle_random(state) % 40, none = entry_bytes == 2 ? UINT16_MAX : UINT32_MAX;
	struct engine_blocks blocks = {
		.n = n, .layers = 1, .index_bytes = index_bytes, .limit = limit, .index = index + 1
	};
	uint64_t passed = 0, beyond = 0;

	for (uint64_t i = 0; i < n; i++) {
		drawn[i] = draw(state, limit, one_in);
		pack(index + 1 + i * index_bytes, index_bytes, drawn[i]);
		if (index_bytes == 4)
			drawn[i] = (int32_t)drawn[i];
	}
	memset(written, 0xa5, sizeof written);
	enclosed_write(&blocks, entry_bytes, written);
	for (uint64_t i = 0; i < n; i++) {
		const bool is_block = drawn[i] >= 0 && (uint64_t)drawn[i] < limit;
		uint64_t got = 0;

		memcpy(&got, written + i * entry_bytes, entry_bytes);
		got = le64toh(got);
		cr_assert_eq(got, is_block ? (uint64_t)drawn[i] : none, "%ld of %lu: %lu", (long)drawn[i],
		             (unsigned long)limit, (unsigned long)got);
		passed += drawn[i] == -1;
		beyond += drawn[i] != -1 && !is_block;
	}
	cr_assert_eq(blocks.passed, passed);
	cr_assert_eq(blocks.beyond, beyond);
	for (size_t i = (n + 31) / 32 * 32 * entry_bytes; i < sizeof written; i++)
		cr_assert_eq(written[i], 0xa5, "%lu entries of %u: byte %zu", (unsigned long)n, entry_bytes,
		             i);
}

Test(enclosed, entries)
{
	static const uint64_t limits[] = { 0, 1, 7, 16384, 65534, 65535, 65536, 100000, INT32_MAX };
	static const uint64_t sizes[] = { 1, 2, 31, 32, 33, 63, 64, 1000, 1024, 4095, 4096 };
	uint64_t state = 3;

	for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
		for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
			for (int turn = 0; turn < 8; turn++) {
				const uint32_t bytes = limits[l] <= UINT16_MAX ? 2 : 4;

				check(sizes[s], limits[l], 4, bytes, &state);
				check(sizes[s], limits[l], 8, bytes, &state);
			}
	check(8192, 65535, 4, 2, &state);
	check(8191, 65535, 8, 2, &state);
}
