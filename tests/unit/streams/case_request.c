/* SPDX-License-Identifier: Apache-2.0 */
#include "case_request.h"

static const struct tma_tensor *view_of(struct case_view *ret, const struct tensor_layout *layout,
                                        uint64_t address)
{
	ret->tensor = (struct tma_tensor){ .offset = address,
		                           .dtype = (enum tma_dtype)layout->dtype,
		                           .rank = layout->rank,
		                           .strides = ret->strides };
	for (int d = 0; d < layout->rank; d++) {
		ret->tensor.shape[d] = layout->shape[d];
		ret->strides[d] = layout->stride[d];
	}
	return &ret->tensor;
}

static struct tma_number number_of(const struct scalar *scalar)
{
	switch (scalar->kind) {
	case SCALAR_UNSIGNED:
		return (struct tma_number){ .kind = TMA_NUMBER_UINT, .u = scalar->u };
	case SCALAR_SIGNED:
		return (struct tma_number){ .kind = TMA_NUMBER_INT, .i = scalar->i };
	case SCALAR_FLOATING:
		return (struct tma_number){ .kind = TMA_NUMBER_REAL, .re = scalar->re };
	default:
		return (struct tma_number){ .kind = TMA_NUMBER_COMPLEX, .re = scalar->re, .im = scalar->im };
	}
}

/* Sets *ret_number or *ret_tensor if the operand, a scale or bias, is a number or a tensor, and neither if
 * there is none. */
static void set_operand(const struct operand_spec *spec, const struct operand_case *operand, uint64_t address,
                        struct tma_number *number, struct case_view *view,
                        const struct tma_number **ret_number, const struct tma_tensor **ret_tensor)
{
	*number = (struct tma_number){ .kind = TMA_NUMBER_REAL, .re = operand->number };
	if (spec->kind == OPERAND_NUMBER)
		*ret_number = number;
	else if (spec->kind == OPERAND_TENSOR)
		*ret_tensor = view_of(view, &spec->layout, address + operand->offset);
}

static void set_conversion(struct case_request *ret, const struct conversion_case *c,
                           const struct case_places *places)
{
	const struct conversion_spec *spec = &c->c.spec.conversion;
	struct tma_conversion *conversion = &ret->conversion;

	*conversion = (struct tma_conversion){ .cast = (enum tma_cast)spec->cast };
	set_operand(&spec->scale, &c->scale, places->scale, &ret->scale, &ret->scale_view, &conversion->scale,
	            &conversion->scale_tensor);
	set_operand(&spec->bias, &c->bias, places->bias, &ret->bias, &ret->bias_view, &conversion->bias,
	            &conversion->bias_tensor);
	ret->transform.conversion = conversion;
}

void case_request_init(struct case_request *ret, const struct conversion_case *c, bool converts,
                       const struct case_places *places)
{
	const struct transform_spec *spec = &c->c.spec;

	ret->transform = (struct tma_transform){
		.dst = view_of(&ret->dst_view, &spec->dst, places->dst + c->c.dst_offset),
		.src = view_of(&ret->src_view, &spec->src, places->src + c->c.src_offset),
		.perm = spec->n_perm >= 0 ? ret->perm : NULL,
		.before = spec->n_before >= 0 ? spec->before : NULL,
		.after = spec->n_after >= 0 ? spec->after : NULL,
		.mode = (enum tma_pad_mode)spec->mode,
		.value = number_of(&spec->value),
	};
	for (int d = 0; d < spec->n_perm; d++)
		ret->perm[d] = (int)spec->perm[d];
	if (converts)
		set_conversion(ret, c, places);
}

static void split_view(struct case_view *view, const struct split_list *list)
{
	for (int i = 0; i < list->n; i++) {
		view->split[2 * i] = list->dim[i];
		view->split[2 * i + 1] = list->by[i];
	}
	view->tensor.split = view->split;
	view->tensor.n_split = (size_t)list->n;
}

void case_request_split(struct case_request *request, const struct split_list *dst,
                        const struct split_list *src)
{
	split_view(&request->dst_view, dst);
	split_view(&request->src_view, src);
}
