/* SPDX-License-Identifier: Apache-2.0 */
/* What a test and a program with the shim share: a file, mapped by both, that the environment's FAULTS names.
 * tests/faults/faults.py has the same layout.
 *
 * The test sets when calls fail, the program counts them and says which did. Counts go on over an exec. */
#ifndef TESTS_FAULTS_SHIM_H
#define TESTS_FAULTS_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

enum shim_class {
	SHIM_MEMORY = 1, /* malloc and its kin */
	SHIM_SYSTEM = 2, /* what the kernel may refuse, and the start of a thread */
};

struct shim_plan {
	uint64_t classes; /* that are counted and fail */
	uint64_t first;   /* from 1; 0: none fails */
	uint64_t n;       /* that fail, from the first on */
	uint64_t variant; /* which of a call's errors: 0, 1 or 2 */
	_Atomic uint64_t calls;
	_Atomic uint64_t failed;
	char what[128]; /* the first that failed: its name, its error, and where it was called */
};

#endif
