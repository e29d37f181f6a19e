/* SPDX-License-Identifier: Apache-2.0 */
/* A padded transform, what it reads and what its destination is to be; what moves it by a way of its own is
 * tried against that. Failures are Criterion's.
 */
#ifndef TESTS_UNIT_CPU_PADDED_H
#define TESTS_UNIT_CPU_PADDED_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/move/move.h"
#include "kernels/transform/transform.h"

/* Of a row of a table. */
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
	uint8_t *expected; /* in dst, gaps included */
	size_t dst_size;
};

/* The request must outlive *ret. */
void padded_init(struct padded *ret, const struct padded_request *request);
void padded_deinit(struct padded *padded);

/* Writes all of the destination that place names, which has a stream and no size yet of its pieces. */
typedef void padded_run_fn(const struct padded *padded, const struct cpu_isa *isa, struct move_place *place,
                           struct cpu_scratch *scratch, const void *arg);

/* By each instruction set, to two destinations that lie differently in cache lines: run writes what is
 * expected and nothing else. */
void padded_try(const struct padded *padded, padded_run_fn *run, const void *arg);

#endif
