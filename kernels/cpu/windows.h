/* SPDX-License-Identifier: Apache-2.0 */
/* Which padded axes of a transform are moved together with their border, as windows (loop_nest.h).
 *
 * A border that is short in the destination, or across the source, is slow as a subregion of its own: it
 * shares cache lines with its neighbours, and reads the source's once more. Such axes are put together in
 * tiles.
 */
#ifndef KERNELS_CPU_WINDOWS_H
#define KERNELS_CPU_WINDOWS_H

#include <stdint.h>

#include "kernels/plan/transform.h"
#include "move.h"

/* A bit for each axis; 0: none. */
uint32_t windows_choose(const struct transform *transform, const struct cpu_isa *isa,
                        const struct move_place *place);

#endif
