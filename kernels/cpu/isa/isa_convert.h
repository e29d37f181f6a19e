/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements to lanes and back for one instruction set. Included by isa_body.h. The formulas are those
 * of kernels/transform/lanes.h, applied to CONVERT_WIDTH bytes of lanes at a time. */
#define VECTOR_OF(bytes) __attribute__((vector_size(bytes)))

/* Vectors with as many elements as a vector has 32-bit lanes. */
typedef uint32_t narrow_u32 VECTOR_OF(CONVERT_WIDTH);
typedef int32_t narrow_i32 VECTOR_OF(CONVERT_WIDTH);
typedef float narrow_f32 VECTOR_OF(CONVERT_WIDTH);
typedef uint16_t narrow_u16 VECTOR_OF(CONVERT_WIDTH / 2);
typedef int16_t narrow_i16 VECTOR_OF(CONVERT_WIDTH / 2);
typedef uint8_t narrow_u8 VECTOR_OF(CONVERT_WIDTH / 4);
typedef int8_t narrow_i8 VECTOR_OF(CONVERT_WIDTH / 4);

/* Vectors with as many elements as a vector has 64-bit lanes. */
typedef uint64_t wide_u64 VECTOR_OF(CONVERT_WIDTH);
typedef int64_t wide_i64 VECTOR_OF(CONVERT_WIDTH);
typedef double wide_f64 VECTOR_OF(CONVERT_WIDTH);
typedef uint32_t wide_u32 VECTOR_OF(CONVERT_WIDTH / 2);
typedef int32_t wide_i32 VECTOR_OF(CONVERT_WIDTH / 2);
typedef float wide_f32 VECTOR_OF(CONVERT_WIDTH / 2);
typedef uint16_t wide_u16 VECTOR_OF(CONVERT_WIDTH / 4);
typedef int16_t wide_i16 VECTOR_OF(CONVERT_WIDTH / 4);
typedef uint8_t wide_u8 VECTOR_OF(CONVERT_WIDTH / 8);
typedef int8_t wide_i8 VECTOR_OF(CONVERT_WIDTH / 8);

#define LANE_FN          inline TARGET
#define LANE_AS(type, v) __builtin_convertvector(v, type)
#define LANE_BITS32(v)   ((LANE_U32)(v))
#define LANE_FLOAT32(v)  ((LANE_F32)(v))
#define LANE_MASK32(v)   ((LANE_U32)(v))
#define LANE_BITS64(v)   ((LANE_U64)(v))
#define LANE_FLOAT64(v)  ((LANE_F64)(v))
#define LANE_MASK64(v)   ((LANE_U64)(v))

#define LANE(name) narrow_##name
#define LANE_U32   narrow_u32
#define LANE_I32   narrow_i32
#define LANE_F32   narrow_f32
#include "kernels/transform/lanes.h"

#define LANE(name) wide_##name
#define LANE_U32   wide_u32
#define LANE_I32   wide_i32
#define LANE_F32   wide_f32
#define LANE_U64   wide_u64
#define LANE_I64   wide_i64
#define LANE_F64   wide_f64
#include "kernels/transform/lanes.h"

#define AS LANE_AS

/* Compilers split a vector conversion into single elements if the number of lanes stays the same but their
 * size changes. The common conversions therefore have names, for which an instruction set can define better
 * code. */
#ifndef WIDEN_U8
#define WIDEN_U8(v)  AS(narrow_i32, v)
#define WIDEN_I8(v)  AS(narrow_i32, v)
#define WIDEN_U16(v) AS(narrow_i32, v)
#define WIDEN_I16(v) AS(narrow_i32, v)
#define CUT_8(v)     AS(narrow_u8, v)
#define CUT_16(v)    AS(narrow_u16, v)
#endif

/* ---- One by one ------------------------------------------------------------------------------------- */

/* Defines a load: n elements at src become lanes of type `lane`, one vector at a time. In the expression, v
 * is the vector of elements. */
