/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tensor maps: each rule on both sides of its bound, several broken rules at once, sizes, and keys. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "kernels/cuda/strategy/tensor_map.h"

#define MAX_SAID 8

/* Every row starts from this layout, which is legal and far from every bound. */
#define LEGAL                                                                                        \
	.type = TENSOR_MAP_FLOAT32, .rank = 3, .dim = { 1000, 600, 7 }, .stride = { 4000, 2400000 }, \
	.box = { 32, 16, 2 }, .element_stride = { 1, 1, 1 }

/* A legal layout with room for interleave 32B. */
#define INTERLEAVED                                                                                  \
	.type = TENSOR_MAP_FLOAT16, .rank = 3, .dim = { 1000, 600, 7 }, .stride = { 3200, 1920000 }, \
	.box = { 16, 16, 2 }, .element_stride = { 1, 1, 1 }

struct rule_row {
	char name[48];
	struct tensor_map_layout layout;
	uint64_t address;
	char said[MAX_SAID][112];
};

/* A row repeats a field of LEGAL to change it. */
#pragma GCC diagnostic push
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

static struct rule_row rule_rows[] = {
	{ "legal", { LEGAL }, 0x7f0000000010, { "" } },
	{ "no address yet", { LEGAL }, 0, { "" } },

	{ "type, one too many", { LEGAL, .type = TENSOR_MAP_TYPE_COUNT }, 0, { "type: 16 is not 0 to 15" } },
	{ "type, negative",
	  { LEGAL, .type = (enum tensor_map_type) - 1 },
	  0,
	  { "type: 4294967295 is not 0 to 15" } },

	{ "rank 0", { LEGAL, .rank = 0 }, 0, { "rank: 0 is not 1 to 5" } },
	{ "rank 1",
	  { .type = TENSOR_MAP_UINT8, .rank = 1, .dim = { 1 }, .box = { 16 }, .element_stride = { 1 } },
	  0,
	  { "" } },
	{ "rank 5",
	  { LEGAL, .rank = 5, .dim = { 8, 1, 1, 1, 1 }, .box = { 4, 1, 1, 1, 1 },
	    .element_stride = { 1, 1, 1, 1, 1 } },
	  0,
	  { "" } },
	{ "rank 6",
	  { LEGAL, .rank = 6, .dim = { 8, 1, 1, 1, 1 }, .box = { 4, 1, 1, 1, 1 },
	    .element_stride = { 1, 1, 1, 1, 1 } },
	  0,
	  { "rank: 6 is not 1 to 5" } },
	{ "rank 2 interleaved",
	  { LEGAL, .rank = 2, .interleave = TENSOR_MAP_INTERLEAVE_16B },
	  0,
	  { "rank: 2 is less than 3, with interleave" } },
	{ "rank 3 interleaved", { LEGAL, .interleave = TENSOR_MAP_INTERLEAVE_16B }, 16, { "" } },

	{ "address by 8", { LEGAL }, 0x7f0000000008, { "address: 0x7f0000000008 is not a multiple of 16" } },
	{ "address by 1", { LEGAL }, 0x1001, { "address: 0x1001 is not a multiple of 16" } },
	{ "address by 16, interleaved by 32",
	  { INTERLEAVED, .interleave = TENSOR_MAP_INTERLEAVE_32B, .swizzle = TENSOR_MAP_SWIZZLE_32B },
	  0x1010,
	  { "address: 0x1010 is not a multiple of 32" } },
	{ "address by 32, interleaved by 32",
	  { INTERLEAVED, .interleave = TENSOR_MAP_INTERLEAVE_32B, .swizzle = TENSOR_MAP_SWIZZLE_32B },
	  0x1020,
	  { "" } },

	{ "dim 0", { LEGAL, .dim = { 1000, 0, 7 } }, 0, { "dim[1]: 0 is not 1 to 4294967296" } },
	{ "dim 1", { LEGAL, .dim = { 1, 1, 1 } }, 0, { "" } },
	{ "dim 2^32", { LEGAL, .dim = { UINT64_C(1) << 32, 1, UINT64_C(1) << 32 } }, 0, { "" } },
	{ "dim 2^32 + 1",
	  { LEGAL, .dim = { (UINT64_C(1) << 32) + 1, 1, 1 } },
	  0,
	  { "dim[0]: 4294967297 is not 1 to 4294967296" } },

