/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the same arithmetic as eight_bits.c in its own width, because a sum that is compared before it is
 * stored has room to spare with 8 bits. Values at the ends of 64 bits are compared with 128-bit arithmetic,
 * and the overlaps of all small layouts with the sets of bytes that they touch. */
#include <criterion/criterion.h>

#include "proto/overlap.h"
#include "proto/tensor.h"

typedef __int128 exact;

static const int64_t shapes[] = {
	-1, 0, 1, 2, 3, 255, INT64_C(1) << 31, INT64_C(1) << 32, INT64_MAX / 2, INT64_MAX
};
static const int64_t strides[] = {
	INT64_MIN,      INT64_MIN + 1,    -(INT64_C(1) << 32), -3,       -1, 0, 1, 2,
	INT64_MAX / 16, INT64_C(1) << 32, INT64_MAX / 2,       INT64_MAX
};
static const uint64_t places[] = { 0,
	                           1,
	                           2,
	                           7,
	                           8,
	                           4096,
	                           INT64_MAX - 1,
	                           INT64_MAX,
	                           UINT64_C(1) << 63,
	                           UINT64_MAX - 7,
	                           UINT64_MAX - 1,
	                           UINT64_MAX };
#define N(array) (int)(sizeof(array) / sizeof *(array))

static bool exact_layout(int64_t size, int rank, const int64_t *shape, const int64_t *stride, exact *ret_low,
                         exact *ret_high)
{
	exact counted = 1, low = 0, high = size;
	bool empty = false;

	for (int d = 0; d < rank; d++) {
		if (shape[d] < 0)
			return false;
		empty |= shape[d] == 0;
		counted *= shape[d] ? shape[d] : 1;
		if (counted > INT64_MAX)
			return false;
	}
	for (int d = 0; !empty && d < rank; d++) {
		exact reach;

		/* What overflows 128 bits exceeds 63 bits as well. */
		if (__builtin_mul_overflow((exact)(shape[d] - 1) * stride[d], (exact)size, &reach) ||
		    reach > INT64_MAX || reach < -(exact)INT64_MAX)
			return false;
		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
		if (high - low > INT64_MAX)
			return false;
	}
	*ret_low = empty ? 0 : low;
	*ret_high = empty ? 0 : high;
	return true;
}

static void check_ranges(struct tensor_extent extent)
{
	struct error err;

	for (int i = 0; i < N(places); i++)
		for (int j = 0; j < N(places); j++) {
			exact from = (exact)places[i] + extent.low, to = (exact)places[i] + extent.high;
			bool want = places[i] <= places[j] && from >= 0 && to <= places[j];

			cr_assert_eq(tensor_check_range(extent, places[i], places[j], "t", &err) == 0, want,
			             "[%ld, %ld) at %lu of %lu", (long)extent.low, (long)extent.high,
			             (unsigned long)places[i], (unsigned long)places[j]);
		}
}

Test(full_width, layouts_and_ranges, .timeout = 120)
{
	enum { ROWS = N(shapes) * N(strides) };
	static const enum dtype dtypes[] = { DTYPE_UINT8, DTYPE_COMPLEX128 };
	struct tensor_layout layout;
	struct error err;
	int accepted = 0;

	for (int i = 0; i < 2 * ROWS * ROWS; i++) {
		int a = i / 2 % ROWS, b = i / 2 / ROWS;
		const int64_t shape[] = { shapes[a % N(shapes)], shapes[b % N(shapes)] };
		const int64_t stride[] = { strides[a / N(shapes)], strides[b / N(shapes)] };
		int64_t size = dtype_size(dtypes[i % 2]);
		exact low = 0, high = 0;
		bool want = exact_layout(size, 2, shape, stride, &low, &high);
		bool got = tensor_layout_init(&layout, dtypes[i % 2], 2, shape, stride, "t", &err) == 0;

		cr_assert_eq(got, want, "[%ld, %ld] strides [%ld, %ld] of %ld bytes: accepted is not %d",
		             (long)shape[0], (long)shape[1], (long)stride[0], (long)stride[1], (long)size,
		             want);
		if (!want)
			continue;
		cr_assert_eq(tensor_extent(&layout).low, low);
		cr_assert_eq(tensor_extent(&layout).high, high);
		check_ranges(tensor_extent(&layout));
		accepted++;
	}
	cr_assert_gt(accepted, 1000);
}

/* ---- Small layouts ------------------------------------------------------------------------------------ */

#define MOST_LAYOUTS 16384
#define ORIGIN       64 /* bit that stands for the first byte of element [0, ..., 0] */

static struct small {
	struct tensor_layout layout;
	unsigned __int128 bytes;
	bool met; /* two of its elements share a byte */
} small[MOST_LAYOUTS];
static int n_small;

static void add_small(enum dtype dtype, int rank, const int64_t *shape, const int64_t *stride)
{
	struct small *s = &small[n_small++];
	int64_t size = dtype_size(dtype), count;
	struct error err;

	cr_assert_eq(tensor_layout_init(&s->layout, dtype, rank, shape, stride, "t", &err), 0);
	count = tensor_count(&s->layout);
	for (int64_t i = 0; i < count; i++) {
		int64_t at = 0;
		unsigned __int128 bits;

		for (int64_t d = 0, rest = i; d < rank; rest /= shape[d++])
			at += rest % shape[d] * stride[d];
		bits = (((unsigned __int128)1 << size) - 1) << (ORIGIN + at * size);
		s->met |= (s->bytes & bits) != 0;
		s->bytes |= bits;
	}
}

/* Adds all layouts with extents up to `most` and strides from -reach to reach. */
static void add_all(enum dtype dtype, int rank, int most, int reach)
{
	int n = most * (2 * reach + 1), rows = 1;

	for (int d = 0; d < rank; d++)
		rows *= n;
	for (int i = 0; i < rows; i++) {
		int64_t shape[3], stride[3];

		for (int d = 0, rest = i; d < rank; rest /= n, d++) {
			shape[d] = rest % n % most + 1;
			stride[d] = rest % n / most - reach;
		}
		add_small(dtype, rank, shape, stride);
	}
}

Test(full_width, small_layouts_overlap_as_their_bytes_do, .timeout = 120)
{
	int with_itself = 0, pairs = 0, met = 0;

	add_all(DTYPE_UINT8, 3, 3, 3);   /* 9261 layouts */
	add_all(DTYPE_INT16, 2, 4, 4);   /* 1296 layouts */
	add_all(DTYPE_FLOAT32, 1, 4, 3); /* 28 layouts */
	for (int i = 0; i < n_small; i++) {
		cr_assert_eq(overlap_self(&small[i].layout), small[i].met ? OVERLAP_SOME : OVERLAP_NONE,
		             "layout %d with itself", i);
		with_itself += small[i].met;
	}
	for (int i = 0; i < n_small; i += 21)
		for (int j = i % 23; j < n_small; j += 23)
			for (int distance = -5; distance <= 5; distance += 2) {
				unsigned __int128 other =
				    distance < 0 ? small[j].bytes >> -distance : small[j].bytes << distance;
				bool meet = (small[i].bytes & other) != 0;

				if (overlap_between(&small[i].layout, &small[j].layout, distance) !=
				    (meet ? OVERLAP_SOME : OVERLAP_NONE))
					cr_assert_fail("layouts %d and %d at %d: not %d", i, j, distance,
					               meet);
				met += meet;
				pairs++;
			}
	cr_assert(with_itself > 1000 && met > 1000 && pairs - met > 1000, "%d, %d of %d", with_itself, met,
	          pairs);
}
