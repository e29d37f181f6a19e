/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tiles of the CPU engine: tiles and pieces keep to their limits for any loop nest, and have the
 * expected extents for some. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "proto/arithmetic.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MOST_PIECE (1 << 20)

static const struct cpu_tile_want usual = {
	.tile = 32 << 10, .src_run = 1024, .dst_run = 256, .piece = MOST_PIECE
};

struct tile_row {
	char name[40];
	int rank;
	uint32_t element;
	int64_t n[6];
	/* The source's dimensions, innermost first; the destination's are numbered from the outermost. */
	int order[6];
	int64_t least[6]; /* least extents of a tile */
};

ParameterizedTestParameters(cpu_tile, spans_what_both_sides_need)
{
	static struct tile_row rows[] = {
		{ "a matrix", 2, 4, { 8192, 8192 }, { 0, 1 }, { 64, 32 } },
		{ "bytes", 2, 1, { 8192, 8192 }, { 0, 1 }, { 128, 64 } },
		{ "short inner rows of the source", 3, 4, { 5, 65536, 512 }, { 0, 2, 1 }, { 5, 1, 64 } },
		{ "short everywhere", 5, 2, { 7, 3, 4096, 2, 5 }, { 0, 2, 3, 1, 4 }, { 7, 1, 2, 2, 5 } },
		{ "pairs, longer than a table", 2, 1, { 1 << 23, 2 }, { 1, 0 }, { 4096, 2 } },
		{ "short rows on both sides", 4, 1, { 4096, 3, 4096, 3 }, { 1, 0, 3, 2 }, { 16, 3, 8, 3 } },
	};
	return cr_make_param_array(struct tile_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void nest_for(struct loop_nest *nest, int rank, uint32_t element, const int64_t *n, const int *order)
{
	int64_t dst = element, src = element;
	*nest = (struct loop_nest){ .rank = rank, .element = element };
	for (int d = rank - 1; d >= 0; d--) {
		nest->dim[d] = (struct loop_nest_dim){ .n = n[d], .dst = dst, .source = n[d] };
		dst *= n[d];
	}
	for (int i = 0; i < rank; i++) {
		nest->dim[order[i]].src = src;
		src *= n[order[i]];
	}
}

ParameterizedTest(struct tile_row *row, cpu_tile, spans_what_both_sides_need)
{
	struct loop_nest nest;
	struct cpu_tile tile;
	nest_for(&nest, row->rank, row->element, row->n, row->order);
	cpu_tile_choose(&tile, &nest, &usual);
	for (int d = 0; d < row->rank; d++)
		cr_assert_geq(tile.n[d], row->least[d], "%s: dimension %d of a tile is %ld long", row->name,
		              d, (long)tile.n[d]);
}

/* A tile may be twice as large as requested, because a dimension may be kept whole. */
static void check_limits(const struct loop_nest *nest, struct cpu_tile_want want, long i)
{
	struct cpu_tile tile;
	int64_t elements = 1;
	cpu_tile_choose(&tile, nest, &want);
	for (int d = 0; d < nest->rank; d++) {
		int64_t n = nest->dim[d].n;
		cr_assert(tile.n[d] >= 1 && tile.n[d] <= tile.piece[d] && tile.piece[d] <= n,
		          "case %ld: tile %ld, piece %ld of %ld", i, (long)tile.n[d], (long)tile.piece[d],
		          (long)n);
		cr_assert(tile.piece[d] % tile.n[d] == 0 || tile.piece[d] == n,
		          "case %ld: a piece of %ld is no multiple of a tile of %ld", i, (long)tile.piece[d],
		          (long)tile.n[d]);
		elements *= tile.n[d];
	}
	cr_assert_leq(elements * nest->element, 2 * want.tile, "case %ld", i);
}

/* Some nests have gaps, and dimensions that run backwards or are repeated. */
Test(cpu_tile, keeps_to_its_limits)
{
	uint64_t state = 1;
	long tried = tap_portion(20000);
	for (long i = 0; i < tried; i++) {
		int rank = (int)oracle_between(&state, 1, 6), order[6];
		int64_t n[6];
		struct loop_nest nest;
		for (int d = 0; d < rank; d++) {
			int other = (int)oracle_between(&state, 0, d);
			n[d] = oracle_between(&state, 2, oracle_between(&state, 0, 3) ? 12 : 3000);
			order[d] = order[other];
			order[other] = d;
		}
		nest_for(&nest, rank, 1u << oracle_between(&state, 0, 4), n, order);
		for (int d = 0; d < rank; d++) {
			if (oracle_between(&state, 0, 5) == 0)
				nest.dim[d].src *= oracle_between(&state, -2, 2);
			if (oracle_between(&state, 0, 9) == 0 && d == 0)
				nest.dim[d].dst += 3 * nest.element;
		}
		check_limits(&nest,
		             (struct cpu_tile_want){ .tile = INT64_C(1) << oracle_between(&state, 10, 17),
		                                     .src_run = INT64_C(1) << oracle_between(&state, 6, 12),
		                                     .dst_run = INT64_C(1) << oracle_between(&state, 6, 12),
		                                     .piece = INT64_C(1) << oracle_between(&state, 4, 21) },
		             i);
	}
}
