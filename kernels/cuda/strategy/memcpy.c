/* SPDX-License-Identifier: Apache-2.0 */
/* `memcpy` moves what is one run on both sides: by the driver's own copy, or as rows by threads. For a list
 * of blocks it is the kernel blocks_rows. */
#include "strategy_launch.h"

#include "kernels/nest/nest_family.h"

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct loop_nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	const int64_t element = nest->element;
	struct tma_route_plan *tma = &plan->tma;

	if (nest->rank > 1 ||
	    (nest->rank == 1 && (inner->dst != element || inner->src != element || !tma_is_whole(nest)))) {
		loop_nest_explain_memcpy(nest, &plan->rules);
		return false;
	}
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->dim[0].n = nest->rank ? inner->n * element : element;
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)plan;
	(void)mode;
	return 1;
}

#ifdef HAVE_CUDA
/* The driver's own copy is used, except where the addresses do not differ by whole words: there it has two
 * thirds of the speed of rows by threads (tests/bench/EXPERIMENTS.md). It is also a kernel that may occupy
 * the whole device: a launch that may not goes by the unit, or by rows. */
static int launch(const struct strategy_launch *launch, struct error *err)
{
	struct launcher *const launcher = launch->launcher;
	const uint64_t dst = strategy_dst(launch), src = strategy_src(launch);
	const int64_t bytes = launch->plan->tma.dim[0].n;
	const uint64_t parts = divide_up_u64((uint64_t)bytes, ROW_BYTES);
	const struct tma_route_plan rows = {
		.strategy = STRATEGY_rows,
		.element = 1,
		.rank = 1,
		.dim = { { .n = bytes, .dst = 1, .src = 1, .source = bytes } },
		.slots = parts,
		.tiles = parts,
	};

	const struct tma_route_plan bulk = {
		.rank = 1,
		.dim = { { .n = bytes } },
		.chunk = COPY_TILE_BYTES,
		.tiles = divide_up_u64((uint64_t)bytes, COPY_TILE_BYTES),
	};

	if (launcher_is_bounded(launcher) && (dst | src | (uint64_t)bytes) % 16 == 0)
		return launch_bulk(launcher, launch->stream, &bulk, dst, src, err);
	if (!launcher_is_bounded(launcher) && (dst - src) % 4 == 0)
		return driver_call(err, cuMemcpyAsync, (dst, src, (size_t)bytes, launch->stream));
	return launch_strided(launcher, launch->stream, launch->transform, &rows, dst, src, err);
}
#endif

const struct strategy strategy_memcpy = {
	.name = "memcpy",
	.family = FAMILY_MEMCPY,
	.turn = STRATEGY_FIRST,
	.probe = probe,
	.cost = cost,
	.launch = WITH_CUDA(launch),
};
