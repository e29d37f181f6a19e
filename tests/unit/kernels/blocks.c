/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks against brute force: the regions are small, and every byte of every block is
 * marked. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "kernels/plan_key.h"
#include "kernels/transform/blocks.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define SIZE 700 /* bytes of a region */
#define MOST 4   /* most layers */

/* A list with its transform and its places, small enough to walk all of its bytes. */
struct list {
	struct engine_blocks blocks;
	struct transform t;
	struct tensor_place dst, src;
	int64_t dst_layers[MOST], src_layers[MOST];
};

static uint64_t count_of(const struct list *c, bool dst)
{
	return dst ? blocks_dst_count(&c->blocks) : blocks_src_count(&c->blocks);
}

static int64_t block_at(const struct engine_blocks_side *side, int64_t i, int64_t layer)
{
	return i * (int64_t)side->step +
	       (side->layers ? side->layers[layer] : layer * (int64_t)side->layer_step);
}

static int next_index(const struct tensor_layout *layout, int64_t *o)
{
	int d = layout->rank - 1;

	for (; d >= 0 && ++o[d] == layout->shape[d]; d--)
		o[d] = 0;
	return d;
}

struct marks {
	bool leaves; /* a block does not lie within the region */
	bool meets;  /* two blocks share a byte */
	uint8_t byte[SIZE];
};

/* Marks the bytes of one block. */
static void mark_block(const struct tensor_layout *layout, int64_t at, struct marks *ret)
{
	int64_t size = dtype_size(layout->dtype), o[TENSOR_MAX_RANK] = { 0 };

	if (!tensor_count(layout))
		return;
	do {
		int64_t from = at;

		for (int d = 0; d < layout->rank; d++)
			from += o[d] * layout->stride[d] * size;
		for (int64_t i = from; i < from + size; i++)
			if (i < 0 || i >= SIZE)
				ret->leaves = true;
			else
				ret->meets |= ret->byte[i]++ != 0;
	} while (next_index(layout, o) >= 0);
}

static void mark_side(const struct list *c, bool dst, struct marks *ret)
{
	const struct engine_blocks_side *side = dst ? &c->blocks.dst : &c->blocks.src;
	const struct tensor_place *place = dst ? &c->dst : &c->src;

	*ret = (struct marks){ 0 };
	for (int64_t l = 0; l < c->blocks.layers; l++)
		for (int64_t i = 0; i < (int64_t)count_of(c, dst); i++)
			mark_block(dst ? &c->t.dst_layout : &c->t.src_layout,
			           (int64_t)place->offset + block_at(side, i, l), ret);
}

static void random_side(uint64_t *state, struct engine_blocks_side *side, struct tensor_extent extent,
                        uint64_t n, uint32_t layers, int64_t *room)
{
	uint64_t block = blocks_default_step(extent), spread = oracle_between(state, 0, 1) ? 3 * block : 40;

	*side = (struct engine_blocks_side){ 0 };
	side->step =
	    oracle_between(state, 0, 2) ? block : (uint64_t)oracle_between(state, 0, (int64_t)spread);
	side->layer_step = oracle_between(state, 0, 2) ? n * side->step
	                                               : (uint64_t)oracle_between(state, 0, (int64_t)spread);
	if (oracle_between(state, 0, 2))
		return;
	side->layer_step = 0;
	side->layers = room;
	if (layers == MOST && !oracle_between(state, 0, 2)) {
		const int64_t within = oracle_between(state, -30, 60), among = oracle_between(state, 0, 200);

		for (uint32_t l = 0; l < layers; l++)
			room[l] = l % 2 * within + l / 2 * among;
		return;
	}
	for (uint32_t l = 0; l < layers; l++)
		room[l] = oracle_between(state, -20, 20) +
		          (oracle_between(state, 0, 1) ? (int64_t)(n * side->step) * l : 5 * l);
}

