/* SPDX-License-Identifier: Apache-2.0 */
/* Random work of one connection: every method, many sizes, regions that come and go, several requests at
 * once, and requests that are wrong on purpose. What comes back is not compared with anything but its status.
 *
 * Zero-initialise, set client and state, then step; mixed_end releases what is left.
 */
#ifndef TESTS_STRESS_MIXED_H
#define TESTS_STRESS_MIXED_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmaclient.h"
#include "proto/status.h"

#define MIXED_REGIONS 8

struct mixed {
	tma_client *client;
	uint64_t state; /* of chance */
	struct {
		tma_region *region; /* NULL: none */
		bool is_read_only;
	} regions[MIXED_REGIONS];
	uint64_t calls;                  /* that were answered as they should be */
	uint64_t transforms;             /* of them */
	uint64_t provoked[STATUS_COUNT]; /* errors that were asked for, by -status - 1 */
	char why[512];                   /* step was false: what came instead */
};

/* One random thing. False: the service answered otherwise than it should. */
bool mixed_step(struct mixed *m);

/* Releases every region. */
bool mixed_end(struct mixed *m);

#endif
