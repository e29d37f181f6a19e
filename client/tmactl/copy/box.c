/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how boxes are shaped, and computes what one box reads and writes. */
#include "box.h"

#include <stdlib.h>
#include <string.h>

#include "proto/arithmetic.h"

/* The largest gap between two runs that is read along with them, because that is cheaper than another system
 * call. */
#define GAP_BYTES 2048
/* The output's runs are made this many times longer than the source's. Long writes enter the page cache in
 * large folios, whereas short reads from it are cheap. (1 GiB of float32 transposed, whole command: 0.55 s at
 * 4, 0.44 s at 16, 0.37 s at 64 and 256; for other shapes 256 is slower than 64.) */
#define OUTPUT_RUN_WEIGHT 64
/* Runs longer than this gain nothing, and smaller boxes stay in the cache between reading and writing. (1 GiB
 * copied unchanged: 0.15 s, against 0.25 s with the largest boxes that are allowed.) */
#define LONG_RUN_BYTES (2 * 1024 * 1024)
/* Pieces of at least this many elements are cut at multiples of it. */
#define GRAIN 64

static void plan_order(struct box_plan *plan);
static void plan_grow(struct box_plan *plan, uint64_t slot_bytes);
static bool is_clamped(const struct view_axis *axis, enum tma_pad_mode mode);
static struct box_piece piece_clamped(const struct view_axis *axis, enum tma_pad_mode mode, int64_t limit,
                                      uint64_t i);
static int cut_periodic(const struct view_axis *axis, enum tma_pad_mode mode, int64_t limit,
                        struct box_pieces *ret);
static void source_runs(const struct box_plan *plan, const int64_t *len, struct box_runs *ret,
                        int64_t *ret_packed);
static void output_runs(const struct view *view, const int64_t *len, struct box_runs *ret);
static void scale_runs(const struct view *view, const int64_t *len, struct box_runs *ret);

int box_plan_init(struct box_plan *ret, const struct view *view, uint64_t slot_bytes, struct failure *f)
{
	int rc = 0;

	*ret = (struct box_plan){ .view = view, .n_boxes = 1 };
	plan_order(ret);
	plan_grow(ret, slot_bytes);
	rc = box_cut_rests(ret);
	for (int d = 0; d < view->rank && !rc; d++) {
		const struct view_axis *axis = &view->axis[d];

		if (ret->axis[d].n)
			; /* box_cut_rests() has cut it. */
		else if (is_clamped(axis, view->mode))
			ret->axis[d].n = (uint64_t)((axis->extent + ret->limit[d] - 1) / ret->limit[d]);
		else
			rc = cut_periodic(axis, view->mode, ret->limit[d], &ret->axis[d]);
		ret->n_boxes *= ret->axis[d].n;
	}
	if (rc < 0) {
		box_plan_deinit(ret);
		return fail(f, EXIT_FAILED, "out of memory");
	}
	return 0;
}

void box_plan_deinit(struct box_plan *plan)
{
	for (int d = 0; d < BOX_MAX_RANK; d++)
		free(plan->axis[d].v);
	*plan = (struct box_plan){ 0 };
}

/* ---- Shape ------------------------------------------------------------------------------------------ */

static void plan_order(struct box_plan *plan)
{
	const struct view_axis *axis = plan->view->axis;
	int i;

	for (int d = 0; d < plan->view->rank; d++) {
		for (i = d; i > 0 && axis[plan->src_order[i - 1]].src_stride > axis[d].src_stride; i--)
			plan->src_order[i] = plan->src_order[i - 1];
		plan->src_order[i] = d;
	}
}

/* Sizes of a box, in bytes. */
struct cost {
	uint64_t bytes;   /* source, output and scales together */
	uint64_t src_run; /* length of a source run; UINT64_MAX: the box has no source */
	uint64_t dst_run; /* length of an output run */
	uint64_t src_bytes;
	uint64_t dst_bytes;
	uint64_t scale_bytes;
};

/* Returns the sizes of the largest box whose pieces are at most limit[] long. */
static struct cost plan_cost(const struct box_plan *plan, const int64_t *limit)
{
	const struct view *view = plan->view;
	int64_t packed[BOX_MAX_RANK];
	int64_t len[BOX_MAX_RANK];
	struct box_runs src;
	struct box_runs dst;
	struct box_runs scale;
	struct cost cost;

	for (int d = 0; d < view->rank; d++)
		len[d] = min_i64(limit[d], view->axis[d].source);
	source_runs(plan, len, &src, packed);
	output_runs(view, limit, &dst);
	scale_runs(view, limit, &scale);
	cost.src_run = src.count ? src.bytes : UINT64_MAX;
	cost.dst_run = dst.bytes;
	cost.src_bytes = src.bytes * src.count;
	cost.dst_bytes = dst.bytes * dst.count;
	cost.scale_bytes = scale.bytes * scale.count;
	cost.bytes = cost.src_bytes + cost.dst_bytes + cost.scale_bytes;
	return cost;
}