/* Draws a list. Returns false if the transform itself is refused. */
static bool random_list(uint64_t *state, struct list *c)
{
	static const enum dtype dtypes[] = { DTYPE_UINT8, DTYPE_INT16, DTYPE_FLOAT32, DTYPE_COMPLEX128 };
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;

	*c = (struct list){ .blocks = { .layers = (uint32_t)oracle_between(state, 1, MOST),
		                        .n = (uint64_t)oracle_between(state, 0, 5),
		                        .limit = (uint64_t)oracle_between(state, 0, 5),
		                        .scatter = oracle_between(state, 0, 1),
		                        .index_bytes = oracle_between(state, 0, 1) ? 4 : 8 } };
	c->blocks.pairs = !c->blocks.scatter && oracle_between(state, 0, 1);
	c->blocks.dst_limit = (uint64_t)oracle_between(state, 0, 5);
	spec.dst.dtype = spec.src.dtype = dtypes[oracle_between(state, 0, 3)];
	spec.dst.rank = spec.src.rank = (int)oracle_between(state, 0, 2);
	for (int d = 0; d < spec.dst.rank; d++) {
		spec.dst.shape[d] = spec.src.shape[d] =
		    oracle_between(state, oracle_between(state, 0, 30) > 0, 3);
		spec.dst.stride[d] = oracle_between(state, -7, 7);
		spec.src.stride[d] = c->blocks.pairs ? spec.dst.stride[d] : oracle_between(state, -2, 3);
	}
	if (transform_init(&c->t, &spec, &err) < 0)
		return false;
	random_side(state, &c->blocks.dst, c->t.dst_extent, count_of(c, true), c->blocks.layers,
	            c->dst_layers);
	random_side(state, &c->blocks.src, c->t.src_extent, count_of(c, false), c->blocks.layers,
	            c->src_layers);
	c->dst = (struct tensor_place){ .memory = { 1, 2 },
		                        .base = (uint64_t)oracle_between(state, 0, 40),
		                        .offset = (uint64_t)oracle_between(state, 0, SIZE / 2),
		                        .size = SIZE };
	c->src = (struct tensor_place){ .memory = { 1, oracle_between(state, 2, 3) },
		                        .base = (uint64_t)oracle_between(state, 0, 40),
		                        .offset = (uint64_t)oracle_between(state, 0, SIZE - 1),
		                        .size = SIZE };
	if (c->blocks.pairs && oracle_between(state, 0, 1)) {
		c->src = c->dst;
		c->blocks.src = c->blocks.dst;
		if (oracle_between(state, 0, 2))
			c->blocks.dst_limit = c->blocks.limit;
	}
	return true;
}

/* Returns whether the ranges from the first to the last byte of dst and of src, in the same memory, do not
 * overlap. */
static bool are_apart(const struct list *c, const struct marks *dst, const struct marks *src)
{
	int64_t first[2] = { -1, -1 }, last[2] = { 0 };

	for (int64_t i = 0; i < SIZE; i++)
		for (int side = 0; side < 2; side++)
			if ((side ? src : dst)->byte[i]) {
				first[side] = first[side] < 0 ? i : first[side];
				last[side] = i;
			}
	if (first[0] < 0 || first[1] < 0 || c->dst.memory[1] != c->src.memory[1])
		return true;
	return last[0] + (int64_t)c->dst.base < first[1] + (int64_t)c->src.base ||
	       last[1] + (int64_t)c->src.base < first[0] + (int64_t)c->dst.base;
}

/* Returns whether the layers of dst are two pairs with equal distances, for which the check decides exactly
 * whether they overlap. */
static bool are_pairs(const struct list *c)
{
	int64_t sorted[MOST];

	memcpy(sorted, c->dst_layers, sizeof sorted);
	for (int i = 0; i < MOST; i++)
		for (int j = i + 1; j < MOST; j++)
			if (sorted[j] < sorted[i]) {
				int64_t other = sorted[i];

				sorted[i] = sorted[j];
				sorted[j] = other;
			}
	return c->blocks.layers == MOST && sorted[1] - sorted[0] == sorted[3] - sorted[2];
}

