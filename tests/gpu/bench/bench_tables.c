/* SPDX-License-Identifier: Apache-2.0 */
/* Compares gathers and scatters of layers that lie in 160 regions, by a table, with the same in one region:
 * the engine's time for one request, and how many small requests the service handles per second.
 *
 *    bench_tables SOCKET [ONE-IN]    ONE-IN reduces the blocks and the requests for trials.
 *
 * Three ways take turns: layers evenly spaced in one region, listed in one region, and each in a separate
 * region at uneven offsets. The other side is one region. Figures are medians of the engine's own times, as
 * ratios to the first way. Every block of every way is checked once. The small requests have one block of 16
 * bytes in each layer, or an entry of -1, which moves nothing; many are under way.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tmaclient.h"
#include "figures.h"

#define LAYERS   160 /* K and V of 80 layers */
#define BLOCKS   256 /* blocks of a layer */
#define WARM_UP  3
#define RUNS     41
#define REQUESTS 20000
#define DEPTH    32  /* requests under way */
#define PAD      256 /* bytes; a layer begins up to 15 times this after the start of its region */

enum way { STEPS, LISTED, TABLE, WAYS };

static const char *const way_names[WAYS] = { "steps", "a list", "160 regions" };

static const struct row {
	uint32_t bytes; /* bytes of a block */
	bool scatter;
} rows[] = {
	{ 4 << 10, false }, { 16 << 10, false }, { 32 << 10, false }, { 16 << 10, true }, { 32 << 10, true }
};

static void die(const char *what)
{
	fprintf(stderr, "bench_tables: %s\n", what);
	exit(1);
}

static void must(tma_client *client, int r)
{
	if (r < 0)
		die(tma_last_error(client));
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static struct memory {
	tma_client *client;
	size_t layer_bytes; /* most bytes of a layer */
	tma_region *pool, *flat,
	    *host; /* all layers of each: those of the pools, those of the results, and the host's copy */
	struct tma_place layers[LAYERS]; /* pools in separate regions */
	int64_t offsets[LAYERS];         /* pools in one region */
	tma_table *table;
} memory;

static struct tma_tensor bytes_at(tma_region *region, uint64_t offset, uint64_t n)
{
	return (struct tma_tensor){
		.region = region, .offset = offset, .dtype = TMA_UINT8, .rank = 1, .shape = { (int64_t)n }
	};
}

static void copy_bytes(tma_region *to, uint64_t to_offset, tma_region *from, uint64_t from_offset, uint64_t n)
{
	const struct tma_tensor dst = bytes_at(to, to_offset, n), src = bytes_at(from, from_offset, n);

	must(memory.client, tma_copy(memory.client, &dst, &src));
}

static void memory_init(tma_client *client, size_t layer_bytes)
{
	const size_t all = LAYERS * layer_bytes;

	memory.client = client;
	memory.layer_bytes = layer_bytes;
	must(client, tma_region_create(client, all, &memory.pool));
	must(client, tma_region_create(client, all, &memory.flat));
	must(client, tma_region_create_kind(client, TMA_REGION_MEMFD, all, &memory.host));
	for (uint64_t l = 0; l < LAYERS; l++) {
		memory.layers[l].offset = PAD * (l * 7 % 16);
		memory.offsets[l] = (int64_t)(l * layer_bytes);
		must(client, tma_region_create(client, layer_bytes + 16 * PAD, &memory.layers[l].region));
	}
	must(client, tma_table_prepare(client, memory.layers, LAYERS, &memory.table));
}

static uint64_t word_at(size_t i)
{
	return i * 0x9e3779b97f4a7c15;
}

static void fill_host(uint64_t times)
{
	uint64_t *words = tma_region_data(memory.host);

	for (size_t i = 0; i < LAYERS * memory.layer_bytes / 8; i++)
		words[i] = word_at(i) * times;
}

/* Copies between the host and the layers, wherever the layers lie. */
static void copy_layers(enum way way, bool to_host)
{
	for (uint64_t l = 0; l < LAYERS; l++) {
		tma_region *region = way == TABLE ? memory.layers[l].region : memory.pool;
		const uint64_t offset = way == TABLE ? memory.layers[l].offset : l * memory.layer_bytes;

		if (to_host)
			copy_bytes(memory.host, l * memory.layer_bytes, region, offset, memory.layer_bytes);
		else
			copy_bytes(region, offset, memory.host, l * memory.layer_bytes, memory.layer_bytes);
	}
}

/* ---- A request ---------------------------------------------------------------------------------------- */

struct work {
	enum way way;
	bool scatter;
	struct tma_tensor dst, src;
	struct tma_transform block;
	struct tma_blocks blocks;
};

/* Prepares a list of n blocks of a layer from a pool of so many. The list indexes the pool's side. */
static void work_init(struct work *work, enum way way, bool scatter, uint32_t bytes, const int32_t *index,
                      uint32_t n)
{
	struct tma_blocks *b = &work->blocks;
	tma_region *pool = way == TABLE ? NULL : memory.pool;

	work->way = way;
	work->scatter = scatter;
	work->dst = bytes_at(scatter ? pool : memory.flat, 0, bytes);
	work->src = bytes_at(scatter ? memory.flat : pool, 0, bytes);
	work->block = (struct tma_transform){ .dst = &work->dst, .src = &work->src };
	*b = (struct tma_blocks){ .transform = &work->block,
		                  .count = n,
		                  .index_dtype = TMA_INT32,
		                  .index = index,
		                  .limit = memory.layer_bytes / bytes,
		                  .layers = LAYERS,
		                  .dst_layer_step = memory.layer_bytes,
		                  .src_layer_step = memory.layer_bytes };
	if (way == STEPS)
		return;
	*(scatter ? &b->dst_layer_step : &b->src_layer_step) = 0;
	if (way == TABLE)
		*(scatter ? &b->dst_table : &b->src_table) = memory.table;
	else
		*(scatter ? &b->dst_layers : &b->src_layers) = memory.offsets;
}

static void submit(const struct work *work, tma_ticket *ret)
{
	must(memory.client, work->scatter ? tma_submit_scatter(memory.client, &work->blocks, ret)
	                                  : tma_submit_gather(memory.client, &work->blocks, ret));
}

/* ---- Times -------------------------------------------------------------------------------------------- */

static void shuffle(int32_t *index, uint32_t n)
{
	srand(11);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = (uint32_t)rand() % (i + 1);

		index[i] = index[at];
		index[at] = (int32_t)i;
	}
}

