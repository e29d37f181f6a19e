/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the model's own walk over a tile, with offsets in the image as addresses; both have the same alignment
 * of 256. */
#include "conformance_expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/softgpu/model/tile.h"

const char *const byte_role_names[BYTE_ROLE_COUNT] = {
	[ROLE_NONE] = "nowhere near the tile",
	[ROLE_TILE] = "the tile",
	[ROLE_PAST_EXTENT] = "past the tensor's inner extent",
	[ROLE_PAST_TILE] = "past the tile's inner end",
	[ROLE_BEFORE_TILE] = "before the tile's inner start",
};

static void begin(struct tile_walk *walk, const struct draw *draw)
{
	tile_begin(walk, &draw->layout, IMAGE_ORIGIN + draw->offset, draw->at, 0);
}

static uint64_t down(uint64_t at)
{
	return at - at % TILE_PIECE;
}

static uint64_t up(uint64_t at)
{
	return down(at + TILE_PIECE - 1);
}

bool expect_window(const struct draw *draw, struct window *ret)
{
	struct tile_walk walk;
	struct tile_piece piece;

	*ret = (struct window){ 0 };
	begin(&walk, draw);
	while (tile_next(&walk, &piece)) {
		uint64_t first = down(piece.global + piece.first), end = up(piece.global + piece.last);

		if (piece.first == piece.last)
			continue;
		if (end > IMAGE_BYTES || first > end)
			return false;
		if (ret->first == ret->end)
			*ret = (struct window){ first, end };
		ret->first = first < ret->first ? first : ret->first;
		ret->end = end > ret->end ? end : ret->end;
	}
	return true;
}

void expect_load(const struct draw *draw, const unsigned char *image, unsigned char *shared,
                 unsigned char *marks)
{
	struct tile_walk walk;
	struct tile_piece piece;

	begin(&walk, draw);
	while (tile_next(&walk, &piece)) {
		unsigned char *to = shared + piece.shared;

		memset(marks + piece.shared, 1, TILE_PIECE);
		tile_fill(&draw->layout, to);
		if (piece.first == piece.last)
			continue;
		memcpy(to + piece.first, image + piece.global + piece.first, piece.last - piece.first);
		tile_convert(&draw->layout, to, piece.first, piece.last);
	}
}

/* Returns where the piece is: at its intended place, or else at the first place with the same bytes; -1 if
 * there is none. */
static int64_t find_piece(const unsigned char *piece, uint32_t meant, const unsigned char *in, uint32_t n)
{
	if (!memcmp(in + meant, piece, TILE_PIECE))
		return meant;
	for (uint32_t at = 0; at + TILE_PIECE <= n; at += TILE_PIECE)
		if (!memcmp(in + at, piece, TILE_PIECE))
			return at;
	return -1;
}

void expect_print_pieces(const struct draw *draw, const unsigned char *want, const unsigned char *got,
                         uint32_t n, char *text, size_t size)
{
	struct tile_walk walk;
	struct tile_piece piece;
	size_t used = 0;

	*text = '\0';
	begin(&walk, draw);
	while (tile_next(&walk, &piece) && used + sizeof " 123456=123456" < size) {
		int64_t at = find_piece(want + piece.shared, piece.shared, got, n);

		used += (size_t)sprintf(text + used, " %" PRId64, at);
		if (at != piece.shared)
			used += (size_t)sprintf(text + used, "=%u", piece.shared);
	}
}

const char *expect_print_piece(const unsigned char *bytes, uint64_t at, uint64_t n, char *text)
{
	at = down(at);
	*text = '\0';
	for (uint64_t i = at, used = 0; i < at + TILE_PIECE && i < n; i++)
		used += (uint64_t)sprintf(text + used, "%02x", bytes[i]);
	return text;
}

/* ---- Stores ------------------------------------------------------------------------------------------ */

bool expect_is_before(const struct draw *draw)
{
	for (uint32_t d = 0; d < draw->layout.rank; d++)
		if (draw->at[d] < 0)
			return true;
	return false;
}

bool expect_is_ragged(const struct draw *draw)
{
	struct tile_walk walk;
	struct tile_piece piece;

	begin(&walk, draw);
	while (tile_next(&walk, &piece))
		if (piece.first < piece.last && piece.last - piece.first < TILE_PIECE)
			return true;
	return false;
}

static bool mark(unsigned char *roles, uint64_t first, uint64_t end, enum role role)
{
	for (uint64_t at = first; at < end; at++) {
		if (roles[at] != ROLE_NONE)
			return false;
		roles[at] = (unsigned char)role;
	}
	return true;
}

/* Marks the bytes around a piece at the start or end of a row, or at the end of the tensor. */
static bool mark_margins(unsigned char *roles, const struct tile_piece *piece, bool starts, bool ends)
{
	uint64_t end = piece->global + piece->last;

	if (piece->first == piece->last)
		return true;
	if (starts && piece->first == 0 && !mark(roles, down(piece->global), piece->global, ROLE_BEFORE_TILE))
		return false;
	if (piece->last < TILE_PIECE)
		return mark(roles, end, up(end), ROLE_PAST_EXTENT);
	return !ends || mark(roles, end, up(end), ROLE_PAST_TILE);
}

static bool mark_all(const struct draw *draw, unsigned char *roles)
{
	struct tile_walk walk;
	struct tile_piece piece;

	begin(&walk, draw);
	while (tile_next(&walk, &piece))
		if (piece.first < piece.last &&
		    !mark(roles, piece.global + piece.first, piece.global + piece.last, ROLE_TILE))
			return false;

	begin(&walk, draw);
	for (;;) {
		uint32_t in_row = walk.in_row;

		if (!tile_next(&walk, &piece))
			return true;
		if (!mark_margins(roles, &piece, in_row == 0, in_row + TILE_PIECE == walk.row_bytes))
			return false;
	}
}

bool expect_store(const struct draw *draw, const unsigned char *tile, const struct window *window,
                  unsigned char *image, unsigned char *roles)
{
	struct tile_walk walk;
	struct tile_piece piece;

	memset(roles + window->first, ROLE_NONE, window->end - window->first);
	if (!mark_all(draw, roles))
		return false;
	begin(&walk, draw);
	while (tile_next(&walk, &piece))
		if (piece.first < piece.last)
			memcpy(image + piece.global + piece.first, tile + piece.shared + piece.first,
			       piece.last - piece.first);
	return true;
}
