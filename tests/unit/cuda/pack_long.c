/* SPDX-License-Identifier: Apache-2.0 */
/* Tests long lists between scattered blocks on the device and a host side in long runs, as when a cache of
 * keys and values is moved out and back in. Several stretches of any size are under way at once. Lists are
 * inline, on the host or on the device, entries may be skipped or out of range, and layers are spaced evenly
 * or unevenly. Whole memories are compared with a plain loop. A cancelled job leaves whole blocks. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "kernels/cuda/stage/packing.h"
#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MEMORY_BYTES    (2u << 20)
#define MOST_ENTRIES    3000
#define MOST_LAYERS     6
#define CASES_AN_ENGINE 20

enum index_place { INDEX_INLINE, INDEX_HOST, INDEX_DEVICE };

struct list {
	struct work work;
	struct engine_blocks blocks;
	bool out;
	uint64_t count;              /* device blocks in each layer */
	uint32_t bytes;              /* bytes of a block */
	int64_t entry[MOST_ENTRIES]; /* device block of each entry, or a number that names none */
	int64_t host[MOST_ENTRIES];
	unsigned char packed[MOST_ENTRIES * 16];
	int64_t layers[MOST_LAYERS];
	uint64_t passed, beyond;
};

struct bench {
	struct engine_stream *stream;
	struct engine_memory *host, *device, *index_host, *index_device;
};

static unsigned char expected[MEMORY_BYTES], before[MEMORY_BYTES];

static void bench_open(struct bench *bench, const struct cuda_limits *limits)
{
	open_engine(limits);
	count_launches();
	bench->stream = engine_stream_new(engine, &owner);
	bench->host = new_memory(REGION_KIND_MEMFD, MEMORY_BYTES);
	bench->device = new_memory(REGION_KIND_CUDA_FD, MEMORY_BYTES);
	bench->index_host = new_memory(REGION_KIND_MEMFD, MOST_ENTRIES * 16);
	bench->index_device = new_memory(REGION_KIND_CUDA_FD, MOST_ENTRIES * 16);
}

static void bench_close(struct bench *bench)
{
	engine_stream_free(engine, bench->stream);
	engine_unmap(engine, bench->host);
	engine_unmap(engine, bench->device);
	engine_unmap(engine, bench->index_host);
	engine_unmap(engine, bench->index_device);
	close_engine();
}

static void fill(struct engine_memory *memory, uint64_t *state)
{
	for (size_t i = 0; i < MEMORY_BYTES; i += 8)
		memcpy(data(memory) + i, &(uint64_t){ oracle_random(state) }, 8);
}

/* ---- Lists --------------------------------------------------------------------------------------------- */

/* Draws a permutation of the device's blocks that contains runs, and of which some entries are skipped or, if
 * may_be_beyond, out of range. */
static void draw_entries(struct list *list, uint64_t *state, bool may_be_beyond)
{
	struct engine_blocks *b = &list->blocks;
	const uint64_t run = (uint64_t)oracle_between(state, 1, 40),
		       odd = (uint64_t)oracle_between(state, 0, 3);
	const uint64_t first = (uint64_t)oracle_between(state, 0, 2) * b->n / 3;
	const uint64_t runs = list->count / run,
		       turn = runs ? (uint64_t)oracle_between(state, 1, 1000) % runs : 0;

	list->passed = list->beyond = 0;
	for (uint64_t i = 0; i < b->n; i++) {
		const uint64_t at = i / run,
			       place = runs && at < runs ? (at + turn) % runs * run + i % run : i;
		const bool passed = odd == 1 && oracle_between(state, 0, 50) == 0;
		const bool beyond = odd == 2 && may_be_beyond && oracle_between(state, 0, 50) == 0;

		list->entry[i] = passed ? -1 : (int64_t)place;
		list->host[i] = (int64_t)(b->pairs ? (i + first) % b->n : i);
		if (beyond)
			list->entry[i] = oracle_between(state, 0, 1) ? (int64_t)list->count : -5;
		list->passed += passed && !beyond;
		list->beyond += beyond;
	}
}

