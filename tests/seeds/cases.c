/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor is random bytes between guards; the memory of tiles is poisoned before each case. */
#include "cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "rig.h"
#include "tests/support/tap.h"

enum { THREADS = 128 };

static uint8_t tensor[RIG_TENSOR_BYTES], tiles[RIG_TILE_BYTES];
static uint8_t wanted_tensor[RIG_TENSOR_BYTES], wanted_tiles[RIG_TILE_BYTES];
static bool used[RIG_TILE_BYTES];

void case_random(uint8_t *ret, uint32_t n, uint32_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint32_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		ret[i] = (uint8_t)(state >> 32);
	}
}

void case_prepare(uint8_t *ret_tensor, uint8_t *ret_tiles, uint32_t seed)
{
	case_random(ret_tensor, RIG_TENSOR_BYTES, seed);
	memset(ret_tiles, CASE_POISON, RIG_TILE_BYTES);
	rig_write_tensor(ret_tensor);
	rig_write_tiles(ret_tiles);
}

bool case_begins(void)
{
	static int begun;

	if (rig_is_lost())
		exit(RIG_LOST);
	return ++begun > tap_count();
}

void case_fill_strides(struct tensor_map_layout *layout, uint32_t extra)
{
	uint32_t unit = layout->interleave == TENSOR_MAP_INTERLEAVE_16B ? 16
	                : layout->interleave == TENSOR_MAP_INTERLEAVE_32B
	                    ? 32
	                    : tensor_map_type_size(layout->type);
	uint64_t bytes = unit;

	for (uint32_t d = 1; d < layout->rank; d++) {
		bytes = (bytes * layout->dim[d - 1] + 31) / 32 * 32 + extra;
		layout->stride[d - 1] = bytes;
	}
}

/* Runs the kernel on the map. */
static bool run(enum seed_kernel kernel, const struct tensor_map_layout *layout, const int32_t *c,
                struct expect_size size)
{
	struct seed_tile_args args = {
		.bytes_at = rig_tiles(), .rank = layout->rank, .bytes = size.moved, .span = size.span
	};
	struct rig_launch launch = {
		.kernel = kernel, .threads = THREADS, .shared_bytes = size.span + 16, .args = &args
	};

	memcpy(args.c, c, layout->rank * sizeof(*c));
	return rig_encode(&args.map, layout, 0) && rig_run(&launch);
}

void case_load(const struct tensor_map_layout *layout, const int32_t *c, const char *name)
{
	struct expect_size size = expect_size(layout);
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, layout->rank + (uint32_t)layout->type);
	memcpy(wanted_tiles, tiles, sizeof(tiles));
	memset(used, 0, sizeof(used));
	expect_load(layout, c, tensor + RIG_GUARD, wanted_tiles, used);

	good = run(KERNEL_seed_load, layout, c, size);
	if (good)
		rig_read_tiles(tiles);
	for (uint32_t i = 0; i < RIG_TILE_BYTES && good; i++) {
		if (i < size.span && !used[i])
			continue;
		good = tiles[i] == wanted_tiles[i];
		if (!good)
			tap_note("byte %" PRIu32 " of %" PRIu32 " is 0x%02x, not 0x%02x", i, size.span,
			         tiles[i], wanted_tiles[i]);
	}
	tap_case(good, "%s", name);
}

void case_store(const struct tensor_map_layout *layout, const int32_t *c, const char *name)
{
	struct expect_size size = expect_size(layout);
	bool good;

	if (!case_begins())
		return;
	case_random(tiles, sizeof(tiles), layout->rank + (uint32_t)layout->type);
	memset(tensor, CASE_POISON, sizeof(tensor));
	memcpy(wanted_tensor, tensor, sizeof(tensor));
	rig_write_tensor(tensor);
	rig_write_tiles(tiles);
	expect_store(layout, c, tiles, wanted_tensor + RIG_GUARD);

	good = run(KERNEL_seed_store, layout, c, size);
	if (good)
		rig_read_tensor(tensor);
	for (int32_t i = 0; i < RIG_TENSOR_BYTES && good; i++) {
		good = tensor[i] == wanted_tensor[i];
		if (!good)
			tap_note("byte %" PRId32 " of the tensor is 0x%02x, not 0x%02x", i - RIG_GUARD,
			         tensor[i], wanted_tensor[i]);
	}
	tap_case(good, "%s", name);
}
