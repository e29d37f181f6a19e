/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a box of a tile twice: as rows of the source on the left, and as lines of shared memory on the right.
 * A cell is a chunk of 16 bytes, and its colour stands for the banks of shared memory in which the chunk
 * lies. A chunk has the same colour on both sides. The cells of chunk 0 are outlined: threads that walk down
 * a column of the tile read them together. */
#include "picture.h"

#include <inttypes.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "svg.h"
#include "swizzle.h"

enum {
	CELL_WIDTH = 54,
	CELL_HEIGHT = 25,
	CHUNKS = SWIZZLE_LINE / SWIZZLE_CHUNK, /* chunks of a line; also the maximum drawn of a row */
	LINES = 16,                            /* maximum number of lines, and of rows, that are drawn */
	SRC_X = 104,
	SMEM_X = 660,
	TOP = 100,    /* height of the headings above the cells */
	BOTTOM = 168, /* height of the legend below them */
};

struct tile {
	uint64_t row_bytes; /* bytes of a row in shared memory */
	uint64_t rows;      /* rows of a box */
	uint64_t boxes;     /* boxes that make up the tile */
	uint64_t shown;     /* rows that are drawn */
	uint64_t lines;     /* lines of shared memory that are drawn */
	uint64_t element;   /* bytes of an element */
	unsigned bits;      /* address bits that the swizzle changes (swizzle.h) */
	const char *swizzle;
};

static void tile_init(struct tile *t, const tma_document *plan)
{
	size_t rank = tma_document_count(tma_document_find(plan, "tile"));
	uint64_t inner = rank ? (uint64_t)picture_int(plan, "tile", rank - 1) : 0;

	*t = (struct tile){ .row_bytes = (uint64_t)tma_document_int(tma_document_find(plan, "tile_row")),
		            .element = (uint64_t)tma_document_int(tma_document_find(plan, "tile_element")),
		            .rows = 1,
		            .swizzle = field_text(plan, "swizzle") };
	t->bits = swizzle_bits(t->swizzle);
	if (t->element < 1)
		t->element = 1;
	for (size_t d = 0; d + 1 < rank; d++)
		t->rows *= (uint64_t)picture_int(plan, "tile", d);
	t->boxes = (inner * t->element + t->row_bytes - 1) / t->row_bytes;
	t->shown = LINES * SWIZZLE_LINE / t->row_bytes;
	if (t->shown > LINES)
		t->shown = LINES;
	if (t->shown < 1)
		t->shown = 1;
	if (t->shown > t->rows)
		t->shown = t->rows;
	t->lines = (t->shown * t->row_bytes + SWIZZLE_LINE - 1) / SWIZZLE_LINE;
	if (t->lines > LINES)
		t->lines = LINES;
}

static uint64_t chunks_of_row(const struct tile *t)
{
	uint64_t chunks = t->row_bytes / SWIZZLE_CHUNK;

	return chunks < CHUNKS ? chunks : CHUNKS;
}

static uint64_t address_of(const struct tile *t, uint64_t row, uint64_t chunk)
{
	return swizzle_address(row * t->row_bytes + chunk * SWIZZLE_CHUNK, t->bits);
}

static unsigned group_of(uint64_t address)
{
	return (unsigned)(address % SWIZZLE_LINE / SWIZZLE_CHUNK);
}

/* Opens a group, which the caller must end, and draws a chunk in it, with a title that a viewer shows when
 * the mouse is over the chunk. */
static void draw_cell(FILE *file, int x, int y, const struct tile *t, uint64_t row, uint64_t chunk)
{
	uint64_t address = address_of(t, row, chunk);
	unsigned group = group_of(address);

	fprintf(file,
	        "<g class=\"chunk\" data-row=\"%" PRIu64 "\" data-chunk=\"%" PRIu64
	        "\" data-address=\"%" PRIu64 "\"><title>row %" PRIu64 ", bytes %" PRIu64 " to %" PRIu64
	        ": shared memory 0x%03" PRIx64 ", banks %u to %u</title>\n",
	        row, chunk, address, row, chunk * SWIZZLE_CHUNK, chunk * SWIZZLE_CHUNK + SWIZZLE_CHUNK - 1,
	        address, 4 * group, 4 * group + 3);
	svg_rect(file, x, y, CELL_WIDTH, CELL_HEIGHT, picture_colours[group], "cell");
}