/* If writes is set, writes the block's number to each of its bytes; otherwise returns whether no byte has
 * another block's number. */
static bool number_block(const struct tensor_layout *layout, int64_t at, uint8_t number, uint8_t byte[SIZE],
                         bool writes)
{
	int64_t size = dtype_size(layout->dtype), o[TENSOR_MAX_RANK] = { 0 };
	bool is_own = true;

	if (!tensor_count(layout))
		return true;
	do {
		int64_t from = at;

		for (int d = 0; d < layout->rank; d++)
			from += o[d] * layout->stride[d] * size;
		for (int64_t i = from; i < from + size; i++)
			if (writes)
				byte[i] = number;
			else
				is_own &= byte[i] == 0 || byte[i] == number;
	} while (next_index(layout, o) >= 0);
	return is_own;
}

/* Returns whether each block of src shares bytes only with the block of dst that has the same number. Block 0
 * of both sides lies at the same place. */
static bool blocks_are_the_same(const struct list *c)
{
	uint8_t byte[SIZE] = { 0 };
	bool are = c->dst.base + c->dst.offset == c->src.base + c->src.offset;

	for (int side = 1; side >= 0; side--)
		for (int64_t l = 0; l < c->blocks.layers; l++)
			for (int64_t i = 0; i < (int64_t)count_of(c, side); i++)
				are &=
				    number_block(side ? &c->t.dst_layout : &c->t.src_layout,
				                 (int64_t)c->dst.offset +
				                     block_at(side ? &c->blocks.dst : &c->blocks.src, i, l),
				                 (uint8_t)(1 + 8 * l + i), byte, side);
	return are;
}

Test(blocks, check_is_brute_force, .timeout = 300)
{
	static struct marks dst, src;
	int accepted = 0, refused = 0, out = 0, irregular = 0, pairs = 0, pools = 0;
	uint64_t state = 1;
	const long lists = tap_portion(3000000);

	for (int i = 0; i < lists; i++) {
		int64_t sorted[MOST];
		struct error err = { 0 };
		struct list c;
		int r;

		if (!random_list(&state, &c))
			continue;
		mark_side(&c, true, &dst);
		mark_side(&c, false, &src);
		r = blocks_check(&c.blocks, &c.t, &c.dst, &c.src, sorted, &err);
		if (dst.leaves || src.leaves) {
			cr_assert_eq(r, STATUS_OUT_OF_RANGE, "%d: %d %s", i, r, err.message);
			out++;
		} else if (c.blocks.is_one_pool) {
			pools++;
			cr_assert_eq(r, 0, "%d: %s", i, err.message);
			cr_assert(!dst.meets && blocks_are_the_same(&c), "%d", i);
		} else if (dst.meets || !are_apart(&c, &dst, &src)) {
			cr_assert_eq(r, STATUS_OVERLAP, "%d: %d %s", i, r, err.message);
			refused++;
		} else if (r) {
			cr_assert_eq(r, STATUS_OVERLAP, "%d: %d %s", i, r, err.message);
			cr_assert(strstr(err.message, "unevenly") && c.blocks.dst.layers && !are_pairs(&c),
			          "%d: %s", i, err.message);
			irregular++;
		} else {
			accepted++;
			pairs += c.blocks.dst.layers && are_pairs(&c);
		}
	}
	cr_assert(accepted > lists / 60 && refused > lists / 60 && out > lists / 60 &&
	              irregular > lists / 3000 && pairs > lists / 3000 && pools > lists / 300,
	          "%d accepted, %d refused, %d out of range, %d irregular, %d in pairs, %d pools", accepted,
	          refused, out, irregular, pairs, pools);
}

