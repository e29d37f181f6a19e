/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the CPU engine chooses to move a loop nest: which of two moves costs more, and what is chosen. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MOST_RANK 6
#define PIECE     (1 << 20)

/* The shape of a permutation. */
struct shape {
	int rank;
	uint32_t element;
	int64_t n[MOST_RANK];
	int order[MOST_RANK]; /* dimensions as they lie in the source, innermost first */
};

static void nest_for(struct loop_nest *nest, const struct shape *shape)
{
	int64_t dst = shape->element, src = shape->element;
	*nest = (struct loop_nest){ .rank = shape->rank, .element = shape->element };
	for (int d = shape->rank - 1; d >= 0; d--) {
		nest->dim[d] = (struct loop_nest_dim){ .n = shape->n[d], .dst = dst, .source = shape->n[d] };
		dst *= shape->n[d];
	}
	for (int i = 0; i < shape->rank; i++) {
		nest->dim[shape->order[i]].src = src;
		src *= shape->n[shape->order[i]];
	}
}

/* ---- Costs ------------------------------------------------------------------------------------------ */

struct tiles_row {
	char name[48];
	struct shape shape;
	int64_t cheap[MOST_RANK], dear[MOST_RANK]; /* extents of a cheap and of a dear tile */
};

ParameterizedTestParameters(cpu_choice, tiles_cost)
{
	static struct tiles_row rows[] = {
		{ "longer runs of the source", { 2, 4, { 8192, 8192 }, { 0, 1 } }, { 256, 64 }, { 64, 64 } },
		{ "longer runs of the destination",
		  { 2, 4, { 8192, 8192 }, { 0, 1 } },
		  { 64, 256 },
		  { 64, 64 } },
		{ "whole lines of the source",
		  { 3, 4, { 5, 4096, 1000 }, { 0, 2, 1 } },
		  { 5, 8, 1000 },
		  { 1, 8, 1000 } },
		{ "writing to fewer pages",
		  { 3, 4, { 2048, 64, 256 }, { 0, 1, 2 } },
		  { 256, 1, 64 },
		  { 256, 4, 64 } },
		{ "a tile that stays in the cache",
		  { 3, 4, { 2048, 64, 256 }, { 0, 2, 1 } },
		  { 128, 1, 128 },
		  { 128, 2, 128 } },
	};
	return cr_make_param_array(struct tiles_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static double cost_of(const struct loop_nest *nest, const int64_t *extent)
{
	struct cpu_tile tile = { 0 };
	for (int d = 0; d < nest->rank; d++)
		tile.n[d] = tile.piece[d] = extent[d];
	return cpu_cost_tiles(nest, &tile);
}

ParameterizedTest(struct tiles_row *row, cpu_choice, tiles_cost)
{
	struct loop_nest nest;
	nest_for(&nest, &row->shape);
	double cheap = cost_of(&nest, row->cheap), dear = cost_of(&nest, row->dear);
	cr_assert_lt(cheap, dear, "%s: %.3f, but %.3f", row->name, cheap, dear);
}

struct microkernel_row {
	char name[48];
	struct shape cheap, dear;
};

ParameterizedTestParameters(cpu_choice, microkernels_cost)
{
	static struct microkernel_row rows[] = {
		{ "one run, not rows", { 1, 4, { 1 << 24 }, { 0 } }, { 2, 4, { 1 << 14, 128 }, { 1, 0 } } },
		{ "rows past the cache",
		  { 3, 4, { 64, 128, 1024 }, { 2, 0, 1 } },
		  { 3, 4, { 64, 128, 24 }, { 2, 0, 1 } } },
		{ "rows of whole lines",
		  { 3, 4, { 64, 128, 64 }, { 2, 0, 1 } },
		  { 3, 4, { 64, 128, 63 }, { 2, 0, 1 } } },
		{ "longer elements", { 2, 8, { 4096, 4096 }, { 0, 1 } }, { 2, 1, { 4096, 4096 }, { 0, 1 } } },
		{ "larger boxes",
		  { 3, 4, { 32, 4096, 64 }, { 0, 2, 1 } },
		  { 3, 4, { 4, 4096, 8 }, { 0, 2, 1 } } },
		{ "a source from one end to the other",
		  { 3, 2, { 64, 32, 4096 }, { 1, 2, 0 } },
		  { 3, 2, { 64, 32, 4096 }, { 1, 0, 2 } } },
		{ "pixels of three channels",
		  { 2, 1, { 3, 1 << 22 }, { 0, 1 } },
		  { 3, 1, { 3, 2, 1 << 21 }, { 0, 1, 2 } } },
		{ "pixels into rows of whole lines",
		  { 3, 2, { 8192, 2, 128 }, { 1, 2, 0 } },
		  { 3, 2, { 8192, 2, 144 }, { 1, 2, 0 } } },
	};
	return cr_make_param_array(struct microkernel_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static double cost_without_tiles(const struct loop_nest *nest)
{
	struct cpu_choice choice;
	cpu_choose_candidate(&choice, nest, 0, PIECE);
	return choice.cost;
}

ParameterizedTest(struct microkernel_row *row, cpu_choice, microkernels_cost)
{
	struct loop_nest a, b;
	nest_for(&a, &row->cheap);
	nest_for(&b, &row->dear);
	double cheap = cost_without_tiles(&a), dear = cost_without_tiles(&b);
	cr_assert_lt(cheap, dear, "%s: %.3f, but %.3f", row->name, cheap, dear);
}

/* ---- The choice ------------------------------------------------------------------------------------- */

struct choice_row {
	char name[48];
	struct shape shape;
	bool stream, tiles;
};

ParameterizedTestParameters(cpu_choice, takes_tiles_where_they_are_faster)
{
	static struct choice_row rows[] = {
		{ "one run", { 1, 4, { 1 << 24 }, { 0 } }, true, false },
		{ "long rows", { 3, 4, { 64, 128, 4096 }, { 2, 0, 1 } }, true, false },
		{ "rows of 120 bytes", { 3, 8, { 3, 65536, 15 }, { 2, 0, 1 } }, true, true },
		{ "bytes", { 2, 1, { 8192, 8192 }, { 0, 1 } }, true, true },
		{ "8 bytes, read from end to end", { 3, 8, { 32, 8, 8192 }, { 1, 2, 0 } }, true, false },
		{ "short axes", { 4, 2, { 2048, 8, 128, 4 }, { 0, 1, 2, 3 } }, true, true },
		{ "pixels", { 2, 1, { 3, 1 << 22 }, { 0, 1 } }, true, false },
		{ "short axes in the cache", { 4, 2, { 256, 8, 16, 4 }, { 0, 1, 2, 3 } }, false, true },
		{ "bytes in the cache", { 2, 1, { 512, 512 }, { 0, 1 } }, false, false },
		{ "short axes, below the size for tiles", { 3, 2, { 4, 8, 4 }, { 0, 1, 2 } }, false, false },
	};
	return cr_make_param_array(struct choice_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct choice_row *row, cpu_choice, takes_tiles_where_they_are_faster)
{
	struct cpu_case c = { .piece_bytes = PIECE, .tiled_bytes = 16 << 10, .stream = row->stream };
	struct cpu_choice choice;
	struct loop_nest nest;
	nest_for(&nest, &row->shape);
	cpu_choose(&choice, &nest, &c);
	cr_assert_eq(choice.candidate > 0, row->tiles, "%s: %s", row->name,
	             cpu_candidate_names[choice.candidate]);
	if (!row->stream)
		cr_assert_eq(choice.cost, 0, "%s: it has a cost of %f", row->name, choice.cost);
}

/* Some dimensions run backwards or are repeated. */
Test(cpu_choice, none_is_cheaper_than_the_chosen_one)
{
	uint64_t state = 1;
	long tried = tap_portion(2000);
	for (long i = 0; i < tried; i++) {
		struct shape shape = { .rank = (int)oracle_between(&state, 2, MOST_RANK),
			               .element = 1u << oracle_between(&state, 0, 4) };
		struct cpu_case c = { .piece_bytes = PIECE, .stream = true };
		struct cpu_choice choice, other;
		struct loop_nest nest;
		for (int d = 0; d < shape.rank; d++) {
			int to = (int)oracle_between(&state, 0, d);
			shape.n[d] = oracle_between(&state, 2, d == 0 ? 1 << 20 : 100);
			shape.order[d] = shape.order[to];
			shape.order[to] = d;
		}
		nest_for(&nest, &shape);
		for (int d = 0; d < shape.rank; d++)
			if (oracle_between(&state, 0, 5) == 0)
				nest.dim[d].src *= oracle_between(&state, -1, 1);
		cpu_choose(&choice, &nest, &c);
		for (int k = 0; k < CPU_CANDIDATES && choice.cost > 0; k++) {
			cpu_choose_candidate(&other, &nest, k, PIECE);
			cr_assert(isfinite(other.cost) && other.cost >= 1, "case %ld: %s costs %f", i,
			          cpu_candidate_names[k], other.cost);
			cr_assert_leq(choice.cost, other.cost, "case %ld: %s", i, cpu_candidate_names[k]);
		}
	}
}
