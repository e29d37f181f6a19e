/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which scales can be requested, their values, and how blocks lie in loop nests. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/nest/loop_nest.h"

#define LAYOUT(type, rank_, ...)                                    \
	{                                                           \
		.dtype = DTYPE_##type, .rank = (rank_), __VA_ARGS__ \
	}
#define RESULT(type, ...)                                                                                 \
	{                                                                                                 \
		.is_given = true, .layout = LAYOUT(type, 2, .shape = { __VA_ARGS__ }, .stride = { 3, 1 }) \
	}
#define GIVEN .is_given = true, .n_block = 2, .block = { 2, 4 }

/* ---- What is refused -------------------------------------------------------------------------------- */

static const struct refused {
	enum dtype to, from;
	struct amax_spec spec;
	const char *message;
} refused[] = {
	{ DTYPE_FLOAT8_E4M3FN,
	  DTYPE_INT16,
	  { GIVEN },
	  "amax: src is int16, but it must be float32, or a floating type of 8 or 16 bits" },
	{ DTYPE_FLOAT8_E4M3FN,
	  DTYPE_FLOAT64,
	  { GIVEN },
	  "amax: src is float64, but it must be float32, or a floating type of 8 or 16 bits" },
	{ DTYPE_BOOL,
	  DTYPE_FLOAT32,
	  { GIVEN },
	  "amax: dst is bool, but it must be float32, or a floating type of 8 or 16 bits" },
	{ DTYPE_FLOAT64,
	  DTYPE_FLOAT32,
	  { GIVEN },
	  "amax: dst is float64, but it must be float32, or a floating type of 8 or 16 bits" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN },
	  "amax: scale and inverse are missing; at least one of them is written" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .scale = RESULT(FLOAT32, 3, 3), .least = -0.5 },
	  "amax.least: -0.5, but it must be 0 or more" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .scale = RESULT(FLOAT32, 3, 3), .least = NAN },
	  "amax.least: nan, but it must be 0 or more" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { .is_given = true, .n_block = 3, .scale = RESULT(FLOAT32, 3, 3) },
	  "amax.block: length 3, but dst has rank 2; each dimension needs one entry" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { .is_given = true, .n_block = 2, .block = { 2, 0 }, .scale = RESULT(FLOAT32, 3, 3) },
	  "amax.block: dimension 1 is 0, but it must be 1 or more" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .scale = RESULT(FLOAT64, 3, 3) },
	  "amax.scale.dtype: float64, but it must be float32, or uint8 with power_of_two" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .inverse = RESULT(UINT8, 3, 3) },
	  "amax.inverse.dtype: uint8 has the exponents of powers of two; only with power_of_two" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .inverse = { .is_given = true, .layout = LAYOUT(FLOAT32, 1, .shape = { 3 }) } },
	  "amax.inverse.shape: rank 1, but dst has rank 2; it has as many dimensions as dst" },
	{ DTYPE_FLOAT16,
	  DTYPE_FLOAT32,
	  { GIVEN, .scale = RESULT(FLOAT32, 3, 2) },
	  "amax.scale.shape: dimension 1 is 2, but dst has 3 blocks there" },
};

Test(amax, refusals)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct refused *row = &refused[i];
		const struct tensor_layout dst = {
			.dtype = row->to, .rank = 2, .shape = { 6, 10 }, .stride = { 10, 1 }
		};
		struct amax amax;
		struct error err = { 0 };

		cr_expect_eq(amax_init(&amax, &row->spec, &dst, row->from, &err), STATUS_INVALID_ARGUMENT,
		             "%s", row->message);
		cr_expect_str_eq(err.message, row->message);
	}
}

