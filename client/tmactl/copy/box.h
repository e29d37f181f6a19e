/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: the parts into which a view is cut because it is too large to hold in memory, and which are moved
 * one at a time.
 *
 * Each output axis is cut into pieces, and a box is the product of one piece of each axis. The source indices
 * of a piece advance by one step (1, -1, or 0 if one element is repeated), so that a box is a plain strided
 * copy around which the service adds padding. A run is a contiguous range of bytes in a file. The source part
 * of a box is read in runs, which are packed one after the other; the output part is written in runs. Boxes
 * are shaped so that the runs of both sides are long.
 */
#ifndef CLIENT_TMACTL_COPY_BOX_H
#define CLIENT_TMACTL_COPY_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "view.h"

#define BOX_MAX_RANK (TMA_MAX_RANK + 1)

/* A piece of one axis. Indices and lengths count elements. */
struct box_piece {
	int64_t dst; /* output range [dst, dst + len) */
	int64_t len;
	int64_t src; /* source range [src, src + src_len) that is read */
	int64_t src_len;
	int64_t before; /* border that the service adds before the source range */
	int64_t after;  /* border that the service adds after it */
	int step;       /* 1: forward; -1: the source range in reverse; 0: its only element is repeated */
};

/* The pieces of one axis, in the output's order. */
struct box_pieces {
	uint64_t n;
	struct box_piece *v; /* NULL: all have one length, and box_get() computes each from its index */
	uint64_t cap;        /* entries allocated in v */
};

/* The division of a view into boxes. Owns the pieces. It does not change after box_plan_init(), so any thread
 * may read it. */
struct box_plan {
	const struct view *view;
	int64_t limit[BOX_MAX_RANK]; /* greatest length of a piece of each axis */
	int src_order[BOX_MAX_RANK]; /* axes by ascending stride in the source file */
	struct box_pieces axis[BOX_MAX_RANK];
	uint64_t n_boxes;
	uint64_t dst_bytes;   /* bytes of the largest box's output */
	uint64_t src_bytes;   /* bytes of the largest box's source, packed */
	uint64_t scale_bytes; /* bytes of the largest box's scales */
};

/* The runs of a box in one file. In memory they are packed one after the other. */
struct box_runs {
	uint64_t offset; /* byte of the first run, in the source file or after the output's header */
	uint64_t bytes;  /* bytes of a run */
	uint64_t count;  /* runs; 0: nothing is read or written */
	int rank;        /* axes along which the runs are repeated, outermost first */
	int64_t n[BOX_MAX_RANK];
	int64_t stride[BOX_MAX_RANK]; /* bytes in the file */
};

struct box {
	struct box_piece piece[BOX_MAX_RANK];
	struct box_runs src;
	struct box_runs dst;
	struct box_runs scale;            /* runs in the file of scales; count is 0 if none are computed */
	int64_t src_stride[BOX_MAX_RANK]; /* bytes in the packed source, with the sign of the piece's step */
	uint64_t src_start;               /* byte of the packed source that the first output element reads */
	bool is_missing;                  /* the output ends before this box, so it is not moved */
};

/* Cuts the view into boxes whose source, output and scales take at most slot_bytes together. A box has at
 * least one element, or one block if scales are computed, and may then exceed slot_bytes. The view must
 * outlive the plan. */
int box_plan_init(struct box_plan *ret, const struct view *view, uint64_t slot_bytes, struct failure *f);
void box_plan_deinit(struct box_plan *plan);

/* Sets *ret to box i of n_boxes, in the output's order. */
void box_get(const struct box_plan *plan, uint64_t i, struct box *ret);

/* box_plan_reads_on() returns whether no box reads bytes before the end of the previous box's, and
 * box_plan_writes_on() whether each box writes one run that begins where the previous box's ended. A pipe can
 * then be read or written without spooling it. */
bool box_plan_reads_on(const struct box_plan *plan);
bool box_plan_writes_on(const struct box_plan *plan);

/* ---- For box.c: incomplete last blocks ---------------------------------------------------------------- */

/* Appends a piece. Returns 0, or -1 if it runs out of memory. */
int box_piece_add(struct box_pieces *pieces, struct box_piece piece);

/* Cuts the axes of ragged dimensions (view_rest) so that each box lies before the dimension's end or past it.
 * Returns 0, or -1 if it runs out of memory. */
int box_cut_rests(struct box_plan *plan);

/* Corrects a box, whose pieces must be set, where dimensions are ragged: if the source ends before the box,
 * all that it would read becomes border; if the output ends before the box, is_missing is set. */
void box_leave_out(const struct view *view, struct box *box);

/* ---- Runs --------------------------------------------------------------------------------------------- */

/* Advances to the next run and updates its offset in the file. Before the first call, position is all zeros
 * and *offset is runs->offset. Returns false after the last run. */
static inline int box_runs_next(const struct box_runs *runs, int64_t *position, uint64_t *offset)
{
	for (int d = runs->rank - 1; d >= 0; d--) {
		*offset += (uint64_t)runs->stride[d];
		if (++position[d] < runs->n[d])
			return 1;
		*offset -= (uint64_t)(runs->stride[d] * runs->n[d]);
		position[d] = 0;
	}
	return 0;
}

#endif
