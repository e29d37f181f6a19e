/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the conversion of elements to lanes and back: known values are right, and every instruction set gives
 * the same bits as plain C. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/isa/isa.h"
#include "tests/support/oracle.h"

#define MOST  2048 /* elements converted at a time */
#define GUARD 64

static char source[MOST * 8 + GUARD], one[MOST * 8 + 2 * GUARD], other[MOST * 8 + 2 * GUARD];
static _Alignas(CPU_LINE) char lanes[MOST * 8 + CPU_LINE];

/* ---- Known values ----------------------------------------------------------------------------------- */

/* Bits that a float32 is converted to, unclamped and clamped. */
struct known {
	const char *name;
	enum dtype to;
	float value;
	uint64_t as_is, clamped;
};

static const struct known known[] = {
	{ "halves go to even", DTYPE_FLOAT16, 0x1.002p0f, 0x3c00, 0x3c00 },
	{ "and up from odd", DTYPE_FLOAT16, 0x1.006p0f, 0x3c02, 0x3c02 },
	{ "the largest half", DTYPE_FLOAT16, 65504, 0x7bff, 0x7bff },
	{ "rounds down to it", DTYPE_FLOAT16, 65519.996f, 0x7bff, 0x7bff },
	{ "rounds past it", DTYPE_FLOAT16, 65520, 0x7c00, 0x7bff },
	{ "infinity", DTYPE_FLOAT16, -INFINITY, 0xfc00, 0xfbff },
	{ "the smallest half", DTYPE_FLOAT16, 0x1p-24f, 1, 1 },
	{ "half of it", DTYPE_FLOAT16, 0x1p-25f, 0, 0 },
	{ "a little more", DTYPE_FLOAT16, 0x1.000002p-25f, 1, 1 },
	{ "negative zero", DTYPE_FLOAT16, -0.0f, 0x8000, 0x8000 },
	{ "bfloat16 to even", DTYPE_BFLOAT16, 0x1.01p0f, 0x3f80, 0x3f80 },
	{ "the largest float32", DTYPE_BFLOAT16, 0x1.fffffep127f, 0x7f80, 0x7f7f },
	{ "a subnormal", DTYPE_BFLOAT16, 0x1p-133f, 1, 1 },
	{ "e4m3: the largest", DTYPE_FLOAT8_E4M3FN, 448, 0x7e, 0x7e },
	{ "e4m3: halfway to what is none", DTYPE_FLOAT8_E4M3FN, 464, 0x7e, 0x7e },
	{ "e4m3: past that", DTYPE_FLOAT8_E4M3FN, 464.5f, 0x7f, 0x7e },
	{ "e4m3: infinity", DTYPE_FLOAT8_E4M3FN, INFINITY, 0x7f, 0x7e },
	{ "e4m3: the smallest", DTYPE_FLOAT8_E4M3FN, -0x1p-9f, 0x81, 0x81 },
	{ "e4m3: half of it", DTYPE_FLOAT8_E4M3FN, 0x1p-10f, 0, 0 },
	{ "e5m2: rounds past the largest", DTYPE_FLOAT8_E5M2, 61440, 0x7c, 0x7b },
	{ "e5m2: the smallest", DTYPE_FLOAT8_E5M2, 0x1p-16f, 1, 1 },
	{ "float32 stays", DTYPE_FLOAT32, 1.5f, 0x3fc00000, 0x3fc00000 },
	{ "infinity as float32", DTYPE_FLOAT32, INFINITY, 0x7f800000, 0x7f7fffff },
	{ "towards zero", DTYPE_INT8, -1.99f, 0xff, 0xff },
	{ "below the range", DTYPE_INT8, -129, 0x80, 0x80 },
	{ "above it", DTYPE_UINT8, 256.5f, 0xff, 0xff },
	{ "negative", DTYPE_UINT16, -3, 0, 0 },
	{ "NaN is the integer 0", DTYPE_INT16, NAN, 0, 0 },
	{ "bool is what is not 0", DTYPE_BOOL, -0.25f, 1, 1 },
	{ "NaN is true", DTYPE_BOOL, NAN, 1, 1 },
	{ "zero is false", DTYPE_BOOL, -0.0f, 0, 0 },
};

static void check_known(const struct cpu_converters *c, const struct known *row, cpu_store_fn *store,
                        uint64_t wanted, const char *isa)
{
	uint64_t bits = 0;

	c->load[CPU_LANE_FLOAT32][DTYPE_FLOAT32](lanes, (const char *)&row->value, 1);
	store((char *)&bits, lanes, 1);
	cr_expect_eq(bits, wanted, "%s, %s: %#llx, not %#llx", isa, row->name, (unsigned long long)bits,
	             (unsigned long long)wanted);
}