static void draw_mark(FILE *file, int x, int y)
{
	svg_rect(file, x + 1, y + 1, CELL_WIDTH - 2, CELL_HEIGHT - 2, NULL, "mark");
}

static void draw_source(FILE *file, const struct tile *t, const tma_document *plan, int y)
{
	size_t rank = tma_document_count(tma_document_find(plan, "tile"));
	uint64_t chunks = chunks_of_row(t);
	int right = SRC_X + (int)chunks * CELL_WIDTH;

	svg_text(file, SRC_X, y + 34, SVG_START, "head", "A box of the tile in the source");
	if (rank > 1)
		svg_text(file, SRC_X, y + 54, SVG_START, "axis", "down: rows, %" PRId64 " bytes apart",
		         picture_int(plan, "tile_src_strides", rank - 2));
	svg_text(file, SRC_X, y + 72, SVG_START, "axis",
	         "across: chunks of 16 bytes, of %" PRIu64 " elements; within: the shared memory address",
	         SWIZZLE_CHUNK / t->element);
	for (uint64_t c = 0; c < chunks; c++)
		svg_text(file, SRC_X + (int)c * CELL_WIDTH + CELL_WIDTH / 2, y + TOP - 5, SVG_MIDDLE,
		         "mono dim", "%" PRIu64, c);
	for (uint64_t r = 0; r < t->shown; r++) {
		int top = y + TOP + (int)r * CELL_HEIGHT;

		svg_text(file, SRC_X - 8, top + 17, SVG_END, "mono dim", "row %" PRIu64, r);
		for (uint64_t c = 0; c < chunks; c++) {
			int x = SRC_X + (int)c * CELL_WIDTH;

			draw_cell(file, x, top, t, r, c);
			svg_text(file, x + CELL_WIDTH / 2, top + 17, SVG_MIDDLE, "mono", "%03" PRIx64,
			         address_of(t, r, c));
			if (c == 0)
				draw_mark(file, x, top);
			svg_group_end(file);
		}
		if (t->row_bytes / SWIZZLE_CHUNK > chunks)
			svg_text(file, right + 6, top + 17, SVG_START, "mono dim", "...");
	}
}

/* Draws shared memory line by line, and labels each place with the row and the chunk that lie there. The
 * swizzle is its own inverse, so swizzle_address() also finds the chunk of an address. */
static void draw_memory(FILE *file, const struct tile *t, int y)
{
	svg_text(file, SMEM_X, y + 34, SVG_START, "head", "The same box in shared memory, swizzle %s",
	         t->swizzle);
	svg_text(file, SMEM_X, y + 54, SVG_START, "axis", "down: lines of 128 bytes; across: banks");
	svg_text(file, SMEM_X, y + 72, SVG_START, "axis", "within: row . chunk");
	for (unsigned g = 0; g < CHUNKS; g++)
		svg_text(file, SMEM_X + (int)g * CELL_WIDTH + CELL_WIDTH / 2, y + TOP - 5, SVG_MIDDLE,
		         "mono dim", "%u-%u", 4 * g, 4 * g + 3);
	for (uint64_t line = 0; line < t->lines; line++) {
		int top = y + TOP + (int)line * CELL_HEIGHT;

		svg_text(file, SMEM_X - 8, top + 17, SVG_END, "mono dim", "0x%03" PRIx64,
		         line * SWIZZLE_LINE);
		for (unsigned g = 0; g < CHUNKS; g++) {
			uint64_t place = line * SWIZZLE_LINE + g * SWIZZLE_CHUNK;
			uint64_t from = swizzle_address(place, t->bits);
			uint64_t row = from / t->row_bytes, chunk = from % t->row_bytes / SWIZZLE_CHUNK;
			int x = SMEM_X + (int)g * CELL_WIDTH;

			if (row >= t->rows)
				continue;
			draw_cell(file, x, top, t, row, chunk);
			svg_text(file, x + CELL_WIDTH / 2, top + 17, SVG_MIDDLE, "mono",
			         "%" PRIu64 ".%" PRIu64, row, chunk);
			if (chunk == 0)
				draw_mark(file, x, top);
			svg_group_end(file);
		}
	}
}