/* Makes a transform in which amax is combined with other arguments. */
static int init_transform(struct transform *ret, const struct conversion_spec *conversion, bool is_padded,
                          const int64_t *scale_stride, struct error *err)
{
	struct transform_spec spec = { .dst = LAYOUT(FLOAT16, 2, .shape = { 6, 10 + is_padded },
		                                     .stride = { 11, 1 }),
		                       .src = LAYOUT(FLOAT32, 2, .shape = { 6, 10 }, .stride = { 10, 1 }),
		                       .n_perm = -1,
		                       .n_before = -1,
		                       .n_after = 2,
		                       .after = { 0, is_padded },
		                       .conversion = *conversion };

	spec.conversion.amax = (struct amax_spec){ GIVEN, .scale = RESULT(FLOAT32, 3, 3) };
	memcpy(spec.conversion.amax.scale.layout.stride, scale_stride, 2 * sizeof(*scale_stride));
	return transform_init(ret, &spec, err);
}

Test(amax, beside_other_arguments)
{
	static const int64_t plain[] = { 3, 1 }, same[] = { 0, 1 };
	static const struct {
		struct conversion_spec conversion;
		bool is_padded;
		const int64_t *stride;
		int status;
		const char *message;
	} rows[] = {
		{ { .is_given = true }, false, plain, 0, "" },
		{ { .is_given = true, .scale.kind = OPERAND_NUMBER },
		  false,
		  plain,
		  STATUS_INVALID_ARGUMENT,
		  "amax: beside scale; elements are multiplied by the inverses that it makes, and nothing is added" },
		{ { .is_given = true, .bias.kind = OPERAND_NUMBER },
		  false,
		  plain,
		  STATUS_INVALID_ARGUMENT,
		  "amax: beside bias; elements are multiplied by the inverses that it makes, and nothing is added" },
		{ { .is_given = true },
		  true,
		  plain,
		  STATUS_INVALID_ARGUMENT,
		  "amax: dimension 1 is padded; with amax it can only be cropped" },
		{ { .is_given = true },
		  false,
		  same,
		  STATUS_OVERLAP,
		  "amax.scale.strides: dimension 0 has stride 0, so its 3 elements overlap; only src may repeat" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct transform transform;
		struct error err = { 0 };

		cr_expect_eq(
		    init_transform(&transform, &rows[i].conversion, rows[i].is_padded, rows[i].stride, &err),
		    rows[i].status, "%s: %s", rows[i].message, err.message);
		cr_expect_str_eq(err.message, rows[i].message);
	}
}

/* ---- Scales ----------------------------------------------------------------------------------------- */

static const struct scaled {
	const char *name;
	enum dtype to;
	uint32_t magnitude;
	double least;
	bool power_of_two;
	uint32_t scale, inverse;
	uint8_t exponent; /* scale as a power of two, with a bias of 127 */
} scaled[] = {
	{ "zeros", DTYPE_FLOAT8_E4M3FN, 0, 0, false, 0x3f800000, 0x3f800000, 0 },
	{ "zeros, a power of two", DTYPE_FLOAT8_E4M3FN, 0, 0, true, 0x3f800000, 0x3f800000, 127 },
	{ "448 in e4m3", DTYPE_FLOAT8_E4M3FN, 0x43e00000, 0, false, 0x3f800000, 0x3f800000, 0 },
	{ "448, a power of two", DTYPE_FLOAT8_E4M3FN, 0x43e00000, 0, true, 0x3f800000, 0x3f800000, 127 },
	{ "just above 448", DTYPE_FLOAT8_E4M3FN, 0x43e00001, 0, true, 0x40000000, 0x3f000000, 128 },
	{ "just below 448", DTYPE_FLOAT8_E4M3FN, 0x43dfffff, 0, true, 0x3f800000, 0x3f800000, 127 },
	{ "one", DTYPE_FLOAT8_E4M3FN, 0x3f800000, 0, false, 0x3b124925, 0x43dfffff, 0 },
	{ "one in e5m2", DTYPE_FLOAT8_E5M2, 0x3f800000, 0, false, 0x37924925, 0x475fffff, 0 },
	{ "65504 in float16", DTYPE_FLOAT16, 0x477fe000, 0, false, 0x3f800000, 0x3f800000, 0 },
	{ "the largest in bfloat16", DTYPE_BFLOAT16, 0x7f7fffff, 0, false, 0x3f808080, 0x3f7f0001, 0 },
	{ "and a power of two", DTYPE_BFLOAT16, 0x7f7fffff, 0, true, 0x40000000, 0x3f000000, 128 },
	{ "the largest in float32", DTYPE_FLOAT32, 0x7f7fffff, 0, true, 0x3f800000, 0x3f800000, 127 },
	{ "a scale below 2^-126", DTYPE_FLOAT8_E4M3FN, 0x00800000, 0, false, 0x00800000, 0x7e800000, 0 },
	{ "the smallest", DTYPE_FLOAT32, 1, 0, false, 0x00800000, 0x7e800000, 0 },
	{ "the smallest, a power of two", DTYPE_FLOAT32, 1, 0, true, 0x00800000, 0x7e800000, 1 },
	{ "infinity", DTYPE_FLOAT8_E4M3FN, 0x7f800000, 0, false, 0x7f800000, 0, 0 },
	{ "infinity, a power of two", DTYPE_FLOAT8_E4M3FN, 0x7f800000, 0, true, 0x7f800000, 0, 255 },
	{ "NaN", DTYPE_FLOAT8_E4M3FN, 0x7f800001, 0, false, 0x7fc00000, 0x7fc00000, 0 },
	{ "NaN, a power of two", DTYPE_FLOAT8_E4M3FN, 0x7fffffff, 1, true, 0x7fc00000, 0x7fc00000, 255 },
	{ "at least 448", DTYPE_FLOAT8_E4M3FN, 0x3f800000, 448, false, 0x3f800000, 0x3f800000, 0 },
	{ "zeros, at least 1e-4", DTYPE_FLOAT8_E4M3FN, 0, 1e-4, false, 0x346facad, 0x4a88b800, 0 },
	{ "at least what is beyond float32", DTYPE_FLOAT8_E4M3FN, 0, 1e300, false, 0x7f800000, 0, 0 },
};

Test(amax, scales)
{
	for (size_t i = 0; i < sizeof(scaled) / sizeof(scaled[0]); i++) {
		const struct scaled *row = &scaled[i];
		const struct tensor_layout dst = { .dtype = row->to };
		const struct amax_spec spec = { .is_given = true,
			                        .power_of_two = row->power_of_two,
			                        .least = row->least,
			                        .scale = { .is_given = true,
			                                   .layout.dtype = DTYPE_FLOAT32 } };
		struct amax amax;
		struct amax_scale got;
		struct error err = { 0 };
		uint8_t bytes[4] = { 0 };

		cr_assert_eq(amax_init(&amax, &spec, &dst, DTYPE_FLOAT32, &err), 0, "%s", err.message);
		got = amax_scale_of(&amax.rule, row->magnitude);
		cr_expect_eq(amax_bits_of(got.scale), row->scale, "%s: scale %#x", row->name,
		             amax_bits_of(got.scale));
		if (row->inverse || isinf(got.scale))
			cr_expect_eq(amax_bits_of(got.inverse), row->inverse, "%s: inverse %#x", row->name,
			             amax_bits_of(got.inverse));
		cr_expect_eq(amax_encode(DTYPE_FLOAT32, got.scale, bytes), 4);
		cr_expect(!memcmp(bytes,
		                  (uint8_t[]){ row->scale & 255, row->scale >> 8 & 255,
		                               row->scale >> 16 & 255, row->scale >> 24 },
		                  4),
		          "%s: bytes", row->name);
		if (!row->power_of_two)
			continue;
		cr_expect_eq(amax_encode(DTYPE_UINT8, got.scale, bytes), 1);
		cr_expect_eq(bytes[0], row->exponent, "%s: exponent %d", row->name, bytes[0]);
	}
}

/* ---- Loop nests ------------------------------------------------------------------------------------- */

/* A row has the dimensions of a conversion from float32 to float16, with the source in C order, and those of
 * the loop nest that they become. */
static const struct nest_row {
	const char *name;
	int64_t shape[2], stride[2], block[2], scale_stride[2];
	int rank;
	struct {
		int64_t n, block, skew, to_scale;
	} dim[2];
	int64_t to_scale_offset;
} nest_rows[] = {
	{ "rows in whole blocks are one dimension",
	  { 6, 8 },
	  { 8, 1 },
	  { 1, 4 },
	  { 2, 1 },
	  1,
	  { { 48, 4, 0, 4 } },
	  0 },
	{ "but not if their scales have gaps",
	  { 6, 8 },
	  { 8, 1 },
	  { 1, 4 },
	  { 3, 1 },
	  2,
	  { { 6, 1, 0, 12 }, { 8, 4, 0, 4 } },
	  0 },
	{ "nor with a block that is shorter",
	  { 6, 8 },
	  { 8, 1 },
	  { 1, 3 },
	  { 3, 1 },
	  2,
	  { { 6, 1, 0, 12 }, { 8, 3, 0, 4 } },
	  0 },
	{ "blocks of whole rows are one dimension",
	  { 6, 8 },
	  { 8, 1 },
	  { 4, 8 },
	  { 1, 1 },
	  1,
	  { { 48, 32, 0, 4 } },
	  0 },
	{ "one block of all", { 6, 8 }, { 8, 1 }, { 6, 8 }, { 1, 1 }, 1, { { 48, 48, 0, 0 } }, 0 },
	{ "squares are two",
	  { 6, 8 },
	  { 8, 1 },
	  { 2, 2 },
	  { 4, 1 },
	  2,
	  { { 6, 2, 0, 16 }, { 8, 2, 0, 4 } },
	  0 },
	{ "backwards, the short block comes first",
	  { 6, 8 },
	  { 8, -1 },
	  { 2, 3 },
	  { 3, 1 },
	  2,
	  { { 6, 2, 0, 12 }, { 8, 3, 1, -4 } },
	  8 },
};

Test(amax, blocks_of_loop_nests)
{
	for (size_t i = 0; i < sizeof(nest_rows) / sizeof(nest_rows[0]); i++) {
		const struct nest_row *row = &nest_rows[i];
		struct transform_spec spec = { .dst = LAYOUT(FLOAT16, 2), .src = LAYOUT(FLOAT32, 2) };
		struct amax_spec *amax = &spec.conversion.amax;
		struct transform transform;
		struct subregions subregions;
		struct loop_nest nest;
		struct error err = { 0 };

		spec.n_perm = spec.n_before = spec.n_after = -1;
		spec.conversion.is_given = amax->is_given = amax->scale.is_given = true;
		amax->n_block = amax->scale.layout.rank = 2;
		amax->scale.layout.dtype = DTYPE_FLOAT32;
		for (int d = 0; d < 2; d++) {
			spec.dst.shape[d] = spec.src.shape[d] = row->shape[d];
			spec.dst.stride[d] = row->stride[d];
			amax->block[d] = row->block[d];
			amax->scale.layout.shape[d] = (row->shape[d] + row->block[d] - 1) / row->block[d];
			amax->scale.layout.stride[d] = row->scale_stride[d];
		}
		spec.src.stride[0] = row->shape[1];
		spec.src.stride[1] = 1;
		cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", row->name, err.message);
		subregions_init(&subregions, &transform);
		cr_assert_eq(subregions.n, 1);
		subregions_get(&subregions, 0, 16, &nest);
		cr_assert_eq(nest.rank, row->rank, "%s: rank %d", row->name, nest.rank);
		cr_expect(nest.in_blocks);
		cr_expect_eq(nest.to_scale_offset, row->to_scale_offset, "%s: offset %lld", row->name,
		             (long long)nest.to_scale_offset);
		for (int d = 0; d < nest.rank; d++) {
			const struct loop_nest_dim *dim = &nest.dim[d];

			cr_expect(dim->n == row->dim[d].n && dim->block == row->dim[d].block &&
			              dim->skew == row->dim[d].skew && dim->to_scale == row->dim[d].to_scale,
			          "%s: dimension %d: n %lld block %lld skew %lld to_scale %lld", row->name, d,
			          (long long)dim->n, (long long)dim->block, (long long)dim->skew,
			          (long long)dim->to_scale);
		}
	}
}
