/* SPDX-License-Identifier: Apache-2.0 */
/* Divides large blocks into groups, and makes the moves of their passes. */
#include "amax_groups.h"

#include "proto/arithmetic.h"

/* Source of a group: of a last cache, so that the second pass may find there what the first one read. Not
 * measured. */
#define GROUP_BYTES (16 << 20)

static int64_t blocks_of(const struct loop_nest_dim *dim)
{
	return divide_up_i64(dim->n + dim->skew, dim->block);
}

/* The dimensions in which the source's elements are closest come first: a group then has long runs of it. */
static void order_by_source(const struct loop_nest *nest, int *ret)
{
	for (int d = 0; d < nest->rank; d++) {
		int at = d;
		for (; at > 0 && magnitude_i64(nest->dim[ret[at - 1]].src) > magnitude_i64(nest->dim[d].src);
		     at--)
			ret[at] = ret[at - 1];
		ret[at] = d;
	}
}

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest)
{
	int order[TENSOR_MAX_RANK];
	int64_t room = GROUP_BYTES / nest->converted, blocks = AMAX_GROUP_BLOCKS;
	groups->nest = *nest;
	groups->n = 1;
	for (int d = 0; d < nest->rank; d++)
		room = max_i64(room / min_i64(nest->dim[d].block, nest->dim[d].n), 1);
	order_by_source(nest, order);
	for (int i = 0; i < nest->rank; i++) {
		const struct loop_nest_dim *dim = &nest->dim[order[i]];
		int64_t n = blocks_of(dim), have = min_i64(n, min_i64(room, blocks));
		groups->step[order[i]] = have * dim->block;
		groups->n *= (uint64_t)divide_up_i64(n, have);
		room /= have;
		blocks /= have;
	}
}

/* Some indices of a dimension, those of group `number`. */
static void take(struct loop_nest *nest, int d, int64_t step, int64_t number)
{
	struct loop_nest_dim *dim = &nest->dim[d];
	int64_t start = max_i64(number * step - dim->skew, 0);
	int64_t end = min_i64((number + 1) * step - dim->skew, dim->n);
	int64_t block = number * (step / dim->block);
	nest->dst_offset += start * dim->dst;
	nest->src_offset += start * dim->src;
	nest->to_scale_offset += block * dim->to_scale;
	nest->to_inverse_offset += block * dim->to_inverse;
	dim->n = dim->source = end - start;
	dim->skew = number ? 0 : dim->skew;
}

void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret)
{
	struct loop_nest nest = groups->nest;
	int64_t blocks = 1;
	for (int d = nest.rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest.dim[d];
		uint64_t n = (uint64_t)divide_up_i64(blocks_of(dim) * dim->block, groups->step[d]);
		take(&nest, d, groups->step[d], (int64_t)(i % n));
		i /= n;
	}
	move_init(ret, isa, &nest, place);
	ret->pass = pass;
	move_shift(ret, 0, 0); /* its pieces are counted again: their blocks need not be whole */
	ret->magnitude = groups->magnitude;
	for (int d = nest.rank - 1; d >= 0; d--) {
		ret->dim[d].to_magnitude = blocks;
		blocks *= blocks_of(&nest.dim[d]);
	}
	for (int64_t b = 0; b < blocks && pass == AMAX_REDUCE; b++)
		atomic_store_explicit(&groups->magnitude[b], 0, memory_order_relaxed);
}

bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch)
{
	struct amax_groups groups;
	amax_groups_init(&groups, nest);
	for (uint64_t i = 0; i < groups.n; i++)
		for (enum amax_pass pass = AMAX_REDUCE; pass <= AMAX_CONVERT; pass++) {
			struct move move;
			amax_groups_move(&groups, i, pass, isa, place, &move);
			for (int64_t piece = 0; piece < move.pieces; piece++) {
				if (stopped && atomic_load_explicit(stopped, memory_order_relaxed))
					return false;
				move_run(&move, piece, scratch);
			}
		}
	return true;
}
