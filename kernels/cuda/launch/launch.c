/* SPDX-License-Identifier: Apache-2.0 */
/* Determines the number of thread blocks and the attributes of a launch. Launches transforms through their
 * plans' strategies, many moves at once, runs of bytes, and the blocks of a list with their borders. */
#include "launch.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "kernels/cuda/strategy/strategy.h"
#include "kernels/cuda/strategy/tuning.h"

/* A multiprocessor of compute capability 9.0 or later has 228 KiB of shared memory, of which every thread
 * block reserves 1 KiB. The kernels assert the sizes on their side. */
#define SHARED_BYTES       (228 * 1024)
#define SHARED_BYTES_OWN   1024
#define CHECK_SHARED(n, b) static_assert((n) * ((b) + SHARED_BYTES_OWN) <= SHARED_BYTES, "as many blocks fit")

#define TRANSPOSE_SHARED \
	(RING_BYTES(TRANSPOSE_STAGES, TRANSPOSE_TILE_BYTES) + TRANSPOSE_STAGES * TRANSPOSE_NOTE_BYTES)

CHECK_SHARED(TRANSPOSE_BLOCKS, TRANSPOSE_SHARED);
CHECK_SHARED(COPY_BLOCKS, RING_BYTES(COPY_STAGES, COPY_TILE_BYTES) + COPY_STAGES * PAD_NOTE_BYTES);
static_assert(TRANSPOSE_NOTE_BYTES % 8 == 0 && PAD_NOTE_BYTES % 8 == 0, "notes lie behind barriers, aligned");

/* ---- Shapes ------------------------------------------------------------------------------------------- */

/* Returns the number of thread blocks of a launch that may occupy the whole device. */
static uint64_t shape_blocks(const struct shape *shape, const struct device *device)
{
	const uint64_t most =
	    shape->a_multiprocessor ? (uint64_t)shape->a_multiprocessor * device->processors : INT32_MAX;

	return shape->blocks < most ? shape->blocks : most;
}

bool launcher_is_bounded(const struct launcher *launcher)
{
	return launcher->multiprocessors > 0 && launcher->multiprocessors < launcher->device->processors;
}

/* Returns how many thread blocks a multiprocessor holds at once in a launch that may occupy only some
 * multiprocessors. */
static uint64_t resident_blocks(const struct shape *shape, const struct launcher *launcher)
{
	int n = 0;

	if (shape->a_multiprocessor)
		return shape->a_multiprocessor;
	driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, launcher->device->function[shape->kernel],
	                                                   (int)shape->threads, shape->shared);
	return n <= 0 ? 1 : n < BOUNDED_BLOCKS ? (uint64_t)n : BOUNDED_BLOCKS;
}

/* Returns the number of thread blocks of a launch that may occupy only some multiprocessors. Each block then
 * moves several tiles. */
static uint64_t bounded_blocks(const struct shape *shape, const struct launcher *launcher)
{
	const uint64_t blocks = shape_blocks(shape, launcher->device);
	const uint64_t most = launcher->multiprocessors * resident_blocks(shape, launcher);

	return blocks < most ? blocks : most;
}

/* Returns the attribute that lets a kernel start while the kernel before it on the stream ends. This is safe
 * because each kernel waits before it touches global memory (device/tma.cuh). The attribute matters only
 * between two consecutive kernels: a copy, an event or a signal between them waits for the first kernel to
 * complete, and the second kernel waits for it. */
static CUlaunchAttribute start_early(void)
{
	return (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		                    .value.programmaticStreamSerializationAllowed = 1 };
}

/* Returns the attribute by which data of the launcher's passing memory is the first to be evicted from the
 * L2. The window must be smaller than the maximum that the device reports: with the maximum it has no effect
 * (tests/bench/EXPERIMENTS.md). */
