/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a row into a request and checks its result. */
#include "row.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/transform/transform.h"
#include "proto/arithmetic.h"
#include "proto/scalar.h"
#include "tests/support/oracle.h"

#define SAMPLES           100000
#define SAMPLES_OF_BLOCKS 2000 /* samples, for each of which the whole block is searched */
#define NEAR              9    /* elements from an end within which samples are near it */

static int set_amax(const struct bench_row *row, const int64_t *shape, struct amax_spec *ret,
                    struct error *err)
{
	int64_t blocks[BENCH_MAX_RANK];

	ret->is_given = ret->scale.is_given = true;
	ret->n_block = row->rank;
	for (int d = 0; d < row->rank; d++) {
		ret->block[d] = row->amax[d];
		blocks[d] = divide_up_i64(shape[d], row->amax[d]);
	}
	return tensor_layout_init(&ret->scale.layout, DTYPE_FLOAT32, row->rank, blocks, NULL, "scale", err);
}

int bench_row_spec(const struct bench_row *row, struct transform_spec *ret, int64_t *ret_first,
                   struct error *err)
{
	int64_t stride[BENCH_MAX_RANK], shape[BENCH_MAX_RANK], step = 1;
	int inner = row->rank - 1, r;
	bool moved = false;

	*ret = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	ret->value.u = row->value;
	for (int d = inner; d >= 0; d--) {
		stride[d] = step;
		step = step * row->shape[d] + (d == inner ? row->gap : 0);
		moved = moved || row->perm[d];
	}
	*ret_first = row->offset;
	if (row->repeated)
		stride[0] = 0;
	for (int d = 0; d < row->rank; d++)
		if (row->reversed >> (inner - d) & 1) {
			*ret_first += (row->shape[d] - 1) * stride[d];
			stride[d] = -stride[d];
		}
	for (int d = 0; d < row->rank; d++) {
		ret->perm[d] = moved ? row->perm[d] : d;
		ret->before[d] = row->before[d];
		ret->after[d] = row->after[d];
		shape[d] = row->shape[ret->perm[d]] + row->before[d] + row->after[d];
	}
	r = tensor_layout_init(&ret->src, row->dtype, row->rank, row->shape, stride, "src", err);
	if (r < 0)
		return r;
	ret->conversion.is_given = row->converts;
	ret->conversion.scale.kind = row->scale ? OPERAND_NUMBER : OPERAND_NONE;
	r = tensor_layout_init(&ret->dst, row->converts ? row->to : row->dtype, row->rank, shape, NULL, "dst",
	                       err);
	return r < 0 || !row->amax[0] ? r : set_amax(row, shape, &ret->conversion.amax, err);
}

/* Decodes a floating-point code with these numbers of bits. Without has_infinity, only the largest code is a
 * NaN. */
static double small_value(uint32_t code, int exponent_bits, int fraction_bits, bool has_infinity)
{
	const int most = (1 << exponent_bits) - 1, bias = most / 2;
	const int exponent = (int)(code >> fraction_bits) & most;
	const int fraction = (int)code & ((1 << fraction_bits) - 1);
	const double sign = code >> (exponent_bits + fraction_bits) ? -1 : 1;

	if (exponent == most && has_infinity)
		return fraction ? NAN : sign * INFINITY;
	if (exponent == most && fraction == (1 << fraction_bits) - 1)
		return NAN;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - fraction_bits);
	return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/* Returns the value of an element of a converting row's source, whose types are limited. */
static double value_of(enum dtype dtype, const uint8_t *at)
{
	uint16_t half;
	int32_t word;
	int64_t wide;
	float value;

	switch (dtype) {
	case DTYPE_UINT8:
		return *at;
	case DTYPE_BFLOAT16:
		memcpy(&half, at, sizeof(half));
		uint32_t bits = (uint32_t)half << 16;
		memcpy(&value, &bits, sizeof(value));
		return (double)value;
	case DTYPE_FLOAT16:
		memcpy(&half, at, sizeof(half));
		return small_value(half, 5, 10, true);
	case DTYPE_FLOAT8_E4M3FN:
		return small_value(*at, 4, 3, false);
	case DTYPE_INT32:
		memcpy(&word, at, sizeof(word));
		return word;
	case DTYPE_INT64:
		memcpy(&wide, at, sizeof(wide));
		/* Rounding must happen once: of the bits that a double lacks, the lowest one kept says
		 * whether any is set. */
		if (wide >= INT64_C(1) << 53 || wide <= -(INT64_C(1) << 53))
			wide = (wide & ~INT64_C(0x7ff)) | (wide & 0x7ff ? 0x800 : 0);
		return (double)wide;
	default:
		memcpy(&value, at, sizeof(value));
		return (double)value;
	}
}

