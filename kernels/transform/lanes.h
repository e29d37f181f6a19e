/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas by which every engine converts the bits of one element type to those of another. A lane is one
 * number; the formulas have no branches, so that they work on a single lane and on a vector of lanes alike.
 *
 * A file that includes this one must first define these macros:
 * - LANE(name): the name of a function.
 * - LANE_FN: the qualifiers of a function.
 * - LANE_U32, LANE_I32, LANE_F32: types of 32-bit lanes.
 * - LANE_U64, LANE_I64, LANE_F64: types of as many 64-bit lanes. Without LANE_F64, no function of 64-bit
 * types is defined.
 * - LANE_MASK32(c), LANE_MASK64(c): all ones in each lane in which the comparison c holds, else 0.
 * - LANE_BITS32(f), LANE_BITS64(f): the bits of floating-point lanes.
 * - LANE_FLOAT32(u), LANE_FLOAT64(u): the floating-point lanes that have these bits.
 * - LANE_AS(type, x): each lane of x converted to the type as C does.
 *
 * The file defines functions FROM_to_TO, which take and return small formats as their bits in 32-bit lanes.
 * All round to nearest even. A NaN keeps its sign and the leading bits of its payload, and its payload never
 * becomes 0; but bfloat16 and the 8-bit formats have only one NaN, which gets the source's sign. With
 * `clamp`, a value beyond the largest finite one becomes that one; otherwise it becomes infinity, or NaN in
 * float8_e4m3fn, which has no infinity.
 *
 * Formats are those of IEEE 754 (float16, 32, 64) and of the OCP 8-bit Floating Point Specification, revision
 * 1.0 (float8).
 */

static LANE_FN LANE_U32 LANE(select32)(LANE_U32 mask, LANE_U32 yes, LANE_U32 no)
{
	return (yes & mask) | (no & ~mask);
}

/* Returns a mask of the lanes with a < b. Both are magnitudes, without a sign bit. */
static LANE_FN LANE_U32 LANE(below32)(LANE_U32 a, uint32_t b)
{
	return LANE_MASK32((LANE_I32)a < (int32_t)b);
}

static LANE_FN LANE_U32 LANE(least32)(LANE_U32 a, uint32_t most)
{
	LANE_U32 is_below = LANE(below32)(a, most);
	return (a & is_below) | (most & ~is_below);
}

/* ---- To float32 ------------------------------------------------------------------------------------- */

/* A subnormal of a small format is a normal float32. It is made by giving it the exponent of the small
 * format's least normal number, and subtracting the leading one that this exponent implies. */

static LANE_FN LANE_U32 LANE(f16_to_f32)(LANE_U32 x)
{
	LANE_U32 magnitude = (x & UINT32_C(0x7fff)) << 13, sign = (x & UINT32_C(0x8000)) << 16;
	LANE_U32 normal = magnitude + UINT32_C(0x38000000);
	LANE_U32 special = magnitude + UINT32_C(0x70000000); /* infinity or NaN */
	LANE_U32 subnormal = LANE_BITS32(LANE_FLOAT32(magnitude + UINT32_C(0x38800000)) - 0x1p-14f);
	normal = LANE(select32)(LANE(below32)(magnitude, UINT32_C(0x0f800000)), normal, special);
	return LANE(select32)(LANE(below32)(magnitude, UINT32_C(0x00800000)), subnormal, normal) | sign;
}

static LANE_FN LANE_U32 LANE(bf16_to_f32)(LANE_U32 x)
{
	return x << 16;
}

/* Does the same, but turns every NaN into the single one that has the source's sign, as the functions for
 * 8-bit formats do. */
static LANE_FN LANE_U32 LANE(bf16_to_f32_quiet)(LANE_U32 x)
{
	LANE_U32 bits = x << 16, sign = bits & UINT32_C(0x80000000);
	LANE_U32 is_nan = ~LANE(below32)(bits ^ sign, UINT32_C(0x7f800001));
	return (bits & ~is_nan) | (is_nan & UINT32_C(0x7fc00000)) | sign;
}

static LANE_FN LANE_U32 LANE(e5m2_to_f32)(LANE_U32 x)
{
	LANE_U32 bits = LANE(f16_to_f32)(x << 8), sign = bits & UINT32_C(0x80000000);
	LANE_U32 is_nan = ~LANE(below32)(bits ^ sign, UINT32_C(0x7f800001));
	return (bits & ~is_nan) | (is_nan & UINT32_C(0x7fc00000)) | sign;
}

