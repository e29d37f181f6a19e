/* SPDX-License-Identifier: Apache-2.0 */
/* Both regions are taken to begin at multiples of 4096, so that alignments are those of real addresses. */
#include "permute_walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "permute_place.h"

#define SECTOR      32
#define DST_REGION  0x100000
#define SRC_REGION  0x8000000
#define MOST_SHARED (227 * 1024)
#define FILL        (-1) /* marks a fill value instead of a source byte */
#define GAP         (-2) /* marks a byte that must not be written */
#define WRITTEN     (-3)

struct walk {
	const struct tma_route_plan *tma;
	const struct permute_args *args;
	int64_t low; /* bounds of the source's region, in bytes */
	int64_t high;
	int64_t dst_region; /* size of the destination's region in bytes */
	/* Per byte of the destination's region: offset of the source byte, or FILL or GAP. */
	int32_t *expected;
	int32_t *slots; /* per byte of shared memory: offset of the source byte, as in expected */
	uint8_t *taken; /* per chunk of shared memory: whether a load has written it */
	char *text;
	size_t text_size;
};

__attribute__((format(printf, 3, 4))) static bool flaw(struct walk *walk, const struct permute_place *t,
                                                       const char *format, ...)
{
	int n = snprintf(walk->text, walk->text_size, "tile %ld: ", (long)t->number);
	va_list args;

	va_start(args, format);
	vsnprintf(walk->text + n, walk->text_size - (size_t)n, format, args);
	va_end(args);
	return false;
}

/* ---- Loads --------------------------------------------------------------------------------------------- */

