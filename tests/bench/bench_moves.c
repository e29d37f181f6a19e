/* SPDX-License-Identifier: Apache-2.0 */
/* Measures lists of blocks, batches, runs of plans or the submission ring as a client of the service sees
 * them, and prints a line of JSON for each row. moves.py starts the service and makes the table.
 *
 *    bench_moves SOCKET THREADS PART [quick]    THREADS is the number of threads of the service's engine.
 *
 * Every row's bytes are checked; a wrong one ends the program with 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moves.h"

_Noreturn void moves_fatal(const char *what)
{
	fprintf(stderr, "bench_moves: %s\n", what);
	exit(1);
}

void moves_must(tma_client *client, int status)
{
	if (status < 0)
		moves_fatal(tma_last_error(client));
}

double moves_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void fill_random(uint64_t *words, size_t n)
{
	uint64_t state = 0x9E3779B97F4A7C15;

	for (size_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = state;
	}
}

tma_region *moves_region(const struct moves *moves, size_t size, bool random)
{
	tma_region *region;

	moves_must(moves->client, tma_region_create_kind(moves->client, TMA_REGION_MEMFD, size, &region));
	if (random)
		fill_random(tma_region_data(region), size / sizeof(uint64_t));
	else
		memset(tma_region_data(region), MOVES_POISON, size);
	return region;
}

static void print_values(const char *name, const double *values)
{
	printf(", \"%s\": [", name);
	for (int i = 0; i < MOVES_RUNS; i++)
		printf("%s%.4f", i ? ", " : "", values[i]);
	printf("]");
}

void moves_print(const struct moves_row *row)
{
	printf("{\"what\": \"%s\", \"against\": \"%s\", \"unit\": \"%s\", \"bar\": %.6f, \"at_most\": %s",
	       row->what, row->against, row->unit, row->bar, row->at_most ? "true" : "false");
	print_values("base", row->base);
	print_values("ours", row->ours);
	puts("}");
	fflush(stdout);
}

static const struct {
	const char *name;
	void (*measure)(const struct moves *moves);
} parts[] = { { "blocks", moves_blocks }, { "rates", moves_rates }, { "ring", moves_ring } };

#define PARTS (sizeof(parts) / sizeof(parts[0]))

int main(int argc, char **argv)
{
	struct moves moves = { .quick = argc == 5 && strcmp(argv[4], "quick") == 0 };
	int threads = argc > 3 ? atoi(argv[2]) : 0;
	size_t part = 0;

	while (threads > 0 && part < PARTS && strcmp(argv[3], parts[part].name) != 0)
		part++;
	if (threads < 1 || part == PARTS || argc > 5 || (argc == 5 && !moves.quick))
		moves_fatal("bench_moves SOCKET THREADS blocks|rates|ring [quick]");
	moves.threads = (unsigned)threads;
	moves.client = tma_new();
	if (!moves.client)
		moves_fatal("no memory");
	moves_must(moves.client, tma_connect(moves.client, argv[1]));
	parts[part].measure(&moves);
	tma_free(moves.client);
	return 0;
}
