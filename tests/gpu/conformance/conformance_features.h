/* SPDX-License-Identifier: Apache-2.0 */
/* The features of draws, and how the loads and stores of draws with each feature went. A draw counts for
 * every feature that it has. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_FEATURES_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conformance_draw.h"

enum { FEATURE_COUNT = 40 };

enum feature_way { FEATURE_LOAD, FEATURE_STORE, FEATURE_WAYS };

struct feature_tally {
	uint64_t done[FEATURE_WAYS];
	uint64_t wrong[FEATURE_WAYS];
	uint64_t lost; /* draws that ended their context */
};

/* tally has FEATURE_COUNT elements. replaced: the map's address was patched in. */
void features_count(struct feature_tally *tally, const struct draw *draw, bool replaced, enum feature_way way,
                    bool right);

void features_count_lost(struct feature_tally *tally, const struct draw *draw, bool replaced);

/* Prints the features that go with errors: those with the largest share of wrong draws. */
void features_print_worst(const struct feature_tally *tally);

const char *feature_name(int feature);

#endif
