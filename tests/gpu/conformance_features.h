/* What a draw is made of, and how the loads and stores of it went. A draw counts for every feature that it
 * has. */
#ifndef TESTS_GPU_CONFORMANCE_FEATURES_H
#define TESTS_GPU_CONFORMANCE_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conformance_draw.h"

enum { FEATURE_COUNT = 42 };

enum feature_way { FEATURE_LOAD, FEATURE_STORE, FEATURE_WAYS };

struct feature_tally {
	uint64_t done[FEATURE_WAYS];
	uint64_t wrong[FEATURE_WAYS];
	uint64_t shown;
};

/* tally: FEATURE_COUNT of them. replaced: the map's address was patched in. */
void features_count(struct feature_tally *tally, const struct draw *draw, bool replaced, enum feature_way way,
                    bool right);

/* Whether the draw is to be shown, being wrong: a few are for each feature. Counts it as shown. */
bool features_want(struct feature_tally *tally, const struct draw *draw, bool replaced);

const char *feature_name(int feature);

#endif