/* Rounds towards zero and saturates: the type is uint8 or int32. */
static bool is_integer(enum dtype to, const uint8_t *dst, double value)
{
	const double least = to == DTYPE_INT32 ? INT32_MIN : 0,
		     most = to == DTYPE_INT32 ? INT32_MAX : UINT8_MAX;
	int32_t word = 0;

	memcpy(&word, dst, dtype_size(to));
	return value != value || word == (int32_t)(value < least ? least : value > most ? most : value);
}

/* Returns the factor for the elements of the block of rank 2 at index; src is the source's element at
 * index. */
static float inverse_at(const struct bench_row *row, const int64_t *index, const uint8_t *src)
{
	struct amax amax;
	const struct tensor_layout layout = { .dtype = row->to };
	const struct amax_spec spec = { .is_given = true,
		                        .scale.is_given = true,
		                        .scale.layout.dtype = DTYPE_FLOAT32 };
	struct error err;
	uint16_t most = 0, at;
	int64_t first = index[0] % row->amax[0] * row->shape[1] + index[1] % row->amax[1];

	amax_init(&amax, &spec, &layout, row->dtype, &err); /* a layout of the same types and rank 0 */
	for (int64_t i = 0; i < row->amax[0]; i++)
		for (int64_t j = 0; j < row->amax[1]; j++) {
			memcpy(&at, src + (i * row->shape[1] + j - first) * 2, sizeof(at));
			at &= 0x7fff;
			most = at > most ? at : most;
		}
	return amax_scale_of(&amax.rule, (uint32_t)most << 16).inverse;
}

/* Returns whether dst holds the converted value in its type; any NaN is accepted. */
static bool is_converted(const struct bench_row *row, const int64_t *index, const uint8_t *dst,
                         const uint8_t *src)
{
	const double most = row->to == DTYPE_FLOAT8_E4M3FN ? 448
	                    : row->to == DTYPE_FLOAT16     ? 65504
	                    : row->to == DTYPE_BFLOAT16    ? 0x1.fep127
	                                                   : (double)FLT_MAX;
	double value = value_of(row->dtype, src);
	uint8_t bytes[TENSOR_MAX_ELEMENT];
	struct scalar scalar = { .kind = SCALAR_FLOATING };
	struct error err;

	if (row->scale)
		value = (double)((float)value * (float)row->scale);
	if (row->amax[0])
		value = (double)((float)value * inverse_at(row, index, src));
	if (dtype_class(row->to) != DTYPE_CLASS_FLOATING)
		return is_integer(row->to, dst, value);
	if (row->to == DTYPE_FLOAT32)
		value = (double)(float)value;
	scalar.re = value > most ? most : value < -most ? -most : value;
	scalar_encode(&scalar, row->to, bytes, "value", &err);
	return value != value || !memcmp(dst, bytes, dtype_size(row->to));
}

int bench_row_check(const struct bench_row *row, const struct transform_spec *spec, const uint8_t *dst,
                    const uint8_t *src, struct error *err)
{
	uint8_t value[TENSOR_MAX_ELEMENT];
	uint32_t size = dtype_size(spec->dst.dtype);
	uint64_t state = 7;
	int r = scalar_encode(&spec->value, spec->dst.dtype, value, "value", err);

	if (r < 0)
		return r;
	for (int i = 0; i < (row->amax[0] ? SAMPLES_OF_BLOCKS : SAMPLES); i++) {
		int64_t index[BENCH_MAX_RANK], to, from;

		for (int d = 0; d < row->rank; d++) {
			int64_t high = spec->dst.shape[d] - 1, near = high < NEAR ? high : NEAR;

			if (i % 4 != 0)
				index[d] = oracle_between(&state, 0, high);
			else if (oracle_between(&state, 0, 1))
				index[d] = oracle_between(&state, 0, near);
			else
				index[d] = high - oracle_between(&state, 0, near);
		}
		bool read = oracle_element(spec, index, &to, &from);
		bool is_right = row->converts && read ? is_converted(row, index, dst + to, src + from)
		                                      : !memcmp(dst + to, read ? src + from : value, size);

		if (!is_right) {
			char text[64];

			return error_set(err, STATUS_INTERNAL, "wrong bytes at %s of the destination",
			                 tensor_shape_text(row->rank, index, text, sizeof text));
		}
	}
	return 0;
}
