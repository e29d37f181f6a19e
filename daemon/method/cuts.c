/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the shapes, strides and places of a request. */
#include "cuts.h"

/* A tensor or an operand, for a cut. */
struct cut_view {
	enum dtype dtype;
	bool is_strided;
	struct int_list *shape, *strides;
	uint64_t *offset;
};

static void cut_view(const struct cut_view *view, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t rank = view->shape->n;
	int64_t stride = 1;

	for (uint32_t d = rank; !view->is_strided && d-- > 0; stride *= view->shape->v[d])
		view->strides->v[d] = stride;
	view->strides->n = rank;
	*view->offset += (uint64_t)(at * view->strides->v[dim]) * dtype_size(view->dtype);
	view->shape->v[dim] = rows;
}

static void cut_tensor(struct msg_tensor *tensor, uint32_t dim, int64_t at, int64_t rows)
{
	cut_view(&(struct cut_view){ tensor->dtype, tensor->has & F(tensor, strides), &tensor->shape,
	                             &tensor->strides, &tensor->offset },
	         dim, at, rows);
	tensor->has |= F(tensor, strides);
}

/* One that broadcasts along the dimension stays as it is. rank: of what it is aligned with. */
static void cut_operand(struct msg_operand *operand, uint32_t rank, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t missing = rank - operand->shape.n;

	if ((operand->has & F(operand, number)) || dim < missing || operand->shape.v[dim - missing] == 1)
		return;
	cut_view(&(struct cut_view){ operand->dtype, operand->has & F(operand, strides), &operand->shape,
	                             &operand->strides, &operand->offset },
	         dim - missing, at, rows);
	operand->has |= F(operand, strides);
}

void transform_may_cut(const struct msg_transform *params, bool may[TENSOR_MAX_RANK])
{
	const bool is_split = (params->dst.has | params->src.has) & F(tensor, split);

	for (uint32_t d = 0; d < params->dst.shape.n; d++)
		may[d] = !is_split && !((params->has & F(transform, amax))) &&
		         !((params->has & F(transform, before)) && params->before.v[d]) &&
		         !((params->has & F(transform, after)) && params->after.v[d]);
}

uint32_t transform_src_dim(const struct msg_transform *params, uint32_t dim)
{
	return params->has & F(transform, perm) ? (uint32_t)params->perm.v[dim] : dim;
}

void transform_cut(struct msg_transform *params, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t rank = params->dst.shape.n;

	cut_tensor(&params->dst, dim, at, rows);
	cut_tensor(&params->src, transform_src_dim(params, dim), at, rows);
	if (params->has & F(transform, scale))
		cut_operand(&params->scale, rank, dim, at, rows);
	if (params->has & F(transform, bias))
		cut_operand(&params->bias, rank, dim, at, rows);
}
