/* SPDX-License-Identifier: Apache-2.0 */
/* A transform implemented in the simplest way, and random transforms to compare with it. It knows neither
 * subregions nor loop nests nor engines.
 *
 * An oracle_case owns a source buffer and two destination buffers, one for the oracle and one for the code
 * under test. Each has guard bytes on both sides, and the destinations start with the same poison, so that a
 * single comparison of the whole allocations finds a wrong element, a write into a gap between rows, and a
 * write out of bounds.
 */
#ifndef TESTS_SUPPORT_ORACLE_H
#define TESTS_SUPPORT_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

#define ORACLE_GUARD     64    /* bytes on each side of a region; a multiple of every alignment */
#define ORACLE_MAX_BYTES 20000 /* most bytes of a tensor in a random case */

/* dst_origin and src_origin point to element [0, ..., 0]. transform_init must accept the spec. */
void oracle_run(const struct transform_spec *spec, uint8_t *dst_origin, const uint8_t *src_origin);

/* Computes how many bytes after element [0, ..., 0] the destination's element at index lies, and from which
 * source element it is read. Returns false if it is the fill value. */
bool oracle_element(const struct transform_spec *spec, const int64_t *index, int64_t *ret_to,
                    int64_t *ret_from);

/* Returns the source index that output index o of an axis reads, where the source has `source` elements and
 * is padded by before; -1 for the fill value. Walks from the nearest end one step at a time. */
int64_t oracle_index(int64_t o, int64_t before, int64_t source, enum pad_mode mode);

struct oracle_case {
	uint64_t seed;
	struct transform_spec spec;
	uint64_t dst_offset; /* offset of element [0, ..., 0] in its region, in bytes */
	uint64_t src_offset;
	size_t dst_size; /* size of the region in bytes */
	size_t src_size;

	/* The buffers are set by oracle_case_prepare. A region starts ORACLE_GUARD bytes into its allocation,
	 * which is 64-byte aligned. */
	uint8_t *src;
	uint8_t *dst;
	uint8_t *expected;
};

/* Draws a transform that must be accepted. The seed alone decides it: rank 0 to 6 (occasionally up to 32 with
 * unit dimensions), any dtype and mode, permutations, pads that may exceed the source, crops, reversed,
 * repeated and gapped strides, unaligned bases, empty dimensions. */
void oracle_random_case(uint64_t seed, struct oracle_case *ret);

/* Does the same for a source and a destination of these types. For conversions, whose further members the
 * caller sets. */
void oracle_random_case_of(uint64_t seed, enum dtype dst, enum dtype src, struct oracle_case *ret);

/* Allocates and fills the buffers and runs the oracle into expected. Returns false if out of memory. */
bool oracle_case_prepare(struct oracle_case *c);

/* Does the same without running the oracle. */
bool oracle_case_allocate(struct oracle_case *c);

/* Returns whether the tested destination is as expected, including guards and gaps. If not, writes the first
 * difference and the case to text. */
bool oracle_case_check(const struct oracle_case *c, char *text, size_t text_size);

/* Writes the case to text in one readable line. */
void oracle_case_text(const struct oracle_case *c, char *text, size_t text_size);

/* Frees the buffers. The case may be zero-initialized or one that was never prepared. */
void oracle_case_free(struct oracle_case *c);

static inline uint8_t *oracle_dst(const struct oracle_case *c)
{
	return c->dst + ORACLE_GUARD; /* first byte of the region */
}

static inline const uint8_t *oracle_src(const struct oracle_case *c)
{
	return c->src + ORACLE_GUARD;
}

/* A small random number generator for tests that draw further values. */
uint64_t oracle_random(uint64_t *state);
int64_t oracle_between(uint64_t *state, int64_t low, int64_t high); /* both bounds included */

#endif
