/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a test and a program with the shim both map; the environment variable FAULTS names it.
 * tests/faults/faults.py has the same layout. The test sets which calls fail; the program counts them and
 * records the first that failed. Counts continue across an exec. */
#ifndef TESTS_FAULTS_SHIM_H
#define TESTS_FAULTS_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

enum shim_class {
	SHIM_MEMORY = 1, /* malloc and related calls */
	SHIM_SYSTEM = 2, /* system calls that the kernel may refuse, and thread creation */
};

struct shim_plan {
	uint64_t classes; /* mask of the classes that are counted and can fail */
	uint64_t first;   /* number of the first failing call, from 1; 0: none fails */
	uint64_t n;       /* how many calls fail from the first on */
	uint64_t variant; /* selects one of the errors that a call can fail with: 0, 1 or 2 */
	_Atomic uint64_t calls;
	_Atomic uint64_t failed;
	char what[128]; /* the first call that failed: its name, its error and its caller */
};

#endif
