/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tables of layers against brute force: a few small memories have regions that overlap, and every byte
 * of every block is marked. Also tests the messages of refusals. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "kernels/plan_key.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define MEMORIES 3
#define SIZE     400 /* bytes of a memory */
#define MOST     5   /* most entries */

struct side {
	struct layer_table table;
	struct layer_place places[MOST];
	int64_t layers[MOST];
	uint32_t order[MOST];
	uint64_t added;
	struct tensor_place place; /* place of the first entry, with the added offset */
};

struct marks {
	bool leaves; /* a block does not lie within its region */
	bool meets;  /* two blocks of a side share a byte */
	uint8_t byte[MEMORIES][SIZE + 1];
};

/* Addresses at which the memories are mapped: in no order, far apart, and aligned as mappings are. */
static const uint64_t addresses[MEMORIES] = { UINT64_C(0x7f0000000000), 0x10000, UINT64_C(0x500000001000) };

static int side_make(struct side *side, uint32_t n, uint64_t serial, struct error *err)
{
	side->table = (struct layer_table){ .n = n,
		                            .places = side->places,
		                            .serial = serial,
		                            .noun = "table",
		                            .layers = side->layers,
		                            .order = side->order };
	return layer_table_init(&side->table, "places", err);
}

static void random_places(uint64_t *state, struct side *side, uint32_t n)
{
	const bool is_even = oracle_between(state, 0, 2) == 0;
	const int64_t distance = oracle_between(state, 0, 60);
	int64_t memory = oracle_between(state, 0, MEMORIES - 1), at = oracle_between(state, 40, 100);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t base = (uint64_t)oracle_between(state, 0, 40);

		if (!is_even && oracle_between(state, 0, 1)) {
			memory = oracle_between(state, 0, MEMORIES - 1);
			at = oracle_between(state, 40, SIZE / 2);
		}
		side->places[i] = (struct layer_place){
			.at = { .memory = { 7, (uint64_t)memory },
			        .base = base,
			        .offset = (uint64_t)at - base,
			        .size = SIZE - base - (uint64_t)oracle_between(state, 0, 20) },
			.region = 70 + i,
			.address = addresses[memory] + (uint64_t)at,
		};
		at += is_even ? distance : oracle_between(state, 0, 60);
	}
	side->added = oracle_between(state, 0, 3) ? 0 : (uint64_t)oracle_between(state, 0, 150);
}

static int next_index(const struct tensor_layout *layout, int64_t *o)
{
	int d = layout->rank - 1;

	for (; d >= 0 && ++o[d] == layout->shape[d]; d--)
		o[d] = 0;
	return d;
}

/* Marks a block whose element [0, ..., 0] is at `at` in the memory, of which the region has [first, end). */
static void mark_block(const struct tensor_layout *layout, int64_t at, int64_t first, int64_t end,
                       uint64_t memory, struct marks *ret)
{
	const int64_t size = dtype_size(layout->dtype);
	int64_t o[TENSOR_MAX_RANK] = { 0 };

	do {
		int64_t from = at;

		for (int d = 0; d < layout->rank; d++)
			from += o[d] * layout->stride[d] * size;
		for (int64_t i = from; i < from + size; i++)
			if (i < first || i >= end)
				ret->leaves = true;
			else
				ret->meets |= ret->byte[memory][i]++ != 0;
	} while (next_index(layout, o) >= 0);
}

static void mark_side(const struct side *side, const struct tensor_layout *layout, uint64_t n, uint64_t step,
                      struct marks *ret)
{
	*ret = (struct marks){ 0 };
	for (uint32_t l = 0; l < side->table.n; l++) {
		const struct tensor_place *at = &side->places[l].at;

		for (uint64_t i = 0; i < n; i++)
			mark_block(layout, (int64_t)(at->base + at->offset + side->added + i * step),
			           (int64_t)at->base, (int64_t)(at->base + at->size), at->memory[1], ret);
	}
}

