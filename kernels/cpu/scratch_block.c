/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the scratch blocks of a padded transform: each is a transform of its own, over a stretch of one axis.
 */
#include "scratch_block.h"

#include "microkernel.h"
#include "proto/arithmetic.h"

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

/* Whether each border of the axis is long where the destination has it. */
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
