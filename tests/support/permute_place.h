/* SPDX-License-Identifier: Apache-2.0 */
/* Where a tile of many axes lies, by its arguments (kernels/cuda/strategy/permute_args.h) alone: its place in
 * the grid, its loads, its rows, and their elements in shared memory. One number after the other, with no
 * table and no mask.
 */
#ifndef TESTS_SUPPORT_PERMUTE_PLACE_H
#define TESTS_SUPPORT_PERMUTE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"

/* A tile; indices are of the destination and begin with the margin. */
struct permute_place {
	int64_t number;
	int64_t dst, src;
	int64_t start_dst, n_dst, start_src, n_src, start_stack, n_stack;
	int64_t from_dst, from_src;
	int64_t margin, base, row_base, load_bytes;
	bool first, last, outside;
};

/* dst and src: addresses of the tensors' elements [0, ..., 0]. */
struct permute_place permute_place_of(const struct tma_route_plan *tma, int64_t dst, int64_t src,
                                      int64_t number);

/* Offset of a load's slot, within an index of the stack. */
int64_t permute_slot_of(const struct permute_args *args, int64_t load);

/* The address where a load begins, or -1: the tile does not have it. */
int64_t permute_load_of(const struct permute_args *args, const struct permute_place *t, int64_t number);

/* Where load `number`, of this address, begins: an offset from the first slot. */
int64_t permute_in_slots(const struct permute_args *args, int64_t number, int64_t src);

struct permute_row {
	int64_t dst; /* address */
	int64_t at;  /* of its first element, from the first slot; undefined if it is border */
	int64_t bytes;
	bool border;
};

struct permute_row permute_row_of(const struct permute_args *args, const struct permute_place *t,
                                  int64_t number);

/* The offset of a row's element from the row's, or -1: border. */
int64_t permute_element_of(const struct permute_args *args, const struct permute_place *t, int64_t number);

#endif
