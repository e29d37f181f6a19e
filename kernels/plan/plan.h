/* SPDX-License-Identifier: Apache-2.0 */
/* From a transform and facts about the engine to a plan. Pure, so that it is tested without hardware.
 *
 * The family names how the interior moves; borders are subregions of their own, or a little work in the tiles
 * of the interior. Every reply carries the family, and the rules say why a better one was not legal: no
 * silent fallback.
 */
#ifndef KERNELS_PLAN_PLAN_H
#define KERNELS_PLAN_PLAN_H

#include <stdint.h>

#include "loop_nest.h"
#include "predict.h"
#include "tma_plan.h"
#include "transform.h"

enum family {
	FAMILY_MEMCPY,         /* one contiguous run on both sides */
	FAMILY_TILE_COPY,      /* inner dimension contiguous on both sides: rows */
	FAMILY_TILE_TRANSPOSE, /* contiguous along different dimensions: 2-D tiles */
	FAMILY_STRIDED,        /* everything else */
	FAMILY_FILL,           /* no source is read */
	FAMILY_CONVERT,        /* elements become others */
	FAMILY_COUNT
};

extern const char *const family_names[FAMILY_COUNT];

/* How the CPU engine moves the interior (cpu_choice.h). */
enum plan_method {
	PLAN_METHOD_OPEN, /* it is small, and is chosen when it is moved; or it is for another engine */
	PLAN_METHOD_MICROKERNEL,
	PLAN_METHOD_TILES,
	PLAN_METHOD_COUNT
};

extern const char *const plan_method_names[PLAN_METHOD_COUNT];

/* A sector of memory: what a base address is of it decides how rows are written. */
#define PLAN_PHASE 32

struct plan_facts {
	/* Of the device; zeros: plans have no predicted time. */
	struct copy_speed copy;
	const char *engine; /* "cpu" */
	uint32_t threads;   /* that move bytes; multiprocessors */
	uint32_t align;     /* of both base addresses, bytes; what widening may rely on */
	bool tma;           /* planned for the Tensor Memory Accelerator; the two below are then of use */
	uint8_t dst_phase;  /* of the base addresses: modulo PLAN_PHASE; of a list's blocks, modulo 16 */
	uint8_t src_phase;
	bool spread;     /* one of many moves of one launch: no map, and no copy of the driver's */
	bool listed;     /* one block of a list: no route that only a single move can take */
	uint8_t variant; /* the owner's, who has several devices: equal where the facts of these are */
};

/* Why a better family was not legal. */
struct plan_rule {
	enum family family;
	char text[120];
};

#define PLAN_MAX_RULES 12

#define PLAN_TILE_RANK (TENSOR_MAX_RANK + 1)

#define PLAN_PIECE_BYTES (1 << 20) /* of the destination; what one thread takes at a time */

struct plan {
	enum family family;
	enum plan_method method;
	int tile_rank;                /* 0 when it moves without tiles */
	int64_t tile[PLAN_TILE_RANK]; /* elements, outermost first */
	const char *swizzle;          /* of the tile in shared memory: "none" */
	int64_t grid;                 /* pieces that can run side by side at most */
	struct loop_nest interior;    /* rank 0 and fill when there is no interior */
	struct tma_route_plan
	    tma; /* when planned for it; interior is then the whole destination, pads as windows */
	uint64_t n_subregions;
	double predicted; /* time, in units of what a copy of as many bytes takes; 0: not predicted */
	int n_rules;
	struct plan_rule rules[PLAN_MAX_RULES];
};

/* The family of one canonical nest. For FAMILY_TILE_TRANSPOSE *ret_src_inner is the dimension with the
 * smallest source stride, an element forwards or backwards (else -1). */
enum family plan_loop_nest(const struct loop_nest *nest, int *ret_src_inner);

void plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts);

/* One more rule; those past PLAN_MAX_RULES are left out. */
__attribute__((format(printf, 3, 4))) void plan_add_rule(struct plan *plan, enum family family,
                                                         const char *format, ...);

/* Why it is not one run: by the innermost dimension that is not one with what lies inside it. */
void plan_explain_memcpy(struct plan *plan, const struct loop_nest *nest);

#endif
