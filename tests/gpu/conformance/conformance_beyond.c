/* SPDX-License-Identifier: Apache-2.0 */
/* A table of cases. For each kind it has a case known to work beside those that do not. */
#include "conformance_beyond.h"

#define HUGE (UINT64_C(1) << 32)

/* 16 rows of 64 floats with tiles of 4 rows of 16; slices of 16 bytes and of 32. */
#define FLAT(...)                                 \
	.layout = { .type = TENSOR_MAP_FLOAT32,   \
		    .rank = 2,                    \
		    .dim = { 64, 16 },            \
		    .stride = { 256 },            \
		    .box = { 16, 4 },             \
		    .element_stride = { 1, 1 } }, \
	.at = { __VA_ARGS__ }
#define BYTES(...)                                \
	.layout = { .type = TENSOR_MAP_UINT8,     \
		    .rank = 2,                    \
		    .dim = { 256, 16 },           \
		    .stride = { 256 },            \
		    .box = { 64, 4 },             \
		    .element_stride = { 1, 1 } }, \
	.at = { __VA_ARGS__ }
#define SLICES_16(...)                                         \
	.layout = { .type = TENSOR_MAP_FLOAT16,                \
		    .rank = 3,                                 \
		    .dim = { 16, 9, 5 },                       \
		    .stride = { 256, 2304 },                   \
		    .box = { 8, 4, 1 },                        \
		    .element_stride = { 1, 1, 1 },             \
		    .interleave = TENSOR_MAP_INTERLEAVE_16B }, \
	.at = { __VA_ARGS__ }
#define SLICES_32(...)                                       \
	.layout = { .type = TENSOR_MAP_FLOAT16,              \
		    .rank = 3,                               \
		    .dim = { 16, 9, 5 },                     \
		    .stride = { 512, 4608 },                 \
		    .box = { 8, 4, 1 },                      \
		    .element_stride = { 1, 1, 1 },           \
		    .interleave = TENSOR_MAP_INTERLEAVE_32B, \
		    .swizzle = TENSOR_MAP_SWIZZLE_32B },     \
	.at = { __VA_ARGS__ }

/* Rows of 16 floats that are 64 bytes apart, whatever the lengths of the dimensions. */
#define LONG(n0, n1)                            \
	.layout = { .type = TENSOR_MAP_FLOAT32, \
		    .rank = 2,                  \
		    .dim = { n0, n1 },          \
		    .stride = { 64 },           \
		    .box = { 16, 4 },           \
		    .element_stride = { 1, 1 } }

/* Slices with an inner box of this many elements. */
#define INNER(type_, b0, interleave_, swizzle_)    \
	.layout = { .type = type_,                 \
		    .rank = 3,                     \
		    .dim = { 72, 8, 46 },          \
		    .stride = { 2304, 18432 },     \
		    .box = { b0, 1, 6 },           \
		    .element_stride = { 1, 1, 1 }, \
		    .interleave = interleave_,     \
		    .swizzle = swizzle_ }

