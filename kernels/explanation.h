/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's report about a plan: the family, which every reply carries, and everything that `explain`
 * prints. The structs are plain data, so they can be sent between processes. */
#ifndef KERNELS_EXPLANATION_H
#define KERNELS_EXPLANATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/nest/loop_nest.h"
#include "kernels/transform/transform.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "proto/tensor.h"

#define PLAN_TILE_RANK (TENSOR_MAX_RANK + 1)

/* Dimensions are outermost first, strides are in bytes. */
struct engine_explanation {
	enum family family;
	char swizzle[16]; /* swizzle of the tile in shared memory, or "none" */
	char method[16];  /* how the CPU engine moves the interior; "" if it chooses only when it moves it */
	int64_t grid;     /* maximum number of pieces that can run concurrently */
	uint64_t bytes;   /* bytes read plus written */
	uint64_t n_subregions;
	uint64_t predicted_ns;    /* predicted time in ns; 0: not predicted */
	double copy_fixed_ns;     /* fixed time of the device's own copy, in ns */
	double copy_bytes_per_ns; /* bytes read plus written per ns of that copy; 0: unknown */
	double predicted;         /* predicted time relative to a copy of as many bytes; 0: not predicted */

	/* The interior is what remains of a transform without its padding, in canonical form
	 * (loop_nest.h). */
	uint32_t element; /* bytes of an element, after small elements have been combined */
	int rank;
	int64_t shape[PLAN_TILE_RANK];
	int64_t dst[PLAN_TILE_RANK];
	int64_t src[PLAN_TILE_RANK];

	struct {
		int rank;                  /* 0: the plan does not use tiles */
		int64_t n[PLAN_TILE_RANK]; /* elements of the tile in each dimension */
		int64_t dst[PLAN_TILE_RANK];
		int64_t src[PLAN_TILE_RANK];
		uint32_t element; /* bytes of one of the tile's elements */
		/* Bytes of a row in shared memory; 0: the tile is not in shared memory, or not in rows. */
		uint32_t row_bytes;
	} tile;

	struct family_rules rules;
};

/* Number and times of a plan's runs. */
struct engine_plan_runs {
	uint64_t n;
	uint64_t n_measured;
	uint64_t median_ns; /* median time in ns of the last measured runs; 0 if there are none */
};

/* explanation_answer sets *ret to the answer to `explain`; engine is the engine's name. The answer points
 * into of, engine and rules, which must outlive it. explanation_add_runs adds the number of runs and their
 * measured time. */
void explanation_answer(const struct engine_explanation *of, const char *engine, struct msg_explanation *ret,
                        struct msg_rule rules[FAMILY_MOST_RULES]);
void explanation_add_runs(struct engine_plan_runs runs, struct msg_explanation *ret);

/* Adds dimension d of the nest as the tile's next dimension, in which the tile has n elements. */
void explanation_add_tile_dim(struct engine_explanation *ret, const struct loop_nest *nest, int d, int64_t n);

/* Sets the fields of the interior from its loop nest. */
void explanation_set_interior(struct engine_explanation *ret, const struct loop_nest *nest);

#endif
