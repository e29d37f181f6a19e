/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's scratch: what it puts together in the cache, and what it remembers of its last tiles. */
#ifndef KERNELS_CPU_SCRATCH_H
#define KERNELS_CPU_SCRATCH_H

#include "kernels/cpu/isa/isa.h"

#define TILE_PLANS_BYTES (1280 << 10)
#define KEPT_BYTES       (304 << 10)
#define MOVE_BYTES       (1536 << 10)
#define MADE_BYTES       (512 << 10)

struct cpu_scratch {
	/* How tiles were moved (tile.c): nobody else writes here. */
	_Alignas(CPU_LINE) char plans[TILE_PLANS_BYTES];
	/* How small transforms were moved (kept.c): nobody else writes here. */
	_Alignas(CPU_LINE) char kept[KEPT_BYTES];
	/* For what runs a move: tiles, of which the largest are those with windows (windows.c), or a
	 * microkernel. */
	_Alignas(CPU_LINE) char move[MOVE_BYTES];
	/* For those who put the results of moves together. */
	_Alignas(CPU_LINE) char made[MADE_BYTES];
};

/* NULL: no memory. */
struct cpu_scratch *cpu_scratch_new(void);

/* NULL does nothing. */
void cpu_scratch_free(struct cpu_scratch *scratch);

#endif
