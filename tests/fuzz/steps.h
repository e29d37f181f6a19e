/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the session target: what clients do and what else happens, step by step. */
#ifndef TESTS_FUZZ_STEPS_H
#define TESTS_FUZZ_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "descriptors.h"

enum step_kind {
	STEP_SEND, /* bytes with descriptors; connects where that has not been done */
	STEP_READ,
	STEP_SHUT, /* sending, receiving or both */
	STEP_CLOSE,
	STEP_WORK, /* what waits for libuv's threads longest is done */
	STEP_JOB,  /* the job that waits longest runs */
	STEP_TIME, /* passes */
	STEP_DRAIN,
	STEP_KIND_COUNT
};

#define STEPS_MOST       64
#define STEP_CONNECTIONS 4
#define STEP_MOST_FDS    8

struct step {
	uint8_t kind;       /* enum step_kind */
	uint8_t connection; /* modulo STEP_CONNECTIONS */
	uint8_t how;        /* STEP_SHUT, STEP_TIME */
	uint8_t n_fds;
	uint8_t fds[STEP_MOST_FDS]; /* enum descriptor */
	uint16_t len;
	const uint8_t *data; /* borrowed */
};

struct steps {
	uint8_t held; /* bits: 1, work waits for its step; 2, jobs do */
	size_t n;
	struct step step[STEPS_MOST];
};

/* Any bytes are steps; what is left over is dropped. */
void steps_read(struct steps *ret, const uint8_t *data, size_t size);

/* The mutator: steps more, less, elsewhere, and messages spoilt. */
size_t steps_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#endif
