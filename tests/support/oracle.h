/* SPDX-License-Identifier: Apache-2.0 */
/* The dumbest transform there is, and random transforms to try against it. Knows no subregion, loop nest or
 * engine.
 *
 * An oracle_case owns two pairs of buffers: the source, and the destination twice, once for the oracle and
 * once for what is tested. Each is guarded on both sides, and the destinations start out with the same
 * poison, so one comparison of the whole allocations finds a wrong element, a write into a gap between rows
 * and a write past the end.
 */
#ifndef TESTS_SUPPORT_ORACLE_H
#define TESTS_SUPPORT_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

#define ORACLE_GUARD     64    /* bytes on each side of a region, a multiple of every alignment */
#define ORACLE_MAX_BYTES 20000 /* of a tensor in a random case */

/* dst_origin and src_origin: where element [0, ..., 0] lies. The spec must be one that transform_init takes.
 */
void oracle_run(const struct transform_spec *spec, uint8_t *dst_origin, const uint8_t *src_origin);

/* The element of one index of the destination: how many bytes after element [0, ..., 0] it lies, and the one
 * it is read from in the source. false: it is the fill value. */
bool oracle_element(const struct transform_spec *spec, const int64_t *index, int64_t *ret_to,
                    int64_t *ret_from);

/* The source index that output index o of an axis reads, -1 for the fill value: source elements padded by
 * before. By walking from the nearest end, one step at a time. */
int64_t oracle_index(int64_t o, int64_t before, int64_t source, enum pad_mode mode);

struct oracle_case {
	uint64_t seed;
	struct transform_spec spec;
	uint64_t dst_offset; /* of element [0, ..., 0] in its region, bytes */
	uint64_t src_offset;
	size_t dst_size; /* bytes of the region */
	size_t src_size;

	/* By oracle_case_prepare. Regions start ORACLE_GUARD bytes into their allocation, 64-byte aligned. */
	uint8_t *src;
	uint8_t *dst;
	uint8_t *expected;
};

/* A transform that must be accepted, decided by the seed alone: rank 0 to 6 (now and then to 32 with unit
 * dimensions), every dtype and mode, permutations, pads also larger than the source, crops, reversed,
 * repeated and gapped strides, bases that are not aligned, empty dimensions. */
void oracle_random_case(uint64_t seed, struct oracle_case *ret);

/* The same of a source and a destination of these types, for conversions, whose members the caller sets. */
void oracle_random_case_of(uint64_t seed, enum dtype dst, enum dtype src, struct oracle_case *ret);

/* Allocates and fills the buffers and runs the oracle into expected; false when out of memory. */
bool oracle_case_prepare(struct oracle_case *c);

/* The same without the oracle. */
bool oracle_case_allocate(struct oracle_case *c);

/* Whether the tested destination, guards and gaps included, is as expected; else writes the first
 * difference and the case to text. */
bool oracle_case_check(const struct oracle_case *c, char *text, size_t text_size);

/* The case in one line, as a person would write it. */
void oracle_case_text(const struct oracle_case *c, char *text, size_t text_size);

/* Frees the buffers; a case that was never prepared but is zero-initialised or from oracle_random_case is
 * fine. */
void oracle_case_free(struct oracle_case *c);

static inline uint8_t *oracle_dst(const struct oracle_case *c)
{
	return c->dst + ORACLE_GUARD; /* the region's first byte */
}

static inline const uint8_t *oracle_src(const struct oracle_case *c)
{
	return c->src + ORACLE_GUARD;
}

/* A small generator, for tests that need more of the same kind of chance. */
uint64_t oracle_random(uint64_t *state);
int64_t oracle_between(uint64_t *state, int64_t low, int64_t high); /* both included */

#endif
