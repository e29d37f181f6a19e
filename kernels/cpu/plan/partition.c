/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a transform into partitions, and runs a partition.
 *
 * Windows are chosen by the lengths of borders; while their tiles do not fit, those with the largest stride
 * are dropped. Each scratch block is a transform of its own, over a range of one axis.
 */
#include "partition.h"

#include <string.h>

#include "cpu_plan.h"
#include "kernels/cpu/move/microkernel.h"
#include "kernels/cpu/move/offsets.h"
#include "kernels/cpu/tile/tile.h"
#include "kernels/cpu/tile/tile_stages.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

/* If more bytes of the destination than this lie between two borders, scratch blocks and subregions are
 * faster than windows. Speeds relative to memcpy with 16 threads of a Xeon, first by subregions and then by
 * windows: 0.33 to 0.41 and 0.65 to 1.10 for runs of 3 to 14 bytes, 0.57 and 0.74 for 98 bytes, 0.98 and 0.66
 * for 256 bytes, 1.25 and 0.55 for 384 bytes. */
#define RUN_LONG 128

/* This is the limit for destinations that are written through the cache, where partial lines cost less.
 * Speeds with windows relative to those without, for 1 to 6 MiB on the same machine: 1.1 to 1.8 for runs of 1
 * to 4 bytes, 0.8 to 1.4 for 6 bytes, 0.4 to 0.8 for 12 bytes and more. */
#define RUN_LONG_CACHED 4

/* A border is moved as a subregion if its run in the destination has at least this many bytes. Not
 * measured. */
#define BORDER_LONG 2048

/* If several indices of an axis share a line of the source and the axis has at most this many indices, its
 * border is made in tiles, however long it is in the destination. Not measured. */
#define AXIS_SHORT 32

/* Maximum number of bytes of the destination that all windows of a tile span together: few enough for a
 * second-level cache to hold them and what is read for them. */
#define WINDOWS_MOST (64 << 10)

/* The tables of a border pay off if the destination is this many times as large as the smallest one that is
 * moved by tiles. Not measured. */
#define DST_LEAST 16

/* Maximum number of bytes of a scratch block, with space left for its offset within a cache line. */
#define SCRATCH_BLOCK_MOST ((192 << 10) - CPU_LINE)

/* Rows of at least this many bytes consist mostly of lines that no other row shares. */
#define LONG_ROW 1024

/* Borders with more bytes than this are not slow when moved as subregions. Not measured separately. */
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

/* Returns the padded axis with the smallest destination stride that is not in the bitmap `seen`, or -1 if
 * there is none. */
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

/* Returns the number of contiguous runs that the windows consist of, in the destination or in the source. */
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

/* Returns whether tiles of all subregions can contain these windows, and tiles of the interior assemble the
 * borders cheaply. */
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
	return move.strategy && tile_borders_are_cheap(&move);
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

/* Returns the axis with the smallest stride in the source, or -1 if the source has one element. */
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
	/* If that axis is short, take one further out, so that a scratch block, which is a work item, is not
	 * too small. */
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
	/* A scratch block that cuts across the source would use only a little of each of its lines. */
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

/* ---- Tasks ------------------------------------------------------------------------------------------ */

#define BATCH_MOST 256 /* subregions */

/* Overhead of a subregion, as the number of bytes that could be moved in the same time. */
#define SUBREGION_COST 1024

static void next_move(struct partitioner *partitioner);

/* Returns the greatest possible number of bytes of the lines that contain elements: `each`, as if every
 * element had a line of its own, or all lines between the first byte and the last, if those are fewer. */
static int64_t lines_cost(const struct tensor_extent *extent, int64_t each)
{
	return min_i64(each, extent->high - extent->low + 2 * (int64_t)CPU_LINE);
}

int64_t task_cost(const struct transform *t, const struct cpu_plan *plan)
{
	int64_t each, subregions, cost;
	if (t->count == 0)
		return 0;
	if (__builtin_mul_overflow(t->count, max_i64(t->element, CPU_LINE), &each))
		each = INT64_MAX;
	cost = max_i64(lines_cost(&t->dst_extent, each), lines_cost(&t->src_extent, each));
	cost = max_i64(cost, t->count * max_i64(t->element, t->src_element));
	if (__builtin_mul_overflow(plan->n_subregions, SUBREGION_COST, &subregions) ||
	    __builtin_add_overflow(cost, subregions, &cost))
		return INT64_MAX;
	return cost;
}

/* Returns an upper bound of the bytes of the lines that one side of the largest subregion touches. */
static int64_t largest_subregion(const struct transform *t)
{
	int64_t bytes = max_i64(t->element, CPU_LINE);
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		int64_t most = axis->source;
		if (t->mode == PAD_MODE_CONSTANT || axis->source <= 1)
			most = axis->extent;
		else if (t->mode == PAD_MODE_EDGE)
			most =
			    max_i64(most, max_i64(axis->before, axis->extent - axis->before - axis->source));
		bytes *= most;
	}
	return bytes;
}