static CUlaunchAttribute let_pass(const struct launcher *launcher)
{
	const uint64_t most = launcher->device->window_bytes / 2, bytes = launcher->passing.bytes;

	return (CUlaunchAttribute){
		.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
		.value.accessPolicyWindow = { .base_ptr = (void *)launcher->passing.start,
		                              .num_bytes = bytes < most ? bytes : most,
		                              .hitRatio = 1,
		                              .hitProp = CU_ACCESS_PROPERTY_STREAMING,
		                              .missProp = CU_ACCESS_PROPERTY_NORMAL },
	};
}

int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err)
{
	const bool has_passing = launcher->passing.bytes > 0 && launcher->device->window_bytes > 0;
	CUlaunchAttribute attributes[] = { start_early(), let_pass(launcher) };

	const uint64_t blocks = launcher_is_bounded(launcher) ? bounded_blocks(shape, launcher)
	                                                      : shape_blocks(shape, launcher->device);
	CUlaunchConfig config = {
		.gridDimX = (unsigned)blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = shape->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shape->shared,
		.hStream = stream,
		.attrs = attributes,
		.numAttrs = has_passing ? 2 : 1,
	};
	void *params[] = { args };

	return driver_call(err, cuLaunchKernelEx,
	                   (&config, launcher->device->function[shape->kernel], params, NULL));
}

/* ---- Arguments ----------------------------------------------------------------------------------------- */

#define LINE 128 /* bytes */

/* SHORT: sets the pitch of rows in shared memory, the rows of a tile, and the maximum number of elements of a
 * row outside its whole chunks. */
static void set_short_rows(struct strided_args *args, uint32_t element)
{
	const struct strided_dim *inner = &args->dim[0];
	const uint64_t bytes = (uint64_t)inner->source * element, rest = 16 / element - 1;

	args->pitch = ((uint32_t)bytes + 30 + 15) & ~15u;
	args->rows = SHORT_TILE_BYTES / args->pitch;
	if (args->rows > ROWS_THREADS)
		args->rows = ROWS_THREADS;
	args->follow =
	    args->rank > 1 && args->dim[1].src >= (int64_t)bytes && args->dim[1].src <= args->pitch;
	args->by_rest = divisor_of((uint64_t)(inner->n - inner->source) + 2 * rest);
}

/* Sets *ret to the arguments of a kernel without a tensor map. dst and src are the addresses at which the
 * window begins. */
static void strided_args_init(struct strided_args *ret, const struct transform *transform,
                              const struct tma_route_plan *tma, uint64_t dst, uint64_t src)
{
	*ret = (struct strided_args){
		.dst = dst,
		.src = src,
		.low = src,
		.high = src + tma->element,
		.slots = tma->tiles,
		.run_bytes = tma->element,
		.rank = tma->rank,
		.run = tma->run,
		.whole = tma->whole,
		.mode = transform->mode,
		.by_slots = divisor_of(tma->slots),
	};
	tma_fill_pattern(transform, dst, ret->pattern);
	memcpy(ret->dim, tma->dim, tma->rank * sizeof *ret->dim);
	for (uint32_t d = 0; d < tma->rank; d++) {
		const int64_t reach = (tma->dim[d].source - 1) * tma->dim[d].src;

		*(reach < 0 ? &ret->low : &ret->high) += (uint64_t)reach;
		ret->run_bytes *= d < tma->run ? (uint64_t)tma->dim[d].n : 1;
		ret->by[d] = divisor_of(tma->strategy == STRATEGY_tiles && d < 2 ? tma->grid[d]
		                                                                 : (uint64_t)tma->dim[d].n);
	}
	if (tma->strategy == STRATEGY_short)
		set_short_rows(ret, tma->element);
	if (tma->strategy == STRATEGY_elements)
		ret->lead = (uint32_t)(dst % LINE) / tma->element;
}

/* Returns how many of the strategy's slots a thread block takes at a time. */
static uint32_t strided_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	return strategies[tma->strategy]->slots(tma, args);
}