Test(blocks, default_limit_is_the_most)
{
	static struct marks marks;
	uint64_t state = 2;
	int seen[2] = { 0 };
	const long lists = tap_portion(1000000);

	for (int i = 0; i < lists; i++) {
		struct error err;
		struct list c;
		uint64_t *limit;
		bool is_dst;
		int r;

		if (!random_list(&state, &c) || c.t.count == 0)
			continue;
		is_dst = c.blocks.scatter || (c.blocks.pairs && oracle_between(&state, 0, 1));
		limit = c.blocks.pairs && is_dst ? &c.blocks.dst_limit : &c.blocks.limit;
		r = blocks_default_limit(&c.blocks, is_dst, is_dst ? c.t.dst_extent : c.t.src_extent,
		                         is_dst ? &c.dst : &c.src, &err);
		seen[r == 0]++;
		if ((is_dst ? c.blocks.dst : c.blocks.src).step == 0) {
			cr_assert_eq(r, STATUS_INVALID_ARGUMENT);
			continue;
		}
		*limit = r ? 1 : *limit;
		mark_side(&c, is_dst, &marks);
		cr_assert_eq(marks.leaves, r != 0, "%d: %d", i, r);
		cr_assert(r == 0 || r == STATUS_OUT_OF_RANGE);
		++*limit;
		mark_side(&c, is_dst, &marks);
		cr_assert(marks.leaves, "%d: one more would fit", i);
	}
	cr_assert(seen[0] > lists / 20 && seen[1] > lists / 20);
}

/* The alignment that is computed for all blocks is never larger than that of any block. */
Test(blocks, places_are_of_every_block)
{
	uint64_t state = 3;
	int seen[17] = { 0 };

	for (int i = 0; i < 100000; i++) {
		uint64_t scale = UINT64_C(1) << oracle_between(&state, 0, 5), bits = 16;
		uint64_t dst, src;
		uint32_t align;
		struct list c;

		if (!random_list(&state, &c) || !c.blocks.n || !c.blocks.limit)
			continue;
		c.blocks.dst.step *= scale;
		c.blocks.src.step *= scale;
		c.blocks.dst.layer_step *= scale;
		c.blocks.src.layer_step *= scale;
		for (int l = 0; l < MOST; l++) {
			c.dst_layers[l] *= (int64_t)scale;
			c.src_layers[l] *= (int64_t)scale;
		}
		dst = (c.dst.base + c.dst.offset) * scale;
		src = (c.src.base + c.src.offset) * scale;
		align = plan_places_align(plan_places_of_many(blocks_bits(&c.blocks, dst, src)));
		for (int side = 0; side < 2; side++)
			for (int64_t l = 0; l < c.blocks.layers; l++)
				for (int64_t b = 0; b < (int64_t)count_of(&c, side); b++) {
					uint64_t at =
					    (uint64_t)block_at(side ? &c.blocks.dst : &c.blocks.src, b, l);

					bits |= (side ? dst : src) + at;
				}
		cr_assert_eq(bits % align, 0, "%d: align %u", i, align);
		seen[align]++;
	}
	for (int align = 1; align <= 16; align *= 2)
		cr_assert(seen[align] > 1000, "%d: %d", align, seen[align]);
}

static void set_entry(char *list, uint8_t bytes, uint64_t i, int64_t value)
{
	for (uint8_t b = 0; b < bytes; b++)
		list[i * bytes + b] = (char)((uint64_t)value >> 8 * b);
}

