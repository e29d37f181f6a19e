/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle visits the elements of a transform and converts each. Operands are indexed by the index in the
 * permuted source. */
#include "conversion_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

/* ---- The oracle --------------------------------------------------------------------------------------- */

struct converted {
	const struct transform_spec *spec;
	int rank; /* rank of the permuted source */
	uint8_t *dst;
	const uint8_t *src;
	const struct operand_source *scale, *bias;
	uint8_t value[TENSOR_MAX_ELEMENT];
	uint64_t changed;
};

/* Returns the operand's element for an index of the permuted source; dimensions are aligned at the last
 * one. */
static double operand_at(const struct operand_spec *spec, const struct operand_source *source, int rank,
                         const int64_t *index)
{
	const struct tensor_layout *layout = &spec->layout;
	int64_t at = 0;
	double wide;
	float narrow;

	if (spec->kind != OPERAND_TENSOR)
		return source->number;
	for (int d = 0; d < layout->rank; d++)
		if (layout->shape[d] > 1)
			at += index[rank - layout->rank + d] * layout->stride[d] * dtype_size(layout->dtype);
	memcpy(&narrow, source->origin + at, sizeof narrow);
	if (layout->dtype == DTYPE_FLOAT32)
		return (double)narrow;
	memcpy(&wide, source->origin + at, sizeof wide);
	return wide;
}

static void convert_element(void *arg, int64_t to, const int64_t *from, const int64_t *index)
{
	struct converted *c = arg;
	const struct conversion_spec *spec = &c->spec->conversion;
	bool same = true;

	if (from)
		same = element_convert(spec, c->spec->dst.dtype, c->dst + to, c->spec->src.dtype,
		                       c->src + *from, operand_at(&spec->scale, c->scale, c->rank, index),
		                       operand_at(&spec->bias, c->bias, c->rank, index));
	else
		memcpy(c->dst + to, c->value, dtype_size(c->spec->dst.dtype));
	c->changed += !same;
}

uint64_t conversion_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                               const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin,
                               const struct operand_source *scale, const struct operand_source *bias)
{
	struct converted c = { .spec = spec,
		               .rank = spec->src.rank + src->n,
		               .dst = dst_origin,
		               .src = src_origin,
		               .scale = scale,
		               .bias = bias };
	struct error err;

	if (scalar_encode(&spec->value, spec->dst.dtype, c.value, "value", &err))
		abort();
	split_oracle_walk(spec, dst, src, convert_element, &c);
	return spec->conversion.cast == CAST_EXACT ? c.changed : 0;
}

static void accept_nan(void *arg, int64_t to, const int64_t *from, const int64_t *index)
{
	struct converted *c = arg;
	const enum dtype dtype = c->spec->dst.dtype;
	const bool is_plain = !c->spec->conversion.scale.kind && !c->spec->conversion.bias.kind;
	uint8_t *expected = c->dst + to;
	const uint8_t *got = c->src + to;
	bool same_sign = ((expected[dtype_size(dtype) - 1] ^ got[dtype_size(dtype) - 1]) & 0x80) == 0;

	(void)index;
	if (!from || !element_is_nan(dtype, expected) || !element_is_nan(dtype, got))
		return;
	if ((is_plain && !same_sign) || (element_has_one_nan(dtype) &&
	                                 element_magnitude(dtype, expected) != element_magnitude(dtype, got)))
		return;
	memcpy(expected, got, dtype_size(dtype));
}

void conversion_oracle_accept(const struct transform_spec *spec, const struct split_list *dst,
                              const struct split_list *src, uint8_t *expected_origin,
                              const uint8_t *got_origin)
{
	struct converted c = { .spec = spec, .dst = expected_origin, .src = got_origin };

	if (dtype_class(spec->dst.dtype) == DTYPE_CLASS_FLOATING)
		split_oracle_walk(spec, dst, src, accept_nan, &c);
}

/* ---- Random cases ------------------------------------------------------------------------------------- */

static bool one_in(uint64_t *state, int n)
{
	return oracle_between(state, 1, n) == 1;
}

static enum dtype random_dtype(uint64_t *state)
{
	enum dtype dtype;

