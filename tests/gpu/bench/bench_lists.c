/* SPDX-License-Identifier: Apache-2.0 */
/* Compares gathers by a service, one list in each request, with the service's copy of as many bytes: one at a
 * time, and with many under way.
 *
 *    bench_lists SOCKET [ONE-IN]    ONE-IN reduces the blocks for trials, with a single run.
 *
 * Both take turns. The time of a single request is the client's, from call to reply, and also the engine's
 * own; with many under way it is the client's time for all, divided by their number. Figures are medians.
 * Every block is checked once, without using the list.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tmaclient.h"
#include "figures.h"

#define WARM_UP 3
#define RUNS    41
#define TURNS   7
#define DEPTH   16 /* requests under way */
#define MOST    8192
#define SPREAD  2 /* blocks in the pool for each block that is picked */

static const struct row {
	uint32_t n;
	uint32_t bytes;
	bool swapped; /* permutes [16, 8, 128] to [8, 16, 128] elements of 2 bytes */
} rows[] = {
	{ 8192, 4 << 10, false },  { 8192, 16 << 10, false }, { 8192, 32 << 10, false },
	{ 8192, 64 << 10, false }, { 8192, 32 << 10, true },  { 256, 32 << 10, false },
	{ 64, 4 << 10, false },
};

static void die(const char *what)
{
	fprintf(stderr, "bench_lists: %s\n", what);
	exit(1);
}

static void must(tma_client *client, int r)
{
	if (r < 0)
		die(tma_last_error(client));
}

/* ---- Memory
 * ---------------------------------------------------------------------------------------------- */

/* The service's memory on its device, and host memory to fill and read it. */
struct memory {
	tma_client *client;
	size_t size;
	tma_region *src, *dst, *host;
};

static void copy_all(struct memory *memory, tma_region *to, tma_region *from)
{
	const struct tma_tensor dst = {
		.region = to, .dtype = TMA_UINT8, .rank = 1, .shape = { (int64_t)memory->size }
	};
	struct tma_tensor src = dst;

	src.region = from;
	must(memory->client, tma_copy(memory->client, &dst, &src));
}

static uint64_t word_at(size_t i)
{
	return i * 0x9e3779b97f4a7c15;
}

static void memory_init(struct memory *memory, tma_client *client, size_t size)
{
	uint64_t *words;

	*memory = (struct memory){ .client = client, .size = size };
	must(client, tma_region_create(client, size, &memory->src));
	must(client, tma_region_create(client, size, &memory->dst));
	must(client, tma_region_create_kind(client, TMA_REGION_MEMFD, size, &memory->host));
	words = tma_region_data(memory->host);
	for (size_t i = 0; i < size / 8; i++)
		words[i] = word_at(i);
	copy_all(memory, memory->src, memory->host);
}

/* ---- A row
 * ----------------------------------------------------------------------------------------------- */

struct work {
	struct memory *memory;
	struct row row;
	int runs, turns;
	int32_t index[MOST * SPREAD];
	struct tma_tensor dst, src, dst_all, src_all;
	struct tma_transform block, all;
	struct tma_blocks blocks;
};

static const int swapped[3] = { 1, 0, 2 };

static void shuffle(int32_t *index, uint32_t n)
{
	srand(11);
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = (uint32_t)rand() % (i + 1);

		index[i] = index[at];
		index[at] = (int32_t)i;
	}
}

static struct tma_tensor bytes_of(tma_region *region, uint64_t n)
{
	return (
	    struct tma_tensor){ .region = region, .dtype = TMA_UINT8, .rank = 1, .shape = { (int64_t)n } };
}

static void prepare(struct work *work, struct memory *memory, const struct row *row)
{
	const uint64_t all = (uint64_t)row->n * row->bytes;

	work->memory = memory;
	work->row = *row;
	shuffle(work->index, row->n * SPREAD);
	work->dst = bytes_of(memory->dst, row->bytes);
	work->src = bytes_of(memory->src, row->bytes);
	if (row->swapped) {
		work->dst = (struct tma_tensor){
			.region = memory->dst, .dtype = TMA_FLOAT16, .rank = 3, .shape = { 8, 16, 128 }
		};
		work->src = (struct tma_tensor){
			.region = memory->src, .dtype = TMA_FLOAT16, .rank = 3, .shape = { 16, 8, 128 }
		};
	}
	work->dst_all = bytes_of(memory->dst, all);
	work->src_all = bytes_of(memory->src, all);
	work->block = (struct tma_transform){ .dst = &work->dst,
		                              .src = &work->src,
		                              .perm = row->swapped ? swapped : NULL };
	work->all = (struct tma_transform){ .dst = &work->dst_all, .src = &work->src_all };
	work->blocks = (struct tma_blocks){ .transform = &work->block,
		                            .count = row->n,
		                            .index_dtype = TMA_INT32,
		                            .index = work->index,
		                            .limit = row->n * SPREAD };
}

