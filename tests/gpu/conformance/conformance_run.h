/* SPDX-License-Identifier: Apache-2.0 */
/* The draws of a seed on a GPU, or on what stands in for one, and what came of them. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_RUN_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_RUN_H

#include <stdint.h>

#include "conformance_cluster.h"
#include "conformance_features.h"
#include "conformance_judge.h"
#include "conformance_margins.h"
#include "proto/status.h"

#define SHOWN_IN_FULL 3
#define LOST_SHOWN    20

/* Zeroed but for what comes first. No pointers: it is shared with the process that asked for the run. */
struct results {
	uint64_t number; /* of the next draw */
	uint64_t count;
	uint64_t end_ns; /* by the monotonic clock: no draw begins after it */
	int beyond;      /* the next row of beyond_rows */
	struct feature_tally tally[FEATURE_COUNT];
	struct judge judge;
	struct margins margins;
	struct cluster_tally cluster[CONFORMANCE_CLUSTER_WAYS];
	uint64_t replaced;           /* maps whose address was patched in */
	uint64_t replaced_otherwise; /* of them: not the bytes of a fresh one */
	uint64_t huge;               /* draws that were judged and not moved */
	uint64_t before;             /* tiles that no store can start from */
	uint64_t unstored;           /* tiles that meet themselves, or are none of the model's */
	uint64_t lost;               /* draws that were the end of their context */
	uint64_t wrong;              /* loads and stores */
	char shown[SHOWN_IN_FULL][2048];
	uint64_t strays; /* runs after which memory was changed that no store was to change */
};

/* Draws number to count - 1, added to the results; number is then past the last that was begun. The driver
 * must not have been opened in this process. UNSUPPORTED: there is no driver or no device. Else an error is
 * the end of the context: the draws that are left need another process. */
int conformance_run(uint64_t seed, struct results *results, struct error *err);

/* The rows of conformance_beyond.h from results->beyond on, a printed line each; the same otherwise. */
int conformance_run_beyond(uint64_t seed, struct results *results, struct error *err);

#endif
