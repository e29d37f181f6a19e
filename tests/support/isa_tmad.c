/* SPDX-License-Identifier: Apache-2.0 */
/* A tmad whose CPU engine uses the instruction set named by TEST_ISA instead of the best one. Without
 * TEST_ISA it prints the names of the sets that this machine has, one a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tmad.h"
#include "kernels/cpu/run/tuning.h"

static const struct cpu_isa *find(const char *name)
{
	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		if (isa && !name)
			puts(isa->name);
		else if (isa && !strcmp(isa->name, name))
			return isa;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct engine_openers openers = { .cpu = engine_cpu_open };
	const char *name = getenv("TEST_ISA");
	struct cpu_tuning tuning = cpu_tuning_get();

	tuning.isa = find(name);
	if (!name)
		return 0;
	if (!tuning.isa) {
		fprintf(stderr, "TEST_ISA=%s: this machine does not have it\n", name);
		return 2;
	}
	cpu_tuning_force(&tuning);
	return tmad_main(argc, argv, &openers);
}
