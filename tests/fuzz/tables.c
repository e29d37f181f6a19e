/* SPDX-License-Identifier: Apache-2.0 */
/* Checks tables of layers. The entries of a table that was made lie in their regions. What is accepted for
 * two tables and any block numbers lies in the regions of all entries, and in no layer has a byte twice in
 * the destination or in both sides; this is checked with 128-bit arithmetic. A check that is repeated, when
 * the tables have cached its result, has the same outcome. */
#include "kernels/transform/layer_table.h"

#include <stddef.h>
#include <string.h>

#include "fuzz.h"
#include "kernels/transform/blocks.h"
#include "tests/support/oracle.h"

#define MOST 6 /* most entries */

/* The bytes of an input. Missing bytes count as 0. */
struct numbers {
	uint8_t layers;
	uint8_t scatter;
	uint8_t memory[2][MOST];
	uint8_t unused[2];
	uint64_t base[2][MOST];
	uint64_t offset[2][MOST];
	uint64_t size[2][MOST];
	uint64_t address[2][MOST];
	uint64_t added[2];
	uint64_t step[2];
	uint64_t n;
	uint64_t limit;
	uint64_t bytes; /* bytes of a block */
} __attribute__((packed));

struct side {
	struct layer_table table;
	struct layer_place places[MOST];
	int64_t layers[MOST];
	uint32_t order[MOST];
	struct tensor_place place;
};

static int side_make(struct side *side, const struct numbers *in, int s, uint32_t n, struct error *err)
{
	int r;

	for (uint32_t i = 0; i < n; i++)
		side->places[i] = (struct layer_place){ .at = { .memory = { 1, in->memory[s][i] % 4 },
			                                        .base = in->base[s][i] >> 16,
			                                        .offset = in->offset[s][i],
			                                        .size = in->size[s][i] >> 16 },
			                                .region = i,
			                                .address = in->address[s][i] };
	side->table = (struct layer_table){ .n = n,
		                            .places = side->places,
		                            .serial = (uint64_t)s + 1,
		                            .noun = "table",
		                            .layers = side->layers,
		                            .order = side->order };
	r = layer_table_init(&side->table, "places", err);
	side->place = side->places[0].at;
	side->place.offset += in->added[s];
	return r;
}

static struct stretch layer_at(const struct side *side, const struct numbers *in, int s, uint32_t l,
                               uint64_t n)
{
	const struct tensor_place *at = &side->places[l].at;
	const int128 first = (int128)at->base + at->offset + in->added[s];

	return (struct stretch){ first, first + int128_product(n - 1, in->step[s]) + in->bytes };
}

static void check_ranges(const struct side *side, const struct numbers *in, int s, uint64_t n)
{
	for (uint32_t l = 0; l < side->table.n; l++) {
		const struct tensor_place *at = &side->places[l].at;

		fuzz_check(layer_at(side, in, s, l, n).high <= (int128)at->base + at->size,
		           "side %d, entry %u leaves its region", s, l);
	}
}

static bool is_one_memory(const struct side *a, uint32_t i, const struct side *b, uint32_t j)
{
	return a->places[i].at.memory[1] == b->places[j].at.memory[1];
}

/* Checks that no two layers of a destination share bytes, by comparing every two blocks of small tables. */
static void check_apart(const struct side *dst, const struct numbers *in, uint64_t n)
{
	if (n > 64)
		return;
	for (uint32_t i = 0; i < dst->table.n; i++)
		for (uint32_t j = i + 1; j < dst->table.n; j++)
			for (uint64_t k = 0; k < n * n && is_one_memory(dst, i, dst, j); k++) {
				const struct stretch a = layer_at(dst, in, 0, i, 1),
						     b = layer_at(dst, in, 0, j, 1);

				fuzz_check(!stretches_meet(stretch_shift(a, (int128)(k / n) * in->step[0]),
				                           stretch_shift(b, (int128)(k % n) * in->step[0])),
				           "entries %u and %u share bytes", i, j);
			}
}

