/* One table. Of each kind there is what is known to work beside what is not. */
#include "conformance_beyond.h"

#define HUGE (UINT64_C(1) << 32)

/* 16 rows of 64 floats, tiles of 4 rows of 16; slices of 16 bytes and of 32. */
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
		    .dim = { 6, 9, 5 },                        \
		    .stride = { 96, 864 },                     \
		    .box = { 3, 4, 1 },                        \
		    .element_stride = { 1, 1, 1 },             \
		    .interleave = TENSOR_MAP_INTERLEAVE_16B }, \
	.at = { __VA_ARGS__ }
#define SLICES_32(...)                                       \
	.layout = { .type = TENSOR_MAP_FLOAT16,              \
		    .rank = 3,                               \
		    .dim = { 6, 9, 5 },                      \
		    .stride = { 192, 1728 },                 \
		    .box = { 3, 4, 1 },                      \
		    .element_stride = { 1, 1, 1 },           \
		    .interleave = TENSOR_MAP_INTERLEAVE_32B, \
		    .swizzle = TENSOR_MAP_SWIZZLE_32B },     \
	.at = { __VA_ARGS__ }

/* Rows of 16 floats that are 64 bytes apart, whatever the dimensions' lengths. */
#define LONG(n0, n1)                            \
	.layout = { .type = TENSOR_MAP_FLOAT32, \
		    .rank = 2,                  \
		    .dim = { n0, n1 },          \
		    .stride = { 64 },           \
		    .box = { 16, 4 },           \
		    .element_stride = { 1, 1 } }

/* Slices with element strides, in a box that they divide (1) or do not. */
#define STEPS(b0, b1, b2, s0, s1, s2)                        \
	.layout = { .type = TENSOR_MAP_UINT32,               \
		    .rank = 3,                               \
		    .dim = { 72, 8, 46 },                    \
		    .stride = { 2304, 18464 },               \
		    .box = { b0, b1, b2 },                   \
		    .element_stride = { s0, s1, s2 },        \
		    .interleave = TENSOR_MAP_INTERLEAVE_32B, \
		    .swizzle = TENSOR_MAP_SWIZZLE_32B }

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
	{ "dimension 0 of 2^32 - 4: load", FEATURE_LOAD, { LONG(HUGE - 4, 16) } },
	{ "dimension 0 of 2^32: load", FEATURE_LOAD, { LONG(HUGE, 16) } },
	{ "dimension 0 of 2^32: store", FEATURE_STORE, { LONG(HUGE, 16) } },
	{ "dimension 1 of 2^32 - 1: load", FEATURE_LOAD, { LONG(16, HUGE - 1) } },
	{ "dimension 1 of 2^32: load", FEATURE_LOAD, { LONG(16, HUGE) } },
	{ "dimension 1 of 2^32: store", FEATURE_STORE, { LONG(16, HUGE) } },
	{ "element strides 1,1,1 of slices", FEATURE_LOAD, { STEPS(33, 1, 6, 1, 1, 1) } },
	{ "element strides 8,1,1, which divide the box", FEATURE_LOAD, { STEPS(32, 1, 6, 8, 1, 1) } },
	{ "element strides 8,1,1, which do not", FEATURE_LOAD, { STEPS(33, 1, 6, 8, 1, 1) } },
	{ "element strides 1,7,1 of a box of 16", FEATURE_LOAD, { STEPS(33, 16, 6, 1, 7, 1) } },
	{ "element strides 1,7,1 of a box of 1", FEATURE_LOAD, { STEPS(33, 1, 6, 1, 7, 1) } },
	{ "element strides 1,1,4 of a box of 6", FEATURE_LOAD, { STEPS(33, 1, 6, 1, 1, 4) } },
	{ "element strides 1,1,4 of a box of 8", FEATURE_LOAD, { STEPS(33, 1, 8, 1, 1, 4) } },
	{ "a box of 16 groups, element strides 1,1,1", FEATURE_LOAD, { STEPS(33, 16, 6, 1, 1, 1) } },
	{ "element strides 8,7,4", FEATURE_LOAD, { STEPS(33, 16, 6, 8, 7, 4) } },
};

const int beyond_count = sizeof beyond_rows / sizeof *beyond_rows;
