/* How a job becomes work items. work_item.c executes them. */
#include "running_job.h"

#include <assert.h>
#include <string.h>

#include "kernels/host/memory.h"
#include "proto/clock.h"
#include "kernels/host/timeline.h"

static void start_moves(struct run *run, struct engine_job *job);
static void start_blocks(struct run *run, const struct engine_job *job);
static void work_item_moves(struct run *run, struct work_item *ret);
static void work_item_blocks(struct run *run, struct work_item *ret);
static void settle(struct run *run);

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* ---- Start ------------------------------------------------------------------------------------------ */

/* bytes: of all destinations. */
static void choose_piece(struct run *run, uint64_t bytes)
{
	uint64_t piece = bytes / (4 * (uint64_t)run->threads);
	if (piece < (uint64_t)run->tuning->piece_least)
		piece = (uint64_t)run->tuning->piece_least;
	if (piece > (uint64_t)run->tuning->piece_most)
		piece = (uint64_t)run->tuning->piece_most;
	run->piece = (int64_t)piece;
	run->stream = bytes >= (uint64_t)run->tuning->stream_bytes;
}

void run_start(struct run *run, struct engine_job *job, const struct cpu_tuning *tuning, uint32_t threads)
{
	run->job = job;
	run->tuning = tuning;
	run->threads = threads;
	run->cut_of = NULL;
	run->cut.n = run->cut.next = 0;
	run->cut.move.pieces = run->cut.next_piece = 0;
	run->active = 0;
	run->is_waking = false;
	run->status = 0;
	run->start_ns = clock_ns();
	atomic_init(&run->stopped, false);
	if (job->blocks)
		start_blocks(run, job);
	else
		start_moves(run, job);
}

void run_start_waking(struct run *run, struct engine_job *job)
{
	run->job = job;
	run->active = 0;
	run->is_waking = true;
	run->is_counted = false;
	run->wakes_left = 0;
	run->status = 0;
	atomic_init(&run->stopped, false);
}

static struct engine_move *moves_of(struct engine_job *job, uint32_t *ret_n)
{
	*ret_n = job->moves ? job->n_moves : 1;
	return job->moves ? job->moves : &job->move;
}

void run_clear(struct engine_job *job)
{
	uint32_t n;
	struct engine_move *moves = moves_of(job, &n);
	job->status = 0;
	job->ns = 0;
	job->begun = false;
	for (uint32_t i = 0; i < n; i++)
		moves[i].status = STATUS_CANCELED;
	if (job->blocks) {
		job->blocks->family = job->move.plan->family;
		job->blocks->passed = job->blocks->beyond = 0;
	}
}

static void start_moves(struct run *run, struct engine_job *job)
{
	uint64_t bytes = 0;
	run->moves = moves_of(job, &run->n_moves);
	run->next_move = 0;
	run->left = 0;
	for (uint32_t i = 0; i < run->n_moves; i++) {
		const struct engine_move *move = &run->moves[i];
		run->left = add(run->left, (uint64_t)task_cost(move->transform, move->plan));
		bytes = add(bytes, (uint64_t)(move->transform->count * move->transform->element));
	}
	choose_piece(run, bytes);
}

static void start_blocks(struct run *run, const struct engine_job *job)
{
	const struct transform *t = job->move.transform;
	struct run_blocks *b = &run->blocks;
	uint64_t cost = (uint64_t)task_cost(t, job->move.plan);
	run->n_moves = 0;
	b->left = multiply(job->blocks->n, job->blocks->layers);
	choose_piece(run, multiply((uint64_t)(t->count * t->element), b->left));
	b->most = WORK_ITEM_BLOCKS_MOST;
	if (cost > (uint64_t)run->piece)
		b->most = 0;
	else if (cost && (uint64_t)run->piece / cost < b->most)
		b->most = (uint32_t)((uint64_t)run->piece / cost);
	b->layer = job->blocks->layers;
	b->at = 0;
	b->next = 0;
	b->reading = b->ahead = false;
	b->current = 0;
	settle(run);
}

