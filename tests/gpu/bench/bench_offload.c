/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a service that copies blocks of many layers, scattered on the device, to one piece of shared host
 * memory and back: alone, and beside a process that computes.
 *
 *    bench_offload [--tiny] [--keep-free N] [--compute PROGRAM] SOCKET
 *
 * A list of blocks is one request. It is compared with two requests, a gather into a device buffer and one
 * copy of that buffer, or the reverse, which a program without lists between device and host would send; and
 * with that copy alone, which is as fast as the bus. GB/s count bytes that arrive, with one request after
 * another. The share that the compute process keeps is its rate beside a way divided by its rate while the
 * service is idle. Each row's blocks are checked once.
 */
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tmaclient.h"
#include "compute_page.h"
#include "figures.h"
#include "neighbour_compute.h"
#include "tests/gpu/rig.h"

#define MOST_INLINE 8192 /* most entries that fit into a request */
#define SPREAD      2    /* blocks in the pool for each block that is picked */
#define WARM_UP     2

struct scale {
	size_t bytes;     /* most bytes of a row */
	size_t entries;   /* most entries of a row */
	double alone_s;   /* seconds for which each way is measured alone */
	double beside_s;  /* seconds for which each way is measured beside the compute process */
	double idle_s;    /* seconds for which the compute process is measured by itself */
	double settle_us; /* pause before that */
};

static const struct scale full = { 768u << 20, 524288, 0.1, 0.25, 0.1, 50e3 };
static const struct scale tiny = { 12u << 20, 64, 0.001, 0.001, 0.001, 1e3 };

static const uint32_t block_bytes[] = { 512, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 128 << 10 };
static const uint32_t layer_counts[] = { 1, 32, 96 };

enum way { LIST, TWO, COPY, WAYS };

static struct bench {
	const struct scale *scale;
	tma_client *client;
	tma_region *pool, *buffer; /* device memory */
	tma_region *host, *index;  /* shared host memory */
	struct neighbour neighbour;
} bench;

static void must(int r)
{
	if (r < 0)
		rig_die("bench_offload: %s", tma_last_error(bench.client));
}

/* ---- Memory -------------------------------------------------------------------------------------------- */

static struct tma_tensor bytes_at(tma_region *region, uint64_t offset, uint64_t n)
{
	return (struct tma_tensor){
		.region = region, .offset = offset, .dtype = TMA_UINT8, .rank = 1, .shape = { (int64_t)n }
	};
}

static void copy_bytes(tma_region *to, uint64_t to_offset, tma_region *from, uint64_t n)
{
	const struct tma_tensor dst = bytes_at(to, to_offset, n), src = bytes_at(from, 0, n);

	must(tma_copy(bench.client, &dst, &src));
}

static uint64_t word_at(size_t i)
{
	return i * 0x9e3779b97f4a7c15;
}

/* The pool holds the host's words SPREAD times, one after the other. */
static void memory_init(void)
{
	const size_t size = bench.scale->bytes;
	uint64_t *words;

	must(tma_region_create(bench.client, SPREAD * size, &bench.pool));
	must(tma_region_create(bench.client, size, &bench.buffer));
	must(tma_region_create_kind(bench.client, TMA_REGION_MEMFD, size, &bench.host));
	must(tma_region_create_kind(bench.client, TMA_REGION_MEMFD,
	                            SPREAD * bench.scale->entries * sizeof(int32_t), &bench.index));
	words = tma_region_data(bench.host);
	for (size_t i = 0; i < size / 8; i++)
		words[i] = word_at(i);
	for (uint64_t i = 0; i < SPREAD; i++)
		copy_bytes(bench.pool, i * size, bench.host, size);
}

/* ---- A row --------------------------------------------------------------------------------------------- */

struct row {
	bool out;
	uint32_t bytes, layers, n;
	size_t all; /* bytes that arrive */
	struct tma_tensor pool, host, buffer, all_host, all_buffer;
	struct tma_transform to_host, to_buffer, copy;
	struct tma_blocks list, staged;
};

static void shuffle(int32_t *index, uint32_t n)
{
	uint64_t state = 11;

	for (uint32_t i = 0; i < n; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		const uint32_t at = (uint32_t)((state >> 33) % (i + 1));

		index[i] = index[at];
		index[at] = (int32_t)i;
	}
}

/* Prepares a list between the pool and a side whose blocks follow each other. */
static void list_init(struct row *row, struct tma_blocks *list, struct tma_transform *block,
                      const struct tma_tensor *packed)
{
	const uint64_t pool_step = (uint64_t)row->n * SPREAD * row->bytes,
		       packed_step = (uint64_t)row->n * row->bytes;

	*block = (struct tma_transform){ .dst = row->out ? packed : &row->pool,
		                         .src = row->out ? &row->pool : packed };
	*list = (struct tma_blocks){ .transform = block,
		                     .count = row->n,
		                     .index_dtype = TMA_INT32,
		                     .limit = (uint64_t)row->n * SPREAD,
		                     .layers = row->layers,
		                     .dst_layer_step = row->out ? packed_step : pool_step,
		                     .src_layer_step = row->out ? pool_step : packed_step };
	if (row->n <= MOST_INLINE)
		list->index = tma_region_data(bench.index);
	else
		list->index_at.region = bench.index;
}

