/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the predicted time of a copy, and of a plan relative to it. */
#include <criterion/criterion.h>

#include "kernels/cuda/strategy/plan.h"

/* The rows are from tests/bench/EXPERIMENTS.md: bytes read plus written, and GB/s of the copy. */
Test(predict, an_h200_copies_as_measured)
{
	static const struct {
		double bytes;
		double measured;
	} rows[] = {
		{ 2.0 * 32768 * 32768 * 4, 4252.2 },       { 2.0 * 8192 * 8192 * 4, 4009.9 },
		{ 2.0 * 320 * 56 * 56 * 256 * 2, 4114.9 }, { 2.0 * 64 * 112 * 112 * 128 * 4, 4056.5 },
		{ 2.0 * 1024 * 224 * 224 * 3, 3830.5 },
	};
	const struct plan_facts facts = plan_facts_of_h200();

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const double ns = copy_speed_ns(&facts.copy, (uint64_t)rows[i].bytes);

		cr_expect_float_eq(rows[i].bytes / ns / rows[i].measured, 1, 0.03, "row %zu: %.1f GB/s", i,
		                   rows[i].bytes / ns);
	}
}

Test(predict, a_plan_costs_a_multiple_of_a_copy)
{
	const struct copy_speed speed = copy_speed_of(1000000, 64);
	struct plan plan = { .predicted = 1.5 };
	const double copy_ns = copy_speed_ns(&speed, 1 << 20);

	cr_assert_float_eq(plan_predict_ns(&plan, 1 << 20, &speed), 1.5 * copy_ns, 1e-6);
	cr_assert_float_eq(copy_speed_ns(&speed, 1 << 30) - copy_speed_ns(&speed, 1 << 29),
	                   (1 << 29) / speed.bytes_per_ns, 1e-3);
	plan.predicted = 0;
	cr_assert_eq(plan_predict_ns(&plan, 1 << 20, &speed), 0, "what has no prediction");
}

/* Returns the cost of a plan for an H200. shape is the source's, and before the border along the first
 * dimension. */
static double predicted(const int64_t shape[2], bool transposed, int64_t before)
{
	struct transform_spec spec = { .n_perm = 2,
		                       .perm = { transposed, !transposed },
		                       .n_before = 2,
		                       .before = { before },
		                       .n_after = -1 };
	const int64_t dst[2] = { shape[transposed] + before, shape[!transposed] };
	struct plan_facts facts;
	struct transform t;
	struct plan plan;
	struct error err;

	cr_assert_eq(tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, dst, NULL, "dst", &err), 0);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s", err.message);
	facts = plan_facts_of_h200();
	plan_init(&plan, &t, &facts);
	return plan.predicted;
}

Test(predict, what_plans_cost)
{
	static const int64_t shape[2] = { 1000, 1001 }, empty[2] = { 0, 8192 };
	const double transposed = predicted(shape, true, 0);

	cr_expect_eq(predicted(shape, false, 0), 1, "the driver's own copy");
	cr_expect(transposed > 1 && transposed < 2, "transposed: %g", transposed);
	/* tests/bench/EXPERIMENTS.md has 0.87 of a copy's speed. */
	cr_expect_float_eq(predicted(empty, false, 1000), 1 / 0.87, 0.01, "a fill");
	cr_expect_eq(predicted(empty, false, 0), 0, "nothing to move");
}

Test(predict, a_device_that_does_not_say)
{
	const struct copy_speed no_clock = copy_speed_of(0, 6016), no_bus = copy_speed_of(3201000, 0);
	const struct plan plan = { .predicted = 1 };

	cr_assert_eq(copy_speed_ns(&no_clock, 1 << 20), 0);
	cr_assert_eq(copy_speed_ns(&no_bus, 1 << 20), 0);
	cr_assert_eq(plan_predict_ns(&plan, 1 << 20, &no_bus), 0);
}
