/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that move a list of blocks: the index list, and the check of the result. */
#ifndef TESTS_BENCH_LISTS_H
#define TESTS_BENCH_LISTS_H

#include "kernels/engine.h"
#include "row.h"

/* Makes the blocks of a row. One side has twice as many as the row says, of which the list picks random ones,
 * none twice; on the other side they follow each other. *ret_index is the memory that ret->index points to;
 * the caller frees it. */
int bench_list_init(const struct bench_row *row, const struct transform *transform, struct engine_blocks *ret,
                    int32_t **ret_index, struct error *err);

/* Returns the bytes of the larger side. */
uint64_t bench_list_bytes(const struct engine_blocks *blocks);

/* Checks random blocks and the last one against the oracle. dst and src point to the first blocks. */
int bench_list_check(const struct engine_blocks *blocks, const struct transform_spec *spec,
                     const uint8_t *dst, const uint8_t *src, struct error *err);

#endif
