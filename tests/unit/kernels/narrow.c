/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the parts of a transform, run one by one, do what the transform does, and that they touch the
 * bytes that they report. */
#include <criterion/criterion.h>

#include "kernels/nest/narrow.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"
#include "tests/support/walk.h"

static bool within(struct tensor_extent part, int64_t shift, struct tensor_extent whole)
{
	if (part.low == part.high)
		return true;
	return part.low + shift >= whole.low && part.high + shift <= whole.high;
}

/* Cuts the transform along one axis, and one of the parts along another, and runs all parts. */
static void run_parts(const struct transform *t, uint8_t *dst, const uint8_t *src, uint64_t *state, int cuts,
                      const char *text)
{
	struct tensor_extent reads = transform_reads(t), writes = transform_writes(t);
	int axis = t->rank ? (int)oracle_between(state, 0, t->rank - 1) : -1;

	if (axis < 0 || cuts == 0 || t->count == 0 || !transform_can_narrow(t, axis)) {
		walk_transform(t, dst, src);
		return;
	}
	for (int64_t first = 0, n; first < t->axis[axis].extent; first += n) {
		struct transform part = *t;
		int64_t shift;

		n = oracle_between(state, 1, t->axis[axis].extent - first);
		shift = transform_narrow(&part, axis, first, n);
		cr_assert_eq(part.count, t->count / t->axis[axis].extent * n, "%s", text);
		cr_assert(within(transform_writes(&part), shift, writes), "%s: axis %d from %ld", text, axis,
		          (long)first);
		cr_assert(within(transform_reads(&part), 0, reads), "%s: axis %d from %ld", text, axis,
		          (long)first);
		run_parts(&part, dst + shift, src, state, cuts - 1, text);
	}
}

Test(narrow, parts_are_the_whole, .timeout = 300)
{
	static char text[2000];
	const uint64_t seeds = (uint64_t)tap_portion(100000);

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		uint64_t state = seed;
		struct oracle_case c;
		struct transform t;
		struct error err;

		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert_eq(transform_init(&t, &c.spec, &err), 0, "%s: %s", text, err.message);
		cr_assert(oracle_case_prepare(&c));
		run_parts(&t, oracle_dst(&c) + c.dst_offset, oracle_src(&c) + c.src_offset, &state, 3, text);
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s", text);
		oracle_case_free(&c);
	}
}

/* A crop reads less than its layout spans, a broadcast dimension is read once, and an empty tensor is not
 * read. */
Test(narrow, reads)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = 2, .n_after = 2, .before = { -1, -2 } };
	int64_t src_shape[2] = { 4, 8 }, dst_shape[2] = { 3, 6 };
	struct transform t;
	struct error err;

	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, src_shape, NULL, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, dst_shape, NULL, "dst", &err);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s", err.message);
	cr_assert_eq(transform_reads(&t).low, (8 + 2) * 4);
	cr_assert_eq(transform_reads(&t).high, 4 * 8 * 4);
	cr_assert_eq(transform_writes(&t).high, 3 * 6 * 4);
	cr_assert_eq(transform_read_bytes(&t), 3 * 6 * 4);

	spec.src.stride[0] = 0;
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s", err.message);
	cr_assert_eq(transform_reads(&t).low, 2 * 4);
	cr_assert_eq(transform_reads(&t).high, 8 * 4);
	cr_assert_eq(transform_read_bytes(&t), 6 * 4);

	spec.n_before = spec.n_after = -1;
	spec.src.shape[1] = spec.dst.shape[1] = 0;
	spec.dst.shape[0] = 4;
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s", err.message);
	cr_assert_eq(transform_reads(&t).high - transform_reads(&t).low, 0);
	cr_assert_eq(transform_writes(&t).high, 0);
	cr_assert_eq(transform_read_bytes(&t), 0);
}
