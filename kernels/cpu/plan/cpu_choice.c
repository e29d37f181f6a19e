/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates, the rule and the comparison. */
#include "cpu_choice.h"

#include "cpu_cost.h"
#include "kernels/nest/nest_family.h"
#include "proto/arithmetic.h"

#define LINE 64

/* Moves of fewer bytes end before the comparison pays, which takes a few microseconds. */
#define COMPARED_BYTES (1 << 20)

/* Shorter runs that are contiguous on both sides go by tiles: past the cache, and through it. */
#define RUN_LEAST        512
#define RUN_LEAST_CACHED LINE

const char *const cpu_candidate_names[CPU_CANDIDATES] = { "microkernel", "32K 1024:256", "64K 1024:256",
	                                                  "128K 1024:256", "64K 512:512" };

static const struct cpu_tile_want wants[CPU_CANDIDATES] = {
	[CPU_USUAL] = { .tile = 32 << 10, .src_run = 1024, .dst_run = 256 },
	[2] = { .tile = 64 << 10, .src_run = 1024, .dst_run = 256 },
	[3] = { .tile = 128 << 10, .src_run = 1024, .dst_run = 256 },
	[4] = { .tile = 64 << 10, .src_run = 512, .dst_run = 512 },
};

bool cpu_has_tiles(const struct loop_nest *nest)
{
	return !nest->fill && nest->rank >= 2 && nest->dim[nest->rank - 1].dst == nest->element;
}

void cpu_choose_candidate(struct cpu_choice *ret, const struct loop_nest *nest, int candidate,
                          int64_t piece_bytes)
{
	ret->candidate = candidate;
	if (candidate == 0) {
		ret->cost = cpu_cost_microkernel(nest);
		return;
	}
	struct cpu_tile_want want = wants[candidate];
	want.piece = piece_bytes;
	cpu_tile_choose(&ret->tile, nest, &want);
	ret->cost = cpu_cost_tiles(nest, &ret->tile);
}

/* ---- By rule ---------------------------------------------------------------------------------------- */

/* Bytes of the source's run that do not belong to the destination's innermost dimension. */
static int64_t crossed_run(const struct loop_nest *nest)
{
	int64_t run = nest->element;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].n > 1 && magnitude_i64(nest->dim[d].src) == run) {
			run *= nest->dim[d].n;
			d = -1;
		}
	return run;
}

/* Whether the two dimensions of a transpose are long enough for its microkernel. */
static bool is_regular(const struct loop_nest *nest)
{
	int inner;
	if (loop_nest_family(nest, &inner) != FAMILY_TILE_TRANSPOSE)
		return false;
	int64_t row = nest->dim[nest->rank - 1].n * nest->element, col = nest->dim[inner].n * nest->element;
	return (row >= LINE && col >= LINE / 2) || (row >= 4 * LINE && crossed_run(nest) >= LINE / 2);
}

static bool is_tiled(const struct loop_nest *nest, bool stream)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	if (magnitude_i64(inner->src) == nest->element || inner->src == 0)
		return inner->n * nest->element < (stream ? RUN_LEAST : RUN_LEAST_CACHED);
	return !is_regular(nest);
}

/* ---- The choice ------------------------------------------------------------------------------------- */

void cpu_choose(struct cpu_choice *ret, const struct loop_nest *nest, const struct cpu_case *c)
{
	int64_t bytes = nest->element * loop_nest_count(nest);
	bool has_tiles = cpu_has_tiles(nest) && bytes >= c->tiled_bytes;
	*ret = (struct cpu_choice){ 0 };
	if (nest->fill)
		return;
	if (!c->stream || bytes < COMPARED_BYTES) {
		if (has_tiles && is_tiled(nest, c->stream))
			cpu_choose_candidate(ret, nest, CPU_USUAL, c->piece_bytes);
		ret->cost = 0;
		return;
	}
	cpu_choose_candidate(ret, nest, 0, c->piece_bytes);
	for (int i = 1; i < CPU_CANDIDATES && has_tiles; i++) {
		struct cpu_choice other;
		cpu_choose_candidate(&other, nest, i, c->piece_bytes);
		if (other.cost < ret->cost)
			*ret = other;
	}
}
