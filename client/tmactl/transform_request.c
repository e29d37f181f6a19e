/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a transform of the library from options and a shape. */
#include "transform_request.h"

int transform_request_shape(struct npy *npy, enum tma_dtype dtype, struct failure *f)
{
	bool overflow = false;

	npy->count = 1;
	for (int d = 0; d < npy->rank; d++)
		overflow |= __builtin_mul_overflow(npy->count, (uint64_t)npy->shape[d], &npy->count);
	if (overflow || npy->count > INT64_MAX / 32)
		return fail(f, EXIT_USAGE, "--shape: the number of bytes overflows 62 bits");
	npy->descr.item_bytes = tma_dtype_size(dtype);
	return 0;
}

/* Returns the type of the elements as which an item is moved. An item that is not of one of the service's
 * types is moved as elements of the largest size, up to 16 bytes, that divides its own. *ret_n is then set to
 * the number of elements in an item; if it is more than 1, they need a last dimension of their own. */
static enum tma_dtype element_of(const struct npy *npy, int64_t *ret_n)
{
	static const enum tma_dtype carriers[] = { TMA_UINT8, TMA_UINT16, TMA_UINT32, TMA_UINT64,
		                                   TMA_COMPLEX128 };
	uint64_t bytes = npy->descr.item_bytes;
	int i = 0;

	if (npy->descr.dtype >= 0)
		return (enum tma_dtype)npy->descr.dtype;
	while (i < 4 && bytes && bytes % (UINT64_C(2) << i) == 0)
		i++;
	*ret_n = (int64_t)(bytes >> i);
	return carriers[i];
}

int transform_request_init(struct transform_request *ret, const struct npy *npy, const enum tma_dtype *dtype,
                           const struct view_args *args, const struct cast *cast,
                           const struct tma_number *value, struct failure *f)
{
	struct transform_request *q = ret;
	int rank = npy->rank, middle;
	struct view view;
	int64_t run = 1;

	if (view_init(&view, npy, args, f) < 0)
		return -1;
	middle = view.middle_rank;
	*q = (struct transform_request){ .transform = { .mode = args->mode, .value = *value },
		                         .src_split = view.src_split,
		                         .dst_split = view.dst_split };
	q->src.dtype = q->dst.dtype = dtype ? *dtype : element_of(npy, &run);
	if (run != 1) {
		if (middle == TMA_MAX_RANK)
			return fail(f, EXIT_FAILED,
			            "%s items need a dimension of their own, and there are already %d",
			            npy->descr.name, middle);
		q->src.shape[rank] = q->dst.shape[view.out_rank] = run;
		q->strides[rank] = 1;
		q->perm[middle] = middle;
	}
	q->src.rank = rank + (run != 1);
	q->dst.rank = view.out_rank + (run != 1);
	for (int k = 0; k < rank; k++) {
		int i = npy->fortran ? k : rank - 1 - k;

		q->src.shape[i] = npy->shape[i];
		q->strides[i] = run;
		run *= npy->count ? npy->shape[i] : 1; /* The header's parser has excluded an overflow. */
	}
	for (int d = 0; d < view.out_rank; d++)
		q->dst.shape[d] = view.out_shape[d];
	for (int d = 0; d < middle; d++) {
		q->perm[d] = view_dimension(args, middle, d);
		q->before[d] = args->before[d];
		q->after[d] = args->after[d];
	}
	if (npy->fortran)
		q->src.strides = q->strides;
	transform_request_point(q, args->permute, args->pad);
	if (!cast->is)
		return 0;
	q->src.dtype = cast->from;
	q->dst.dtype = cast->to;
	cast_request_init(&q->cast, cast, NULL, middle, view.channel_of < 0 ? 0 : view.channel_of, 0,
	                  args->channels, 1);
	if (cast_has_scales(cast))
		cast_request_scales(&q->cast, cast, NULL, &view, q->dst.shape);
	q->transform.conversion = &q->cast.conversion;
	return 0;
}

void transform_request_point(struct transform_request *q, bool has_perm, bool has_pads)
{
	q->transform.src = &q->src;
	q->transform.dst = &q->dst;
	q->transform.perm = has_perm ? q->perm : NULL;
	q->transform.before = has_pads ? q->before : NULL;
	q->transform.after = has_pads ? q->after : NULL;
	q->src.n_split = q->src_split.n;
	q->src.split = q->src_split.n ? q->src_split.pair : NULL;
	q->dst.n_split = q->dst_split.n;
	q->dst.split = q->dst_split.n ? q->dst_split.pair : NULL;
}
