/* SPDX-License-Identifier: Apache-2.0 */
/* What a transform reads, as rows of contiguous bytes, for who brings no more than that; and the transform of
 * what has been brought. Pure. */
#ifndef KERNELS_PLAN_SOURCE_BOX_H
#define KERNELS_PLAN_SOURCE_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "transform.h"

/* Rows that follow each other by axes, the nearest first: n steps of stride bytes. */
struct source_box {
	uint64_t row_bytes;
	int rank;
	struct {
		uint64_t n;
		uint64_t stride;
	} axis[TENSOR_MAX_RANK];
};

/* The first row begins at the transform's first byte read. false: it reads nothing, or rows backwards, or
 * rows that lie among each other. */
bool source_box_init(struct source_box *ret, const struct transform *t);

/* Bytes of all rows. */
uint64_t source_box_bytes(const struct source_box *box);

/* The transform of a source whose rows follow each other without gaps, the first at its element [0, ..., 0].
 * There has to be a box. src_layout stays as the request gave it. */
void source_box_pack(struct transform *t);

#endif