/* Returns how many groups of four banks the first chunks of eight rows lie in. Sets *ret_rows to the number
 * of rows, which is less than eight for a smaller tile. */
static unsigned column_groups(const struct tile *t, unsigned *ret_rows)
{
	unsigned seen = 0, rows = 0;

	for (; rows < CHUNKS && rows < t->rows; rows++)
		seen |= 1u << group_of(address_of(t, rows, 0));
	*ret_rows = rows;
	return (unsigned)__builtin_popcount(seen);
}

static void draw_legend(FILE *file, const struct tile *t, int y)
{
	static const char *const rules[] = { "the address is unchanged", "a[4] ^= a[7]", "a[5:4] ^= a[8:7]",
		                             "a[6:4] ^= a[9:7]" };
	unsigned rows, groups = column_groups(t, &rows);

	svg_group(file, "legend");
	for (unsigned g = 0; g < CHUNKS; g++) {
		svg_rect(file, SRC_X + (int)g * 120, y, 16, 16, picture_colours[g], "cell");
		svg_text(file, SRC_X + (int)g * 120 + 22, y + 13, SVG_START, "axis", "banks %u-%u", 4 * g,
		         4 * g + 3);
	}
	svg_rect(file, SRC_X, y + 30, 16, 16, NULL, "mark");
	svg_text(
	    file, SRC_X + 22, y + 43, SVG_START, "axis",
	    "chunk 0 of each row, a column of the tile: %u rows lie in %u group%s of banks, so %u %s read at once",
	    rows, groups, groups == 1 ? "" : "s", groups, groups == 1 ? "is" : "are");
	svg_text(file, SRC_X, y + 72, SVG_START, "axis", "swizzle %s: %s%s", t->swizzle, rules[t->bits],
	         t->bits == 3   ? ", the same again every 1024 bytes"
	         : t->bits == 2 ? ", the same again every 512 bytes"
	         : t->bits == 1 ? ", the same again every 256 bytes"
	                        : "; the unit stores the tile too, and no thread reads it");
	svg_text(file, SRC_X, y + 94, SVG_START, "axis",
	         "a box is %" PRIu64 " rows of %" PRIu64 " bytes, of which %" PRIu64
	         " are drawn; the tile is %" PRIu64 " box%s, %" PRIu64 " bytes",
	         t->rows, t->row_bytes, t->shown, t->boxes, t->boxes == 1 ? "" : "es",
	         t->boxes * t->rows * t->row_bytes);
	svg_group_end(file);
}

int picture_tile_height(const tma_document *plan)
{
	struct tile t;

	tile_init(&t, plan);
	return TOP + (int)(t.lines > t.shown ? t.lines : t.shown) * CELL_HEIGHT + BOTTOM;
}

void picture_tile(FILE *file, const tma_document *plan, int y)
{
	struct tile t;

	tile_init(&t, plan);
	svg_group(file, "source");
	draw_source(file, &t, plan, y);
	svg_group_end(file);
	svg_group(file, "shared");
	draw_memory(file, &t, y);
	svg_group_end(file);
	draw_legend(file, &t, y + TOP + (int)(t.lines > t.shown ? t.lines : t.shown) * CELL_HEIGHT + 34);
}
