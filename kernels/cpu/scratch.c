/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates scratch. */
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

#include "kept.h"
#include "tile.h"

struct cpu_scratch *cpu_scratch_new(void)
{
	struct cpu_scratch *scratch = aligned_alloc(CPU_LINE, sizeof(*scratch));
	if (scratch) {
		tile_forget(scratch);
		kept_forget(scratch);
	}
	return scratch;
}

void cpu_scratch_free(struct cpu_scratch *scratch)
{
	free(scratch);
}