static bool bring(struct walk *walk, const struct permute_place *t)
{
	const struct permute_args *args = walk->args;

	for (int64_t i = 0; i < args->loads && !t->outside; i++) {
		const int64_t src = permute_load_of(args, t, i);
		const int64_t from = PERMUTE_SLOTS_AT + permute_in_slots(args, i, src),
			      end = from + t->load_bytes;

		if (src < 0)
			continue;
		if (src < walk->low || src + t->load_bytes > walk->high)
			return flaw(
			    walk, t, "load %ld is of %ld bytes from %ld on, the source's are [%ld, %ld)",
			    (long)i, (long)t->load_bytes, (long)src, (long)walk->low, (long)walk->high);
		if ((from - src) % (args->phase_mask + 1) || end > args->rows_at)
			return flaw(walk, t, "load %ld goes to [%ld, %ld) of %u", (long)i, (long)from,
			            (long)end, args->rows_at);
		for (int64_t at = from / 16; at < (end + 15) / 16; at++) {
			if (walk->taken[at])
				return flaw(walk, t, "load %ld has chunk %ld of another", (long)i, (long)at);
			walk->taken[at] = 1;
		}
		for (int64_t at = from; at < end; at++)
			walk->slots[at] = (int32_t)(src + at - from);
	}
	return true;
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* Checks what the kernels rely on for a row that has bytes. */
static bool check_row(struct walk *walk, const struct permute_place *t, int64_t number,
                      const struct permute_row *row)
{
	const struct permute_args *args = walk->args;
	const int64_t phase = row->dst % 16, chunks = (int64_t)args->by_chunks.n;
	const int64_t copy = phase >> args->phase_shift;

	if (row->bytes > args->row_bytes)
		return flaw(walk, t, "row %ld has %ld bytes of %u", (long)number, (long)row->bytes,
		            args->row_bytes);
	if (!args->ragged && phase)
		return flaw(walk, t, "row %ld begins %ld bytes into a chunk", (long)number, (long)phase);
	if (phase + row->bytes > 16 * chunks)
		return flaw(walk, t, "row %ld has more than %ld chunks", (long)number, (long)chunks);
	if (args->how == PERMUTE_ELEMENTS &&
	    (copy >= args->phases || phase - (copy << args->phase_shift) > (walk->tma->element < 4 ? 3 : 0)))
		return flaw(walk, t, "there is no copy of the table for row %ld", (long)number);
	if (args->how == PERMUTE_WORDS) {
		const int64_t element = walk->tma->element, within = number % (1 << args->log_group);
		const struct permute_row group = permute_row_of(args, t, number - within);

		if (group.bytes == 0 || group.border != row->border)
			return flaw(walk, t, "row %ld is not of the same kind as its group", (long)number);
		if (row->border)
			return true;
		if (row->at != group.at + within * element || group.at % args->aligned)
			return flaw(walk, t, "row %ld is not the next one of its group", (long)number);
	}
	return true;
}

/* Checks that the table of pieces gives the same element offset as the per-element computation. at is -1 for
 * border. */
static bool check_piece(struct walk *walk, const struct permute_place *t, int64_t j, int64_t at)
{
	const struct permute_args *args = walk->args;
	const int64_t piece = (int64_t)args->by_piece.n, first = j / piece * piece,
		      from = permute_element_of(args, t, first / walk->tma->element);

	if (j / piece >= args->pieces)
		return flaw(walk, t, "byte %ld is past the last piece", (long)j);
	if (at >= 0 ? from < 0 || at - from != j - first : from >= 0)
		return flaw(walk, t, "byte %ld does not follow its piece", (long)j);
	return true;
}

static bool write_byte(struct walk *walk, const struct permute_place *t, int64_t number,
                       const struct permute_row *row, int64_t to)
{
	const struct permute_args *args = walk->args;
	const int64_t element = walk->tma->element, j = to - row->dst, place = to - DST_REGION;
	const int64_t at = row->border ? -1 : permute_element_of(args, t, j / element);
	const int64_t from = PERMUTE_SLOTS_AT + row->at + at;
	int32_t *expected, got = FILL;

	if (place < 0 || place >= walk->dst_region)
		return flaw(walk, t, "row %ld writes to %ld of %ld", (long)number, (long)place,
		            (long)walk->dst_region);
	expected = &walk->expected[place];
	if (*expected == GAP || *expected == WRITTEN)
		return flaw(walk, t, "row %ld writes byte %ld, which is %s", (long)number, (long)place,
		            *expected == GAP ? "none of the tensor's" : "written already");
	if (args->how == PERMUTE_PIECES && !row->border &&
	    !check_piece(walk, t, j, at >= 0 ? at + j % element : -1))
		return false;
	if (at >= 0) {
		if (from % (element < 16 ? element : 16) || from + element > args->rows_at ||
		    row->at + at > UINT16_MAX || (args->how == PERMUTE_WORDS && at % args->aligned))
			return flaw(walk, t, "byte %ld of row %ld is at %ld", (long)j, (long)number,
			            (long)from);
		got = walk->slots[from + j % element];
	}
	if (got != *expected)
		return flaw(walk, t, "byte %ld of row %ld, %ld of the destination, is from %d, not %d",
		            (long)j, (long)number, (long)place, got < 0 ? got : got - SRC_REGION,
		            *expected < 0 ? *expected : *expected - SRC_REGION);
	*expected = WRITTEN;
	return true;
}

/* A tile writes the whole sector that its row shares with the previous tile, and leaves the sector shared
 * with the next tile to that one. */
static bool write_rows(struct walk *walk, const struct permute_place *t)
{
	const struct permute_args *args = walk->args;
	const bool is_inner =
	    args->how != PERMUTE_PIECES && !t->last && (args->how == PERMUTE_WORDS || !t->first);
	const int64_t chunks = (int64_t)(is_inner ? args->by_inner_chunks.n : args->by_chunks.n);

	for (int64_t i = 0; i < args->rows; i++) {
		const struct permute_row row = permute_row_of(args, t, i);
		int64_t from = row.dst + t->margin * args->row_unit, end = row.dst + row.bytes;

		if (row.bytes == 0)
			continue;
		if (row.dst < t->dst || row.dst - t->dst > UINT32_MAX - 2 * MOST_SHARED)
			return flaw(walk, t, "row %ld is %ld bytes from the tile's lowest address", (long)i,
			            (long)(row.dst - t->dst));
		if (!args->exact && !t->first)
			from -= from % SECTOR;
		if (!args->exact && !t->last)
			end -= end % SECTOR;
		if (from < row.dst)
			return flaw(walk, t, "row %ld has too small a margin", (long)i);
		if (end - (args->how == PERMUTE_WORDS ? row.dst : from) / 16 * 16 > 16 * chunks)
			return flaw(walk, t, "row %ld ends after %ld chunks", (long)i, (long)chunks);
		if (!check_row(walk, t, i, &row))
			return false;
		for (int64_t to = from; to < end; to++)
			if (!write_byte(walk, t, i, &row, to))
				return false;
	}
	return true;
}

/* ---- The border --------------------------------------------------------------------------------------- */

/* Marks the border that another launch fills: a box on either side of each dimension for which the launch has
 * tiles. */
static bool fill_border(struct walk *walk, const struct oracle_case *c)
{
	const struct tma_route_plan *tma = walk->tma;
	const struct strided_dim *dim = tma->border;
	uint64_t tiles = 0;

	for (uint32_t b = 0; b < 2 * tma->border_rank && tiles < tma->border_tiles; b++) {
		const struct permute_place none = { .number = -1 };
		int64_t index[ARGS_MAX_RANK] = { 0 };
		uint32_t d = border_rows(dim, tma->border_rank, b) ? 0 : tma->border_rank;

		tiles += border_tiles(dim, tma->border_rank, b, tma->border_element);
		while (d < tma->border_rank) {
			int64_t to = (int64_t)c->dst_offset + tma->border_dst_offset;

			for (d = 0; d < tma->border_rank; d++)
				to += (border_box(dim, tma->border_rank, b, d).start + index[d]) * dim[d].dst;
			for (uint32_t k = 0; k < tma->border_element; k++, to++) {
				if (to < 0 || to >= walk->dst_region || walk->expected[to] == GAP ||
				    walk->expected[to] == WRITTEN)
					return flaw(walk, &none, "box %u of the border has byte %ld", b,
					            (long)to);
				walk->expected[to] = WRITTEN;
			}
			for (d = 0; d < tma->border_rank; d++) {
				if (++index[d] < border_box(dim, tma->border_rank, b, d).n)
					break;
				index[d] = 0;
			}
		}
	}
	return true;
}

/* ---- The whole ----------------------------------------------------------------------------------------- */

static void expect(struct walk *walk, const struct oracle_case *c)
{
	const struct tensor_layout *dst = &c->spec.dst;
	const int64_t element = (int64_t)dtype_size(dst->dtype);
	int64_t index[TENSOR_MAX_RANK] = { 0 }, to, from;
	int d;

	for (int64_t i = 0; i < walk->dst_region; i++)
		walk->expected[i] = GAP;
	do {
		const bool inside = oracle_element(&c->spec, index, &to, &from);

		to += (int64_t)c->dst_offset;
		for (int64_t k = 0; k < element; k++)
			walk->expected[to + k] =
			    inside ? (int32_t)(SRC_REGION + (int64_t)c->src_offset + from + k) : FILL;
		for (d = dst->rank - 1; d >= 0 && ++index[d] == dst->shape[d]; d--)
			index[d] = 0;
	} while (d >= 0);
}

/* Sets the bounds that a launch would find. */
static void set_bounds(struct walk *walk, const struct oracle_case *c)
{
	const struct tma_route_plan *tma = walk->tma;

	walk->low = SRC_REGION + (int64_t)c->src_offset + tma->src_offset;
	walk->high = walk->low + tma->element;
	for (uint32_t d = 0; d < tma->rank; d++) {
		const int64_t reach = (tma->dim[d].source - 1) * tma->dim[d].src;

		*(reach < 0 ? &walk->low : &walk->high) += reach;
	}
}

static bool walk_tiles(struct walk *walk, const struct oracle_case *c)
{
	const uint32_t shared = walk->args->shared;

	for (int64_t number = 0; number < (int64_t)walk->tma->tiles; number++) {
		const struct permute_place t =
		    permute_place_of(walk->tma, DST_REGION + (int64_t)c->dst_offset,
		                     SRC_REGION + (int64_t)c->src_offset, number);

		if (walk->args->exact && t.margin)
			return flaw(walk, &t, "rows have a margin, and exact ends");
		memset(walk->slots, 0xff, shared * sizeof *walk->slots);
		memset(walk->taken, 0, shared / 16 + 1);
		if (!bring(walk, &t) || !write_rows(walk, &t))
			return false;
	}
	if (!fill_border(walk, c))
		return false;
	for (int64_t i = 0; i < walk->dst_region; i++)
		if (walk->expected[i] != GAP && walk->expected[i] != WRITTEN)
			return flaw(walk, &(struct permute_place){ .number = -1 }, "byte %ld is not written",
			            (long)i);
	return true;
}

bool permute_walk(const struct tma_route_plan *tma, const struct oracle_case *c, char *text, size_t text_size)
{
	struct walk walk = {
		.tma = tma,
		.args = &tma->permute,
		.dst_region = (int64_t)c->dst_size,
		.expected = malloc((c->dst_size + 1) * sizeof *walk.expected),
		.slots = malloc(MOST_SHARED * sizeof *walk.slots),
		.taken = malloc(MOST_SHARED / 16 + 1),
		.text = text,
		.text_size = text_size,
	};
	bool ok = false;

	if (!walk.expected || !walk.slots || !walk.taken) {
		snprintf(text, text_size, "out of memory");
	} else if (tma->permute.shared > MOST_SHARED) {
		snprintf(text, text_size, "%u bytes of shared memory", tma->permute.shared);
	} else {
		expect(&walk, c);
		set_bounds(&walk, c);
		ok = walk_tiles(&walk, c);
	}
	free(walk.expected);
	free(walk.slots);
	free(walk.taken);
	return ok;
}