/* Checks the blocks that the list names, either one after the other or back in their places. */
static void check(const struct work *work, const int32_t *index, uint32_t n)
{
	const size_t words = work->dst.shape[0] / 8, layer_words = memory.layer_bytes / 8;
	const uint64_t *made = tma_region_data(memory.host);
	struct tma_result result;
	tma_ticket ticket;

	fill_host(1);
	if (work->scatter)
		copy_bytes(memory.flat, 0, memory.host, 0, LAYERS * memory.layer_bytes);
	else
		copy_layers(work->way, false);
	submit(work, &ticket);
	must(memory.client, tma_wait(memory.client, ticket, &result));
	memset(tma_region_data(memory.host), 0, LAYERS * memory.layer_bytes);
	if (work->scatter)
		copy_layers(work->way, true);
	else
		copy_bytes(memory.host, 0, memory.flat, 0, LAYERS * memory.layer_bytes);
	for (size_t l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < n; i++)
			for (size_t w = 0; w < words; w++) {
				const size_t named = l * layer_words + (size_t)index[i] * words + w;
				const size_t flat = l * layer_words + i * words + w;

				if (made[work->scatter ? named : flat] !=
				    word_at(work->scatter ? flat : named))
					die("a block is wrong");
			}
}

static void time_row(const struct row *row, uint32_t n, int runs)
{
	static int32_t index[BLOCKS];
	static struct work works[WAYS];
	static double engine[WAYS][RUNS];
	char path[WAYS][sizeof(((struct tma_result *)0)->path)];
	double m[WAYS];

	shuffle(index, n);
	for (int way = 0; way < WAYS; way++) {
		work_init(&works[way], (enum way)way, row->scatter, row->bytes, index, n);
		check(&works[way], index, n);
	}
	for (int run = -WARM_UP; run < runs; run++)
		for (int way = 0; way < WAYS; way++) {
			struct tma_result result;
			tma_ticket ticket;

			submit(&works[way], &ticket);
			must(memory.client, tma_wait(memory.client, ticket, &result));
			if (run >= 0)
				engine[way][run] = (double)result.ns / 1e3;
			memcpy(path[way], result.path, sizeof path[way]);
		}
	for (int way = 0; way < WAYS; way++)
		m[way] = median(engine[way], (size_t)runs);
	printf("| %s | %u x %u x %u KiB |", row->scatter ? "scatter" : "gather", LAYERS, n, row->bytes >> 10);
	for (int way = 0; way < WAYS; way++)
		printf(" %.1f | %.3f | %s |", m[way], m[way] / m[STEPS], path[way]);
	printf("\n");
	fflush(stdout);
}

static double rate_of(const struct work *work, int n)
{
	tma_ticket tickets[DEPTH];
	const double start = now_us();

	for (int i = 0; i < n + DEPTH; i++) {
		if (i >= DEPTH)
			must(memory.client, tma_wait(memory.client, tickets[i % DEPTH], NULL));
		if (i < n)
			submit(work, &tickets[i % DEPTH]);
	}
	return n / (now_us() - start) * 1e6;
}

static void time_requests(int32_t entry, const char *name, int n)
{
	static struct work work;

	printf("| %s |", name);
	for (int way = 0; way < WAYS; way++) {
		work_init(&work, (enum way)way, false, 16, &entry, 1);
		rate_of(&work, DEPTH);
		printf(" %.0f |", rate_of(&work, n));
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	const uint32_t one_in = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	const int runs = one_in > 1 ? 1 : RUNS;
	const uint32_t n = BLOCKS / (one_in > 0 ? one_in : 1);
	tma_client *client = tma_new();
	uint32_t most = 0;

	if (argc < 2 || argc > 3 || one_in < 1 || one_in > BLOCKS || !client)
		die("bench_tables SOCKET [ONE-IN]");
	must(client, tma_connect(client, argv[1]));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		most = rows[i].bytes > most ? rows[i].bytes : most;
	memory_init(client, (size_t)n * most);
	printf("medians of %d, of the engine's clock, and as many times as long as by steps in one region\n\n"
	       "| what | blocks | %s, us | | by | %s, us | | by | %s, us | | by |\n"
	       "|---|---|---|---|---|---|---|---|---|---|---|\n",
	       runs, way_names[STEPS], way_names[LISTED], way_names[TABLE]);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		time_row(&rows[i], n, runs);
	printf(
	    "\nrequests a second, %d under way\n\n| gather in 160 layers | %s | %s | %s |\n|---|---|---|---|\n",
	    DEPTH, way_names[STEPS], way_names[LISTED], way_names[TABLE]);
	time_requests(-1, "of nothing", REQUESTS / (int)one_in);
	time_requests(0, "of 16 bytes", REQUESTS / (int)one_in);
	tma_free(client);
	return 0;
}