static void row_init(struct row *row, bool out, uint32_t bytes, uint32_t layers)
{
	const size_t n = bench.scale->bytes / layers / bytes;

	row->out = out;
	row->bytes = bytes;
	row->layers = layers;
	row->n = (uint32_t)(n < bench.scale->entries ? n : bench.scale->entries);
	row->all = (size_t)row->n * layers * bytes;
	row->pool = bytes_at(bench.pool, 0, bytes);
	row->host = bytes_at(bench.host, 0, bytes);
	row->buffer = bytes_at(bench.buffer, 0, bytes);
	row->all_host = bytes_at(bench.host, 0, row->all);
	row->all_buffer = bytes_at(bench.buffer, 0, row->all);
	row->copy = (struct tma_transform){ .dst = out ? &row->all_host : &row->all_buffer,
		                            .src = out ? &row->all_buffer : &row->all_host };
	shuffle(tma_region_data(bench.index), row->n * SPREAD);
	list_init(row, &row->list, &row->to_host, &row->host);
	list_init(row, &row->staged, &row->to_buffer, &row->buffer);
}

static void submit_list(const struct row *row, const struct tma_blocks *list, tma_ticket *ret)
{
	must(row->out ? tma_submit_gather(bench.client, list, ret)
	              : tma_submit_scatter(bench.client, list, ret));
}

static void run(const struct row *row, enum way way)
{
	tma_ticket tickets[2];
	int n = 0;

	if (way == LIST)
		submit_list(row, &row->list, &tickets[n++]);
	if (way == TWO && row->out)
		submit_list(row, &row->staged, &tickets[n++]);
	if (way != LIST)
		must(tma_submit(bench.client, &row->copy, &tickets[n++]));
	if (way == TWO && !row->out)
		submit_list(row, &row->staged, &tickets[n++]);
	for (int i = 0; i < n; i++)
		must(tma_wait(bench.client, tickets[i], NULL));
}

/* ---- Checks -------------------------------------------------------------------------------------------- */

static void check_word(uint64_t is, uint64_t has_to_be)
{
	if (is != has_to_be)
		rig_die("bench_offload: a block is wrong");
}

/* Checks the first and the last word of each block copied out of the pool. */
static void check_out(const struct row *row)
{
	const int32_t *index = tma_region_data(bench.index);
	const uint64_t *made = tma_region_data(bench.host);
	const size_t words = row->bytes / 8, pool_words = bench.scale->bytes / 8;

	memset(tma_region_data(bench.host), 0, row->all);
	run(row, LIST);
	for (size_t l = 0; l < row->layers; l++)
		for (size_t i = 0; i < row->n; i++) {
			const uint64_t *block = made + (l * row->n + i) * words;
			const size_t from = (l * row->n * SPREAD + (size_t)index[i]) * words;

			check_word(block[0], word_at(from % pool_words));
			check_word(block[words - 1], word_at((from + words - 1) % pool_words));
		}
}

/* Checks blocks copied into the pool by copying them out again: the first and the last word of each. */
static void check_in(const struct row *row)
{
	const size_t words = row->bytes / 8, blocks = (size_t)row->layers * row->n;
	uint64_t *made = tma_region_data(bench.host);
	struct row back;

	for (size_t i = 0; i < blocks; i++)
		made[i * words] = made[(i + 1) * words - 1] = ~word_at(i);
	run(row, LIST);
	memset(made, 0, row->all);
	row_init(&back, true, row->bytes, row->layers);
	run(&back, LIST);
	for (size_t i = 0; i < blocks; i++) {
		check_word(made[i * words], ~word_at(i));
		check_word(made[(i + 1) * words - 1], ~word_at(i));
	}
}

/* ---- Times --------------------------------------------------------------------------------------------- */

struct figure {
	double rate; /* GB/s */
	double kept; /* fraction of the compute's rate that is kept */
};

static double rate_of(const struct row *row, enum way way, double seconds)
{
	const double start = now_us();
	double us;
	int n = 0;

	do {
		run(row, way);
		n++;
		us = now_us() - start;
	} while (us < seconds * 1e6);
	return (double)row->all * n / us / 1e3;
}

static void measure_alone(const struct row *row, struct figure figures[WAYS])
{
	for (int way = 0; way < WAYS; way++) {
		for (int i = 0; i < WARM_UP; i++)
			run(row, (enum way)way);
		figures[way].rate = rate_of(row, (enum way)way, bench.scale->alone_s);
	}
}

