/* SPDX-License-Identifier: Apache-2.0 */
/* Cases for the blocks of a cluster: loads for several blocks, and copies between their shared memories. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "expect.h"
#include "rig.h"
#include "tests/support/tap.h"

enum { THREADS = 128, BARRIERS = 32 /* bytes reserved for barriers */ };

static const uint32_t clusters[] = { 2, 4, 8 };
enum { CLUSTERS = sizeof(clusters) / sizeof(clusters[0]) };

static uint8_t tensor[RIG_TENSOR_BYTES], tiles[RIG_TILE_BYTES], wanted[RIG_TILE_BYTES];
static bool used[RIG_TILE_BYTES];

static bool run(enum seed_kernel kernel, uint32_t blocks, uint32_t shared_bytes, void *args)
{
	struct rig_launch launch = {
		.kernel = kernel,
		.grid = { blocks },
		.cluster = blocks,
		.threads = THREADS,
		.shared_bytes = shared_bytes,
		.args = args,
	};
	bool good = rig_run(&launch);

	if (good)
		rig_read_tiles(tiles);
	return good;
}

/* Returns whether each block has received the bytes at data; blocks' results follow each other. */
static bool all_have(uint32_t blocks, const uint8_t *data, uint32_t bytes)
{
	for (uint32_t block = 0; block < blocks; block++)
		if (memcmp(tiles + block * bytes, data, bytes) != 0) {
			tap_note("block %" PRIu32 " has other bytes", block);
			return false;
		}
	return true;
}

/* ---- Loads for several blocks ---------------------------------------------------------------------- */

struct shared_load {
	const char *to;
	uint32_t issuer;
	uint32_t mask;
};

enum { SHARED_LOADS = 4 };

/* Draws the mask: all blocks, one other block, all others, or every second one. */
static struct shared_load shared_load(uint32_t i, uint32_t blocks)
{
	const uint32_t all = (1u << blocks) - 1, last = blocks - 1;
	const struct shared_load loads[SHARED_LOADS] = {
		{ "all", 0, all },
		{ "the first, by the last", last, 1 },
		{ "all but the one that loads", 1, all & ~2u },
		{ "every second", 0, 0x55 & all },
	};

	return loads[i];
}

/* wanted and used describe one block. Bytes that the unit may or may not have written are not compared. */
static bool named_have(uint32_t blocks, uint32_t mask, uint32_t span)
{
	for (uint32_t block = 0; block < blocks; block++)
		for (uint32_t i = 0; i < span; i++) {
			bool named = mask >> block & 1;
			uint8_t want = named ? wanted[i] : CASE_POISON, got = tiles[block * span + i];

			if (got == want || (named && !used[i]))
				continue;
			tap_note("byte %" PRIu32 " of block %" PRIu32 " is 0x%02x, not 0x%02x", i, block, got,
			         want);
			return false;
		}
	return true;
}

static void share(struct seed_share_args args, uint32_t blocks, struct shared_load load, const char *name)
{
	bool good;

	args.bytes_at = rig_tiles();
	args.issuer = load.issuer;
	args.mask = load.mask;
	good = run(KERNEL_seed_share, blocks, args.span + BARRIERS, &args) &&
	       named_have(blocks, load.mask, args.span);
	tap_case(good, "multicast to %s of %" PRIu32 " blocks: %s", load.to, blocks, name);
}

static void share_tile(const struct tensor_map_layout *layout, const int32_t *c, uint32_t blocks,
                       struct shared_load load, const char *name)
{
	struct expect_size size = expect_size(layout);
	struct seed_share_args args = { .rank = layout->rank, .bytes = size.moved, .span = size.span };

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, layout->rank + blocks);
	memset(used, 0, sizeof(used));
	expect_load(layout, c, tensor + RIG_GUARD, wanted, used);
	memcpy(args.c, c, layout->rank * sizeof(*c));
	if (rig_encode(&args.map, layout, 0))
		share(args, blocks, load, name);
	else
		tap_case(false, "%s", name);
}

/* Tiles across an edge of the tensor, in 1 to 5 dimensions. */
static void share_ranks(uint32_t blocks, struct shared_load load)
{
	static const int32_t c[] = { 20, -1, 4, 1, 2 };

	for (uint32_t rank = 1; rank <= TENSOR_MAP_MAX_RANK; rank++) {
		struct tensor_map_layout layout = {
			.type = TENSOR_MAP_UINT32,
			.rank = rank,
			.dim = { 24, 7, 5, 4, 3 },
			.box = { 8, 3, 2, 2, 2 },
			.element_stride = { 1, 1, 1, 1, 1 },
		};
		char name[32];

		for (uint32_t d = rank; d < TENSOR_MAP_MAX_RANK; d++)
			layout.dim[d] = layout.box[d] = layout.element_stride[d] = 0;
		case_fill_strides(&layout, 16);
		snprintf(name, sizeof(name), "a tile of rank %" PRIu32, rank);
		share_tile(&layout, c, blocks, load, name);
	}
}