static void pack_number(struct list *list, uint64_t i, int64_t number)
{
	if (list->blocks.index_bytes == 8)
		memcpy(list->packed + 8 * i, &number, 8);
	else
		memcpy(list->packed + 4 * i, &(int32_t){ (int32_t)number }, 4);
}

static void pack_list(struct list *list, bool out)
{
	for (uint64_t i = 0; i < list->blocks.n; i++) {
		if (!list->blocks.pairs) {
			pack_number(list, i, list->entry[i]);
			continue;
		}
		pack_number(list, 2 * i, out ? list->entry[i] : list->host[i]);
		pack_number(list, 2 * i + 1, out ? list->host[i] : list->entry[i]);
	}
}

static void place_index(struct list *list, const struct bench *bench, enum index_place place)
{
	struct engine_blocks *b = &list->blocks;

	if (place == INDEX_INLINE) {
		b->index = list->packed;
		return;
	}
	b->index_memory = place == INDEX_HOST ? bench->index_host : bench->index_device;
	memcpy(data(b->index_memory), list->packed, b->n * blocks_entry_bytes(b));
}

/* Draws where the blocks are: a step apart on the device; without gaps or evenly spaced on the host, with
 * gaps between some layers. */
static void draw_places(struct list *list, uint64_t *state, bool out)
{
	struct engine_blocks *b = &list->blocks;
	const uint64_t step = list->bytes + 16 * (uint64_t)oracle_between(state, 0, 1);
	const uint64_t gap = 16 * (uint64_t)oracle_between(state, 0, 1);
	const uint64_t host_step = list->bytes * (uint64_t)oracle_between(state, 1, 4) / 2 + list->bytes / 2;
	struct engine_blocks_side *device = out ? &b->src : &b->dst, *host = out ? &b->dst : &b->src;

	b->layers = (uint32_t)oracle_between(state, 1, MOST_LAYERS);
	list->count = MEMORY_BYTES / (b->layers * step);
	list->count = list->count > MOST_ENTRIES ? MOST_ENTRIES : list->count;
	b->n = (uint64_t)oracle_between(state, 1, (int64_t)list->count);
	while (b->n > 1 && b->layers * (b->n * host_step + gap) > MEMORY_BYTES)
		b->n--;
	*device = (struct engine_blocks_side){ .step = step, .layer_step = list->count * step };
	*host = (struct engine_blocks_side){ .step = host_step, .layer_step = b->n * host_step + gap };
	if (oracle_between(state, 0, 2) > 0)
		return;
	for (uint32_t l = 0; l < b->layers; l++) /* puts the last layer first in memory */
		list->layers[l] = (int64_t)(b->layers - 1 - l) * (int64_t)device->layer_step;
	device->layers = list->layers;
}

static void list_draw(struct list *list, const struct bench *bench, uint64_t *state, bool out,
                      enum index_place place)
{
	struct engine_blocks *b = &list->blocks;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;

	list->out = out;
	list->bytes = 16u << oracle_between(state, 0, 9);
	*b = (struct engine_blocks){ .pairs = oracle_between(state, 0, 2) == 0,
		                     .index_bytes = oracle_between(state, 0, 1) ? 8 : 4 };
	b->scatter = !out && !b->pairs;
	draw_places(list, state, out);
	draw_entries(list, state, place != INDEX_INLINE);
	b->limit = b->pairs && !out ? b->n : list->count;
	b->dst_limit = out ? b->n : list->count;
	pack_list(list, out);
	place_index(list, bench, place);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 1, (int64_t[]){ list->bytes / 4 }, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 1, (int64_t[]){ list->bytes / 4 }, NULL, "src", &err);
	work_init_spec(&list->work, &spec, out ? bench->host : bench->device, 0,
	               out ? bench->device : bench->host, 0);
	list->work.job.blocks = b;
}

static uint64_t block_place(const struct engine_blocks_side *side, uint32_t layer, uint64_t block)
{
	return block * side->step + (side->layers ? (uint64_t)side->layers[layer] : layer * side->layer_step);
}

