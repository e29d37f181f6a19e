/* SPDX-License-Identifier: Apache-2.0 */
/* A copy to memory that the copier does not read again soon: it writes whole lines past the caches, which
 * saves reading them first. */
#ifndef KERNELS_HOST_STREAM_COPY_H
#define KERNELS_HOST_STREAM_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define STREAM_COPY_LINE 64

/* As memcpy. What it wrote is visible to whoever sees a store that the caller makes afterwards. */
static inline void stream_copy(void *dst, const void *src, size_t n)
{
	const size_t to_line = (size_t)(-(uintptr_t)dst % STREAM_COPY_LINE);
	const size_t head = n < to_line ? n : to_line;
	char *to = (char *)dst + head;
	const char *from = (const char *)src + head;

	memcpy(dst, src, head);
	for (n -= head; n >= STREAM_COPY_LINE; n -= STREAM_COPY_LINE) {
		for (int i = 0; i < STREAM_COPY_LINE; i += 16)
			_mm_stream_si128((__m128i *)(void *)(to + i),
			                 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
		to += STREAM_COPY_LINE;
		from += STREAM_COPY_LINE;
	}
	memcpy(to, from, n);
	_mm_sfence();
}
#else
static inline void stream_copy(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}
#endif

#endif
