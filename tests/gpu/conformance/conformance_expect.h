/* SPDX-License-Identifier: Apache-2.0 */
/* What the software model says of one tile: a load's shared memory, a store's bytes in the tensor and the
 * bytes around them that a unit which writes in whole 16-byte pieces would touch.
 *
 * The tensor lies in an image, the host's copy of all device memory that tensors may lie in.
 */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_EXPECT_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance_draw.h"

#define IMAGE_BYTES  (8u << 20)
#define IMAGE_ORIGIN (256u << 10) /* what offset 0 of a draw is */

/* Bytes of the image that a tile may touch. */
struct window {
	uint64_t first;
	uint64_t end;
};

/* false: some of the tile lies past the image. No byte at all: first == end. */
bool expect_window(const struct draw *draw, struct window *ret);

/* Writes the tile into shared memory, and 1 into marks where it has. */
void expect_load(const struct draw *draw, const unsigned char *image, unsigned char *shared,
                 unsigned char *marks);

/* Where the tile's 16-byte pieces, in order, are found in n bytes of shared memory, and where that is not
 * where the model has them: "0 32=16 -1=48"; -1 is nowhere. As many as fit. */
void expect_print_pieces(const struct draw *draw, const unsigned char *want, const unsigned char *got,
                         uint32_t n, char *text, size_t size);

/* The 16 of n bytes that byte at is one of. Returns text. */
#define EXPECT_PIECE_TEXT 48
const char *expect_print_piece(const unsigned char *bytes, uint64_t at, uint64_t n, char *text);

/* Whether a store of it starts before 0, which the unit does not take. */
bool expect_is_before(const struct draw *draw);

/* Whether a store of it ends within a piece, where the unit goes on to the piece's end and the model stops.
 */
bool expect_is_ragged(const struct draw *draw);

/* What a byte of the window is to a store. */
enum role {
	ROLE_NONE,
	ROLE_TILE,        /* written */
	ROLE_PAST_EXTENT, /* after the tensor's last element of a row, to the next multiple of 16 */
	ROLE_PAST_TILE,   /* the same after the tile's last element, within the tensor */
	ROLE_BEFORE_TILE, /* the same before the tile's first element */
	BYTE_ROLE_COUNT
};

extern const char *const byte_role_names[BYTE_ROLE_COUNT];

/* Says of each byte of the window what it is, in roles (IMAGE_BYTES of them), and writes the tile into the
 * image. false, and nothing is changed: bytes of the tile meet each other, or what lies around others. */
bool expect_store(const struct draw *draw, const unsigned char *tile, const struct window *window,
                  unsigned char *image, unsigned char *roles);

#endif