Test(blocks, list_is_brute_force)
{
	static struct blocks_seen seen = { .seed = 42 };
	const uint64_t bits = 8 * sizeof seen.slot, limits[] = { 0, 150, bits, bits + 1 };
	int refused[2] = { 0 };
	uint64_t state = 4;

	for (int i = 0; i < 100000; i++) {
		int64_t entries[24], *dst = entries;
		char list[1 + sizeof entries], *at = list + oracle_between(&state, 0, 1);
		struct engine_blocks blocks = { .n = (uint64_t)oracle_between(&state, 0, 12),
			                        .limit = limits[oracle_between(&state, 0, 3)],
			                        .scatter = oracle_between(&state, 0, 1),
			                        .index_bytes = oracle_between(&state, 0, 1) ? 4 : 8,
			                        .index = at };
		int want = 0;
		uint64_t numbers, step;
		struct error err;

		blocks.pairs = !blocks.scatter && oracle_between(&state, 0, 1);
		blocks.dst_limit = blocks.limit;
		blocks.is_one_pool = blocks.pairs && oracle_between(&state, 0, 1);
		step = blocks.pairs ? 2 : 1;
		dst += step - 1;
		numbers = step * blocks.n;
		for (uint64_t j = 0; j < numbers; j++) {
			entries[j] = oracle_between(&state, -1, (int64_t)blocks.limit - 1);
			if (blocks.limit > 200 && entries[j] > 0)
				entries[j] = (int64_t)blocks.limit - 1 - entries[j] % 100;
			if (!oracle_between(&state, 0, 60))
				entries[j] = oracle_between(&state, 0, 1) ? -2 : (int64_t)blocks.limit;
			set_entry(at, blocks.index_bytes, j, entries[j]);
		}
		for (uint64_t j = 0; j < numbers && blocks_dst_is_indexed(&blocks); j += step)
			for (uint64_t k = 0; k < numbers; k += step) {
				const bool moves =
				    entries[j] != -1 && dst[j] != -1 && entries[k] != -1 && dst[k] != -1;

				if (moves && ((k < j && dst[j] == dst[k]) ||
				              (blocks.is_one_pool && entries[j] == dst[k])))
					want = STATUS_OVERLAP;
			}
		for (uint64_t j = 0; j < numbers; j++)
			if (entries[j] < -1 || entries[j] >= (int64_t)blocks.limit)
				want = STATUS_OUT_OF_RANGE;
		cr_assert_eq(blocks_check_list(&blocks, &seen, &err), want, "%d: %s", i, err.message);
		if (want)
			refused[want == STATUS_OVERLAP]++;
	}
	cr_assert(refused[0] > 5000 && refused[1] > 5000);
}

/* The list is as long as a message can hold, and names one block twice, first and last. */
Test(blocks, long_list)
{
	static char list[BLOCKS_LIST_MOST * 4 + 4];
	static struct blocks_seen seen = { .seed = 7 };
	struct engine_blocks blocks = {
		.n = BLOCKS_LIST_MOST, .limit = INT32_MAX, .scatter = true, .index_bytes = 4, .index = list
	};
	struct error err;

	for (int shift = 0; shift < 17; shift++) {
		for (int64_t i = 0; i < BLOCKS_LIST_MOST; i++)
			set_entry(list, 4, (uint64_t)i, i << shift);
		cr_assert_eq(blocks_check_list(&blocks, &seen, &err), 0, "%d: %s", shift, err.message);
		set_entry(list, 4, BLOCKS_LIST_MOST - 1, 1 << shift);
		cr_assert_eq(blocks_check_list(&blocks, &seen, &err), STATUS_OVERLAP);
		cr_assert(strstr(err.message, "index[16383]") && strstr(err.message, "index[1]"), "%s",
		          err.message);
	}
	blocks.n++;
	cr_assert_eq(blocks_check_list(&blocks, &seen, &err), STATUS_INVALID_ARGUMENT);
}

