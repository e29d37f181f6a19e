/* How a transform is cut, and how a part of it is run. */
#include "partition.h"

#include "microkernel.h"

#define BATCH_MOST 256 /* slabs */

/* What a slab costs beside its bytes, in bytes that are moved meanwhile. */
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
	int64_t each, slabs, cost;
	if (t->count == 0)
		return 0;
	if (__builtin_mul_overflow(t->count, max(t->element, CPU_LINE), &each))
		each = INT64_MAX;
	cost = max(lines_cost(&t->dst_extent, each), lines_cost(&t->src_extent, each));
	cost = max(cost, t->count * t->element);
	if (__builtin_mul_overflow(plan->n_slabs, SLAB_COST, &slabs) ||
	    __builtin_add_overflow(cost, slabs, &cost))
		return INT64_MAX;
	return cost;
}

/* Bytes of the lines that one side of the largest slab is on, or more. */
static int64_t largest_slab(const struct transform *t)
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

const struct nest *task_slab(const struct task *task, const struct slabs *slabs, uint64_t i,
                             struct nest *room)
{
	if (i == 0 && slabs->interior && slabs->transform->mode == PAD_MODE_CONSTANT)
		return &task->plan->interior;
	slabs_get(slabs, i, CPU_ALIGN, room);
	return room;
}

static bool make_bands(const struct task *task, uint64_t n_slabs, struct bands *ret)
{
	return task->place.stream && n_slabs > 1 && bands_init(ret, task->transform);
}

/* ---- Cutting ---------------------------------------------------------------------------------------- */

void cut_init(struct cut *cut, const struct task *task, uint32_t threads)
{
	struct bands bands;
	int64_t piece = task->place.piece_bytes, largest;
	cut->task = *task;
	slabs_init(&cut->slabs, task->transform);
	cut->n = cut->slabs.n;
	cut->next = 0;
	cut->next_piece = cut->move.pieces = 0;
	cut->batch = 0;
	cut->banded = make_bands(task, cut->n, &bands);
	if (cut->banded) {
		cut->n = bands.n;
		cut->batch = 1;
		return;
	}
	largest = largest_slab(task->transform);
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
	uint64_t slabs = cut->n - cut->next;
	if (cut->batch)
		slabs = slabs / cut->batch + (slabs % cut->batch != 0);
	else if (slabs) /* each may have many pieces */
		slabs = most;
	return slabs < most - parts ? (unsigned)(parts + slabs) : most;
}

static void next_move(struct cut *cut)
{
	struct nest room;
	move_init(&cut->move, cut->task.isa, task_slab(&cut->task, &cut->slabs, cut->next++, &room),
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
	struct slabs slabs;
	struct bands bands;
	ret->task = *task;
	ret->piece = -1;
	slabs_init(&slabs, task->transform);
	ret->banded = make_bands(task, slabs.n, &bands);
	ret->first = 0;
	ret->end = ret->banded ? bands.n : slabs.n;
}

static bool run_slabs(struct part *part, const atomic_bool *stopped, char *scratch)
{
	const struct task *task = &part->task;
	struct slabs slabs;
	struct bands bands;
	if (part->banded)
		bands_init(&bands, task->transform);
	else
		slabs_init(&slabs, task->transform);
	for (uint64_t i = part->first; i < part->end; i++) {
		struct nest room;
		if (atomic_load_explicit(stopped, memory_order_relaxed))
			return false;
		if (part->banded) {
			bands_run(&bands, i, task->isa, &task->place, scratch);
			continue;
		}
		move_init(&part->move, task->isa, task_slab(task, &slabs, i, &room), &task->place);
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
		whole = run_slabs(part, stopped, scratch);
	if (part->task.place.stream)
		part->task.isa->fence();
	return whole;
}
