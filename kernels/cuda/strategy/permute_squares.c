/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles that are moved square by square: which ones can be, and where their slots and rows lie. */
#include "permute_work.h"

#include "proto/arithmetic.h"
#include "tuning.h"

#define CHUNK 16 /* bytes */

/* ---- Runs ---------------------------------------------------------------------------------------------- */

/* How many dimensions of a chain come before one that the other has, too. */
static int own_dims(const struct permute_chain *chain, const struct permute_chain *other)
{
	int n = 0;

	while (n < chain->n && !permute_chain_has(other, chain->dim[n]))
		n++;
	return n;
}

static void end_after(struct permute_chain *chain, int n)
{
	if (n < chain->n)
		chain->split = -1;
	chain->n = n;
}

void permute_separate_runs(struct permute_work *work)
{
	const int dst = own_dims(&work->dst, &work->src);

	if (dst > 0)
		end_after(&work->dst, dst);
	else
		end_after(&work->src, own_dims(&work->src, &work->dst));
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

/* Whether the last tile along a split dimension, which may have fewer of its indices, has whole chunks of
 * what is `step` bytes from index to index. */
static bool ends_whole(const struct permute_split *split, uint64_t step)
{
	return split->n % split->tile * step % CHUNK == 0;
}

bool permute_set_squares(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const uint32_t chunks = (uint32_t)(work->load_run / CHUNK), element = work->nest->element;

	if (args->padded || args->stack_row < args->n_row || args->ragged || work->tile->unaligned_loads)
		return false;
	if (work->load_run != args->rows * (uint64_t)element || args->row_bytes % CHUNK)
		return false;
	if (args->load_by == PERMUTE_BY_SPLIT_SRC && !ends_whole(&args->split_src, args->load_bytes))
		return false;
	if (args->row_split && !ends_whole(&args->split_dst, args->row_unit))
		return false;
	args->by_parts = divisor_of(chunks);
	args->by_chunks = args->by_inner_chunks = divisor_of(args->row_bytes / CHUNK);
	args->pitch = (chunks | 1) * CHUNK;
	args->threads =
	    (uint32_t)divide_up_u64(args->loads * (uint64_t)chunks, SQUARES_BATCH(element) * WARP_THREADS) *
	    WARP_THREADS;
	return args->loads * work->load_run <= SQUARES_TILE_BYTES(element);
}

/* By so many lines a run exceeds those that it would fill, on average: it begins anywhere that is a multiple
 * of `align`. */
static double split_lines(uint64_t align, uint64_t run)
{
	return (double)(LINE - gcd_u64(align, run)) / (double)run;
}

void permute_count_lines(struct permute_work *work)
{
	const struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;
	const struct plan_facts *facts = work->sides->facts;
	const struct permute_split *dst = &args->split_dst, *src = &args->split_src;
	const uint64_t load_align =
	    permute_align(nest, &work->src, permute_src_stride,
	                  work->src.split < 0 ? 0 : (uint64_t)magnitude_i64(src->src) * src->tile,
	                  facts->src_phase + (uint64_t)nest->src_offset, LINE);
	const uint64_t row_align =
	    permute_align(nest, &work->dst, permute_dst_stride,
	                  work->dst.split < 0 ? 0 : (uint64_t)magnitude_i64(dst->dst) * dst->tile,
	                  facts->dst_phase + (uint64_t)nest->dst_offset, LINE);

	work->tile->load_lines = split_lines(load_align, work->load_run);
	work->tile->row_lines = split_lines(row_align, args->row_bytes);
}

void permute_lay_out_squares(struct permute_args *args)
{
	args->stack_pitch = args->loads * args->pitch;
	args->row_notes = args->rows;
	args->rows_at = PERMUTE_SLOTS_AT + args->stack_pitch;
	args->table_at = args->masks_at = args->shared =
	    args->rows_at + (uint32_t)divide_up_u64(args->rows * PERMUTE_SQUARES_NOTE, CHUNK) * CHUNK;
}