	{ "stride by 8",
	  { LEGAL, .stride = { 4008, 2400000 } },
	  0,
	  { "stride[0]: 4008 bytes is not a multiple of 16" } },
	{ "stride by 16, interleaved by 32",
	  { INTERLEAVED, .stride = { 3200, 1920016 }, .interleave = TENSOR_MAP_INTERLEAVE_32B,
	    .swizzle = TENSOR_MAP_SWIZZLE_32B },
	  0,
	  { "stride[1]: 1920016 bytes is not a multiple of 32" } },
	{ "stride 0 repeats", { LEGAL, .stride = { 4000, 0 } }, 0, { "" } },
	{ "rows overlap", { LEGAL, .stride = { 16, 32 } }, 0, { "" } },
	{ "stride below 2^40", { LEGAL, .stride = { 4000, (UINT64_C(1) << 40) - 16 } }, 0, { "" } },
	{ "stride 2^40",
	  { LEGAL, .stride = { 4000, UINT64_C(1) << 40 } },
	  0,
	  { "stride[1]: 1099511627776 bytes is not less than 1099511627776" } },
	{ "stride negative, seen as unsigned",
	  { LEGAL, .stride = { (uint64_t)-16, 0 } },
	  0,
	  { "stride[0]: 18446744073709551600 bytes is not less than 1099511627776" } },

	{ "box 0", { LEGAL, .box = { 0, 16, 2 } }, 0, { "box[0]: 0 is not 1 to 256" } },
	{ "box 256", { LEGAL, .box = { 256, 256, 256 } }, 0, { "" } },
	{ "box 257", { LEGAL, .box = { 32, 257, 2 } }, 0, { "box[1]: 257 is not 1 to 256" } },
	{ "inner box of 24 bytes",
	  { LEGAL, .box = { 6, 16, 2 } },
	  0,
	  { "box[0]: 24 bytes (6 of float32) is not a multiple of 16" } },
	{ "inner box of 24 bytes, interleaved",
	  { LEGAL, .box = { 6, 16, 2 }, .interleave = TENSOR_MAP_INTERLEAVE_16B },
	  0,
	  { "" } },
	{ "inner box of 16 bytes", { LEGAL, .box = { 4, 1, 1 } }, 0, { "" } },

	{ "element stride 0",
	  { LEGAL, .element_stride = { 1, 1, 0 } },
	  0,
	  { "element_stride[2]: 0 is not 1 to 8" } },
	{ "element stride 8", { LEGAL, .element_stride = { 1, 8, 8 } }, 0, { "" } },
	{ "element stride 9",
	  { LEGAL, .element_stride = { 9, 1, 1 } },
	  0,
	  { "element_stride[0]: 9 is not 1 to 8" } },

	{ "interleave, one too many",
	  { LEGAL, .interleave = TENSOR_MAP_INTERLEAVE_COUNT },
	  0,
	  { "interleave: 3 is not 0 to 2" } },
	{ "interleave 32B without its swizzle",
	  { INTERLEAVED, .interleave = TENSOR_MAP_INTERLEAVE_32B },
	  0,
	  { "swizzle: none is not 32B, with interleave 32B" } },
	{ "interleave 32B with a wider swizzle",
	  { INTERLEAVED, .interleave = TENSOR_MAP_INTERLEAVE_32B, .swizzle = TENSOR_MAP_SWIZZLE_64B },
	  0,
	  { "swizzle: 64B is not 32B, with interleave 32B" } },
	{ "interleave 16B with any swizzle",
	  { LEGAL, .interleave = TENSOR_MAP_INTERLEAVE_16B, .swizzle = TENSOR_MAP_SWIZZLE_128B },
	  0,
	  { "" } },

