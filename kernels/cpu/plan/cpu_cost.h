/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs the CPU engine to move a loop nest that lies in memory, in no cache: by its microkernel, or
 * by tiles. Pure.
 *
 * A cost is a time, in units of what a copy of as many bytes takes on as many threads.
 */
#ifndef KERNELS_CPU_PLAN_CPU_COST_H
#define KERNELS_CPU_PLAN_CPU_COST_H

#include "cpu_tile.h"
#include "kernels/nest/loop_nest.h"

double cpu_cost_microkernel(const struct loop_nest *nest);

double cpu_cost_tiles(const struct loop_nest *nest, const struct cpu_tile *tile);

#endif
