/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the transform target: a transform_spec with its places, in few bytes, so that a change of one
 * byte is a change of one argument. Bytes that are missing read as nothing given. */
#ifndef TESTS_FUZZ_QUESTION_H
#define TESTS_FUZZ_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/transform/split.h"
#include "proto/tensor.h"

struct transform_request_tensor {
	uint8_t dtype; /* modulo DTYPE_COUNT */
	uint8_t rank;  /* modulo TENSOR_MAX_RANK + 1 */
	bool strided;
	int64_t shape[TENSOR_MAX_RANK];
	int64_t strides[TENSOR_MAX_RANK];
	int64_t offset;
	int64_t size; /* of the region */
	struct split_list split;
};

/* scale or bias, in a memory of its own. */
struct transform_request_operand {
	uint8_t kind;   /* modulo 3: enum operand_kind */
	int64_t number; /* the bits of a double; or small, and in eighths */
	struct transform_request_tensor
	    tensor; /* of float64, else of float32; its size is that of the memory */
};

struct transform_request {
	uint8_t way;      /* that a small one is run */
	bool same_memory; /* both in one */
	struct transform_request_tensor dst;
	struct transform_request_tensor src;
	int n_perm;
	int n_before;
	int n_after;
	int64_t perm[TENSOR_MAX_RANK];
	int64_t before[TENSOR_MAX_RANK];
	int64_t after[TENSOR_MAX_RANK];
	uint8_t mode; /* modulo PAD_MODE_COUNT */
	struct scalar value;
	uint8_t cast; /* modulo 1 + CAST_COUNT: none, or one more than enum cast */
	struct transform_request_operand scale, bias;
};

void transform_request_read(struct transform_request *ret, const uint8_t *data, size_t size);

/* Returns the bytes; those that pass size are not written. */
size_t transform_request_write(const struct transform_request *request, uint8_t *data, size_t size);

/* One that has to be accepted. */
void transform_request_valid(struct transform_request *ret, uint64_t *random);

/* The same, with splits; half of them convert by numbers. */
void transform_request_valid_split(struct transform_request *ret, uint64_t *random);

/* The same, with a conversion. */
void transform_request_valid_conversion(struct transform_request *ret, uint64_t *random);

double transform_request_number(const struct transform_request_operand *operand);

/* One argument becomes another. */
void transform_request_change(struct transform_request *request, uint64_t *random);

#endif