/* Returns where a word of a destination's block lies in the source's block. */
static size_t source_word(const struct row *row, size_t word)
{
	const size_t run = word / 32, rest = word % 32; /* runs of 128 elements */

	return row->swapped ? (run % 16 * 8 + run / 16) * 32 + rest : word;
}

static void check(struct work *work)
{
	const struct row *row = &work->row;
	const size_t words = row->bytes / 8;
	const uint64_t *made = tma_region_data(work->memory->host);

	must(work->memory->client, tma_gather(work->memory->client, &work->blocks));
	copy_all(work->memory, work->memory->host, work->memory->dst);
	for (size_t i = 0; i < row->n; i++)
		for (size_t w = 0; w < words; w++)
			if (made[i * words + w] !=
			    word_at((size_t)work->index[i] * words + source_word(row, w)))
				die("a block is wrong");
}

enum way { GATHER, COPY, WAYS };

static void submit(struct work *work, enum way way, tma_ticket *ret)
{
	tma_client *client = work->memory->client;

	must(client, way == GATHER ? tma_submit_gather(client, &work->blocks, ret)
	                           : tma_submit(client, &work->all, ret));
}

/* Carries out n requests and returns the microseconds of all. *ret is the result of the last one. */
static double run_many(struct work *work, enum way way, int n, struct tma_result *ret)
{
	tma_client *client = work->memory->client;
	const double start = now_us();
	tma_ticket tickets[DEPTH];

	for (int i = 0; i < n; i++)
		submit(work, way, &tickets[i]);
	for (int i = 0; i < n; i++)
		must(client, tma_wait(client, tickets[i], ret));
	return now_us() - start;
}

static void time_row(struct work *work)
{
	double one[WAYS][RUNS], engine[WAYS][RUNS], many[WAYS][TURNS], m[3][WAYS];
	const struct row *row = &work->row;
	struct tma_result result;
	char path[sizeof result.path] = "";

	for (int run = -WARM_UP; run < work->runs; run++)
		for (int way = 0; way < WAYS; way++) {
			const double us = run_many(work, (enum way)way, 1, &result);

			if (run >= 0) {
				one[way][run] = us;
				engine[way][run] = (double)result.ns / 1e3;
			}
			if (way == GATHER)
				memcpy(path, result.path, sizeof path);
		}
	for (int turn = 0; turn < work->turns; turn++)
		for (int way = 0; way < WAYS; way++)
			many[way][turn] = run_many(work, (enum way)way, DEPTH, &result) / DEPTH;
	for (int way = 0; way < WAYS; way++) {
		m[0][way] = median(one[way], (size_t)work->runs);
		m[1][way] = median(engine[way], (size_t)work->runs);
		m[2][way] = median(many[way], (size_t)work->turns);
	}
	printf("| gather%s | %u x %u KiB | %s |", row->swapped ? ", heads swapped" : "", row->n,
	       row->bytes >> 10, path);
	for (int i = 0; i < 3; i++)
		printf(" %.1f | %.2f |", m[i][GATHER], m[i][COPY] / m[i][GATHER]);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct work work;
	const uint32_t one_in = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	const int runs = one_in > 1 ? 1 : RUNS, turns = one_in > 1 ? 1 : TURNS;
	tma_client *client = tma_new();
	struct memory memory;
	size_t most = 0;

	if (argc < 2 || argc > 3 || one_in < 1 || one_in > 64 || !client)
		die("bench_lists SOCKET [ONE-IN]");
	must(client, tma_connect(client, argv[1]));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const size_t own = (size_t)rows[i].n / one_in * SPREAD * rows[i].bytes;

		most = own > most ? own : most;
	}
	memory_init(&memory, client, most);
	printf(
	    "medians of %d one at a time, of the client's clock and of the engine's, and of %d turns of %d under way;\n"
	    "microseconds, and how many times as long a copy of as many bytes takes\n\n"
	    "| what | blocks | by | one | copy | its engine | copy | one of %d | copy |\n"
	    "|---|---|---|---|---|---|---|---|---|\n",
	    runs, turns, DEPTH, DEPTH);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct row row = rows[i];

		row.n /= one_in;
		work.runs = runs;
		work.turns = turns;
		prepare(&work, &memory, &row);
		check(&work);
		time_row(&work);
	}
	tma_free(client);
	return 0;
}
