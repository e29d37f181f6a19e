/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops for NEON. A vector is 32 bytes in a pair of registers, because non-temporal stores on
 * aarch64 write a pair. */
#include "isa.h"

#ifdef __aarch64__

#include <arm_neon.h>

#ifdef __clang__
/* With 1-byte elements, the loop over the two parts of a line is not unrolled. */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

struct pair {
	uint8x16_t first, second;
};

#define HALF(p) vld1q_u8((const uint8_t *)(p))
#define ZIP(zip, type, a, b) \
	vreinterpretq_u8_##type(zip##_##type(vreinterpretq_##type##_u8(a), vreinterpretq_##type##_u8(b)))
#define ZIP_PAIR(zip, type, a, b) \
	((struct pair){ ZIP(zip, type, (a).first, (b).first), ZIP(zip, type, (a).second, (b).second) })

#define TARGET
#define VECTOR           struct pair
#define WIDTH            32
#define GATHER(p, pitch) ((struct pair){ HALF(p), HALF((p) + (pitch)) })
#define LANES(p, o, n)   ((struct pair){ HALF((p) + (o)[0]), HALF((p) + (o)[n]) })
#define STORE(p, v)      (vst1q_u8((uint8_t *)(p), (v).first), vst1q_u8((uint8_t *)(p) + 16, (v).second))
#define STREAM(p, v)     __asm__("stnp %q1, %q2, %0" : "=Q"(*(char(*)[32])(p)) : "w"((v).first), "w"((v).second))
#define FENCE()          __asm__ volatile("dmb ishst" ::: "memory")
#define SHUFFLE(v, mask) \
	((struct pair){ vqtbl1q_u8((v).first, (mask).first), vqtbl1q_u8((v).second, (mask).second) })
#define SHUFFLE16(v, mask) ((vec16)vqtbl1q_u8((uint8x16_t)(v), (uint8x16_t)(mask)))
#define LOW1(a, b)         ZIP_PAIR(vzip1q, s8, a, b)
#define LOW2(a, b)         ZIP_PAIR(vzip1q, s16, a, b)
#define LOW4(a, b)         ZIP_PAIR(vzip1q, s32, a, b)
#define LOW8(a, b)         ZIP_PAIR(vzip1q, s64, a, b)
#define HIGH1(a, b)        ZIP_PAIR(vzip2q, s8, a, b)
#define HIGH2(a, b)        ZIP_PAIR(vzip2q, s16, a, b)
#define HIGH4(a, b)        ZIP_PAIR(vzip2q, s32, a, b)
#define HIGH8(a, b)        ZIP_PAIR(vzip2q, s64, a, b)
#define CONVERT_WIDTH      16
#define ISA                cpu_isa_neon
#define ISA_NAME           "neon"
#include "isa_body.h"

#endif