#define DEFINE_LOAD(function, vector, lane, expression)                    \
	static TARGET void function(void *to, const char *src, int64_t n)  \
	{                                                                  \
		char *out = to;                                            \
		vector v = { 0 };                                          \
		for (; n > 0; out += sizeof(lane), src += sizeof(v)) {     \
			int64_t lanes = sizeof(v) / sizeof(v[0]);          \
			if (n >= lanes)                                    \
				memcpy(&v, src, sizeof(v));                \
			else                                               \
				memcpy(&v, src, (size_t)n * sizeof(v[0])); \
			lane to_lanes = (lane)(expression);                \
			memcpy(out, &to_lanes, sizeof(to_lanes));          \
			n -= lanes;                                        \
		}                                                          \
	}

/* Defines a store: n lanes become elements at dst, one vector at a time. In the expression, x is the vector
 * of lanes. */
#define DEFINE_STORE(function, vector, lane, expression)                    \
	static TARGET void function(char *dst, const void *from, int64_t n) \
	{                                                                   \
		const char *in = from;                                      \
		for (; n > 0; in += sizeof(lane), dst += sizeof(vector)) {  \
			lane x;                                             \
			memcpy(&x, in, sizeof(x));                          \
			vector v = (vector)(expression);                    \
			int64_t lanes = sizeof(v) / sizeof(v[0]);           \
			if (n >= lanes)                                     \
				memcpy(dst, &v, sizeof(v));                 \
			else                                                \
				memcpy(dst, &v, (size_t)n * sizeof(v[0]));  \
			n -= lanes;                                         \
		}                                                           \
	}

/* ---- Lanes of float32 ------------------------------------------------------------------------------- */

/* These functions convert float16 by the CPU's own instructions if it has any. Vectors with NaNs are left to
 * the formulas, because the instructions treat NaNs differently. */
static inline TARGET narrow_u32 f16_load(narrow_u16 v)
{
#ifdef WIDEN_F16
	narrow_f32 x = WIDEN_F16(v);
	if (!ANY_NAN(x))
		return (narrow_u32)x;
#endif
	return narrow_f16_to_f32((narrow_u32)WIDEN_U16(v));
}

static inline TARGET narrow_u16 f16_store(narrow_f32 x, int clamp)
{
#ifdef CUT_F16
	if (!ANY_NAN(x))
		return CUT_F16(clamp ? CLAMP(x, 65504) : x);
#endif
	return CUT_16(narrow_f32_to_f16((narrow_u32)x, clamp));
}

#define BITS8(v)  ((narrow_u32)WIDEN_U8(v))
#define BITS16(v) ((narrow_u32)WIDEN_U16(v))
DEFINE_LOAD(f32_from_bool, narrow_u8, narrow_f32, AS(narrow_f32, WIDEN_U8((narrow_u8)(v != 0) & 1)))
DEFINE_LOAD(f32_from_u8, narrow_u8, narrow_f32, AS(narrow_f32, WIDEN_U8(v)))
DEFINE_LOAD(f32_from_i8, narrow_i8, narrow_f32, AS(narrow_f32, WIDEN_I8(v)))
DEFINE_LOAD(f32_from_u16, narrow_u16, narrow_f32, AS(narrow_f32, WIDEN_U16(v)))
DEFINE_LOAD(f32_from_i16, narrow_i16, narrow_f32, AS(narrow_f32, WIDEN_I16(v)))
DEFINE_LOAD(f32_from_e4m3, narrow_u8, narrow_f32, narrow_e4m3_to_f32(BITS8(v)))
DEFINE_LOAD(f32_from_e5m2, narrow_u8, narrow_f32, narrow_e5m2_to_f32(BITS8(v)))
DEFINE_LOAD(f32_from_f16, narrow_u16, narrow_f32, f16_load(v))
DEFINE_LOAD(f32_from_bf16, narrow_u16, narrow_f32, narrow_bf16_to_f32(BITS16(v)))
DEFINE_LOAD(f32_from_bf16_quiet, narrow_u16, narrow_f32, narrow_bf16_to_f32_quiet(BITS16(v)))
DEFINE_LOAD(f32_from_f32, narrow_f32, narrow_f32, v)