static void check_sides(const struct side *dst, uint64_t n_dst, const struct side *src, uint64_t n_src,
                        const struct numbers *in)
{
	for (uint32_t i = 0; i < dst->table.n; i++)
		for (uint32_t j = 0; j < src->table.n; j++)
			fuzz_check(!is_one_memory(dst, i, src, j) ||
			               !stretches_meet(layer_at(dst, in, 0, i, n_dst),
			                               layer_at(src, in, 1, j, n_src)),
			           "entries %u and %u overlap", i, j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct side dst, src;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct engine_blocks blocks = { 0 };
	struct numbers in = { 0 };
	struct error err = { 0 };
	struct transform t;
	int64_t shape;
	int r, again;

	memcpy(&in, data, size < sizeof in ? size : sizeof in);
	shape = (int64_t)(in.bytes >> 1);
	in.bytes = (uint64_t)shape;
	blocks.layers = 1 + in.layers % MOST;
	blocks.scatter = in.scatter & 1;
	blocks.n = in.n;
	blocks.limit = in.limit;
	if (tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, &shape, NULL, "dst", &err) < 0)
		return 0;
	spec.src = spec.dst;
	if (transform_init(&t, &spec, &err) < 0)
		return 0;
	r = side_make(&dst, &in, 0, blocks.layers, &err);
	if (r == 0)
		r = side_make(&src, &in, 1, blocks.layers, &err);
	if (r < 0) {
		fuzz_check_error(&err);
		return 0;
	}
	blocks.dst.step = in.step[0];
	blocks.src.step = in.step[1];
	blocks_use_table(&blocks.dst, &dst.table);
	blocks_use_table(&blocks.src, &src.table);
	r = blocks_check(&blocks, &t, &dst.place, &src.place, NULL, &err);
	again = blocks_check(&blocks, &t, &dst.place, &src.place, NULL, &err);
	fuzz_check(r == again, "%d, then %d", r, again);
	if (r < 0) {
		fuzz_check_error(&err);
		return 0;
	}
	const uint64_t n_dst = blocks.scatter ? in.limit : in.n, n_src = blocks.scatter ? in.n : in.limit;

	if (shape == 0)
		return 0;
	if (n_dst > 0) {
		check_ranges(&dst, &in, 0, n_dst);
		check_apart(&dst, &in, n_dst);
	}
	if (n_src > 0)
		check_ranges(&src, &in, 1, n_src);
	if (n_dst > 0 && n_src > 0)
		check_sides(&dst, n_dst, &src, n_src, &in);
	return 0;
}

/* Makes tables that may be accepted: few memories, with layers at multiples of their size. */
static void make(struct numbers *in, uint64_t *random)
{
	memset(in, 0, sizeof *in);
	in->layers = (uint8_t)oracle_between(random, 0, MOST - 1);
	in->scatter = (uint8_t)oracle_between(random, 0, 1);
	in->n = (uint64_t)oracle_between(random, 0, 5);
	in->limit = (uint64_t)oracle_between(random, 0, 5);
	in->bytes = 2 * (uint64_t)oracle_between(random, 0, 40);
	for (int s = 0; s < 2; s++) {
		in->step[s] =
		    in->bytes / 2 + (uint64_t)(oracle_between(random, 0, 1) * oracle_between(random, 0, 200));
		in->added[s] = (uint64_t)(oracle_between(random, 0, 1) * oracle_between(random, 0, 64));
		for (int i = 0; i < MOST; i++) {
			in->memory[s][i] = (uint8_t)oracle_between(random, 0, 3);
			in->base[s][i] = (uint64_t)oracle_between(random, 0, 3) << 20;
			in->offset[s][i] = (uint64_t)oracle_between(random, 0, 9) *
			                   (oracle_between(random, 0, 3) ? 400 : in->bytes / 2);
			in->size[s][i] = (uint64_t)oracle_between(random, 0, 16) << 26;
			in->address[s][i] = oracle_random(random);
		}
	}
}

static void change(struct numbers *in, uint64_t *random)
{
	static const uint64_t limits[] = {
		0, 1, 2, 64, INT32_MAX, INT64_MAX, UINT64_MAX, UINT32_MAX, 1 << 20
	};
	const size_t first = offsetof(struct numbers, base), most = (sizeof *in - first) / sizeof(uint64_t);
	uint8_t *at = (uint8_t *)in + first + oracle_random(random) % most * sizeof(uint64_t);
	uint64_t value;

	memcpy(&value, at, sizeof value);
	switch (oracle_random(random) % 4) {
	case 0:
		value = limits[oracle_random(random) % (sizeof limits / sizeof *limits)];
		break;
	case 1:
		value *= 2;
		break;
	default:
		value += oracle_random(random) % 2 ? 1 : UINT64_MAX;
	}
	memcpy(at, &value, sizeof value);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	struct numbers in = { 0 };
	uint64_t random = seed;

	if (max_size < sizeof in)
		return LLVMFuzzerMutate(data, size, max_size);
	if (size == 0)
		make(&in, &random);
	else if (oracle_random(&random) % 4 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	else
		memcpy(&in, data, size < sizeof in ? size : sizeof in);
	for (uint64_t times = (size > 0) + oracle_random(&random) % 2; times; times--)
		change(&in, &random);
	memcpy(data, &in, sizeof in);
	return sizeof in;
}
