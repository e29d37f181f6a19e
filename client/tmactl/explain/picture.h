/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl explain --svg: a drawing of a plan. */
#ifndef CLIENT_TMACTL_EXPLAIN_PICTURE_H
#define CLIENT_TMACTL_EXPLAIN_PICTURE_H

#include <stdio.h>

#include "client/tmactl/transform_request.h"
#include "client/tmaclient.h"

/* A whole document. What cannot be written is the file's error. */
void picture_draw(FILE *file, const struct transform_request *request, const tma_document *plan);

/* ---- Its parts ------------------------------------------------------------------------------------------
 */

#define PICTURE_WIDTH 1120

/* Of banks, and of rows. */
extern const char *const picture_colours[8];

/* Item i of the plan's list `key`; 0 when it has none. */
int64_t picture_int(const tma_document *plan, const char *key, size_t i);

/* A tile in rows of shared memory: where the swizzle puts each chunk. Returns the height. */
int picture_tile_height(const tma_document *plan);
void picture_tile(FILE *file, const tma_document *plan, int y);

/* No shared memory: where elements lie in the source and in the destination. */
int picture_order_height(const tma_document *plan);
void picture_order(FILE *file, const tma_document *plan, int y);

#endif
