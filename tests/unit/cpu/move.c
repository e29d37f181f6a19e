/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every microkernel, for every element size and instruction set, against a plain loop: shapes that are
 * ragged or prime, unaligned bases, gaps between rows, one piece or many, through the cache or past it. The
 * whole destination is compared, with its guards and gaps. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/move/move.h"
#include "proto/arithmetic.h"
#include "tests/support/tap.h"

#define GUARD 64

enum way { COPY, REPEAT, REVERSE, TRANSPOSE, TRANSPOSE_BACK, TRANSPOSE_UP, SCATTER, GATHER_BOTH, FILL, WAYS };

static const char *const way_names[WAYS] = { "copy",      "repeat",         "reverse",
	                                     "transpose", "transpose_back", "transpose_up",
	                                     "scatter",   "gather_both",    "fill" };

struct case_row {
	enum cpu_isa_level level;
	int way;
	uint32_t element;
};

struct shape {
	int64_t rows, cols;
};

static const struct shape shapes[] = {
	{ 1, 1 },    { 1, 2 },    { 1, 67 },   { 67, 1 },   { 2, 3 },     { 3, 1021 },   { 1021, 3 },
	{ 4, 4 },    { 5, 16 },   { 16, 5 },   { 17, 19 },  { 16, 64 },   { 64, 16 },    { 64, 64 },
	{ 63, 65 },  { 61, 127 }, { 128, 61 }, { 130, 67 }, { 257, 131 }, { 129, 1031 }, { 1031, 129 },
	{ 2, 333 },  { 333, 2 },  { 3, 64 },   { 64, 3 },   { 6, 200 },   { 200, 6 },    { 11, 137 },
	{ 137, 11 }, { 16, 129 }, { 129, 16 },
};

/* A loop nest of at most two dimensions, and the memory that it takes. */
struct arena {
	struct loop_nest nest;
	int64_t dst_low, dst_high, src_low, src_high; /* bytes before and after the start of element [0, 0] */
};

/* Makes a nest with `gap` elements between rows on both sides. */
static void loop_nest_for(struct loop_nest *nest, int way, uint32_t element, struct shape shape, int64_t gap)
{
	int64_t e = element;
	struct loop_nest_dim *row = &nest->dim[0], *col = &nest->dim[1];
	*nest = (struct loop_nest){ .rank = 2, .element = element, .fill = way == FILL };
	*row = (struct loop_nest_dim){ .n = shape.rows,
		                       .dst = (shape.cols + gap) * e,
		                       .src = (shape.cols + gap) * e,
		                       .source = shape.rows };
	*col = (struct loop_nest_dim){ .n = shape.cols, .dst = e, .src = e, .source = shape.cols };
	switch (way) {
	case REPEAT:
		row->src = e;
		col->src = 0;
		break;
	case REVERSE:
		col->src = -e;
		break;
	case TRANSPOSE:
	case TRANSPOSE_BACK:
	case TRANSPOSE_UP:
		row->src = way == TRANSPOSE_UP ? -e : e;
		col->src = (shape.rows + gap) * e * (way == TRANSPOSE_BACK ? -1 : 1);
		break;
	case SCATTER: /* has gaps everywhere, and swaps the source's rows and columns */
		col->dst = 2 * e;
		row->dst = (2 * shape.cols + gap) * e;
		row->src = 3 * e;
		col->src = (3 * shape.rows + gap) * e;
		break;
	case GATHER_BOTH:
		col->src = 3 * e;
		row->src = -(3 * shape.cols + gap) * e;
		break;
	case FILL:
		row->src = col->src = 0;
		break;
	default:
		break;
	}
	if (shape.rows == 1 || shape.cols == 1) { /* a canonical nest has no dimension of extent 1 */
		if (shape.rows == 1)
			*row = *col;
		nest->rank = row->n == 1 ? 0 : 1;
	}
}