/* Returns the shape of the launch of a single move. */
static struct shape strided_shape_of(const struct transform *transform, const struct tma_route_plan *tma,
                                     const struct strided_args *args)
{
	const uint32_t slots = strided_slots(tma, args);
	const uint64_t numbers = args->slots + args->lead;

	return (struct shape){ .kernel = strategies[tma->strategy]->kernel(transform, tma),
		               .blocks = (numbers + slots - 1) / slots,
		               .threads = ROWS_THREADS,
		               .shared =
		                   tma->strategy == STRATEGY_channels ? strided_channel_bytes(tma->run) : 0 };
}

/* Sets *ret to the arguments for a plan's border. dst and src are as in launch_transform. */
static void border_args_init(struct fill_args *ret, const struct transform *transform,
                             const struct tma_route_plan *tma, uint64_t dst, uint64_t src)
{
	*ret = (struct fill_args){
		.dst = dst + (uint64_t)tma->border_dst_offset,
		.src = src + (uint64_t)tma->border_src_offset,
		.tiles = tma->border_tiles,
		.rank = tma->border_rank,
		.mode = transform->mode,
	};
	tma_fill_pattern(transform, dst, ret->pattern);
	memcpy(ret->dim, tma->border, tma->border_rank * sizeof *ret->dim);
}

/* ---- Transforms ---------------------------------------------------------------------------------------- */

int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct strided_args args;

	strided_args_init(&args, transform, tma, dst, src);
	const struct shape shape = strided_shape_of(transform, tma, &args);
	return shape_launch(&shape, launcher, stream, &args, err);
}

/* Launches the fill of a plan's border. list is NULL unless blocks of a list are moved; items is then the
 * number of entries times layers, and otherwise 1. */
static int launch_border(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_route_plan *tma, uint64_t dst, uint64_t src,
                         const struct block_list *list, uint64_t items, struct error *err)
{
	struct fill_args args;

	border_args_init(&args, transform, tma, dst, src);
	if (list) {
		args.list = *list;
		if (tma->strategy != STRATEGY_none) /* the window's launch counts the entries already */
			args.list.counts = 0;
		args.list.by_slots = divisor_of(tma->border_tiles);
		args.tiles *= items;
	}
	return shape_launch(&(struct shape){ .kernel = by_element(KERNEL_fill_1, tma->border_element),
	                                     .blocks = args.tiles,
	                                     .threads = ROWS_THREADS },
	                    launcher, stream, &args, err);
}

int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err)
{
	const struct strategy_launch launch = { launcher, stream, transform, plan, dst, src, operands };
	int r = strategy_of(plan)->launch(&launch, err);

	if (r == 0 && plan->tma.border_rank > 0)
		r = launch_border(launcher, stream, transform, &plan->tma, dst, src, NULL, 1, err);
	return r;
}

/* ---- Enclosed lists ------------------------------------------------------------------------------------ */

#define GROUP 32

static_assert(ENCLOSED_SHORT % (4 * GROUP) == 0 && ENCLOSED_LONG % (4 * GROUP) == 0, "groups are whole");

uint32_t enclosed_entry_bytes(const struct plan *plan, const struct engine_blocks *blocks)
{
	const bool for_lists = plan->tma.strategy == STRATEGY_memcpy || plan->tma.strategy == STRATEGY_copy;
	const uint32_t bytes = blocks->limit <= UINT16_MAX ? 2 : 4;

	if (!for_lists || !blocks->index || blocks->pairs || blocks->dst.layers || blocks->src.layers ||
	    blocks->limit > INT32_MAX || blocks->n > ENCLOSED_LONG / bytes)
		return 0;
	return bytes;
}

bool enclosed_is_short(const struct engine_blocks *blocks, uint32_t entry_bytes)
{
	return blocks->n <= ENCLOSED_SHORT / entry_bytes;
}

