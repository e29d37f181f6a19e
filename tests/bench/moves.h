/* SPDX-License-Identifier: Apache-2.0 */
/* Many small moves through a running service, each row next to what it is held against: what the parts of
 * bench_moves have in common.
 *
 * In each run the two sides of a row take turns, so that a ratio is of two measurements that met the same
 * machine. What cannot go on ends the program with 1.
 */
#ifndef TESTS_BENCH_MOVES_H
#define TESTS_BENCH_MOVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tmaclient.h"

#define MOVES_RUNS   9
#define MOVES_POISON 0xA5 /* of destinations before something is moved to them */

struct moves {
	tma_client *client;
	unsigned threads; /* of the service's engine, and of memcpy */
	bool quick;       /* little of everything, to try the program */
};

struct moves_row {
	const char *what;
	const char *against;
	const char *unit; /* of both figures */
	double bar;       /* 0: none, the row is there for information */
	bool at_most;     /* the bar is the largest ratio that is allowed; else the least */
	double base[MOVES_RUNS];
	double ours[MOVES_RUNS];
};

/* A line of JSON. */
void moves_print(const struct moves_row *row);

_Noreturn void moves_fatal(const char *what);
void moves_must(tma_client *client, int status); /* 0, or fatal with the client's sentence */
double moves_now_us(void);

/* Memory that both sides map, of random bytes or of poison. */
tma_region *moves_region(const struct moves *moves, size_t size, bool random);

/* Rows of lists of blocks against memcpy and against requests of a block each. */
void moves_blocks(const struct moves *moves);

/* Rows of runs of a plan of 4 KiB: pipelined against pings, and by a submission ring against the socket. */
void moves_rates(const struct moves *moves);
void moves_ring(const struct moves *moves);

#endif
