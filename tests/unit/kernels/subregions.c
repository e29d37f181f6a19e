/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every random transform, run subregion by subregion with the plainest loops over each loop nest,
 * equals the oracle, with gaps and guard bytes. */
#include <criterion/criterion.h>

#include "kernels/nest/loop_nest.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"
#include "tests/support/walk.h"

/* Returns which of loop_nest.h's rules for canonical nests this one breaks, or NULL. */
static const char *canonical_flaw(const struct loop_nest *nest, uint32_t align, int64_t element)
{
	if (nest->element != element && (nest->fill || nest->element > align || nest->element > 16))
		return "widened past what is allowed";
	for (int d = 0; d < nest->rank; d++) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (dim->n < 2)
			return "a dimension without a second element";
		if (dim->dst <= 0)
			return "a destination stride that is not positive";
		if (d && dim[-1].dst <= dim->dst)
			return "dimensions out of order";
		if (d && dim[-1].dst == dim->dst * dim->n && (nest->fill || dim[-1].src == dim->src * dim->n))
			return "dimensions that could be fused";
		if (dim->dst % nest->element || dim->src % nest->element)
			return "a stride that is no multiple of the element";
	}
	return NULL;
}

static uint32_t place_align(const struct oracle_case *c)
{
	uint64_t bits = c->dst_offset | c->src_offset | 64;

	return (uint32_t)(bits & -bits);
}

Test(subregions, random_transforms_equal_the_oracle, .timeout = 300)
{
	static char text[2000];

	const uint64_t seeds = (uint64_t)tap_portion(200000);

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct oracle_case c;
		struct transform t;
		struct subregions subregions;
		struct loop_nest nest;
		struct error err;
		uint32_t align;
		int64_t count = 0;

		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert_eq(transform_init(&t, &c.spec, &err), 0, "%s: %s", text, err.message);
		cr_assert(oracle_case_prepare(&c));
		align = place_align(&c);
		subregions_init(&subregions, &t);
		for (uint64_t i = 0; i < subregions.n; i++) {
			const char *flaw;

			subregions_get(&subregions, i, align, &nest);
			flaw = canonical_flaw(&nest, align, t.element);
			cr_assert(!flaw, "subregion %d has %s: %s", (int)i, flaw, text);
			walk_nest(&nest, &t, oracle_dst(&c) + c.dst_offset, oracle_src(&c) + c.src_offset);
			count += loop_nest_count(&nest) * nest.element;
		}
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s", text);
		cr_assert_eq(count, t.count * t.element, "an element is written twice: %s", text);
		oracle_case_free(&c);
	}
}

/* The same holds with some of the axes windowed. */
Test(subregions, windowed_axes_equal_the_oracle, .timeout = 300)
{
	static char text[2000];

	const uint64_t seeds = (uint64_t)tap_portion(100000);
	uint64_t windows = 0;

	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct oracle_case c;
		struct transform t;
		struct subregions subregions;
		struct loop_nest nest;
		struct error err;
		uint64_t state = seed;
		int64_t count = 0;

		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert_eq(transform_init(&t, &c.spec, &err), 0, "%s: %s", text, err.message);
		cr_assert(oracle_case_prepare(&c));
		subregions_init(&subregions, &t);
		if (subregions.n > 1 && subregions.interior)
			subregions_init_windowed(&subregions, &t, (uint32_t)oracle_random(&state));
		for (uint64_t i = 0; i < subregions.n; i++) {
			subregions_get(&subregions, i, place_align(&c), &nest);
			walk_nest(&nest, &t, oracle_dst(&c) + c.dst_offset, oracle_src(&c) + c.src_offset);
			count += loop_nest_count(&nest) * nest.element;
			for (int d = 0; d < nest.rank; d++)
				windows += !loop_nest_dim_is_whole(&nest.dim[d]);
		}
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s", text);
		cr_assert_eq(count, t.count * t.element, "an element is written twice: %s", text);
		oracle_case_free(&c);
	}
	cr_assert_gt(windows, seeds / 20, "%d windows", (int)windows);
}

/* Extents near 2^63 are planned like any others, but nothing is run. The sums stay within 63 bits, which the
 * sanitizers check, and the subregions within the tensors. */
Test(subregions, arithmetic_holds_at_the_limits)
{
	static const int64_t pads[][3] = { /* before, source, after */
		                           { 0, INT64_MAX, 0 },
		                           { INT64_MAX / 4, INT64_MAX / 2, INT64_MAX / 4 },
		                           { INT64_MAX - 1, 1, 0 },
		                           { 0, 1, INT64_MAX - 1 },
		                           { INT64_MAX / 3, INT64_MAX / 3, INT64_MAX / 3 },
		                           { 0, INT64_MAX / 5, INT64_MAX / 5 * 4 },
		                           { INT64_MAX / 5 * 4, INT64_MAX / 5, 0 }
	};

	for (size_t i = 0; i < sizeof pads / sizeof *pads; i++)
		for (int mode = 0; mode < PAD_MODE_COUNT; mode++) {
			int64_t before = pads[i][0], source = pads[i][1], after = pads[i][2];
			int64_t extent = before + source + after, count = 0;
			struct transform_spec spec = {
				.n_perm = -1, .n_before = 1, .n_after = 1, .mode = mode
			};
			struct transform t;
			struct subregions subregions;
			struct loop_nest nest;
			struct error err;

			spec.before[0] = before;
			spec.after[0] = after;
			cr_assert_eq(
			    tensor_layout_init(&spec.src, DTYPE_UINT8, 1, &source, NULL, "src", &err), 0);
			cr_assert_eq(
			    tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, &extent, NULL, "dst", &err), 0);
			cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s", err.message);
			subregions_init(&subregions, &t);
			for (uint64_t s = 0; s < subregions.n; s++) {
				int64_t n, first, last;

				subregions_get(&subregions, s, 1, &nest);
				n = loop_nest_count(&nest);
				first = nest.src_offset;
				last = first + (n - 1) * (nest.rank ? nest.dim[0].src : 0);
				cr_assert(first >= 0 && first < source && last >= 0 && last < source,
				          "pads %zu, %s, subregion %d reads from %ld to %ld", i,
				          pad_mode_names[mode], (int)s, (long)first, (long)last);
				cr_assert(nest.dst_offset >= 0 && nest.dst_offset <= extent - n,
				          "pads %zu, %s, subregion %d writes to %ld", i, pad_mode_names[mode],
				          (int)s, (long)nest.dst_offset);
				count += n;
			}
			cr_assert_eq(count, extent, "pads %zu, %s: %ld", i, pad_mode_names[mode],
			             (long)count);
		}
}
