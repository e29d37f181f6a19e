/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a transform as rows of contiguous bytes, for who copies what it reads or writes and no more
 * than that; and the transform of what has been copied. Pure. */
#ifndef KERNELS_NEST_ROW_BOX_H
#define KERNELS_NEST_ROW_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* Rows that follow each other by axes, the nearest first: n steps of stride bytes. */
struct row_box {
	uint64_t row_bytes;
	int rank;
	struct {
		uint64_t n;
		uint64_t stride;
	} axis[TENSOR_MAX_RANK];
};

/* The first row begins at the first byte that the transform reads, or writes. false: there is none, or rows
 * run backwards, or lie among each other. */
bool row_box_init_src(struct row_box *ret, const struct transform *t);
bool row_box_init_dst(struct row_box *ret, const struct transform *t);

/* Bytes of all rows. */
uint64_t row_box_bytes(const struct row_box *box);

/* The transform of a side whose rows follow each other without gaps, the first at its element [0, ..., 0].
 * There has to be a box. Layouts stay as the request gave them. */
void row_box_pack_src(struct transform *t);
void row_box_pack_dst(struct transform *t);

#endif