/* Reads a group of entries. An entry that does not fit in 32 bits becomes INT32_MIN, which names no block
 * either. */
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
	uint32_t bits = 0; /* A negative entry or one beyond the last block sets the highest bit. */

	for (int i = 0; i < GROUP; i++)
		bits |= (uint32_t)group[i] | (uint32_t)(limit - 1 - (group[i] & INT32_MAX));
	return bits <= INT32_MAX;
}

/* Adds the entries that are -1 to blocks->passed and the others that name no block to blocks->beyond, and
 * sets both kinds to -1. */
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

/* ---- Many moves ---------------------------------------------------------------------------------------- */

/* The maximum thread blocks of a multiprocessor for runs; enough to hide the latency of memory. */
#define MANY_RUNS_BLOCKS 8

static_assert(sizeof(struct many_args) <= 4096, "more takes longer to launch");

uint32_t many_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	return strategies[tma->strategy]->many_kernel(transform, tma);
}

/* Returns the bytes of shared memory for a kernel of many moves. Every move gets as many as the largest one
 * needs, so that moves of one kernel can share a launch. */
static uint32_t shared_bytes(uint32_t kernel)
{
	if (kernel >= KERNEL_many_tiles_1 && kernel <= KERNEL_many_tiles_16) {
		static const uint32_t tile[] = { TILES_BYTES(1), TILES_BYTES(2), TILES_BYTES(4),
			                         TILES_BYTES(8), TILES_BYTES(16) };

		return MANY_SHARED + tile[kernel - KERNEL_many_tiles_1];
	}
	if (kernel >= KERNEL_many_short_1 && kernel <= KERNEL_many_short_16)
		return MANY_SHARED + SHORT_TILE_BYTES + ROWS_THREADS * SHORT_NOTE_BYTES + 16;
	return MANY_SHARED;
}

static uint32_t blocks_of(const struct launcher *launcher, const struct tma_route_plan *tma,
                          const struct strided_args *args)
{
	const uint32_t slots = strided_slots(tma, args);
	const struct shape shape = { .blocks = (args->slots + slots - 1) / slots,
		                     .a_multiprocessor = tma->strategy == STRATEGY_tiles ? TILES_BLOCKS : 0 };

	return (uint32_t)shape_blocks(&shape, launcher->device);
}

/* Moves the divisors to the place behind the last dimension, as struct many_move requires. */
static void pack(struct strided_args *args)
{
	memmove(&args->dim[args->rank], args->by, args->rank * sizeof *args->by);
}

/* ---- One move ----------------------------------------------------------------------------------------- */

/* Launches args->own, whose move is not packed yet. */
static int launch_own(struct launcher *launcher, CUstream stream, const struct transform *transform,
                      const struct tma_route_plan *tma, struct many_args *args, struct error *err)
{
	const uint32_t kernel = many_kernel(transform, tma);
	const struct shape shape = { .kernel = kernel,
		                     .blocks = blocks_of(launcher, tma, &args->own.move),
		                     .threads = ROWS_THREADS,
		                     .shared = shared_bytes(kernel) };

	args->blocks = (uint32_t)shape.blocks;
	pack(&args->own.move);
	return shape_launch(&shape, launcher, stream, args, err);
}

