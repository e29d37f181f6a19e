/* SPDX-License-Identifier: Apache-2.0 */
/* Tests fills of tiles: whether a tile is packed or filled from the source, straight or from planes, and that
 * every instruction set then moves each element to its place and writes nothing between the image's rows but
 * what its method may. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/tile/tile_fill.h"
#include "kernels/cpu/tile/tile_stages.h"
#include "proto/arithmetic.h"
#include "tests/support/oracle.h"

#define SIDE (1 << 18)

struct fill_row {
	char name[40];
	int64_t element;
	int n;
	struct {
		int64_t n, image, src; /* extent and strides, in elements */
	} dim[5];
	enum tile_way way;
	bool has_planes; /* the tile is split into planes first, from which `way` fills */
};

ParameterizedTestParameters(tile_fill, moves_every_element)
{
	static struct fill_row rows[] = {
		{ "panel", 1, 2, { { 64, 1, 80 }, { 80, 128, 1 } }, TILE_PANEL, false },
		{ "panel of two dimensions a side",
		  2,
		  4,
		  { { 8, 1, 400 }, { 9, 8, 6000 }, { 10, 100, 1 }, { 12, 1000, 10 } },
		  TILE_PANEL,
		  false },
		{ "panel, its rows backwards", 4, 2, { { 32, 1, 64 }, { 24, 64, -1 } }, TILE_PANEL, false },
		{ "panel, its rows cropped",
		  1,
		  3,
		  { { 32, 1, 600 }, { 5, 32, 1 }, { 64, 160, 8 } },
		  TILE_PANEL,
		  false },
		{ "panel, its rows cropped and backwards",
		  2,
		  3,
		  { { 24, 1, 500 }, { 3, 24, -1 }, { 50, 72, -4 } },
		  TILE_PANEL,
		  false },
		{ "panel, columns among its rows",
		  1,
		  5,
		  { { 2, 1, 600 }, { 2, 2, 12 }, { 40, 4, 1200 }, { 12, 160, 1 }, { 20, 1920, 24 } },
		  TILE_PANEL,
		  false },
		{ "pixels of three channels", 1, 2, { { 100, 1, 3 }, { 3, 128, 1 } }, TILE_SPLIT, false },
		{ "pixels of two dimensions",
		  1,
		  3,
		  { { 128, 1, 8 }, { 2, 128, 1 }, { 4, 1000, 2 } },
		  TILE_SPLIT,
		  false },
		{ "pixels that run backwards", 2, 2, { { 50, 1, 4 }, { 4, 64, -1 } }, TILE_SPLIT, false },
		{ "planes of three channels", 2, 2, { { 3, 1, 100 }, { 100, 3, 1 } }, TILE_MERGE, false },
		{ "planes of two dimensions",
		  1,
		  3,
		  { { 2, 1, 400 }, { 3, 2, 1200 }, { 90, 6, 1 } },
		  TILE_MERGE,
		  false },
		{ "pixels of four by planes of three",
		  1,
		  3,
		  { { 3, 1, 700 }, { 100, 3, 4 }, { 4, 320, 1 } },
		  TILE_MERGE,
		  true },
		{ "pairs across pixels of sixteen",
		  1,
		  4,
		  { { 2, 1, 2 }, { 256, 2, 16 }, { 2, 640, 1 }, { 4, 1280, 4 } },
		  TILE_MERGE,
		  true },
		{ "pixels in rows of sixteen",
		  1,
		  5,
		  { { 2, 1, 128 }, { 16, 2, 8 }, { 2, 32, 1 }, { 4, 64, 2 }, { 8, 256, 256 } },
		  TILE_SHUFFLE,
		  true },
		{ "neighbours in other places",
		  1,
		  3,
		  { { 2, 1, 3 }, { 3, 2, 1 }, { 40, 6, 6 } },
		  TILE_SHUFFLE,
		  false },
		{ "few rows",
		  2,
		  3,
		  { { 12, 1, 300 }, { 7, 128, 1 }, { 4, 12, 4000 } },
		  TILE_FEW_ROWS,
		  false },
		{ "units of several elements",
		  4,
		  3,
		  { { 3, 1, 1 }, { 40, 3, 300 }, { 20, 128, 3 } },
		  TILE_DENSE,
		  false },
		{ "units with gaps", 8, 3, { { 2, 1, 90 }, { 3, 9, 1 }, { 4, 40, 7 } }, TILE_SPARSE, false },
		{ "runs", 4, 2, { { 32, 1, 1 }, { 20, 48, 100 } }, TILE_RUNS, false },
	};
	return cr_make_param_array(struct fill_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Returns the offset of the source's lowest element from its first. */
static int64_t lowest(const struct fill_row *row)
{
	int64_t low = 0;
	for (int d = 0; d < row->n; d++)
		low += min_i64(row->dim[d].src, 0) * (row->dim[d].n - 1);
	return low;
}

/* Moves each element to the image and leaves what is between elements. */
static void move_plainly(const struct fill_row *row, char *image, const char *src)
{
	int64_t at[5] = { 0 };
	int d;
	do {
		int64_t to = 0, from = 0;
		for (d = 0; d < row->n; d++) {
			to += at[d] * row->dim[d].image;
			from += at[d] * row->dim[d].src;
		}
		memcpy(image + to * row->element, src + from * row->element, (size_t)row->element);
		for (d = 0; d < row->n && ++at[d] == row->dim[d].n; d++)
			at[d] = 0;
	} while (d < row->n);
}

/* Fills the tile as tile.c fills those that are not direct. */
static void move_by_tile(const struct fill_row *row, const struct cpu_isa *isa, char *image, const char *src,
                         char *packed, char *planes)
{
	static struct tile_pack pack;
	static struct tile_fill fill;
	struct tile_turn turn;
	struct tile_shape shape = { .isa = isa, .element = row->element, .n = row->n };
	struct cpu_fetch fetch = { 0 };
	for (int d = 0; d < row->n; d++)
		shape.dim[d] = (struct tile_dim){ .n = row->dim[d].n,
			                          .image = row->dim[d].image * row->element,
			                          .src = row->dim[d].src * row->element,
			                          .packed = row->dim[d].src * row->element };
	cr_assert(tile_pack_init(&pack, row->element, shape.dim, row->n));
	cr_assert(tile_fill_init(&fill, &shape));
	double straight = fill.cost;
	const char *from = packed + pack.first;
	tile_pack_run(&pack, packed, src);
	if (row->has_planes) {
		cr_assert(tile_turn_init(&turn, isa, row->element, shape.dim, row->n), "%s", row->name);
		cr_assert(tile_fill_init(&fill, &shape));
		cr_assert_lt(turn.cost + fill.cost, straight, "%s: %g + %g, not below %g", row->name,
		             turn.cost, fill.cost, straight);
		tile_turn_run(&turn, planes, packed);
		from = planes;
	}
	cr_assert_eq(fill.way, row->way, "%s: way %d", row->name, (int)fill.way);
	tile_fill_run(&fill, image, from, NULL, &fetch);
}

ParameterizedTest(struct fill_row *row, tile_fill, moves_every_element)
{
	char *src = malloc(SIDE), *image = aligned_alloc(CPU_LINE, SIDE), *expected = malloc(SIDE);
	char *packed = aligned_alloc(CPU_LINE, 2 * SIDE), *planes = aligned_alloc(CPU_LINE, 2 * SIDE);
	const char *first = src - lowest(row) * row->element;
	uint64_t state = 3;
	for (int64_t i = 0; i < SIDE; i++)
		src[i] = (char)oracle_random(&state);
	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get(level);
		if (!isa)
			continue;
		memset(image, 0x5a, SIDE);
		move_by_tile(row, isa, image, first, packed, planes);
		/* The bytes between rows may have any value, so only elements are compared. */
		memcpy(expected, image, SIDE);
		move_plainly(row, expected, first);
		cr_assert_arr_eq(image, expected, SIDE, "%s, %s", row->name, isa->name);
	}
	free(src);
	free(image);
	free(expected);
	free(packed);
	free(planes);
}

struct direct_row {
	char name[40];
	int64_t element, rows; /* length of a row, and rows of the source, in elements */
	bool is_direct;
};

ParameterizedTestParameters(tile_fill, fills_from_the_source_where_its_rows_are_long)
{
	static struct direct_row rows[] = {
		{ "rows of a line", 8, 8, true },
		{ "rows of less", 8, 7, false },
		{ "rows of 4-byte elements", 4, 64, true },
		{ "rows of 2-byte elements", 2, 128, false },
	};
	return cr_make_param_array(struct direct_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct direct_row *row, tile_fill, fills_from_the_source_where_its_rows_are_long)
{
	static struct tile_fill fill;
	int64_t element = row->element, cols = 64;
	struct tile_shape shape = {
		.isa = cpu_isa_best(),
		.element = element,
		.direct = true,
		.n = 2,
		.dim = { { .n = cols, .image = element, .src = 4096, .packed = 4096 },
		         { .n = row->rows, .image = cols * element, .src = element, .packed = element } }
	};
	cr_assert_eq(tile_fill_init(&fill, &shape), row->is_direct, "%s", row->name);
}
