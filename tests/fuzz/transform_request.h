/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the transform target: a transform_spec with its places in a compact encoding, so that changing
 * one byte changes one argument. Missing bytes mean that an argument is not given. */
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
	int64_t size; /* bytes of the region */
	struct split_list split;
};

/* The scale or bias operand, in memory of its own. */
struct transform_request_operand {
	uint8_t kind;   /* modulo 3: enum operand_kind */
	int64_t number; /* bits of a double, or a small number in eighths */
	struct transform_request_tensor
	    tensor; /* of type float64, or else float32; its size is that of the memory */
};

struct transform_request {
	uint8_t way;      /* how a small transform is run */
	bool same_memory; /* both tensors lie in one memory */
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
	uint8_t cast; /* modulo 1 + CAST_COUNT: 0 is no cast, otherwise one more than enum cast */
	struct transform_request_operand scale, bias;
};

void transform_request_read(struct transform_request *ret, const uint8_t *data, size_t size);

/* Returns the bytes of the encoding. Bytes beyond size are not written. */
size_t transform_request_write(const struct transform_request *request, uint8_t *data, size_t size);

/* Makes a request that has to be accepted. */
void transform_request_valid(struct transform_request *ret, uint64_t *random);

/* Does the same with split dimensions; half of these convert with scalar operands. */
void transform_request_valid_split(struct transform_request *ret, uint64_t *random);

/* Does the same with a conversion. */
void transform_request_valid_conversion(struct transform_request *ret, uint64_t *random);

double transform_request_number(const struct transform_request_operand *operand);

/* Changes one argument. */
void transform_request_change(struct transform_request *request, uint64_t *random);

#endif
