/* SPDX-License-Identifier: Apache-2.0 */
/* Draws some elements twice, in the order in which they lie in memory: in the source on the left, and in the
 * destination on the right. They are the elements of a tile or, if the plan has none, the first ones of the
 * two innermost dimensions. An element has the same number on both sides, and the colour of its row in the
 * source. */
#include "picture.h"

#include <inttypes.h>
#include <stdlib.h>

#include "svg.h"

enum { MOST = 8, CELL_WIDTH = 52, CELL_HEIGHT = 30, SRC_X = 104, DST_X = 640, TOP = 88, BOTTOM = 96 };

/* The two dimensions drawn, as one side has them. */
struct side {
	int64_t stride[2]; /* bytes; 0 for a dimension that the tensor does not have */
	int across;        /* 0 or 1: dimension drawn horizontally, the one with the smaller stride */
};

struct order {
	bool has_tile;
	int64_t whole[2]; /* extents of the two dimensions */
	int64_t n[2];     /* elements of them that are drawn */
	struct side src, dst;
};

/* Returns the plan's integer `key` of drawn dimension i, or `none` if the tensor does not have that
 * dimension. */
static int64_t int_of(const tma_document *plan, const char *key, const size_t dim[2], int i, int64_t none)
{
	return dim[i] < tma_document_count(tma_document_find(plan, key)) ? picture_int(plan, key, dim[i])
	                                                                 : none;
}

static void side_init(struct side *side, const tma_document *plan, const char *key, const size_t dim[2],
                      size_t rank)
{
	for (int i = 0; i < 2; i++)
		side->stride[i] = int_of(plan, key, dim, i, 0);
	/* With a single dimension, the missing one has stride 0 and must not be drawn horizontally. */
	side->across = rank > 1 && llabs(side->stride[0]) < llabs(side->stride[1]) ? 0 : 1;
}

/* Chooses the two dimensions to draw. ret[1] is the innermost of the destination. ret[0] is the next one or,
 * for a tile, the one outside ret[1] with the smallest stride in the source. An index of at least `rank`
 * means that the tensor has no such dimension. */
static void choose(const tma_document *plan, size_t rank, bool has_tile, size_t ret[2])
{
	ret[0] = rank > 1 ? rank - 2 : rank;
	ret[1] = rank > 0 ? rank - 1 : rank;
	for (size_t d = 0; has_tile && d + 2 < rank; d++)
		if (llabs(picture_int(plan, "tile_src_strides", d)) <
		    llabs(picture_int(plan, "tile_src_strides", ret[0])))
			ret[0] = d;
}

static void order_init(struct order *o, const tma_document *plan)
{
	const bool has_tile = tma_document_count(tma_document_find(plan, "tile_src_strides")) > 0;
	const char *shape = has_tile ? "tile" : "shape";
	const size_t rank = tma_document_count(tma_document_find(plan, shape));
	size_t dim[2];

	*o = (struct order){ .has_tile = has_tile };
	choose(plan, rank, has_tile, dim);
	side_init(&o->src, plan, has_tile ? "tile_src_strides" : "src_strides", dim, rank);
	side_init(&o->dst, plan, has_tile ? "tile_dst_strides" : "dst_strides", dim, rank);
	for (int i = 0; i < 2; i++) {
		o->whole[i] = int_of(plan, shape, dim, i, 1);
		o->n[i] = o->whole[i] < MOST ? o->whole[i] : MOST;
	}
}

static void draw_side(FILE *file, const struct order *o, const struct side *side, int left, int y,
                      const char *title)
{
	int across = side->across, down = !across;

	svg_text(file, left, y + 34, SVG_START, "head", "%s %s", o->has_tile ? "The tile in" : "Elements in",
	         title);
	svg_text(file, left, y + 54, SVG_START, "axis",
	         "across: %" PRId64 " elements, %" PRId64 " bytes apart", o->whole[across],
	         side->stride[across]);
	svg_text(file, left, y + 72, SVG_START, "axis", "down: %" PRId64 ", %" PRId64 " bytes apart",
	         o->whole[down], side->stride[down]);
	for (int64_t i = 0; i < o->n[down]; i++)
		for (int64_t k = 0; k < o->n[across]; k++) {
			int64_t at[2] = { down == 0 ? i : k, down == 0 ? k : i };
			int64_t number = at[!o->src.across] * o->n[o->src.across] + at[o->src.across];
			int x = left + (int)k * CELL_WIDTH, top = y + TOP + (int)i * CELL_HEIGHT;

			fprintf(file,
			        "<g class=\"element\" data-number=\"%" PRId64 "\" data-offset=\"%" PRId64
			        "\">\n",
			        number, at[0] * side->stride[0] + at[1] * side->stride[1]);
			svg_rect(file, x, top, CELL_WIDTH, CELL_HEIGHT,
			         picture_colours[at[!o->src.across] % 8], "cell");
			svg_text(file, x + CELL_WIDTH / 2, top + 20, SVG_MIDDLE, "mono", "%" PRId64, number);
			svg_group_end(file);
		}
	if (o->whole[across] > o->n[across])
		svg_text(file, left + (int)o->n[across] * CELL_WIDTH + 6, y + TOP + 20, SVG_START, "mono dim",
		         "...");
}

int picture_order_height(const tma_document *plan)
{
	struct order o;
	int64_t rows;

	order_init(&o, plan);
	rows = o.n[!o.src.across] > o.n[!o.dst.across] ? o.n[!o.src.across] : o.n[!o.dst.across];
	return TOP + (int)rows * CELL_HEIGHT + BOTTOM;
}

void picture_order(FILE *file, const tma_document *plan, int y)
{
	int bottom = y + picture_order_height(plan) - BOTTOM;
	struct order o;

	order_init(&o, plan);
	svg_group(file, "source");
	draw_side(file, &o, &o.src, SRC_X, y, "the source");
	svg_group_end(file);
	svg_group(file, "destination");
	draw_side(file, &o, &o.dst, DST_X, y, "the destination");
	svg_group_end(file);
	svg_group(file, "legend");
	svg_text(
	    file, SRC_X, bottom + 34, SVG_START, "axis",
	    "Each colour is a row of the source; each number is an element, counted along the rows as far as "
	    "they are drawn.");
	svg_text(
	    file, SRC_X, bottom + 56, SVG_START, "axis", "%s",
	    o.has_tile
		? "The tiles of this plan do not lie in rows of shared memory that a swizzle could permute."
		: "This plan has no tile: it moves whole runs or single elements.");
	svg_group_end(file);
}
