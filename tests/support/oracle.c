/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle and its random cases. Written from NumPy's documentation of pad, and sharing nothing with
 * kernels/. */
#include "oracle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The oracle ------------------------------------------------------------------------------------- */

int64_t oracle_index(int64_t o, int64_t before, int64_t source, enum pad_mode mode)
{
	int64_t steps = o < before ? before - o : o - before;
	int64_t direction = o < before ? -1 : 1;
	int64_t at = 0;

	if (o >= before && o < before + source)
		return o - before;
	if (mode == PAD_MODE_CONSTANT)
		return -1;
	for (int64_t i = 0; i < steps; i++) {
		bool off = at + direction < 0 || at + direction >= source;

		if (!off)
			at += direction;
		else if (mode == PAD_MODE_WRAP)
			at = direction < 0 ? source - 1 : 0;
		else if (mode == PAD_MODE_SYMMETRIC)
			/* At either end the last element repeats, then the direction turns. */
			direction = -direction;
		else if (mode == PAD_MODE_REFLECT && source > 1) {
			direction = -direction;
			at += direction;
		}
	}
	return at;
}

bool oracle_element(const struct transform_spec *spec, const int64_t *index, int64_t *ret_to,
                    int64_t *ret_from)
{
	int64_t size = dtype_size(spec->dst.dtype), src_size = dtype_size(spec->src.dtype), to = 0, from = 0;
	bool fill = false;

	for (int d = 0; d < spec->dst.rank; d++) {
		int s = spec->n_perm < 0 ? d : (int)spec->perm[d];
		int64_t before = spec->n_before < 0 ? 0 : spec->before[d];
		int64_t after = spec->n_after < 0 ? 0 : spec->after[d];
		int64_t cut = before < 0 ? -before : 0;
		int64_t kept = spec->src.shape[s] - cut + (after < 0 ? after : 0);
		int64_t i = oracle_index(index[d], before > 0 ? before : 0, kept, spec->mode);

		to += index[d] * spec->dst.stride[d] * size;
		if (i < 0)
			fill = true;
		else
			from += (cut + i) * spec->src.stride[s] * src_size;
	}
	*ret_to = to;
	*ret_from = from;
	return !fill;
}

void oracle_run(const struct transform_spec *spec, uint8_t *dst_origin, const uint8_t *src_origin)
{
	int64_t size = dtype_size(spec->dst.dtype), o[TENSOR_MAX_RANK] = { 0 }, to, from;
	uint8_t value[TENSOR_MAX_ELEMENT];
	struct error err;
	int d;

	if (scalar_encode(&spec->value, spec->dst.dtype, value, "value", &err))
		abort();
	for (d = 0; d < spec->dst.rank; d++)
		if (!spec->dst.shape[d])
			return;
	do {
		bool read = oracle_element(spec, o, &to, &from);

		memcpy(dst_origin + to, read ? src_origin + from : value, size);
		for (d = spec->dst.rank - 1; d >= 0 && ++o[d] == spec->dst.shape[d]; d--)
			o[d] = 0;
	} while (d >= 0);
}

/* ---- Random cases ----------------------------------------------------------------------------------- */

uint64_t oracle_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

int64_t oracle_between(uint64_t *state, int64_t low, int64_t high)
{
	return low + (int64_t)(oracle_random(state) % (uint64_t)(high - low + 1));
}

static bool one_in(uint64_t *state, int n)
{
	return oracle_between(state, 1, n) == 1;
}

static void random_order(uint64_t *state, int n, int64_t *order)
{
	for (int i = 0; i < n; i++) {
		int j = (int)oracle_between(state, 0, i);

		order[i] = order[j];
		order[j] = i;
	}
}

/* Draws extents that keep the tensor within limit elements; occasionally with one long dimension, or
 * empty. */
static void random_shape(uint64_t *state, int rank, int64_t limit, int64_t *shape)
{
	static const int64_t likely[] = { 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 67 };
	int64_t order[TENSOR_MAX_RANK];

	random_order(state, rank, order);
	for (int i = 0; i < rank; i++) {
		int64_t n = likely[oracle_between(state, 0, sizeof likely / sizeof *likely - 1)];

		if (rank > 6 && i > 5)
			n = 1;
		if (one_in(state, 12))
			n = oracle_between(state, 1, 300);
		if (n > limit)
			n = oracle_between(state, 1, limit);
		shape[order[i]] = n;
		limit /= n;
	}
	if (rank && one_in(state, 40))
		shape[oracle_between(state, 0, rank - 1)] = 0;
}

/* Draws strides under which no two elements overlap: dimensions in some memory order, each stepping past all
 * those inside it, occasionally with gaps or reversed. repeat allows stride 0. */
