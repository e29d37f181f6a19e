/* SPDX-License-Identifier: Apache-2.0 */
/* Runs large moves by each method that the cost model may choose, on every instruction set, and compares them
 * with a plain loop, so that correctness does not depend on what is fast. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/move/microkernel.h"
#include "kernels/cpu/move/move.h"
#include "kernels/cpu/plan/cpu_choice.h"
#include "proto/arithmetic.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MOST_RANK 5
#define BYTES     (3 << 19) /* approximate bytes of a move, more than the model samples */
#define GUARD     CPU_LINE

/* A permutation with some dimensions that run backwards in the source. */
struct sample {
	struct loop_nest nest;
	int64_t bytes; /* bytes of either side */
	int64_t first; /* byte offset of element [0, ..., 0] in the source */
	int64_t skew;  /* byte offset of the destination in its cache line */
};

static void sample_draw(struct sample *ret, uint64_t *state)
{
	int order[MOST_RANK], rank = (int)oracle_between(state, 2, MOST_RANK);
	int64_t element = INT64_C(1) << oracle_between(state, 0, 4), left = BYTES / element, step = element;
	*ret = (struct sample){ .nest = { .rank = rank, .element = (uint32_t)element } };
	struct loop_nest_dim *dim = ret->nest.dim;
	for (int d = 0; d < rank; d++) {
		int other = (int)oracle_between(state, 0, d);
		order[d] = order[other];
		order[other] = d;
		dim[d].n = oracle_between(state, 2, oracle_between(state, 0, 2) ? 12 : 400);
		left = max_i64(left / dim[d].n, 1);
	}
	dim[oracle_between(state, 0, rank - 1)].n *= left;
	for (int d = rank - 1; d >= 0; d--) {
		dim[d].dst = step;
		dim[d].source = dim[d].n;
		step *= dim[d].n;
	}
	ret->bytes = step;
	step = element;
	for (int i = 0; i < rank; i++) {
		struct loop_nest_dim *of = &dim[order[i]];
		of->src = step;
		step *= of->n;
		if (oracle_between(state, 0, 5) == 0) {
			ret->first += (of->n - 1) * of->src;
			of->src = -of->src;
		}
	}
	ret->skew = oracle_between(state, 0, 1) * element * oracle_between(state, 0, CPU_LINE / element - 1);
}

static void move_plainly(const struct loop_nest *nest, char *dst, const char *src)
{
	int64_t at[MOST_RANK] = { 0 };
	for (;;) {
		memcpy(dst, src, nest->element);
		int d = nest->rank - 1;
		for (; d >= 0; d--) {
			const struct loop_nest_dim *dim = &nest->dim[d];
			dst += dim->dst;
			src += dim->src;
			if (++at[d] < dim->n)
				break;
			at[d] = 0;
			dst -= dim->n * dim->dst;
			src -= dim->n * dim->src;
		}
		if (d < 0)
			return;
	}
}

static bool run(const struct sample *sample, const struct cpu_isa *isa, int candidate, char *dst,
                const char *src, struct cpu_scratch *scratch)
{
	struct move move;
	struct move_place place = { .dst = dst + GUARD + sample->skew,
		                    .src = src + sample->first,
		                    .piece_bytes = 1 << 20,
		                    .stream = true };
	move_force(candidate);
	move_init(&move, isa, &sample->nest, &place);
	move_force(-1);
	for (int64_t piece = 0; piece < move.pieces; piece++)
		move_run(&move, piece, scratch);
	isa->fence();
	return move.strategy == &cpu_strategy_tiles;
}

Test(candidates, move_the_same_bytes)
{
	uint64_t state = 1;
	long tried = tap_portion(150), tiled = 0;
	struct cpu_scratch *scratch = cpu_scratch_new();
	for (long i = 0; i < tried; i++) {
		struct sample sample;
		sample_draw(&sample, &state);
		size_t room = (size_t)divide_up_i64(sample.bytes + 3 * GUARD, CPU_LINE) * CPU_LINE;
		uint64_t *words = malloc(room);
		char *src = (char *)words;
		char *dst = aligned_alloc(CPU_LINE, room), *expected = aligned_alloc(CPU_LINE, room);
		for (size_t w = 0; w < room / sizeof(*words); w++)
			words[w] = oracle_random(&state);
		memset(expected, 0x5a, room);
		move_plainly(&sample.nest, expected + GUARD + sample.skew, src + sample.first);
		for (int level = 0; level < CPU_ISA_LEVELS; level++)
			for (int k = -1; k < CPU_CANDIDATES && cpu_isa_get(level); k++) {
				memset(dst, 0x5a, room);
				tiled += run(&sample, cpu_isa_get(level), k, dst, src, scratch) && k > 0;
				cr_assert(!memcmp(dst, expected, room), "case %ld, %s by %s", i,
				          cpu_isa_get(level)->name,
				          k < 0 ? "what it chooses" : cpu_candidate_names[k]);
			}
		free(words);
		free(dst);
		free(expected);
	}
	cpu_scratch_free(scratch);
	cr_assert_gt(tiled, tried, "most tiles fit");
}
