/* SPDX-License-Identifier: Apache-2.0 */
/* Runs random lists of blocks and random batches through the engine and compares them with the oracle: all of
 * both memories, with gaps, guards and the source. Environment variables:
 * PROPERTY_CASES: number of random lists, instead of a share of FULL_CASES.
 * PROPERTY_SEED: seed of the first list, by default 1. A case depends on its own seed alone.
 * The cases take the ways of ways.h in turn. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/memory.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"
#include "tests/support/tap.h"
#include "ways.h"

#define FULL_CASES   60000
#define DEFAULT_SEED 1
/* A batch is tried for every BATCH_SHARE lists. */
#define BATCH_SHARE 4

#define MOST_ENTRIES 3000
#define MOST_LAYERS  5
#define MOST_MOVES   40

static uint8_t expected[BENCH_BYTES], source[BENCH_BYTES];

static void *allocate(size_t size)
{
	void *p = malloc(size);
	if (!p)
		bench_die("out of memory");
	return p;
}

static bool one_in(uint64_t *state, int n)
{
	return oracle_between(state, 1, n) == 1;
}

static uint8_t *data_of(struct engine_memory *memory)
{
	return (uint8_t *)host_memory(memory)->data;
}

/* Fills the source with random bytes and the destination with poison, size bytes of each, and keeps copies of
 * both. */
static void fill_memory(struct bench *bench, uint64_t *state, size_t dst_size, size_t src_size)
{
	for (size_t i = 0; i < src_size; i += 8) {
		uint64_t word = oracle_random(state);
		memcpy(source + i, &word, src_size - i < 8 ? src_size - i : 8);
	}
	memset(expected, 0xa5, dst_size);
	memcpy(data_of(bench->src), source, src_size);
	memcpy(data_of(bench->dst), expected, dst_size);
}

static bool complain(const struct bench *bench, uint64_t seed, const char *kind, const char *what)
{
	fprintf(stderr, "# %s, seed %" PRIu64 ", %s, %s: %s\n", kind, seed, bench->isa, way_names[bench->way],
	        what);
	return false;
}

static bool check_memory(const struct bench *bench, uint64_t seed, const char *kind, size_t dst_size,
                         size_t src_size)
{
	char text[64];
	const uint8_t *dst = data_of(bench->dst);
	size_t i = 0;
	if (memcmp(data_of(bench->src), source, src_size) != 0)
		return complain(bench, seed, kind, "the source was written");
	if (memcmp(dst, expected, dst_size) == 0)
		return true;
	while (dst[i] == expected[i])
		i++;
	snprintf(text, sizeof(text), "byte %zu of %zu is 0x%02x, not 0x%02x", i, dst_size, dst[i],
	         expected[i]);
	return complain(bench, seed, kind, text);
}

/* ---- Lists ------------------------------------------------------------------------------------------ */

struct list {
	struct oracle_case c; /* of one block */
	struct engine_blocks blocks;
	int64_t layers[2][MOST_LAYERS];
	int64_t dst_block[MOST_ENTRIES], src_block[MOST_ENTRIES];
	uint64_t passed, beyond;
	size_t dst_size, src_size;
};

/* Places n blocks of `size` bytes in each layer, with gaps, and returns where the last one ends. */
static size_t place_side(uint64_t *state, struct engine_blocks_side *side, int64_t *layers, uint64_t n,
                         uint32_t n_layers, size_t size)
{
	side->step = size + (one_in(state, 2) ? 0 : (uint64_t)oracle_between(state, 1, 80));
	side->layer_step = n * side->step + (one_in(state, 2) ? 0 : (uint64_t)oracle_between(state, 1, 200));
	if (one_in(state, 2)) {
		for (uint32_t l = 0; l < n_layers; l++) {
			uint32_t other = (uint32_t)oracle_between(state, 0, l);
			layers[l] = layers[other];
			layers[other] = (int64_t)(l * side->layer_step);
		}
		side->layers = layers;
	}
	return n_layers * side->layer_step;
}

/* Returns a number that is out of range in every list. */
static int64_t beyond(uint64_t *state, uint8_t bytes, uint64_t limit)
{
	switch (oracle_between(state, 0, bytes == 8 ? 5 : 3)) {
	case 0:
		return (int64_t)limit;
	case 1:
		return -2;
	case 2:
		return bytes == 8 ? INT64_MIN : INT32_MIN;
	case 3:
		return bytes == 8 ? INT64_MAX : INT32_MAX;
	case 4:
		return INT64_C(1) << 32; /* 0, if only its lower half is read */
	default:
		return INT64_C(0xffffffff);
	}
}

static bool names_blocks(const struct list *list, uint64_t i)
{
	return (uint64_t)list->dst_block[i] < blocks_dst_count(&list->blocks) &&
	       (uint64_t)list->src_block[i] < blocks_src_count(&list->blocks);
}

