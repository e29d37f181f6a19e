/* SPDX-License-Identifier: Apache-2.0 */
/* The plan cache: equal requests share an entry, different ones never do, the oldest goes first. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "daemon/resource/plan_cache.h"

static const struct plan_facts facts = { .engine = "cpu", .threads = 2, .align = 16 };

static struct transform_spec spec_of(int64_t rows, int64_t columns)
{
	struct transform_spec spec = { .n_perm = 2, .n_before = -1, .n_after = -1, .perm = { 1, 0 } };
	struct error err;

	cr_assert_eq(
	    tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, (int64_t[]){ rows, columns }, NULL, "src", &err),
	    0);
	cr_assert_eq(
	    tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, (int64_t[]){ columns, rows }, NULL, "dst", &err),
	    0);
	return spec;
}

static struct plan_entry *get(struct plan_cache *cache, const struct transform_spec *spec)
{
	struct plan_entry *entry;
	struct error err;

	cr_assert_eq(plan_cache_get(cache, spec, &facts, &entry, &err), 0, "%s", err.message);
	return entry;
}

Test(plan_cache, hit)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(3, 5), b = spec_of(5, 3);
	struct plan_entry *first, *again, *other;

	cr_assert_eq(plan_cache_init(&cache, 8, 1), 0);
	first = get(&cache, &a);
	again = get(&cache, &a);
	other = get(&cache, &b);
	cr_assert_eq(first, again);
	cr_assert_neq(first, other);
	cr_assert_eq(cache.hits, 1);
	cr_assert_eq(cache.misses, 2);
	cr_assert_eq(cache.entries, 2);
	plan_entry_unref(first);
	plan_entry_unref(again);
	plan_entry_unref(other);
	plan_cache_deinit(&cache);
}

/* Each row changes one thing of the request, and has to be another entry. */
enum change { CHANGE_DTYPE, CHANGE_PERM, CHANGE_STRIDE, CHANGE_PAD, CHANGE_VALUE, CHANGE_MODE, CHANGE_COUNT };

Test(plan_cache, every_part_of_the_request_counts)
{
	for (int change = 0; change < CHANGE_COUNT; change++) {
		struct plan_cache cache;
		struct transform_spec base = spec_of(4, 4), other;
		struct plan_entry *a, *b;

		base.n_before = base.n_after = 2;
		base.after[0] = 1;
		base.dst.shape[0] = 5;
		other = base;
		switch (change) {
		case CHANGE_DTYPE:
			other.src.dtype = other.dst.dtype = DTYPE_INT32;
			break;
		case CHANGE_PERM:
			other.perm[0] = 0;
			other.perm[1] = 1;
			break;
		case CHANGE_STRIDE:
			other.src.stride[0] = 7;
			break;
		case CHANGE_PAD:
			other.before[0] = 1;
			other.after[0] = 0;
			break;
		case CHANGE_VALUE:
			other.value.u = 1;
			break;
		case CHANGE_MODE:
			other.mode = PAD_MODE_EDGE;
			break;
		}
		cr_assert_eq(plan_cache_init(&cache, 8, 1), 0);
		a = get(&cache, &base);
		b = get(&cache, &other);
		cr_assert_neq(a, b, "change %d", change);
		plan_entry_unref(a);
		plan_entry_unref(b);
		plan_cache_deinit(&cache);
	}
}

/* Scales are computed for 4 blocks of [2, 2]. */
static struct transform_spec spec_with_amax(void)
{
	struct transform_spec spec = spec_of(4, 4);
	struct amax_spec *amax = &spec.conversion.amax;
	struct error err;

	spec.conversion.is_given = amax->is_given = amax->power_of_two = amax->scale.is_given = true;
	amax->n_block = 2;
	amax->block[0] = amax->block[1] = 2;
	cr_assert_eq(tensor_layout_init(&amax->scale.layout, DTYPE_FLOAT32, 2, (int64_t[]){ 2, 2 }, NULL,
	                                "scale", &err),
	             0);
	return spec;
}

Test(plan_cache, every_part_of_amax_counts)
{
	enum { NOTHING, GIVEN, POWER, LEAST, BLOCK, TYPE, STRIDE, INVERSE, CAST, CHANGES };

	for (int change = 0; change < CHANGES; change++) {
		struct plan_cache cache;
		struct transform_spec base = spec_with_amax(), other = base;
		struct amax_spec *amax = &other.conversion.amax;
		struct plan_entry *a, *b;

		if (change == GIVEN)
			amax->is_given = false;
		if (change == POWER)
			amax->power_of_two = false;
		if (change == LEAST)
			amax->least = 1e-4;
		if (change == BLOCK)
			amax->block[0] = 3;
		if (change == TYPE)
			amax->scale.layout.dtype = DTYPE_UINT8;
		if (change == STRIDE)
			amax->scale.layout.stride[0] = 5;
		if (change == INVERSE) {
			amax->inverse = amax->scale;
			amax->scale.is_given = false;
		}
		if (change == CAST)
			other.conversion.cast = CAST_EXACT;
		cr_assert_eq(plan_cache_init(&cache, 8, 1), 0);
		a = get(&cache, &base);
		b = get(&cache, &other);
		cr_assert_eq(a == b, change == NOTHING, "change %d", change);
		plan_entry_unref(a);
		plan_entry_unref(b);
		plan_cache_deinit(&cache);
	}
}

