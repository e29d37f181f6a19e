/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the baseline copies every byte, with any number of threads, and nothing beside them. */
#include "tests/bench/baseline.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdint.h>
#include <string.h>

#define MOST (6 * BASELINE_STRETCH)

struct copy_case {
	char name[40];
	unsigned threads;
	size_t n;
};

ParameterizedTestParameters(baseline, copy)
{
	static struct copy_case cases[] = {
		{ "one thread", 1, MOST },
		{ "too short for two", 2, 2 * BASELINE_STRETCH - 1 },
		{ "two", 2, 2 * BASELINE_STRETCH },
		{ "a last stretch that is longer", 3, 5 * BASELINE_STRETCH + 13 },
		{ "more threads than stretches", 9, MOST },
		{ "a byte", 2, 1 },
	};
	return cr_make_param_array(struct copy_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct copy_case *c, baseline, copy)
{
	static uint8_t src[MOST], dst[MOST + 1];
	struct baseline *baseline;
	struct error err;

	cr_assert_eq(baseline_new(&baseline, c->threads, &err), 0, "%s: %s", c->name, err.message);
	for (int round = 1; round <= 3; round++) {
		baseline_start(baseline, c->n);
		for (int call = 0; call < 3; call++) {
			memset(src, 16 * round + call, c->n);
			baseline_copy(baseline, dst, src, c->n);
			cr_expect(!memcmp(dst, src, c->n), "%s: round %d, call %d", c->name, round, call);
		}
		baseline_stop(baseline);
	}
	cr_expect_eq(dst[c->n], 0, "%s: a byte too many", c->name);
	baseline_free(baseline);
}