Test(converters, known_values)
{
	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		for (size_t i = 0; isa && i < sizeof(known) / sizeof(known[0]); i++) {
			const struct known *row = &known[i];
			const struct cpu_converters *c = isa->converters;

			check_known(c, row, c->store[CPU_LANE_FLOAT32][row->to], row->as_is, isa->name);
			check_known(c, row, c->store_clamped[CPU_LANE_FLOAT32][row->to], row->clamped,
			            isa->name);
		}
	}
}

/* Results of 64-bit integers, which are rounded once. */
static const struct known_integer {
	const char *name;
	enum dtype from, to;
	uint64_t value, bits;
} known_integers[] = {
	{ "past a tie of float32", DTYPE_INT64, DTYPE_FLOAT32, 0x20000020000001, 0x5a000001 },
	{ "the tie", DTYPE_INT64, DTYPE_FLOAT32, 0x20000020000000, 0x5a000000 },
	{ "past one below zero", DTYPE_INT64, DTYPE_FLOAT32, -UINT64_C(0x20000020000001), 0xda000001 },
	{ "before one", DTYPE_INT64, DTYPE_FLOAT32, 0x4000003fffffffff, 0x5e800000 },
	{ "past the largest tie", DTYPE_UINT64, DTYPE_FLOAT32, 0xffffff8000000001, 0x5f800000 },
	{ "before it", DTYPE_UINT64, DTYPE_FLOAT32, 0xffffff7fffffffff, 0x5f7fffff },
	{ "past a tie of bfloat16", DTYPE_UINT64, DTYPE_BFLOAT16, 0x8080000000000001, 0x5f01 },
	{ "below 2^53", DTYPE_INT64, DTYPE_BFLOAT16, 0x10100000000001, 0x5981 },
	{ "the least", DTYPE_INT64, DTYPE_FLOAT32, UINT64_C(1) << 63, 0xdf000000 },
	{ "the largest", DTYPE_UINT64, DTYPE_BFLOAT16, UINT64_MAX, 0x5f80 },
};

Test(converters, integers_are_rounded_once)
{
	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		for (size_t i = 0; isa && i < sizeof(known_integers) / sizeof(known_integers[0]); i++) {
			const struct known_integer *row = &known_integers[i];
			const struct cpu_converters *c = isa->converters;
			uint64_t bits = 0;

			c->load_lossy[row->from](lanes, (const char *)&row->value, 1);
			c->store_clamped[CPU_LANE_FLOAT64][row->to]((char *)&bits, lanes, 1);
			cr_expect_eq(bits, row->bits, "%s, %s: %#llx, not %#llx", isa->name, row->name,
			             (unsigned long long)bits, (unsigned long long)row->bits);
		}
	}
}

/* ---- All instruction sets --------------------------------------------------------------------------- */

/* Fills the source with random bits, and with values at which a conversion's result changes. */
static void fill_source(enum dtype dtype, int64_t round, uint64_t *state)
{
	static const uint64_t edges[] = { 0,          1,          0x7bff,     0x7c00,     0x7c01,
		                          0x7e00,     0x7f80,     0x7f81,     0x7fc0,     0x3f800000,
		                          0x477fe000, 0x477ff000, 0x43e00000, 0x43e80000, 0x47600000,
		                          0x47700000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00001,
		                          0x33000000, 0x33000001, 0x4f000000, 0x5f000000, 0x5f800000 };
	static const double wide[] = { 0x1p63,
		                       -0x1p63,
		                       0x1p64,
		                       0x1.fffffffffffffp63,
		                       65519.999999,
		                       65520,
		                       464,
		                       448.1,
		                       2147483648.5,
		                       -2147483649.0,
		                       4294967295.7,
		                       0x1.01p0,
		                       0x1.0100000000001p0,
		                       1e300,
		                       0x1p-30 };
	const int64_t size = dtype_size(dtype);

	for (int64_t i = 0; i < MOST; i++) {
		uint64_t bits = oracle_random(state);

		if (size <= 2)
			bits = (uint64_t)(round * MOST + i);
		else if (i % 4 == 0)
			bits = edges[(uint64_t)i / 4 % (sizeof(edges) / sizeof(edges[0]))] |
			       (i % 8 ? 0 : UINT64_C(1) << (8 * size - 1));
		if (dtype == DTYPE_FLOAT64 && i % 4 == 1)
			memcpy(&bits, &wide[(uint64_t)i / 4 % (sizeof(wide) / sizeof(wide[0]))],
			       sizeof(bits));
		if (dtype == DTYPE_BOOL)
			bits &= 1;
		memcpy(source + i * size, &bits, (size_t)size);
	}
}

static void convert(const struct cpu_isa *isa, enum cpu_lane lane, bool clamps, bool is_lossy,
                    enum dtype from, enum dtype to, int64_t n, char *dst)
{
	const struct cpu_converters *c = isa->converters;

	memset(dst, 0xa5, MOST * 8 + 2 * GUARD);
	(is_lossy ? c->load_lossy[from] : c->load[lane][from])(lanes, source, n);
	(clamps ? c->store_clamped : c->store)[lane][to](dst + GUARD, lanes, n);
}