/* Calls a function with the places of each block that is moved. */
static void each_block(const struct list *list,
                       void (*call)(uint64_t dst, uint64_t src, uint32_t bytes, void *arg), void *arg)
{
	const struct engine_blocks *b = &list->blocks;

	for (uint32_t l = 0; l < b->layers; l++)
		for (uint64_t i = 0; i < b->n; i++) {
			const uint64_t device = (uint64_t)list->entry[i], host = (uint64_t)list->host[i];

			if (device >= list->count)
				continue;
			call(block_place(&b->dst, l, list->out ? host : device),
			     block_place(&b->src, l, list->out ? device : host), list->bytes, arg);
		}
}

static void move_expected(uint64_t dst, uint64_t src, uint32_t bytes, void *arg)
{
	memcpy(expected + dst, (const unsigned char *)arg + src, bytes);
}

/* ---- Random lists -------------------------------------------------------------------------------------- */

struct way_row {
	char name[40];
	bool out;
	enum index_place index;
	long seeds; /* at TEST_SHARE 1; other shares run fewer */
};

ParameterizedTestParameters(pack_long, random)
{
	static struct way_row rows[] = {
		{ "out", true, INDEX_INLINE, 2000 },
		{ "in", false, INDEX_INLINE, 2000 },
		{ "out, list on the host", true, INDEX_HOST, 1500 },
		{ "in, list on the host", false, INDEX_HOST, 1500 },
		{ "out, list on the device", true, INDEX_DEVICE, 1500 },
		{ "in, list on the device", false, INDEX_DEVICE, 1500 },
	};
	return cr_make_param_array(struct way_row, rows, sizeof rows / sizeof *rows);
}

/* Draws limits. In half of the cases every launch counts as late, and stretches are then as large as they can
 * be. */
static struct cuda_limits limits_draw(uint64_t *state)
{
	struct cuda_limits limits = random_pack_limits(state);

	limits.scratch_bytes = UINT64_C(32768) << oracle_between(state, 0, 7);
	limits.pack_stretch_bytes = UINT64_C(256) << oracle_between(state, 0, 12);
	limits.pack_alone = oracle_between(state, 0, 1);
	limits.sharing_slack_ns = oracle_between(state, 0, 1) ? 0 : UINT64_C(1000000000);
	return limits;
}

static void run_case(const struct bench *bench, const struct way_row *row, uint64_t seed)
{
	static struct list list;
	struct engine_memory *dst = row->out ? bench->host : bench->device,
			     *src = row->out ? bench->device : bench->host;
	uint64_t state = seed * 3 + row->index;
	size_t i = 0;

	list_draw(&list, bench, &state, row->out, row->index);
	memcpy(expected, data(dst), MEMORY_BYTES);
	each_block(&list, move_expected, data(src));
	n_done = 0;
	engine_submit(engine, bench->stream, &list.work.job);
	wait_done(1);
	cr_assert_eq(list.work.job.status, 0, "%s: seed %lu: %d", row->name, (unsigned long)seed,
	             list.work.job.status);
	while (i < MEMORY_BYTES && data(dst)[i] == expected[i])
		i++;
	cr_assert_eq(i, MEMORY_BYTES, "%s: seed %lu: byte %zu: %lu entries of %u bytes, %u layers", row->name,
	             (unsigned long)seed, i, (unsigned long)list.blocks.n, list.bytes, list.blocks.layers);
	cr_assert_eq(list.blocks.passed, list.passed, "%s: seed %lu", row->name, (unsigned long)seed);
	cr_assert_eq(list.blocks.beyond, list.beyond, "%s: seed %lu", row->name, (unsigned long)seed);
}

ParameterizedTest(struct way_row *row, pack_long, random)
{
	const long seeds = tap_portion(row->seeds);
	struct bench bench;

	for (long seed = 1; seed <= seeds; seed++) {
		uint64_t state = (uint64_t)seed;

		if (seed % CASES_AN_ENGINE == 1) {
			const struct cuda_limits limits = limits_draw(&state);

			bench_open(&bench, &limits);
			fill(bench.host, &state);
			fill(bench.device, &state);
		}
		run_case(&bench, row, (uint64_t)seed);
		if (seed % CASES_AN_ENGINE == 0 || seed == seeds)
			bench_close(&bench);
	}
}

