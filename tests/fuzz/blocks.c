/* SPDX-License-Identifier: Apache-2.0 */
/* Checks lists of blocks. An accepted list lies in its regions, and has no byte twice in the destination or
 * in both sides; this is checked with 128-bit arithmetic and, for small lists, byte by byte. Facts about the
 * list hold for every block. An accepted index names existing blocks, and no block of a destination twice. */
#include "kernels/plan_key.h"
#include "kernels/transform/blocks.h"

#include <stddef.h>
#include <string.h>

#include "fuzz.h"
#include "tests/support/oracle.h"
#include "transform_request.h"

#define MOST_LAYERS  4
#define MOST_ENTRIES 12
#define MOST_BLOCKS  64
#define MOST_BYTES   (1 << 14) /* most bytes of a small list's regions */

enum flag {
	FLAG_SCATTER = 1,
	FLAG_LIMIT = 2,
	FLAG_WIDE = 4, /* entries have 8 bytes */
	FLAG_DST_STEP = 8,
	FLAG_SRC_STEP = 16,
	FLAG_DST_LAYERS = 32,
	FLAG_SRC_LAYERS = 64,
	FLAG_MANY_LAYERS = 128,
};

/* The first bytes of an input, followed by a transform request. Missing bytes count as 0. */
struct numbers {
	uint8_t flags;
	uint8_t layers;
	uint8_t entries;
	uint8_t index_offset;
	uint8_t pairs;
	int64_t n; /* number of entries if it is negative */
	int64_t limit;
	int64_t dst_limit;
	int64_t step[2]; /* [0] destination, [1] source */
	int64_t layer_step[2];
	int64_t offset[2][MOST_LAYERS]; /* offsets of layers */
	int64_t entry[MOST_ENTRIES];
} __attribute__((packed));

struct list {
	struct numbers in;
	struct transform_request request;
	struct transform t;
	struct engine_blocks blocks;
	struct tensor_place place[2];
	int64_t offset[2][MOST_LAYERS];
	char index[MOST_ENTRIES * sizeof(int64_t)];
};

static uint64_t count_of(const struct list *l, int side)
{
	return side == 0 ? blocks_dst_count(&l->blocks) : blocks_src_count(&l->blocks);
}

static const struct engine_blocks_side *side_of(const struct list *l, int side)
{
	return side == 0 ? &l->blocks.dst : &l->blocks.src;
}

static const struct tensor_layout *layout_of(const struct list *l, int side)
{
	return side == 0 ? &l->t.dst_layout : &l->t.src_layout;
}

/* Returns the position of an accepted block, whose computation does not overflow. */
static __int128 block_at(const struct list *l, int side, uint64_t i, uint32_t layer)
{
	const struct engine_blocks_side *s = side_of(l, side);
	uint64_t blocks, layers = 0;

	fuzz_check(!__builtin_mul_overflow(i, s->step, &blocks));
	fuzz_check(s->layers || !__builtin_mul_overflow(layer, s->layer_step, &layers));
	return (__int128)l->place[side].offset + blocks + (s->layers ? s->layers[layer] : (__int128)layers);
}

/* ---- What has to hold --------------------------------------------------------------------------------- */

static void check_block(const struct list *l, int side, uint64_t i, uint32_t layer)
{
	const struct tensor_extent extent = tensor_extent(layout_of(l, side));
	const __int128 at = block_at(l, side, i, layer);
	const uint64_t bits = blocks_bits(&l->blocks, l->place[0].offset, l->place[1].offset);
	const uint32_t align = plan_places_align(plan_places_of_many(bits));

	fuzz_check(at + extent.low >= 0 && at + extent.high <= l->place[side].size,
	           "side %d leaves its region", side);
	fuzz_check(align > 0 && align <= 16 && at % align == 0, "%u", align);
}

static void check_corners(const struct list *l, int side)
{
	const uint64_t n = count_of(l, side);

	if (n == 0 || tensor_count(layout_of(l, side)) == 0)
		return;
	for (uint32_t layer = 0; layer < MOST_LAYERS && layer < l->blocks.layers; layer++) {
		check_block(l, side, 0, layer);
		check_block(l, side, n - 1, layer);
	}
	check_block(l, side, n - 1, l->blocks.layers - 1);
}

