/* SPDX-License-Identifier: Apache-2.0 */
/* A transform built from command-line options: an array, whose shape and element type come from a file or
 * from --shape and --dtype, with --permute, --pad, --mode, --value, --split, --join and the options of the
 * groups cast and amax. */
#ifndef CLIENT_TMACTL_TRANSFORM_REQUEST_H
#define CLIENT_TMACTL_TRANSFORM_REQUEST_H

#include "client/tmactl/cast/cast.h"
#include "client/tmactl/npy/npy.h"
#include "client/tmactl/copy/view.h"

/* `transform` points to the other members, so the struct must not be moved; a copy needs
 * transform_request_point(). The regions of the tensors are NULL. */
struct transform_request {
	int64_t strides[TMA_MAX_RANK];
	int perm[TMA_MAX_RANK];
	int64_t before[TMA_MAX_RANK];
	int64_t after[TMA_MAX_RANK];
	struct view_splits src_split;
	struct view_splits dst_split;
	struct tma_tensor src;
	struct tma_tensor dst;
	struct cast_request cast;
	struct tma_transform transform;
};

/* Completes npy for an array that is not in a file: sets the number of items and their size. rank and shape
 * must be set already, and the array is in C order. */
int transform_request_shape(struct npy *npy, enum tma_dtype dtype, struct failure *f);

/* Initializes *ret. dtype is the element type. If it is NULL, the type is taken from the file, and an item
 * may consist of several elements. cast says how elements are converted, and value is what padding with mode
 * constant fills in. */
int transform_request_init(struct transform_request *ret, const struct npy *npy, const enum tma_dtype *dtype,
                           const struct view_args *args, const struct cast *cast,
                           const struct tma_number *value, struct failure *f);

/* Makes a copied request point to its own members. perm, before and after are passed on only if has_perm and
 * has_pads say so. Not for requests in Fortran order or with a conversion, whose strides and operands it
 * leaves pointing to the original. */
void transform_request_point(struct transform_request *q, bool has_perm, bool has_pads);

#endif