/* Lists longer than a message's are checked, too; the caller provides the memory. */
Test(blocks, longer_lists)
{
	for (uint64_t n = 1; n < 300000; n = n * 7 + 1) {
		const size_t n_slots = blocks_slots(n);
		uint32_t *slot = malloc(n_slots * sizeof *slot);
		int64_t *list = malloc(n * sizeof *list);
		struct engine_blocks blocks = {
			.n = n, .limit = UINT64_C(1) << 40, .scatter = true, .index_bytes = 8, .index = list
		};
		struct error err;

		cr_assert(slot && list && n_slots >= n);
		for (int64_t i = 0; i < (int64_t)n; i++)
			list[i] = i % 7 == 5 ? -1 : i << 21;
		cr_assert_eq(blocks_check_entries(&blocks, 3, slot, n_slots, &err), 0, "%" PRIu64 ": %s", n,
		             err.message);
		list[n - 1] = INT64_C(1) << 40;
		cr_assert_eq(blocks_check_entries(&blocks, 3, slot, n_slots, &err), STATUS_OUT_OF_RANGE);
		list[n - 1] = 0;
		cr_assert_eq(blocks_check_entries(&blocks, 3, slot, n_slots, &err),
		             n > 1 ? STATUS_OVERLAP : 0, "%" PRIu64, n);
		blocks.scatter = false;
		cr_assert_eq(blocks_check_entries(&blocks, 3, NULL, 0, &err), 0);
		free(slot);
		free(list);
	}
}

/* ---- From the ends of 64 bits ---------------------------------------------------------------------- */

/* Every sum and product here fits 128 bits. */
static bool exact_is_inside(uint64_t n, uint64_t step, uint64_t layers, uint64_t layer_step,
                            const int64_t *listed, uint64_t offset, uint64_t size)
{
	unsigned __int128 blocks, of_layers = 0, end;

	if (offset > size)
		return false;
	if (n == 0)
		return true;
	if (listed && ((listed[0] < 0 && offset < -(uint64_t)listed[0]) ||
	               (listed[1] < 0 && offset < -(uint64_t)listed[1])))
		return false;
	blocks = (unsigned __int128)(n - 1) * step;
	if (!listed)
		of_layers = (unsigned __int128)(layers - 1) * layer_step;
	if (__builtin_add_overflow(blocks, of_layers, &end) || end > UINT64_MAX)
		return false;
	end += offset + (unsigned __int128)1;
	if (listed)
		end += (unsigned __int128)(__int128)(listed[0] > listed[1] ? listed[0] : listed[1]);
	return end <= size;
}

Test(blocks, ranges_from_the_ends, .timeout = 300)
{
	static const uint64_t values[] = {
		0, 1, 2, 255, 4096, UINT32_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX
	};
	static const int64_t offsets[] = { INT64_MIN, INT64_MIN + 1, -4096, -1, 0, 1, 4096, INT64_MAX };
	const uint64_t n_values = sizeof values / sizeof *values,
		       n_offsets = sizeof offsets / sizeof *offsets;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	uint64_t state = 6, inside = 0;
	struct transform t;
	struct error err;

	cr_assert_eq(transform_init(&t, &spec, &err), 0); /* one byte */
	for (int i = 0; i < 1000000; i++) {
		const uint64_t n = values[oracle_between(&state, 0, (int64_t)n_values - 1)];
		int64_t listed[2], sorted[2];
		struct engine_blocks blocks = {
			.layers = 2,
			.limit = n,
			.src.step = values[oracle_between(&state, 0, (int64_t)n_values - 1)],
			.src.layer_step = values[oracle_between(&state, 0, (int64_t)n_values - 1)],
		};
		struct tensor_place dst = { .memory = { 1, 1 }, .size = 1 };
		struct tensor_place src = { .memory = { 1, 1 },
			                    .base = values[oracle_between(&state, 0, (int64_t)n_values - 1)],
			                    .offset =
			                        values[oracle_between(&state, 0, (int64_t)n_values - 1)],
			                    .size =
			                        values[oracle_between(&state, 0, (int64_t)n_values - 1)] };
		bool want;

		for (int l = 0; l < 2; l++)
			listed[l] = offsets[oracle_between(&state, 0, (int64_t)n_offsets - 1)];
		if (oracle_between(&state, 0, 1))
			blocks.src.layers = listed;
		else if (oracle_between(&state, 0, 1))
			blocks.layers = UINT32_MAX;
		want = exact_is_inside(n, blocks.src.step, blocks.layers, blocks.src.layer_step,
		                       blocks.src.layers, src.offset, src.size);
		cr_assert_eq(blocks_check(&blocks, &t, &dst, &src, sorted, &err),
		             want ? 0 : STATUS_OUT_OF_RANGE, "%d: %s", i, err.message);
		inside += want;
		if (blocks.src.step > 0 && n > 0 && n < UINT64_MAX && want) {
			cr_assert_eq(blocks_default_limit(&blocks, false, t.src_extent, &src, &err), 0, "%d",
			             i);
			cr_assert(blocks.limit >= n, "%d", i);
			cr_assert(exact_is_inside(blocks.limit, blocks.src.step, blocks.layers,
			                          blocks.src.layer_step, blocks.src.layers, src.offset,
			                          src.size),
			          "%d", i);
			cr_assert(blocks.limit == UINT64_MAX ||
			              !exact_is_inside(blocks.limit + 1, blocks.src.step, blocks.layers,
			                               blocks.src.layer_step, blocks.src.layers, src.offset,
			                               src.size),
			          "%d", i);
		}
	}
	cr_assert(inside > 10000, "%lu", (unsigned long)inside);
}