/* ---- Launches ------------------------------------------------------------------------------------------ */

struct launch_row {
	char name[40];
	bool out, is_late;
	unsigned launches;
};

ParameterizedTestParameters(pack_long, launches)
{
	/* The 64 blocks go in stretches of 4, 8, 16, 32 and the remaining 4. Once launches have been late,
	 * a stretch has a quarter of half of the scratch memory, which has room for 16 blocks beside the
	 * list. */
	static struct launch_row rows[] = {
		{ "out", true, false, 5 },
		{ "in", false, false, 5 },
		{ "beside others, out", true, true, 4 },
		{ "beside others, in", false, true, 4 },
	};
	return cr_make_param_array(struct launch_row, rows, sizeof rows / sizeof *rows);
}

enum { BLOCK = 4096, BLOCKS = 64 };

static struct cuda_limits launch_limits(bool is_late)
{
	struct cuda_limits limits = small_limits();

	limits.owner_bytes = limits.scratch_bytes = is_late ? 2 * (4 * 17 * BLOCK + 1024) : 8 << 20;
	limits.pack_alone = false;
	limits.pack_slots = 6;
	limits.pack_threads = 1;
	limits.pack_slot_bytes = BLOCK * 3 / 4;
	limits.pack_run_bytes = 1 << 20; /* larger than a block, so that no thread packs these */
	limits.pack_piece_bytes = 1 << 20;
	limits.pack_stretch_bytes = 4 * BLOCK;
	limits.sharing_slack_ns = is_late ? 0 : UINT64_C(60000000000);
	return limits;
}

/* Makes a list of 64 of 128 blocks, where both sides begin at the offset. */
static void init_evens_at(struct list *list, const struct bench *bench, bool out, uint64_t offset)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[1] = { BLOCK / 4 };
	struct error err;

	list->bytes = BLOCK;
	list->blocks = (struct engine_blocks){ .n = BLOCKS,
		                               .layers = 1,
		                               .scatter = !out,
		                               .index_bytes = 8,
		                               .limit = 2 * BLOCKS,
		                               .index = list->entry,
		                               .dst.step = BLOCK,
		                               .src.step = BLOCK };
	list->out = out;
	list->count = 2 * BLOCKS;
	for (int64_t i = 0; i < BLOCKS; i++) {
		list->entry[i] = 2 * i;
		list->host[i] = i;
	}
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 1, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 1, shape, NULL, "src", &err);
	work_init_spec(&list->work, &spec, out ? bench->host : bench->device, offset,
	               out ? bench->device : bench->host, offset);
	list->work.job.blocks = &list->blocks;
}

static void init_evens(struct list *list, const struct bench *bench, bool out)
{
	init_evens_at(list, bench, out, 0);
}

/* No thread takes part, so the number of launches is exact. */
ParameterizedTest(struct launch_row *row, pack_long, launches)
{
	static struct list list;
	const struct cuda_limits limits = launch_limits(row->is_late);
	uint64_t state = 9;
	struct bench bench;

	bench_open(&bench, &limits);
	fill(bench.host, &state);
	fill(bench.device, &state);
	for (int i = 0; i < 2; i++) { /* the first list finds out whether launches are late */
		init_evens(&list, &bench, row->out);
		n_done = n_launches = 0;
		engine_submit(engine, bench.stream, &list.work.job);
		wait_done(1);
		cr_assert_eq(list.work.job.status, 0, "%s: %d", row->name, list.work.job.status);
	}
	cr_assert_eq(n_launches, row->launches, "%s: %u launches", row->name, n_launches);
	memcpy(expected, data(row->out ? bench.host : bench.device), MEMORY_BYTES);
	each_block(&list, move_expected, data(row->out ? bench.device : bench.host));
	cr_assert_eq(memcmp(expected, data(row->out ? bench.host : bench.device), MEMORY_BYTES), 0, "%s",
	             row->name);
	bench_close(&bench);
}

