/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the plan cache: equal requests share an entry, different ones never do, and the oldest goes first. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/plan_cache.h"

static int n_inits, n_deinits;

static void init(struct engine_plan *plan)
{
	cr_assert_eq(*(int64_t *)plan->own, 0);
	*(int64_t *)plan->own = plan->transform.axis[0].extent;
	n_inits++;
}

static void deinit(struct engine_plan *plan)
{
	cr_assert_eq(*(int64_t *)plan->own, plan->transform.axis[0].extent);
	n_deinits++;
}

static const struct plan_cache_ops ops = { sizeof(int64_t), init, deinit };

static void open_cache(struct plan_cache *cache, uint64_t capacity)
{
	n_inits = n_deinits = 0;
	cr_assert_eq(plan_cache_init(cache, capacity, &ops, NULL), 0);
}

/* Frees the cache. Every plan must have been freed exactly once. */
static void close_cache(struct plan_cache *cache)
{
	plan_cache_deinit(cache);
	cr_assert_eq(n_deinits, n_inits);
}

static struct engine_cache_stats stats_of(struct plan_cache *cache)
{
	struct engine_cache_stats stats;

	plan_cache_stats(cache, &stats);
	return stats;
}

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

static int try_at(struct plan_cache *cache, bool by_phase, const struct transform_spec *spec,
                  struct plan_places places, struct engine_plan **ret)
{
	struct engine engine = { .plans = cache, .plans_by_phase = by_phase };
	struct error err;

	return engine_prepare(&engine, spec, places, ret, &err);
}

static struct engine_plan *get(struct plan_cache *cache, const struct transform_spec *spec)
{
	struct engine_plan *plan;

	cr_assert_eq(try_at(cache, true, spec, plan_places(0, 0), &plan), 0);
	return plan;
}

Test(plan_cache, hit)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(3, 5), b = spec_of(5, 3);
	struct engine_plan *first, *again, *other;

	open_cache(&cache, 8);
	first = get(&cache, &a);
	again = get(&cache, &a);
	other = get(&cache, &b);
	cr_assert_eq(first, again);
	cr_assert_neq(first, other);
	cr_assert_eq(stats_of(&cache).hits, 1);
	cr_assert_eq(stats_of(&cache).misses, 2);
	cr_assert_eq(stats_of(&cache).entries, 2);
	engine_plan_unref(first);
	engine_plan_unref(again);
	engine_plan_unref(other);
	close_cache(&cache);
}

/* Each change to the request must lead to another entry. */
enum change { CHANGE_DTYPE, CHANGE_PERM, CHANGE_STRIDE, CHANGE_PAD, CHANGE_VALUE, CHANGE_MODE, CHANGE_COUNT };

Test(plan_cache, every_part_of_the_request_counts)
{
	for (int change = 0; change < CHANGE_COUNT; change++) {
		struct plan_cache cache;
		struct transform_spec base = spec_of(4, 4), other;
		struct engine_plan *a, *b;

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
		open_cache(&cache, 8);
		a = get(&cache, &base);
		b = get(&cache, &other);
		cr_assert_neq(a, b, "change %d", change);
		engine_plan_unref(a);
		engine_plan_unref(b);
		close_cache(&cache);
	}
}

/* Returns a request that computes the scales of 4 blocks of [2, 2]. */
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
		struct engine_plan *a, *b;

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
		open_cache(&cache, 8);
		a = get(&cache, &base);
		b = get(&cache, &other);
		cr_assert_eq(a == b, change == NOTHING, "change %d", change);
		engine_plan_unref(a);
		engine_plan_unref(b);
		close_cache(&cache);
	}
}

/* A transform that needs a cast and has none is refused even while the cache has a plan for its layout. */
Test(plan_cache, a_cast_that_is_missing_is_found)
{
	struct plan_cache cache;
	const struct transform_spec plain = spec_of(4, 4);
	struct transform_spec rows[] = { spec_with_amax(), plain, plain };
	struct engine_plan *plan;

	rows[0].conversion.is_given = false;
	rows[1].conversion.scale.kind = rows[2].conversion.bias.kind = OPERAND_NUMBER;
	open_cache(&cache, 8);
	engine_plan_unref(get(&cache, &plain));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(try_at(&cache, true, &rows[i], plan_places(0, 0), &plan),
		             STATUS_INVALID_ARGUMENT, "row %zu", i);
	close_cache(&cache);
}

