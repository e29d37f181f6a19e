/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an emulator runs the test: what /proc tells of the process is then the emulator's. */
#ifndef TESTS_EMULATED_EMULATED_H
#define TESTS_EMULATED_EMULATED_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool emulated(void)
{
	const char *emulator = getenv("EMULATOR");
	return emulator && *emulator;
}

/* Returns whether the emulator is the one of this name, such as "qemu". */
static inline bool emulated_by(const char *name)
{
	const char *emulator = getenv("EMULATOR");
	return emulator && strstr(emulator, name);
}

#endif