static LANE_FN LANE_U32 LANE(e4m3_to_f32)(LANE_U32 x)
{
	LANE_U32 magnitude = (x & UINT32_C(0x7f)) << 20, sign = (x & UINT32_C(0x80)) << 24;
	LANE_U32 normal = magnitude + UINT32_C(0x3c000000);
	LANE_U32 subnormal = LANE_BITS32(LANE_FLOAT32(magnitude + UINT32_C(0x3c800000)) - 0x1p-6f);
	LANE_U32 nan = (magnitude & 0) + UINT32_C(0x7fc00000);
	normal = LANE(select32)(LANE(below32)(magnitude, UINT32_C(0x07f00000)), normal, nan);
	return LANE(select32)(LANE(below32)(magnitude, UINT32_C(0x00800000)), subnormal, normal) | sign;
}

/* ---- From float32 ----------------------------------------------------------------------------------- */

/* Rounds a magnitude that is no NaN to a format with `bits` bits of fraction, and lowers its exponent by
 * `bias`. A value below `least` is subnormal in that format: it is rounded by adding `magic`, whose last bit
 * has the value of the format's smallest number. magic_bits holds the bits of magic. */
static LANE_FN LANE_U32 LANE(round_f32)(LANE_U32 magnitude, int bits, uint32_t bias, uint32_t least,
                                        float magic, uint32_t magic_bits)
{
	int lost = 23 - bits;
	LANE_U32 odd = (magnitude >> lost) & UINT32_C(1);
	LANE_U32 normal = ((magnitude + odd + ((UINT32_C(1) << (lost - 1)) - 1)) >> lost) - (bias << bits);
	LANE_U32 subnormal = LANE_BITS32(LANE_FLOAT32(magnitude) + magic) - magic_bits;
	return LANE(select32)(LANE(below32)(magnitude, least), subnormal, normal);
}

static LANE_FN LANE_U32 LANE(f32_is_nan)(LANE_U32 magnitude)
{
	return ~LANE(below32)(magnitude, UINT32_C(0x7f800001));
}

static LANE_FN LANE_U32 LANE(f32_to_f16)(LANE_U32 x, int clamp)
{
	LANE_U32 sign = (x >> 16) & UINT32_C(0x8000), magnitude = x & UINT32_C(0x7fffffff);
	LANE_U32 is_nan = LANE(f32_is_nan)(magnitude), payload = (magnitude >> 13) & UINT32_C(0x3ff);
	LANE_U32 nan = payload | UINT32_C(0x7c00) | (LANE_MASK32(payload == 0) & UINT32_C(1));
	if (clamp)
		magnitude = LANE(least32)(magnitude, UINT32_C(0x477fe000));
	LANE_U32 rounded =
	    LANE(round_f32)(magnitude, 10, 112, UINT32_C(0x38800000), 0x1p-1f, UINT32_C(0x3f000000));
	return LANE(select32)(is_nan, nan, LANE(least32)(rounded, UINT32_C(0x7c00))) | sign;
}

static LANE_FN LANE_U32 LANE(f32_to_bf16)(LANE_U32 x, int clamp)
{
	LANE_U32 sign = (x >> 16) & UINT32_C(0x8000), magnitude = x & UINT32_C(0x7fffffff);
	LANE_U32 is_nan = LANE(f32_is_nan)(magnitude);
	if (clamp)
		magnitude = LANE(least32)(magnitude, UINT32_C(0x7f7f0000));
	LANE_U32 odd = (magnitude >> 16) & UINT32_C(1);
	LANE_U32 rounded = (magnitude + odd + UINT32_C(0x7fff)) >> 16;
	return (rounded & ~is_nan) | (is_nan & UINT32_C(0x7fc0)) | sign;
}

static LANE_FN LANE_U32 LANE(f32_to_e5m2)(LANE_U32 x, int clamp)
{
	LANE_U32 sign = (x >> 24) & UINT32_C(0x80), magnitude = x & UINT32_C(0x7fffffff);
	LANE_U32 is_nan = LANE(f32_is_nan)(magnitude);
	if (clamp)
		magnitude = LANE(least32)(magnitude, UINT32_C(0x47600000));
	LANE_U32 rounded =
	    LANE(round_f32)(magnitude, 2, 112, UINT32_C(0x38800000), 0x1p7f, UINT32_C(0x43000000));
	return (LANE(least32)(rounded, UINT32_C(0x7c)) & ~is_nan) | (is_nan & UINT32_C(0x7e)) | sign;
}