static void random_strides(uint64_t *state, struct tensor_layout *layout, bool repeat)
{
	int64_t order[TENSOR_MAX_RANK], step = one_in(state, 6) ? oracle_between(state, 2, 3) : 1;
	int64_t room = ORACLE_MAX_BYTES;
	bool shuffled = one_in(state, 3), gaps = one_in(state, 3), turned = one_in(state, 3);

	random_order(state, layout->rank, order);
	for (int i = 0; i < layout->rank; i++) {
		int d = shuffled ? (int)order[i] : layout->rank - 1 - i;
		int64_t n = layout->shape[d];

		layout->stride[d] = step;
		if (n <= 1) {
			layout->stride[d] = oracle_between(state, -9, 9);
			continue;
		}
		if (repeat && one_in(state, 3)) {
			layout->stride[d] = 0;
			continue;
		}
		step *= n;
		if (gaps && one_in(state, 2) && step < room)
			step += oracle_between(state, 1, step < 16 ? step : 16);
		if (turned && one_in(state, 2))
			layout->stride[d] = -layout->stride[d];
	}
}

/* Puts a tensor at a random, mostly unaligned byte of a region with a few spare bytes. */
static void random_place(uint64_t *state, const struct tensor_layout *layout, uint64_t *ret_offset,
                         size_t *ret_size)
{
	struct tensor_extent extent = tensor_extent(layout);
	int64_t lead = one_in(state, 2) ? 16 * oracle_between(state, 0, 2) : oracle_between(state, 0, 33);

	*ret_offset = (uint64_t)(lead - extent.low);
	*ret_size = (size_t)(lead - extent.low + extent.high + oracle_between(state, 0, 17));
}

static struct scalar random_value(uint64_t *state, enum dtype dtype)
{
	switch (dtype_class(dtype)) {
	case DTYPE_CLASS_BOOLEAN:
		return (struct scalar){ .kind = SCALAR_UNSIGNED, .u = 1 };
	case DTYPE_CLASS_UNSIGNED:
		return (struct scalar){ .kind = SCALAR_UNSIGNED,
			                .u = (uint64_t)oracle_between(state, 0, 255) };
	case DTYPE_CLASS_SIGNED:
		return (struct scalar){ .kind = SCALAR_SIGNED, .i = oracle_between(state, -128, -1) };
	case DTYPE_CLASS_FLOATING:
		return (struct scalar){ .kind = SCALAR_FLOATING,
			                .re = (double)oracle_between(state, -99, 99) / 4 };
	default:
		return (struct scalar){ .kind = SCALAR_COMPLEX, .re = 1.5, .im = -2.25 };
	}
}

/* Draws before and after for each dimension of the permuted source, which determine the destination's
 * shape. */
static void random_pads(uint64_t *state, struct transform_spec *spec)
{
	bool padded = one_in(state, 2), cropped = one_in(state, 3);
	int64_t count = 1;

	for (int d = 0; d < spec->src.rank; d++)
		count *= spec->src.shape[spec->n_perm < 0 ? d : spec->perm[d]] ?: 1;
	for (int d = 0; d < spec->src.rank; d++) {
		int64_t n = spec->src.shape[spec->n_perm < 0 ? d : spec->perm[d]];
		int64_t *side[2] = { &spec->before[d], &spec->after[d] };
		int64_t kept = n, made;

		for (int i = 0; i < 2; i++) {
			*side[i] = 0;
			if (cropped && kept > 1 && one_in(state, 3)) {
				*side[i] = -oracle_between(state, 1, kept - 1);
				kept += *side[i];
			} else if (padded && (n || spec->mode == PAD_MODE_CONSTANT) && one_in(state, 2))
				*side[i] = oracle_between(state, 1, one_in(state, 4) ? 3 * n + 3 : 3);
		}
		made = n + spec->before[d] + spec->after[d];
		/* The result would be too large, so this dimension gets no border. */
		if (made > 0 && count / (n ?: 1) * made * dtype_size(spec->dst.dtype) > ORACLE_MAX_BYTES) {
			*side[0] = *side[0] < 0 ? *side[0] : 0;
			*side[1] = *side[1] < 0 ? *side[1] : 0;
			made = n + spec->before[d] + spec->after[d];
		}
		count = count / (n ?: 1) * (made ?: 1);
		spec->dst.shape[d] = made;
	}
	spec->n_before = spec->n_after = spec->src.rank;
	if (!padded && !cropped && one_in(state, 2))
		spec->n_before = spec->n_after = -1;
}