DEFINE_STORE(f32_to_bool, narrow_u8, narrow_f32, CUT_8((narrow_u32)(x != 0) & 1))
DEFINE_STORE(f32_to_u8, narrow_u8, narrow_f32, CUT_8(narrow_f32_to_int(x, 0, UINT8_MAX)))
DEFINE_STORE(f32_to_i8, narrow_i8, narrow_f32, CUT_8(narrow_f32_to_int(x, INT8_MIN, INT8_MAX)))
DEFINE_STORE(f32_to_u16, narrow_u16, narrow_f32, CUT_16(narrow_f32_to_int(x, 0, UINT16_MAX)))
DEFINE_STORE(f32_to_i16, narrow_i16, narrow_f32, CUT_16(narrow_f32_to_int(x, INT16_MIN, INT16_MAX)))
#define DEFINE_FLOAT_STORES(suffix, clamp)                                            \
	DEFINE_STORE(f32_to_e4m3##suffix, narrow_u8, narrow_f32,                      \
	             CUT_8(narrow_f32_to_e4m3((narrow_u32)x, clamp)))                 \
	DEFINE_STORE(f32_to_e5m2##suffix, narrow_u8, narrow_f32,                      \
	             CUT_8(narrow_f32_to_e5m2((narrow_u32)x, clamp)))                 \
	DEFINE_STORE(f32_to_f16##suffix, narrow_u16, narrow_f32, f16_store(x, clamp)) \
	DEFINE_STORE(f32_to_bf16##suffix, narrow_u16, narrow_f32,                     \
	             CUT_16(narrow_f32_to_bf16((narrow_u32)x, clamp)))                \
	DEFINE_STORE(f32_to_f32##suffix, narrow_f32, narrow_f32, narrow_f32_to_f32((narrow_u32)x, clamp))
DEFINE_FLOAT_STORES(_clamped, 1)
DEFINE_FLOAT_STORES(_as_is, 0)

/* ---- Lanes of float64 ------------------------------------------------------------------------------- */

/* Compilers split a vector of 64-bit integers into single elements if the CPU has no instruction to convert
 * it (BY_HALVES). In that case, each half of an integer is placed into the fraction of a float64 whose
 * exponent gives the half's last bit its value, and only the sum of both numbers is rounded. */
#ifdef BY_HALVES
static inline TARGET wide_f64 f64_of_halves(wide_u64 low, wide_u64 high, double high_zero)
{
	wide_f64 upper = (wide_f64)(high ^ UINT64_C(0x4530000000000000)) - (high_zero + 0x1p52);
	return upper + (wide_f64)((low & UINT32_MAX) | UINT64_C(0x4330000000000000));
}

static inline TARGET wide_f64 f64_of_u64(wide_u64 v)
{
	return f64_of_halves(v, v >> 32, 0x1p84);
}

static inline TARGET wide_f64 f64_of_i64(wide_i64 v)
{
	wide_u64 bits = (wide_u64)v;
	return f64_of_halves(bits, (bits >> 32) ^ UINT64_C(0x80000000), 0x1p84 + 0x1p63);
}
#else
#define f64_of_u64(v) AS(wide_f64, v)
#define f64_of_i64(v) AS(wide_f64, v)
#endif

#define FROM_F32(bits) AS(wide_f64, (wide_f32)(bits))
DEFINE_LOAD(f64_from_bool, wide_u8, wide_f64, AS(wide_f64, AS(wide_i32, (wide_i8)(v != 0) & 1)))
DEFINE_LOAD(f64_from_u8, wide_u8, wide_f64, AS(wide_f64, AS(wide_i32, v)))
DEFINE_LOAD(f64_from_i8, wide_i8, wide_f64, AS(wide_f64, AS(wide_i32, v)))
DEFINE_LOAD(f64_from_u16, wide_u16, wide_f64, AS(wide_f64, AS(wide_i32, v)))
DEFINE_LOAD(f64_from_i16, wide_i16, wide_f64, AS(wide_f64, AS(wide_i32, v)))
DEFINE_LOAD(f64_from_u32, wide_u32, wide_f64, AS(wide_f64, v))
DEFINE_LOAD(f64_from_i32, wide_i32, wide_f64, AS(wide_f64, v))
DEFINE_LOAD(f64_from_u64, wide_u64, wide_f64, f64_of_u64(v))
DEFINE_LOAD(f64_from_i64, wide_i64, wide_f64, f64_of_i64(v))
DEFINE_LOAD(f64_from_u64_odd, wide_u64, wide_f64, f64_of_u64(wide_u64_to_odd(v)))
DEFINE_LOAD(f64_from_i64_odd, wide_i64, wide_f64, f64_of_i64((wide_i64)wide_i64_to_odd((wide_u64)v)))
DEFINE_LOAD(f64_from_e4m3, wide_u8, wide_f64, FROM_F32(wide_e4m3_to_f32(AS(wide_u32, v))))
DEFINE_LOAD(f64_from_e5m2, wide_u8, wide_f64, FROM_F32(wide_e5m2_to_f32(AS(wide_u32, v))))
DEFINE_LOAD(f64_from_f16, wide_u16, wide_f64, wide_f16_to_f64(AS(wide_u64, v)))
DEFINE_LOAD(f64_from_bf16, wide_u16, wide_f64, FROM_F32(wide_bf16_to_f32(AS(wide_u32, v))))
DEFINE_LOAD(f64_from_f32, wide_f32, wide_f64, AS(wide_f64, v))
DEFINE_LOAD(f64_from_f64, wide_f64, wide_f64, v)

#define TO_INT(x, low, high) wide_f64_to_int(x, low, high)
DEFINE_STORE(f64_to_bool, wide_u8, wide_f64, AS(wide_u8, (wide_u64)(x != 0) & 1))
DEFINE_STORE(f64_to_u8, wide_u8, wide_f64, AS(wide_u8, TO_INT(x, 0, UINT8_MAX)))
DEFINE_STORE(f64_to_i8, wide_i8, wide_f64, AS(wide_i8, TO_INT(x, INT8_MIN, INT8_MAX)))
DEFINE_STORE(f64_to_u16, wide_u16, wide_f64, AS(wide_u16, TO_INT(x, 0, UINT16_MAX)))
DEFINE_STORE(f64_to_i16, wide_i16, wide_f64, AS(wide_i16, TO_INT(x, INT16_MIN, INT16_MAX)))
DEFINE_STORE(f64_to_u32, wide_u32, wide_f64, AS(wide_u32, TO_INT(x, 0, UINT32_MAX)))
DEFINE_STORE(f64_to_i32, wide_i32, wide_f64, AS(wide_i32, TO_INT(x, INT32_MIN, INT32_MAX)))
DEFINE_STORE(f64_to_u64, wide_u64, wide_f64, wide_f64_to_u64(x))
DEFINE_STORE(f64_to_i64, wide_i64, wide_f64, wide_f64_to_i64(x))
#define ODD(x) wide_f64_to_odd_f32(x)
#define DEFINE_WIDE_FLOAT_STORES(suffix, clamp)                                                              \
	DEFINE_STORE(f64_to_e4m3##suffix, wide_u8, wide_f64, AS(wide_u8, wide_f32_to_e4m3(ODD(x), clamp)))   \
	DEFINE_STORE(f64_to_e5m2##suffix, wide_u8, wide_f64, AS(wide_u8, wide_f32_to_e5m2(ODD(x), clamp)))   \
	DEFINE_STORE(f64_to_f16##suffix, wide_u16, wide_f64, AS(wide_u16, wide_f32_to_f16(ODD(x), clamp)))   \
	DEFINE_STORE(f64_to_bf16##suffix, wide_u16, wide_f64, AS(wide_u16, wide_f32_to_bf16(ODD(x), clamp))) \
	DEFINE_STORE(f64_to_f32##suffix, wide_u32, wide_f64, wide_f64_to_f32(x, clamp))                      \
	DEFINE_STORE(f64_to_f64##suffix, wide_u64, wide_f64, wide_f64_to_f64(x, clamp))
DEFINE_WIDE_FLOAT_STORES(_clamped, 1)
DEFINE_WIDE_FLOAT_STORES(_as_is, 0)

/* ---- Lanes of int64: integers without arithmetic ---------------------------------------------------- */

static inline TARGET wide_i64 clamp_i64(wide_i64 x, int64_t low, int64_t high)
{
	wide_i64 is_low = x<low, is_high = x> high;
	return (x & ~(is_low | is_high)) | (is_low & low) | (is_high & high);
}

DEFINE_LOAD(i64_from_bool, wide_u8, wide_i64, AS(wide_i64, (wide_i8)(v != 0) & 1))
DEFINE_LOAD(i64_from_u8, wide_u8, wide_i64, AS(wide_i64, v))
DEFINE_LOAD(i64_from_i8, wide_i8, wide_i64, AS(wide_i64, v))
DEFINE_LOAD(i64_from_u16, wide_u16, wide_i64, AS(wide_i64, v))
DEFINE_LOAD(i64_from_i16, wide_i16, wide_i64, AS(wide_i64, v))
DEFINE_LOAD(i64_from_u32, wide_u32, wide_i64, AS(wide_i64, v))
DEFINE_LOAD(i64_from_i32, wide_i32, wide_i64, AS(wide_i64, v))
/* A value larger than any int64 becomes the largest int64. That changes the result only for uint64 as the
 * destination's type, and uint64 to uint64 is not converted this way. */
DEFINE_LOAD(i64_from_u64, wide_i64, wide_i64, (v & ~(v < 0)) | ((v < 0) & INT64_MAX))
DEFINE_LOAD(i64_from_i64, wide_i64, wide_i64, v)

DEFINE_STORE(i64_to_bool, wide_u8, wide_i64, AS(wide_u8, (wide_i64)(x != 0) & 1))
DEFINE_STORE(i64_to_u8, wide_u8, wide_i64, AS(wide_u8, clamp_i64(x, 0, UINT8_MAX)))
DEFINE_STORE(i64_to_i8, wide_i8, wide_i64, AS(wide_i8, clamp_i64(x, INT8_MIN, INT8_MAX)))
DEFINE_STORE(i64_to_u16, wide_u16, wide_i64, AS(wide_u16, clamp_i64(x, 0, UINT16_MAX)))
DEFINE_STORE(i64_to_i16, wide_i16, wide_i64, AS(wide_i16, clamp_i64(x, INT16_MIN, INT16_MAX)))
DEFINE_STORE(i64_to_u32, wide_u32, wide_i64, AS(wide_u32, clamp_i64(x, 0, UINT32_MAX)))
DEFINE_STORE(i64_to_i32, wide_i32, wide_i64, AS(wide_i32, clamp_i64(x, INT32_MIN, INT32_MAX)))
DEFINE_STORE(i64_to_u64, wide_i64, wide_i64, x & ~(x < 0))
DEFINE_STORE(i64_to_i64, wide_i64, wide_i64, x)

DEFINE_STORE(i64_cut_8, wide_u8, wide_i64, AS(wide_u8, x))
DEFINE_STORE(i64_cut_16, wide_u16, wide_i64, AS(wide_u16, x))
DEFINE_STORE(i64_cut_32, wide_u32, wide_i64, AS(wide_u32, x))

/* ---- Arithmetic ------------------------------------------------------------------------------------- */

/* Defines a function that computes to = a op b for n lanes, and for whatever follows them up to the end of
 * their last vector. The function returns whether any of the results is NaN. */
#define DEFINE_ARITHMETIC(function, vector, mask, op)                                          \
	static TARGET bool function(void *to, const void *a, const void *b, int64_t n)         \
	{                                                                                      \
		mask any = { 0 };                                                              \
		for (int64_t at = 0; at < n * (int64_t)sizeof(any[0]); at += sizeof(vector)) { \
			vector x, y, r;                                                        \
			memcpy(&x, (const char *)a + at, sizeof(x));                           \
			memcpy(&y, (const char *)b + at, sizeof(y));                           \
			r = x op y;                                                            \
			any |= (mask)(r != r);                                                 \
			memcpy((char *)to + at, &r, sizeof(r));                                \
		}                                                                              \
		bool is_nan = false;                                                           \
		for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)                      \
			is_nan |= any[i] != 0;                                                 \
		return is_nan;                                                                 \
	}
DEFINE_ARITHMETIC(multiply_f32, narrow_f32, narrow_u32, *)
DEFINE_ARITHMETIC(add_f32, narrow_f32, narrow_u32, +)
DEFINE_ARITHMETIC(multiply_f64, wide_f64, wide_u64, *)
DEFINE_ARITHMETIC(add_f64, wide_f64, wide_u64, +)

/* Does the same for to = a * by. */
static TARGET bool multiply_by(void *to, const void *a, float by, int64_t n)
{
	narrow_u32 any = { 0 };
	for (int64_t at = 0; at < n * (int64_t)sizeof(by); at += sizeof(narrow_f32)) {
		narrow_f32 x, r;
		memcpy(&x, (const char *)a + at, sizeof(x));
		r = x * by;
		any |= (narrow_u32)(r != r);
		memcpy((char *)to + at, &r, sizeof(r));
	}
	bool is_nan = false;
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
		is_nan |= any[i] != 0;
	return is_nan;
}

/* Defines a function that replaces each NaN among the results of an operation on a and b: by a's NaN or else
 * b's NaN, made quiet, or, if neither is NaN, by the one that x86 produces but not all machines do. */
#define DEFINE_MEND(function, vector, bits, quiet, made)                                               \
	static TARGET void function(void *to, const void *a, const void *b, int64_t n)                 \
	{                                                                                              \
		for (int64_t at = 0; at < n * (int64_t)sizeof((bits){ 0 }[0]); at += sizeof(vector)) { \
			vector x, y, r;                                                                \
			memcpy(&x, (const char *)a + at, sizeof(x));                                   \
			memcpy(&y, (const char *)b + at, sizeof(y));                                   \
			memcpy(&r, (const char *)to + at, sizeof(r));                                  \
			bits is = (bits)(r != r), of_a = is & (bits)(x != x);                          \
			bits of_b = is & ~of_a & (bits)(y != y);                                       \
			bits nan = (((bits)x | quiet) & of_a) | (((bits)y | quiet) & of_b);            \
			nan |= (is & ~of_a & ~of_b) & made;                                            \
			bits mended = ((bits)r & ~is) | nan;                                           \
			memcpy((char *)to + at, &mended, sizeof(mended));                              \
		}                                                                                      \
	}
DEFINE_MEND(mend_f32, narrow_f32, narrow_u32, UINT32_C(0x00400000), UINT32_C(0xffc00000))
DEFINE_MEND(mend_f64, wide_f64, wide_u64, UINT64_C(0x0008000000000000), UINT64_C(0xfff8000000000000))

/* ---- Magnitudes ------------------------------------------------------------------------------------- */

typedef uint8_t whole_u8 VECTOR_OF(CONVERT_WIDTH);
typedef int16_t whole_i16 VECTOR_OF(CONVERT_WIDTH);

#ifndef MOST_8
#define MOST_BY(type, a, b) (((a) & (type)((a) > (b))) | ((b) & ~(type)((a) > (b))))
#define MOST_8(a, b)        MOST_BY(whole_u8, a, b)
#define MOST_16(a, b)       MOST_BY(whole_i16, a, b)
#define MOST_32(a, b)       MOST_BY(narrow_i32, a, b)
#endif

/* Defines a cpu_magnitude_fn (isa.h). It handles two vectors at a time, so that only loads limit its speed.
 * An incomplete last vector is filled up with zeros. */
#define DEFINE_MAGNITUDE(function, vector, mask, most_of)                        \
	static TARGET uint32_t function(const char *src, int64_t n)              \
	{                                                                        \
		const int64_t lanes = sizeof(vector) / sizeof((vector){ 0 }[0]); \
		vector v = { 0 }, w, most = { 0 }, more = { 0 };                 \
		for (; n >= 2 * lanes; n -= 2 * lanes, src += 2 * sizeof(v)) {   \
			memcpy(&v, src, sizeof(v));                              \
			memcpy(&w, src + sizeof(v), sizeof(w));                  \
			most = most_of(v & mask, most);                          \
			more = most_of(w & mask, more);                          \
		}                                                                \
		for (; n > 0; n -= lanes, src += sizeof(v)) {                    \
			vector last = { 0 };                                     \
			if (n >= lanes)                                          \
				memcpy(&last, src, sizeof(last));                \
			else                                                     \
				memcpy(&last, src, (size_t)n * sizeof(last[0])); \
			most = most_of(last & mask, most);                       \
		}                                                                \
		most = most_of(most, more);                                      \
		uint32_t all = 0;                                                \
		for (int64_t i = 0; i < lanes; i++)                              \
			all = (uint32_t)most[i] > all ? (uint32_t)most[i] : all; \
		return all;                                                      \
	}
static TARGET void magnitudes(void *most, const void *lanes, int64_t n)
{
	for (int64_t at = 0; at < n * (int64_t)sizeof(float); at += sizeof(narrow_i32)) {
		narrow_i32 v, m;
		memcpy(&v, (const char *)lanes + at, sizeof(v));
		memcpy(&m, (const char *)most + at, sizeof(m));
		m = MOST_32(v & 0x7fffffff, m);
		memcpy((char *)most + at, &m, sizeof(m));
	}
}

DEFINE_MAGNITUDE(magnitude_8, whole_u8, 0x7f, MOST_8)
DEFINE_MAGNITUDE(magnitude_16, whole_i16, 0x7fff, MOST_16)
DEFINE_MAGNITUDE(magnitude_32, narrow_i32, 0x7fffffff, MOST_32)

/* ---- The tables ------------------------------------------------------------------------------------- */

#define SMALL_INTEGERS(lane)                                                             \
	[DTYPE_BOOL] = lane##_bool, [DTYPE_UINT8] = lane##_u8, [DTYPE_INT8] = lane##_i8, \
	[DTYPE_UINT16] = lane##_u16, [DTYPE_INT16] = lane##_i16
#define INTEGERS(lane)                                                                 \
	SMALL_INTEGERS(lane), [DTYPE_UINT32] = lane##_u32, [DTYPE_INT32] = lane##_i32, \
			      [DTYPE_UINT64] = lane##_u64, [DTYPE_INT64] = lane##_i64
#define FLOATS(lane, suffix)                                                                    \
	[DTYPE_FLOAT8_E4M3FN] = lane##_e4m3##suffix, [DTYPE_FLOAT8_E5M2] = lane##_e5m2##suffix, \
	[DTYPE_FLOAT16] = lane##_f16##suffix, [DTYPE_BFLOAT16] = lane##_bf16##suffix,           \
	[DTYPE_FLOAT32] = lane##_f32##suffix

static const struct cpu_converters converters = {
	.load = {
		[CPU_LANE_FLOAT32] = { SMALL_INTEGERS(f32_from), FLOATS(f32_from, ) },
		[CPU_LANE_FLOAT64] = { INTEGERS(f64_from), FLOATS(f64_from, ),
		                       [DTYPE_FLOAT64] = f64_from_f64 },
		[CPU_LANE_INT64] = { INTEGERS(i64_from) },
	},
	.load_lossy = { [DTYPE_UINT64] = f64_from_u64_odd, [DTYPE_INT64] = f64_from_i64_odd,
	                [DTYPE_BFLOAT16] = f32_from_bf16_quiet },
	.store = {
		[CPU_LANE_FLOAT32] = { SMALL_INTEGERS(f32_to), FLOATS(f32_to, _as_is) },
		[CPU_LANE_FLOAT64] = { INTEGERS(f64_to), FLOATS(f64_to, _as_is),
		                       [DTYPE_FLOAT64] = f64_to_f64_as_is },
		[CPU_LANE_INT64] = { INTEGERS(i64_to) },
	},
	.store_clamped = {
		[CPU_LANE_FLOAT32] = { SMALL_INTEGERS(f32_to), FLOATS(f32_to, _clamped) },
		[CPU_LANE_FLOAT64] = { INTEGERS(f64_to), FLOATS(f64_to, _clamped),
		                       [DTYPE_FLOAT64] = f64_to_f64_clamped },
		[CPU_LANE_INT64] = { INTEGERS(i64_to) },
	},
	.store_wrapped = { [DTYPE_BOOL] = i64_to_bool, [DTYPE_UINT8] = i64_cut_8, [DTYPE_INT8] = i64_cut_8,
	                   [DTYPE_UINT16] = i64_cut_16, [DTYPE_INT16] = i64_cut_16,
	                   [DTYPE_UINT32] = i64_cut_32, [DTYPE_INT32] = i64_cut_32,
	                   [DTYPE_UINT64] = i64_to_i64, [DTYPE_INT64] = i64_to_i64 },
	.multiply = { [CPU_LANE_FLOAT32] = multiply_f32, [CPU_LANE_FLOAT64] = multiply_f64 },
	.multiply_by = multiply_by,
	.add = { [CPU_LANE_FLOAT32] = add_f32, [CPU_LANE_FLOAT64] = add_f64 },
	.mend = { [CPU_LANE_FLOAT32] = mend_f32, [CPU_LANE_FLOAT64] = mend_f64 },
	.magnitudes = magnitudes,
	.magnitude = { [DTYPE_FLOAT8_E4M3FN] = magnitude_8, [DTYPE_FLOAT8_E5M2] = magnitude_8,
	               [DTYPE_FLOAT16] = magnitude_16, [DTYPE_BFLOAT16] = magnitude_16,
	               [DTYPE_FLOAT32] = magnitude_32 },
};