static void extents(struct arena *arena)
{
	const struct loop_nest *nest = &arena->nest;
	arena->dst_high = arena->src_high = nest->element;
	for (int d = 0; d < nest->rank; d++) {
		arena->dst_high += (nest->dim[d].n - 1) * nest->dim[d].dst;
		arena->src_low += min_i64(0, (nest->dim[d].n - 1) * nest->dim[d].src);
		arena->src_high += max_i64(0, (nest->dim[d].n - 1) * nest->dim[d].src);
	}
}

static void naive(const struct loop_nest *nest, char *dst, const char *src)
{
	int64_t rows = nest->rank == 2 ? nest->dim[0].n : 1;
	int64_t cols = nest->rank >= 1 ? nest->dim[nest->rank - 1].n : 1;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < cols; c++) {
			int64_t to = 0, from = 0;
			if (nest->rank == 2) {
				to += r * nest->dim[0].dst;
				from += r * nest->dim[0].src;
			}
			if (nest->rank >= 1) {
				to += c * nest->dim[nest->rank - 1].dst;
				from += c * nest->dim[nest->rank - 1].src;
			}
			memcpy(dst + to, src + from, nest->element);
		}
}

/* The bases lie `skew` bytes past the start of a cache line. */
static void try_move(const struct case_row *row, struct shape shape, int64_t gap, int64_t skew, bool stream,
                     bool tiled, int64_t piece_bytes, struct cpu_scratch *scratch)
{
	static const char fill[16] = "0123456789abcdef";
	struct arena arena = { .dst_low = 0 };
	loop_nest_for(&arena.nest, row->way, row->element, shape, gap);
	extents(&arena);
	size_t dst_size = (size_t)(arena.dst_high + 2 * GUARD + skew);
	size_t src_size = (size_t)(arena.src_high - arena.src_low);
	/* The source is allocated without spare bytes, so that a sanitizer finds reads outside of it. */
	char *src_memory = malloc(src_size), *src = src_memory - arena.src_low;
	size_t room = (dst_size + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
	char *dst = aligned_alloc(CPU_LINE, room), *expected = aligned_alloc(CPU_LINE, room);
	uint32_t state = (uint32_t)(shape.rows * 31 + shape.cols);
	for (size_t i = 0; i < src_size; i++)
		src_memory[i] = (char)((state = state * 1664525 + 1013904223) >> 24);
	memset(dst, 0x5a, room);
	memset(expected, 0x5a, room);

	struct move move;
	struct move_place place = { .dst = dst + GUARD + skew,
		                    .src = src,
		                    .fill = fill,
		                    .piece_bytes = piece_bytes,
		                    .tiled_bytes = tiled ? 0 : INT64_MAX,
		                    .stream = stream };
	move_init(&move, cpu_isa_get(row->level), &arena.nest, &place);
	cr_assert_geq(move.pieces, 1);
	for (int64_t piece = 0; piece < move.pieces; piece++)
		move_run(&move, piece, scratch);
	naive(&arena.nest, expected + GUARD + skew, row->way == FILL ? fill : src);
	cr_assert_arr_eq(dst, expected, room,
	                 "%s %s, element %u, %ldx%ld, gap %ld, skew %ld, stream %d, piece %ld",
	                 cpu_isa_get(row->level)->name, way_names[row->way], row->element, (long)shape.rows,
	                 (long)shape.cols, (long)gap, (long)skew, stream, (long)piece_bytes);
	free(src_memory);
	free(dst);
	free(expected);
}

ParameterizedTestParameters(move, every_microkernel)
{
	static struct case_row rows[CPU_ISA_LEVELS * WAYS * CPU_SHIFTS];
	size_t n = 0;
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int way = 0; way < WAYS && cpu_isa_get(level); way++)
			for (int shift = 0; shift < CPU_SHIFTS; shift++)
				rows[n++] = (struct case_row){ level, way, 1u << shift };
	return cr_make_param_array(struct case_row, rows, n);
}

#define VARIANTS 48 /* coprime to 7, the step between variants */