	{ "swizzle 32B, full", { LEGAL, .box = { 8, 16, 2 }, .swizzle = TENSOR_MAP_SWIZZLE_32B }, 0, { "" } },
	{ "swizzle 32B, 48 bytes",
	  { LEGAL, .box = { 12, 16, 2 }, .swizzle = TENSOR_MAP_SWIZZLE_32B },
	  0,
	  { "box[0]: 48 bytes (12 of float32) is more than 32, with swizzle 32B" } },
	{ "swizzle 64B, full",
	  { LEGAL, .box = { 16, 16, 2 }, .swizzle = TENSOR_MAP_SWIZZLE_64B },
	  0,
	  { "" } },
	{ "swizzle 64B, 80 bytes",
	  { LEGAL, .box = { 20, 16, 2 }, .swizzle = TENSOR_MAP_SWIZZLE_64B },
	  0,
	  { "box[0]: 80 bytes (20 of float32) is more than 64, with swizzle 64B" } },
	{ "swizzle 128B, full", { LEGAL, .swizzle = TENSOR_MAP_SWIZZLE_128B }, 0, { "" } },
	{ "swizzle 128B, 144 bytes",
	  { LEGAL, .box = { 36, 16, 2 }, .swizzle = TENSOR_MAP_SWIZZLE_128B },
	  0,
	  { "box[0]: 144 bytes (36 of float32) is more than 128, with swizzle 128B" } },
	{ "swizzle 32B, 256 bytes interleaved",
	  { INTERLEAVED, .box = { 128, 16, 2 }, .interleave = TENSOR_MAP_INTERLEAVE_32B,
	    .swizzle = TENSOR_MAP_SWIZZLE_32B },
	  0,
	  { "" } },
	{ "element stride 0 does not narrow the inner box",
	  { LEGAL, .box = { 64, 16, 2 }, .element_stride = { 2, 1, 1 }, .swizzle = TENSOR_MAP_SWIZZLE_128B },
	  0,
	  { "box[0]: 256 bytes (64 of float32) is more than 128, with swizzle 128B" } },
	{ "swizzle in atoms",
	  { LEGAL, .swizzle = TENSOR_MAP_SWIZZLE_128B_ATOM_32B },
	  0,
	  { "swizzle: 128B_atom_32B is not on sm_90" } },
	{ "swizzle in atoms, 144 bytes",
	  { LEGAL, .box = { 36, 1, 1 }, .swizzle = TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B },
	  0,
	  { "swizzle: 128B_atom_32B_flip_8B is not on sm_90",
	    "box[0]: 144 bytes (36 of float32) is more than 128, with swizzle 128B_atom_32B_flip_8B" } },
	{ "swizzle, one too many",
	  { LEGAL, .swizzle = TENSOR_MAP_SWIZZLE_COUNT },
	  0,
	  { "swizzle: 7 is not 0 to 6" } },

	{ "l2, the last", { LEGAL, .l2 = TENSOR_MAP_L2_256B }, 0, { "" } },
	{ "l2, one too many", { LEGAL, .l2 = (enum tensor_map_l2)4 }, 0, { "l2: 4 is not 0 to 3" } },

	{ "NaN for float32", { LEGAL, .fill = TENSOR_MAP_FILL_NAN }, 0, { "" } },
	{ "NaN for uint32",
	  { LEGAL, .type = TENSOR_MAP_UINT32, .fill = TENSOR_MAP_FILL_NAN },
	  0,
	  { "fill: NaN is not for uint32" } },
	{ "fill, one too many", { LEGAL, .fill = (enum tensor_map_fill)2 }, 0, { "fill: 2 is not 0 to 1" } },

	{ "packed by 8",
	  { LEGAL, .type = TENSOR_MAP_16U4_ALIGN8B, .dim = { 1001, 600, 7 }, .fill = TENSOR_MAP_FILL_NAN },
	  16,
	  { "type: 16u4_align8b is not on sm_90", "dim[0]: 1001 is not a multiple of 2, with 16u4_align8b",
	    "fill: NaN is not for 16u4_align8b" } },
	{ "packed by 16, in all",
	  { LEGAL, .type = TENSOR_MAP_16U4_ALIGN16B, .stride = { 4016, 2400000 },
	    .swizzle = TENSOR_MAP_SWIZZLE_128B_ATOM_64B },
	  0x1010,
	  { "type: 16u4_align16b is not on sm_90", "address: 0x1010 is not a multiple of 32",
	    "dim[0]: 1000 is not a multiple of 128, with 16u4_align16b",
	    "stride[0]: 4016 bytes is not a multiple of 32", "box[0]: 32 is not 128, with 16u4_align16b",
	    "swizzle: 128B_atom_64B is not on sm_90",
	    "swizzle: 128B_atom_64B does not go with 16u4_align16b" } },
	{ "packed by 16, in order",
	  { LEGAL, .type = TENSOR_MAP_16U6_ALIGN16B, .dim = { 1024, 1, 1 }, .box = { 128, 1, 1 } },
	  32,
	  { "type: 16u6_align16b is not on sm_90" } },
	{ "packed and interleaved",
	  { LEGAL, .type = TENSOR_MAP_16U6_ALIGN16B, .dim = { 1024, 1, 1 }, .box = { 128, 1, 1 },
	    .interleave = TENSOR_MAP_INTERLEAVE_16B, .swizzle = TENSOR_MAP_SWIZZLE_64B },
	  32,
	  { "type: 16u6_align16b is not on sm_90", "swizzle: 64B does not go with 16u6_align16b",
	    "interleave: 16B is not none, with 16u6_align16b" } },