static bool sides_meet(const struct marks *dst, const struct marks *src)
{
	for (int m = 0; m < MEMORIES; m++)
		for (int i = 0; i < SIZE; i++)
			if (dst->byte[m][i] && src->byte[m][i])
				return true;
	return false;
}

/* Returns whether any two layers overlap by the rule: each counts from the first byte of its blocks to the
 * last. */
static bool stretches_of_layers_meet(const struct side *a, struct tensor_extent of_a, uint64_t reach_a,
                                     const struct side *b, struct tensor_extent of_b, uint64_t reach_b)
{
	for (uint32_t i = 0; i < a->table.n; i++)
		for (uint32_t j = 0; j < b->table.n; j++) {
			const struct tensor_place *x = &a->places[i].at, *y = &b->places[j].at;
			const int64_t at_x = (int64_t)(x->base + x->offset + a->added);
			const int64_t at_y = (int64_t)(y->base + y->offset + b->added);

			if (x->memory[1] == y->memory[1] &&
			    at_x + of_a.low < at_y + (int64_t)reach_b + of_b.high &&
			    at_y + of_b.low < at_x + (int64_t)reach_a + of_a.high)
				return true;
		}
	return false;
}

/* Returns whether the neighbouring layers in each memory are equally far apart. */
static bool is_regular(const struct side *side)
{
	int64_t distance = -1;

	for (uint64_t m = 0; m < MEMORIES; m++) {
		int64_t last = -1;

		for (int64_t at = 0; at < SIZE; at++)
			for (uint32_t l = 0; l < side->table.n; l++) {
				const struct tensor_place *place = &side->places[l].at;

				if (place->memory[1] != m || (int64_t)(place->base + place->offset) != at)
					continue;
				if (last >= 0 && distance >= 0 && at - last != distance)
					return false;
				if (last >= 0)
					distance = at - last;
				last = at;
			}
	}
	return true;
}

static bool random_transform(uint64_t *state, struct transform *t)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;

	spec.dst.dtype = spec.src.dtype = oracle_between(state, 0, 1) ? DTYPE_UINT8 : DTYPE_FLOAT32;
	spec.dst.rank = spec.src.rank = (int)oracle_between(state, 0, 2);
	for (int d = 0; d < spec.dst.rank; d++) {
		spec.dst.shape[d] = spec.src.shape[d] = oracle_between(state, 1, 3);
		spec.dst.stride[d] = oracle_between(state, -4, 6);
		spec.src.stride[d] = oracle_between(state, -2, 3);
	}
	return transform_init(t, &spec, &err) == 0;
}

static void use_side(struct engine_blocks_side *ret, struct side *side, uint64_t step)
{
	ret->step = step;
	blocks_use_table(ret, &side->table);
	side->place = side->places[0].at;
	side->place.offset += side->added;
}

/* All addresses of blocks have to be multiples of the alignment that a plan may rely on. */
static void assert_aligned(const struct engine_blocks *blocks, const struct side *dst, const struct side *src)
{
	const struct side *sides[] = { dst, src };
	const uint64_t bits =
	    blocks_bits(blocks, dst->places[0].address + dst->added, src->places[0].address + src->added);
	const uint32_t align = plan_places_align(plan_places_of_many(bits));

	for (int s = 0; s < 2; s++)
		for (uint32_t l = 0; l < blocks->layers; l++)
			cr_assert_eq((sides[s]->places[l].address + sides[s]->added) % align, 0);
}

static void assert_distances(const struct engine_blocks_side *side, const struct side *of)
{
	for (uint32_t l = 0; l < of->table.n; l++)
		cr_assert_eq(of->places[0].address +
		                 (side->layers ? (uint64_t)side->layers[l] : l * side->layer_step),
		             of->places[l].address, "entry %u", l);
}

/* The first check computes the result. The second may find it kept, although another number of blocks has
 * been checked meanwhile. */
