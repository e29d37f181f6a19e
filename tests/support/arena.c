/* SPDX-License-Identifier: Apache-2.0 */
/* Makes Criterion work under ThreadSanitizer. Its workers share memory with it at an address that it draws
 * with rand_r, at most ten times, from [2^45, 2^45 + 2^46), nearly all of which TSan uses itself. This rand_r
 * therefore makes every draw an address that TSan leaves to programs: [0x550000000000, 0x568000000000) on
 * x86-64. */
#include <stdint.h>
#include <stdlib.h>

#define ARENAS     UINT64_C(0x200000000000) /* the address that a draw of 0 gives */
#define ARENA_STEP UINT64_C(0x1000000)
#define FREE_START UINT64_C(0x550000000000)
#define FREE_END   UINT64_C(0x568000000000)

/* Criterion's calls resolve to this function before libc's. */
__attribute__((visibility("default"))) int rand_r(unsigned *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return (int)((FREE_START - ARENAS) / ARENA_STEP +
	             (*seed >> 8) % ((FREE_END - FREE_START) / ARENA_STEP));
}