	{ "a rule of each field, in their order",
	  { .type = TENSOR_MAP_INT64,
	    .rank = 2,
	    .dim = { 0, 5 },
	    .stride = { 40 },
	    .box = { 5, 1 },
	    .element_stride = { 1, 9 },
	    .interleave = TENSOR_MAP_INTERLEAVE_NONE,
	    .swizzle = TENSOR_MAP_SWIZZLE_32B,
	    .fill = TENSOR_MAP_FILL_NAN },
	  3,
	  { "address: 0x3 is not a multiple of 16", "dim[0]: 0 is not 1 to 4294967296",
	    "stride[0]: 40 bytes is not a multiple of 16",
	    "box[0]: 40 bytes (5 of int64) is not a multiple of 16", "element_stride[1]: 9 is not 1 to 8",
	    "box[0]: 40 bytes (5 of int64) is more than 32, with swizzle 32B",
	    "fill: NaN is not for int64" } },
};
#pragma GCC diagnostic pop

ParameterizedTestParameters(tensor_map, rules)
{
	return cr_make_param_array(struct rule_row, rule_rows, sizeof rule_rows / sizeof *rule_rows);
}

ParameterizedTest(struct rule_row *row, tensor_map, rules)
{
	struct tensor_map_rules rules = { .n = 99 };
	int n = 0;

	cr_expect_eq(tensor_map_check(&row->layout, row->address, &rules), rules.n, "%s: %d", row->name,
	             rules.n);
	for (; n < MAX_SAID && row->said[n][0]; n++) {
		cr_assert_gt(rules.n, n, "%s: not said: %s", row->name, row->said[n]);
		cr_expect_str_eq(rules.text[n], row->said[n], "%s: %s", row->name, rules.text[n]);
	}
	cr_assert_eq(rules.n, n, "%s: also said: %s", row->name, rules.text[n]);
}

/* As many rules as possible are broken at once. Each message fits, and so do all of them together. */
Test(tensor_map, the_worst_layouts)
{
	for (unsigned type = 0; type <= TENSOR_MAP_TYPE_COUNT; type++)
		for (unsigned interleave = 0; interleave <= TENSOR_MAP_INTERLEAVE_COUNT; interleave++)
			for (unsigned swizzle = 0; swizzle <= TENSOR_MAP_SWIZZLE_COUNT; swizzle++) {
				struct tensor_map_layout worst = {
					.type = type,
					.rank = UINT32_MAX,
					.interleave = interleave,
					.swizzle = swizzle,
					.l2 = UINT32_MAX,
					.fill = TENSOR_MAP_FILL_NAN,
				};
				struct tensor_map_rules rules;

				memset(worst.dim, 0xff, sizeof worst.dim);
				memset(worst.stride, 0xff, sizeof worst.stride);
				memset(worst.box, 0xff, sizeof worst.box);
				memset(worst.element_stride, 0xff, sizeof worst.element_stride);
				cr_assert_geq(tensor_map_check(&worst, UINT64_MAX, &rules), 26);
				cr_assert_leq(rules.n, TENSOR_MAP_MAX_RULES);
				for (int i = 0; i < rules.n; i++)
					cr_assert_lt(strlen(rules.text[i]), sizeof rules.text[i] - 1, "%s",
					             rules.text[i]);
			}
}

struct type_row {
	enum tensor_map_type type;
	char name[16];
	uint32_t size;
	bool nan; /* the type allows the NaN fill */
};