ParameterizedTest(struct case_row *row, move, every_microkernel)
{
	static const int64_t gaps[] = { 0, 3 };
	static const int64_t skews[] = { 0, 16, 37 };
	static const int64_t pieces[] = { 512, 1 << 20 };
	/* The usual share tries all variants, and a smaller one tries other variants in each row. */
	long tried = tap_portion(10 * VARIANTS) < VARIANTS ? tap_portion(10 * VARIANTS) : VARIANTS;
	long first = row->level + row->way * 5 + row->element;
	struct cpu_scratch *scratch = cpu_scratch_new();
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		for (long i = 0; i < tried; i++) {
			long variant = (first + (long)s + i * 7) % VARIANTS;
			try_move(row, shapes[s], gaps[variant % 2], skews[variant / 2 % 3], variant / 6 % 2,
			         variant / 12 % 2, pieces[variant / 24], scratch);
		}
	cpu_scratch_free(scratch);
}

/* Pitches that are multiples of a cache line take the kernel that stores from registers past the cache. */
Test(move, whole_lines)
{
	struct cpu_scratch *scratch = cpu_scratch_new();
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int shift = 0; shift < CPU_SHIFTS && cpu_isa_get(level); shift++)
			for (int64_t skew = 0; skew < 2; skew++) {
				struct case_row row = { level, TRANSPOSE, 1u << shift };
				try_move(&row, (struct shape){ 192, 320 }, 0, skew * 48, true, false, 1 << 20,
				         scratch);
				try_move(&row, (struct shape){ 193, 320 }, 64, skew * 48, true, false,
				         1 << 20, scratch);
				try_move(&row, (struct shape){ 3, 320 }, 64, skew * 48, true, false, 1 << 20,
				         scratch);
			}
	cpu_scratch_free(scratch);
}

/* Loop nests of six dimensions with the source's in another order, in pieces that cut every dimension, also
 * the outer ones of the microkernel. */
struct order_row {
	char name[24];
	uint32_t element;
	int64_t n[6];
	int64_t order[6]; /* dimensions as they lie in the source, innermost first */
};

