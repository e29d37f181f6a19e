/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the draws of a seed on a GPU or its stand-in, and collects the results. */
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

/* Zeroed except for the first members. It has no pointers, since it is shared with the process that asked for
 * the run. */
struct results {
	uint64_t number; /* number of the next draw */
	uint64_t count;
	uint64_t end_ns; /* by the monotonic clock; no draw begins after it */
	int beyond;      /* index of the next row of beyond_rows */
	struct feature_tally tally[FEATURE_COUNT];
	struct judge judge;
	struct margins margins;
	struct cluster_tally cluster[CONFORMANCE_CLUSTER_WAYS];
	uint64_t replaced;           /* maps whose address was patched in */
	uint64_t replaced_otherwise; /* patched maps that differ from a freshly encoded one */
	uint64_t huge;               /* draws that were checked but not moved */
	uint64_t before;             /* tiles that start before 0, where no store can */
	uint64_t unstored;           /* tiles with overlapping bytes, or that the model cannot store */
	uint64_t lost;               /* draws that ended their context */
	uint64_t wrong;              /* loads and stores with wrong results */
	char shown[SHOWN_IN_FULL][2048];
	uint64_t strays; /* runs after which memory had changed that no store was to change */
};

/* Adds the draws from results->number to count - 1 to the results; number is then one past the last draw that
 * was begun. The driver must not have been opened in this process. Returns UNSUPPORTED if there is no driver
 * or no device. Any other error has ended the context, and the remaining draws need another process. */
int conformance_run(uint64_t seed, struct results *results, struct error *err);

/* Does the same for the rows of conformance_beyond.h from results->beyond on, and prints a line for each. */
int conformance_run_beyond(uint64_t seed, struct results *results, struct error *err);

#endif