/* source_axis() and output_axis() return the axis whose pieces have to grow to make a side's runs longer, or
 * -1 if they cannot grow. */
static int source_axis(const struct box_plan *plan)
{
	for (int i = 0; i < plan->view->rank; i++) {
		int d = plan->src_order[i];

		if (plan->limit[d] < plan->view->axis[d].source)
			return d;
	}
	return -1;
}

static int output_axis(const struct box_plan *plan)
{
	for (int d = plan->view->rank - 1; d >= 0; d--)
		if (plan->limit[d] < plan->view->axis[d].extent)
			return d;
	return -1;
}

static bool runs_are_long(const struct cost *cost)
{
	return cost->src_run >= LONG_RUN_BYTES && cost->dst_run >= LONG_RUN_BYTES;
}

/* Chooses the longest pieces. Starts with one element or block, and doubles the piece that lengthens the runs
 * of the side that needs it more, as long as a box fits into slot_bytes. */
static void plan_grow(struct box_plan *plan, uint64_t slot_bytes)
{
	enum { SOURCE, OUTPUT };
	const struct view *view = plan->view;
	bool done[2] = { false, false };
	struct cost cost;
	struct cost grown;
	int64_t before;
	int64_t n;
	int axis;
	int side;

	for (int d = 0; d < view->rank; d++)
		plan->limit[d] = view_block(&view->axis[d]);
	cost = plan_cost(plan, plan->limit);
	while (!(done[SOURCE] && done[OUTPUT]) && !runs_are_long(&cost)) {
		side = done[OUTPUT] || (!done[SOURCE] && cost.src_run <= cost.dst_run / OUTPUT_RUN_WEIGHT)
		           ? SOURCE
		           : OUTPUT;
		axis = side == SOURCE ? source_axis(plan) : output_axis(plan);
		if (axis < 0) {
			done[side] = true;
			continue;
		}
		before = plan->limit[axis];
		plan->limit[axis] =
		    before > view->axis[axis].extent / 2 ? view->axis[axis].extent : 2 * before;
		grown = plan_cost(plan, plan->limit);
		if (grown.bytes > slot_bytes || (side == SOURCE && grown.src_run <= cost.src_run)) {
			plan->limit[axis] = before;
			done[side] = true;
		} else {
			cost = grown;
		}
	}
	/* Makes the pieces of an axis about equally long, so that the last one is not much shorter. */
	for (int d = 0; d < view->rank; d++) {
		const int64_t block = view_block(&view->axis[d]);

		n = (view->axis[d].extent + plan->limit[d] - 1) / plan->limit[d];
		before = (view->axis[d].extent + n - 1) / n;
		if (block > 1)
			plan->limit[d] = min_i64(plan->limit[d], divide_up_i64(before, block) * block);
		else if (plan->limit[d] >= GRAIN)
			plan->limit[d] = min_i64(plan->limit[d], (before + GRAIN - 1) / GRAIN * GRAIN);
		else
			plan->limit[d] = before;
	}
	cost = plan_cost(plan, plan->limit);
	plan->src_bytes = cost.src_bytes;
	plan->dst_bytes = cost.dst_bytes;
	plan->scale_bytes = cost.scale_bytes;
}

/* ---- Pieces ----------------------------------------------------------------------------------------- */

int box_piece_add(struct box_pieces *pieces, struct box_piece piece)
{
	uint64_t cap = pieces->cap ? 2 * pieces->cap : 16;
	struct box_piece *grown;

	if (pieces->n == pieces->cap) {
		grown = realloc(pieces->v, cap * sizeof *grown);
		if (!grown)
			return -1;
		pieces->v = grown;
		pieces->cap = cap;
	}
	pieces->v[pieces->n++] = piece;
	return 0;
}

static bool is_clamped(const struct view_axis *axis, enum tma_pad_mode mode)
{
	return mode == TMA_PAD_CONSTANT || mode == TMA_PAD_EDGE || axis->extent == axis->source;
}

/* Returns piece i of an axis that has no border or the mode constant or edge. Such pieces all have one length
 * and need not be stored. A piece reads the part of the source that it overlaps, and the service adds the
 * border. A piece that is border throughout reads nothing (constant) or repeats the nearest element
 * (edge). */
