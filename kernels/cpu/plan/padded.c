/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses windows by the lengths of borders, and leaves out those furthest apart while their tiles do not
 * fit. Runs scratch blocks: each is a transform of its own, over a stretch of one axis. */
#include "padded.h"

#include "kernels/cpu/tile/tile.h"
#include "kernels/cpu/tile/tile_pack.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

/* Bytes of the destination between two borders from which on scratch blocks and subregions are faster. Ratios
 * to memcpy, 16 threads of a Xeon, subregions and windows: runs of 3 to 14 bytes 0.33 to 0.41 and 0.65
 * to 1.10, of 98 bytes 0.57 and 0.74; of 256 bytes 0.98 and 0.66, of 384 bytes 1.25 and 0.55. */
#define RUN_LONG 128

/* This is the same for destinations that are written through the cache, where less is lost by partial lines.
 * 1 to 6 MiB, as above, speed with windows to that without: runs of 1 to 4 bytes 1.1 to 1.8, of 6 0.8 to 1.4,
 * of 12 and more 0.4 to 0.8. */
#define RUN_LONG_CACHED 4

/* Bytes of a border's run in the destination from which on it is a subregion. Not measured. */
#define BORDER_LONG 2048

/* Indices of an axis across which the source's lines lie, and whose border is then made in tiles wherever it
 * is in the destination. Not measured. */
#define AXIS_SHORT 32

/* Bytes of the destination that all windows of a tile have, at most: a second cache holds them, their core
 * and what is read for it. */
#define WINDOWS_MOST (64 << 10)

/* Tables of a border are worth it in destinations that are so many times as long as those of a tile are. Not
 * measured. */
#define DST_LEAST 16

/* Bytes of a scratch block, with room for its place in a line. */
#define SCRATCH_BLOCK_MOST ((192 << 10) - CPU_LINE)

/* Rows of at least this many bytes are mostly lines of their own. */
#define LONG_ROW 1024

/* Bytes of borders that are subregions as good as any. Not measured apart. */
#define LONG_BORDER 2048

static bool is_padded(const struct transform_axis *axis)
{
	return axis->extent != axis->source;
}

/* ---- Windows ---------------------------------------------------------------------------------------- */

static int64_t run_of(const struct transform_axis *axis)
{
	int64_t stride = magnitude_i64(axis->dst_stride);
	return stride <= RUN_LONG ? stride * min_i64(axis->source, RUN_LONG + 1) : INT64_MAX;
}

static bool wants_window(const struct transform_axis *axis, enum pad_mode mode)
{
	bool is_across = mode != PAD_MODE_CONSTANT && magnitude_i64(axis->src_stride) < CPU_LINE;
	int64_t border = max_i64(axis->before, axis->extent - axis->before - axis->source);
	int64_t stride = magnitude_i64(axis->dst_stride);
	return (is_across && axis->extent <= AXIS_SHORT) || stride < BORDER_LONG / border;
}

/* The padded axis that lies closest in the destination and has not been seen; -1: none. */
static int find_closest(const struct transform *t, uint32_t seen)
{
	int ret = -1;
	for (int d = 0; d < t->rank; d++)
		if (is_padded(&t->axis[d]) && !(seen >> d & 1) &&
		    (ret < 0 ||
		     magnitude_i64(t->axis[d].dst_stride) < magnitude_i64(t->axis[ret].dst_stride)))
			ret = d;
	return ret;
}

/* How many runs all of the windows are in the destination, or in the source. */
static int64_t count_runs(const struct transform *t, uint32_t windowed, bool dst)
{
	int64_t run = t->element, runs = 1;
	for (int d = t->rank - 1; d >= 0; d--) {
		const struct transform_axis *axis = &t->axis[d];
		if (windowed >> d & 1 && magnitude_i64(dst ? axis->dst_stride : axis->src_stride) == run) {
			run *= dst ? axis->extent : axis->source;
			windowed &= ~(UINT32_C(1) << d);
			d = t->rank;
		}
	}
	for (int d = 0; d < t->rank; d++)
		if (windowed >> d & 1)
			runs *= dst ? t->axis[d].extent : t->axis[d].source;
	return runs;
}

/* Returns whether a tile of any subregion can have these windows, and puts them together cheaply in the
 * interior. */
static bool fits(const struct transform *transform, uint32_t windowed, const struct cpu_isa *isa,
                 const struct move_place *place)
{
	struct subregions subregions;
	struct loop_nest nest;
	struct move move;
	if (count_runs(transform, windowed, true) > TILE_TABLE ||
	    count_runs(transform, windowed, false) > TILE_PACK_RUNS)
		return false;
	subregions_init_windowed(&subregions, transform, windowed);
	if (!subregions_interior(&subregions, CPU_ALIGN, &nest))
		return false;
	move_init(&move, isa, &nest, place);
	return move.tiled && tile_borders_are_cheap(&move);
}

uint32_t windows_choose(const struct transform *transform, const struct cpu_isa *isa,
                        const struct move_place *place)
{
	uint32_t seen = 0, windowed = 0, added[TENSOR_MAX_RANK];
	int64_t bytes = transform->element, indices = 0;
	int n = 0;
	if (transform->count * transform->element / DST_LEAST < place->tiled_bytes)
		return 0;
	int closest = find_closest(transform, 0);
	if (closest < 0 || run_of(&transform->axis[closest]) > (place->stream ? RUN_LONG : RUN_LONG_CACHED))
		return 0;
	for (int d; (d = find_closest(transform, seen)) >= 0; seen |= UINT32_C(1) << d) {
		const struct transform_axis *axis = &transform->axis[d];
		if (!wants_window(axis, transform->mode) || axis->extent > TILE_TABLE - indices ||
		    axis->extent > WINDOWS_MOST / bytes)
			continue;
		windowed |= UINT32_C(1) << d;
		added[n++] = UINT32_C(1) << d;
		indices += axis->extent;
		bytes *= axis->extent;
	}
	while (n > 0 && !fits(transform, windowed, isa, place))
		windowed &= ~added[--n];
	return windowed;
}

