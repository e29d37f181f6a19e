/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion of an array whose type and shape are known: what cast_args asks for, as the library takes it.
 *
 * A list has a number for each element of one dimension of the input, the channels. The library's operands
 * broadcast against the permuted source, so a list lies along the dimension that the channels become.
 */
#ifndef CLIENT_TMACTL_CAST_CAST_H
#define CLIENT_TMACTL_CAST_CAST_H

#include <stdint.h>

#include "cast_args.h"
#include "client/tmactl/copy/view.h"
#include "client/tmactl/npy/descr.h"

struct cast {
	bool is; /* false: elements are moved as they are */
	enum tma_dtype from, to;
	const struct cast_args *args;
};

/* What a transform points to. */
struct cast_request {
	struct tma_conversion conversion;
	struct tma_number scale, bias;
	struct tma_tensor scale_tensor, bias_tensor;
	int64_t stride[TMA_MAX_RANK];
	struct tma_amax amax;
	struct tma_tensor amax_scale;
	int64_t block[TMA_MAX_RANK];
};

/* The type of the items of the file at path; as: --from-dtype, or NULL. Refuses those that are numbers of
 * none of the service's types. */
int cast_source(const struct descr *descr, const enum tma_dtype *as, const char *path, enum tma_dtype *ret,
                struct failure *f);

/* Fails because --from-dtype names a type, but no option converts. */
int cast_nothing(enum tma_dtype from, struct failure *f);

/* args has been checked and outlives the cast. Tells `view` which dimension to keep apart, how large items
 * become, and which blocks have scales. */
void cast_init(struct cast *ret, const struct cast_args *args, enum tma_dtype from, struct view_args *view);

/* Bytes of the lists, as they lie in a region: scale, then bias; 0: both are numbers. */
size_t cast_bytes(const struct cast *cast);
void cast_fill(const struct cast *cast, double *ret);

/* The conversion of a transform whose dimension `axis`, of rank, has n channels from `first` on, one after
 * the other in direction `step`: 1, -1, or 0 for the same one. region: of cast_bytes, or NULL. */
void cast_request_init(struct cast_request *ret, const struct cast *cast, tma_region *region, int rank,
                       int axis, int64_t first, int64_t n, int step);

/* Whether scales are computed. */
static inline bool cast_has_scales(const struct cast *cast)
{
	return cast->is && cast->args->amax.block_text;
}

/* And for that: scales of the blocks of a destination of this shape, which has an axis of the view for each
 * dimension. They are written to the start of a region, or to none (NULL). */
void cast_request_scales(struct cast_request *ret, const struct cast *cast, tma_region *region,
                         const struct view *view, const int64_t *shape);

/* Sets the pointers of a copy to what is its own. */
void cast_request_point(struct cast_request *q);

#endif
