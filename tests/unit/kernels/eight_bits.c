/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the arithmetic of layouts, ranges, overlaps and subregions over its whole domain. The same sources
 * are compiled with 8 bits for 64 and 16 for 128, and compared with exact arithmetic in int. A sum that would
 * overflow 64 bits unnoticed overflows 8 bits unnoticed.
 * These are covered completely: layouts of rank 1 (all shapes and strides, five element sizes), ranges (every
 * extent, offset and size) and pads of rank 1 (every extent, before and after, all modes). These are covered
 * at the ends of the domain and in its middle: layouts of rank 2, pairs of layouts of rank 1, and the places
 * of two tensors. `make check` takes a share of the steps of the outermost loop. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

/* ---- The sources, narrowed ---------------------------------------------------------------------------- */

/* Returns the status without a message, because formatting would take longer than the arithmetic. */
static int refused(struct error *err, int status, const char *format, ...)
{
	(void)err;
	(void)format;
	return status;
}

#undef PRId64
#undef PRIu64
#define PRId64   "d"
#define PRIu64   "d"
#define int64_t  int8_t
#define uint64_t uint8_t
#define __int128 int16_t
#define error_set refused

#define dtype_names                  eight_dtype_names
#define pad_mode_names               eight_pad_mode_names
#define cast_names                   eight_cast_names
#define dtype_size                   eight_dtype_size
#define dtype_class                  eight_dtype_class
#define tensor_layout_init           eight_tensor_layout_init
#define tensor_count                 eight_tensor_count
#define tensor_extent                eight_tensor_extent
#define tensor_check_range           eight_tensor_check_range
#define tensor_shape_text            eight_tensor_shape_text
#define alias_between                eight_alias_between
#define overlap_count_steps          eight_overlap_count_steps
#define overlap_steps                eight_overlap_steps
#define overlap_self                 eight_overlap_self
#define overlap_self_repeated        eight_overlap_self_repeated
#define overlap_between              eight_overlap_between
#define scalar_encode                eight_scalar_encode
#define transform_init               eight_transform_init
#define transform_check_sides        eight_transform_check_sides
#define transform_check_side         eight_transform_check_side
#define conversion_init              eight_conversion_init
#define amax_init                    eight_amax_init
#define family_names                 eight_family_names
#define family_rules_add             eight_family_rules_add
#define transform_check_self_overlap eight_transform_check_self_overlap
#define loop_nest_canonicalise       eight_nest_canonicalise
#define loop_nest_count              eight_nest_count
#define loop_nest_window             eight_nest_window
#define loop_nest_narrow             eight_nest_narrow
#define loop_nest_is_run             eight_nest_is_run
#define loop_nest_window_source      eight_window_source
#define loop_nest_family             eight_nest_family
#define loop_nest_explain_memcpy     eight_nest_explain_memcpy
#define subregions_init              eight_slabs_init
#define subregions_init_windowed     eight_slabs_init_windowed
#define subregions_get               eight_slabs_get
#define subregions_interior          eight_slabs_interior

/* The sources share names within this one file, and compare types that are narrower than usual. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include "proto/tensor.c"
#include "proto/overlap.c"
#include "kernels/transform/transform.c"
#include "kernels/nest/loop_nest.c"
#pragma GCC diagnostic pop

/* Stands in for the real function: every value is 0. */
int scalar_encode(const struct scalar *value, enum dtype dtype, uint8_t bytes[TENSOR_MAX_ELEMENT],
                  const char *name, struct error *err)
{
	(void)value;
	(void)dtype;
	(void)name;
	(void)err;
	memset(bytes, 0, TENSOR_MAX_ELEMENT);
	return 0;
}

/* Stands in for the real function: no memory here has allocations. */
enum alias alias_between(const struct memory_range *a, const struct memory_range *b, int128 *ret_shift)
{
	cr_assert(!a->chunks && !b->chunks);
	(void)ret_shift;
	return ALIAS_NONE;
}

/* ---- Exactly ------------------------------------------------------------------------------------------ */

#define LEAST (-128)
#define MOST  127

static const enum dtype dtypes[] = { DTYPE_UINT8, DTYPE_INT16, DTYPE_FLOAT32, DTYPE_FLOAT64,
	                             DTYPE_COMPLEX128 };
#define N_DTYPES (int)(sizeof dtypes / sizeof *dtypes)

