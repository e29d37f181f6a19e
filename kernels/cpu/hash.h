/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of bytes, for tables that compare what they find. */
#ifndef KERNELS_CPU_HASH_H
#define KERNELS_CPU_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* By two lanes that do not wait for each other. */
static inline uint64_t hash_bytes(const void *bytes, size_t n)
{
	uint64_t a = n, b = 0;
	for (size_t at = 0; at < n; at += 16) {
		uint64_t words[2] = { 0 };
		memcpy(words, (const char *)bytes + at, n - at < 16 ? n - at : 16);
		a = (a ^ words[0]) * UINT64_C(0x9e3779b97f4a7c15);
		b = (b ^ words[1]) * UINT64_C(0xc2b2ae3d27d4eb4f);
		a ^= a >> 29;
		b ^= b >> 31;
	}
	a = (a ^ b >> 32 ^ b << 32) * UINT64_C(0x9e3779b97f4a7c15);
	return a ^ a >> 32;
}

#endif
