/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops with AVX2: 32-byte vectors. */
#include "isa.h"

#ifdef __x86_64__

#include <immintrin.h>

#define TARGET           __attribute__((target("avx2,prfchw")))
#define VECTOR           __m256i
#define WIDTH            32
#define HALF(p)          _mm_loadu_si128((const __m128i_u *)(p))
#define GATHER(p, pitch) _mm256_inserti128_si256(_mm256_castsi128_si256(HALF(p)), HALF((p) + (pitch)), 1)
#define LANES(p, o, n) \
	_mm256_inserti128_si256(_mm256_castsi128_si256(HALF((p) + (o)[0])), HALF((p) + (o)[n]), 1)
#define STORE(p, v)        _mm256_storeu_si256((__m256i_u *)(p), v)
#define STREAM(p, v)       _mm256_stream_si256((__m256i *)(p), v)
#define FENCE()            _mm_sfence()
#define SHUFFLE(v, mask)   _mm256_shuffle_epi8(v, mask)
#define SHUFFLE16(v, mask) ((vec16)_mm_shuffle_epi8((__m128i)(v), (__m128i)(mask)))
#define LOW1               _mm256_unpacklo_epi8
#define LOW2               _mm256_unpacklo_epi16
#define LOW4               _mm256_unpacklo_epi32
#define LOW8               _mm256_unpacklo_epi64
#define HIGH1              _mm256_unpackhi_epi8
#define HIGH2              _mm256_unpackhi_epi16
#define HIGH4              _mm256_unpackhi_epi32
#define HIGH8              _mm256_unpackhi_epi64
#define ISA                cpu_isa_avx2
#define ISA_NAME           "avx2"
#include "isa_body.h"

#endif
