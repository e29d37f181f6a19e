/* SPDX-License-Identifier: Apache-2.0 */
/* A transform as the flags say it: a shape and an element type, of a file or made up, with --permute, --pad,
 * --mode, --value, --split, --join and the group cast. */
#ifndef CLIENT_TMACTL_TRANSFORM_REQUEST_H
#define CLIENT_TMACTL_TRANSFORM_REQUEST_H

#include "client/tmactl/cast/cast.h"
#include "client/tmactl/npy/npy.h"
#include "client/tmactl/copy/view.h"

/* The transform points into it: it may not be moved. Its regions are NULL. */
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

/* No file's: C order, of rank and shape that npy has already. */
int transform_request_shape(struct npy *npy, enum tma_dtype dtype, struct failure *f);

/* dtype: NULL for that of the file, whose items may be several elements. cast: how they are converted. */
int transform_request_init(struct transform_request *ret, const struct npy *npy, const enum tma_dtype *dtype,
                           const struct view_args *args, const struct cast *cast,
                           const struct tma_number *value, struct failure *f);

/* Sets the pointers of a copy to what is its own. */
void transform_request_point(struct transform_request *q, bool has_perm, bool has_pads);

#endif