/* ---- What errors say ----------------------------------------------------------------------------------- */

/* Returns a list of 64 blocks of 4 KiB on either side, in different memories, which tests then change. */
static struct list plain(void)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	int64_t shape[] = { 32, 32 };
	struct error err;
	struct list c = { .blocks = { .n = 64,
		                      .layers = 1,
		                      .limit = 64,
		                      .index_bytes = 4,
		                      .dst.step = 4096,
		                      .src.step = 4096 },
		          .dst = { .memory = { 1, 1 }, .size = 1 << 20 },
		          .src = { .memory = { 2, 2 }, .size = 1 << 20 } };

	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err);
	cr_assert_eq(transform_init(&c.t, &spec, &err), 0);
	return c;
}

static void assert_refused(struct list *c, int status, const char *part)
{
	int64_t sorted[MOST];
	struct error err;

	cr_assert_eq(blocks_check(&c->blocks, &c->t, &c->dst, &c->src, sorted, &err), status, "%s: %s", part,
	             err.message);
	cr_assert(strstr(err.message, part), "%s: %s", part, err.message);
}

Test(blocks, sentences)
{
	int64_t layers[3] = { 0, 1 << 18, (1 << 18) + 8192 };
	struct list c = plain();

	c.blocks.limit = 257;
	assert_refused(&c, STATUS_OUT_OF_RANGE,
	               "src: the last byte of 257 blocks in 1 layers is byte 1052671, but the region has "
	               "1048576 bytes");
	c = plain();
	c.blocks.n = UINT64_MAX;
	assert_refused(&c, STATUS_OUT_OF_RANGE, "dst: the last byte of 18446744073709551615 blocks");
	c = plain();
	c.blocks.layers = 3;
	c.blocks.dst.layers = layers;
	assert_refused(&c, STATUS_OVERLAP, "dst_layers: two are 8192 bytes apart");
	layers[0] = -1;
	assert_refused(&c, STATUS_OUT_OF_RANGE, "dst: its first byte would be 1 bytes before");
	layers[0] = INT64_MAX;
	assert_refused(&c, STATUS_OUT_OF_RANGE, "dst: the last byte of 64 blocks in 3 layers is byte");
	c = plain();
	c.blocks.dst.step = 4095;
	assert_refused(&c, STATUS_OVERLAP,
	               "dst_step: two blocks of the destination share bytes: there are 64");
	c = plain();
	c.blocks.layers = 2;
	c.blocks.dst.layer_step = 64 * 4096 - 1;
	assert_refused(&c, STATUS_OVERLAP, "dst_layer_step: two blocks");
	c = plain();
	c.src.memory[0] = c.src.memory[1] = 1;
	c.dst.offset = 64 * 4096 - 1;
	assert_refused(&c, STATUS_OVERLAP,
	               "dst: bytes [262143, 524287) of its region and [0, 262144) of src's");
	c = plain();
	c.blocks.scatter = true;
	c.blocks.n = UINT64_C(1) << 60;
	c.blocks.src.step = 0;
	assert_refused(&c, STATUS_INVALID_ARGUMENT,
	               "layers: 1152921504606846976 entries in each of 1 layers exceed 4294967296 blocks");
	c.blocks.n = UINT64_C(1) << 31;
	assert_refused(&c, STATUS_OK, "");
	c.blocks.n++;
	assert_refused(
	    &c, STATUS_INVALID_ARGUMENT,
	    "layers: 2147483649 entries in each of 1 layers, 8192 bytes each, exceed 17592186044416 bytes");
}

