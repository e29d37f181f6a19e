/* SPDX-License-Identifier: Apache-2.0 */
/* Whether memory that will be written is in a cache. */
#ifndef KERNELS_CPU_COLD_H
#define KERNELS_CPU_COLD_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a few of the n bytes at start and takes the time: whether they took cold_ns or longer. That is a
 * guess; either answer is safe. 0: yes without a look; UINT64_MAX: no without one. Under a guard, as any
 * access. */
bool cold_is(const char *start, int64_t n, uint64_t cold_ns);

/* The same by another clock, for tests: it is asked before the reads and after them. */
bool cold_is_by(uint64_t (*clock)(void), const char *start, int64_t n, uint64_t cold_ns);

#endif