int launch_one(struct launcher *launcher, CUstream stream, const struct transform *transform,
               const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct many_args args = { .n = 1 };

	strided_args_init(&args.own.move, transform, tma, dst, src);
	return launch_own(launcher, stream, transform, tma, &args, err);
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

static int launch_window(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct plan *plan, uint64_t dst, uint64_t src, const struct block_list *list,
                         uint64_t items, struct error *err)
{
	const struct tma_route_plan *tma = &plan->tma;
	struct many_args args = { .n = 1, .own.list = *list };
	struct strided_args *move = &args.own.move;

	strided_args_init(move, transform, tma, dst + (uint64_t)tma->dst_offset,
	                  src + (uint64_t)tma->src_offset);
	args.own.list.by_slots = divisor_of(move->slots);
	move->slots *= items;
	return launch_own(launcher, stream, transform, tma, &args, err);
}

/* ---- Blocks that have kernels of their own --------------------------------------------------------- */

/* Returns the number of thread blocks of a multiprocessor if each takes this much shared memory. Small tiles
 * get more. */
static uint32_t a_multiprocessor(uint32_t shared)
{
	const uint32_t fit = COPY_SHARED_BYTES / shared;

	return fit < COPY_BLOCKS ? COPY_BLOCKS : fit > COPY_MOST_BLOCKS ? COPY_MOST_BLOCKS : fit;
}

#define CHECK_ENCLOSED(kernel)                                           \
	static_assert(KERNEL_##kernel##_short == KERNEL_##kernel + 1 &&  \
	                  KERNEL_##kernel##_long == KERNEL_##kernel + 2, \
	              "one after the other");                            \
	static_assert(offsetof(struct kernel##_short_args, entries) ==   \
	                  offsetof(struct kernel##_long_args, entries),  \
	              "the same place");                                 \
	static_assert(sizeof(struct kernel##_short_args) <= 4096, "more takes longer to launch")

CHECK_ENCLOSED(blocks_rows);
CHECK_ENCLOSED(blocks_copy);

/* Returns which of three consecutive kernels to launch: `kernel` for a list in memory, or one of the next
 * two for a short or a long enclosed list. Writes the entries to the kernel's arguments if the list is
 * enclosed. */
static uint32_t enclose(uint32_t kernel, struct engine_blocks *blocks, const struct block_list *list,
                        void *entries)
{
	if (list->index)
		return kernel;
	enclosed_write(blocks, list->number_bytes, entries);
	return kernel + (enclosed_is_short(blocks, list->number_bytes) ? 1 : 2);
}

static int launch_row_blocks(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma,
                             uint64_t dst, uint64_t src, struct engine_blocks *blocks,
                             const struct block_list *list, struct error *err)
{
	const uint64_t run = (uint64_t)tma->dim[0].n, slots = divide_up_u64(run, ROW_BYTES);
	struct blocks_rows_long_args all; /* the entries stay uninitialized if the list is in memory */
	struct blocks_rows_args *args = &all.blocks;

	*args = (struct blocks_rows_args){ .list = *list,
		                           .dst = dst + (uint64_t)tma->dst_offset,
		                           .src = src + (uint64_t)tma->src_offset,
		                           .run = run,
		                           .slots = slots * blocks->n * blocks->layers };
	args->list.by_slots = divisor_of(slots);
	return shape_launch(&(struct shape){ .kernel = enclose(KERNEL_blocks_rows, blocks, list, all.entries),
	                                     .blocks = divide_up_u64(args->slots, ROWS_THREADS / 32),
	                                     .threads = ROWS_THREADS },
	                    launcher, stream, args, err);
}

static int launch_copy_blocks(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma,
                              uint64_t dst, uint64_t src, struct engine_blocks *blocks,
                              const struct block_list *list, struct error *err)
{
	struct blocks_copy_long_args all;
	struct blocks_copy_args *args = &all.blocks;
	struct tma_route_plan wide = *tma;
	uint32_t shared;
	int r;

	if (!block_plan_map(&tma->load, blocks, BLOCK_SRC, &wide.load) ||
	    !block_plan_map(&tma->store, blocks, BLOCK_DST, &wide.store))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "the blocks cannot be described by a tensor map");
	wide.rank = wide.load.rank;
	wide.tiles = tma->tiles * blocks->n * blocks->layers;
	*args = (struct blocks_copy_args){ .list = *list, .block_dim = tma->rank };
	args->list.by_slots = divisor_of(tma->tiles);
	r = tile_copy_args_init(&args->copy, launcher, &wide, dst + (uint64_t)tma->dst_offset,
	                        src + (uint64_t)tma->src_offset, err);
	if (r < 0)
		return r;
	shared = RING_BYTES(COPY_STAGES, args->copy.tile_bytes) + COPY_STAGES * COPY_NOTE_BYTES;
	return shape_launch(&(struct shape){ .kernel = enclose(KERNEL_blocks_copy, blocks, list, all.entries),
	                                     .blocks = wide.tiles,
	                                     .threads = WARP_THREADS,
	                                     .shared = shared,
	                                     .a_multiprocessor = a_multiprocessor(shared) },
	                    launcher, stream, args, err);
}

int launch_blocks(struct launcher *launcher, CUstream stream, const struct transform *transform,
                  const struct plan *plan, uint64_t dst, uint64_t src,
                  const struct convert_operands *operands, struct engine_blocks *blocks,
                  const struct block_list *list, struct error *err)
{
	const uint64_t items = blocks->n * blocks->layers;
	int r = 0;

	if (plan->tma.strategy == STRATEGY_memcpy)
		return launch_row_blocks(launcher, stream, &plan->tma, dst, src, blocks, list, err);
	if (plan->tma.strategy == STRATEGY_copy)
		return launch_copy_blocks(launcher, stream, &plan->tma, dst, src, blocks, list, err);
	if (plan->tma.strategy == STRATEGY_convert)
		r = launch_convert(launcher, stream, transform, plan, dst, src, operands, blocks, list, err);
	else if (plan->tma.strategy != STRATEGY_none)
		r = launch_window(launcher, stream, transform, plan, dst, src, list, items, err);
	if (r == 0 && plan->tma.border_rank > 0)
		r = launch_border(launcher, stream, transform, &plan->tma, dst, src, list, items, err);
	return r;
}

/* ---- By a table ------------------------------------------------------------------------------------ */

size_t many_entry_bytes(const struct plan *plan)
{
	const size_t rank = plan->tma.rank;

	return (offsetof(struct many_move, move.dim) +
	        rank * (sizeof(struct strided_dim) + sizeof(struct divisor)) + 15) &
	       ~(size_t)15;
}

uint32_t many_entry_write(void *entry, const struct launcher *launcher, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src)
{
	const struct tma_route_plan *tma = &plan->tma;
	struct many_move move = { .list.by_slots.n = 0 };

	strided_args_init(&move.move, transform, tma, dst + (uint64_t)tma->dst_offset,
	                  src + (uint64_t)tma->src_offset);
	const uint32_t blocks = blocks_of(launcher, tma, &move.move);

	pack(&move.move);
	memcpy(entry, &move, many_entry_bytes(plan));
	return blocks;
}

int launch_many(struct launcher *launcher, CUstream stream, uint32_t kernel, uint32_t n, uint64_t entries,
                uint64_t which, uint64_t first, uint64_t blocks, struct error *err)
{
	struct many_args args = {
		.n = n, .blocks = (uint32_t)blocks, .moves = entries, .which = which, .first = first
	};

	return shape_launch(
	    &(struct shape){
		.kernel = kernel, .blocks = blocks, .threads = ROWS_THREADS, .shared = shared_bytes(kernel) },
	    launcher, stream, &args, err);
}

uint64_t runs_lay(struct run_entry *entries, uint32_t n)
{
	uint64_t parts = 0;

	for (uint32_t i = 0; i < n; i++) {
		entries[i].first = parts;
		parts += divide_up_u64(entries[i].bytes, ROW_BYTES);
	}
	return parts;
}

int launch_runs(struct launcher *launcher, CUstream stream, uint64_t entries, uint32_t n, uint64_t parts,
                struct error *err)
{
	struct runs_args args = {
		.runs = entries, .parts = parts, .scale = divide_up_u64((uint64_t)n << 32, parts), .n = n
	};

	return shape_launch(&(struct shape){ .kernel = KERNEL_many_runs,
	                                     .blocks = divide_up_u64(parts, ROWS_THREADS / 32),
	                                     .threads = ROWS_THREADS,
	                                     .a_multiprocessor = MANY_RUNS_BLOCKS },
	                    launcher, stream, &args, err);
}
