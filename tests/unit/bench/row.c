/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the request that a row stands for, and that a wrong byte is found. */
#include "tests/bench/row.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/quick_rows.h"
#include "tests/support/oracle.h"

#define ROOM (4u << 20)

struct row_case {
	int index;
	char name[48];
};

ParameterizedTestParameters(row, check)
{
	static struct row_case cases[sizeof(bench_quick_rows) / sizeof(bench_quick_rows[0])];
	int n = sizeof(cases) / sizeof(cases[0]);

	for (int i = 0; i < n; i++) {
		cases[i].index = i;
		snprintf(cases[i].name, sizeof(cases[i].name), "%s %s", bench_quick_rows[i].what,
		         dtype_names[bench_quick_rows[i].dtype]);
	}
	return cr_make_param_array(struct row_case, cases, n);
}

ParameterizedTest(struct row_case *c, row, check)
{
	static uint8_t src[ROOM], dst[ROOM];
	const struct bench_row *row = &bench_quick_rows[c->index];
	struct transform_spec spec;
	struct transform transform;
	struct error err;
	int64_t first;
	uint64_t state = 3;

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (uint8_t)oracle_random(&state);
	cr_assert_eq(bench_row_spec(row, &spec, &first, &err), 0, "%s: %s", c->name, err.message);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", c->name, err.message);
	const uint8_t *from = src + first * transform.element;
	oracle_run(&spec, dst, from);
	cr_expect_eq(bench_row_check(row, &spec, dst, from, &err), 0, "%s: %s", c->name, err.message);

	dst[transform.dst_extent.high - 1] ^= 1;
	cr_expect_lt(bench_row_check(row, &spec, dst, from, &err), 0, "%s: a wrong byte passed", c->name);
	cr_expect(strstr(err.message, "wrong bytes at ["), "%s: %s", c->name, err.message);
}

Test(row, views)
{
	static const struct bench_row gapped = ROW("", FLOAT32, 2, DIMS(3, 5), .gap = 2, .offset = 7);
	static const struct bench_row reversed = ROW("", FLOAT32, 2, DIMS(3, 5), .reversed = 1);
	static const struct bench_row outer = ROW("", FLOAT32, 2, DIMS(3, 5), .reversed = 2, .gap = 2);
	static const struct bench_row repeated =
	    ROW("", FLOAT32, 2, DIMS(3, 5), .perm = { 1, 0 }, .repeated = true);
	struct transform_spec spec;
	struct error err;
	int64_t first;

	cr_assert_eq(bench_row_spec(&gapped, &spec, &first, &err), 0);
	cr_expect(first == 7 && spec.src.stride[0] == 7 && spec.src.stride[1] == 1 && spec.perm[1] == 1);
	cr_assert_eq(bench_row_spec(&reversed, &spec, &first, &err), 0);
	cr_expect(first == 4 && spec.src.stride[0] == 5 && spec.src.stride[1] == -1);
	cr_assert_eq(bench_row_spec(&outer, &spec, &first, &err), 0);
	cr_expect(first == 14 && spec.src.stride[0] == -7 && spec.src.stride[1] == 1);
	cr_assert_eq(bench_row_spec(&repeated, &spec, &first, &err), 0);
	cr_expect(first == 0 && spec.src.stride[0] == 0 && spec.dst.shape[0] == 5 && spec.dst.shape[1] == 3);
}