const struct beyond beyond_rows[] = {
	{ "load from 16 bytes in", FEATURE_LOAD, { FLAT(4, 2) } },
	{ "load from 4 bytes in", FEATURE_LOAD, { FLAT(1, 2) } },
	{ "load from 8 bytes in", FEATURE_LOAD, { FLAT(2, 2) } },
	{ "load from 4 bytes before", FEATURE_LOAD, { FLAT(-1, 2) } },
	{ "load of bytes from 8 in", FEATURE_LOAD, { BYTES(8, 2) } },
	{ "store to 16 bytes in", FEATURE_STORE, { FLAT(4, 2) } },
	{ "store to 4 bytes in", FEATURE_STORE, { FLAT(1, 2) } },
	{ "store of bytes to 8 in", FEATURE_STORE, { BYTES(8, 2) } },
	{ "store to 16 bytes before", FEATURE_STORE, { FLAT(-4, 2) } },
	{ "store to a row before", FEATURE_STORE, { FLAT(0, -1) } },
	{ "store to 4 rows before, outside", FEATURE_STORE, { FLAT(0, -4) } },
	{ "store past the end, outside", FEATURE_STORE, { FLAT(64, 16) } },
	{ "interleave 16B: load from a slice before", FEATURE_LOAD, { SLICES_16(-1, 2, 1) } },
	{ "interleave 16B: load from a row before", FEATURE_LOAD, { SLICES_16(1, -2, 1) } },
	{ "interleave 16B: store to a slice before", FEATURE_STORE, { SLICES_16(-1, 2, 1) } },
	{ "interleave 16B: store to a row before", FEATURE_STORE, { SLICES_16(1, -2, 1) } },
	{ "interleave 32B: load from a slice before", FEATURE_LOAD, { SLICES_32(-1, 2, 1) } },
	{ "interleave 32B: store to a slice before", FEATURE_STORE, { SLICES_32(-1, 2, 1) } },
	{ "dimension 0 of 2^30 - 4: load", FEATURE_LOAD, { LONG(HUGE / 4 - 4, 16) } },
	{ "dimension 0 of 2^30: load", FEATURE_LOAD, { LONG(HUGE / 4, 16) } },
	{ "dimension 0 of 2^31 - 4: load", FEATURE_LOAD, { LONG(HUGE / 2 - 4, 16) } },
	{ "dimension 0 of 2^31: load", FEATURE_LOAD, { LONG(HUGE / 2, 16) } },
	{ "dimension 0 of 2^31 + 4: load", FEATURE_LOAD, { LONG(HUGE / 2 + 4, 16) } },
	{ "dimension 0 of 2^32 - 4: load", FEATURE_LOAD, { LONG(HUGE - 4, 16) } },
	{ "dimension 0 of 2^32: load", FEATURE_LOAD, { LONG(HUGE, 16) } },
	{ "dimension 0 of 2^32: store", FEATURE_STORE, { LONG(HUGE, 16) } },
	{ "dimension 1 of 2^30 - 1, the longest that is planned: load",
	  FEATURE_LOAD,
	  { LONG(16, HUGE / 4 - 1) } },
	{ "dimension 1 of 2^30 - 1, the longest that is planned: store",
	  FEATURE_STORE,
	  { LONG(16, HUGE / 4 - 1) } },
	{ "dimension 1 of 2^31 - 1: load", FEATURE_LOAD, { LONG(16, HUGE / 2 - 1) } },
	{ "dimension 1 of 2^31: load", FEATURE_LOAD, { LONG(16, HUGE / 2) } },
	{ "dimension 1 of 2^31 + 1: load", FEATURE_LOAD, { LONG(16, HUGE / 2 + 1) } },
	{ "dimension 1 of 2^32 - 1: load", FEATURE_LOAD, { LONG(16, HUGE - 1) } },
	{ "dimension 1 of 2^32: load", FEATURE_LOAD, { LONG(16, HUGE) } },
	{ "dimension 1 of 2^32: store", FEATURE_STORE, { LONG(16, HUGE) } },
	{ "interleave 16B: an inner box of 132 bytes",
	  FEATURE_LOAD,
	  { INNER(TENSOR_MAP_UINT32, 33, TENSOR_MAP_INTERLEAVE_16B, TENSOR_MAP_SWIZZLE_NONE) } },
	{ "interleave 16B: an inner box of 128 bytes",
	  FEATURE_LOAD,
	  { INNER(TENSOR_MAP_UINT32, 32, TENSOR_MAP_INTERLEAVE_16B, TENSOR_MAP_SWIZZLE_NONE) } },
	{ "interleave 32B: an inner box of 132 bytes",
	  FEATURE_LOAD,
	  { INNER(TENSOR_MAP_UINT32, 33, TENSOR_MAP_INTERLEAVE_32B, TENSOR_MAP_SWIZZLE_32B) } },
	{ "interleave 32B: an inner box of 128 bytes",
	  FEATURE_LOAD,
	  { INNER(TENSOR_MAP_UINT32, 32, TENSOR_MAP_INTERLEAVE_32B, TENSOR_MAP_SWIZZLE_32B) } },
	{ "interleave 16B: rows of 32 bytes, swizzle 128B",
	  FEATURE_LOAD,
	  { INNER(TENSOR_MAP_UINT64, 2, TENSOR_MAP_INTERLEAVE_16B, TENSOR_MAP_SWIZZLE_128B) } },
};

const int beyond_count = sizeof beyond_rows / sizeof *beyond_rows;
