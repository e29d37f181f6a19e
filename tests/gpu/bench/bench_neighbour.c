/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the service as a neighbour: what requests do to each other (neighbour_pair.c), and what they and a
 * process that computes on the same device do to each other (neighbour_rows.c).
 *
 *    bench_neighbour [--tiny] [--keep-free N] [--compute PROGRAM] SOCKET
 *
 *    --tiny         does as little of everything as possible, for trials; the names of rows stay the same
 *    --keep-free    under MPS, the multiprocessors that the compute process leaves free (0: it may use all)
 *    --compute      the compute program; by default the one in this program's directory
 *
 * A ratio compares two measurements of the same run.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute_page.h"
#include "neighbour.h"
#include "transpose.h"

static const struct scale full = {
	.seconds = 0.6,
	.settle_s = 0.1,
	.idle_s = 2,
	.warm_up = 32,
	.samples = 5000,
	.squares = { 4096, 8192, 16384, 32768 },
	.back_to_back = 4e11,
	.long_side = 23168,
	.call_side = 128,
	.short_side = 512,
	.device_side = 8192,
	.host_side = 16384,
	.blocks = 8192,
	.block_bytes = 16 << 10,
};

static const struct scale tiny = {
	.seconds = 0.02,
	.settle_s = 0.001,
	.idle_s = 0.05,
	.warm_up = 2,
	.samples = 20,
	.squares = { 32, 64, 96, 128 },
	.back_to_back = 1e5,
	.long_side = 128,
	.call_side = 32,
	.short_side = 64,
	.device_side = 128,
	.host_side = 256,
	.blocks = 64,
	.block_bytes = 1 << 10,
};

static int usage(void)
{
	fprintf(stderr, "bench_neighbour [--tiny] [--keep-free N] [--compute PROGRAM] SOCKET\n");
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

static void run(struct bench *bench, const char *program, unsigned keep_free)
{
	const unsigned part = percentage(bench->rig.device.processors, keep_free);
	const struct compute_page *page;

	printf("%s, %u multiprocessors\n", bench->rig.device.name, bench->rig.device.processors);
	pairs_run(bench);
	idle_wait_run(bench);
	neighbour_start(&bench->neighbour, program, part, bench->scale == &tiny);
	page = bench->neighbour.page;
	printf("the compute: %u multiprocessors (%u %% asked for), %.0f us a launch, %.3g TFLOP/s alone\n",
	       page->multiprocessors, part ? part : 100, page->launch_us,
	       page->launch_flop / page->launch_us / 1e6);
	rows_run(bench);
	neighbour_stop(&bench->neighbour);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "tiny", no_argument, NULL, 't' },
		                                 { "keep-free", required_argument, NULL, 'k' },
		                                 { "compute", required_argument, NULL, 'c' },
		                                 { 0 } };
	static struct bench bench = { .scale = &full };
	const char *program = beside_this("compute");
	unsigned keep_free = 0;
	struct error err;

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
	bench.socket = argv[optind];
	bench.client = tma_new();
	if (!bench.client)
		rig_die("out of memory");
	if (!rig_open(&bench.rig, NULL, &err))
		rig_die("bench_neighbour: %s", err.message);
	must(bench.client, tma_connect(bench.client, bench.socket));
	run(&bench, program, keep_free);
	tma_free(bench.client);
	rig_close(&bench.rig);
	return 0;
}
