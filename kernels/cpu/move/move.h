/* SPDX-License-Identifier: Apache-2.0 */
/* A move: one loop nest placed in memory, its microkernel chosen, divided into pieces that threads can run
 * side by side.
 *
 * A piece is a box of the loop nest. Pieces write disjoint bytes, and no two share a cache line of the
 * destination unless the loop nest's own rows do. A move owns no memory and may be copied.
 */
#ifndef KERNELS_CPU_MOVE_MOVE_H
#define KERNELS_CPU_MOVE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/nest/loop_nest.h"
#include "move_struct.h"
#include "scratch.h"

/* A loop nest with windows is always tiled, in a place that is streamed. Its windows are those that padded.h
 * chooses for such a place. Where their tiles do not fit, as may be while it tries, `tiled` is false, and the
 * move must not be run. */
void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place);

/* For measuring: from now on moves go by this candidate (cpu_choice.h) if they can; -1 ends that. No job may
 * run meanwhile. */
void move_force(int candidate);
int move_forced(void); /* Returns what move_force was given. */

/* Shifts the move by so many bytes on either side; src must be 0 for a fill. */
void move_shift(struct move *move, int64_t dst, int64_t src);

/* Runs piece 0 .. pieces - 1. scratch: this thread's. What went past the cache is in order once the caller
 * has called isa->fence. */
void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch);

/* A piece as a loop nest of units, between these places. Its strides may be of any sign on either side. */
void move_piece_nest(const struct move *move, int64_t piece, struct loop_nest *ret, char **ret_dst,
                     const char **ret_src);

#endif