static void random_case(uint64_t state, struct oracle_case *ret)
{
	struct transform_spec *spec = &ret->spec;
	/* Each statement draws once, because the order in which a compiler evaluates arguments must not
	 * affect what a seed decides. */
	const int most = one_in(&state, 20) ? 32 : 6, least = one_in(&state, 10) ? 0 : 1;
	const int rank = (int)oracle_between(&state, least, most);
	bool repeat;

	spec->src.rank = spec->dst.rank = rank;
	spec->mode = (enum pad_mode)oracle_between(&state, 0, PAD_MODE_COUNT - 1);
	if (spec->mode == PAD_MODE_CONSTANT && !one_in(&state, 3))
		spec->value = random_value(&state, spec->dst.dtype);

	random_shape(&state, rank,
	             ORACLE_MAX_BYTES / dtype_size(spec->src.dtype) / oracle_between(&state, 1, 50),
	             spec->src.shape);
	spec->n_perm = one_in(&state, 4) ? -1 : rank;
	random_order(&state, rank, spec->perm);
	random_pads(&state, spec);
	repeat = one_in(&state, 6);
	random_strides(&state, &spec->src, repeat);
	random_strides(&state, &spec->dst, false);
	random_place(&state, &spec->src, &ret->src_offset, &ret->src_size);
	random_place(&state, &spec->dst, &ret->dst_offset, &ret->dst_size);
}

void oracle_random_case(uint64_t seed, struct oracle_case *ret)
{
	uint64_t state = seed;
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);

	*ret = (struct oracle_case){ .seed = seed, .spec = { .src.dtype = dtype, .dst.dtype = dtype } };
	random_case(state, ret);
}

void oracle_random_case_of(uint64_t seed, enum dtype dst, enum dtype src, struct oracle_case *ret)
{
	*ret = (struct oracle_case){ .seed = seed, .spec = { .src.dtype = src, .dst.dtype = dst } };
	random_case(seed, ret);
}

/* ---- Buffers ---------------------------------------------------------------------------------------- */

static size_t allocation(size_t size)
{
	return (size + 2 * ORACLE_GUARD + 63) & ~(size_t)63;
}

bool oracle_case_allocate(struct oracle_case *c)
{
	size_t src_bytes = allocation(c->src_size), dst_bytes = allocation(c->dst_size);
	uint64_t state = ~c->seed;

	c->src = aligned_alloc(64, src_bytes);
	c->dst = aligned_alloc(64, dst_bytes);
	c->expected = aligned_alloc(64, dst_bytes);
	if (!c->src || !c->dst || !c->expected) {
		oracle_case_free(c);
		return false;
	}
	for (size_t i = 0; i < src_bytes; i++)
		c->src[i] = (uint8_t)(oracle_random(&state) >> 24);
	for (size_t i = 0; i < dst_bytes; i++)
		c->dst[i] = c->expected[i] = (uint8_t)(0xa5 ^ i * 7);
	return true;
}

bool oracle_case_prepare(struct oracle_case *c)
{
	if (!oracle_case_allocate(c))
		return false;
	oracle_run(&c->spec, c->expected + ORACLE_GUARD + c->dst_offset, oracle_src(c) + c->src_offset);
	return true;
}

bool oracle_case_check(const struct oracle_case *c, char *text, size_t text_size)
{
	size_t bytes = allocation(c->dst_size), i = 0;
	int len;

	if (!memcmp(c->dst, c->expected, bytes))
		return true;
	while (c->dst[i] == c->expected[i])
		i++;
	len = snprintf(text, text_size,
	               "byte %zd of a destination of %zu is 0x%02x, not 0x%02x: ", (ssize_t)i - ORACLE_GUARD,
	               c->dst_size, c->dst[i], c->expected[i]);
	if (len >= 0 && (size_t)len < text_size)
		oracle_case_text(c, text + len, text_size - (size_t)len);
	return false;
}

void oracle_case_free(struct oracle_case *c)
{
	free(c->src);
	free(c->dst);
	free(c->expected);
	c->src = c->dst = c->expected = NULL;
}

/* ---- Text ------------------------------------------------------------------------------------------- */

static __attribute__((format(printf, 3, 4))) void append(char **text, size_t *left, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(*text, *left, format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= *left)
		len = *left ? (int)*left - 1 : 0;
	*text += len;
	*left -= (size_t)len;
}

static void append_list(char **text, size_t *left, const char *name, int n, const int64_t *list)
{
	char numbers[400];

	if (n >= 0)
		append(text, left, " %s=%s", name, tensor_shape_text(n, list, numbers, sizeof numbers));
}

void oracle_case_text(const struct oracle_case *c, char *text, size_t text_size)
{
	const struct transform_spec *spec = &c->spec;

	append(&text, &text_size, "seed %" PRIu64 ": %s %s", c->seed, dtype_names[spec->dst.dtype],
	       pad_mode_names[spec->mode]);
	append_list(&text, &text_size, "src", spec->src.rank, spec->src.shape);
	append_list(&text, &text_size, "strides", spec->src.rank, spec->src.stride);
	append(&text, &text_size, " at %" PRIu64, c->src_offset);
	append_list(&text, &text_size, "perm", spec->n_perm, spec->perm);
	append_list(&text, &text_size, "before", spec->n_before, spec->before);
	append_list(&text, &text_size, "after", spec->n_after, spec->after);
	append_list(&text, &text_size, "dst", spec->dst.rank, spec->dst.shape);
	append_list(&text, &text_size, "strides", spec->dst.rank, spec->dst.stride);
	append(&text, &text_size, " at %" PRIu64, c->dst_offset);
}
