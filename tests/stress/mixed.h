/* SPDX-License-Identifier: Apache-2.0 */
/* Random work of one connection: every method, many sizes, regions that come and go, several requests at
 * once, and requests that are wrong on purpose. Only the status of a reply is checked. To use it,
 * zero-initialize the structure, set client and state, and call mixed_step repeatedly; mixed_end releases
 * what is left. */
#ifndef TESTS_STRESS_MIXED_H
#define TESTS_STRESS_MIXED_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmaclient.h"
#include "proto/status.h"

#define MIXED_REGIONS 8

struct mixed {
	tma_client *client;
	uint64_t state; /* state of the random numbers */
	struct {
		tma_region *region; /* NULL: no region */
		bool is_read_only;
	} regions[MIXED_REGIONS];
	uint64_t calls;                  /* calls that were answered as expected */
	uint64_t transforms;             /* transforms among them */
	uint64_t provoked[STATUS_COUNT]; /* expected errors by -status - 1 */
	char why[512];                   /* after mixed_step has returned false: the unexpected answer */
};

/* Takes one random step. Returns false if the service did not answer as expected. */
bool mixed_step(struct mixed *m);

/* Releases every region. */
bool mixed_end(struct mixed *m);

#endif
