/* SPDX-License-Identifier: Apache-2.0 */
/* An engine tells this about its plans: the family, which every reply carries, and all that `explain` prints.
 * It is plain data, which crosses between processes. */
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

/* Dimensions are outermost first, strides in bytes. */
struct engine_explanation {
	enum family family;
	char swizzle[16]; /* of the tile in shared memory, or "none" */
	char method[16];  /* how the CPU engine moves the interior; "": chosen when it is moved */
	int64_t grid;     /* pieces that can run side by side at most */
	uint64_t bytes;   /* read plus written */
	uint64_t n_subregions;
	uint64_t predicted_ns;    /* 0: not predicted */
	double copy_fixed_ns;     /* fixed time of the device's own copy */
	double copy_bytes_per_ns; /* rate of that copy, by bytes read plus written; 0: unknown */
	double predicted;         /* time relative to a copy of as many bytes; 0: not predicted */

	/* The interior is given in canonical form. */
	uint32_t element; /* bytes, after widening */
	int rank;
	int64_t shape[PLAN_TILE_RANK];
	int64_t dst[PLAN_TILE_RANK];
	int64_t src[PLAN_TILE_RANK];

	struct {
		int rank;                  /* 0: it does not move in tiles */
		int64_t n[PLAN_TILE_RANK]; /* elements */
		int64_t dst[PLAN_TILE_RANK];
		int64_t src[PLAN_TILE_RANK];
		uint32_t element;   /* bytes of one of the tile's elements */
		uint32_t row_bytes; /* in shared memory; 0: it is in none, or not in rows */
	} tile;

	struct family_rules rules;
};

/* How often a plan has run. */
struct engine_plan_runs {
	uint64_t n;
	uint64_t n_measured;
	uint64_t median_ns; /* of the last measured runs; 0: there are none */
};

/* explanation_answer sets the answer of explain; engine is the engine's name. The answer points into of,
 * engine and rules, which must outlive it. explanation_add_runs adds how often the plan has run. */
void explanation_answer(const struct engine_explanation *of, const char *engine, struct msg_explanation *ret,
                        struct msg_rule rules[FAMILY_MOST_RULES]);
void explanation_add_runs(struct engine_plan_runs runs, struct msg_explanation *ret);

/* Adds dimension d of the interior, in which the tile has n elements, to the tile. */
void explanation_add_tile_dim(struct engine_explanation *ret, const struct loop_nest *nest, int d, int64_t n);

/* Sets what is said of the interior. */
void explanation_set_interior(struct engine_explanation *ret, const struct loop_nest *nest);

#endif