/* ---- The longest list ---------------------------------------------------------------------------------- */

#define LONGEST       PACKING_MOST_ENTRIES
#define LONGEST_BLOCK 16

static uint64_t word_of(uint64_t block)
{
	return (block + 1) * 0x9e3779b97f4a7c15;
}

/* A few launches move the list and read entries far from its first one. */
Test(pack_long, longest)
{
	static struct list list;
	struct cuda_limits limits = launch_limits(false);
	struct engine_memory *host, *device, *index;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct engine_stream *stream;
	struct error err;

	limits.scratch_bytes = limits.owner_bytes = 64 << 20;
	limits.pack_stretch_bytes = 1 << 20;
	open_engine(&limits);
	count_launches();
	stream = engine_stream_new(engine, &owner);
	host = new_memory(REGION_KIND_MEMFD, LONGEST * LONGEST_BLOCK);
	device = new_memory(REGION_KIND_CUDA_FD, LONGEST * LONGEST_BLOCK);
	index = new_memory(REGION_KIND_CUDA_FD, LONGEST * sizeof(int32_t));
	for (uint64_t i = 0; i < LONGEST; i++) {
		memcpy(data(device) + i * LONGEST_BLOCK, (uint64_t[]){ i, word_of(i) }, LONGEST_BLOCK);
		memcpy(data(index) + 4 * i, &(int32_t){ (int32_t)(i * 7919 % LONGEST) }, 4);
	}
	list.blocks = (struct engine_blocks){ .n = LONGEST,
		                              .layers = 1,
		                              .index_bytes = 4,
		                              .limit = LONGEST,
		                              .index_memory = index,
		                              .dst.step = LONGEST_BLOCK,
		                              .src.step = LONGEST_BLOCK };
	tensor_layout_init(&spec.dst, DTYPE_UINT64, 1, (int64_t[]){ 2 }, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_UINT64, 1, (int64_t[]){ 2 }, NULL, "src", &err);
	work_init_spec(&list.work, &spec, host, 0, device, 0);
	list.work.job.blocks = &list.blocks;
	n_done = n_launches = 0;
	engine_submit(engine, stream, &list.work.job);
	wait_done(1);
	cr_assert_eq(list.work.job.status, 0, "%d", list.work.job.status);
	cr_assert_eq(n_launches, 4, "of 1, 2, 4 and 1 MiB: %u", n_launches);
	for (uint64_t i = 0; i < LONGEST; i++) {
		const uint64_t block = i * 7919 % LONGEST, wanted[] = { block, word_of(block) };

		cr_assert_eq(memcmp(data(host) + i * LONGEST_BLOCK, wanted, LONGEST_BLOCK), 0, "block %lu",
		             (unsigned long)i);
	}
	engine_stream_free(engine, stream);
	engine_unmap(engine, host);
	engine_unmap(engine, device);
	engine_unmap(engine, index);
	close_engine();
}

/* ---- At once ------------------------------------------------------------------------------------------- */

enum { STREAMS = 4 };

/* Each list takes at most half of the scratch memory that is left, so that all of them get some, in both
 * directions. */
