/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops for AVX2, with 32-byte vectors. */
#include "isa.h"

#ifdef __x86_64__

#include <immintrin.h>

#define TARGET           __attribute__((target("avx2,f16c,prfchw")))
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
#define CONVERT_WIDTH      32
#define ISA                cpu_isa_avx2
#define BY_HALVES          1
#define ISA_NAME           "avx2"
#define WIDEN_U8(v)        ((narrow_i32)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)(v))))
#define WIDEN_I8(v)        ((narrow_i32)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)(v))))
#define WIDEN_U16(v)       ((narrow_i32)_mm256_cvtepu16_epi32((__m128i)(v)))
#define WIDEN_I16(v)       ((narrow_i32)_mm256_cvtepi16_epi32((__m128i)(v)))
#define WIDEN_F16(v)       ((narrow_f32)_mm256_cvtph_ps((__m128i)(v)))
#define CUT_F16(v)         ((narrow_u16)_mm256_cvtps_ph((__m256)(v), _MM_FROUND_TO_NEAREST_INT))
#define ANY_NAN(v)         _mm256_movemask_ps(_mm256_cmp_ps((__m256)(v), (__m256)(v), _CMP_UNORD_Q))
#define CLAMP(v, most) \
	((narrow_f32)_mm256_max_ps(_mm256_set1_ps(-(most)), _mm256_min_ps(_mm256_set1_ps(most), (__m256)(v))))
#define MOST_8(a, b)  ((whole_u8)_mm256_max_epu8((__m256i)(a), (__m256i)(b)))
#define MOST_16(a, b) ((whole_i16)_mm256_max_epi16((__m256i)(a), (__m256i)(b)))
#define MOST_32(a, b) ((narrow_i32)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define CUT_8(v)      ((narrow_u8)cut_8((__m256i)(v)))
#define CUT_16(v)     ((narrow_u16)cut_16((__m256i)(v)))

static inline TARGET __m128i cut_16(__m256i v)
{
	const __m256i low = _mm256_set_epi64x(0, 0x0d0c090805040100, 0, 0x0d0c090805040100);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, low), 0x08));
}

static inline TARGET long long cut_8(__m256i v)
{
	const __m128i low = _mm_set_epi64x(0, 0x0e0c0a0806040200);
	return _mm_cvtsi128_si64(_mm_shuffle_epi8(cut_16(v), low));
}

#include "isa_body.h"

#endif
