/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a work item, under a guard against client memory that fails. */
#include "kernels/host/memory.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/host/fault.h"
#include "running_job.h"

/* The move of a block that has one subregion. It is made once and then shifted from place to place. */
struct shifted {
	struct move move;
	bool made, fill;
	struct move_place place;
};

struct execution {
	struct work_item *work_item;
	struct cpu_scratch *scratch;
	bool whole; /* false: the job was stopped meanwhile */
	struct shifted shifted;
};

static bool is_stopped(const struct execution *execution)
{
	return atomic_load_explicit(&execution->work_item->running->stopped, memory_order_relaxed);
}

static int guard(struct execution *execution, const struct fault_range *ranges, uint32_t n,
                 void (*work)(void *arg))
{
	if (!fault_guard_ranges(ranges, n, work, execution))
		return STATUS_DEVICE;
	return execution->whole ? 0 : STATUS_CANCELED;
}

/* Runs work under a guard for the memory that the move touches. */
static int guard_move(struct execution *execution, const struct engine_move *move, void (*work)(void *arg))
{
	struct fault_range ranges[RUNNING_JOB_RANGES];
	return guard(execution, ranges, running_job_ranges(move, ranges), work);
}

/* Runs work under a guard for the memory that blocks of the work item's current layer touch. */
static int guard_layer(struct execution *execution, void (*work)(void *arg))
{
	const struct work_item *work_item = execution->work_item;
	struct fault_range ranges[RUNNING_JOB_RANGES];
	uint32_t n = running_job_ranges(work_item->move, ranges);
	index_list_layer_ranges(work_item->running->job, work_item->layer, ranges);
	return guard(execution, ranges, n, work);
}

/* ---- Partitions and moves --------------------------------------------------------------------------- */

static void partition_work(void *arg)
{
	struct execution *execution = arg;
	struct work_item *work_item = execution->work_item;
	execution->whole =
	    partition_run(&work_item->partition, &work_item->running->stopped, execution->scratch);
}

/* Runs the moves. Those that it does not reach because the job was stopped keep the status CANCELED. */
static void run_moves(struct execution *execution)
{
	struct work_item *work_item = execution->work_item;
	for (uint32_t i = 0; i < work_item->n && !is_stopped(execution); i++) {
		struct task task = running_job_whole_task(work_item->running, &work_item->move[i]);
		partition_whole(&work_item->partition, &task);
		work_item->move[i].status = guard_move(execution, &work_item->move[i], partition_work);
	}
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

static void run_shifted(struct shifted *shifted, const struct task *task, int64_t ahead,
                        struct cpu_scratch *scratch)
{
	struct move *move = &shifted->move;
	if (!shifted->made) {
		struct subregions subregions;
		struct loop_nest room;
		subregions_init(&subregions, task->transform);
		const struct loop_nest *nest = task_subregion(task, &subregions, 0, &room);
		move_init(move, task->isa, nest, &task->place);
		shifted->made = true;
		shifted->fill = nest->fill;
	} else {
		move_shift(move, task->place.dst - shifted->place.dst,
		           shifted->fill ? 0 : task->place.src - shifted->place.src);
	}
	shifted->place = task->place;
	move->ahead = shifted->fill ? 0 : ahead;
	for (int64_t piece = 0; piece < move->pieces; piece++)
		move_run(move, piece, scratch);
}

/* Returns the bytes in the source from block i of a work item to the next one that is not skipped. 0: there
 * is none, or it begins where this one ends, which the hardware prefetcher expects anyway. */
static int64_t way_to_next(const struct work_item *work_item, uint32_t i, const struct move_place *place)
{
	const struct engine_job *job = work_item->running->job;
	const struct tensor_extent *extent = &job->move.transform->src_extent;
	struct move_place next;
	for (i++; i < work_item->n && work_item->entry[i].dst < 0;)
		i++;
	if (i >= work_item->n)
		return 0;
	index_list_place(job, &work_item->entry[i], work_item->layer, &next);
	if (job->move.family == FAMILY_MEMCPY && next.src - place->src == extent->high - extent->low)
		return 0;
	return next.src - place->src;
}

static void blocks_work(void *arg)
{
	struct execution *execution = arg;
	struct work_item *work_item = execution->work_item;
	struct engine_job *job = work_item->running->job;
	struct task task = running_job_whole_task(work_item->running, &job->move);
	bool is_one = cpu_plan(job->move.plan)->n_subregions == 1;
	for (uint32_t i = 0; i < work_item->n && execution->whole; i++) {
		if (work_item->entry[i].dst < 0)
			continue;
		index_list_place(job, &work_item->entry[i], work_item->layer, &task.place);
		if (is_stopped(execution)) {
			execution->whole = false;
		} else if (is_one) {
			run_shifted(&execution->shifted, &task, way_to_next(work_item, i, &task.place),
			            execution->scratch);
		} else {
			partition_whole(&work_item->partition, &task);
			execution->whole = partition_run(&work_item->partition, &work_item->running->stopped,
			                                 execution->scratch);
		}
	}
	if (task.place.stream)
		task.isa->fence();
}

/* Goes layer by layer, because each may lie in another memory. */
static int run_blocks(struct execution *execution)
{
	struct work_item *work_item = execution->work_item;
	const uint32_t end = work_item->layer + work_item->layers;
	int status = 0;
	execution->shifted.made = false;
	for (; work_item->layer < end && !status; work_item->layer++)
		status = guard_layer(execution, blocks_work);
	return status;
}

/* Reads into the group that is not the current one, at which no other thread looks until the work item has
 * ended. */
static void read_work(void *arg)
{
	const struct execution *execution = arg;
	struct running_job *running = execution->work_item->running;
	struct running_blocks *b = &running->blocks;
	index_list_read(running->job->blocks, b->next, &b->group[!b->current]);
}

/* ---- All -------------------------------------------------------------------------------------------- */

static int run_read(struct execution *execution)
{
	struct fault_range ranges[2] = { index_list_range(execution->work_item->running->job->blocks) };
	return fault_guard(ranges, read_work, execution) ? 0 : STATUS_DEVICE;
}

int work_item_execute(struct work_item *work_item, struct cpu_scratch *scratch)
{
	struct execution execution;

	execution.work_item = work_item;
	execution.scratch = scratch;
	execution.whole = true;
	switch (work_item->kind) {
	case WORK_ITEM_PARTITION:
		return work_item->running->job->blocks
		           ? guard_layer(&execution, partition_work)
		           : guard_move(&execution, work_item->move, partition_work);
	case WORK_ITEM_BLOCKS:
		return run_blocks(&execution);
	case WORK_ITEM_READ:
		return run_read(&execution);
	case WORK_ITEM_COUNT:
		work_item->n = timeline_wakes(&work_item->running->job->signal);
		return 0;
	case WORK_ITEM_WAKE:
		work_item->n = timeline_wake(&work_item->running->job->signal, work_item->n);
		return 0;
	default:
		run_moves(&execution);
		return 0;
	}
}
