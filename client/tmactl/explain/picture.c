/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the page of a picture: a heading in words, and below it the tile or the order of elements. */
#include "picture.h"

#include <inttypes.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "client/tmactl/terminal/print.h"
#include "svg.h"
#include "words.h"

#define HEAD_HEIGHT 112
#define MARGIN      40

/* Readers with impaired colour vision can tell these colours apart (after Okabe and Ito), and dark text is
 * readable on them. */
const char *const picture_colours[8] = { "#8ecae6", "#ffd166", "#95d5b2", "#f4a6c0",
	                                 "#c8b6ff", "#ffb38a", "#b5c99a", "#cfd8dc" };

int64_t picture_int(const tma_document *plan, const char *key, size_t i)
{
	return tma_document_int(tma_document_at(tma_document_find(plan, key), i, NULL));
}

static void print_shape(char *text, size_t size, int rank, const int64_t *shape)
{
	size_t len = (size_t)snprintf(text, size, "[");

	for (int d = 0; d < rank && len < size; d++)
		len += (size_t)snprintf(text + len, size - len, "%s%" PRId64, d ? ", " : "", shape[d]);
	if (len < size)
		snprintf(text + len, size - len, "]");
}

static void draw_head(FILE *file, const struct transform_request *q, const tma_document *plan)
{
	char src[200], dst[200], bytes[32];

	print_shape(src, sizeof src, q->src.rank, q->src.shape);
	print_shape(dst, sizeof dst, q->dst.rank, q->dst.shape);
	svg_text(file, MARGIN, 46, SVG_START, "title", "%s on %s", field_text(plan, "family"),
	         field_text(plan, "engine"));
	svg_text(
	    file, MARGIN, 72, SVG_START, "sub", "%s %.90s -> %.90s, %s read + written",
	    tma_dtype_name(q->src.dtype), src, dst,
	    print_bytes((uint64_t)tma_document_int(tma_document_find(plan, "bytes")), bytes, sizeof bytes));
	svg_text(file, MARGIN, 94, SVG_START, "sub", "%s", words_of_family(plan));
}

void picture_draw(FILE *file, const struct transform_request *request, const tma_document *plan)
{
	bool in_rows = tma_document_int(tma_document_find(plan, "tile_row")) > 0;
	int height = in_rows ? picture_tile_height(plan) : picture_order_height(plan);

	svg_begin(file, PICTURE_WIDTH, HEAD_HEIGHT + height, "How tmad moves a tensor");
	draw_head(file, request, plan);
	svg_line(file, MARGIN, HEAD_HEIGHT - 2, PICTURE_WIDTH - MARGIN, HEAD_HEIGHT - 2, "rule");
	if (in_rows)
		picture_tile(file, plan, HEAD_HEIGHT);
	else
		picture_order(file, plan, HEAD_HEIGHT);
	svg_end(file);
}