static int check_twice(struct engine_blocks *blocks, const struct transform *t, struct side *dst,
                       struct side *src, uint64_t *state, struct error *err)
{
	const uint64_t n = blocks->n, limit = blocks->limit;
	struct error ignored;
	int first = blocks_check(blocks, t, &dst->place, &src->place, NULL, err);
	int second;

	blocks->n = (uint64_t)oracle_between(state, 1, 4);
	blocks->limit = (uint64_t)oracle_between(state, 1, 4);
	blocks_check(blocks, t, &dst->place, &src->place, NULL, &ignored);
	blocks->n = n;
	blocks->limit = limit;
	second = blocks_check(blocks, t, &dst->place, &src->place, NULL, &ignored);
	cr_assert_eq(first, second, "%d, then %d", first, second);
	return first;
}

Test(layer_table, check_is_brute_force, .timeout = 300)
{
	static struct marks to, from;
	int accepted = 0, met = 0, out = 0, outside = 0, uneven = 0, wholes = 0;
	uint64_t state = 1;
	const long lists = tap_portion(1000000);

	for (int i = 0; i < lists; i++) {
		static struct side dst, src;
		struct engine_blocks blocks = { .layers = (uint32_t)oracle_between(&state, 1, MOST),
			                        .n = (uint64_t)oracle_between(&state, 1, 4),
			                        .limit = (uint64_t)oracle_between(&state, 1, 4),
			                        .scatter = oracle_between(&state, 0, 1) };
		struct error err = { 0 };
		struct transform t;
		uint64_t n_dst, n_src;
		int r;

		if (!random_transform(&state, &t))
			continue;
		random_places(&state, &dst, blocks.layers);
		random_places(&state, &src, blocks.layers);
		r = side_make(&dst, blocks.layers, 1 + 2 * (uint64_t)i, &err);
		if (r == 0)
			r = side_make(&src, blocks.layers,
			              oracle_between(&state, 0, 1) ? 2 + 2 * (uint64_t)i : 0, &err);
		if (r < 0) {
			cr_assert_eq(r, STATUS_OUT_OF_RANGE);
			outside++;
			continue;
		}
		use_side(&blocks.dst, &dst,
		         blocks_default_step(t.dst_extent) * (uint64_t)oracle_between(&state, 1, 3));
		use_side(&blocks.src, &src, (uint64_t)oracle_between(&state, 0, 30));
		assert_distances(&blocks.dst, &dst);
		assert_aligned(&blocks, &dst, &src);
		n_dst = blocks.scatter ? blocks.limit : blocks.n;
		n_src = blocks.scatter ? blocks.n : blocks.limit;
		mark_side(&dst, &t.dst_layout, n_dst, blocks.dst.step, &to);
		mark_side(&src, &t.src_layout, n_src, blocks.src.step, &from);
		r = check_twice(&blocks, &t, &dst, &src, &state, &err);
		if (to.leaves || from.leaves) {
			cr_assert_eq(r, STATUS_OUT_OF_RANGE, "%d: %d %s", i, r, err.message);
			out++;
		} else if (to.meets || sides_meet(&to, &from)) {
			cr_assert_eq(r, STATUS_OVERLAP, "%d: %d %s", i, r, err.message);
			met++;
		} else if (r && strstr(err.message, "as a whole")) {
			cr_assert(stretches_of_layers_meet(&dst, t.dst_extent, (n_dst - 1) * blocks.dst.step,
			                                   &src, t.src_extent, (n_src - 1) * blocks.src.step),
			          "%d: %s", i, err.message);
			wholes++;
		} else if (r) {
			cr_assert_eq(r, STATUS_OVERLAP, "%d: %d %s", i, r, err.message);
			cr_assert(strstr(err.message, "unevenly") && !is_regular(&dst), "%d: %s", i,
			          err.message);
			uneven++;
		} else {
			accepted++;
		}
	}
	cr_assert(accepted > lists / 60 && met > lists / 60 && out > lists / 60 && uneven > lists / 3000 &&
	              wholes > lists / 3000,
	          "%d accepted, %d met, %d out of range, %d outside, %d uneven, %d as a whole", accepted, met,
	          out, outside, uneven, wholes);
}

