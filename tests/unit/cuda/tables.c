/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks whose layers lie in memories of their own, on the device and on the host, moved by
 * kernels and by packers. Whole memories are compared; a list within the device takes one launch; and a job
 * under which one of the memories fails ends. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "kernels/host/backing.h"
#include "kernels/transform/layer_table.h"
#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define LAYERS 7
#define BLOCK  4096 /* bytes of float32 [32, 32] */
#define BLOCKS 12
#define STEP   (BLOCK + 64)
#define BYTES  (BLOCKS * STEP + 1024)

/* The layers of one side, each in a memory of its own. */
struct side {
	struct layer_table table;
	struct layer_place places[LAYERS];
	struct engine_memory *memories[LAYERS];
	int64_t layers[LAYERS];
	uint32_t order[LAYERS];
};

/* Makes a side with block 0 of each layer at a multiple of `align` bytes. */
static void side_init(struct side *side, enum region_kind kind, uint64_t align, uint64_t *state)
{
	for (int l = 0; l < LAYERS; l++) {
		struct engine_memory *memory = side->memories[l] = new_memory(kind, BYTES);
		const uint64_t offset = align * (uint64_t)oracle_between(state, 0, (int64_t)(1024 / align));

		for (size_t i = 0; i < BYTES; i++)
			data(memory)[i] = (unsigned char)oracle_random(state);
		side->places[l] =
		    (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                          .base = memory->base,
			                          .offset = offset,
			                          .size = memory->size },
			                  .address = memory->address + offset };
	}
}

static void side_ready(struct side *side)
{
	struct error err;

	side->table = (struct layer_table){ .n = LAYERS,
		                            .places = side->places,
		                            .memories = side->memories,
		                            .noun = "table",
		                            .layers = side->layers,
		                            .order = side->order };
	cr_assert_eq(layer_table_init(&side->table, "places", &err), 0, "%s", err.message);
}

static unsigned char *block_of(const struct side *side, uint32_t l, uint64_t i)
{
	return data(side->memories[l]) + side->places[l].at.offset + i * STEP;
}

static void side_deinit(struct side *side)
{
	for (int l = 0; l < LAYERS; l++)
		engine_unmap(engine, side->memories[l]);
}

struct list {
	struct work work;
	struct engine_blocks blocks;
	int32_t index[BLOCKS];
};

static void list_init(struct list *list, bool transposed, bool scatter, struct side *dst, struct side *src)
{
	work_init(&list->work, 32, transposed, dst->memories[0], src->memories[0]);
	list->work.job.move.dst_offset = dst->places[0].at.offset;
	list->work.job.move.src_offset = src->places[0].at.offset;
	list->blocks = (struct engine_blocks){ .n = BLOCKS,
		                               .layers = LAYERS,
		                               .scatter = scatter,
		                               .index_bytes = 4,
		                               .limit = BLOCKS,
		                               .index = list->index,
		                               .dst.step = STEP,
		                               .src.step = STEP };
	for (int32_t i = 0; i < BLOCKS; i++)
		list->index[i] = (i * 5 + 3) % BLOCKS;
	blocks_use_table(&list->blocks.dst, &dst->table);
	blocks_use_table(&list->blocks.src, &src->table);
	list->work.job.blocks = &list->blocks;
}

static void move_block(unsigned char *dst, const unsigned char *src, bool transposed)
{
	for (int r = 0; r < 32; r++)
		for (int c = 0; c < 32; c++)
			memcpy(dst + 4 * (transposed ? c * 32 + r : r * 32 + c), src + 4 * (r * 32 + c), 4);
}

/* Sets ret to the bytes that each of the destination's memories is to have. */
static void expect(const struct list *list, const struct side *dst, const struct side *src, bool transposed,
                   unsigned char ret[LAYERS][BYTES])
{
	for (uint32_t l = 0; l < LAYERS; l++) {
		memcpy(ret[l], data(dst->memories[l]), BYTES);
		for (uint64_t i = 0; i < BLOCKS; i++) {
			const uint64_t named = (uint64_t)list->index[i];
			const uint64_t to = list->blocks.scatter ? named : i,
				       of = list->blocks.scatter ? i : named;

			move_block(ret[l] + (block_of(dst, l, to) - data(dst->memories[l])),
			           block_of(src, l, of), transposed);
		}
	}
}

