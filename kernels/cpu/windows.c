/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses windows by the lengths of borders, and leaves out those furthest apart while their tiles do not
 * fit. */
#include "windows.h"

#include <stdbool.h>

#include "kernels/plan/loop_nest.h"
#include "proto/arithmetic.h"
#include "tile.h"
#include "tile_pack.h"

/* Bytes of the destination between two borders from which on scratch blocks and subregions are faster. Ratios
 * to memcpy, 16 threads of a Xeon, subregions and windows: runs of 3 to 14 bytes 0.33 to 0.41 and 0.65
 * to 1.10, of 98 bytes 0.57 and 0.74; of 256 bytes 0.98 and 0.66, of 384 bytes 1.25 and 0.55. */
#define RUN_LONG 128

/* The same of destinations that are written through the cache, where less is lost by partial lines. 1 to 6
 * MiB, as above, speed with windows to that without: runs of 1 to 4 bytes 1.1 to 1.8, of 6 0.8 to 1.4, of 12
 * and more 0.4 to 0.8. */
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

static bool is_padded(const struct transform_axis *axis)
{
	return axis->extent != axis->source;
}

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

/* Whether a tile can always have them, in any subregion; and puts them together cheaply in the interior. */
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