/* Makes the numbers of an indexed side in random order. Those of dst name each block at most once. */
static void make_numbers(uint64_t *state, const struct engine_blocks *blocks, bool is_dst, bool odd,
                         int64_t *ret)
{
	const uint64_t limit = is_dst ? blocks_dst_count(blocks) : blocks_src_count(blocks);
	uint64_t next = 0;
	for (uint64_t i = 0; i < blocks->n; i++) {
		if ((is_dst && next == limit) || (odd && one_in(state, 5)))
			ret[i] = -1;
		else if (odd && one_in(state, 9))
			ret[i] = beyond(state, blocks->index_bytes, limit);
		else
			ret[i] = is_dst ? (int64_t)next++ : oracle_between(state, 0, (int64_t)limit - 1);
	}
	for (uint64_t i = blocks->n; is_dst && i-- > 1;) {
		uint64_t other = (uint64_t)oracle_between(state, 0, (int64_t)i);
		int64_t kept = ret[i];
		ret[i] = ret[other];
		ret[other] = kept;
	}
}

static void make_index(uint64_t *state, struct list *list)
{
	const struct engine_blocks *blocks = &list->blocks;
	bool odd = one_in(state, 2);
	for (uint64_t i = 0; i < blocks->n; i++)
		list->dst_block[i] = list->src_block[i] = (int64_t)i;
	if (blocks_dst_is_indexed(blocks))
		make_numbers(state, blocks, true, odd, list->dst_block);
	if (blocks_src_is_indexed(blocks))
		make_numbers(state, blocks, false, odd, list->src_block);
	for (uint64_t i = 0; i < blocks->n; i++) {
		bool passed = list->dst_block[i] == -1 || list->src_block[i] == -1;
		list->passed += passed;
		list->beyond += !passed && !names_blocks(list, i);
	}
}

static void write_number(const struct list *list, int64_t number, uint8_t **at)
{
	for (int byte = 0; byte < list->blocks.index_bytes; byte++)
		*(*at)++ = (uint8_t)((uint64_t)number >> 8 * byte);
}

static void write_index(const struct list *list, uint8_t *at)
{
	for (uint64_t i = 0; i < list->blocks.n; i++) {
		if (blocks_src_is_indexed(&list->blocks))
			write_number(list, list->src_block[i], &at);
		if (blocks_dst_is_indexed(&list->blocks))
			write_number(list, list->dst_block[i], &at);
	}
}

static void make_list(uint64_t seed, struct list *list)
{
	uint64_t state = ~seed;
	struct engine_blocks *blocks = &list->blocks;
	*list = (struct list){ 0 };
	oracle_random_case(seed, &list->c);
	size_t size = list->c.dst_size > list->c.src_size ? list->c.dst_size : list->c.src_size;
	uint32_t layers = one_in(&state, 2) ? 1 : (uint32_t)oracle_between(&state, 1, MOST_LAYERS);
	int64_t room = (BENCH_BYTES - 2 * ORACLE_GUARD) / (int64_t)(size + 80 + 200) / layers;
	int64_t most = one_in(&state, 8) ? MOST_ENTRIES : 20;
	most = most < room ? most : room;
	*blocks = (struct engine_blocks){ .n = (uint64_t)oracle_between(&state, 1, most),
		                          .layers = layers,
		                          .scatter = one_in(&state, 2),
		                          .index_bytes = one_in(&state, 2) ? 4 : 8,
		                          .limit = (uint64_t)oracle_between(&state, 1, most) };
	if (!blocks->scatter && one_in(&state, 2)) {
		blocks->pairs = true;
		blocks->dst_limit = (uint64_t)oracle_between(&state, 1, most);
	}
	make_index(&state, list);
	list->dst_size = 2 * ORACLE_GUARD + place_side(&state, &blocks->dst, list->layers[0],
	                                               blocks_dst_count(blocks), layers, list->c.dst_size);
	list->src_size = 2 * ORACLE_GUARD + place_side(&state, &blocks->src, list->layers[1],
	                                               blocks_src_count(blocks), layers, list->c.src_size);
}

static int64_t place_of(const struct engine_blocks_side *side, uint64_t block, uint32_t layer)
{
	return (int64_t)(block * side->step) +
	       (side->layers ? side->layers[layer] : (int64_t)(layer * side->layer_step));
}

static void expect_list(const struct list *list)
{
	const struct engine_blocks *blocks = &list->blocks;
	for (uint32_t layer = 0; layer < blocks->layers; layer++)
		for (uint64_t i = 0; i < blocks->n; i++) {
			uint64_t to = (uint64_t)list->dst_block[i], from = (uint64_t)list->src_block[i];
			if (!names_blocks(list, i))
				continue;
			oracle_run(
			    &list->c.spec,
			    expected + ORACLE_GUARD + list->c.dst_offset + place_of(&blocks->dst, to, layer),
			    source + ORACLE_GUARD + list->c.src_offset + place_of(&blocks->src, from, layer));
		}
}

