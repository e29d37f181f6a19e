/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops for AVX-512, with 64-byte vectors, so that a register is a cache line. */
#include "isa.h"

#ifdef __x86_64__

#include <immintrin.h>

#define TARGET         __attribute__((target("avx512f,avx512bw,prfchw")))
#define VECTOR         __m512i
#define WIDTH          64
#define QUARTER(p)     _mm_loadu_si128((const __m128i_u *)(p))
#define PAIR(p, pitch) _mm256_inserti128_si256(_mm256_castsi128_si256(QUARTER(p)), QUARTER((p) + (pitch)), 1)
#define GATHER(p, pitch) \
	_mm512_inserti64x4(_mm512_castsi256_si512(PAIR(p, pitch)), PAIR((p) + 2 * (pitch), pitch), 1)
#define PAIR_OF(p, o, n) \
	_mm256_inserti128_si256(_mm256_castsi128_si256(QUARTER((p) + (o)[0])), QUARTER((p) + (o)[n]), 1)
#define LANES(p, o, n) \
	_mm512_inserti64x4(_mm512_castsi256_si512(PAIR_OF(p, o, n)), PAIR_OF(p, (o) + 2 * (n), n), 1)
#define STORE(p, v)        _mm512_storeu_si512(p, v)
#define STREAM(p, v)       _mm512_stream_si512((__m512i *)(p), v)
#define FENCE()            _mm_sfence()
#define SHUFFLE(v, mask)   _mm512_shuffle_epi8(v, mask)
#define SHUFFLE16(v, mask) ((vec16)_mm_shuffle_epi8((__m128i)(v), (__m128i)(mask)))
#define LOW1               _mm512_unpacklo_epi8
#define LOW2               _mm512_unpacklo_epi16
#define LOW4               _mm512_unpacklo_epi32
#define LOW8               _mm512_unpacklo_epi64
#define HIGH1              _mm512_unpackhi_epi8
#define HIGH2              _mm512_unpackhi_epi16
#define HIGH4              _mm512_unpackhi_epi32
#define HIGH8              _mm512_unpackhi_epi64
#define CONVERT_WIDTH      64
#define ISA                cpu_isa_avx512
#define BY_HALVES          1
#define ISA_NAME           "avx512"
#define WIDEN_U8(v)        ((narrow_i32)_mm512_cvtepu8_epi32((__m128i)(v)))
#define WIDEN_I8(v)        ((narrow_i32)_mm512_cvtepi8_epi32((__m128i)(v)))
#define WIDEN_U16(v)       ((narrow_i32)_mm512_cvtepu16_epi32((__m256i)(v)))
#define WIDEN_I16(v)       ((narrow_i32)_mm512_cvtepi16_epi32((__m256i)(v)))
#define WIDEN_F16(v)       ((narrow_f32)_mm512_cvtph_ps((__m256i)(v)))
#define CUT_F16(v)         ((narrow_u16)_mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT))
#define ANY_NAN(v)         _mm512_cmp_ps_mask((__m512)(v), (__m512)(v), _CMP_UNORD_Q)
#define CLAMP(v, most) \
	((narrow_f32)_mm512_max_ps(_mm512_set1_ps(-(most)), _mm512_min_ps(_mm512_set1_ps(most), (__m512)(v))))
#define MOST_8(a, b)  ((whole_u8)_mm512_max_epu8((__m512i)(a), (__m512i)(b)))
#define MOST_16(a, b) ((whole_i16)_mm512_max_epi16((__m512i)(a), (__m512i)(b)))
#define MOST_32(a, b) ((narrow_i32)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define CUT_8(v)      ((narrow_u8)_mm512_cvtepi32_epi8((__m512i)(v)))
#define CUT_16(v)     ((narrow_u16)_mm512_cvtepi32_epi16((__m512i)(v)))
#include "isa_body.h"

#endif