static LANE_FN LANE_U32 LANE(f32_to_e4m3)(LANE_U32 x, int clamp)
{
	LANE_U32 sign = (x >> 24) & UINT32_C(0x80), magnitude = x & UINT32_C(0x7fffffff);
	LANE_U32 is_nan = LANE(f32_is_nan)(magnitude);
	if (clamp)
		magnitude = LANE(least32)(magnitude, UINT32_C(0x43e00000));
	LANE_U32 rounded =
	    LANE(round_f32)(magnitude, 3, 120, UINT32_C(0x3c800000), 0x1p14f, UINT32_C(0x46800000));
	return LANE(select32)(is_nan, (magnitude & 0) + UINT32_C(0x7f),
	                      LANE(least32)(rounded, UINT32_C(0x7f))) |
	       sign;
}

static LANE_FN LANE_U32 LANE(f32_to_f32)(LANE_U32 x, int clamp)
{
	LANE_U32 sign = x & UINT32_C(0x80000000), magnitude = x & UINT32_C(0x7fffffff);
	if (!clamp)
		return x;
	return LANE(select32)(LANE(f32_is_nan)(magnitude), x,
	                      LANE(least32)(magnitude, UINT32_C(0x7f7fffff)) | sign);
}

/* ---- Between float32 and integers of up to 16 bits -------------------------------------------------- */

/* Rounds towards zero and clamps to [low, high]. NaN becomes 0. */
static LANE_FN LANE_I32 LANE(f32_to_int)(LANE_F32 x, float low, float high)
{
	LANE_U32 bits = LANE_BITS32(x) & LANE_MASK32(x == x);
	LANE_U32 is_low = LANE_MASK32(LANE_FLOAT32(bits) < low),
		 is_high = LANE_MASK32(LANE_FLOAT32(bits) > high);
	LANE_I32 inside = LANE_AS(LANE_I32, LANE_FLOAT32(bits & ~(is_low | is_high)));
	return (LANE_I32)((LANE_U32)inside | (is_low & (uint32_t)(int32_t)low) |
	                  (is_high & (uint32_t)(int32_t)high));
}

/* ---- Between float64 and the others ----------------------------------------------------------------- */

#ifdef LANE_F64

/* Rounds to odd: towards zero, and then sets the last bit if anything was lost. A result that is rounded
 * again, to a format with at least two bits less, is the same as if it had been rounded once. (S. Boldo, G.
 * Melquiond: Emulation of a FMA and correctly rounded sums, IEEE Transactions on Computers 57(4), 2008.) A
 * NaN becomes quiet. */
static LANE_FN LANE_U32 LANE(f64_to_odd_f32)(LANE_F64 x)
{
	LANE_F32 nearest = LANE_AS(LANE_F32, x);
	LANE_F64 back = LANE_AS(LANE_F64, nearest);
	LANE_U64 sign = LANE_BITS64(x) & (UINT64_C(1) << 63);
	LANE_U64 is_larger =
	    LANE_MASK64((LANE_I64)(LANE_BITS64(back) ^ sign) > (LANE_I64)(LANE_BITS64(x) ^ sign));
	LANE_U64 is_smaller =
	    LANE_MASK64((LANE_I64)(LANE_BITS64(back) ^ sign) < (LANE_I64)(LANE_BITS64(x) ^ sign));
	LANE_U32 bits = LANE_BITS32(nearest);
	LANE_U32 is_even = (bits & UINT32_C(1)) - UINT32_C(1); /* all ones if the last bit is 0 */
	LANE_U32 is_number = ~LANE(f32_is_nan)(bits & UINT32_C(0x7fffffff));
	LANE_U32 change = (LANE_AS(LANE_U32, is_larger) & UINT32_C(0xffffffff)) |
	                  (LANE_AS(LANE_U32, is_smaller) & UINT32_C(1));
	return bits + (change & is_even & is_number);
}

/* Rounds 64-bit integers to odd, so that float64 can hold them: those that need more than its 53 bits lose
 * their last 11 bits. The formats to which they are rounded after that have far fewer bits, so that the
 * result is the same as if they had been rounded once. `above` holds the bits from the 53rd on, which are at
 * most 11; it is 0 if x needs no rounding. */
