/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that move a list of blocks: the index list, and how the result is checked. */
#ifndef TESTS_BENCH_LISTS_H
#define TESTS_BENCH_LISTS_H

#include "kernels/engine.h"
#include "row.h"

/* The blocks of a row: as many as it says, picked by chance and none twice, out of twice as many; the others
 * one after the other. *ret_index is what ret->index points to, and the caller's to free. */
int bench_list_init(const struct bench_row *row, const struct transform *transform, struct engine_blocks *ret,
                    int32_t **ret_index, struct error *err);

/* Bytes of the larger side. */
uint64_t bench_list_bytes(const struct engine_blocks *blocks);

/* Blocks picked by chance, and the last: whether each is what the oracle says. dst and src: where the first
 * ones lie. */
int bench_list_check(const struct engine_blocks *blocks, const struct transform_spec *spec,
                     const uint8_t *dst, const uint8_t *src, struct error *err);

#endif