/* Marks the bytes of the blocks of all layers. Returns whether two blocks share a byte. */
static bool layers_meet(const int64_t *layers, uint32_t n, int64_t step, int64_t block, int64_t blocks)
{
	bool is_marked[2048] = { false };

	for (uint32_t i = 0; i < n; i++)
		for (int64_t b = 0; b < blocks; b++)
			for (int64_t at = layers[i] + b * step; at < layers[i] + b * step + block; at++) {
				if (is_marked[at])
					return true;
				is_marked[at] = true;
			}
	return false;
}

/* Layers that are found to be interleaved share no byte. If all layers reach far, the converse holds, too. */
Test(layer_table, interleaved_layers)
{
	uint64_t state = 9;
	int found = 0, met = 0, near = 0;

	for (int round = 0; round < 20000; round++) {
		const uint32_t n = (uint32_t)oracle_between(&state, 1, 5);
		const int64_t step = oracle_between(&state, 1, 12), block = oracle_between(&state, 1, 4);
		const bool reaches_all = oracle_between(&state, 0, 1);
		const int64_t blocks = reaches_all ? 200 / step + 1 : oracle_between(&state, 1, 6);
		int64_t layers[5], at = 0;
		bool meets;

		for (uint32_t i = 0; i < n; i++)
			layers[i] = at += oracle_between(&state, 0, 20);
		meets = layers_meet(layers, n, step, block, blocks);
		if (layers_are_interleaved(layers, n, (uint64_t)step, (uint64_t)block,
		                           (blocks - 1) * step + block)) {
			cr_assert_not(meets, "%d", round);
			found += n > 1;
		} else {
			cr_assert(meets || !reaches_all, "%d", round);
			met += meets;
			near += !meets;
		}
	}
	cr_assert(found > 1000 && met > 1000 && near > 100, "%d found, %d met, %d near", found, met, near);
}

/* The default limit fits, and one block more does not. */
Test(layer_table, default_limit_is_the_most)
{
	uint64_t state = 3;
	int seen = 0;

	for (int i = 0; i < 20000; i++) {
		static struct side src;
		struct engine_blocks blocks = { .layers = (uint32_t)oracle_between(&state, 1, MOST), .n = 1 };
		struct error err = { 0 };
		struct transform t;

		if (!random_transform(&state, &t))
			continue;
		random_places(&state, &src, blocks.layers);
		if (side_make(&src, blocks.layers, 0, &err) < 0)
			continue;
		use_side(&blocks.src, &src, (uint64_t)oracle_between(&state, 1, 30));
		if (blocks_default_limit(&blocks, false, t.src_extent, &src.place, &err) < 0)
			continue;
		cr_assert_eq(layer_table_check_range(&src.table, "src", blocks.limit, blocks.src.step,
		                                     t.src_extent, src.added, &err),
		             0, "%d: %s", i, err.message);
		cr_assert_eq(layer_table_check_range(&src.table, "src", blocks.limit + 1, blocks.src.step,
		                                     t.src_extent, src.added, &err),
		             STATUS_OUT_OF_RANGE, "%d", i);
		seen++;
	}
	cr_assert_gt(seen, 1000);
}

/* ---- What refusals say -------------------------------------------------------------------------------- */

/* A row's sides have places in memories of 1000 bytes, each of which is a region, and blocks of 100 bytes. */
struct row {
	char name[40];
	uint32_t n;
	struct {
		uint64_t memory, offset;
	} dst[3], src[3];
	uint64_t blocks, dst_step, added;
	char words[2][96]; /* parts of the message; empty: the list is accepted */
	int status;
};

