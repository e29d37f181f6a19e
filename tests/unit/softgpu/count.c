/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the model's counts against counts made by hand. A store that is right but uncoalesced shows in
 * them. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tests/softgpu/counted.h"
#include "tests/softgpu/model.h"

#define ROOM (64 << 10)

static unsigned char memory[ROOM] __attribute__((aligned(128)));

/* Launches the kernel in one cluster. counts NULL: nothing is counted. */
static void launch(const char *kernel, void *args, uint32_t blocks, uint32_t threads, uint32_t shared_bytes,
                   struct softgpu_counts *counts)
{
	void *params[] = { args };
	struct model_launch launch = {
		.grid = { blocks, 1, 1 },
		.block = { threads, 1, 1 },
		.cluster = blocks,
		.shared_bytes = shared_bytes,
		.params = params,
	};
	char report[512] = "";

	model_counts = counts;
	cr_assert(model_run(model_find(kernel), &launch, report, sizeof report), "%s", report);
	model_counts = NULL;
}

static struct softgpu_counts run(const char *kernel, void *args, uint32_t threads, uint32_t shared_bytes)
{
	struct softgpu_counts counts = { 0 };

	launch(kernel, args, 1, threads, shared_bytes, &counts);
	return counts;
}

/* Runs the kernel in a cluster of 4 blocks and returns the counts. */
static struct softgpu_counts run_cluster(enum counted_what what)
{
	struct counted_args args = { .what = what, .base = (uintptr_t)memory + 16, .stride = 64 };
	struct softgpu_counts counts = { 0 };

	launch("counted_cluster", &args, 4, 32, COUNTED_SHARED, &counts);
	return counts;
}

/* ---- Instructions of a warp --------------------------------------------------------------------------- */

struct count_row {
	char name[48];
	enum counted_what what;
	uint32_t threads; /* 0: 32 */
	uint32_t size;
	uint32_t stride;
	uint32_t offset; /* of the first lane in global memory, in bytes */
	uint64_t instructions;
	uint64_t read;
	uint64_t written;
	uint64_t wavefronts;
	uint64_t ideal;
};

/* Each lane makes one access: its size, the stride between lanes, the offset of lane 0, and the sectors that
 * this takes. */
#define READS(name_, size_, stride_, offset_, sectors)                                        \
	{                                                                                     \
		.name = name_, .what = COUNTED_GLOBAL_READ, .size = size_, .stride = stride_, \
		.offset = offset_, .instructions = 1, .read = sectors                         \
	}
#define WRITES(name_, size_, stride_, offset_, sectors)                                        \
	{                                                                                      \
		.name = name_, .what = COUNTED_GLOBAL_WRITE, .size = size_, .stride = stride_, \
		.offset = offset_, .instructions = 1, .written = sectors                       \
	}
/* Each lane makes one access to shared memory: the wavefronts that this takes, and those that it would take
 * without conflicts. */
#define SHARED(name_, what_, size_, stride_, wavefronts_, ideal_)                                \
	{                                                                                        \
		.name = name_, .what = COUNTED_SHARED_##what_, .size = size_, .stride = stride_, \
		.instructions = 1, .wavefronts = wavefronts_, .ideal = ideal_                    \
	}

static struct count_row count_rows[] = {
	WRITES("16 bytes side by side", 16, 16, 0, 16),
	WRITES("16 bytes, half a sector off", 16, 16, 16, 17),
	WRITES("every other 16 bytes", 16, 32, 0, 32),
	WRITES("bytes side by side", 1, 1, 0, 1),
	WRITES("bytes across two sectors", 1, 1, 31, 2),
	READS("words side by side", 4, 4, 0, 4),
	READS("words, one word off", 4, 4, 4, 5),
	READS("every other word", 4, 8, 0, 8),
	READS("a column of words", 4, 256, 0, 32),
	READS("one word for all", 4, 0, 0, 1),
	READS("halves side by side", 2, 2, 0, 2),
	READS("8 bytes side by side", 8, 8, 0, 8),
	{ .name = "two warps",
	  .what = COUNTED_GLOBAL_WRITE,
	  .threads = 64,
	  .size = 16,
	  .stride = 16,
	  .instructions = 2,
	  .written = 32 },
	{ .name = "a warp and a half",
	  .what = COUNTED_GLOBAL_WRITE,
	  .threads = 48,
	  .size = 16,
	  .stride = 16,
	  .instructions = 2,
	  .written = 24 },

