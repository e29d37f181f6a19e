/* SPDX-License-Identifier: Apache-2.0 */
/* How small transforms are moved, kept ready for the next time.
 *
 * Planning a small transform takes as long as moving it. So plans are kept, found by all that a plan depends
 * on, whichever job a transform comes with. One that is seen for the first time is moved in ways that are
 * planned fast. When it comes again, its plan is made with more care, by tiles where those are faster, and is
 * kept. When there is no more room, the oldest plan is overwritten.
 */
#ifndef KERNELS_CPU_KEPT_H
#define KERNELS_CPU_KEPT_H

#include <stdint.h>

#include "partition.h"

struct kept_plan;

/* The plan of the task's transform, for any place; NULL: none is kept. */
struct kept_plan *kept_find(const struct task *task, struct cpu_scratch *scratch);

/* Its subregions, up to the n-th, between these places. */
void kept_run(struct kept_plan *plan, uint64_t n, char *dst, const char *src, struct cpu_scratch *scratch);

/* Forgets all plans; for scratch that is new. */
void kept_forget(struct cpu_scratch *scratch);

#endif
