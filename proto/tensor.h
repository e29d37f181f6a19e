/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and layouts of tensors, and the only place where extents are computed.
 *
 * Shapes are outermost first. Strides are in elements and may be zero or negative. All products and sums are
 * checked in 64 bits before anything is narrowed: the byte offsets of a layout that tensor_layout_init has
 * accepted fit into an int64_t.
 */
#ifndef PROTO_TENSOR_H
#define PROTO_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define TENSOR_MAX_RANK    32
#define TENSOR_MAX_ELEMENT 16 /* bytes of the largest element */

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

/* Selects what fills the border of a padded tensor, with NumPy's meaning. */
enum pad_mode {
	PAD_MODE_CONSTANT,
	PAD_MODE_EDGE,
	PAD_MODE_REFLECT,
	PAD_MODE_SYMMETRIC,
	PAD_MODE_WRAP,
	PAD_MODE_COUNT
};

/* Selects how a conversion treats values that the destination's type does not have. */
enum cast {
	CAST_SATURATE, /* rounds, and clamps to the finite range; NaN stays NaN, and becomes the integer 0 */
	CAST_EXACT,    /* fails if there are any */
	CAST_IEEE,     /* rounds, possibly to infinity; integers that become integers keep their low bits */
	CAST_COUNT
};

/* Names in messages, indexed by the enum. None is NULL. */
extern const char *const dtype_names[DTYPE_COUNT];
extern const char *const pad_mode_names[PAD_MODE_COUNT];
extern const char *const cast_names[CAST_COUNT];

uint32_t dtype_size(enum dtype dtype); /* Returns the bytes of an element. */
enum dtype_class dtype_class(enum dtype dtype);

/* A tensor without memory. stride[] is always set: C order if the tensor gave no strides. */
struct tensor_layout {
	enum dtype dtype;
	int rank; /* 0..TENSOR_MAX_RANK */
	int64_t shape[TENSOR_MAX_RANK];
	int64_t stride[TENSOR_MAX_RANK]; /* in elements */
};

/* The bytes that a layout occupies, [low, high), relative to the first byte of element [0, ..., 0]. low <= 0.
 * Both are 0 if the tensor has no elements. */
struct tensor_extent {
	int64_t low;
	int64_t high;
};

/* Sets *ret from shape[rank] and strides[rank]; strides is NULL for C order. Returns 0, or INVALID_ARGUMENT
 * if rank exceeds TENSOR_MAX_RANK, an extent is negative, or the number of elements or a byte offset does not
 * fit into 63 bits; *ret is then unchanged. name is what err calls the tensor ("src"). */
int tensor_layout_init(struct tensor_layout *ret, enum dtype dtype, int64_t rank, const int64_t *shape,
                       const int64_t *strides, const char *name, struct error *err);

/* Returns the number of elements, which is 1 for rank 0. */
int64_t tensor_count(const struct tensor_layout *layout);

struct tensor_extent tensor_extent(const struct tensor_layout *layout);

/* Returns 0 if the extent, placed at offset, lies in [0, size) bytes, otherwise OUT_OF_RANGE with err, which
 * calls the tensor `name`. */
int tensor_check_range(struct tensor_extent extent, uint64_t offset, uint64_t size, const char *name,
                       struct error *err);

/* Writes the shape, such as "[64, 56, 56, 256]", and returns text. If it does not fit, it ends in "...". */
char *tensor_shape_text(int rank, const int64_t *shape, char *text, size_t text_size);

#endif
