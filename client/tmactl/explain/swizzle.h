/* SPDX-License-Identifier: Apache-2.0 */
/* Where the Tensor Memory Accelerator puts a 16-byte chunk of a tile's row in shared memory. The unit XORs
 * the chunk's place within 128 bytes with bits of the address above it:
 *
 *     32B   a[4] ^= a[7]        64B   a[5:4] ^= a[8:7]        128B   a[6:4] ^= a[9:7]
 */
#ifndef CLIENT_TMACTL_EXPLAIN_SWIZZLE_H
#define CLIENT_TMACTL_EXPLAIN_SWIZZLE_H

#include <stdint.h>

#define SWIZZLE_CHUNK 16  /* bytes */
#define SWIZZLE_LINE  128 /* bytes: 32 banks of 4 */

/* Bits of the address that a swizzle changes, from bit 4 up, by the name that explain gives it: "32B" has 1,
 * "64B" 2, "128B" 3; 0 for "none" and every other. */
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

/* The address of a byte that an unswizzled tile would have at `address`. */
static inline uint64_t swizzle_address(uint64_t address, unsigned bits)
{
	uint64_t mask = (UINT64_C(1) << bits) - 1;

	return address ^ ((address >> 7 & mask) << 4);
}

#endif
