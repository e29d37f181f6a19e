/* SPDX-License-Identifier: Apache-2.0 */
/* Computes where the Tensor Memory Accelerator puts a 16-byte chunk of a tile's row in shared memory. The
 * unit XORs the chunk's place within 128 bytes with higher bits of the address:
 *
 *     32B   a[4] ^= a[7]        64B   a[5:4] ^= a[8:7]        128B   a[6:4] ^= a[9:7]
 */
#ifndef CLIENT_TMACTL_EXPLAIN_SWIZZLE_H
#define CLIENT_TMACTL_EXPLAIN_SWIZZLE_H

#include <stdint.h>

#define SWIZZLE_CHUNK 16  /* bytes */
#define SWIZZLE_LINE  128 /* bytes: 32 banks of 4 */

/* Returns how many bits of the address, from bit 4 up, a swizzle changes: 1 for "32B", 2 for "64B", 3 for
 * "128B", 0 for "none". name is as explain reports it. */
static inline unsigned swizzle_bits(const char *name)
{
	switch (*name) {
	case '3':
		return 1;
	case '6':
		return 2;
	case '1':
		return 3;
	default:
		return 0;
	}
}

/* Returns the address of the byte that would be at `address` if the tile were not swizzled. */
static inline uint64_t swizzle_address(uint64_t address, unsigned bits)
{
	uint64_t mask = (UINT64_C(1) << bits) - 1;

	return address ^ ((address >> 7 & mask) << 4);
}

#endif