static void check_pair(const struct cpu_isa *isa, enum cpu_lane lane, enum dtype from, enum dtype to,
                       int64_t n)
{
	const bool has_lossy =
	    isa->converters->load_lossy[from] && (lane == CPU_LANE_FLOAT64) == (dtype_size(from) == 8);

	for (int way = 0; way < (has_lossy ? 4 : 2); way++) {
		const bool clamps = way % 2, is_lossy = way / 2;

		convert(cpu_isa_get(CPU_ISA_PLAIN), lane, clamps, is_lossy, from, to, n, one);
		convert(isa, lane, clamps, is_lossy, from, to, n, other);
		for (size_t i = 0; i < sizeof(one); i++)
			if (one[i] != other[i]) {
				cr_expect_fail("%s, lane %d, %s to %s%s%s, %lld elements: byte %zu",
				               isa->name, (int)lane, dtype_names[from], dtype_names[to],
				               clamps ? ", clamped" : "", is_lossy ? ", lossy" : "",
				               (long long)n, i - GUARD);
				return;
			}
		int64_t end = GUARD + n * dtype_size(to);
		cr_expect_eq(one[GUARD - 1], (char)0xa5, "before the first element");
		cr_expect_eq(one[end], (char)0xa5, "after the last element, %lld of %s", (long long)n,
		             dtype_names[to]);
	}
}

/* Types of 8 and 16 bits are tested with all of their values. */
Test(converters, all_instruction_sets_agree, .timeout = 120)
{
	uint64_t state = 11;

	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int from = 0; from < DTYPE_COMPLEX64; from++) {
			const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);
			int64_t rounds = dtype_size((enum dtype)from) == 2 ? 65536 / MOST : 1;

			for (int64_t round = 0; isa && round < rounds; round++) {
				fill_source((enum dtype)from, round, &state);
				for (int lane = 0; lane < CPU_LANES; lane++)
					for (int to = 0; to < DTYPE_COUNT; to++)
						if (isa->converters->load[lane][from] &&
						    isa->converters->store[lane][to])
							check_pair(isa, (enum cpu_lane)lane, (enum dtype)from,
							           (enum dtype)to, MOST);
			}
		}
}

Test(converters, any_number_of_elements)
{
	uint64_t state = 12;

	fill_source(DTYPE_FLOAT32, 0, &state);
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int64_t n = 1; n <= 70; n++) {
			const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

			if (!isa)
				continue;
			check_pair(isa, CPU_LANE_FLOAT32, DTYPE_FLOAT32, DTYPE_FLOAT8_E4M3FN, n);
			check_pair(isa, CPU_LANE_FLOAT32, DTYPE_FLOAT32, DTYPE_FLOAT16, n);
			check_pair(isa, CPU_LANE_FLOAT64, DTYPE_FLOAT32, DTYPE_INT64, n);
			check_pair(isa, CPU_LANE_INT64, DTYPE_UINT8, DTYPE_INT16, n);
		}
}

/* ---- Arithmetic ------------------------------------------------------------------------------------- */

/* The result of a * b by the arithmetic of the converters, all as bits. */
static const struct product {
	const char *name;
	uint32_t a, b, result;
	bool is_nan;
} products[] = {
	{ "numbers", 0x40000000, 0x40400000, 0x40c00000, false },
	{ "a NaN stays, and becomes quiet", 0x7f800123, 0x40000000, 0x7fc00123, true },
	{ "with its sign", 0xffc00001, 0xc0000000, 0xffc00001, true },
	{ "the second one's, if the first is a number", 0x3f800000, 0x7fa00005, 0x7fe00005, true },
	{ "the first one's, if both are", 0x7fc00001, 0xffc00002, 0x7fc00001, true },
	{ "one that is made is negative", 0x7f800000, 0x00000000, 0xffc00000, true },
	{ "of whatever signs", 0x80000000, 0xff800000, 0xffc00000, true },
};

Test(converters, products_are_the_same_everywhere)
{
	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		for (size_t i = 0; isa && i < sizeof(products) / sizeof(products[0]); i++) {
			const struct product *row = &products[i];
			_Alignas(CPU_LINE) uint32_t a[32] = { 0 }, b[32] = { 0 }, result[32] = { 0 };

			a[2] = row->a;
			b[2] = row->b;
			bool is_nan = isa->converters->multiply[CPU_LANE_FLOAT32](result, a, b, 3);
			cr_expect_eq(is_nan, row->is_nan, "%s, %s", isa->name, row->name);
			if (is_nan)
				isa->converters->mend[CPU_LANE_FLOAT32](result, a, b, 3);
			cr_expect_eq(result[2], row->result, "%s, %s: %#x, not %#x", isa->name, row->name,
			             result[2], row->result);
			cr_expect_eq(result[0], 0, "%s, %s: its neighbour", isa->name, row->name);
		}
	}
}