static bool try_list(struct bench *bench, uint64_t seed)
{
	static struct list list;
	uint64_t state = seed ^ UINT64_C(0x5555);
	struct transform transform;
	struct error err;
	char text[1024];
	make_list(seed, &list);
	if (transform_init(&transform, &list.c.spec, &err) < 0)
		return complain(bench, seed, "list", err.message);
	fill_memory(bench, &state, list.dst_size, list.src_size);
	expect_list(&list);

	size_t skew = (size_t)oracle_between(&state, 0, 9);
	uint8_t *host = allocate(skew + list.blocks.n * blocks_entry_bytes(&list.blocks));
	write_index(&list, host + skew);
	if (one_in(&state, 2)) {
		list.blocks.index = host + skew;
	} else {
		list.blocks.index_memory = bench->index;
		list.blocks.index_offset = skew * list.blocks.index_bytes;
		write_index(&list, data_of(bench->index) + list.blocks.index_offset);
	}
	struct engine_job job = { .move = { .transform = &transform,
		                            .plan = plan_for(bench->engine, &transform, 0, 0),
		                            .dst = bench->dst,
		                            .src = bench->src,
		                            .dst_offset = ORACLE_GUARD + list.c.dst_offset,
		                            .src_offset = ORACLE_GUARD + list.c.src_offset },
		                  .blocks = &list.blocks };
	int status = bench_run(bench, &job);
	free(host);
	if (status < 0)
		return complain(bench, seed, "list", status_name(status));
	if (list.blocks.passed != list.passed || list.blocks.beyond != list.beyond) {
		snprintf(text, sizeof(text),
		         "%" PRIu64 " passed over and %" PRIu64 " beyond, not %" PRIu64 " and %" PRIu64,
		         list.blocks.passed, list.blocks.beyond, list.passed, list.beyond);
		return complain(bench, seed, "list", text);
	}
	if (check_memory(bench, seed, "list", list.dst_size, list.src_size))
		return true;
	oracle_case_text(&list.c, text, sizeof(text));
	return complain(bench, seed, "list", text);
}

/* ---- Batches ---------------------------------------------------------------------------------------- */

static bool try_batch(struct bench *bench, uint64_t seed)
{
	static struct oracle_case c[MOST_MOVES];
	static struct transform transform[MOST_MOVES];
	struct engine_move moves[MOST_MOVES];
	uint64_t state = ~seed;
	uint32_t n = (uint32_t)oracle_between(&state, 1, one_in(&state, 4) ? MOST_MOVES : 6);
	size_t dst_size = ORACLE_GUARD, src_size = ORACLE_GUARD;
	struct error err;
	for (uint32_t i = 0; i < n; i++) {
		oracle_random_case(seed * MOST_MOVES + i, &c[i]);
		if (transform_init(&transform[i], &c[i].spec, &err) < 0)
			return complain(bench, seed, "batch", err.message);
		moves[i] = (struct engine_move){ .transform = &transform[i],
			                         .plan = plan_for(bench->engine, &transform[i], 0, 0),
			                         .dst = bench->dst,
			                         .src = bench->src,
			                         .dst_offset = dst_size + c[i].dst_offset,
			                         .src_offset = src_size + c[i].src_offset,
			                         .status = 1 };
		dst_size += c[i].dst_size + (size_t)oracle_between(&state, 0, 20);
		src_size += c[i].src_size;
	}
	dst_size += ORACLE_GUARD;
	src_size += ORACLE_GUARD;
	if (dst_size > BENCH_BYTES || src_size > BENCH_BYTES)
		return complain(bench, seed, "batch", "it is larger than a memory");
	fill_memory(bench, &state, dst_size, src_size);
	for (uint32_t i = 0; i < n; i++)
		oracle_run(&c[i].spec, expected + moves[i].dst_offset, source + moves[i].src_offset);
	struct engine_job job = { .moves = moves, .n_moves = n };
	int status = bench_run(bench, &job);
	for (uint32_t i = 0; i < n; i++)
		status = status ? status : moves[i].status;
	if (status)
		return complain(bench, seed, "batch", status_name(status));
	return check_memory(bench, seed, "batch", dst_size, src_size);
}

/* ---- Main ------------------------------------------------------------------------------------------- */

int main(void)
{
	struct bench bench[MOST_BENCHES];
	uint64_t cases = bench_number("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	uint64_t seed = bench_number("PROPERTY_SEED", DEFAULT_SEED);
	size_t n = benches_open(bench);
	bench_try_all(
	    try_list, bench, n, cases, seed,
	    "a random list of blocks is the oracle's, guards, gaps and source intact, its entries counted");
	bench_try_all(try_batch, bench, n, cases / BATCH_SHARE, seed,
	              "a random batch is the oracle's, guards, gaps and source intact");
	benches_close(bench, n);
	return tap_end();
}
