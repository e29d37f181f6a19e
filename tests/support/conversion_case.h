/* SPDX-License-Identifier: Apache-2.0 */
/* Random conversions, and the dumbest way to do one: element by element (element.h), wherever the transform's
 * oracle says that they lie. */
#ifndef TESTS_SUPPORT_CONVERSION_CASE_H
#define TESTS_SUPPORT_CONVERSION_CASE_H

#include "oracle.h"
#include "split_case.h"

#define CONVERSION_OPERAND_BYTES 65536 /* of a region of an operand, at most */

/* What scale or bias is: a number, or a tensor whose element [0, ..., 0] lies at origin. */
struct operand_source {
	double number;
	const uint8_t *origin;
};

struct operand_case {
	double number;
	uint64_t offset; /* of element [0, ..., 0] in its region, bytes */
	size_t size;     /* bytes of the region; 0: there is no tensor */
	uint8_t *bytes;  /* by conversion_case_prepare */
};

struct conversion_case {
	struct oracle_case c;
	struct operand_case scale, bias;
	uint64_t changed; /* by conversion_case_prepare: elements whose values are others */
};

/* A conversion that must be accepted, decided by the seed alone: every type but complex ones to every other,
 * all casts, numbers and tensors that broadcast and have strides of every kind, and the rest as in
 * oracle_random_case. */
void conversion_random_case(uint64_t seed, struct conversion_case *ret);

/* As the functions of oracle_case; the destination of a case that has been tried may have other NaNs. */
bool conversion_case_prepare(struct conversion_case *c);
bool conversion_case_check(const struct conversion_case *c, char *text, size_t text_size);
void conversion_case_text(const struct conversion_case *c, char *text, size_t text_size);
void conversion_case_free(struct conversion_case *c);

/* Where element [0, ..., 0] of an operand lies. */
struct operand_source operand_case_source(const struct operand_case *operand);

/* Converts with splits, which may be empty lists; gives how many values changed. */
uint64_t conversion_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                               const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin,
                               const struct operand_source *scale, const struct operand_source *bias);

/* Takes over NaNs of `got` that are as they should be: what they carry is not the oracle's. Of a type with
 * one NaN, it must be that; and without operands, its sign the source's. */
void conversion_oracle_accept(const struct transform_spec *spec, const struct split_list *dst,
                              const struct split_list *src, uint8_t *expected_origin,
                              const uint8_t *got_origin);

#endif