/* Values around which overflows begin and end. */
static const int8_t ends[] = { -128, -127, -64, -43, -2, -1, 0, 1, 2, 31, 42, 64, 126, 127 };
#define N_ENDS (int)(sizeof ends / sizeof *ends)

/* Returns n if one in n steps is to be taken, by TEST_SHARE. */
static int stride_of_share(void)
{
	const char *share = getenv("TEST_SHARE");
	double part = share ? atof(share) : 0.1;

	return part >= 1 || part <= 0 ? 1 : (int)(1 / part);
}

struct exact {
	bool accepted;
	int count;
	int low, high;
};

static struct exact exact_layout(int size, int rank, const int8_t *shape, const int8_t *stride)
{
	struct exact e = { .accepted = true, .count = 1, .high = size };
	int counted = 1, span = size;

	for (int d = 0; d < rank; d++) {
		int n = shape[d], reach = (n - 1) * stride[d] * size;

		e.count *= n;
		counted *= n ? n : 1;
		if (n < 0 || counted > MOST)
			return (struct exact){ 0 };
		if (n <= 1)
			continue;
		span += abs(reach);
		if (reach < 0)
			e.low += reach;
		else
			e.high += reach;
	}
	if (e.count == 0)
		e.low = e.high = 0;
	else if (span > MOST)
		return (struct exact){ 0 };
	return e;
}

static void check_layout(enum dtype dtype, int rank, const int8_t *shape, const int8_t *stride)
{
	struct exact want = exact_layout((int)dtype_size(dtype), rank, shape, stride);
	struct tensor_layout layout;
	struct tensor_extent extent;
	struct error err;

	if ((tensor_layout_init(&layout, dtype, (int8_t)rank, shape, stride, "t", &err) == 0) !=
	    want.accepted)
		cr_assert_fail("%u bytes, rank %d, [%d, %d] strides [%d, %d]: accepted is not %d",
		               dtype_size(dtype), rank, shape[0], shape[1], stride[0], stride[1],
		               want.accepted);
	if (!want.accepted)
		return;
	extent = tensor_extent(&layout);
	if (tensor_count(&layout) != want.count || extent.low != want.low || extent.high != want.high)
		cr_assert_fail("%u bytes, rank %d, [%d, %d] strides [%d, %d]: [%d, %d), not [%d, %d)",
		               dtype_size(dtype), rank, shape[0], shape[1], stride[0], stride[1], extent.low,
		               extent.high, want.low, want.high);
}

Test(eight_bits, layouts, .timeout = 120)
{
	int step = stride_of_share();

	for (int i = 0; i < N_DTYPES; i++)
		for (int n = LEAST; n <= MOST; n++)
			for (int stride = LEAST; stride <= MOST; stride++)
				check_layout(dtypes[i], 1, (const int8_t[]){ (int8_t)n, 0 },
				             (const int8_t[]){ (int8_t)stride, 0 });
	for (int i = 0; i < N_DTYPES; i++)
		for (int n = 0; n <= MOST; n += step)
			for (int m = 0; m <= MOST; m++)
				for (int s = 0; s < N_ENDS * N_ENDS; s++)
					check_layout(dtypes[i], 2, (const int8_t[]){ (int8_t)n, (int8_t)m },
					             (const int8_t[]){ ends[s / N_ENDS], ends[s % N_ENDS] });
}

/* An extent is tested at each offset in a region of each size. */
Test(eight_bits, ranges, .timeout = 120)
{
	int step = stride_of_share();
	struct error err;

	for (int low = -MOST; low <= 0; low += step)
		for (int high = 0; high - low <= MOST; high++)
			for (int offset = 0; offset <= 255; offset++)
				for (int size = 0; size <= 255; size++) {
					bool want =
					    offset + low >= 0 && offset + high <= size && offset <= size;
					struct tensor_extent extent = { (int8_t)low, (int8_t)high };

					if ((tensor_check_range(extent, (uint8_t)offset, (uint8_t)size, "t",
					                        &err) == 0) != want)
						cr_assert_fail("[%d, %d) at %d of %d: not %d", low, high,
						               offset, size, want);
				}
}

/* ---- Overlap ------------------------------------------------------------------------------------------ */

static struct tensor_layout *layouts;
static int n_layouts;

