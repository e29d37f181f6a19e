/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: a view too large to hold, cut into pieces that are moved one at a time.
 *
 * Each output axis is cut into pieces; a box takes one piece of each axis. A piece's source indices run by
 * one step (1, -1, or 0 for one element repeated), so that a box is a plain strided copy, with padding that
 * the service adds around it. The source part of a box is read from the file in runs and packed; the output
 * part is written in runs. Boxes are shaped so that the runs of both sides are long.
 */
#ifndef CLIENT_TMACTL_COPY_BOX_H
#define CLIENT_TMACTL_COPY_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "view.h"

#define BOX_MAX_RANK (TMA_MAX_RANK + 1)

struct box_piece {
	int64_t dst; /* output range [dst, dst + len) */
	int64_t len;
	int64_t src; /* source range [src, src + src_len) that is read */
	int64_t src_len;
	int64_t before; /* added by the service */
	int64_t after;
	int step; /* 1, -1: the range backwards, 0: its one element repeated */
};

struct box_pieces {
	uint64_t n;
	struct box_piece *v; /* NULL: each is found from its number */
	uint64_t cap;
};

struct box_plan {
	const struct view *view;
	int64_t limit[BOX_MAX_RANK]; /* longest piece of each axis */
	int src_order[BOX_MAX_RANK]; /* axes by file stride, the smallest first */
	struct box_pieces axis[BOX_MAX_RANK];
	uint64_t n_boxes;
	uint64_t dst_bytes;   /* of the largest box */
	uint64_t src_bytes;   /* of the largest box's source, packed */
	uint64_t scale_bytes; /* of the largest box's scales */
};

/* Runs of a file, and where they lie packed one after the other. */
struct box_runs {
	uint64_t offset; /* of the first run: source: in the file; output: after its header */
	uint64_t bytes;  /* of each run */
	uint64_t count;  /* runs; 0: nothing */
	int rank;        /* axes that tell the runs apart, outermost first */
	int64_t n[BOX_MAX_RANK];
	int64_t stride[BOX_MAX_RANK]; /* bytes in the file */
};

struct box {
	struct box_piece piece[BOX_MAX_RANK];
	struct box_runs src;
	struct box_runs dst;
	struct box_runs scale;            /* of the file of scales, if the view has blocks */
	int64_t src_stride[BOX_MAX_RANK]; /* bytes in the packed source, sign by step */
	uint64_t src_start;               /* byte of the packed source that the first output element reads */
	bool is_missing;                  /* it is past the end of what the output has */
};

/* Boxes whose source, output and scales together take at most slot_bytes; one element always fits, and so
 * does a block that has a scale, as it is not cut. The view must outlive the plan. */
int box_plan_init(struct box_plan *ret, const struct view *view, uint64_t slot_bytes, struct failure *f);
void box_plan_deinit(struct box_plan *plan);

/* Box i of n_boxes, in the output's order. */
void box_get(const struct box_plan *plan, uint64_t i, struct box *ret);

/* Whether box after box reads on where the one before has ended or later, and writes on where it has ended:
 * what has no places is moved without being kept. */
bool box_plan_reads_on(const struct box_plan *plan);
bool box_plan_writes_on(const struct box_plan *plan);

/* ---- For box.c: incomplete last blocks ---------------------------------------------------------------- */

/* -1: out of memory. */
int box_piece_add(struct box_pieces *pieces, struct box_piece piece);

/* Cuts the axes that are digits of ragged dimensions into pieces; -1: out of memory. */
int box_cut_rests(struct box_plan *plan);

/* Of a box with its pieces: what is missing of the source becomes border, and what the output does not have
 * is_missing. */
void box_leave_out(const struct view *view, struct box *box);

/* ---- Runs --------------------------------------------------------------------------------------------- */

/* Walks runs: *offset is the first call's runs->offset, position zeroed; false after the last. */
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
