/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of at most 64 bytes, inlined. */
#ifndef KERNELS_CPU_ISA_SHORT_H
#define KERNELS_CPU_ISA_SHORT_H

#include <stdint.h>
#include <string.h>

/* n = 1 .. 64 bytes, by two overlapping moves of one size or a few of 16; nothing past the n. */
static inline void copy_short(char *dst, const char *src, uint32_t n)
{
	char a[16], b[16];
#define ENDS(size)                         \
	memcpy(a, src, size);              \
	memcpy(b, src + n - (size), size); \
	memcpy(dst, a, size);              \
	memcpy(dst + n - (size), b, size)
	if (n >= 16) {
		for (uint32_t i = 0; i + 16 < n; i += 16)
			memcpy(dst + i, src + i, 16);
		memcpy(dst + n - 16, src + n - 16, 16);
	} else if (n >= 8) {
		ENDS(8);
	} else if (n >= 4) {
		ENDS(4);
	} else if (n >= 2) {
		ENDS(2);
	} else {
		*dst = *src;
	}
#undef ENDS
}

#endif