struct row {
	char name[32];
	enum region_kind dst, src;
	uint64_t align;
	bool transposed;
	unsigned launches; /* 0: the number depends on the limits, and is not checked */
};

ParameterizedTestParameters(tables, layers_in_memories_of_their_own)
{
	static struct row rows[] = {
		{ "within the device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 16, false, 1 },
		{ "transposed", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, 16, true, 1 },
		{ "not aligned", REGION_KIND_CUDA_IPC, REGION_KIND_CUDA_FD, 4, true, 1 },
		{ "to the device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, 16, false, 0 },
		{ "to the device, transposed", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, 4, true, 0 },
		{ "to the host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 16, false, 0 },
		{ "to the host, transposed", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 8, true, 0 },
		{ "within the host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 16, false, 0 },
		{ "within the host, transposed", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 16, true, 0 },
	};
	return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows);
}

static void run_case(const struct row *row, uint64_t seed)
{
	static unsigned char expected[LAYERS][BYTES];
	static struct side dst, src;
	static struct list list;
	uint64_t state = seed;
	const struct cuda_limits limits = random_pack_limits(&state);
	struct engine_stream *stream;

	open_engine(&limits);
	count_launches();
	stream = engine_stream_new(engine, &owner);
	side_init(&dst, row->dst, row->align, &state);
	side_init(&src, row->src, row->align, &state);
	side_ready(&dst);
	side_ready(&src);
	list_init(&list, row->transposed, seed % 2, &dst, &src);
	expect(&list, &dst, &src, row->transposed, expected);
	n_launches = 0;
	n_done = 0;
	engine_submit(engine, stream, &list.work.job);
	wait_done(1);
	cr_assert_eq(list.work.job.status, 0, "%s: seed %lu: %d", row->name, (unsigned long)seed,
	             list.work.job.status);
	if (row->launches)
		cr_assert_eq(n_launches, row->launches, "%s: %u launches", row->name, n_launches);
	for (uint32_t l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < BYTES; i++)
			cr_assert_eq(data(dst.memories[l])[i], expected[l][i],
			             "%s: seed %lu: layer %u, byte %zu", row->name, (unsigned long)seed, l,
			             i);
	engine_stream_free(engine, stream);
	side_deinit(&dst);
	side_deinit(&src);
	close_engine();
}

ParameterizedTest(struct row *row, tables, layers_in_memories_of_their_own)
{
	const long seeds = tap_portion(60);

	for (long seed = 1; seed <= seeds; seed++)
		run_case(row, (uint64_t)seed);
}

/* ---- Layers that are evenly spaced -------------------------------------------------------------------- */

/* Makes a side with all layers in one memory. */
static void side_even(struct side *side, uint64_t *state)
{
	struct engine_memory *memory = new_memory(REGION_KIND_CUDA_IPC, LAYERS * BYTES);

	for (size_t i = 0; i < LAYERS * BYTES; i++)
		data(memory)[i] = (unsigned char)oracle_random(state);
	for (uint64_t l = 0; l < LAYERS; l++) {
		side->memories[l] = memory;
		side->places[l] =
		    (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                          .base = memory->base,
			                          .offset = l * BYTES,
			                          .size = memory->size },
			                  .address = memory->address + l * BYTES };
	}
	side_ready(side);
	cr_assert(side->table.is_even);
}

/* A tensor map can describe the rows, which are 64 bytes with gaps, and so can describe the step between
 * layers, too. */
Test(tables, evenly_spaced)
{
	static unsigned char expected[LAYERS * BYTES];
	static struct side dst, src;
	static struct list list;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[] = { 16, 16 }, apart[] = { 32, 1 };
	const struct cuda_limits limits = small_limits();
	struct engine_stream *stream;
	uint64_t state = 3;
	struct error err;

	open_engine(&limits);
	count_launches();
	stream = engine_stream_new(engine, &owner);
	side_even(&dst, &state);
	side_even(&src, &state);
	list_init(&list, false, false, &dst, &src);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, apart, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, apart, "src", &err);
	work_init_spec(&list.work, &spec, dst.memories[0], 0, src.memories[0], 0);
	list.work.job.blocks = &list.blocks;
	memcpy(expected, data(dst.memories[0]), sizeof expected);
	for (uint32_t l = 0; l < LAYERS; l++)
		for (uint64_t i = 0; i < BLOCKS; i++)
			for (int r = 0; r < 16; r++)
				memcpy(expected + l * BYTES + i * STEP + r * 128,
				       block_of(&src, l, (uint64_t)list.index[i]) + r * 128, 64);
	n_launches = 0;
	engine_submit(engine, stream, &list.work.job);
	wait_done(1);
	cr_assert_eq(list.work.job.status, 0, "%d", list.work.job.status);
	cr_assert_eq(n_launches, 1);
	cr_assert_eq(list.blocks.family, FAMILY_TILE_COPY, "by maps: %d", list.blocks.family);
	cr_assert_eq(memcmp(data(dst.memories[0]), expected, sizeof expected), 0);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst.memories[0]);
	engine_unmap(engine, src.memories[0]);
	close_engine();
}

