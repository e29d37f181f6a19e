/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the arguments of the kernels without a tensor map, and chooses the shape of their launches. */
#include "strided_args.h"

#include <string.h>

#include "kernels/cuda/strategy/strategy.h"
#include "kernels/cuda/strategy/tuning.h"

#define LINE 128 /* bytes */

/* Rows of a tile, their slots in shared memory, and what is left of each beside its whole chunks. */
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

void strided_args_init(struct strided_args *ret, const struct transform *transform,
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

uint32_t strided_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	return strategies[tma->strategy]->slots(tma, args);
}

struct shape strided_shape_of(const struct transform *transform, const struct tma_route_plan *tma,
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

void border_args_init(struct fill_args *ret, const struct transform *transform,
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