Test(plan_cache, least_recently_used_goes_first_and_lives_while_it_is_held)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3), b = spec_of(2, 4), c = spec_of(2, 5);
	struct engine_plan *held, *entry;

	open_cache(&cache, 2);
	held = get(&cache, &b);
	engine_plan_unref(get(&cache, &a));
	engine_plan_unref(get(&cache, &c)); /* drops b, the oldest */
	cr_assert_eq(stats_of(&cache).evictions, 1);
	cr_assert_eq(held->transform.axis[0].extent, 4);
	entry = get(&cache, &b); /* drops a */
	cr_assert_neq(entry, held);
	engine_plan_unref(entry);
	engine_plan_unref(held);
	engine_plan_unref(get(&cache, &c));
	cr_assert_eq(stats_of(&cache).hits, 1);
	close_cache(&cache);
}

Test(plan_cache, without_room_it_still_plans)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3);

	open_cache(&cache, 0);
	engine_plan_unref(get(&cache, &a));
	engine_plan_unref(get(&cache, &a));
	cr_assert_eq(stats_of(&cache).misses, 2);
	cr_assert_eq(stats_of(&cache).entries, 0);
	close_cache(&cache);
}

Test(plan_cache, a_bad_request_is_not_kept)
{
	struct plan_cache cache;
	struct transform_spec a = spec_of(2, 3);
	struct engine_plan *plan;

	a.perm[1] = 1;
	open_cache(&cache, 4);
	cr_assert_eq(try_at(&cache, true, &a, plan_places(0, 0), &plan), STATUS_INVALID_ARGUMENT);
	cr_assert_eq(stats_of(&cache).entries, 0);
	close_cache(&cache);
}

/* A plan in use outlives its place in the cache, and the plans that stay are found in the resized table. */
Test(plan_cache, resize)
{
	struct plan_cache cache;
	struct transform_spec spec[100];
	struct engine_plan *held;
	int64_t extent;

	open_cache(&cache, 100);
	for (int i = 0; i < 100; i++) {
		spec[i] = spec_of(i + 2, 5);
		engine_plan_unref(get(&cache, &spec[i]));
	}
	held = get(&cache, &spec[0]);
	extent = held->transform.axis[0].extent;
	plan_cache_resize(&cache, 10);
	cr_assert_eq(stats_of(&cache).entries, 10);
	for (int i = 91; i < 100; i++)
		engine_plan_unref(get(&cache, &spec[i]));
	cr_assert_eq(stats_of(&cache).hits, 10, "the last used are there");
	plan_cache_resize(&cache, 0);
	cr_assert_eq(stats_of(&cache).entries, 0);
	cr_assert_eq(held->transform.axis[0].extent, extent);
	engine_plan_unref(get(&cache, &spec[0]));
	cr_assert_eq(stats_of(&cache).entries, 0);
	plan_cache_resize(&cache, 1000);
	for (int i = 0; i < 200; i++)
		engine_plan_unref(get(&cache, &spec[i % 100]));
	cr_assert_eq(stats_of(&cache).entries, 100);
	cr_assert_eq(stats_of(&cache).hits, 110);
	engine_plan_unref(held);
	close_cache(&cache);
}

/* A GPU's plans depend on both addresses modulo a sector, the CPU's on their alignment alone. */
Test(plan_cache, places)
{
	static const struct {
		struct plan_places a, b;
		bool same_by_phase, same;
	} rows[] = {
		{ { 0, 0, false }, { 0, 0, false }, true, true },
		{ { 0, 0, false }, { 16, 0, false }, false, true },
		{ { 4, 8, false }, { 4, 0, false }, false, true },
		{ { 4, 8, false }, { 8, 4, false }, false, true },
		{ { 4, 8, false }, { 8, 8, false }, false, false },
		{ { 0, 0, false }, { 0, 0, true }, false, true },
		{ { 3, 0, false }, { 0, 31, false }, false, true },
	};
	const struct transform_spec spec = spec_of(2, 3);

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int by_phase = 0; by_phase < 2; by_phase++) {
			struct plan_cache cache;
			struct engine engine = { .plans = &cache, .plans_by_phase = by_phase };
			const bool same = by_phase ? rows[i].same_by_phase : rows[i].same;
			struct engine_plan *a, *b;

			open_cache(&cache, 8);
			cr_assert_eq(try_at(&cache, by_phase, &spec, rows[i].a, &a), 0);
			cr_assert_eq(try_at(&cache, by_phase, &spec, rows[i].b, &b), 0);
			cr_assert_eq(a == b, same, "row %zu", i);
			cr_assert_eq(engine_plan_suits(a, &engine, rows[i].b), same, "row %zu", i);
			engine_plan_unref(a);
			engine_plan_unref(b);
			close_cache(&cache);
		}
}

Test(plan_cache, places_of_many)
{
	for (uint64_t bits = 0; bits < 64; bits++) {
		const struct plan_places places = plan_places_of_many(bits);
		const uint64_t align = (bits | PLAN_ALIGN) & -(bits | PLAN_ALIGN);

		cr_assert(places.many);
		cr_assert_eq(plan_places_align(places), align, "%zu", (size_t)bits);
	}
}