	do
		dtype = (enum dtype)oracle_between(state, 0, DTYPE_COUNT - 1);
	while (dtype_class(dtype) == DTYPE_CLASS_COMPLEX);
	return dtype;
}

/* Draws halves and thirds, which float32 and float64 round differently, or any number. */
static double random_number(uint64_t *state)
{
	static const double numbers[] = { 0,
		                          -0.0,
		                          1,
		                          -1,
		                          0.5,
		                          -2,
		                          256,
		                          0.1,
		                          1e-3,
		                          1e6,
		                          1.0 / 3,
		                          __builtin_inf(),
		                          1e39,
		                          1e-46,
		                          448,
		                          5e-324,
		                          __builtin_nan("") };

	if (one_in(state, 2))
		return numbers[oracle_between(state, 0, sizeof numbers / sizeof *numbers - 1)];
	return (double)oracle_between(state, -4000, 4000) / (one_in(state, 2) ? 64 : 97);
}

/* Draws a layout that broadcasts against the permuted source: some of its last dimensions, some of them with
 * extent 1, in any memory order, with gaps, reversed, or repeating. */
static void random_operand(uint64_t *state, const struct transform_spec *t, struct operand_spec *spec,
                           struct operand_case *ret)
{
	struct tensor_layout *layout = &spec->layout;
	const int skipped = (int)oracle_between(state, 0, t->src.rank);
	struct tensor_extent extent;
	int64_t step = 1;
	bool backwards, gaps;

	*ret = (struct operand_case){ .number = random_number(state) };
	*spec = (struct operand_spec){ .kind = (enum operand_kind)oracle_between(state, OPERAND_NONE,
		                                                                 OPERAND_TENSOR) };
	if (spec->kind != OPERAND_TENSOR)
		return;
	backwards = one_in(state, 3);
	gaps = one_in(state, 3);
	layout->dtype = one_in(state, 2) ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
	layout->rank = t->src.rank - skipped;
	for (int d = layout->rank - 1; d >= 0; d--) {
		int64_t n = t->src.shape[t->n_perm < 0 ? d + skipped : t->perm[d + skipped]];

		if (one_in(state, 2) || step * n > CONVERSION_OPERAND_BYTES / 32)
			n = 1;
		layout->shape[d] = n;
		layout->stride[d] = backwards ? -step : step;
		if (one_in(state, 6))
			layout->stride[d] = 0;
		step *= n ? n : 1;
		step += gaps;
	}
	extent = tensor_extent(layout);
	ret->offset = (uint64_t)(oracle_between(state, 0, 33) - extent.low);
	ret->size = (size_t)((int64_t)ret->offset + extent.high);
}

void conversion_random_case(uint64_t seed, struct conversion_case *ret)
{
	uint64_t state = ~seed;
	struct conversion_spec *spec = &ret->c.spec.conversion;
	const enum dtype dst = random_dtype(&state), src = random_dtype(&state);

	*ret = (struct conversion_case){ 0 };
	oracle_random_case_of(seed, dst, src, &ret->c);
	spec->is_given = true;
	spec->cast = (enum cast)oracle_between(&state, 0, CAST_COUNT - 1);
	random_operand(&state, &ret->c.spec, &spec->scale, &ret->scale);
	random_operand(&state, &ret->c.spec, &spec->bias, &ret->bias);
}

/* ---- Buffers ------------------------------------------------------------------------------------------ */

/* Allocates an operand of either type, at either alignment, and fills it mostly with numbers. */
static bool operand_allocate(struct operand_case *operand, const struct operand_spec *spec, uint64_t *state)
{
	const uint32_t size = dtype_size(spec->layout.dtype);

	if (!operand->size)
		return true;
	operand->bytes = malloc(operand->size);
	if (!operand->bytes)
		return false;
	for (size_t i = 0; i < operand->size; i++)
		operand->bytes[i] = (uint8_t)(oracle_random(state) >> 24);
	for (size_t i = operand->offset % size; i + size <= operand->size && !one_in(state, 50); i += size) {
		double wide = random_number(state);
		float narrow = (float)wide;

		memcpy(operand->bytes + i, size == 4 ? (void *)&narrow : (void *)&wide, size);
	}
	return true;
}