static bool is_small(const struct list *l)
{
	for (int side = 0; side < 2; side++)
		if (l->place[side].size > MOST_BYTES || count_of(l, side) > MOST_BLOCKS ||
		    tensor_count(layout_of(l, side)) > MOST_BYTES)
			return false;
	return l->blocks.layers <= MOST_LAYERS;
}

/* Marks the bytes of a block. Returns whether any was marked before. */
static bool mark_block(const struct tensor_layout *layout, int64_t at, uint8_t *map)
{
	int64_t index[TENSOR_MAX_RANK] = { 0 }, element = dtype_size(layout->dtype);
	bool met = false;
	int d;

	do {
		int64_t where = at;

		for (d = 0; d < layout->rank; d++)
			where += index[d] * layout->stride[d] * element;
		for (int64_t i = where; i < where + element; i++)
			met |= map[i]++ != 0;
		for (d = layout->rank - 1; d >= 0 && ++index[d] == layout->shape[d]; d--)
			index[d] = 0;
	} while (d >= 0);
	return met;
}

/* Marks the bytes of all blocks, which must lie within their regions. */
static bool mark_side(const struct list *l, int side, uint8_t *map)
{
	bool met = false;

	memset(map, 0, MOST_BYTES);
	if (tensor_count(layout_of(l, side)) == 0)
		return false;
	for (uint32_t layer = 0; layer < l->blocks.layers; layer++)
		for (uint64_t i = 0; i < count_of(l, side); i++)
			met |= mark_block(layout_of(l, side), (int64_t)block_at(l, side, i, layer), map);
	return met;
}

static void check_small(const struct list *l, const struct error *err)
{
	static uint8_t map[2][MOST_BYTES];
	const bool met = mark_side(l, 0, map[0]);

	mark_side(l, 1, map[1]);
	if (err->status == STATUS_OVERLAP) {
		if (strstr(err->message, "_step: two blocks"))
			fuzz_check(met, "%s", err->message);
		return;
	}
	fuzz_check(!met, "two blocks share bytes");
	for (int i = 0; l->request.same_memory && !l->blocks.is_one_pool && i < MOST_BYTES; i++)
		fuzz_check(!map[0][i] || !map[1][i], "dst and src share byte %d", i);
}

static int64_t number_at(const struct list *l, int i)
{
	return l->blocks.index_bytes == 4 ? (int32_t)l->in.entry[i] : l->in.entry[i];
}

/* Returns the block of dst that an entry names, or -1 if it is passed over. */
static int64_t dst_at(const struct list *l, int i)
{
	if (!l->blocks.pairs)
		return number_at(l, i);
	return number_at(l, 2 * i) == -1 ? -1 : number_at(l, 2 * i + 1);
}

static void check_entries(const struct list *l)
{
	static struct blocks_seen seen = { .seed = 3 };
	struct engine_blocks blocks = l->blocks;
	struct error err = { 0 };

	blocks.n = l->in.entries >> blocks.pairs;
	blocks.index = l->index;
	if (blocks_check_list(&blocks, &seen, &err) < 0) {
		fuzz_check_error(&err);
		return;
	}
	for (int i = 0; i < (int)blocks.n << blocks.pairs; i++) {
		const bool is_dst = blocks.pairs ? i % 2 : blocks.scatter;

		fuzz_check(number_at(l, i) == -1 ||
		           (number_at(l, i) >= 0 && (uint64_t)number_at(l, i) < count_of(l, is_dst ? 0 : 1)));
	}
	for (int i = 0; i < (int)blocks.n && blocks_dst_is_indexed(&blocks); i++)
		for (int j = 0; j < i; j++)
			fuzz_check(dst_at(l, i) == -1 || dst_at(l, i) != dst_at(l, j), "%d and %d", i, j);
}

static void check_index(const struct list *l)
{
	struct tensor_place place = l->place[1];
	struct error err = { 0 };

	place.offset = (place.offset & ~UINT64_C(15)) + l->in.index_offset;
	if (blocks_check_index(&l->blocks, &l->t, &l->place[0], &place, &err) < 0) {
		fuzz_check_error(&err);
		return;
	}
	fuzz_check(place.offset % l->blocks.index_bytes == 0);
	fuzz_check(place.offset + (__int128)l->blocks.n * blocks_entry_bytes(&l->blocks) <= place.size);
}

