/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a transform into partitions, and runs one. */
#include "partition.h"

#include <string.h>

#include "kernels/cpu/move/cold.h"
#include "kernels/cpu/move/microkernel.h"
#include "kernels/cpu/move/offsets.h"
#include "proto/arithmetic.h"

#define BATCH_MOST 256 /* subregions */

/* What a subregion costs beside its bytes, in bytes that are moved meanwhile. */
#define SUBREGION_COST 1024

static void next_move(struct partitioner *partitioner);

/* Lines that count elements can be on: one for each, or all between the first byte and the last. */
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

/* Bytes of the lines that one side of the largest subregion is on, or more. */
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

/* With the windows that are worth it; or, in *ret_blocks, as scratch blocks: true. */
static bool make_subregions(const struct task *task, struct subregions *ret,
                            struct scratch_blocks *ret_blocks)
{
	subregions_init(ret, task->transform);
	if (ret->n <= 1 || task->transform->conversion.is)
		return false;
	uint32_t windowed = windows_choose(task->transform, task->isa, &task->place);
	if (!windowed)
		return task->place.stream && scratch_blocks_init(ret_blocks, task->transform);
	subregions_init_windowed(ret, task->transform, windowed);
	return false;
}

/* ---- Dividing --------------------------------------------------------------------------------------- */

/* With amax there is one subregion. */
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

/* ---- The memo --------------------------------------------------------------------------------------- */

static bool memo_suits(const struct partition_memo *memo, const struct task *task, uint32_t threads)
{
	return memo->is_set && memo->isa == task->isa && memo->forced == move_forced() &&
	       memo->threads == threads && memo->stream == task->place.stream &&
	       memo->piece_bytes == task->place.piece_bytes && memo->tiled_bytes == task->place.tiled_bytes;
}

static size_t move_bytes(const struct move *move)
{
	return offsetof(struct move, dim) + (size_t)move->rank * sizeof(move->dim[0]);
}

/* Nothing has been taken of the partitioner but the plan of its first subregion. */
static void memo_set(struct partition_memo *memo, const struct partitioner *partitioner, uint32_t threads)
{
	const struct move *move = &partitioner->move;
	const struct task *task = &partitioner->task;
	memo->is_set = move->pieces == 0 || move->rank <= PARTITION_MEMO_RANK;
	if (!memo->is_set)
		return;
	memo->isa = task->isa;
	memo->forced = move_forced();
	memo->threads = threads;
	memo->stream = task->place.stream;
	memo->piece_bytes = task->place.piece_bytes;
	memo->tiled_bytes = task->place.tiled_bytes;
	memo->uses_scratch = partitioner->uses_scratch;
	memo->windowed = partitioner->subregions.windowed;
	memo->n = partitioner->n;
	memo->batch = partitioner->batch;
	memo->dst = task->place.dst;
	memo->src = task->place.src;
	memo->pieces = move->pieces;
	if (move->pieces == 0)
		return;
	memo->is_fill = move->src == task->place.fill;
	memcpy(memo->move, move, move_bytes(move));
}

static void memo_get(const struct partition_memo *memo, struct partitioner *ret)
{
	const struct move_place *place = &ret->task.place;
	struct move *move = &ret->move;
	subregions_init_windowed(&ret->subregions, ret->task.transform, memo->windowed);
	ret->uses_scratch = memo->uses_scratch;
	ret->n = memo->n;
	ret->batch = memo->batch;
	if (memo->pieces == 0)
		return;
	ret->next = 1;
	memcpy(move, memo->move, sizeof(memo->move));
	move->fill = place->fill;
	if (memo->is_fill)
		move->src = place->fill;
	move_shift(move, place->dst - memo->dst, memo->is_fill ? 0 : place->src - memo->src);
}

void partitioner_init(struct partitioner *partitioner, const struct task *task, uint32_t threads,
                      struct partition_memo *memo)
{
	partitioner->task = *task;
	partitioner->n = partitioner->next = partitioner->batch = 0;
	partitioner->next_piece = partitioner->move.pieces = 0;
	partitioner->groups = NULL;
	partitioner->active = 0;
	if (task->transform->conversion.is ||
	    atomic_exchange_explicit(&memo->is_taken, true, memory_order_acquire)) {
		divide(partitioner, threads);
		return;
	}
	if (memo_suits(memo, task, threads)) {
		memo_get(memo, partitioner);
	} else {
		divide(partitioner, threads);
		if (!partitioner->batch && partitioner->n)
			next_move(partitioner);
		memo_set(memo, partitioner, threads);
	}
	atomic_store_explicit(&memo->is_taken, false, memory_order_release);
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
	else if (subregions) /* each may have many pieces */
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

/* Bytes between the first unit and the last, or less: where strides are negative. */
static int64_t span(const struct loop_nest *nest)
{
	int64_t bytes = nest->element;
	for (int d = 0; d < nest->rank; d++)
		bytes += (nest->dim[d].n - 1) * max_i64(nest->dim[d].dst, 0);
	return bytes;
}

/* A piece that was not meant to go past the cache does so when its destination is not in one. */
static void run_piece(const struct task *task, const struct move *move, int64_t piece,
                      struct cpu_scratch *scratch)
{
	struct loop_nest nest;
	struct offsets offsets;
	struct move past;
	char *dst;
	const char *src;
	if (move->stream || move->tiled || move->microkernel == microkernel_copy ||
	    move->microkernel == microkernel_repeat) {
		move_run(move, piece, scratch);
		return;
	}
	move_piece_nest(move, piece, &nest, &dst, &src);
	if (offsets_init(&offsets, &nest)) {
		offsets_run(&offsets, move->isa, dst, src);
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