/* Fills with small whole numbers, which every type can represent. The buffers otherwise hold arbitrary
 * bytes. */
static void fill_small(struct conversion_case *c, uint64_t *state)
{
	const struct tensor_layout *src = &c->c.spec.src;
	const uint32_t size = dtype_size(src->dtype);
	const bool is_bool = src->dtype == DTYPE_BOOL || c->c.spec.dst.dtype == DTYPE_BOOL;
	struct scalar value = { .kind = SCALAR_UNSIGNED };
	uint8_t bits[TENSOR_MAX_ELEMENT];
	struct error err;

	for (size_t i = c->c.src_offset % size; i + size <= c->c.src_size; i += size) {
		value.u = (uint64_t)oracle_between(state, 0, is_bool ? 1 : 9);
		if (scalar_encode(&value, src->dtype, bits, "value", &err))
			abort();
		memcpy(c->c.src + ORACLE_GUARD + i, bits, size);
	}
}

struct operand_source operand_case_source(const struct operand_case *operand)
{
	return (struct operand_source){ operand->number,
		                        operand->bytes ? operand->bytes + operand->offset : NULL };
}

bool conversion_case_prepare(struct conversion_case *c)
{
	static const struct split_list none = { 0 };
	const struct conversion_spec *spec = &c->c.spec.conversion;
	uint64_t state = c->c.seed + 1;
	struct operand_source scale, bias;

	if (!oracle_case_allocate(&c->c) || !operand_allocate(&c->scale, &spec->scale, &state) ||
	    !operand_allocate(&c->bias, &spec->bias, &state)) {
		conversion_case_free(c);
		return false;
	}
	if (one_in(&state, 2))
		fill_small(c, &state);
	scale = operand_case_source(&c->scale);
	bias = operand_case_source(&c->bias);
	c->changed =
	    conversion_oracle_run(&c->c.spec, &none, &none, c->c.expected + ORACLE_GUARD + c->c.dst_offset,
	                          oracle_src(&c->c) + c->c.src_offset, &scale, &bias);
	return true;
}

bool conversion_case_check(const struct conversion_case *c, char *text, size_t text_size)
{
	static const struct split_list none = { 0 };

	conversion_oracle_accept(&c->c.spec, &none, &none, c->c.expected + ORACLE_GUARD + c->c.dst_offset,
	                         oracle_dst(&c->c) + c->c.dst_offset);
	if (oracle_case_check(&c->c, text, text_size))
		return true;
	conversion_case_text(c, text + strlen(text), text_size - strlen(text));
	return false;
}

void conversion_case_free(struct conversion_case *c)
{
	oracle_case_free(&c->c);
	free(c->scale.bytes);
	free(c->bias.bytes);
	c->scale.bytes = c->bias.bytes = NULL;
}

/* ---- Text --------------------------------------------------------------------------------------------- */

static void operand_text(const char *name, const struct operand_spec *spec,
                         const struct operand_case *operand, char *text, size_t text_size)
{
	const struct tensor_layout *layout = &spec->layout;
	char shape[400], strides[400];
	size_t len = strlen(text);

	if (spec->kind == OPERAND_NUMBER)
		snprintf(text + len, text_size - len, ", %s %a", name, operand->number);
	if (spec->kind == OPERAND_TENSOR)
		snprintf(text + len, text_size - len, ", %s %s %s strides %s at %" PRIu64, name,
		         dtype_names[layout->dtype],
		         tensor_shape_text(layout->rank, layout->shape, shape, sizeof shape),
		         tensor_shape_text(layout->rank, layout->stride, strides, sizeof strides),
		         operand->offset);
}

void conversion_case_text(const struct conversion_case *c, char *text, size_t text_size)
{
	const struct conversion_spec *spec = &c->c.spec.conversion;

	snprintf(text, text_size, " of %s, %s", dtype_names[c->c.spec.src.dtype], cast_names[spec->cast]);
	operand_text("scale", &spec->scale, &c->scale, text, text_size);
	operand_text("bias", &spec->bias, &c->bias, text, text_size);
}