static void measure_beside(const struct row *row, struct figure figures[WAYS])
{
	struct neighbour *neighbour = &bench.neighbour;

	neighbour_go(neighbour);
	nap_us(bench.scale->settle_us);
	for (int way = 0; way < WAYS; way++) {
		const struct progress before = neighbour_progress(neighbour);
		const struct progress between =
		    neighbour_progress_since(neighbour, &before, bench.scale->idle_s);

		figures[way].rate = rate_of(row, (enum way)way, bench.scale->beside_s);
		const struct progress after = neighbour_progress_since(neighbour, &between, 0);

		figures[way].kept = progress_tflops(neighbour, &between, &after) /
		                    progress_tflops(neighbour, &before, &between);
	}
	neighbour_pause(neighbour);
}

static void row_run(bool out, uint32_t bytes, uint32_t layers)
{
	struct figure alone[WAYS], beside[WAYS];
	struct row row;

	row_init(&row, out, bytes, layers);
	if (out)
		check_out(&row);
	else
		check_in(&row);
	row_init(&row, out, bytes, layers);
	measure_alone(&row, alone);
	measure_beside(&row, beside);
	printf("| %s | %u x %u x %.3g KiB |", out ? "out" : "in", layers, row.n, bytes / 1024.0);
	printf(" %.1f | %.2f | %.2f |", alone[LIST].rate, alone[LIST].rate / alone[TWO].rate,
	       alone[LIST].rate / alone[COPY].rate);
	printf(" %.1f | %.2f | %.2f | %.3f | %.3f | %.3f |\n", beside[LIST].rate,
	       beside[LIST].rate / beside[TWO].rate, beside[LIST].rate / beside[COPY].rate, beside[LIST].kept,
	       beside[TWO].kept, beside[COPY].kept);
	fflush(stdout);
}

static void rows_run(void)
{
	const size_t sizes = sizeof block_bytes / sizeof *block_bytes;
	const size_t layers = sizeof layer_counts / sizeof *layer_counts;

	printf("GB/s of a list, and as many times as fast as two requests, and as a copy; what the compute "
	       "keeps beside each\n\n"
	       "| | layers x blocks | alone | two | copy | beside | two | copy | keeps | two | copy |\n"
	       "|---|---|---|---|---|---|---|---|---|---|---|\n");
	/* The copies into the pool come last: they change its contents, on which check_out relies. */
	for (int in = 0; in < 2; in++)
		for (size_t l = 0; l < layers; l++)
			for (size_t i = 0; i < sizes; i++)
				row_run(!in, block_bytes[i], layer_counts[l]);
}

/* ---- The program --------------------------------------------------------------------------------------- */

static int usage(void)
{
	fprintf(stderr, "bench_offload [--tiny] [--keep-free N] [--compute PROGRAM] SOCKET\n");
	return 2;
}

/* Returns the path of the program of that name in this program's directory. */
static const char *beside_this(const char *name)
{
	static char path[PATH_MAX];
	const ssize_t n = readlink("/proc/self/exe", path, sizeof path - strlen(name) - 1);
	char *slash;

	path[n < 0 ? 0 : n] = 0;
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, name);
	return path;
}

static unsigned percentage(uint32_t multiprocessors, unsigned keep_free)
{
	return keep_free > 0 && keep_free < multiprocessors
	           ? (multiprocessors - keep_free) * 100 / multiprocessors
	           : 0;
}

static void bench_run(const char *socket, const char *program, unsigned keep_free)
{
	struct rig rig;
	struct error err;

	if (!rig_open(&rig, NULL, &err))
		rig_die("bench_offload: %s", err.message);
	must(tma_connect(bench.client, socket));
	memory_init();
	neighbour_start(&bench.neighbour, program, percentage(rig.device.processors, keep_free),
	                bench.scale == &tiny);
	printf("%s, %u multiprocessors; the compute has %u\n", rig.device.name, rig.device.processors,
	       bench.neighbour.page->multiprocessors);
	rows_run();
	neighbour_stop(&bench.neighbour);
	tma_free(bench.client);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "tiny", no_argument, NULL, 't' },
		                                 { "keep-free", required_argument, NULL, 'k' },
		                                 { "compute", required_argument, NULL, 'c' },
		                                 { 0 } };
	const char *program = beside_this("compute");
	unsigned keep_free = 0;

	bench.scale = &full;
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (option == 't')
			bench.scale = &tiny;
		else if (option == 'k')
			keep_free = (unsigned)atoi(optarg);
		else if (option == 'c')
			program = optarg;
		else
			return usage();
	}
	if (optind != argc - 1)
		return usage();
	bench.client = tma_new();
	if (!bench.client)
		rig_die("out of memory");
	bench_run(argv[optind], program, keep_free);
	return 0;
}