/* ---- Memory that fails -------------------------------------------------------------------------------- */

struct hole_row {
	char name[24];
	bool out;
	int layer;
};

ParameterizedTestParameters(tables, hole)
{
	static struct hole_row rows[] = {
		{ "packed, first", false, 0 },
		{ "packed, last", false, LAYERS - 1 },
		{ "unpacked, first", true, 0 },
		{ "unpacked, last", true, LAYERS - 1 },
	};
	return cr_make_param_array(struct hole_row, rows, sizeof rows / sizeof *rows);
}

static struct engine_memory *map_file(int fd)
{
	const struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = fd, .size = BYTES, .writable = true
	};
	struct engine_memory *memory;
	struct error err;

	cr_assert_eq(posix_fallocate(fd, 0, BYTES), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(engine_map(engine, &handle, &memory, &err), 0, "%s", err.message);
	return memory;
}

/* The job ends whichever layer's memory failed, and another one goes on. */
ParameterizedTest(struct hole_row *row, tables, hole)
{
	static unsigned char expected[LAYERS][BYTES];
	static struct side host, device, good;
	static struct list list, beside;
	struct cuda_limits limits;
	struct engine_stream *stream, *other;
	uint64_t state = 7;
	int fd = memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	limits = random_pack_limits(&state);
	limits.scratch_bytes = 1 << 20;
	limits.pack_threads = 2;
	limits.pack_slots = 4;
	limits.pack_slot_bytes = BLOCK * 3 / 2;
	limits.pack_piece_bytes = 1 << 20; /* makes threads pack the blocks */
	limits.pack_stretch_bytes = 8 * BLOCK;
	open_engine(&limits);
	if (!holes_can_watch())
		cr_skip("there is no userfaultfd here");
	stream = engine_stream_new(engine, &owner);
	other = engine_stream_new(engine, &owner);
	side_init(&host, REGION_KIND_MEMFD, 16, &state);
	side_init(&device, REGION_KIND_CUDA_FD, 16, &state);
	side_init(&good, REGION_KIND_CUDA_FD, 16, &state);
	engine_unmap(engine, host.memories[row->layer]);
	host.memories[row->layer] = map_file(fd);
	host.places[row->layer].address =
	    host.memories[row->layer]->address + host.places[row->layer].at.offset;
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * BLOCK, BLOCK), 0);
	side_ready(&host);
	side_ready(&device);
	side_ready(&good);
	list_init(&list, true, row->out, row->out ? &host : &device, row->out ? &device : &host);
	engine_submit(engine, stream, &list.work.job);
	wait_done(1);
	cr_assert_eq(list.work.job.status, STATUS_DEVICE, "%s: %d", row->name, list.work.job.status);
	cr_assert_not(engine->lost, "%s", row->name);

	list_init(&beside, true, false, &good, &device);
	expect(&beside, &good, &device, true, expected);
	engine_submit(engine, other, &beside.work.job);
	wait_done(2);
	cr_assert_eq(beside.work.job.status, 0, "%s: %d", row->name, beside.work.job.status);
	for (uint32_t l = 0; l < LAYERS; l++)
		cr_assert_eq(memcmp(data(good.memories[l]), expected[l], BYTES), 0, "%s", row->name);
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	side_deinit(&host);
	side_deinit(&device);
	side_deinit(&good);
	close(fd);
	close_engine();
}
