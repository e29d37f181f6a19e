/* SPDX-License-Identifier: Apache-2.0 */
/* Random transforms between views with split dimensions, and such a transform in the simplest way: it takes
 * the index of each element of the result and joins its digits again on either side. It knows nothing of how
 * the engines divide the work. Buffers and their guards belong to an oracle_case, whose spec has the tensors
 * without splits, and perm, before and after of the views. */
#ifndef TESTS_SUPPORT_SPLIT_CASE_H
#define TESTS_SUPPORT_SPLIT_CASE_H

#include "kernels/transform/split.h"
#include "oracle.h"

struct split_case {
	struct oracle_case c;
	struct split_list dst, src;
};

/* Draws a transform that must be accepted. The seed alone decides it: up to three split dimensions on either
 * side, of up to four levels, mostly ragged, counted from either end; other dimensions with pads and crops of
 * every mode; every dtype; strides that are reversed, repeated, or have gaps. */
void split_random_case(uint64_t seed, struct split_case *ret);

/* Allocates and fills the buffers and moves the elements into c.expected. Returns false if out of memory. */
bool split_case_prepare(struct split_case *c);

/* dst_origin and src_origin point to element [0, ..., 0]. */
void split_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                      const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin);

/* Called for an element that lies `to` bytes after element [0, ..., 0] of the destination. It is read from
 * `*from` bytes after the source's element [0, ..., 0]; from is NULL if it is the fill value. index is the
 * index in the permuted source that is read. */
typedef void split_visit_fn(void *arg, int64_t to, const int64_t *from, const int64_t *index);

/* Visits all elements of the destination. */
void split_oracle_walk(const struct transform_spec *spec, const struct split_list *dst,
                       const struct split_list *src, split_visit_fn *visit, void *arg);

/* Writes the case to text in one line. */
void split_case_text(const struct split_case *c, char *text, size_t text_size);

#endif
