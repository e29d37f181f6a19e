/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion of elements, built from the options in cast_args once the array's type and shape are known.
 *
 * A list of scales or biases has a number for each element of one dimension of the input, the channels. The
 * library broadcasts operands against the permuted source, so a list extends along the dimension to which the
 * permutation moves the channels.
 */
#ifndef CLIENT_TMACTL_CAST_CAST_H
#define CLIENT_TMACTL_CAST_CAST_H

#include <stdint.h>

#include "cast_args.h"
#include "client/tmactl/copy/view.h"
#include "client/tmactl/npy/descr.h"

struct cast {
	bool is; /* elements are converted; false: they are moved as they are, and the rest is unused */
	enum tma_dtype from, to;
	const struct cast_args *args;
};

/* The operands of one transform, which points to `conversion`, which points to the other members. */
struct cast_request {
	struct tma_conversion conversion;
	struct tma_number scale, bias;
	struct tma_tensor scale_tensor, bias_tensor;
	int64_t stride[TMA_MAX_RANK]; /* strides of both tensors, in elements */
	struct tma_amax amax;
	struct tma_tensor amax_scale;
	int64_t block[TMA_MAX_RANK];
};

/* Sets *ret to the element type of the items of the file at path, whose header is in descr. It is the type of
 * --from-dtype (`as`) or, if `as` is NULL, the header's type. Refuses big-endian items, a type `as` of
 * another size than the items and, if `as` is NULL, items that are not numbers of one of the service's
 * types. */
int cast_source(const struct descr *descr, const enum tma_dtype *as, const char *path, enum tma_dtype *ret,
                struct failure *f);

/* Sets f to the failure that --from-dtype is given although nothing is converted, and returns -1. */
int cast_nothing(enum tma_dtype from, struct failure *f);

/* Initializes *ret from options that cast_args_check() has accepted and that must outlive it. Also sets the
 * members of *view that depend on the conversion: the size of an output item, the dimension of the channels,
 * which must not be fused with others, and the blocks that have scales. */
void cast_init(struct cast *ret, const struct cast_args *args, enum tma_dtype from, struct view_args *view);

/* cast_bytes() returns how many bytes the lists of scales and biases have as float64, or 0 if there are no
 * lists. cast_fill() writes them to ret, the scales before the biases. */
size_t cast_bytes(const struct cast *cast);
void cast_fill(const struct cast *cast, double *ret);

/* Initializes the operands of a transform whose permuted source has `rank` dimensions. Dimension `axis` is
 * that of the channels, and has n of them from channel `first` on. step is 1, -1 if they come in reverse
 * order, or 0 if all elements belong to channel `first`. region holds the lists that cast_fill() has written;
 * NULL if there are none. */
void cast_request_init(struct cast_request *ret, const struct cast *cast, tma_region *region, int rank,
                       int axis, int64_t first, int64_t n, int step);

/* Returns whether scales are computed for blocks of the output (--amax-block). */
static inline bool cast_has_scales(const struct cast *cast)
{
	return cast->is && cast->args->amax.block_text;
}

/* Adds the computation of scales to a request that cast_request_init() has initialized. shape is that of the
 * destination, which has one dimension for each axis of the view. The scales are written to the start of
 * region; it is NULL if the request is only explained or is a template. */
void cast_request_scales(struct cast_request *ret, const struct cast *cast, tma_region *region,
                         const struct view *view, const int64_t *shape);

/* Makes a copied request with scales point to its own members for them. The operands keep pointing to the
 * original. */
void cast_request_point(struct cast_request *q);

#endif
