/* SPDX-License-Identifier: Apache-2.0 */
/* How small transforms are moved, kept ready for the next time.
 *
 * To plan a small transform takes as long as to move it. So what is planned is kept, by what it is planned
 * from, whichever job it comes with. A transform that was never seen is not: it is moved in ways that are
 * planned fast. One that comes again has its plan made with more care, by tiles where those are faster, and
 * kept. The plan that was made first goes first when there is no more room.
 */
#ifndef KERNELS_CPU_KEPT_H
#define KERNELS_CPU_KEPT_H

#include <stdint.h>

#include "partition.h"

struct kept_plan;

/* Of the task's transform; NULL: it has none. The task's place need not be its next one. */
struct kept_plan *kept_find(const struct task *task, struct cpu_scratch *scratch);

/* Its subregions, up to the n-th, between these places. */
void kept_run(struct kept_plan *plan, uint64_t n, char *dst, const char *src, struct cpu_scratch *scratch);

/* Forgets all plans; for scratch that is new. */
void kept_forget(struct cpu_scratch *scratch);

#endif