/* ---- Scratch blocks --------------------------------------------------------------------------------- */

/* Returns whether each border of the axis is long in the destination. */
static bool has_long_borders(const struct transform_axis *axis)
{
	int64_t before = axis->before, after = axis->extent - axis->source - before;
	int64_t shorter = before == 0 || after == 0 ? max_i64(before, after) : min_i64(before, after);
	return magnitude_i64(axis->dst_stride) > LONG_BORDER / shorter;
}

/* The axis in which the source's elements lie closest; -1: it has one element. */
static int closest_in_source(const struct transform *transform)
{
	int ret = -1;
	for (int d = 0; d < transform->rank; d++) {
		const struct transform_axis *a = &transform->axis[d];
		if (a->source > 1 && a->src_stride != 0 &&
		    (ret < 0 ||
		     magnitude_i64(a->src_stride) < magnitude_i64(transform->axis[ret].src_stride)))
			ret = d;
	}
	return ret;
}

bool scratch_blocks_init(struct scratch_blocks *ret, const struct transform *transform)
{
	int64_t bytes = transform->element, inside = 0;
	int axis = -1;
	bool padded = false;
	for (int d = transform->rank - 1; d >= 0; d--) {
		const struct transform_axis *a = &transform->axis[d];
		if (a->source == 0)
			return false;
		if (is_padded(a)) {
			if (axis >= 0 || (!padded && has_long_borders(a)))
				return false;
			padded = true;
		} else if (axis < 0 && padded && a->extent > 1) {
			axis = d;
			inside = bytes;
		}
		if (axis < 0) {
			if (a->extent > 1 && a->dst_stride != bytes)
				return false;
			bytes *= a->extent;
		}
	}
	const struct transform_axis *inner = &transform->axis[transform->rank - 1];
	if (axis < 0 || inside > SCRATCH_BLOCK_MOST || transform->axis[axis].dst_stride != inside ||
	    inner->extent * transform->element >= LONG_ROW)
		return false;
	/* Further out where that axis is short: a scratch block is a work item. */
	int64_t all = inside * transform->axis[axis].extent;
	for (int d = axis - 1; d >= 0 && all <= SCRATCH_BLOCK_MOST / 2; d--) {
		const struct transform_axis *outer = &transform->axis[d];
		if (outer->extent > 1 && outer->dst_stride != all)
			break;
		if (outer->extent > 1) {
			axis = d;
			inside = all;
			all *= outer->extent;
		}
	}
	/* A scratch block across the source would use a little of each of its lines. */
	if (closest_in_source(transform) < axis)
		return false;
	const struct transform_axis *a = &transform->axis[axis];
	int64_t step = SCRATCH_BLOCK_MOST / inside < a->extent ? SCRATCH_BLOCK_MOST / inside : a->extent;
	*ret = (struct scratch_blocks){ .transform = transform, .axis = axis, .step = step, .bytes = inside };
	ret->n = (uint64_t)((a->extent - 1) / step + 1);
	for (int d = 0; d < axis; d++)
		ret->n *= (uint64_t)transform->axis[d].extent;
	return true;
}

void scratch_blocks_run(const struct scratch_blocks *scratch_blocks, uint64_t i, const struct cpu_isa *isa,
                        const struct move_place *place, struct cpu_scratch *scratch)
{
	struct transform part = *scratch_blocks->transform;
	struct transform_axis *cut = &part.axis[scratch_blocks->axis];
	uint64_t count = (uint64_t)((cut->extent - 1) / scratch_blocks->step + 1);
	int64_t from = (int64_t)(i % count) * scratch_blocks->step;
	char *dst = place->dst + from * cut->dst_stride;
	const char *src = place->src + from * cut->src_stride;
	cut->extent = cut->source =
	    cut->extent - from < scratch_blocks->step ? cut->extent - from : scratch_blocks->step;
	i /= count;
	for (int d = scratch_blocks->axis - 1; d >= 0; d--) {
		struct transform_axis *axis = &part.axis[d];
		int64_t at = (int64_t)(i % (uint64_t)axis->extent);
		i /= (uint64_t)axis->extent;
		dst += at * axis->dst_stride;
		src += at * axis->src_stride;
		axis->extent = axis->source = 1;
	}

	char *made = scratch->made + (uintptr_t)dst % CPU_LINE;
	struct move_place inside = *place;
	inside.dst = made;
	inside.src = src;
	inside.stream = false;
	struct subregions subregions;
	subregions_init(&subregions, &part);
	for (uint64_t s = 0; s < subregions.n; s++) {
		struct loop_nest nest;
		struct move move;
		subregions_get(&subregions, s, CPU_ALIGN, &nest);
		move_init(&move, isa, &nest, &inside);
		for (int64_t piece = 0; piece < move.pieces; piece++)
			move_run(&move, piece, scratch);
	}
	struct microkernel microkernel = { .isa = isa, .scratch = scratch->move };
	microkernel_copy_run(&microkernel, dst, made, cut->extent * scratch_blocks->bytes);
}