static LANE_FN LANE_U64 LANE(whole_to_odd)(LANE_U64 x, LANE_U64 above)
{
	LANE_U64 lost = (0 - above) >> 53; /* the low 11 bits, or none */
	return (x | ((x & lost) + lost)) & ~lost;
}

static LANE_FN LANE_U64 LANE(u64_to_odd)(LANE_U64 x)
{
	return LANE(whole_to_odd)(x, x >> 53);
}

static LANE_FN LANE_U64 LANE(i64_to_odd)(LANE_U64 x)
{
	return LANE(whole_to_odd)(x, (x + (UINT64_C(1) << 53)) >> 54);
}

static LANE_FN LANE_U32 LANE(f64_to_f32)(LANE_F64 x, int clamp)
{
	return LANE(f32_to_f32)(LANE_BITS32(LANE_AS(LANE_F32, x)), clamp);
}

static LANE_FN LANE_U64 LANE(f64_to_f64)(LANE_F64 x, int clamp)
{
	LANE_U64 bits = LANE_BITS64(x), sign = bits & (UINT64_C(1) << 63), magnitude = bits ^ sign;
	LANE_U64 is_infinite = LANE_MASK64(magnitude == UINT64_C(0x7ff0000000000000));
	return clamp ? bits - (is_infinite & UINT64_C(1)) : bits;
}

/* Converts float16 to float64 without rounding, and keeps a NaN's payload. */
static LANE_FN LANE_U64 LANE(f16_to_f64)(LANE_U64 x)
{
	LANE_U64 magnitude = (x & UINT64_C(0x7fff)) << 42, sign = (x & UINT64_C(0x8000)) << 48;
	LANE_U64 is_special = LANE_MASK64((LANE_I64)magnitude >= INT64_C(0x01f0000000000000));
	LANE_U64 is_subnormal = LANE_MASK64((LANE_I64)magnitude < INT64_C(0x0010000000000000));
	LANE_U64 normal =
	    magnitude + UINT64_C(0x3f00000000000000) + (is_special & UINT64_C(0x3f00000000000000));
	LANE_U64 subnormal = LANE_BITS64(LANE_FLOAT64(magnitude + UINT64_C(0x3f10000000000000)) - 0x1p-14);
	return (subnormal & is_subnormal) | (normal & ~is_subnormal) | sign;
}

/* Rounds towards zero and clamps to [low, high], which are whole numbers. NaN becomes 0. */
static LANE_FN LANE_I64 LANE(f64_to_int)(LANE_F64 x, double low, double high)
{
	LANE_U64 bits = LANE_BITS64(x) & LANE_MASK64(x == x);
	LANE_U64 is_low = LANE_MASK64(LANE_FLOAT64(bits) < low),
		 is_high = LANE_MASK64(LANE_FLOAT64(bits) > high);
	LANE_I64 inside = LANE_AS(LANE_I64, LANE_FLOAT64(bits & ~(is_low | is_high)));
	return (LANE_I64)((LANE_U64)inside | (is_low & (uint64_t)(int64_t)low) |
	                  (is_high & (uint64_t)(int64_t)high));
}

static LANE_FN LANE_I64 LANE(f64_to_i64)(LANE_F64 x)
{
	LANE_U64 is_high = LANE_MASK64(x >= 0x1p63);
	LANE_I64 inside =
	    LANE(f64_to_int)(LANE_FLOAT64(LANE_BITS64(x) & ~is_high), -0x1p63, 0x1.fffffffffffffp62);
	return (LANE_I64)((LANE_U64)inside | (is_high & (uint64_t)INT64_MAX));
}

static LANE_FN LANE_U64 LANE(f64_to_u64)(LANE_F64 x)
{
	LANE_U64 is_high = LANE_MASK64(x >= 0x1p64), is_half = LANE_MASK64(x >= 0x1p63);
	LANE_F64 lower = x - LANE_FLOAT64(is_half & UINT64_C(0x43e0000000000000));
	LANE_I64 inside = LANE(f64_to_int)(lower, 0, 0x1.fffffffffffffp62);
	return ((LANE_U64)inside + (is_half & (UINT64_C(1) << 63))) | is_high;
}

#endif

#undef LANE
#undef LANE_U32
#undef LANE_I32
#undef LANE_F32
#undef LANE_U64
#undef LANE_I64
#undef LANE_F64