const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room)
{
	if (i == 0 && subregions->interior && !subregions->windowed &&
	    subregions->transform->mode == PAD_MODE_CONSTANT)
		return &task->plan->interior;
	subregions_get(subregions, i, CPU_ALIGN, room);
	return room;
}

/* Key under which the choice of windows is kept. */
struct windows_kind {
	enum kept_kind kept;
	int forced;
	const struct cpu_isa *isa;
	int64_t piece_bytes, tiled_bytes;
	bool stream;
};

static uint32_t find_windows(const struct task *task)
{
	const struct move_place *place = &task->place;
	struct windows_kind kind;
	memset(&kind, 0, sizeof(kind));
	kind.kept = KEPT_WINDOWS;
	kind.forced = move_forced();
	kind.isa = task->isa;
	kind.piece_bytes = place->piece_bytes;
	kind.tiled_bytes = place->tiled_bytes;
	kind.stream = place->stream;
	const uint64_t hash = kept_hash(&kind, sizeof(kind));
	const uint32_t *kept = kept_find(place->kept, &kind, sizeof(kind), hash);
	if (kept)
		return *kept;
	kept_count(place->kept);
	const uint32_t windowed = windows_choose(task->transform, task->isa, place);
	kept_add(place->kept, &kind, sizeof(kind), hash, &windowed, sizeof(windowed));
	return windowed;
}

/* Sets *ret to the subregions, with the windows that are worth it. Returns true if scratch blocks are better;
 * *ret_blocks then describes them. */
static bool make_subregions(const struct task *task, struct subregions *ret,
                            struct scratch_blocks *ret_blocks)
{
	subregions_init(ret, task->transform);
	if (ret->n <= 1 || task->transform->conversion.is)
		return false;
	uint32_t windowed = find_windows(task);
	if (!windowed)
		return task->place.stream && scratch_blocks_init(ret_blocks, task->transform);
	subregions_init_windowed(ret, task->transform, windowed);
	return false;
}

/* ---- Dividing --------------------------------------------------------------------------------------- */

/* Sets up groups if the task has amax blocks so large that they take two passes. A transform with amax has
 * one subregion. */
static void find_groups(struct partitioner *partitioner)
{
	const struct task *task = &partitioner->task;
	struct loop_nest room;
	const struct loop_nest *nest = task_subregion(task, &partitioner->subregions, 0, &room);
	struct move move;
	move_init(&move, task->isa, nest, &task->place);
	if (move.pass != AMAX_REDUCE)
		return;
	amax_groups_init(task->groups, nest);
	partitioner->groups = task->groups;
	partitioner->n = 2 * task->groups->n;
}

static void divide(struct partitioner *partitioner, uint32_t threads)
{
	const struct task *task = &partitioner->task;
	struct scratch_blocks scratch_blocks;
	int64_t piece = task->place.piece_bytes, largest;
	partitioner->uses_scratch = make_subregions(task, &partitioner->subregions, &scratch_blocks);
	partitioner->n = partitioner->subregions.n;
	if (partitioner->uses_scratch) {
		partitioner->n = scratch_blocks.n;
		partitioner->batch = 1;
		return;
	}
	largest = largest_subregion(task->transform);
	if (partitioner->n && largest <= piece) {
		uint64_t share = partitioner->n / (4 * (uint64_t)threads) + 1;
		partitioner->batch = (uint64_t)(piece / largest);
		if (partitioner->batch > share)
			partitioner->batch = share;
		if (partitioner->batch > BATCH_MOST)
			partitioner->batch = BATCH_MOST;
	}
	if (task->transform->conversion.amax.is && task->groups && partitioner->n && !partitioner->batch)
		find_groups(partitioner);
}

void partitioner_init(struct partitioner *partitioner, const struct task *task, uint32_t threads)
{
	partitioner->task = *task;
	partitioner->n = partitioner->next = partitioner->batch = 0;
	partitioner->next_piece = partitioner->move.pieces = 0;
	partitioner->groups = NULL;
	partitioner->active = 0;
	divide(partitioner, threads);
	if (!partitioner->batch && partitioner->n && !partitioner->groups)
		next_move(partitioner);
}

/* ---- Handing out ------------------------------------------------------------------------------------ */

unsigned partitioner_left(const struct partitioner *partitioner, unsigned most)
{
	uint64_t partitions = (uint64_t)(partitioner->move.pieces - partitioner->next_piece);
	if (partitions >= most)
		return most;
	if (partitioner->groups && (partitions || partitioner->active))
		return (unsigned)partitions;
	uint64_t subregions = partitioner->n - partitioner->next;
	if (partitioner->batch)
		subregions = subregions / partitioner->batch + (subregions % partitioner->batch != 0);
	else if (subregions) /* each of them may have many pieces */
		subregions = most;
	return subregions < most - partitions ? (unsigned)(partitions + subregions) : most;
}

bool partitioner_is_over(const struct partitioner *partitioner)
{
	return partitioner->next == partitioner->n && partitioner->next_piece == partitioner->move.pieces;
}

bool partitioner_waits(const struct partitioner *partitioner)
{
	return partitioner->groups && partitioner->active &&
	       partitioner->next_piece == partitioner->move.pieces;
}

