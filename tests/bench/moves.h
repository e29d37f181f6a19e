/* SPDX-License-Identifier: Apache-2.0 */
/* Many small moves through a running service, each row with what it is compared with: what the parts of
 * bench_moves have in common.
 *
 * In each run the two sides of a row take turns, so that a ratio compares two measurements made under the
 * same conditions. An error that prevents the program from continuing ends it with status 1.
 */
#ifndef TESTS_BENCH_MOVES_H
#define TESTS_BENCH_MOVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tmaclient.h"

#define MOVES_RUNS   9
#define MOVES_POISON 0xA5 /* fills destinations before something is moved to them */

struct moves {
	tma_client *client;
	unsigned threads; /* threads of the service's engine, and of memcpy */
	bool quick;       /* a little of everything, to try the program itself */
};

struct moves_row {
	const char *what;
	const char *against;
	const char *unit; /* unit of both figures */
	double bar;       /* 0: no bar, the row is for information */
	bool at_most;     /* the bar is the largest acceptable ratio; else the least */
	double base[MOVES_RUNS];
	double ours[MOVES_RUNS];
};

/* Prints a line of JSON. */
void moves_print(const struct moves_row *row);

_Noreturn void moves_fatal(const char *what);
/* Ends the program with the client's error unless status is 0. */
void moves_must(tma_client *client, int status);
double moves_now_us(void);

/* Makes memory that both sides map, filled with random bytes or with poison. */
tma_region *moves_region(const struct moves *moves, size_t size, bool random);

/* Measures lists of blocks, compared with memcpy and with a request for each block. */
void moves_blocks(const struct moves *moves);

/* Measures runs of a plan of 4 KiB: pipelined, compared with pings, and through a submission ring, compared
 * with the socket. */
void moves_rates(const struct moves *moves);
void moves_ring(const struct moves *moves);

#endif