ParameterizedTestParameters(layer_table, sentences)
{
	static struct row rows[] = {
		{ .name = "apart",
		  .n = 3,
		  .dst = { { 1, 0 }, { 2, 500 }, { 1, 500 } },
		  .src = { { 3, 0 }, { 3, 0 }, { 4, 0 } },
		  .blocks = 5 },
		{ .name = "an entry too near to the end",
		  .n = 3,
		  .dst = { { 1, 0 }, { 2, 501 }, { 3, 500 } },
		  .src = { { 4, 0 }, { 5, 0 }, { 6, 0 } },
		  .blocks = 5,
		  .words = { "dst_table: entry 1: the last byte of 5 blocks is byte 1000",
		             "region 2 has 1000" },
		  .status = STATUS_OUT_OF_RANGE },
		{ .name = "by what is added",
		  .n = 2,
		  .dst = { { 1, 0 }, { 2, 0 } },
		  .src = { { 4, 0 }, { 5, 400 } },
		  .blocks = 5,
		  .added = 101,
		  .words = { "src_table: entry 1: the last byte of 5 blocks is byte 1000" },
		  .status = STATUS_OUT_OF_RANGE },
		{ .name = "past all numbers",
		  .n = 2,
		  .dst = { { 1, 0 }, { 2, 0 } },
		  .src = { { 4, 0 }, { 5, 0 } },
		  .blocks = 5,
		  .dst_step = UINT64_MAX,
		  .words = { "dst_table: entry 0: the last byte of 5 blocks overflows 64 bits" },
		  .status = STATUS_OUT_OF_RANGE },
		{ .name = "two entries that share bytes",
		  .n = 3,
		  .dst = { { 1, 0 }, { 2, 0 }, { 1, 499 } },
		  .src = { { 4, 0 }, { 5, 0 }, { 6, 0 } },
		  .blocks = 5,
		  .words = { "dst_table: entries 0 and 2 are 499 bytes apart", "at least 500 apart" },
		  .status = STATUS_OVERLAP },
		{ .name = "one place twice",
		  .n = 2,
		  .dst = { { 1, 8 }, { 1, 8 } },
		  .src = { { 4, 0 }, { 5, 0 } },
		  .blocks = 1,
		  .words = { "dst_table: entries 0 and 1 are 0 bytes apart" },
		  .status = STATUS_OVERLAP },
		{ .name = "layers between each other",
		  .n = 2,
		  .dst = { { 1, 0 }, { 1, 100 } },
		  .src = { { 4, 0 }, { 5, 0 } },
		  .blocks = 4,
		  .dst_step = 200 },
		{ .name = "a source in a destination",
		  .n = 3,
		  .dst = { { 1, 0 }, { 2, 0 }, { 3, 0 } },
		  .src = { { 4, 0 }, { 5, 0 }, { 2, 499 } },
		  .blocks = 5,
		  .words = { "dst_table: the blocks of entry 1 and those of entry 2 of src_table overlap" },
		  .status = STATUS_OVERLAP },
		{ .name = "a source behind a destination",
		  .n = 3,
		  .dst = { { 1, 0 }, { 2, 0 }, { 3, 0 } },
		  .src = { { 4, 0 }, { 5, 0 }, { 2, 500 } },
		  .blocks = 5 },
		{ .name = "the same source for two layers",
		  .n = 2,
		  .dst = { { 1, 0 }, { 2, 0 } },
		  .src = { { 4, 0 }, { 4, 0 } },
		  .blocks = 5 },
	};
	return cr_make_param_array(struct row, rows, sizeof(rows) / sizeof(rows[0]));
}

static struct layer_place place_at(uint64_t memory, uint64_t offset)
{
	return (struct layer_place){ .at = { .memory = { memory, 0 }, .offset = offset, .size = 1000 },
		                     .region = memory,
		                     .address = memory << 32 | offset };
}

