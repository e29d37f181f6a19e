/* SPDX-License-Identifier: Apache-2.0 */
/* The software model's prediction for one tile: shared memory after a load; or the tensor's bytes after a
 * store, and the bytes around them that a unit which writes whole 16-byte pieces would touch. The tensor lies
 * in an image, the host's copy of all device memory that tensors may occupy. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_EXPECT_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance_draw.h"

#define IMAGE_BYTES  (8u << 20)
#define IMAGE_ORIGIN (256u << 10) /* offset in the image of a draw's offset 0 */

/* The bytes of the image that a tile may touch. */
struct window {
	uint64_t first;
	uint64_t end;
};

/* Returns false if some of the tile lies outside the image. If the tile touches no byte, first == end. */
bool expect_window(const struct draw *draw, struct window *ret);

/* Writes the tile into shared memory, and 1 into marks for each byte written. */
void expect_load(const struct draw *draw, const unsigned char *image, unsigned char *shared,
                 unsigned char *marks);

/* Lists where the tile's 16-byte pieces, in order, are found in n bytes of shared memory, if that is not
 * where the model puts them, such as "0 32=16 -1=48"; -1 means nowhere. The list may be cut off. */
void expect_print_pieces(const struct draw *draw, const unsigned char *want, const unsigned char *got,
                         uint32_t n, char *text, size_t size);

/* Writes the aligned 16 bytes, of n, that include byte at. Returns text. */
#define EXPECT_PIECE_TEXT 48
const char *expect_print_piece(const unsigned char *bytes, uint64_t at, uint64_t n, char *text);

/* Returns whether a store of the tile starts before 0, which the unit does not accept. */
bool expect_is_before(const struct draw *draw);

/* Returns whether a store of the tile ends within a piece. The unit then writes to the end of the piece, but
 * the model does not. */
bool expect_is_ragged(const struct draw *draw);

/* What a byte of the window means to a store. */
enum role {
	ROLE_NONE,
	ROLE_TILE,        /* part of the tile */
	ROLE_PAST_EXTENT, /* between the last element of a tensor's row and the next multiple of 16 */
	ROLE_PAST_TILE,   /* between the tile's last element and the next multiple of 16, within the tensor */
	ROLE_BEFORE_TILE, /* between a multiple of 16 and the tile's first element */
	BYTE_ROLE_COUNT
};

extern const char *const byte_role_names[BYTE_ROLE_COUNT];

/* Sets the role of each byte of the window in roles (IMAGE_BYTES of them), and writes the tile into the
 * image. Returns false, without changing anything, if bytes of the tile overlap, or overlap the surroundings
 * of others. */
bool expect_store(const struct draw *draw, const unsigned char *tile, const struct window *window,
                  unsigned char *image, unsigned char *roles);

#endif