/* ---- Work items -----------------------------------------------------------------------------------------
 */

/* A list in a region is read by a work item. */
static bool may_read(const struct run *run)
{
	const struct run_blocks *b = &run->blocks;
	const struct engine_blocks *blocks = run->job->blocks;
	return !blocks->index && !b->reading && !b->ahead && b->next < blocks->n;
}

/* At least one where there is one now. */
static uint64_t work_items_to_come(const struct run *run)
{
	const struct engine_job *job = run->job;
	const struct run_blocks *b = &run->blocks;
	if (!job->blocks)
		return run->next_move < run->n_moves ? run->left / (uint64_t)run->piece + 1 : 0;
	if (b->layer == job->blocks->layers && !may_read(run))
		return 0;
	return b->most ? divide_up(b->left, b->most) + may_read(run) : UINT32_MAX;
}

unsigned run_work_items(const struct run *run, unsigned most)
{
	if (!run->job || run->status)
		return 0;
	if (run->is_waking)
		return run->active == 0 && (!run->is_counted || run->wakes_left > 0);
	unsigned parts = cut_parts(&run->cut, most);
	uint64_t work_items = work_items_to_come(run);
	return work_items < most - parts ? parts + (unsigned)work_items : most;
}

struct task run_task(const struct run *run, const struct engine_move *move)
{
	return (struct task){ .isa = run->tuning->isa,
		              .transform = move->transform,
		              .plan = move->plan,
		              .place = { .dst = cpu_memory(move->dst)->data + move->dst_offset,
		                         .src = cpu_memory(move->src)->data + move->src_offset,
		                         .fill = move->transform->fill,
		                         .piece_bytes = run->piece,
		                         .stream = run->stream } };
}

static void work_item_wake(const struct run *run, struct work_item *ret)
{
	ret->kind = run->is_counted ? WORK_ITEM_WAKE : WORK_ITEM_COUNT;
	ret->n = run->wakes_left < TIMELINE_WAKE_MORE ? run->wakes_left : TIMELINE_WAKE_MORE;
}

static void work_item_part(struct run *run, struct work_item *ret)
{
	ret->kind = WORK_ITEM_PART;
	ret->move = run->cut_of;
	cut_next(&run->cut, &ret->part);
	if (!cut_parts(&run->cut, 1))
		run->cut_of->status = 0; /* unless one of the parts ends otherwise */
}

void run_work_item(struct run *run, struct work_item *ret)
{
	ret->run = run;
	ret->n = 0;
	run->active++;
	if (run->is_waking)
		work_item_wake(run, ret);
	else if (cut_parts(&run->cut, 1))
		work_item_part(run, ret);
	else if (run->job->blocks)
		work_item_blocks(run, ret);
	else
		work_item_moves(run, ret);
}

/* ---- Moves ------------------------------------------------------------------------------------------ */