	SHARED("all banks", READ, 4, 4, 1, 1),
	SHARED("two ways", READ, 4, 8, 2, 1),
	SHARED("an odd stride", READ, 4, 12, 1, 1),
	SHARED("a column", WRITE, 4, 128, 32, 1),
	SHARED("a padded column", WRITE, 4, 132, 1, 1),
	SHARED("broadcast", READ, 4, 0, 1, 1),
	SHARED("bytes of 8 words", READ, 1, 1, 1, 1),
	SHARED("bytes of a column", READ, 1, 64, 16, 1),
	SHARED("half-warps", READ, 8, 8, 2, 2),
	SHARED("half-warps, two ways", READ, 8, 16, 4, 2),
	SHARED("quarter-warps", WRITE, 16, 16, 4, 4),
	SHARED("quarter-warps, 8 ways", WRITE, 16, 128, 32, 4),
	{ .name = "two quarter-warps",
	  .what = COUNTED_SHARED_WRITE,
	  .threads = 16,
	  .size = 16,
	  .stride = 16,
	  .instructions = 1,
	  .wavefronts = 2,
	  .ideal = 2 },

	/* One lane in four skips an iteration, but never both lanes of a sector. */
	{ .name = "iterations that lanes skip", .what = COUNTED_SKIPS, .instructions = 4, .written = 4 * 16 },
	/* Of every four lanes, lanes 1, 2 and 3 write, then 2 and 3, then 3. */
	{ .name = "loops of different lengths",
	  .what = COUNTED_TRIPS,
	  .instructions = 3 + 4,
	  .read = 4 * 16,
	  .written = 16 + 8 + 8 },
	{ .name = "branches", .what = COUNTED_BRANCHES, .instructions = 2, .written = 2 * 16 },
	{ .name = "one line twice", .what = COUNTED_CALLS, .instructions = 2, .written = 2 * 16 },
	{ .name = "additions to one word",
	  .what = COUNTED_ADDS,
	  .threads = 64,
	  .instructions = 2,
	  .written = 2 },
};

ParameterizedTestParameters(count, instructions)
{
	return cr_make_param_array(struct count_row, count_rows, sizeof count_rows / sizeof *count_rows);
}

ParameterizedTest(struct count_row *row, count, instructions)
{
	struct counted_args args = {
		.base = (uintptr_t)memory + row->offset,
		.what = row->what,
		.size = row->size,
		.stride = row->stride,
	};
	const struct softgpu_counts counts =
	    run("counted", &args, row->threads ? row->threads : 32, COUNTED_SHARED);
	uint64_t instructions = 0;

	for (int i = 0; i < SOFTGPU_INSTRUCTIONS; i++)
		instructions += counts.instructions[i];
	cr_expect_eq(instructions, row->instructions, "%s: %d instructions", row->name, (int)instructions);
	cr_expect_eq(counts.read.warps, row->read, "%s: %d sectors read", row->name, (int)counts.read.warps);
	cr_expect_eq(counts.written.warps, row->written, "%s: %d sectors written", row->name,
	             (int)counts.written.warps);
	cr_expect_eq(counts.wavefronts, row->wavefronts, "%s: %d wavefronts", row->name,
	             (int)counts.wavefronts);
	cr_expect_eq(counts.ideal_wavefronts, row->ideal, "%s: ideal %d", row->name,
	             (int)counts.ideal_wavefronts);
	cr_expect_eq(counts.read.unit + counts.written.unit, 0, "%s: sectors of the unit", row->name);
}