ParameterizedTestParameters(tensor_map, types)
{
	static struct type_row rows[] = {
		{ TENSOR_MAP_UINT8, "uint8", 1, false },
		{ TENSOR_MAP_UINT16, "uint16", 2, false },
		{ TENSOR_MAP_UINT32, "uint32", 4, false },
		{ TENSOR_MAP_INT32, "int32", 4, false },
		{ TENSOR_MAP_UINT64, "uint64", 8, false },
		{ TENSOR_MAP_INT64, "int64", 8, false },
		{ TENSOR_MAP_FLOAT16, "float16", 2, true },
		{ TENSOR_MAP_FLOAT32, "float32", 4, true },
		{ TENSOR_MAP_FLOAT64, "float64", 8, true },
		{ TENSOR_MAP_BFLOAT16, "bfloat16", 2, true },
		{ TENSOR_MAP_FLOAT32_FTZ, "float32_ftz", 4, true },
		{ TENSOR_MAP_TFLOAT32, "tfloat32", 4, true },
		{ TENSOR_MAP_TFLOAT32_FTZ, "tfloat32_ftz", 4, true },
		{ TENSOR_MAP_16U4_ALIGN8B, "16u4_align8b", 0, false },
		{ TENSOR_MAP_16U4_ALIGN16B, "16u4_align16b", 0, false },
		{ TENSOR_MAP_16U6_ALIGN16B, "16u6_align16b", 0, false },
	};

	return cr_make_param_array(struct type_row, rows, sizeof rows / sizeof *rows);
}

/* Inner boxes of 16 and of 128 bytes are legal. Boxes of 16 bytes and one element, and of 144 bytes, are
 * not. */
ParameterizedTest(struct type_row *row, tensor_map, types)
{
	struct tensor_map_layout layout = { .type = row->type,
		                            .rank = 1,
		                            .dim = { 4096 },
		                            .element_stride = { 1 },
		                            .swizzle = TENSOR_MAP_SWIZZLE_128B };
	struct tensor_map_rules rules;

	cr_assert_str_eq(tensor_map_type_names[row->type], row->name);
	cr_assert_eq(tensor_map_type_size(row->type), row->size, "%s: size %u", row->name,
	             tensor_map_type_size(row->type));
	if (row->size == 0)
		return;

	layout.box[0] = 16 / row->size;
	cr_expect_eq(tensor_map_check(&layout, 0, &rules), 0, "%s: %s", row->name, rules.text[0]);
	cr_expect_eq(tensor_map_tile_bytes(&layout), 16, "%s", row->name);
	layout.box[0]++;
	cr_expect_eq(tensor_map_check(&layout, 0, &rules), 1, "%s", row->name);
	layout.box[0] = 128 / row->size;
	cr_expect_eq(tensor_map_check(&layout, 0, &rules), 0, "%s: %s", row->name, rules.text[0]);
	layout.box[0] = 144 / row->size;
	cr_expect_eq(tensor_map_check(&layout, 0, &rules), 1, "%s", row->name);
	layout.box[0] = 16 / row->size;
	layout.fill = TENSOR_MAP_FILL_NAN;
	cr_expect_eq(tensor_map_check(&layout, 0, &rules), row->nan ? 0 : 1, "%s", row->name);
}

Test(tensor_map, no_size_for_what_is_no_type)
{
	cr_assert_eq(tensor_map_type_size(TENSOR_MAP_TYPE_COUNT), 0);
	cr_assert_eq(tensor_map_type_size((enum tensor_map_type) - 1), 0);
}

struct tile_row {
	char name[48];
	uint32_t rank, box[5], element_stride[5];
	enum tensor_map_interleave interleave;
	enum tensor_map_swizzle swizzle;
	uint64_t bytes, span; /* of a float32 tile: bytes loaded, and bytes of shared memory that it takes */
};