/* ---- The target --------------------------------------------------------------------------------------- */

static int read_layout(struct tensor_layout *ret, const struct transform_request_tensor *t, const char *name,
                       struct error *err)
{
	return tensor_layout_init(ret, (enum dtype)t->dtype, t->rank, t->shape,
	                          t->strided ? t->strides : NULL, name, err);
}

static bool read_transform(struct list *l, struct error *err)
{
	const struct transform_request *q = &l->request;
	struct transform_spec spec = { .n_perm = q->n_perm,
		                       .n_before = q->n_before,
		                       .n_after = q->n_after,
		                       .mode = (enum pad_mode)q->mode,
		                       .value = q->value };

	memcpy(spec.perm, q->perm, sizeof spec.perm);
	memcpy(spec.before, q->before, sizeof spec.before);
	memcpy(spec.after, q->after, sizeof spec.after);
	return read_layout(&spec.dst, &q->dst, "dst", err) == 0 &&
	       read_layout(&spec.src, &q->src, "src", err) == 0 && transform_init(&l->t, &spec, err) == 0;
}

static void read_side(struct list *l, int side, struct engine_blocks_side *ret)
{
	const struct tensor_extent extent = tensor_extent(layout_of(l, side));

	ret->step = (uint64_t)l->in.step[side];
	if (!(l->in.flags & (side == 0 ? FLAG_DST_STEP : FLAG_SRC_STEP)))
		ret->step = blocks_default_step(extent);
	ret->layer_step = (uint64_t)l->in.layer_step[side];
	memcpy(l->offset[side], l->in.offset[side], sizeof l->offset[side]);
	if (l->in.flags & (side == 0 ? FLAG_DST_LAYERS : FLAG_SRC_LAYERS) && l->blocks.layers <= MOST_LAYERS)
		ret->layers = l->offset[side];
}

static void read_numbers(struct list *l)
{
	const struct transform_request *q = &l->request;

	l->in.entries %= MOST_ENTRIES + 1;
	l->blocks.scatter = l->in.flags & FLAG_SCATTER;
	l->blocks.pairs = !l->blocks.scatter && l->in.pairs & 1;
	l->blocks.dst_limit = (uint64_t)l->in.dst_limit;
	l->blocks.index_bytes = l->in.flags & FLAG_WIDE ? 8 : 4;
	l->blocks.layers =
	    l->in.flags & FLAG_MANY_LAYERS ? UINT32_MAX - l->in.layers : l->in.layers % MOST_LAYERS + 1u;
	l->blocks.n = l->in.n < 0 ? l->in.entries : (uint64_t)l->in.n;
	l->blocks.limit = (uint64_t)l->in.limit;
	read_side(l, 0, &l->blocks.dst);
	read_side(l, 1, &l->blocks.src);
	l->place[0] = (struct tensor_place){ .memory = { 1, 1 },
		                             .offset = (uint64_t)q->dst.offset,
		                             .size = (uint64_t)q->dst.size };
	l->place[1] = (struct tensor_place){ .memory = { 1, q->same_memory ? 1 : 2 },
		                             .offset = (uint64_t)q->src.offset,
		                             .size = (uint64_t)q->src.size };
	for (int i = 0; i < l->in.entries; i++)
		for (int b = 0; b < l->blocks.index_bytes; b++)
			l->index[i * l->blocks.index_bytes + b] = (char)((uint64_t)l->in.entry[i] >> 8 * b);
}

static int set_limit(struct list *l, struct error *err)
{
	int r = 0;

	if (l->in.flags & FLAG_LIMIT)
		return 0;
	for (int side = 0; side < 2 && r == 0; side++)
		if (side == 0 ? blocks_dst_is_indexed(&l->blocks) : blocks_src_is_indexed(&l->blocks))
			r = blocks_default_limit(&l->blocks, side == 0, tensor_extent(layout_of(l, side)),
			                         &l->place[side], err);
	return r;
}