static void add_layouts(enum dtype dtype)
{
	struct tensor_layout layout;
	struct error err;

	for (int n = 1; n <= MOST; n++)
		for (int stride = LEAST; stride <= MOST; stride++) {
			const int8_t shape[] = { (int8_t)n }, strides[] = { (int8_t)stride };

			if (n == 1 && stride != 1)
				continue;
			if (tensor_layout_init(&layout, dtype, 1, shape, strides, "t", &err) == 0)
				layouts[n_layouts++] = layout;
		}
}

/* Marks the bytes of a tensor, of which bytes[0] is at -MOST. Returns whether one had been marked before. */
static bool mark(bool *bytes, const struct tensor_layout *layout, int distance)
{
	int size = (int)dtype_size(layout->dtype);
	bool met = false;

	for (int i = 0; i < layout->shape[0]; i++)
		for (int j = 0; j < size; j++) {
			bool *byte = &bytes[2 * MOST + 2 + distance + i * layout->stride[0] * size + j];

			met |= *byte;
			*byte = true;
		}
	return met;
}

static bool meets(const bool *bytes, const struct tensor_layout *layout, int distance)
{
	int size = (int)dtype_size(layout->dtype);

	for (int i = 0; i < layout->shape[0]; i++)
		for (int j = 0; j < size; j++)
			if (bytes[2 * MOST + 2 + distance + i * layout->stride[0] * size + j])
				return true;
	return false;
}

Test(eight_bits, overlaps, .timeout = 240)
{
	int step = 8 * stride_of_share(), met = 0, apart = 0;

	layouts = calloc(N_DTYPES * 65536, sizeof *layouts);
	cr_assert(layouts);
	for (int i = 0; i < N_DTYPES; i++)
		add_layouts(dtypes[i]);
	for (int i = 0; i < n_layouts; i++) {
		bool bytes[4 * MOST + 4] = { 0 };
		enum overlap want = mark(bytes, &layouts[i], 0) ? OVERLAP_SOME : OVERLAP_NONE;

		cr_assert_eq(overlap_self(&layouts[i]), want, "%u bytes, %d of stride %d: not %d",
		             dtype_size(layouts[i].dtype), layouts[i].shape[0], layouts[i].stride[0], want);
		for (int j = i % step; j < n_layouts; j += step)
			for (int k = 0; k < N_ENDS; k++) {
				bool meet = meets(bytes, &layouts[j], ends[k]);

				if (overlap_between(&layouts[i], &layouts[j], ends[k]) !=
				    (meet ? OVERLAP_SOME : OVERLAP_NONE))
					cr_assert_fail("%d of stride %d, %d of stride %d at %d: not %d",
					               layouts[i].shape[0], layouts[i].stride[0],
					               layouts[j].shape[0], layouts[j].stride[0], ends[k],
					               meet);
				met += meet;
				apart += !meet;
			}
	}
	cr_assert(met > 10000 && apart > 10000, "%d, %d", met, apart);
	free(layouts);
}

/* ---- Places ------------------------------------------------------------------------------------------- */

/* Checks two rows of n bytes, in one memory or in two. They are accepted exactly if both lie within their
 * regions and share no byte. */
static void check_places(int n, struct tensor_place dst, struct tensor_place src)
{
	struct transform t = { 0 };
	const int8_t shape[] = { (int8_t)n };
	int dst_at = dst.base + dst.offset, src_at = src.base + src.offset;
	bool inside = dst.offset + n <= dst.size && src.offset + n <= src.size;
	bool apart = dst.memory[0] != src.memory[0] || dst_at + n <= src_at || src_at + n <= dst_at;
	struct error err;

	tensor_layout_init(&t.dst_layout, DTYPE_UINT8, 1, shape, NULL, "dst", &err);
	t.src_layout = t.dst_layout;
	t.dst_extent = t.src_extent = tensor_extent(&t.dst_layout);
	const struct transform_sides sides = transform_sides(&t);

	if ((transform_check_sides(&sides, &dst, &src, &err) == 0) != (inside && apart))
		cr_assert_fail("%d bytes at %d + %d of %d and %d + %d of %d: not %d", n, dst.base, dst.offset,
		               dst.size, src.base, src.offset, src.size, inside && apart);
}

Test(eight_bits, places, .timeout = 120)
{
	static const uint8_t at[] = { 0, 1, 2, 63, 126, 127, 128, 129, 192, 253, 254, 255 };
	enum { N = sizeof at / sizeof *at };

	for (int n = 1; n <= MOST; n += 63)
		for (int i = 0; i < N * N * N; i++)
			for (int j = 0; j < N * N * N; j++)
				check_places(n,
				             (struct tensor_place){ .base = at[i % N],
				                                    .offset = at[i / N % N],
				                                    .size = at[i / N / N] },
				             (struct tensor_place){ .memory = { j % 7 == 0 },
				                                    .base = at[j % N],
				                                    .offset = at[j / N % N],
				                                    .size = at[j / N / N] });
}

