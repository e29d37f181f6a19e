/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes to plan for a GPU. */
#include <criterion/criterion.h>

#include "kernels/cuda/strategy/plan.h"

/* Only a search for tiles takes long: of what is neither one run nor one of many moves. */
Test(plan, quick_ones)
{
	static const struct {
		const char *name;
		int64_t perm[2];
		struct plan_facts facts;
		bool is_quick;
	} quick[] = {
		{ "a copy", { 0, 1 }, { .spread = false }, true },
		{ "a transpose", { 1, 0 }, { .spread = false }, false },
		{ "one of many", { 1, 0 }, { .spread = true }, true },
		{ "a list's", { 1, 0 }, { .listed = true }, true },
	};
	const int64_t shape[] = { 64, 48 };

	for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
		const int64_t *perm = quick[i].perm;
		struct transform_spec spec = {
			.n_perm = 2, .perm = { perm[0], perm[1] }, .n_before = -1, .n_after = -1
		};
		struct plan_facts facts = quick[i].facts;
		struct transform t;
		struct error err;

		facts.align = 16;
		cr_assert_eq(tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err), 0);
		cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2,
		                                (int64_t[]){ shape[perm[0]], shape[perm[1]] }, NULL, "dst",
		                                &err),
		             0);
		cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", quick[i].name, err.message);
		cr_expect_eq(plan_is_quick(&t, &facts), quick[i].is_quick, "%s", quick[i].name);
	}
}
