/* SPDX-License-Identifier: Apache-2.0 */
/* `bulk` copies long aligned runs with the unit's plain copies, without a map. */
#include "strategy_launch.h"

#include "explain.h"

#define BULK_ALIGN 128    /* bytes: runs that cross lines are faster by map */
#define BULK_LEAST 2048   /* bytes of a run */
#define BULK_AGAIN 8192   /* of a run that is read for each time that it is written: it stays in the L2 */
#define SMALL_BULK 6000.0 /* bytes of a tile; with fewer, too little is in flight */

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	struct tma_route_plan *tma = &plan->tma;
	uint64_t bits =
	    (facts->dst_phase + (uint64_t)nest->dst_offset) | (facts->src_phase + (uint64_t)nest->src_offset);
	uint64_t run = (uint64_t)nest->dim[nest->rank - 1].n * nest->element;

	if (!nest_has_rows(nest) || !tma_is_whole(nest) || run < BULK_LEAST)
		return false;
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	tma->dim[0].n = (int64_t)run;
	tma->chunk = (uint32_t)divide_up_u64(part_of(run, COPY_TILE_BYTES), 16) * 16;
	tma->tiles = divide_up_u64(run, tma->chunk);
	tma->repeats = 1;
	bits |= run % 16 ? run : 0;
	for (uint32_t d = 1; d < tma->rank; d++) {
		bits |= (uint64_t)tma->dim[d].dst | (uint64_t)tma->dim[d].src;
		if ((tma->dim[d].src == 0 && run < BULK_AGAIN) || tma->dim[d].n > TMA_LONGEST)
			return false;
		tma->tiles *= (uint64_t)tma->dim[d].n;
	}
	if (bits % BULK_ALIGN || tma->tiles > UINT32_MAX)
		return false;
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	plan->tile_rank = 1;
	plan->tile[0] = tma->chunk / nest->element;
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;

	(void)mode;
	return 1.07 + (tma->chunk < SMALL_BULK ? (SMALL_BULK - tma->chunk) / 2000 : 0);
}

static void describe(const struct plan *plan, struct plan_tile *ret)
{
	ret->row_bytes = plan->tma.chunk;
	ret->dst[0] = ret->src[0] = ret->element;
}

#ifdef HAVE_CUDA
int launch_bulk(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma, uint64_t dst,
                uint64_t src, struct error *err)
{
	struct bulk_copy_args args = {
		.dst = dst,
		.src = src,
		.run = (uint64_t)tma->dim[0].n,
		.chunk = tma->chunk,
		.chunks = (uint32_t)(((uint64_t)tma->dim[0].n + tma->chunk - 1) / tma->chunk),
		.tiles = tma->tiles,
		.rank = tma->rank - 1,
	};

	for (uint32_t d = 1; d < tma->rank; d++) {
		args.n[d - 1] = (uint32_t)tma->dim[d].n;
		args.dst_stride[d - 1] = tma->dim[d].dst;
		args.src_stride[d - 1] = tma->dim[d].src;
	}
	return shape_launch(&(struct shape){ .kernel = KERNEL_bulk_copy,
	                                     .blocks = tma->tiles,
	                                     .threads = WARP_THREADS,
	                                     .shared = RING_BYTES(COPY_STAGES, args.chunk),
	                                     .a_multiprocessor = COPY_BLOCKS },
	                    launcher, stream, &args, err);
}

static int launch(const struct strategy_launch *launch, struct error *err)
{
	return launch_bulk(launch->launcher, launch->stream, &launch->plan->tma, strategy_dst(launch),
	                   strategy_src(launch), err);
}
#endif

const struct strategy strategy_bulk = {
	.name = "bulk",
	.family = FAMILY_TILE_COPY,
	.turn = STRATEGY_FIRST,
	.probe = probe,
	.cost = cost,
	.describe = describe,
	.launch = WITH_CUDA(launch),
};