/* Everything that a map can do to a tile, for each block. */
static void share_layouts(uint32_t blocks, struct shared_load load)
{
	struct tensor_map_layout swizzled = {
		.type = TENSOR_MAP_FLOAT16,
		.rank = 3,
		.dim = { 128, 9, 6 },
		.box = { 64, 5, 3 },
		.element_stride = { 1, 1, 1 },
		.swizzle = TENSOR_MAP_SWIZZLE_128B,
		.fill = TENSOR_MAP_FILL_NAN,
	};
	struct tensor_map_layout sliced = {
		.type = TENSOR_MAP_FLOAT16,
		.rank = 4,
		.dim = { 12, 7, 5, 4 },
		.box = { 8, 3, 1, 2 },
		.element_stride = { 1, 1, 1, 1 },
		.interleave = TENSOR_MAP_INTERLEAVE_16B,
	};
	struct tensor_map_layout spread = {
		.type = TENSOR_MAP_UINT16,
		.rank = 3,
		.dim = { 64, 40, 40 },
		.box = { 16, 8, 7 },
		.element_stride = { 1, 3, 2 },
	};
	const int32_t at[] = { 64, 6, 2, 1 }, slice_at[] = { 6, -1, 2, 1 }, spread_at[] = { 8, 35, 1 };

	case_fill_strides(&swizzled, 0);
	case_fill_strides(&sliced, 0);
	case_fill_strides(&spread, 0);
	share_tile(&swizzled, at, blocks, load, "a swizzled tile");
	share_tile(&sliced, slice_at, blocks, load, "slices of 16 bytes");
	share_tile(&spread, spread_at, blocks, load, "a tile with element strides");
}

static void share_bytes(uint32_t blocks, struct shared_load load)
{
	static const uint32_t sizes[] = { 16, 1040, 8192 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t bytes = sizes[i];
		struct seed_share_args args = { .from = rig_tensor() + 48, .bytes = bytes, .span = bytes };
		char name[32];

		if (!case_begins())
			continue;
		case_prepare(tensor, tiles, bytes + blocks);
		memcpy(wanted, tensor + RIG_GUARD + 48, bytes);
		memset(used, true, bytes);
		snprintf(name, sizeof(name), "%" PRIu32 " bytes without a map", bytes);
		share(args, blocks, load, name);
	}
}

/* The first block fills stages that all blocks release. */
static void share_stages(uint32_t blocks)
{
	enum { TILES = 7, BYTES = 1024 };
	struct seed_stages_args args = {
		.data = rig_tensor(), .bytes_at = rig_tiles(), .bytes = BYTES, .tiles = TILES
	};
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, blocks);
	good = run(KERNEL_seed_stages, blocks, 2 * BYTES + BARRIERS, &args) &&
	       all_have(blocks, tensor + RIG_GUARD, TILES * BYTES);
	tap_case(good, "multicast through two stages that %" PRIu32 " blocks release", blocks);
}

void cases_of_multicast(void)
{
	for (int n = 0; n < CLUSTERS; n++) {
		for (uint32_t i = 0; i < SHARED_LOADS; i++) {
			share_ranks(clusters[n], shared_load(i, clusters[n]));
			share_layouts(clusters[n], shared_load(i, clusters[n]));
			share_bytes(clusters[n], shared_load(i, clusters[n]));
		}
		share_stages(clusters[n]);
	}
}

/* ---- Copies between blocks ------------------------------------------------------------------------- */

struct copy_size {
	uint32_t bytes;
	uint32_t from;
	uint32_t to;
};

static bool copy(enum seed_kernel kernel, uint32_t blocks, struct copy_size size)
{
	uint32_t end = (size.from > size.to ? size.from : size.to) + size.bytes;
	struct seed_copy_args args = {
		.data = rig_tensor(),
		.bytes_at = rig_tiles(),
		.bytes = size.bytes,
		.from = size.from,
		.to = size.to,
		.span = end,
	};

	case_prepare(tensor, tiles, size.bytes + blocks);
	return run(kernel, blocks, end + BARRIERS, &args);
}

static void copy_ring(uint32_t blocks, struct copy_size size)
{
	const uint8_t *data = tensor + RIG_GUARD;
	bool good;

	if (!case_begins())
		return;
	good = copy(KERNEL_seed_copy_ring, blocks, size);
	for (uint32_t block = 0; block < blocks; block++)
		good = good && !memcmp(tiles + block * size.bytes,
		                       data + (block + blocks - 1) % blocks * size.bytes, size.bytes);
	tap_case(good,
	         "%" PRIu32 " blocks copy %" PRIu32 " bytes each to the next, from %" PRIu32 " to %" PRIu32,
	         blocks, size.bytes, size.from, size.to);
}

static void copy_chain(uint32_t blocks, struct copy_size size)
{
	bool good;

	if (!case_begins())
		return;
	good = copy(KERNEL_seed_copy_chain, blocks, size) && all_have(blocks, tensor + RIG_GUARD, size.bytes);
	tap_case(good,
	         "%" PRIu32 " blocks pass on %" PRIu32 " bytes that one loads, from %" PRIu32 " to %" PRIu32,
	         blocks, size.bytes, size.from, size.to);
}

void cases_of_copies(void)
{
	static const struct copy_size sizes[] = {
		{ 16, 0, 16 }, { 48, 64, 16 }, { 1024, 0, 1024 }, { 4112, 8192, 32 }, { 8192, 0, 8192 },
	};

	for (int n = 0; n < CLUSTERS; n++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			copy_ring(clusters[n], sizes[i]);
			copy_chain(clusters[n], sizes[i]);
		}
}
