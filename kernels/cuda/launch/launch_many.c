/* SPDX-License-Identifier: Apache-2.0 */
/* Launches the kernels for many moves, for runs of bytes, and for blocks of a list and their borders. */
#include "launch_many.h"

#include <assert.h>
#include <string.h>

#include "convert.h"
#include "enclosed.h"
#include "kernels/cuda/driver/device.h"
#include "kernels/cuda/strategy/block_plan.h"
#include "kernels/cuda/strategy/planner.h"
#include "kernels/cuda/strategy/tuning.h"
#include "kernels/engine.h"
#include "strided_args.h"

/* Blocks of a multiprocessor that go through runs: enough to hide a trip to memory. */
#define MANY_RUNS_BLOCKS 8

static_assert(sizeof(struct many_args) <= 4096, "more takes longer to launch");

uint32_t many_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	return strategies[tma->strategy]->many_kernel(transform, tma);
}

/* Every move gets what the largest one needs, so that moves of one kernel need not be told apart. */
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

/* Divisors follow the last dimension. */
static void pack(struct strided_args *args)
{
	memmove(&args->dim[args->rank], args->by, args->rank * sizeof *args->by);
}

/* ---- One move ----------------------------------------------------------------------------------------- */

/* args->own, whose move is not packed yet. */
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

static int launch_borders(struct launcher *launcher, CUstream stream, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src, const struct block_list *list,
                          uint64_t items, struct error *err)
{
	const struct tma_route_plan *tma = &plan->tma;
	struct fill_args args;

	border_args_init(&args, transform, tma, dst, src);
	args.list = *list;
	if (tma->strategy != STRATEGY_none) /* the window's launch counts */
		args.list.counts = 0;
	args.list.by_slots = divisor_of(tma->border_tiles);
	args.tiles = tma->border_tiles * items;
	return shape_launch(&(struct shape){ .kernel = by_element(KERNEL_fill_1, tma->border_element),
	                                     .blocks = args.tiles,
	                                     .threads = ROWS_THREADS },
	                    launcher, stream, &args, err);
}

/* ---- Blocks that have kernels of their own --------------------------------------------------------- */

/* Blocks of a multiprocessor, where each takes so much shared memory: more of them for small tiles. */
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

/* Lays the list where the arguments have it, if it is to be enclosed. Returns which of a kernel's three it is
 * for: the one whose list is in memory, or those with room for a short one and for a long one. */
static uint32_t enclose(uint32_t kernel, struct engine_blocks *blocks, const struct block_list *list,
                        void *entries)
{
	if (list->index)
		return kernel;
	enclosed_write(blocks, list->entry_bytes, entries);
	return kernel + (enclosed_is_short(blocks, list->entry_bytes) ? 1 : 2);
}

static int launch_row_blocks(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma,
                             uint64_t dst, uint64_t src, struct engine_blocks *blocks,
                             const struct block_list *list, struct error *err)
{
	const uint64_t run = (uint64_t)tma->dim[0].n, slots = divide_up_u64(run, ROW_BYTES);
	struct blocks_rows_long_args all; /* the entries are written only where there are any */
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
		r = launch_borders(launcher, stream, transform, plan, dst, src, list, items, err);
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
