/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan as SVG, for tmactl explain --svg. */
#ifndef CLIENT_TMACTL_EXPLAIN_PICTURE_H
#define CLIENT_TMACTL_EXPLAIN_PICTURE_H

#include <stdio.h>

#include "client/tmactl/transform_request.h"
#include "client/tmaclient.h"

/* Writes a complete SVG document. If a write fails, ferror(file) is set. */
void picture_draw(FILE *file, const struct transform_request *request, const tma_document *plan);

/* ---- Its parts ------------------------------------------------------------------------------------------
 */

#define PICTURE_WIDTH 1120

/* The colours of groups of banks in a tile, and of rows in an order of elements. */
extern const char *const picture_colours[8];

/* Returns integer i of the plan's list `key`, or 0 if there is none. */
int64_t picture_int(const tma_document *plan, const char *key, size_t i);

/* picture_tile() draws a tile that lies in rows of shared memory, and the place to which the swizzle moves
 * each chunk. y is the upper edge of the drawing on the page, and picture_tile_height() returns its height,
 * both in pixels. */
int picture_tile_height(const tma_document *plan);
void picture_tile(FILE *file, const tma_document *plan, int y);

/* picture_order() draws the order of elements in the source and in the destination, for a plan whose tiles do
 * not lie in rows of shared memory. y and picture_order_height() are as above. */
int picture_order_height(const tma_document *plan);
void picture_order(FILE *file, const tma_document *plan, int y);

#endif