static void work_item_moves(struct run *run, struct work_item *ret)
{
	uint64_t sum = 0;
	ret->kind = WORK_ITEM_MOVES;
	ret->move = &run->moves[run->next_move];
	for (; run->next_move < run->n_moves && sum < (uint64_t)run->piece; ret->n++) {
		struct engine_move *move = &run->moves[run->next_move];
		uint64_t cost = (uint64_t)task_cost(move->transform, move->plan);
		if (cost > (uint64_t)run->piece && ret->n)
			break;
		run->next_move++;
		run->left -= run->left == UINT64_MAX ? 0 : cost;
		if (cost > (uint64_t)run->piece) {
			struct task task = run_task(run, move);
			cut_init(&run->cut, &task, run->threads);
			run->cut_of = move;
			work_item_part(run, ret);
			return;
		}
		sum += cost;
	}
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

/* Goes on to the next group when this one is done and that one has been read. */
static void settle(struct run *run)
{
	struct engine_blocks *blocks = run->job->blocks;
	struct run_blocks *b = &run->blocks;
	for (;;) {
		if (blocks->index && !b->ahead && b->next < blocks->n) {
			list_read(blocks, b->next, &b->group[!b->current]);
			b->next += b->group[!b->current].n;
			b->ahead = true;
		}
		if (b->layer < blocks->layers || !b->ahead)
			return;
		b->current = !b->current;
		b->ahead = false;
		b->layer = b->at = 0;
	}
}

/* The next n entries of the group's layer have been handed out. */
static void go_on(struct run *run, uint32_t n)
{
	struct run_blocks *b = &run->blocks;
	b->left -= n;
	b->at += n;
	if (b->at == b->group[b->current].n) {
		b->at = 0;
		b->layer++;
	}
	settle(run);
}

/* One block, in parts; a work item without any when it is passed over. */
static void work_item_block(struct run *run, struct work_item *ret)
{
	const struct run_blocks *b = &run->blocks;
	const struct list_group *group = &b->group[b->current];
	int64_t block = group->block[b->at];
	ret->kind = WORK_ITEM_BLOCKS;
	if (block >= 0) {
		struct task task = run_task(run, &run->job->move);
		list_place(run->job, group->first + b->at, block, b->layer, &task.place);
		cut_init(&run->cut, &task, run->threads);
		run->cut_of = &run->job->move;
		work_item_part(run, ret);
	}
	go_on(run, 1);
}

static void work_item_blocks(struct run *run, struct work_item *ret)
{
	struct run_blocks *b = &run->blocks;
	const struct list_group *group = &b->group[b->current];
	ret->move = &run->job->move;
	if (may_read(run)) {
		ret->kind = WORK_ITEM_READ;
		b->reading = true;
		return;
	}
	if (!b->most) {
		work_item_block(run, ret);
		return;
	}
	ret->kind = WORK_ITEM_BLOCKS;
	ret->n = group->n - b->at < b->most ? group->n - b->at : b->most;
	ret->layer = b->layer;
	ret->entry = group->first + b->at;
	memcpy(ret->block, &group->block[b->at], ret->n * sizeof(ret->block[0]));
	go_on(run, ret->n);
}

/* ---- The end ---------------------------------------------------------------------------------------- */

static void end_reading(struct run *run, int status)
{
	struct run_blocks *b = &run->blocks;
	b->reading = false;
	if (status)
		return;
	b->next += b->group[!b->current].n;
	b->ahead = true;
	settle(run);
}

void run_end_work_item(struct run *run, const struct work_item *work_item, int status)
{
	run->active--;
	if (work_item->kind == WORK_ITEM_COUNT) {
		run->is_counted = true;
		run->wakes_left = work_item->n;
		return;
	}
	if (work_item->kind == WORK_ITEM_WAKE) {
		run->wakes_left -= work_item->n < TIMELINE_WAKE_MORE ? run->wakes_left : work_item->n;
		return;
	}
	if (work_item->kind == WORK_ITEM_READ)
		end_reading(run, status);
	if (!status)
		return;
	if (run->job->blocks) {
		run_stop(run, status);
		return;
	}
	if (work_item->move->status != STATUS_DEVICE)
		work_item->move->status = status;
	if (run->cut_of == work_item->move)
		cut_stop(&run->cut);
}

void run_stop(struct run *run, int status)
{
	if (run->is_waking)
		return;
	if (!run->status)
		run->status = status;
	atomic_store_explicit(&run->stopped, true, memory_order_relaxed);
}

bool run_end(struct run *run, struct engine_job **ret)
{
	if (run->active || run_work_items(run, 1))
		return false;
	assert(run->job);
	struct engine_job *job = run->job;
	*ret = job;
	run->job = NULL;
	if (run->is_waking)
		return true;
	job->status = run->status;
	for (uint32_t i = 0; i < run->n_moves && !job->status; i++)
		job->status = run->moves[i].status;
	job->ns = clock_ns() - run->start_ns;
	return true;
}