void partitioner_end(struct partitioner *partitioner)
{
	if (partitioner->groups)
		partitioner->active--;
}

static void next_move(struct partitioner *partitioner)
{
	struct loop_nest room;
	partitioner->next_piece = 0;
	if (partitioner->groups) {
		uint64_t pass = partitioner->next++;
		amax_groups_move(partitioner->groups, pass / 2, pass % 2 ? AMAX_CONVERT : AMAX_REDUCE,
		                 partitioner->task.isa, &partitioner->task.place, &partitioner->move);
		return;
	}
	move_init(&partitioner->move, partitioner->task.isa,
	          task_subregion(&partitioner->task, &partitioner->subregions, partitioner->next++, &room),
	          &partitioner->task.place);
}

void partitioner_next(struct partitioner *partitioner, struct partition *ret)
{
	ret->task = partitioner->task;
	ret->uses_scratch = partitioner->uses_scratch;
	ret->windowed = partitioner->subregions.windowed;
	ret->piece = -1;
	if (partitioner->batch) {
		uint64_t left = partitioner->n - partitioner->next;
		ret->first = partitioner->next;
		partitioner->next += left < partitioner->batch ? left : partitioner->batch;
		ret->end = partitioner->next;
		return;
	}
	if (partitioner->next_piece == partitioner->move.pieces)
		next_move(partitioner);
	ret->move = partitioner->move;
	ret->piece = partitioner->next_piece++;
	partitioner->active += partitioner->groups != NULL;
}

void partitioner_stop(struct partitioner *partitioner)
{
	partitioner->next = partitioner->n;
	partitioner->next_piece = partitioner->move.pieces;
}

/* ---- Running ---------------------------------------------------------------------------------------- */

void partition_whole(struct partition *ret, const struct task *task)
{
	struct subregions subregions;
	struct scratch_blocks scratch_blocks;
	ret->task = *task;
	ret->piece = -1;
	ret->uses_scratch = make_subregions(task, &subregions, &scratch_blocks);
	ret->windowed = subregions.windowed;
	ret->first = 0;
	ret->end = ret->uses_scratch ? scratch_blocks.n : subregions.n;
}

/* Returns the bytes from the first unit to the end of the last, or less if strides are negative. */
static int64_t span(const struct loop_nest *nest)
{
	int64_t bytes = nest->element;
	for (int d = 0; d < nest->rank; d++)
		bytes += (nest->dim[d].n - 1) * max_i64(nest->dim[d].dst, 0);
	return bytes;
}

/* Runs a piece. If the piece was to be written through the cache but its destination is in no cache, it is
 * written past the cache instead. */
static void run_piece(const struct task *task, const struct move *move, int64_t piece,
                      struct cpu_scratch *scratch)
{
	struct loop_nest nest;
	struct offsets room;
	struct move past;
	char *dst;
	const char *src;
	if (move->stream || move->strategy->run || move->strategy == &cpu_strategy_copy ||
	    move->strategy == &cpu_strategy_repeat) {
		move_run(move, piece, scratch);
		return;
	}
	move_piece_nest(move, piece, &nest, &dst, &src);
	const struct offsets *offsets = offsets_find(move->kept, &nest, &room);
	if (offsets) {
		offsets_run(offsets, move->isa, dst, src);
		return;
	}
	past = *move;
	past.stream = span(&nest) > task->probe_bytes && cold_is(dst, span(&nest), task->cold_ns);
	move_run(&past, piece, scratch);
	if (past.stream)
		move->isa->fence();
}

static bool run_subregions(struct partition *partition, const atomic_bool *stopped,
                           struct cpu_scratch *scratch)
{
	const struct task *task = &partition->task;
	struct subregions subregions;
	struct scratch_blocks scratch_blocks;
	if (partition->uses_scratch)
		scratch_blocks_init(&scratch_blocks, task->transform);
	else
		subregions_init_windowed(&subregions, task->transform, partition->windowed);
	for (uint64_t i = partition->first; i < partition->end; i++) {
		struct loop_nest room;
		if (atomic_load_explicit(stopped, memory_order_relaxed))
			return false;
		if (partition->uses_scratch) {
			scratch_blocks_run(&scratch_blocks, i, task->isa, &task->place, scratch);
			continue;
		}
		const struct loop_nest *nest = task_subregion(task, &subregions, i, &room);
		move_init(&partition->move, task->isa, nest, &task->place);
		if (partition->move.pass == AMAX_REDUCE) {
			if (!amax_run_groups(nest, task->isa, &task->place, stopped, scratch))
				return false;
			continue;
		}
		for (int64_t piece = 0; piece < partition->move.pieces; piece++)
			run_piece(task, &partition->move, piece, scratch);
	}
	return true;
}

bool partition_run(struct partition *partition, const atomic_bool *stopped, struct cpu_scratch *scratch)
{
	bool whole = true;
	if (partition->piece >= 0)
		run_piece(&partition->task, &partition->move, partition->piece, scratch);
	else
		whole = run_subregions(partition, stopped, scratch);
	if (partition->task.place.stream)
		partition->task.isa->fence();
	return whole;
}
