/* SPDX-License-Identifier: Apache-2.0 */
/* Random transforms between views with split dimensions, and the dumbest way to do one: an index for each
 * element of the result, joined again on either side. Knows no part and no digit.
 *
 * Buffers and their guards are an oracle_case's, whose spec has the tensors as they are, and perm, before and
 * after of the views.
 */
#ifndef TESTS_SUPPORT_SPLIT_CASE_H
#define TESTS_SUPPORT_SPLIT_CASE_H

#include "kernels/transform/split.h"
#include "oracle.h"

struct split_case {
	struct oracle_case c;
	struct split_list dst, src;
};

/* One that must be accepted, decided by the seed alone: up to three split dimensions on either side, of up to
 * four levels, most of them ragged, either way round; other dimensions with pads and crops of every mode;
 * every dtype; strides that are reversed, repeated, or have gaps. */
void split_random_case(uint64_t seed, struct split_case *ret);

/* Allocates and fills the buffers and moves the elements into c.expected; false when out of memory. */
bool split_case_prepare(struct split_case *c);

/* dst_origin and src_origin: where element [0, ..., 0] lies. */
void split_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                      const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin);

/* What happens to an element of the destination: it lies `to` bytes after its element [0, ..., 0], and is
 * that
 * `*from` bytes after the source's; NULL: it is the fill value. index: in the permuted source, of what is
 * read. */
typedef void split_visit_fn(void *arg, int64_t to, const int64_t *from, const int64_t *index);

/* Visits all elements of the destination. */
void split_oracle_walk(const struct transform_spec *spec, const struct split_list *dst,
                       const struct split_list *src, split_visit_fn *visit, void *arg);

/* The case in one line. */
void split_case_text(const struct split_case *c, char *text, size_t text_size);

#endif