ParameterizedTestParameters(move, many_dimensions)
{
	static struct order_row rows[] = {
		{ "mixed", 2, { 3, 2, 5, 4, 3, 7 }, { 2, 0, 5, 1, 3, 4 } },
		{ "reversal of 1 byte", 1, { 20, 5, 3, 2, 6, 21 }, { 0, 1, 2, 3, 4, 5 } },
		{ "reversal of 2 bytes", 2, { 9, 7, 3, 2, 5, 19 }, { 0, 1, 2, 3, 4, 5 } },
		{ "reversal of 4 bytes", 4, { 16, 4, 3, 2, 4, 16 }, { 0, 1, 2, 3, 4, 5 } },
		{ "reversal of 8 bytes", 8, { 8, 4, 1, 2, 4, 24 }, { 0, 1, 2, 3, 4, 5 } },
		{ "reversal of 16 bytes", 16, { 5, 7, 3, 2, 3, 11 }, { 0, 1, 2, 3, 4, 5 } },
		{ "long inner rows", 4, { 2, 17, 3, 2, 1, 300 }, { 1, 0, 2, 3, 4, 5 } },
		{ "rows without gaps", 4, { 1, 2, 3, 5, 70, 30 }, { 4, 5, 0, 3, 2, 1 } },
	};
	return cr_make_param_array(struct order_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void try_order(const struct order_row *row, const struct cpu_isa *isa, int64_t piece, int64_t skew,
                      bool stream, bool tiled, struct cpu_scratch *scratch)
{
	struct loop_nest nest = { .rank = 6, .element = row->element };
	int64_t e = row->element, dst = e, src = e;
	for (int d = 5; d >= 0; d--) {
		nest.dim[d].n = nest.dim[d].source = row->n[d];
		nest.dim[d].dst = dst;
		dst *= row->n[d];
	}
	for (int i = 0; i < 6; i++) {
		nest.dim[row->order[i]].src = src;
		src *= row->n[row->order[i]];
	}
	size_t room = (size_t)(dst + 2 * GUARD + skew + CPU_LINE) / CPU_LINE * CPU_LINE;
	char *from = malloc((size_t)src), *to = aligned_alloc(CPU_LINE, room);
	for (int64_t i = 0; i < src; i++)
		from[i] = (char)((i / e * 0x9e3779b1u >> 13) + i % e);
	memset(to, 0x5a, room);
	struct move move;
	struct move_place place = { .dst = to + GUARD + skew,
		                    .src = from,
		                    .piece_bytes = piece,
		                    .tiled_bytes = tiled ? 0 : INT64_MAX,
		                    .stream = stream };
	move_init(&move, isa, &nest, &place);
	for (int64_t p = 0; p < move.pieces; p++)
		move_run(&move, p, scratch);
	for (int64_t i = 0; i < dst / e; i++) {
		int64_t rest = i, at = 0;
		for (int d = 5; d >= 0; rest /= row->n[d--])
			at += rest % row->n[d] * nest.dim[d].src;
		cr_assert_arr_eq(to + GUARD + skew + i * e, from + at, (size_t)e,
		                 "%s, %s, pieces of %ld bytes, skew %ld, stream %d, tiled %d: element %ld",
		                 row->name, isa->name, (long)piece, (long)skew, stream, tiled, (long)i);
	}
	for (size_t i = 0; i < room; i++)
		if (i < (size_t)(GUARD + skew) || i >= (size_t)(GUARD + skew + dst))
			cr_assert_eq(to[i], 0x5a, "%s, %s: guard byte %zu", row->name, isa->name, i);
	free(from);
	free(to);
}

ParameterizedTest(struct order_row *row, move, many_dimensions)
{
	static const int64_t pieces[] = { 1, 64, 256, 4096, 1 << 20 };
	struct cpu_scratch *scratch = cpu_scratch_new();
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (size_t i = 0; i < 60 && cpu_isa_get(level); i++)
			try_order(row, cpu_isa_get(level), pieces[i % 5], i / 5 % 3 * 19, i / 15 % 2, i / 30,
			          scratch);
	cpu_scratch_free(scratch);
}

struct span_row {
	char name[24];
	int64_t n;
	int64_t skew;
	int64_t piece;
};

/* Pieces of one run begin at a cache line, so that no two threads write to the same line. */
ParameterizedTestParameters(move, pieces_begin_with_a_line)
{
	static struct span_row rows[] = {
		{ "aligned", 100000, 0, 4096 },
		{ "odd base", 100000, 13, 4096 },
		{ "one before a line", 65537, 63, 4096 },
		{ "tiny pieces", 1000, 1, 64 },
	};
	return cr_make_param_array(struct span_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct span_row *row, move, pieces_begin_with_a_line)
{
	size_t room = (size_t)(row->n + 4096) / CPU_LINE * CPU_LINE;
	char *dst = aligned_alloc(CPU_LINE, room), *src = malloc((size_t)row->n);
	struct loop_nest nest = { .rank = 1, .element = 1, .dim = { { row->n, 1, 1, 0, row->n } } };
	struct move move;
	struct move_place place = { .dst = dst + row->skew, .src = src, .piece_bytes = row->piece };
	memset(src, 1, (size_t)row->n);
	memset(dst, 0, room);
	move_init(&move, cpu_isa_best(), &nest, &place);
	cr_assert_geq(move.pieces, row->n / row->piece, "%s", row->name);
	int64_t written = 0;
	for (int64_t piece = 0; piece < move.pieces; piece++) {
		move_run(&move, piece, NULL);
		written = row->n;
		while (written > 0 && !dst[row->skew + written - 1])
			written--;
		cr_assert(written == row->n || (row->skew + written) % CPU_LINE == 0,
		          "%s: piece %ld ends %ld bytes into a line", row->name, (long)piece,
		          (long)((row->skew + written) % CPU_LINE));
	}
	cr_assert_eq(written, row->n, "%s", row->name);
	free(dst);
	free(src);
}
