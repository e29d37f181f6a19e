/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the CPU engine moves a loop nest by its microkernel or by tiles, and by which. Pure.
 *
 * What lies in memory goes by the candidate that costs the least (cpu_cost.h). What is small, or is written
 * through the cache, goes by tiles of one kind where a rule says that its microkernel would be slow.
 */
#ifndef KERNELS_CPU_PLAN_CPU_CHOICE_H
#define KERNELS_CPU_PLAN_CPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_tile.h"
#include "kernels/nest/loop_nest.h"

/* The microkernel is candidate 0, the others are tiles of what cpu_candidate_names says: bytes of a tile, and
 * of runs in the source and in the destination. */
#define CPU_CANDIDATES 5
#define CPU_USUAL      1 /* of what goes by rule; the smallest */

extern const char *const cpu_candidate_names[CPU_CANDIDATES];

/* From so many bytes of the destination on, a job writes past the cache. */
#define CPU_STREAM_BYTES (8 << 20)

#define CPU_PIECE_BYTES (1 << 20) /* of the destination; what one thread takes at a time */

struct cpu_case {
	int64_t piece_bytes; /* as of cpu_tile_want */
	int64_t tiled_bytes; /* of the destination: less goes by the microkernel */
	bool stream;         /* past the cache */
};

struct cpu_choice {
	int candidate;
	struct cpu_tile tile; /* of candidates above 0 */
	double cost;          /* 0: not known, the candidate was chosen by rule; or it is a fill */
};

/* Whether it can go by tiles: it is no fill, and the destination is contiguous in its innermost dimension. */
bool cpu_has_tiles(const struct loop_nest *nest);

void cpu_choose(struct cpu_choice *ret, const struct loop_nest *nest, const struct cpu_case *c);

/* The same by this candidate. Those above 0 are for loop nests that have tiles. */
void cpu_choose_candidate(struct cpu_choice *ret, const struct loop_nest *nest, int candidate,
                          int64_t piece_bytes);

#endif
