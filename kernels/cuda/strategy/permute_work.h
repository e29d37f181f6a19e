/* SPDX-License-Identifier: Apache-2.0 */
/* A tile while it is being worked out: what permute_tile.c (the box, its loads and their slots) and
 * permute_rows.c (its rows) and permute_squares.c (what those by squares need) share. Internal to these.
 */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_WORK_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_WORK_H

#include "permute_plan.h"

struct permute_work {
	struct permute_tile *tile;
	struct permute_args *args; /* the tile's */
	struct loop_nest *nest;    /* likewise */
	const struct permute_sides *sides;
	const struct permute_box *box;
	struct permute_chain dst; /* the runs of the box */
	struct permute_chain src;
	struct permute_chain stack; /* the dimensions of neither; split: one of which the box has a part */
	uint64_t n[TENSOR_MAX_RANK + 1]; /* extents of the box, with the margin */
	uint64_t m[TENSOR_MAX_RANK + 1]; /* of these indices, how many the source has at most */
	uint64_t load_run;               /* bytes from the first of a load to its last */

	int row_dims;       /* of the destination's chain; those that follow step from row to row */
	int last;           /* the outermost of them */
	uint64_t row_align; /* bytes, up to a sector */
	uint64_t rows;      /* so far */
	uint64_t span;      /* bytes from the start of the first row to that of the last, so far */
	bool padded_row[PERMUTE_LIST_RANK];
};

static inline bool is_padded(const struct loop_nest_dim *dim)
{
	return dim->source != dim->n;
}

/* Appends a dimension of which there are so many indices. false: the list is full. */
bool permute_add_axis(struct permute_axis *list, uint32_t *n, uint64_t indices,
                      const struct loop_nest_dim *dim);

/* Where a row ends, and whether it needs a margin: before the loads, which bring the margin. */
bool permute_cut_rows(struct permute_work *work);

/* What steps from row to row, and from element to element within one. */
bool permute_set_rows(struct permute_work *work);

/* SQUARES: ends a run before a dimension that the other side's run has, too. */
void permute_separate_runs(struct permute_work *work);

/* false: the tile does not consist of squares. */
bool permute_set_squares(struct permute_work *work);

/* SQUARES: load_lines and row_lines of the tile. */
void permute_count_lines(struct permute_work *work);

/* What args->how needs in addition; false: the rows do not suit it. */
bool permute_set_how(struct permute_work *work);

#endif