/* With pairs, both sides may be the same blocks, and the list decides whether they overlap. */
Test(blocks, one_pool)
{
	static struct blocks_seen seen = { .seed = 7 };
	int32_t list[] = { 3, 5, -1, 3, 4, 63, 3, -1 };
	struct list c = plain();
	struct error err;

	c.src = c.dst;
	assert_refused(&c, STATUS_OVERLAP, "with a list of blocks the two sides must not overlap as a whole");
	c.blocks.n = 4;
	c.blocks.dst_limit = 64;
	c.blocks.pairs = true;
	c.blocks.index = list;
	assert_refused(&c, STATUS_OK, "");
	cr_assert(c.blocks.is_one_pool);
	cr_assert_eq(blocks_check_list(&c.blocks, &seen, &err), 0, "%s", err.message);
	list[4] = 5;
	cr_assert_eq(blocks_check_list(&c.blocks, &seen, &err), STATUS_OVERLAP);
	cr_assert_str_eq(err.message,
	                 "index[2][0]: 5, as index[0][1]: dst and src are the same blocks, and this "
	                 "one would be read and written");
	list[4] = 4;
	list[5] = 5;
	cr_assert_eq(blocks_check_list(&c.blocks, &seen, &err), STATUS_OVERLAP);
	cr_assert_str_eq(
	    err.message,
	    "index[2][1]: 5, as index[0][1]: two blocks would be written to the same place in dst");
	list[5] = 64;
	cr_assert_eq(blocks_check_list(&c.blocks, &seen, &err), STATUS_OUT_OF_RANGE);
	cr_assert_str_eq(err.message, "index[2][1]: 64, but dst has 64 blocks (dst_limit)");
	cr_assert_eq(blocks_check_unread(&c.blocks, &err), STATUS_OVERLAP);
	c.blocks.dst.step = c.blocks.src.step = 4095;
	assert_refused(&c, STATUS_OVERLAP, "dst_step: two blocks");
	c = plain();
	c.blocks.pairs = true;
	c.blocks.dst_limit = 64;
	c.src = c.dst;
	c.src.offset = 4096;
	assert_refused(&c, STATUS_OVERLAP, "with a list of blocks the two sides must not overlap as a whole");
	cr_assert_eq(blocks_check_unread(&c.blocks, &err), 0);
}

Test(blocks, index_place)
{
	struct list c = plain();
	struct tensor_place place = { .memory = { 3, 3 }, .base = 4, .offset = 16, .size = 16 + 64 * 4 };
	struct error err;

	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), 0);
	place.size--;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), STATUS_OUT_OF_RANGE);
	place.size = UINT64_MAX;
	c.blocks.n = UINT64_MAX;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), STATUS_OUT_OF_RANGE);
	c.blocks.n = 32;
	place.offset = 17;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), STATUS_INVALID_ARGUMENT);
	place.offset = 16;
	c.blocks.index_bytes = 8;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), STATUS_INVALID_ARGUMENT);
	place.offset = 4;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), 0);
	place.memory[0] = place.memory[1] = 1;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), STATUS_OVERLAP);
	place.offset = 32 * 4096 - 4;
	cr_assert_eq(blocks_check_index(&c.blocks, &c.t, &c.dst, &place, &err), 0);
}
