/* The kernels that take many_move, runs, and borders of many blocks. */
#include "launch_many.h"

#include <assert.h>
#include <string.h>

#include "device.h"
#include "strided_args.h"
#include "tuning.h"

/* Blocks of a multiprocessor: as many_tiles is bounded, and enough runs to hide a trip to memory. */
#define MANY_TILES_BLOCKS 3
#define MANY_RUNS_BLOCKS  8

static_assert(sizeof(struct many_args) <= 4096, "the most that every driver takes");

uint32_t many_kernel(const struct transform *transform, const struct plan *plan)
{
	const struct tma_plan *tma = &plan->tma;

	switch (tma->route) {
	case TMA_ROUTE_SHORT:
		return by_element(KERNEL_many_short_1, tma->element);
	case TMA_ROUTE_TILES:
		return by_element(KERNEL_many_tiles_1, tma->element);
	case TMA_ROUTE_GATHER:
		return by_element(KERNEL_many_gather_1, tma->element);
	default:
		assert(tma->route == TMA_ROUTE_ROWS);
		return by_element(transform->mode == PAD_MODE_CONSTANT ? KERNEL_many_rows_1
		                                                       : KERNEL_many_modes_1,
		                  tma->element);
	}
}

/* All routes take what the largest does, so that moves of one kernel need not be told apart. */
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

static uint32_t blocks_of(const struct launcher *launcher, const struct tma_plan *tma,
                          const struct strided_args *args)
{
	const uint32_t slots = strided_slots(tma, args);
	const struct shape shape = { .blocks = (args->slots + slots - 1) / slots,
		                     .a_multiprocessor =
		                         tma->route == TMA_ROUTE_TILES ? MANY_TILES_BLOCKS : 0 };

	return (uint32_t)shape_blocks(&shape, launcher->device);
}

/* Divisors follow the last dimension. */
static void pack(struct strided_args *args)
{
	memmove(&args->dim[args->rank], args->by, args->rank * sizeof *args->by);
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

static int launch_window(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct plan *plan, uint64_t dst, uint64_t src, const struct block_list *list,
                         uint64_t items, struct error *err)
{
	const struct tma_plan *tma = &plan->tma;
	struct many_args args = { .n = 1, .own.list = *list };
	struct strided_args *move = &args.own.move;

	strided_args_init(move, transform, tma, dst + (uint64_t)tma->dst_offset,
	                  src + (uint64_t)tma->src_offset);
	args.own.list.by_slots = divisor_of(move->slots);
	move->slots *= items;
	const struct shape shape = { .kernel = many_kernel(transform, plan),
		                     .blocks = blocks_of(launcher, tma, move),
		                     .threads = ROWS_THREADS };

	pack(move);
	return shape_launch(&(struct shape){ .kernel = shape.kernel,
	                                     .blocks = shape.blocks,
	                                     .threads = shape.threads,
	                                     .shared = shared_bytes(shape.kernel) },
	                    launcher->device, stream, &args, err);
}

static int launch_borders(struct launcher *launcher, CUstream stream, const struct transform *transform,
                          const struct plan *plan, uint64_t dst, uint64_t src, const struct block_list *list,
                          uint64_t items, struct error *err)
{
	const struct tma_plan *tma = &plan->tma;
	struct blocks_fill_args args = { .list = *list, .tiles = tma->border_tiles * items };

	if (tma->route != TMA_ROUTE_NONE) /* the window's launch counts */
		args.list.counts = 0;
	args.list.by_slots = divisor_of(tma->border_tiles);
	border_args_init(&args.move, transform, tma, dst, src);
	return shape_launch(&(struct shape){ .kernel = by_element(KERNEL_blocks_fill_1, tma->border_element),
	                                     .blocks = args.tiles,
	                                     .threads = ROWS_THREADS },
	                    launcher->device, stream, &args, err);
}

int launch_blocks(struct launcher *launcher, CUstream stream, const struct transform *transform,
                  const struct plan *plan, uint64_t dst, uint64_t src, const struct block_list *list,
                  uint64_t layers, struct error *err)
{
	const uint64_t items = list->by_n.n * layers;
	int r = 0;

	if (plan->tma.route != TMA_ROUTE_NONE)
		r = launch_window(launcher, stream, transform, plan, dst, src, list, items, err);
	if (r == 0 && plan->tma.border_rank > 0)
		r = launch_borders(launcher, stream, transform, plan, dst, src, list, items, err);
	return r;
}

/* ---- By a table -----------------------------------------------------------------------------------------
 */

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
	const struct tma_plan *tma = &plan->tma;
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
	struct many_args args = { .n = n, .moves = entries, .which = which, .first = first };

	return shape_launch(
	    &(struct shape){
		.kernel = kernel, .blocks = blocks, .threads = ROWS_THREADS, .shared = shared_bytes(kernel) },
	    launcher->device, stream, &args, err);
}

int launch_runs(struct launcher *launcher, CUstream stream, uint64_t runs, uint32_t n, uint64_t parts,
                struct error *err)
{
	struct runs_args args = { .runs = runs, .parts = parts, .n = n };

	return shape_launch(&(struct shape){ .kernel = KERNEL_many_runs,
	                                     .blocks = (parts + ROWS_THREADS / 32 - 1) / (ROWS_THREADS / 32),
	                                     .threads = ROWS_THREADS,
	                                     .a_multiprocessor = MANY_RUNS_BLOCKS },
	                    launcher->device, stream, &args, err);
}