Test(count, kinds_of_instructions)
{
	struct counted_args args = { .what = COUNTED_MEETINGS };
	const struct softgpu_counts counts = run("counted", &args, 96, COUNTED_SHARED);

	for (int i = 0; i < SOFTGPU_INSTRUCTIONS; i++)
		cr_expect_eq(counts.instructions[i],
		             i == SOFTGPU_BLOCK_SYNC || i == SOFTGPU_WARP_SYNC || i == SOFTGPU_CLUSTER_SYNC ||
		                     i == SOFTGPU_SHUFFLE
		                 ? 3
		                 : 0,
		             "kind %d: %d", i, (int)counts.instructions[i]);
	cr_expect_eq(counts.launches, 1);
	cr_expect_eq(counts.blocks, 1);
}

/* ---- The unit ----------------------------------------------------------------------------------------- */

struct tile_row {
	char name[48];
	uint32_t x;      /* words in a row of the box */
	uint32_t y;      /* rows of the box */
	uint32_t pitch;  /* bytes between rows of the tensor */
	uint32_t offset; /* of the tensor's first byte */
	int32_t row;     /* first row of the box in the tensor, which has 16 */
	uint64_t sectors;
	uint64_t in_flight;
};

static struct tile_row tile_rows[] = {
	{ "rows of a sector", 8, 8, 64, 0, 0, 8, 256 },
	{ "rows of half a sector", 4, 8, 64, 0, 0, 8, 128 },
	{ "rows of half a sector, close", 4, 8, 16, 0, 0, 8, 128 },
	{ "rows of 48 bytes", 12, 8, 128, 0, 0, 16, 384 },
	{ "rows of 48 bytes, close", 12, 8, 48, 0, 0, 16, 384 },
	{ "rows of 64 bytes, half a sector off", 16, 8, 128, 16, 0, 24, 512 },
	{ "rows past the end", 8, 8, 64, 0, 13, 3, 96 },
};

ParameterizedTestParameters(count, tiles)
{
	return cr_make_param_array(struct tile_row, tile_rows, sizeof tile_rows / sizeof *tile_rows);
}

ParameterizedTest(struct tile_row *row, count, tiles)
{
	const struct tensor_map_layout layout = {
		.type = TENSOR_MAP_UINT32,
		.rank = 2,
		.dim = { row->x, 16 },
		.stride = { row->pitch },
		.box = { row->x, row->y },
		.element_stride = { 1, 1 },
	};
	struct counted_args args = { .what = COUNTED_TILE,
		                     .tile_bytes = 4 * row->x * row->y,
		                     .row = row->row };
	struct softgpu_counts counts;

	model_map_encode(&args.map, &layout, (uintptr_t)memory + row->offset);
	counts = run("counted", &args, 32, COUNTED_SHARED);
	cr_expect_eq(counts.read.unit, row->sectors, "%s: %d read", row->name, (int)counts.read.unit);
	cr_expect_eq(counts.written.unit, row->sectors, "%s: %d written", row->name,
	             (int)counts.written.unit);
	cr_expect_eq(counts.in_flight, row->in_flight, "%s: %d in flight", row->name, (int)counts.in_flight);
	cr_expect_eq(counts.instructions[SOFTGPU_TILE_LOAD], 1, "%s", row->name);
	cr_expect_eq(counts.instructions[SOFTGPU_TILE_STORE], 1, "%s", row->name);
	cr_expect_eq(counts.read.warps + counts.written.warps, 0, "%s: sectors of warps", row->name);
}