/* Keys of different kinds differ, whatever their words are. */
Test(plan_cache, kinds)
{
	const struct transform_spec spec = spec_of(2, 3);
	struct engine_plan *plan, *other[3];
	struct plan_cache cache;
	struct plan_key key;

	open_cache(&cache, 8);
	plan = get(&cache, &spec);
	for (int i = 0; i < 3; i++) {
		if (i == 0)
			plan_key_init_round(&key, &plan->transform, plan->places);
		else
			plan_key_init_of(&key, i == 1 ? PLAN_KIND_MEMBER : PLAN_KIND_LIST, plan->serial,
			                 plan->places);
		cr_assert_null(plan_cache_find(&cache, &key));
		other[i] = plan_cache_add(&cache, &key, &plan->transform, plan->places);
		cr_assert_eq(plan_cache_add(&cache, &key, &plan->transform, plan->places), other[i],
		             "what is there already is taken");
		engine_plan_unref(other[i]);
		engine_plan_unref(other[i]);
		cr_assert_eq(plan_cache_find(&cache, &key), other[i]);
		engine_plan_unref(other[i]);
	}
	cr_assert_eq(stats_of(&cache).entries, 4);
	engine_plan_unref(plan);
	close_cache(&cache);
}

/* Nobody finds a plan without a key, and it takes no room. */
Test(plan_cache, without_a_key)
{
	const struct transform_spec spec = spec_of(2, 3);
	struct engine_plan *plan, *own;
	struct plan_cache cache;

	open_cache(&cache, 1);
	plan = get(&cache, &spec);
	own = plan_cache_make(&cache, &plan->transform, plan->places);
	cr_assert_neq(own->serial, plan->serial);
	cr_assert_eq(stats_of(&cache).entries, 1);
	engine_plan_unref(own);
	engine_plan_unref(plan);
	close_cache(&cache);
}

Test(plan_cache, median_of_the_last_measured_runs)
{
	static const uint64_t ns[] = { 900, 100, 300, 800, 500, 200, 700, 400, 600, 50 };
	/* The medians of the first time, of the first two, and so on; later ones are of the last seven
	 * times. */
	static const uint64_t medians[] = { 900, 500, 300, 550, 500, 400, 500, 400, 500, 500 };
	const struct transform_spec spec = spec_of(2, 3);
	struct plan_cache cache;
	struct engine_plan *plan;

	_Static_assert(PLAN_KEPT_TIMES == 7, "the medians above are of so many");
	open_cache(&cache, 1);
	plan = get(&cache, &spec);
	cr_assert_eq(engine_plan_runs(plan).median_ns, 0);
	for (uint64_t i = 0; i < sizeof ns / sizeof *ns; i++) {
		engine_plan_count(plan, 1, false);
		engine_plan_count(plan, ns[i], true);
		const struct engine_plan_runs runs = engine_plan_runs(plan);

		cr_assert_eq(runs.median_ns, medians[i], "%zu: %zu", (size_t)i, (size_t)runs.median_ns);
		cr_assert_eq(runs.n_measured, i + 1);
		cr_assert_eq(runs.n, 2 * (i + 1));
	}
	engine_plan_unref(plan);
	close_cache(&cache);
}

/* The key covers everything that a request can name, with the greatest rank; transform_init refuses the
 * request. */
Test(plan_cache, the_longest_key)
{
	struct transform_spec spec = spec_of(1, 1);
	struct conversion_spec *conversion = &spec.conversion;
	int64_t ones[TENSOR_MAX_RANK];
	struct tensor_layout full;
	struct plan_key key;
	struct error err;

	for (int d = 0; d < TENSOR_MAX_RANK; d++)
		ones[d] = 1;
	cr_assert_eq(tensor_layout_init(&full, DTYPE_FLOAT32, TENSOR_MAX_RANK, ones, NULL, "dst", &err), 0);
	spec.dst = spec.src = conversion->scale.layout = conversion->bias.layout = full;
	spec.n_perm = spec.n_before = spec.n_after = conversion->amax.n_block = TENSOR_MAX_RANK;
	conversion->is_given = conversion->amax.is_given = true;
	conversion->scale.kind = conversion->bias.kind = OPERAND_TENSOR;
	conversion->amax.scale.is_given = conversion->amax.inverse.is_given = true;
	conversion->amax.scale.layout = conversion->amax.inverse.layout = full;
	plan_key_init(&key, &spec, plan_places(0, 0));
	cr_assert_leq(key.n, PLAN_KEY_WORDS);
	cr_assert_gt(key.n, PLAN_KEY_WORDS - 24);
}