ParameterizedTest(struct row *row, layer_table, sentences)
{
	static struct side dst, src;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[] = { 100 };
	struct engine_blocks blocks = { .n = row->blocks, .limit = row->blocks, .layers = row->n };
	struct transform t;
	struct error err = { 0 };

	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", &err), 0);
	spec.src = spec.dst;
	cr_assert_eq(transform_init(&t, &spec, &err), 0);
	for (uint32_t i = 0; i < row->n; i++) {
		dst.places[i] = place_at(row->dst[i].memory, row->dst[i].offset);
		src.places[i] = place_at(row->src[i].memory, row->src[i].offset);
	}
	cr_assert_eq(side_make(&dst, row->n, 1, &err), 0, "%s", err.message);
	cr_assert_eq(side_make(&src, row->n, 2, &err), 0, "%s", err.message);
	src.added = row->added;
	use_side(&blocks.dst, &dst, row->dst_step ? row->dst_step : 100);
	use_side(&blocks.src, &src, 100);
	cr_assert_eq(blocks_check(&blocks, &t, &dst.place, &src.place, NULL, &err), row->status, "%s: %s",
	             row->name, err.message);
	for (int i = 0; i < 2; i++)
		cr_assert(strstr(err.message, row->words[i]), "%s: %s", row->name, err.message);
}

/* One side is a table, and the other one and the list lie in one region each. */
Test(layer_table, beside_one_region)
{
	static struct side table;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[] = { 100 };
	struct engine_blocks blocks = { .n = 2, .limit = 2, .layers = 2, .index_bytes = 4 };
	struct tensor_place other = { .memory = { 2, 0 }, .offset = 300, .size = 1000 };
	struct transform t;
	struct error err = { 0 };

	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", &err), 0);
	spec.src = spec.dst;
	cr_assert_eq(transform_init(&t, &spec, &err), 0);
	table.places[0] = place_at(1, 0);
	table.places[1] = place_at(2, 0);
	cr_assert_eq(side_make(&table, 2, 1, &err), 0);
	use_side(&blocks.dst, &table, 100);
	blocks.src = (struct engine_blocks_side){ .step = 100, .layer_step = 200 };
	cr_assert_eq(blocks_check(&blocks, &t, &table.place, &other, NULL, &err), 0, "%s", err.message);
	other.offset = 199;
	cr_assert_eq(blocks_check(&blocks, &t, &table.place, &other, NULL, &err), STATUS_OVERLAP);
	cr_assert(strstr(err.message, "dst_table: the blocks of entry 1 and src overlap"), "%s", err.message);
	cr_assert_eq(blocks_check_index(&blocks, &t, &table.place, &other, &err), STATUS_INVALID_ARGUMENT);
	other.offset = 196;
	blocks.n = 0;
	blocks.scatter = true;
	cr_assert_eq(blocks_check_index(&blocks, &t, &table.place, &other, &err), 0, "%s", err.message);
	blocks.n = 2;
	blocks.scatter = false;
	cr_assert_eq(blocks_check_index(&blocks, &t, &table.place, &other, &err), STATUS_OVERLAP);
	cr_assert(strstr(err.message, "dst_table: the blocks of entry 1 and the entries at index_at"), "%s",
	          err.message);
	other.offset = 200;
	cr_assert_eq(blocks_check_index(&blocks, &t, &table.place, &other, &err), 0, "%s", err.message);

	blocks.src = (struct engine_blocks_side){ 0 };
	use_side(&blocks.src, &table, 100);
	blocks.dst = (struct engine_blocks_side){ .step = 100, .layer_step = 200 };
	other.offset = 100;
	cr_assert_eq(blocks_check(&blocks, &t, &other, &table.place, NULL, &err), STATUS_OVERLAP);
	cr_assert(strstr(err.message, "src_table: the blocks of entry 1 and dst overlap"), "%s", err.message);
}

/* An entry outside its region is refused when the table is made. */
Test(layer_table, an_entry_outside_its_region)
{
	static struct side table;
	struct error err;

	table.places[0] = place_at(1, 0);
	table.places[1] = place_at(2, 999);
	table.places[2] = place_at(9, 1000);
	cr_assert_eq(side_make(&table, 2, 1, &err), 0);
	cr_assert_eq(side_make(&table, 3, 1, &err), STATUS_OUT_OF_RANGE);
	cr_assert_str_eq(err.message, "places: entry 2: byte 1000, but region 9 has 1000 bytes");
}
