/* The input of the transform target: a transform_spec with its places, in few bytes, so that a change of one
 * byte is a change of one argument. Bytes that are missing read as nothing given. */
#ifndef TESTS_FUZZ_QUESTION_H
#define TESTS_FUZZ_QUESTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/plan/transform.h"
#include "proto/tensor.h"

struct question_tensor {
	uint8_t dtype; /* modulo DTYPE_COUNT */
	uint8_t rank;  /* modulo TENSOR_MAX_RANK + 1 */
	bool strided;
	int64_t shape[TENSOR_MAX_RANK];
	int64_t strides[TENSOR_MAX_RANK];
	int64_t offset;
	int64_t size; /* of the region */
};

struct question {
	uint8_t way;      /* that a small one is run */
	bool same_memory; /* both in one */
	struct question_tensor dst;
	struct question_tensor src;
	int n_perm;
	int n_before;
	int n_after;
	int64_t perm[TENSOR_MAX_RANK];
	int64_t before[TENSOR_MAX_RANK];
	int64_t after[TENSOR_MAX_RANK];
	uint8_t mode; /* modulo PAD_MODE_COUNT */
	struct scalar value;
};

void question_read(struct question *ret, const uint8_t *data, size_t size);

/* Returns the bytes; those that pass size are not written. */
size_t question_write(const struct question *question, uint8_t *data, size_t size);

/* One that has to be accepted. */
void question_valid(struct question *ret, uint64_t *random);

/* One argument becomes another. */
void question_change(struct question *question, uint64_t *random);

#endif
