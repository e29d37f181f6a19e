/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether an emulator runs the test, in which case /proc describes the emulator's process. */
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