/* What is refused with a cast missing is so too when the same without it is there. */
Test(plan_cache, a_cast_that_is_missing_is_found)
{
	struct plan_cache cache;
	const struct transform_spec plain = spec_of(4, 4);
	struct transform_spec rows[] = { spec_with_amax(), plain, plain };
	struct plan_entry *entry;
	struct error err;

	rows[0].conversion.is_given = false;
	rows[1].conversion.scale.kind = rows[2].conversion.bias.kind = OPERAND_NUMBER;
	cr_assert_eq(plan_cache_init(&cache, 8, 1), 0);
	plan_entry_unref(get(&cache, &plain));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(plan_cache_get(&cache, &rows[i], &facts, &entry, &err), STATUS_INVALID_ARGUMENT,
		             "row %zu", i);
	plan_cache_deinit(&cache);
}

Test(plan_cache, least_recently_used_goes_first_and_lives_while_it_is_held)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3), b = spec_of(2, 4), c = spec_of(2, 5);
	struct plan_entry *held, *entry;

	cr_assert_eq(plan_cache_init(&cache, 2, 1), 0);
	held = get(&cache, &b);
	plan_entry_unref(get(&cache, &a));
	plan_entry_unref(get(&cache, &c)); /* drops b, the oldest */
	cr_assert_eq(cache.evictions, 1);
	cr_assert_eq(held->transform.axis[0].extent, 4);
	entry = get(&cache, &b); /* drops a */
	cr_assert_neq(entry, held);
	plan_entry_unref(entry);
	plan_entry_unref(held);
	plan_entry_unref(get(&cache, &c));
	cr_assert_eq(cache.hits, 1);
	plan_cache_deinit(&cache);
}

Test(plan_cache, without_room_it_still_plans)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3);

	cr_assert_eq(plan_cache_init(&cache, 0, 1), 0);
	plan_entry_unref(get(&cache, &a));
	plan_entry_unref(get(&cache, &a));
	cr_assert_eq(cache.misses, 2);
	cr_assert_eq(cache.entries, 0);
	plan_cache_deinit(&cache);
}

Test(plan_cache, a_bad_request_is_not_kept)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3);
	struct plan_entry *entry;
	struct error err;

	a.perm[1] = 1;
	cr_assert_eq(plan_cache_init(&cache, 4, 1), 0);
	cr_assert_eq(plan_cache_get(&cache, &a, &facts, &entry, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_eq(cache.entries, 0);
	plan_cache_deinit(&cache);
}

/* What is in use outlives its place in the cache; what is left is found in the new lists. */
Test(plan_cache, resize)
{
	struct plan_cache cache;
	struct transform_spec spec[100];
	struct plan_entry *held;
	int64_t extent;

	cr_assert_eq(plan_cache_init(&cache, 100, 1), 0);
	for (int i = 0; i < 100; i++) {
		spec[i] = spec_of(i + 2, 5);
		plan_entry_unref(get(&cache, &spec[i]));
	}
	held = get(&cache, &spec[0]);
	extent = held->transform.axis[0].extent;
	plan_cache_resize(&cache, 10);
	cr_assert_eq(cache.entries, 10);
	for (int i = 91; i < 100; i++)
		plan_entry_unref(get(&cache, &spec[i]));
	cr_assert_eq(cache.hits, 10, "the last used are there");
	plan_cache_resize(&cache, 0);
	cr_assert_eq(cache.entries, 0);
	cr_assert_eq(held->transform.axis[0].extent, extent);
	plan_entry_unref(get(&cache, &spec[0]));
	cr_assert_eq(cache.entries, 0);
	plan_cache_resize(&cache, 1000);
	for (int i = 0; i < 200; i++)
		plan_entry_unref(get(&cache, &spec[i % 100]));
	cr_assert_eq(cache.entries, 100);
	cr_assert_eq(cache.hits, 110);
	plan_entry_unref(held);
	plan_cache_deinit(&cache);
}

Test(plan_cache, median_of_the_last_measured_runs)
{
	static const uint64_t ns[] = { 900, 100, 300, 800, 500, 200, 700, 400, 600, 50 };
	/* Of the first one, of the first two, ... of the last seven. */
	static const uint64_t medians[] = { 900, 500, 300, 550, 500, 400, 500, 400, 500, 500 };
	struct plan_runs runs = { 0 };

	_Static_assert(PLAN_KEPT_TIMES == 7, "the medians above are of so many");
	cr_assert_eq(plan_runs_median_ns(&runs), 0);
	for (uint64_t i = 0; i < sizeof ns / sizeof *ns; i++) {
		plan_runs_add(&runs, 1, false);
		plan_runs_add(&runs, ns[i], true);
		cr_assert_eq(plan_runs_median_ns(&runs), medians[i], "%zu: %zu", (size_t)i,
		             (size_t)plan_runs_median_ns(&runs));
		cr_assert_eq(runs.n_measured, i + 1);
		cr_assert_eq(runs.n, 2 * (i + 1));
	}
}