static void read_input(struct list *l, const uint8_t *data, size_t size)
{
	const size_t head = size < sizeof l->in ? size : sizeof l->in;

	memset(l, 0, sizeof *l);
	memcpy(&l->in, data, head);
	transform_request_read(&l->request, data + head, size - head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct list l;
	int64_t sorted[MOST_LAYERS];
	struct error err = { 0 };
	int r;

	read_input(&l, data, size);
	if (!read_transform(&l, &err))
		return 0;
	read_numbers(&l);
	r = set_limit(&l, &err);
	if (r == 0) {
		check_entries(&l);
		check_index(&l);
		r = blocks_check(&l.blocks, &l.t, &l.place[0], &l.place[1], sorted, &err);
	}
	if (r < 0)
		fuzz_check_error(&err);
	if (r < 0 && r != STATUS_OVERLAP)
		return 0;
	check_corners(&l, 0);
	check_corners(&l, 1);
	if (is_small(&l))
		check_small(&l, &err);
	return 0;
}

/* Makes a list that may be accepted, from a transform request that must be. */
static void make(struct list *l, uint64_t *random)
{
	memset(l, 0, sizeof *l);
	transform_request_valid(&l->request, random);
	l->in.flags = (uint8_t)(oracle_random(random) & oracle_random(random) & 0x7f);
	l->in.layers = (uint8_t)oracle_between(random, 0, 3);
	l->in.entries = (uint8_t)oracle_between(random, 0, MOST_ENTRIES);
	l->in.n = oracle_between(random, -1, 5);
	l->in.limit = oracle_between(random, 0, 9);
	l->in.pairs = (uint8_t)oracle_between(random, 0, 1);
	l->in.dst_limit = oracle_between(random, 0, 9);
	for (int side = 0; side < 2; side++) {
		struct transform_request_tensor *t = side == 0 ? &l->request.dst : &l->request.src;

		t->size += oracle_between(random, 0, 1 << 13);
		l->in.step[side] = oracle_between(random, 0, 600);
		l->in.layer_step[side] = oracle_between(random, 0, 4000);
		for (int i = 0; i < MOST_LAYERS; i++)
			l->in.offset[side][i] =
			    oracle_between(random, 0, 3) * oracle_between(random, -1, 2000);
	}
	for (int i = 0; i < MOST_ENTRIES; i++)
		l->in.entry[i] = oracle_between(random, -1, 9);
}

static void change_number(struct numbers *in, uint64_t *random)
{
	static const int64_t limits[] = { 0,         1,         -1,        2,          64,
		                          INT32_MAX, INT64_MAX, INT64_MIN, UINT32_MAX, 1 << 20 };
	const size_t first = offsetof(struct numbers, n), most = (sizeof *in - first) / sizeof(int64_t);
	uint8_t *at = (uint8_t *)in + first + oracle_random(random) % most * sizeof(int64_t);
	int64_t value;

	memcpy(&value, at, sizeof value);
	switch (oracle_random(random) % 4) {
	case 0:
		value = limits[oracle_random(random) % (sizeof limits / sizeof *limits)];
		break;
	case 1:
		value = (int64_t)((uint64_t)value * 2);
		break;
	default:
		value = (int64_t)((uint64_t)value + (oracle_random(random) % 2 ? 1 : UINT64_MAX));
	}
	memcpy(at, &value, sizeof value);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	static struct list l;
	uint64_t random = seed;

	if (max_size < sizeof l.in)
		return LLVMFuzzerMutate(data, size, max_size);
	if (size == 0)
		make(&l, &random);
	else if (oracle_random(&random) % 4 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	else
		read_input(&l, data, size);
	for (uint64_t times = (size > 0) + oracle_random(&random) % 2; times; times--)
		switch (oracle_random(&random) % 4) {
		case 0:
			transform_request_change(&l.request, &random);
			break;
		case 1:
			l.in.flags ^= (uint8_t)(1u << oracle_random(&random) % 8);
			break;
		default:
			change_number(&l.in, &random);
		}
	memcpy(data, &l.in, sizeof l.in);
	return sizeof l.in + transform_request_write(&l.request, data + sizeof l.in, max_size - sizeof l.in);
}
