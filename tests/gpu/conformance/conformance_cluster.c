/* SPDX-License-Identifier: Apache-2.0 */
/* Each block's shared memory is first filled with a pattern of its own, so that every byte can be checked
 * afterwards. */
#include "conformance_cluster.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "conformance_expect.h"

#define MOST_BYTES (16u << 10)

const char *const cluster_way_names[CONFORMANCE_CLUSTER_WAYS] = {
	[CONFORMANCE_SHARE_TILE] = "tiles for several blocks",
	[CONFORMANCE_SHARE_BYTES] = "bytes for several blocks",
	[CONFORMANCE_COPY_BYTES] = "bytes from one block to another",
};

static uint32_t blocks_of(int size)
{
	return 2u << size;
}

/* ---- Draws ------------------------------------------------------------------------------------------- */

static void take_tile(const struct draw *draw, const CUtensorMap *map, struct conformance_args *tile)
{
	tile->map = *map;
	tile->rank = draw->layout.rank;
	tile->expect = (uint32_t)tensor_map_tile_bytes(&draw->layout);
	tile->copied = (uint32_t)tensor_map_tile_span(&draw->layout) + CONFORMANCE_GUARD;
	memcpy(tile->at, draw->at, sizeof draw->at);
}

/* Draws bytes that lie within shared memory little larger than they are. */
static void draw_bytes(struct rng *rng, struct conformance_cluster_args *args)
{
	uint32_t pieces = 1 + rng_below(rng, rng_below(rng, 3) ? 64 : MOST_BYTES / 16);
	uint32_t most = pieces + rng_below(rng, 17);

	args->tile.expect = pieces * 16;
	args->tile.copied = most * 16;
	args->from = rng_below(rng, most - pieces + 1) * 16;
	args->to = rng_below(rng, most - pieces + 1) * 16;
	args->global = rng_below(rng, (IMAGE_BYTES - MOST_BYTES) / 16) * 16;
}

/* Draws all blocks, one, or any. A copy goes to one block, other than the issuer. */
static void draw_blocks(struct rng *rng, uint32_t blocks, struct conformance_cluster_args *args)
{
	args->issuer = rng_below(rng, blocks);
	if (args->way == CONFORMANCE_COPY_BYTES)
		args->mask = 1u << (args->issuer + 1 + rng_below(rng, blocks - 1)) % blocks;
	else if (rng_below(rng, 3) == 0)
		args->mask = (1u << blocks) - 1;
	else
		args->mask = 1 + rng_below(rng, (1u << blocks) - 1);
}

/* ---- Expectations ------------------------------------------------------------------------------------ */

static void fill(unsigned char *shared, uint32_t bytes, uint32_t block)
{
	for (uint32_t i = 0; i < bytes; i += sizeof(uint32_t)) {
		uint32_t word = CONFORMANCE_PATTERN(block, i / sizeof(uint32_t));

		memcpy(shared + i, &word, sizeof word);
	}
}

/* Computes one block's shared memory in memory.tile. Bytes that may have any value are not marked. */
static void expect(const struct conformance_cluster_args *args, const struct draw *draw, uint32_t block,
                   struct cluster_memory memory)
{
	uint32_t bytes = args->tile.copied;
	bool named = args->mask >> block & 1;

	fill(memory.tile, bytes, block);
	memset(memory.marks, 1, bytes);
	if (!named)
		return;
	switch (args->way) {
	case CONFORMANCE_SHARE_TILE:
		memset(memory.marks, 0, bytes - CONFORMANCE_GUARD);
		expect_load(draw, memory.image, memory.tile, memory.marks);
		break;
	case CONFORMANCE_SHARE_BYTES:
		memcpy(memory.tile + args->to, memory.image + args->global, args->tile.expect);
		break;
	default:
		/* Writes the issuer's whole pattern to a part of the buffer that is overwritten or not
		 * compared. */
		fill(memory.tile + bytes, bytes, args->issuer);
		memcpy(memory.tile + args->to, memory.tile + bytes + args->from, args->tile.expect);
		break;
	}
}

/* Reports the first wrong byte of any block. */
static int judge(const struct conformance_cluster_args *args, const struct draw *draw, uint32_t blocks,
                 const uint32_t *status, struct cluster_memory memory, char *report, size_t size)
{
	for (uint32_t block = 0; block < blocks; block++) {
		const unsigned char *got = memory.got + (size_t)block * args->tile.copied;

		expect(args, draw, block, memory);
		if (status[block] != CONFORMANCE_ARRIVED) {
			snprintf(report, size, "%s, %u of a cluster of %u: its barrier did not get %u bytes",
			         cluster_way_names[args->way], block, blocks, args->tile.expect);
			return 1;
		}
		for (uint32_t i = 0; i < args->tile.copied; i++) {
			if (got[i] == memory.tile[i] || !memory.marks[i])
				continue;
			snprintf(
			    report, size,
			    "%s, %u of a cluster of %u, by %u to 0x%x: byte %u of shared memory is 0x%02x, "
			    "not 0x%02x (%u bytes, from %u to %u)",
			    cluster_way_names[args->way], block, blocks, args->issuer, args->mask, i, got[i],
			    memory.tile[i], args->tile.expect, args->from, args->to);
			return 1;
		}
	}
	return 0;
}

/* ---- A try ------------------------------------------------------------------------------------------- */

int cluster_try(struct gpu *gpu, enum conformance_cluster_way way, struct rng *rng, const struct draw *draw,
                const CUtensorMap *map, struct cluster_memory memory, uint32_t tile_bytes,
                struct cluster_tally *tally, char *report, size_t size, struct error *err)
{
	int which = (int)rng_below(rng, CLUSTER_SIZES), r;
	uint32_t blocks = blocks_of(which), status[CONFORMANCE_MOST_BLOCKS] = { CONFORMANCE_NONE };
	struct conformance_cluster_args args = { .way = way };

	draw_blocks(rng, blocks, &args);
	if (way == CONFORMANCE_SHARE_TILE)
		take_tile(draw, map, &args.tile);
	else
		draw_bytes(rng, &args);
	if (blocks * args.tile.copied > tile_bytes)
		return 0;

	r = gpu_write(gpu, gpu->status, status, sizeof status, err);
	if (r == 0)
		r = gpu_run_cluster(gpu, &args, blocks, err);
	if (r == 0)
		r = gpu_read(gpu, status, gpu->status, sizeof status, err);
	if (r == 0)
		r = gpu_read(gpu, memory.got, gpu->tile, (uint64_t)blocks * args.tile.copied, err);
	if (r == 0)
		r = judge(&args, draw, blocks, status, memory, report, size);
	tally->done[which] += r >= 0;
	tally->wrong[which] += r > 0;
	tally->lost[which] += r < 0;
	return r;
}
