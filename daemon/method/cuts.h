/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts transforms into transforms of their own, each of some rows of the destination. */
#ifndef DAEMON_METHOD_CUTS_H
#define DAEMON_METHOD_CUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/schema.h"

/* The dimensions of dst along which rows are made of as many rows of src: those without pads and crops, and
 * none of a transform with splits or amax. The transform has been checked. */
void transform_may_cut(const struct msg_transform *params, bool may[TENSOR_MAX_RANK]);

/* That of src which becomes a dimension of dst. */
uint32_t transform_src_dim(const struct msg_transform *params, uint32_t dim);

/* Leaves the part of it that makes so many rows of dst, in a dimension that may be cut. */
void transform_cut(struct msg_transform *params, uint32_t dim, int64_t at, int64_t rows);

#endif