Test(pack_long, at_once)
{
	static struct list lists[STREAMS];
	static unsigned char wanted[2][MEMORY_BYTES];
	const struct cuda_limits limits = launch_limits(true);
	struct engine_stream *streams[STREAMS];
	uint64_t state = 13;
	struct bench bench;

	setenv("SOFTGPU_SLOW_US", "100", 1);
	bench_open(&bench, &limits);
	fill(bench.host, &state);
	fill(bench.device, &state);
	memcpy(wanted[0], data(bench.device), MEMORY_BYTES);
	memcpy(wanted[1], data(bench.host), MEMORY_BYTES);
	for (int i = 0; i < STREAMS; i++) {
		const uint64_t offset = (uint64_t)i * 2 * BLOCKS * BLOCK;
		const bool out = i % 2;

		streams[i] = engine_stream_new(engine, &owner);
		init_evens_at(&lists[i], &bench, out, offset);
		memcpy(expected, wanted[out] + offset, MEMORY_BYTES - offset);
		each_block(&lists[i], move_expected, data(out ? bench.device : bench.host) + offset);
		memcpy(wanted[out] + offset, expected, MEMORY_BYTES - offset);
	}
	for (int i = 0; i < STREAMS; i++)
		engine_submit(engine, streams[i], &lists[i].work.job);
	wait_done(STREAMS);
	for (int i = 0; i < STREAMS; i++) {
		cr_assert_eq(lists[i].work.job.status, 0, "%d: %d", i, lists[i].work.job.status);
		engine_stream_free(engine, streams[i]);
	}
	cr_assert_eq(memcmp(wanted[0], data(bench.device), MEMORY_BYTES), 0);
	cr_assert_eq(memcmp(wanted[1], data(bench.host), MEMORY_BYTES), 0);
	bench_close(&bench);
}

/* ---- Cancelled ----------------------------------------------------------------------------------------- */

struct seen {
	const unsigned char *dst, *src;
	size_t whole, none, broken;
};

static void look(uint64_t dst, uint64_t src, uint32_t bytes, void *arg)
{
	struct seen *seen = arg;
	const bool is_moved = memcmp(seen->dst + dst, seen->src + src, bytes) == 0,
		   is_old = memcmp(seen->dst + dst, before + dst, bytes) == 0;

	seen->whole += is_moved;
	seen->none += is_old;
	seen->broken += !is_moved && !is_old;
}

static void expect_whole_blocks(const struct list *list, struct seen *seen, const char *name, int i)
{
	each_block(list, look, seen);
	cr_assert_eq(seen->broken, 0, "%s: %d: %zu whole, %zu not moved, %zu half", name, i, seen->whole,
	             seen->none, seen->broken);
}

ParameterizedTestParameters(pack_long, cancelled)
{
	static struct way_row rows[] = {
		{ "out", true, INDEX_INLINE, 40 },
		{ "in", false, INDEX_INLINE, 40 },
		{ "out, list on the device", true, INDEX_DEVICE, 40 },
	};
	return cr_make_param_array(struct way_row, rows, sizeof rows / sizeof *rows);
}

/* The list may be anywhere on its way when it is cancelled. */
ParameterizedTest(struct way_row *row, pack_long, cancelled)
{
	static struct list list;
	struct cuda_limits limits = launch_limits(false);
	size_t stopped = 0, half_way = 0;
	uint64_t state = 11;
	struct bench bench;

	setenv("SOFTGPU_SLOW_US", "100", 1);
	bench_open(&bench, &limits);
	for (int i = 0; i < row->seeds; i++) {
		struct engine_memory *dst = row->out ? bench.host : bench.device,
				     *src = row->out ? bench.device : bench.host;
		struct seen seen = { .dst = data(dst), .src = data(src) };

		fill(src, &state);
		fill(dst, &state);
		memcpy(before, data(dst), MEMORY_BYTES);
		init_evens(&list, &bench, row->out);
		if (row->index == INDEX_DEVICE) {
			memcpy(data(bench.index_device), list.entry, BLOCKS * sizeof *list.entry);
			list.blocks.index = NULL;
			list.blocks.index_memory = bench.index_device;
		}
		n_done = 0;
		engine_submit(engine, bench.stream, &list.work.job);
		usleep((useconds_t)i * 60);
		engine_stream_cancel(engine, bench.stream);
		wait_done(1);
		const int status = list.work.job.status;
		cr_assert(status == 0 || status == STATUS_CANCELED, "%s: %d: %d", row->name, i, status);
		expect_whole_blocks(&list, &seen, row->name, i);
		cr_assert(status != 0 || seen.none == 0, "%s: %d", row->name, i);
		stopped += status == STATUS_CANCELED;
		half_way += seen.whole > 0 && seen.none > 0;
	}
	cr_assert_gt(stopped, 0, "%s", row->name);
	cr_assert_gt(half_way, 0, "%s", row->name);
	bench_close(&bench);
}