ParameterizedTestParameters(tensor_map, tiles)
{
	static struct tile_row rows[] = {
		{ "a row", 1, { 4 }, { 1 }, 0, 0, 16, 16 },
		{ "a box", 3, { 32, 16, 2 }, { 1, 1, 1 }, 0, 0, 4096, 4096 },
		{ "every other row", 2, { 4, 16 }, { 1, 2 }, 0, 0, 128, 128 },
		{ "a part counts whole", 2, { 4, 17 }, { 1, 8 }, 0, 0, 48, 48 },
		{ "less than a step", 2, { 4, 3 }, { 1, 8 }, 0, 0, 16, 16 },
		{ "no step inside", 2, { 8, 2 }, { 2, 1 }, 0, 0, 64, 64 },
		{ "rows as wide as the swizzle",
		  2,
		  { 32, 9 },
		  { 1, 1 },
		  0,
		  TENSOR_MAP_SWIZZLE_128B,
		  1152,
		  1152 },
		{ "rows narrower than the swizzle",
		  2,
		  { 20, 9 },
		  { 1, 1 },
		  0,
		  TENSOR_MAP_SWIZZLE_128B,
		  720,
		  1152 },
		{ "narrow rows, 32B", 2, { 4, 3 }, { 1, 1 }, 0, TENSOR_MAP_SWIZZLE_32B, 48, 96 },
		{ "slices of 16", 3, { 6, 5, 3 }, { 1, 1, 1 }, TENSOR_MAP_INTERLEAVE_16B, 0, 288, 288 },
		{ "slices of 32",
		  3,
		  { 6, 5, 3 },
		  { 1, 1, 1 },
		  TENSOR_MAP_INTERLEAVE_32B,
		  TENSOR_MAP_SWIZZLE_32B,
		  576,
		  576 },
		{ "one slice of 16, swizzled",
		  3,
		  { 1, 5, 3 },
		  { 1, 1, 1 },
		  TENSOR_MAP_INTERLEAVE_16B,
		  TENSOR_MAP_SWIZZLE_64B,
		  48,
		  64 },
		{ "three slices of 16, swizzled",
		  3,
		  { 3, 5, 3 },
		  { 1, 1, 1 },
		  TENSOR_MAP_INTERLEAVE_16B,
		  TENSOR_MAP_SWIZZLE_32B,
		  144,
		  160 },
		{ "a step inside, interleaved",
		  3,
		  { 8, 5, 3 },
		  { 3, 1, 2 },
		  TENSOR_MAP_INTERLEAVE_16B,
		  0,
		  96,
		  96 },
		{ "rank 5, interleaved",
		  5,
		  { 2, 3, 5, 7, 11 },
		  { 1, 1, 1, 1, 1 },
		  TENSOR_MAP_INTERLEAVE_16B,
		  0,
		  32 * 3 * 5 * 11,
		  32 * 3 * 5 * 11 },
		{ "the largest",
		  5,
		  { 256, 256, 256, 256, 256 },
		  { 1, 1, 1, 1, 1 },
		  0,
		  0,
		  UINT64_C(4) << 40,
		  UINT64_C(4) << 40 },
	};

	return cr_make_param_array(struct tile_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct tile_row *row, tensor_map, tiles)
{
	struct tensor_map_layout layout = { .type = TENSOR_MAP_FLOAT32,
		                            .rank = row->rank,
		                            .interleave = row->interleave,
		                            .swizzle = row->swizzle };

	memcpy(layout.box, row->box, sizeof row->box);
	memcpy(layout.element_stride, row->element_stride, sizeof row->element_stride);
	cr_expect_eq(tensor_map_tile_bytes(&layout), row->bytes, "%s: %lu", row->name,
	             (unsigned long)tensor_map_tile_bytes(&layout));
	cr_expect_eq(tensor_map_tile_span(&layout), row->span, "%s: %lu", row->name,
	             (unsigned long)tensor_map_tile_span(&layout));
}

/* Each byte of a layout changes the key and the hash, and the seed changes the hash. */
Test(tensor_map, key)
{
	struct tensor_map_layout base = { LEGAL }, other = base;
	uint64_t hash = tensor_map_hash(&base, 1);

	cr_assert(tensor_map_equal(&base, &other));
	cr_assert_eq(tensor_map_hash(&other, 1), hash);
	cr_assert_neq(tensor_map_hash(&other, 2), hash);
	for (size_t i = 0; i < sizeof base; i++) {
		other = base;
		((unsigned char *)&other)[i] ^= 1;
		cr_expect(!tensor_map_equal(&base, &other), "byte %zu", i);
		cr_expect_neq(tensor_map_hash(&other, 1), hash, "byte %zu", i);
	}
}