static struct box_piece piece_clamped(const struct view_axis *axis, enum tma_pad_mode mode, int64_t limit,
                                      uint64_t i)
{
	struct box_piece p = { .dst = (int64_t)i * limit, .step = 1 };
	int64_t low = p.dst - axis->before;
	int64_t high;

	p.len = min_i64(limit, axis->extent - p.dst);
	high = low + p.len;
	if (high > 0 && low < axis->source) {
		p.src = low > 0 ? low : 0;
		p.src_len = min_i64(high, axis->source) - p.src;
		p.before = p.src - low;
		p.after = high - p.src - p.src_len;
	} else if (mode == TMA_PAD_EDGE) {
		p.src = high <= 0 ? 0 : axis->source - 1;
		p.src_len = 1;
		p.step = 0;
	} else {
		p.before = p.len;
	}
	return p;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/* Cuts an axis in mode reflect, symmetric or wrap. Its output is a sequence of copies of the source, of which
 * every other one is reversed unless the mode is wrap; in reflect, neighbouring copies share their boundary
 * element. A piece is either one whole copy with a border around it, which the service pads, or a part of one
 * copy. Returns -1 if it runs out of memory. */
static int cut_periodic(const struct view_axis *axis, enum tma_pad_mode mode, int64_t limit,
                        struct box_pieces *ret)
{
	int64_t n = axis->source;
	int64_t period = mode == TMA_PAD_REFLECT ? n - 1 : n;
	bool turns = mode != TMA_PAD_WRAP;
	struct box_piece p;

	for (int64_t o = 0; o < axis->extent; o += p.len) {
		int64_t end = min_i64(axis->extent, limit < axis->extent - o ? o + limit : axis->extent);
		int64_t t = o - axis->before;
		int64_t copy;
		int64_t start;

		p = (struct box_piece){ .dst = o, .len = end - o, .src_len = 1 };
		if (n > 1) {
			copy = -floor_div(-t, period); /* first copy that starts in the piece */
			start = axis->before + copy * period;
			if (start > end - n) {
				copy = floor_div(t, period); /* copy in which the piece starts */
				start = axis->before + copy * period;
				p.len = min_i64(end, start + n) - o;
				p.src = o - start;
				p.src_len = p.len;
			} else {
				p.src_len = n;
				p.before = start - o;
				p.after = end - start - n;
			}
			p.step = 1;
			if (turns && copy % 2) {
				p.step = -1;
				p.src = n - p.src - p.src_len;
			}
		}
		if (box_piece_add(ret, p) < 0)
			return -1;
	}
	return 0;
}

/* ---- One box ---------------------------------------------------------------------------------------- */

/* Sets *ret to the runs of a source box that is len[] long, and ret_packed to the stride of each axis in the
 * packed bytes. Runs that are close to each other are read as one, together with the bytes between them. */
static void source_runs(const struct box_plan *plan, const int64_t *len, struct box_runs *ret,
                        int64_t *ret_packed)
{
	const struct view *view = plan->view;
	int64_t run = view->element;
	int64_t packed;
	bool merging = true;

	*ret = (struct box_runs){ .count = 1 };
	for (int i = 0; i < view->rank; i++)
		if (!len[plan->src_order[i]])
			ret->count = 0;
	packed = run;
	for (int i = 0; i < view->rank; i++) {
		int d = plan->src_order[i];
		int64_t stride = view->axis[d].src_stride;

		ret_packed[d] = packed;
		if (len[d] <= 1)
			continue;
		if (merging && stride - run <= GAP_BYTES) {
			ret_packed[d] = stride;
			run += (len[d] - 1) * stride;
			packed = run;
			continue;
		}
		merging = false;
		ret->n[ret->rank] = len[d];
		ret->stride[ret->rank++] = stride;
		ret->count *= (uint64_t)len[d];
		packed *= len[d];
	}
	for (int i = 0; i < ret->rank / 2; i++) { /* Reverses the axes: outermost first. */
		int j = ret->rank - 1 - i;
		int64_t n = ret->n[i];
		int64_t stride = ret->stride[i];

		ret->n[i] = ret->n[j];
		ret->stride[i] = ret->stride[j];
		ret->n[j] = n;
		ret->stride[j] = stride;
	}
	ret->bytes = (uint64_t)run;
}

/* Sets *ret to the runs of a box that is len[] long in a file in C order with these strides. All bytes of a
 * run are written, so runs are only merged if nothing lies between them. */
static void written_runs(int rank, int64_t element, const int64_t *stride, const int64_t *len,
                         struct box_runs *ret)
{
	int64_t run = element;
	int first = BOX_MAX_RANK;

	*ret = (struct box_runs){ .count = 1 };
	for (int d = rank - 1; d >= 0; d--) {
		if (run == stride[d]) {
			run *= len[d];
		} else if (len[d] > 1) {
			first--;
			ret->n[first] = len[d];
			ret->stride[first] = stride[d];
			ret->count *= (uint64_t)len[d];
		}
	}
	ret->rank = BOX_MAX_RANK - first;
	memmove(ret->n, ret->n + first, (size_t)ret->rank * sizeof ret->n[0]);
	memmove(ret->stride, ret->stride + first, (size_t)ret->rank * sizeof ret->stride[0]);
	ret->bytes = (uint64_t)run;
}

static void output_runs(const struct view *view, const int64_t *len, struct box_runs *ret)
{
	int64_t stride[BOX_MAX_RANK];

	for (int d = 0; d < view->rank; d++)
		stride[d] = view->axis[d].dst_stride;
	written_runs(view->rank, view->dst_element, stride, len, ret);
}

/* Sets *ret to the runs, in the file of scales, of the scales that belong to an output box len[] long. */
static void scale_runs(const struct view *view, const int64_t *len, struct box_runs *ret)
{
	int64_t stride[BOX_MAX_RANK];
	int64_t blocks[BOX_MAX_RANK];
	int64_t run = view->scale_element;

	*ret = (struct box_runs){ 0 };
	if (!view->scale_element)
		return;
	for (int d = view->rank - 1; d >= 0; d--) {
		blocks[d] = divide_up_i64(len[d], view_block(&view->axis[d]));
		stride[d] = run;
		run *= view->scale_shape[d];
	}
	written_runs(view->rank, view->scale_element, stride, blocks, ret);
}

/* Returns the byte at which the scales of a box begin in the file of scales, counted from the end of its
 * header. */
static uint64_t scale_offset(const struct view *view, const struct box *box)
{
	uint64_t at = 0;

	for (int d = 0; view->scale_element && d < view->rank; d++)
		at = at * (uint64_t)view->scale_shape[d] +
		     (uint64_t)(box->piece[d].dst / view_block(&view->axis[d]));
	return at * view->scale_element;
}

void box_get(const struct box_plan *plan, uint64_t i, struct box *ret)
{
	const struct view *view = plan->view;
	int64_t src_len[BOX_MAX_RANK];
	int64_t dst_len[BOX_MAX_RANK];
	uint64_t dst_offset = 0;
	uint64_t src_offset = view->src_offset;

	for (int d = view->rank - 1; d >= 0; d--) {
		const struct box_pieces *pieces = &plan->axis[d];
		struct box_piece *p = &ret->piece[d];

		*p = pieces->v ? pieces->v[i % pieces->n]
		               : piece_clamped(&view->axis[d], view->mode, plan->limit[d], i % pieces->n);
		i /= pieces->n;
	}
	box_leave_out(view, ret);
	for (int d = 0; d < view->rank; d++) {
		const struct box_piece *p = &ret->piece[d];

		dst_len[d] = p->len;
		src_len[d] = p->src_len;
		dst_offset += (uint64_t)(p->dst * view->axis[d].dst_stride);
		src_offset += (uint64_t)(p->src * view->axis[d].src_stride);
	}
	source_runs(plan, src_len, &ret->src, ret->src_stride);
	output_runs(view, dst_len, &ret->dst);
	scale_runs(view, dst_len, &ret->scale);
	ret->scale.offset = scale_offset(view, ret);
	if (ret->is_missing)
		ret->src.count = ret->dst.count = 0;
	ret->src.offset = src_offset;
	ret->dst.offset = dst_offset;
	ret->src_start = 0;
	for (int d = 0; d < view->rank; d++) {
		if (ret->piece[d].step < 0)
			ret->src_start += (uint64_t)((src_len[d] - 1) * ret->src_stride[d]);
		ret->src_stride[d] *= ret->piece[d].step;
	}
}

/* ---- Order ------------------------------------------------------------------------------------------ */

bool box_plan_reads_on(const struct box_plan *plan)
{
	uint64_t end = 0;
	struct box box;

	for (uint64_t i = 0; i < plan->n_boxes; i++) {
		box_get(plan, i, &box);
		if (!box.src.count)
			continue;
		if (box.src.offset < end)
			return false;
		end = box.src.offset + box.src.bytes;
		for (int d = 0; d < box.src.rank; d++)
			end += (uint64_t)((box.src.n[d] - 1) * box.src.stride[d]);
	}
	return true;
}

bool box_plan_writes_on(const struct box_plan *plan)
{
	uint64_t end = 0;
	struct box box;

	for (uint64_t i = 0; i < plan->n_boxes; i++) {
		box_get(plan, i, &box);
		if (box.is_missing)
			continue;
		if (box.dst.count != 1 || box.dst.offset != end)
			return false;
		end += box.dst.bytes;
	}
	return true;
}