/* ---- Subregions ----------------------------------------------------------------------------------- */

/* Returns the source index that output o reads, or -1 for the border's value, by NumPy's definition, one step
 * at a time. */
static int source_of(int o, int before, int source, enum pad_mode mode)
{
	int i = o - before;

	if (i >= 0 && i < source)
		return i;
	switch (mode) {
	case PAD_MODE_CONSTANT:
		return -1;
	case PAD_MODE_EDGE:
		return i < 0 ? 0 : source - 1;
	case PAD_MODE_WRAP:
		return (i % source + source) % source;
	default:
		break;
	}
	if (source == 1)
		return 0;
	while (i < 0 || i >= source) {
		int turn = mode == PAD_MODE_REFLECT;

		i = i < 0 ? -i - 1 + turn : 2 * source - 1 - i - turn;
	}
	return i;
}

/* Every output is written once and reads the right element. */
static void check_slabs(const struct transform *t, int crop)
{
	const struct transform_axis *axis = &t->axis[0];
	bool written[MOST + 1] = { 0 };
	struct subregions subregions;
	struct loop_nest nest;
	int n_written = 0;

	subregions_init(&subregions, t);
	for (int i = 0; i < subregions.n; i++) {
		int n, dst, src;

		subregions_get(&subregions, (uint8_t)i, 1, &nest);
		n = nest.rank ? nest.dim[0].n : 1;
		dst = nest.rank ? nest.dim[0].dst : 0;
		src = nest.rank ? nest.dim[0].src : 0;
		for (int k = 0; k < n; k++) {
			int o = nest.dst_offset + k * dst;
			int from = o < 0 || o >= axis->extent
			               ? -2
			               : source_of(o, axis->before, axis->source, t->mode);

			if (from == -2 || written[o] ||
			    (nest.fill ? from != -1 : from < 0 || nest.src_offset + k * src != from + crop))
				cr_assert_fail("%d padded by %d to %d, %s: subregion %d writes %d wrongly",
				               axis->source, axis->before, axis->extent,
				               pad_mode_names[t->mode], i, o);
			written[o] = true;
			n_written++;
		}
	}
	if (n_written != axis->extent)
		cr_assert_fail("%d padded by %d to %d, %s: %d written", axis->source, axis->before,
		               axis->extent, pad_mode_names[t->mode], n_written);
}

/* The extent of dst is the sum or, if that does not fit 8 bits with a sign, its lower 7 bits. */
static void check_pad(int extent, int before, int after, enum pad_mode mode)
{
	int source = extent + (before < 0 ? before : 0) + (after < 0 ? after : 0);
	int made = source + (before > 0 ? before : 0) + (after > 0 ? after : 0);
	bool padded = before > 0 || after > 0;
	bool want = source >= 0 && !(source == 0 && extent > 0) && made <= MOST &&
	            !(source == 0 && padded && mode != PAD_MODE_CONSTANT);
	const int8_t from[] = { (int8_t)extent }, to[] = { (int8_t)(made & MOST) };
	struct transform_spec spec = { .n_perm = -1, .n_before = 1, .n_after = 1, .mode = mode };
	struct transform t;
	struct error err;

	spec.before[0] = (int8_t)before;
	spec.after[0] = (int8_t)after;
	tensor_layout_init(&spec.src, DTYPE_UINT8, 1, from, NULL, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, to, NULL, "dst", &err);
	if ((transform_init(&t, &spec, &err) == 0) != want)
		cr_assert_fail("%d with %d before and %d after, %s: accepted is not %d", extent, before,
		               after, pad_mode_names[mode], want);
	if (want)
		check_slabs(&t, before < 0 ? -before : 0);
}

Test(eight_bits, pads, .timeout = 240)
{
	int step = stride_of_share();

	for (int mode = 0; mode < PAD_MODE_COUNT; mode++)
		for (int extent = 0; extent <= MOST; extent++)
			for (int before = LEAST + extent % step; before <= MOST; before += step)
				for (int after = LEAST; after <= MOST; after++)
					check_pad(extent, before, after, (enum pad_mode)mode);
}
