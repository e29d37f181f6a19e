/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the session target: what clients do and what else happens, step by step. */
#ifndef TESTS_FUZZ_STEPS_H
#define TESTS_FUZZ_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "descriptors.h"

enum step_kind {
	STEP_SEND, /* sends bytes with descriptors, after connecting if necessary */
	STEP_READ,
	STEP_SHUT, /* shuts down sending, receiving or both */
	STEP_CLOSE,
	STEP_WORK, /* completes the oldest item that waits for libuv's threads */
	STEP_JOB,  /* runs the oldest waiting job */
	STEP_TIME, /* lets time pass */
	STEP_DRAIN,
	STEP_KIND_COUNT
};

#define STEPS_MOST       64
#define STEP_CONNECTIONS 4
#define STEP_MOST_FDS    8

struct step {
	uint8_t kind;       /* enum step_kind */
	uint8_t connection; /* modulo STEP_CONNECTIONS */
	uint8_t how;        /* for STEP_SHUT and STEP_TIME */
	uint8_t n_fds;
	uint8_t fds[STEP_MOST_FDS]; /* enum descriptor */
	uint16_t len;
	const uint8_t *data; /* borrowed from the input */
};

struct steps {
	uint8_t held; /* bit 0: work waits for STEP_WORK; bit 1: jobs wait for STEP_JOB */
	size_t n;
	struct step step[STEPS_MOST];
};

/* Decodes steps; any bytes are valid, and an incomplete rest is dropped. */
void steps_read(struct steps *ret, const uint8_t *data, size_t size);

/* The mutator: adds, removes and moves steps, and spoils messages. */
size_t steps_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#endif
