/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor vocabulary: element types, layouts, and the one place where extents are computed.
 *
 * Shapes are outermost first. Strides are in elements and may be zero or negative. Every product and sum
 * is checked in 64 bits here, before anything is narrowed; code above may rely on a layout that
 * tensor_layout_init accepted to have byte offsets that fit an int64_t.
 */
#ifndef PROTO_TENSOR_H
#define PROTO_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define TENSOR_MAX_RANK    32
#define TENSOR_MAX_ELEMENT 16 /* bytes */

enum dtype {
#define DTYPE(NAME, name, size, class) DTYPE_##NAME,
#include "dtype.def"
	DTYPE_COUNT
};

enum dtype_class {
	DTYPE_CLASS_BOOLEAN,
	DTYPE_CLASS_UNSIGNED,
	DTYPE_CLASS_SIGNED,
	DTYPE_CLASS_FLOATING,
	DTYPE_CLASS_COMPLEX,
};

/* The mode says what fills the border of a padded tensor, with NumPy's meaning. */
enum pad_mode {
	PAD_MODE_CONSTANT,
	PAD_MODE_EDGE,
	PAD_MODE_REFLECT,
	PAD_MODE_SYMMETRIC,
	PAD_MODE_WRAP,
	PAD_MODE_COUNT
};

/* The cast says what becomes of values that the destination's type does not have. */
enum cast {
	CAST_SATURATE, /* rounded, and clamped to what is finite; NaN stays NaN, and becomes the integer 0 */
	CAST_EXACT,    /* there must be none */
	CAST_IEEE,     /* rounded, to infinity too; integers that become integers keep their low bits */
	CAST_COUNT
};

/* Names as they travel, indexed by the enum; NULL-free, *_COUNT long. */
extern const char *const dtype_names[DTYPE_COUNT];
extern const char *const pad_mode_names[PAD_MODE_COUNT];
extern const char *const cast_names[CAST_COUNT];

uint32_t dtype_size(enum dtype dtype); /* bytes */
enum dtype_class dtype_class(enum dtype dtype);

/* A layout is a view without memory. stride[] is always filled (C order when none was given). */
struct tensor_layout {
	enum dtype dtype;
	int rank; /* 0..TENSOR_MAX_RANK */
	int64_t shape[TENSOR_MAX_RANK];
	int64_t stride[TENSOR_MAX_RANK]; /* elements */
};

/* Bytes a layout touches, relative to the byte of its element [0, ..., 0]: [low, high), low <= 0.
 * Both are 0 when the tensor has no element. */
struct tensor_extent {
	int64_t low;
	int64_t high;
};

/* Fills *ret from shape[rank] and strides[rank] (NULL: C order). Refuses a rank over TENSOR_MAX_RANK, a
 * negative extent, and any layout whose element count or byte offsets overflow 63 bits, with
 * INVALID_ARGUMENT; name is what err calls the tensor ("src"). *ret is untouched on failure. */
int tensor_layout_init(struct tensor_layout *ret, enum dtype dtype, int64_t rank, const int64_t *shape,
                       const int64_t *strides, const char *name, struct error *err);

/* Returns the number of elements; 1 for rank 0. */
int64_t tensor_count(const struct tensor_layout *layout);

struct tensor_extent tensor_extent(const struct tensor_layout *layout);

/* Returns 0 when the extent, placed at offset bytes, lies in [0, size), else OUT_OF_RANGE, naming the tensor.
 */
int tensor_check_range(struct tensor_extent extent, uint64_t offset, uint64_t size, const char *name,
                       struct error *err);

/* Writes "[64, 56, 56, 256]" and returns text; cut with "..." when it does not fit. */
char *tensor_shape_text(int rank, const int64_t *shape, char *text, size_t text_size);

#endif
