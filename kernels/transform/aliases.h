/* SPDX-License-Identifier: Apache-2.0 */
/* Memories that consist of several allocations, some of which another memory may have too, in another place.
 * Whether two tensors share bytes then depends on which allocations they touch. */
#ifndef KERNELS_TRANSFORM_ALIASES_H
#define KERNELS_TRANSFORM_ALIASES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocation in a memory. */
struct memory_chunk {
	uintptr_t id; /* the same in every memory that has the allocation */
	uint64_t at;  /* its first byte in the memory */
	uint64_t size;
};

/* All of a memory, each allocation once. */
struct memory_chunks {
	atomic_bool shared; /* another memory has, or had, some of them */
	uint32_t n;
	struct memory_chunk *by_place; /* ascending by at, without gaps */
	struct memory_chunk *by_id;    /* the same, ascending by id */
};

/* Fills by_id from by_place; false: an allocation is there twice, and *ret is where it is the second time. */
bool memory_chunks_sort(struct memory_chunks *chunks, uint64_t *ret);

/* Bytes of a memory. */
struct memory_range {
	const struct memory_chunks *chunks; /* NULL: none that any other memory has */
	uint64_t low;
	uint64_t high;
};

/* How many allocations the range touches, and which is the first, by place. */
uint32_t memory_range_touched(const struct memory_range *range, uint32_t *ret_first);

/* NULL: the memory does not have that allocation. */
const struct memory_chunk *memory_chunks_find(const struct memory_chunks *chunks, uintptr_t id);

enum alias {
	ALIAS_NONE, /* the ranges share no byte */
	ALIAS_ONE,  /* byte x of a's memory is byte x + *ret_shift of b's, wherever both are in the ranges */
	ALIAS_SOME, /* the same, but only in some allocations; in others these are different bytes */
	ALIAS_MANY, /* they share bytes in several ways */
};

/* Of ranges in two different memories. It takes steps (overlap_steps): a few for each allocation that the
 * range with fewer of them touches, and never more than the two memories have allocations. */
enum alias alias_between(const struct memory_range *a, const struct memory_range *b, __int128 *ret_shift);

#endif
