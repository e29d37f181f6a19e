/* How a transform is cut, and how a part of it is run. */
#include "partition.h"

#include "microkernel.h"

#define BATCH_MOST 256 /* subregions */

/* What a subregion costs beside its bytes, in bytes that are moved meanwhile. */
#define SLAB_COST 1024

static void next_move(struct cut *cut);

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Lines that count elements can be on: one for each, or all between the first byte and the last. */
static int64_t lines_cost(const struct tensor_extent *extent, int64_t each)
{
	return min(each, extent->high - extent->low + 2 * (int64_t)CPU_LINE);
}

int64_t task_cost(const struct transform *t, const struct plan *plan)
{
	int64_t each, subregions, cost;
	if (t->count == 0)
		return 0;
	if (__builtin_mul_overflow(t->count, max(t->element, CPU_LINE), &each))
		each = INT64_MAX;
	cost = max(lines_cost(&t->dst_extent, each), lines_cost(&t->src_extent, each));
	cost = max(cost, t->count * t->element);
	if (__builtin_mul_overflow(plan->n_subregions, SLAB_COST, &subregions) ||
	    __builtin_add_overflow(cost, subregions, &cost))
		return INT64_MAX;
	return cost;
}

/* Bytes of the lines that one side of the largest subregion is on, or more. */
static int64_t largest_subregion(const struct transform *t)
{
	int64_t bytes = max(t->element, CPU_LINE);
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		int64_t most = axis->source;
		if (t->mode == PAD_MODE_CONSTANT || axis->source <= 1)
			most = axis->extent;
		else if (t->mode == PAD_MODE_EDGE)
			most = max(most, max(axis->before, axis->extent - axis->before - axis->source));
		bytes *= most;
	}
	return bytes;
}

const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room)
{
	if (i == 0 && subregions->interior && subregions->transform->mode == PAD_MODE_CONSTANT)
		return &task->plan->interior;
	subregions_get(subregions, i, CPU_ALIGN, room);
	return room;
}

static bool make_scratch_blocks(const struct task *task, uint64_t n_subregions, struct scratch_blocks *ret)
{
	return task->place.stream && n_subregions > 1 && scratch_blocks_init(ret, task->transform);
}

/* ---- Cutting ---------------------------------------------------------------------------------------- */

void cut_init(struct cut *cut, const struct task *task, uint32_t threads)
{
	struct scratch_blocks scratch_blocks;
	int64_t piece = task->place.piece_bytes, largest;
	cut->task = *task;
	subregions_init(&cut->subregions, task->transform);
	cut->n = cut->subregions.n;
	cut->next = 0;
	cut->next_piece = cut->move.pieces = 0;
	cut->batch = 0;
	cut->banded = make_scratch_blocks(task, cut->n, &scratch_blocks);
	if (cut->banded) {
		cut->n = scratch_blocks.n;
		cut->batch = 1;
		return;
	}
	largest = largest_subregion(task->transform);
	if (cut->n && largest <= piece) {
		uint64_t share = cut->n / (4 * (uint64_t)threads) + 1;
		cut->batch = (uint64_t)(piece / largest);
		if (cut->batch > share)
			cut->batch = share;
		if (cut->batch > BATCH_MOST)
			cut->batch = BATCH_MOST;
	}
}

unsigned cut_parts(const struct cut *cut, unsigned most)
{
	uint64_t parts = (uint64_t)(cut->move.pieces - cut->next_piece);
	if (parts >= most)
		return most;
	uint64_t subregions = cut->n - cut->next;
	if (cut->batch)
		subregions = subregions / cut->batch + (subregions % cut->batch != 0);
	else if (subregions) /* each may have many pieces */
		subregions = most;
	return subregions < most - parts ? (unsigned)(parts + subregions) : most;
}

static void next_move(struct cut *cut)
{
	struct loop_nest room;
	move_init(&cut->move, cut->task.isa, task_subregion(&cut->task, &cut->subregions, cut->next++, &room),
	          &cut->task.place);
	cut->next_piece = 0;
}

void cut_next(struct cut *cut, struct part *ret)
{
	ret->task = cut->task;
	ret->banded = cut->banded;
	ret->piece = -1;
	if (cut->batch) {
		uint64_t left = cut->n - cut->next;
		ret->first = cut->next;
		cut->next += left < cut->batch ? left : cut->batch;
		ret->end = cut->next;
		return;
	}
	if (cut->next_piece == cut->move.pieces)
		next_move(cut);
	ret->move = cut->move;
	ret->piece = cut->next_piece++;
}

void cut_stop(struct cut *cut)
{
	cut->next = cut->n;
	cut->next_piece = cut->move.pieces;
}

/* ---- Running ---------------------------------------------------------------------------------------- */

void part_whole(struct part *ret, const struct task *task)
{
	struct subregions subregions;
	struct scratch_blocks scratch_blocks;
	ret->task = *task;
	ret->piece = -1;
	subregions_init(&subregions, task->transform);
	ret->banded = make_scratch_blocks(task, subregions.n, &scratch_blocks);
	ret->first = 0;
	ret->end = ret->banded ? scratch_blocks.n : subregions.n;
}

static bool run_subregions(struct part *part, const atomic_bool *stopped, char *scratch)
{
	const struct task *task = &part->task;
	struct subregions subregions;
	struct scratch_blocks scratch_blocks;
	if (part->banded)
		scratch_blocks_init(&scratch_blocks, task->transform);
	else
		subregions_init(&subregions, task->transform);
	for (uint64_t i = part->first; i < part->end; i++) {
		struct loop_nest room;
		if (atomic_load_explicit(stopped, memory_order_relaxed))
			return false;
		if (part->banded) {
			scratch_blocks_run(&scratch_blocks, i, task->isa, &task->place, scratch);
			continue;
		}
		move_init(&part->move, task->isa, task_subregion(task, &subregions, i, &room), &task->place);
		for (int64_t piece = 0; piece < part->move.pieces; piece++)
			move_run(&part->move, piece, scratch);
	}
	return true;
}

bool part_run(struct part *part, const atomic_bool *stopped, char *scratch)
{
	bool whole = true;
	if (part->piece >= 0)
		move_run(&part->move, part->piece, scratch);
	else
		whole = run_subregions(part, stopped, scratch);
	if (part->task.place.stream)
		part->task.isa->fence();
	return whole;
}