/* 64 bytes that begin within a sector lie in three sectors. */
Test(count, bulk_copies)
{
	struct counted_args args = { .what = COUNTED_BULK, .base = (uintptr_t)memory + 16, .stride = 64 };
	const struct softgpu_counts counts = run("counted", &args, 32, COUNTED_SHARED);

	cr_expect_eq(counts.read.unit, 9);
	cr_expect_eq(counts.written.unit, 3);
	cr_expect_eq(counts.instructions[SOFTGPU_BULK_LOAD], 3);
	cr_expect_eq(counts.instructions[SOFTGPU_BULK_STORE], 1);
	cr_expect_eq(counts.instructions[SOFTGPU_BARRIER_ARRIVE], 2);
	cr_expect_eq(counts.instructions[SOFTGPU_BARRIER_WAIT], 2);
	cr_expect_eq(counts.in_flight, 128, "two loads at once");
	cr_expect_eq(counts.threads, 32);
	cr_expect_eq(counts.shared_bytes, COUNTED_SHARED);
}

/* ---- Clusters ----------------------------------------------------------------------------------------- */

/* Each block loads 64 bytes in three sectors for all 4 blocks. They are read once, and in flight to each
 * block. */
Test(count, multicast)
{
	const struct softgpu_counts counts = run_cluster(COUNTED_MULTICAST);

	cr_expect_eq(counts.blocks, 4);
	cr_expect_eq(counts.read.unit, 4 * 3);
	cr_expect_eq(counts.copied, 0);
	cr_expect_eq(counts.in_flight, 4 * 64);
	cr_expect_eq(counts.instructions[SOFTGPU_BULK_LOAD], 4);
	cr_expect_eq(counts.instructions[SOFTGPU_CLUSTER_SYNC], 8);
}

Test(count, copies_between_blocks)
{
	const struct softgpu_counts counts = run_cluster(COUNTED_COPIES);

	cr_expect_eq(counts.read.unit, 3);
	cr_expect_eq(counts.copied, 3 * 64);
	cr_expect_eq(counts.in_flight, 64);
	cr_expect_eq(counts.instructions[SOFTGPU_BULK_LOAD], 1);
	cr_expect_eq(counts.instructions[SOFTGPU_BULK_COPY], 3);
	cr_expect_eq(softgpu_sum(&counts.written), 0);
}

/* ---- A planted mistake -------------------------------------------------------------------------------- */

static struct softgpu_counts copy_words(enum counted_what what)
{
	const uint32_t bytes = 4 * COUNTED_WORDS;
	struct counted_args args = { .what = what, .base = (uintptr_t)memory };
	struct softgpu_counts counts;

	for (uint32_t i = 0; i < 2 * bytes; i++)
		memory[i] = (unsigned char)(i < bytes ? i * 7 : 0);
	counts = run("counted", &args, 64, COUNTED_SHARED);
	cr_assert_arr_eq(memory, memory + bytes, bytes);
	return counts;
}

Test(count, an_uncoalesced_store_is_found)
{
	const uint64_t ideal = 4 * COUNTED_WORDS / SOFTGPU_SECTOR;
	const struct softgpu_counts good = copy_words(COUNTED_STORE),
				    bad = copy_words(COUNTED_UNCOALESCED_STORE);

	cr_expect_eq(good.read.warps, ideal);
	cr_expect_eq(good.written.warps, ideal);
	cr_expect_eq(bad.read.warps, ideal);
	cr_expect_eq(bad.written.warps, 4 * ideal, "%d sectors", (int)bad.written.warps);
	cr_expect_eq(memcmp(good.instructions, bad.instructions, sizeof good.instructions), 0);
}

/* ---- Off ---------------------------------------------------------------------------------------------- */

Test(count, launches_add_up_while_asked_for)
{
	struct counted_args args = {
		.base = (uintptr_t)memory, .what = COUNTED_GLOBAL_WRITE, .size = 4, .stride = 4
	};
	struct softgpu_counts counts = { 0 };

	launch("counted", &args, 1, 32, COUNTED_SHARED, &counts);
	launch("counted", &args, 1, 32, COUNTED_SHARED, NULL);
	cr_expect_eq(counts.launches, 1);
	cr_expect_eq(counts.written.warps, 4);
	launch("counted", &args, 1, 32, COUNTED_SHARED, &counts);
	cr_expect_eq(counts.launches, 2);
	cr_expect_eq(counts.written.warps, 8);
}
