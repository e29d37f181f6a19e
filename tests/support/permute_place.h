/* SPDX-License-Identifier: Apache-2.0 */
/* Computes where a tile of several axes lies from its arguments (kernels/cuda/strategy/permute_args.h) alone:
 * its place in the grid, its loads, its rows, and their elements in shared memory. It evaluates each number
 * directly, without the kernels' tables and masks. */
#ifndef TESTS_SUPPORT_PERMUTE_PLACE_H
#define TESTS_SUPPORT_PERMUTE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"

/* A tile. Its indexes are indexes of the destination, counted from the start of the margin. */
struct permute_place {
	int64_t number;
	int64_t dst, src;
	int64_t start_dst, n_dst, start_src, n_src, start_stack, n_stack;
	int64_t from_dst, from_src;
	int64_t margin, base, row_base, load_bytes;
	bool first, last, outside;
};

/* dst and src are the addresses of the tensors' elements [0, ..., 0]. */
struct permute_place permute_place_of(const struct tma_route_plan *tma, int64_t dst, int64_t src,
                                      int64_t number);

/* Returns the offset of a load's slot within one index of the stack. */
int64_t permute_slot_of(const struct permute_args *args, int64_t load);

/* Returns the address where a load begins, or -1 if the tile does not have that load. */
int64_t permute_load_of(const struct permute_args *args, const struct permute_place *t, int64_t number);

/* Returns where the load of that number and address begins, as an offset from the first slot. */
int64_t permute_in_slots(const struct permute_args *args, int64_t number, int64_t src);

struct permute_row {
	int64_t dst; /* address of the row in the destination */
	int64_t at;  /* offset of the row's first element from the first slot; undefined for border */
	int64_t bytes;
	bool border;
};

struct permute_row permute_row_of(const struct permute_args *args, const struct permute_place *t,
                                  int64_t number);

/* Returns the offset of an element from the start of its row in shared memory, or -1 for border. */
int64_t permute_element_of(const struct permute_args *args, const struct permute_place *t, int64_t number);

#endif
