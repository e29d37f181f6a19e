/* SPDX-License-Identifier: Apache-2.0 */
/* Random conversions, and a conversion in the simplest way: element by element (element.h), at the positions
 * that the transform's oracle computes. */
#ifndef TESTS_SUPPORT_CONVERSION_CASE_H
#define TESTS_SUPPORT_CONVERSION_CASE_H

#include "oracle.h"
#include "split_case.h"

#define CONVERSION_OPERAND_BYTES 65536 /* most bytes of an operand's region */

/* The value of scale or bias: a number, or a tensor whose element [0, ..., 0] is at origin. */
struct operand_source {
	double number;
	const uint8_t *origin;
};

struct operand_case {
	double number;
	uint64_t offset; /* offset of element [0, ..., 0] in its region, in bytes */
	size_t size;     /* size of the region in bytes; 0: there is no tensor */
	uint8_t *bytes;  /* set by conversion_case_prepare */
};

struct conversion_case {
	struct oracle_case c;
	struct operand_case scale, bias;
	uint64_t changed; /* number of elements that change value; set by conversion_case_prepare */
};

/* Draws a conversion that must be accepted. The seed alone decides it: any type but complex ones to any
 * other, all casts, scalar operands and tensor operands that broadcast and have strides of every kind, and
 * otherwise as in oracle_random_case. */
void conversion_random_case(uint64_t seed, struct conversion_case *ret);

/* These correspond to the functions of oracle_case, except that a tested destination may hold other NaNs. */
bool conversion_case_prepare(struct conversion_case *c);
bool conversion_case_check(const struct conversion_case *c, char *text, size_t text_size);
void conversion_case_text(const struct conversion_case *c, char *text, size_t text_size);
void conversion_case_free(struct conversion_case *c);

/* Returns where element [0, ..., 0] of an operand lies. */
struct operand_source operand_case_source(const struct operand_case *operand);

/* Converts with splits, which may be empty lists. Returns how many elements changed value. */
uint64_t conversion_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                               const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin,
                               const struct operand_source *scale, const struct operand_source *bias);

/* Copies acceptable NaNs of `got` to the expected destination, because the oracle does not determine NaN
 * payloads. A type with a single NaN must have that one, and without operands the sign must be the
 * source's. */
void conversion_oracle_accept(const struct transform_spec *spec, const struct split_list *dst,
                              const struct split_list *src, uint8_t *expected_origin,
                              const uint8_t *got_origin);

#endif
