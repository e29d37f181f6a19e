/* SPDX-License-Identifier: Apache-2.0 */
/* A padded transform with its source and the destination that is expected, for tests of one method to move
 * it. Failures are Criterion's. */
#ifndef TESTS_UNIT_CPU_PADDED_H
#define TESTS_UNIT_CPU_PADDED_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/move/move.h"
#include "kernels/transform/transform.h"

/* A transform as rows of tests write it. */
struct padded_request {
	char name[40];
	enum dtype dtype;
	enum pad_mode mode;
	int rank;
	int64_t shape[4], perm[4], before[4], after[4];
	int64_t dst_gap;    /* elements after each row of dst */
	int64_t src_gap[4]; /* elements after each index of a dimension of src */
};

struct padded {
	const char *name;
	struct transform transform;
	uint8_t *src;
	uint8_t *expected; /* bytes of dst, gaps included */
	size_t dst_size;
};

/* The request must outlive *ret. */
void padded_init(struct padded *ret, const struct padded_request *request);
void padded_deinit(struct padded *padded);

/* Writes the whole destination at place. `place` says whether to stream, but has no piece size yet. */
typedef void padded_run_fn(const struct padded *padded, const struct cpu_isa *isa, struct move_place *place,
                           struct cpu_scratch *scratch, const void *arg);

/* Calls run with each instruction set and two destinations at different offsets in a cache line. Fails unless
 * it writes what is expected and nothing else. */
void padded_try(const struct padded *padded, padded_run_fn *run, const void *arg);

#endif
