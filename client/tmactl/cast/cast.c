/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the types of both sides of a conversion, and builds the library's operands, which are numbers or
 * tensors. */
#include "cast.h"

#include <inttypes.h>
#include <string.h>

#include "proto/arithmetic.h"

/* ---- Types -------------------------------------------------------------------------------------------- */

/* Returns names of types that items of this size may have, for a message, or NULL if no type that can be
 * converted has the size. */
static const char *guess_of(uint64_t bytes)
{
	switch (bytes) {
	case 1:
		return "float8_e4m3fn or float8_e5m2";
	case 2:
		return "bfloat16";
	case 4:
		return "float32";
	case 8:
		return "int64";
	default:
		return NULL;
	}
}

int cast_source(const struct descr *descr, const enum tma_dtype *as, const char *path, enum tma_dtype *ret,
                struct failure *f)
{
	const bool is_known =
	    descr->dtype >= 0 && !strcmp(descr->name, tma_dtype_name((enum tma_dtype)descr->dtype));

	if (descr->swap_bytes)
		return fail(f, EXIT_FAILED,
		            "%s: big-endian items cannot be converted; save them as "
		            "array.astype(array.dtype.newbyteorder('<'))",
		            path);
	if (as && tma_dtype_size(*as) != descr->item_bytes)
		return fail(f, EXIT_USAGE,
		            "--from-dtype %s: its elements have %zu bytes, but the items of %s have %" PRIu64,
		            tma_dtype_name(*as), tma_dtype_size(*as), path, descr->item_bytes);
	if (!as && !is_known && !guess_of(descr->item_bytes))
		return fail(f, EXIT_FAILED,
		            "%s: items of %s cannot be converted: they have %" PRIu64
		            " bytes, but numbers have 1, 2, 4 or 8",
		            path, descr->name, descr->item_bytes);
	if (!as && !is_known)
		return fail(f, EXIT_FAILED,
		            "%s: items of %s cannot be converted, unless --from-dtype says what numbers they "
		            "are, such as %s",
		            path, descr->name, guess_of(descr->item_bytes));
	*ret = as ? *as : (enum tma_dtype)descr->dtype;
	return 0;
}

int cast_nothing(enum tma_dtype from, struct failure *f)
{
	return fail(f, EXIT_USAGE,
	            "--from-dtype %s: nothing is converted; --to-dtype is the type of the output",
	            tma_dtype_name(from));
}

/* Returns the longer of the lists of scales and biases. */
static const struct cast_list *list_of(const struct cast_args *args)
{
	return args->scale.n >= args->bias.n ? &args->scale : &args->bias;
}

void cast_init(struct cast *ret, const struct cast_args *args, enum tma_dtype from, struct view_args *view)
{
	const struct cast_list *list = list_of(args);

	*ret = (struct cast){ .from = from, .to = args->type.name ? args->type.dtype : from, .args = args };
	ret->is = ret->to != from || args->has_cast || list->n > 0 || args->amax.block_text;
	if (!ret->is)
		return;
	view->dst_item_bytes = tma_dtype_size(ret->to);
	view->channel = args->axis_text ? args->axis : -1;
	view->channels = list->n > 1 ? (int64_t)list->n : 0;
	view->channels_text = list->text;
	view->block_text = args->amax.block_text;
	view->n_block = args->amax.n_block;
	memcpy(view->block, args->amax.block, sizeof view->block);
	view->scale_item_bytes = (uint32_t)tma_dtype_size(args->amax.dtype);
}

/* ---- Operands ----------------------------------------------------------------------------------------- */

static size_t list_bytes(const struct cast_list *list)
{
	return list->n > 1 ? list->n * sizeof *list->v : 0;
}

size_t cast_bytes(const struct cast *cast)
{
	return cast->is ? list_bytes(&cast->args->scale) + list_bytes(&cast->args->bias) : 0;
}

void cast_fill(const struct cast *cast, double *ret)
{
	const struct cast_list *const lists[] = { &cast->args->scale, &cast->args->bias };

	for (int i = 0; i < 2; i++)
		for (size_t k = 0; lists[i]->n > 1 && k < lists[i]->n; k++)
			*ret++ = lists[i]->v[k];
}

void cast_request_init(struct cast_request *ret, const struct cast *cast, tma_region *region, int rank,
                       int axis, int64_t first, int64_t n, int step)
{
	const struct cast_list *scale = &cast->args->scale, *bias = &cast->args->bias;
	struct tma_tensor tensor = { .region = region, .dtype = TMA_FLOAT64, .rank = rank - axis };

	*ret = (struct cast_request){ .conversion.cast = cast->args->cast };
	for (int d = 0; d < tensor.rank; d++)
		tensor.shape[d] = 1;
	if (step)
		tensor.shape[0] = n;
	ret->stride[0] = step;
	tensor.strides = ret->stride;
	tensor.offset = (uint64_t)(step < 0 ? first + n - 1 : first) * sizeof(double);
	ret->scale = (struct tma_number){ .kind = TMA_NUMBER_REAL, .re = scale->n ? scale->v[0] : 0 };
	ret->bias = (struct tma_number){ .kind = TMA_NUMBER_REAL, .re = bias->n ? bias->v[0] : 0 };
	ret->scale_tensor = ret->bias_tensor = tensor;
	ret->bias_tensor.offset += list_bytes(scale);
	if (scale->n > 1)
		ret->conversion.scale_tensor = &ret->scale_tensor;
	else if (scale->n)
		ret->conversion.scale = &ret->scale;
	if (bias->n > 1)
		ret->conversion.bias_tensor = &ret->bias_tensor;
	else if (bias->n)
		ret->conversion.bias = &ret->bias;
}

/* ---- Scales ------------------------------------------------------------------------------------------- */

void cast_request_scales(struct cast_request *ret, const struct cast *cast, tma_region *region,
                         const struct view *view, const int64_t *shape)
{
	const struct amax_args *args = &cast->args->amax;

	ret->amax = (struct tma_amax){ .power_of_two = args->power_of_two, .least = args->least };
	ret->amax_scale =
	    (struct tma_tensor){ .region = region, .dtype = args->dtype, .rank = view->out_rank };
	for (int d = 0; d < view->out_rank; d++) {
		ret->block[d] = view_block(&view->axis[d]);
		ret->amax_scale.shape[d] = divide_up_i64(shape[d], ret->block[d]);
	}
	cast_request_point(ret);
}

void cast_request_point(struct cast_request *q)
{
	q->amax.block = q->block;
	q->amax.scale = &q->amax_scale;
	q->conversion.amax = &q->amax;
}
