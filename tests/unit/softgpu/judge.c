/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the conformance run judges the driver's answer for a tensor map: which disagreements with the
 * model are known ones. */
#include "tests/gpu/conformance/conformance_judge.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define STEPS(type_, step, ...)                       \
	.layout = { .type = type_,                    \
		    .rank = 3,                        \
		    .dim = { 64, 64, 64 },            \
		    .stride = { 1024, 65536 },        \
		    .element_stride = { 1, 1, step }, \
		    __VA_ARGS__ }
#define LAYOUT(type, ...) STEPS(type, 1, __VA_ARGS__)
#define SLICES_16         .interleave = TENSOR_MAP_INTERLEAVE_16B
#define SLICES_32         .interleave = TENSOR_MAP_INTERLEAVE_32B

enum verdict { LEGAL, ILLEGAL, APART, KNOWN };

struct judge_row {
	char name[56];
	struct tensor_map_layout layout;
	CUresult result;
	enum verdict verdict;
	enum deviation deviation;
};

#define REFUSED CUDA_ERROR_INVALID_VALUE

static struct judge_row rows[] = {
	{ "taken", LAYOUT(TENSOR_MAP_FLOAT32, .box = { 16, 4, 1 }), 0, LEGAL, 0 },
	{ "refused for nothing", LAYOUT(TENSOR_MAP_FLOAT32, .box = { 16, 4, 1 }), REFUSED, APART, 0 },
	{ "refused for a ragged box", LAYOUT(TENSOR_MAP_FLOAT32, .box = { 15, 4, 1 }), REFUSED, ILLEGAL, 0 },
	{ "taken with a ragged box", LAYOUT(TENSOR_MAP_FLOAT32, .box = { 15, 4, 1 }), 0, APART, 0 },
	{ "16B: taken", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_16, .box = { 16, 4, 1 }), 0, LEGAL, 0 },
	{ "16B: refused for nothing", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_16, .box = { 16, 4, 1 }), REFUSED,
	  APART, 0 },
	{ "16B: refused for a ragged box", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_16, .box = { 15, 4, 1 }),
	  REFUSED, KNOWN, DEVIATION_SLICES },
	{ "16B: taken with a ragged box, as documented",
	  LAYOUT(TENSOR_MAP_FLOAT32, SLICES_16, .box = { 15, 4, 1 }), 0, LEGAL, 0 },
	{ "228 KiB refused", LAYOUT(TENSOR_MAP_FLOAT64, .box = { 48, 32, 19 }), REFUSED, APART, 0 },
	{ "more than 228 KiB refused", LAYOUT(TENSOR_MAP_FLOAT64, .box = { 48, 32, 20 }), REFUSED, KNOWN,
	  DEVIATION_LARGE },
	{ "more than 228 KiB taken", LAYOUT(TENSOR_MAP_FLOAT64, .box = { 48, 32, 20 }), 0, LEGAL, 0 },
	{ "less than 228 KiB by whole steps refused", STEPS(TENSOR_MAP_FLOAT64, 2, .box = { 48, 32, 39 }),
	  REFUSED, APART, 0 },
	{ "32B: refused without its swizzle", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_32, .box = { 16, 4, 1 }),
	  REFUSED, ILLEGAL, 0 },
	{ "32B: taken without its swizzle", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_32, .box = { 16, 4, 1 }), 0,
	  KNOWN, DEVIATION_SWIZZLE },
	{ "32B: taken with a swizzle of no sm_90",
	  LAYOUT(TENSOR_MAP_FLOAT32, SLICES_32, .box = { 16, 4, 1 },
	         .swizzle = TENSOR_MAP_SWIZZLE_128B_ATOM_32B),
	  0, APART, 0 },
	{ "32B: taken with another rule broken", LAYOUT(TENSOR_MAP_FLOAT32, SLICES_32, .box = { 16, 257, 1 }),
	  0, APART, 0 },
};

ParameterizedTestParameters(judge, verdicts)
{
	return cr_make_param_array(struct judge_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct judge_row *row, judge, verdicts)
{
	struct draw draw = { .layout = row->layout };
	struct judge judge = { 0 };
	bool moved = judge_map(&judge, &draw, 4096, row->result);

	cr_assert_eq(moved, row->verdict == LEGAL, "%s: to be moved %d", row->name, moved);
	cr_assert_eq(judge.legal, row->verdict == LEGAL, "%s", row->name);
	cr_assert_eq(judge.illegal, row->verdict == ILLEGAL, "%s", row->name);
	cr_assert_eq(judge.apart, row->verdict == APART, "%s", row->name);
	for (unsigned i = 0; i < DEVIATION_COUNT; i++)
		cr_assert_eq(judge.deviations[i], row->verdict == KNOWN && row->deviation == i,
		             "%s: deviation %u", row->name, i);
}
