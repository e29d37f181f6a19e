/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's scratch: memory in which it puts together what it writes, and in which some remember what they
 * have planned. What they remember begins as zeros. */
#ifndef KERNELS_CPU_MOVE_SCRATCH_H
#define KERNELS_CPU_MOVE_SCRATCH_H

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa/isa.h"

#define TILE_PLANS_BYTES  (1280 << 10)
#define SMALL_PLANS_BYTES ((256 << 10) + CPU_LINE)
#define MOVE_BYTES        (1536 << 10)
#define MADE_BYTES        (512 << 10)

struct cpu_scratch {
	/* These two are tile.c's and small_plan.c's; nobody else writes there. */
	_Alignas(CPU_LINE) char plans[TILE_PLANS_BYTES];
	_Alignas(CPU_LINE) char small_plans[SMALL_PLANS_BYTES];
	/* A running move uses this. Tiles with windows (padded.c) need the most. */
	_Alignas(CPU_LINE) char move[MOVE_BYTES];
	/* Results of moves are put together here. */
	_Alignas(CPU_LINE) char made[MADE_BYTES];
};

/* Returns NULL if there is no memory. */
static inline struct cpu_scratch *cpu_scratch_new(void)
{
	struct cpu_scratch *scratch = aligned_alloc(CPU_LINE, sizeof(*scratch));
	if (scratch) {
		memset(scratch->plans, 0, CPU_LINE);
		memset(scratch->small_plans, 0, CPU_LINE);
	}
	return scratch;
}

static inline void cpu_scratch_free(struct cpu_scratch *scratch)
{
	free(scratch);
}

#endif
