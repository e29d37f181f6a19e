/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs are small, and the shortest way through one: no work items, no lock.
 *
 * A few KiB take less time to move than memory takes to answer: all their lines are prefetched before
 * anything else is done. A larger transpose reads its source once in address order first: memory answers
 * three times as fast to accesses that go line after line. Where no cache holds the destination, what goes
 * there is put together in scratch and written past the cache from there: a line that is written in parts
 * would be read first.
 */
#include "small.h"

#include <string.h>

#include "index_list.h"
#include "kernels/cpu/move/amax_groups.h"
#include "kernels/cpu/move/cold.h"
#include "kernels/cpu/move/microkernel.h"
#include "kernels/cpu/move/offsets.h"
#include "kernels/cpu/plan/cpu_memo.h"
#include "kernels/host/memory.h"
#include "proto/clock.h"
#include "running_job.h"

/* Jobs of more subregions, moves or blocks, or that reach over more bytes on either side, do not run where
 * they are submitted, however small: the owner's thread may not meet more than a few pages that have to be
 * found first. */
#define MOST_SUBREGIONS 64
#define MOST_MOVES      64
#define MOST_SPAN       (256 * 1024)

/* A move, or a block of one. */
struct small {
	struct engine_move *move;
	const struct cpu_tuning *tuning;
	char *dst; /* element [0, ..., 0] */
	const char *src;
	struct cpu_scratch *scratch;
};

static int64_t span(const struct tensor_extent *extent)
{
	return extent->high - extent->low;
}

/* ---- What is small ---------------------------------------------------------------------------------- */

struct sum {
	uint64_t bytes, subregions;
	int64_t dst, src; /* spans */
};

/* n times a move; false when it is too much. */
static bool add(struct sum *sum, const struct engine_move *move, int64_t n, const struct cpu_tuning *tuning)
{
	const struct transform *t = move->transform;
	int64_t dst = span(&t->dst_extent), src = span(&t->src_extent);
	if (t->bytes > (uint64_t)tuning->inline_bytes ||
	    cpu_plan(move->plan)->n_subregions > MOST_SUBREGIONS || dst > MOST_SPAN || src > MOST_SPAN)
		return false;
	sum->bytes += (uint64_t)n * t->bytes;
	sum->subregions += (uint64_t)n * cpu_plan(move->plan)->n_subregions;
	sum->dst += n * dst;
	sum->src += n * src;
	return sum->bytes <= (uint64_t)tuning->inline_bytes && sum->subregions <= MOST_SUBREGIONS &&
	       sum->dst <= MOST_SPAN && sum->src <= MOST_SPAN;
}

/* Entries of a list that name a block, as far as is known before the list is read. */
static uint64_t count_named(const struct engine_blocks *blocks)
{
	return blocks->index ? index_list_named(blocks) : blocks->n;
}

static bool is_small_list(const struct engine_job *job, const struct cpu_tuning *tuning)
{
	const struct engine_blocks *blocks = job->blocks;
	struct sum sum = { 0 };
	uint64_t n;
	if (blocks->n > MOST_MOVES)
		return false;
	n = count_named(blocks);
	if (n == 0)
		return true;
	return (blocks->layers <= MOST_MOVES && n <= MOST_MOVES / blocks->layers &&
	        add(&sum, &job->move, (int64_t)n * blocks->layers, tuning));
}

bool small_is(const struct engine_job *job, const struct cpu_tuning *tuning)
{
	struct sum sum = { 0 };
	if (job->blocks)
		return is_small_list(job, tuning);
	if (!job->moves)
		return add(&sum, &job->move, 1, tuning);
	if (job->n_moves > MOST_MOVES)
		return false;
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (!add(&sum, &job->moves[i], 1, tuning))
			return false;
	return true;
}

/* ---- One move --------------------------------------------------------------------------------------- */

static bool is_near(const struct small *small)
{
	const struct transform *t = small->move->transform;
	return span(&t->dst_extent) <= small->tuning->fetch_bytes &&
	       span(&t->src_extent) <= small->tuning->fetch_bytes;
}

static bool has_gaps(const struct transform *t)
{
	return span(&t->dst_extent) != t->count * t->element;
}

/* Whether it is put together in scratch when its destination turns out not to be in the cache. What memcpy
 * moves is not: it does not read lines that it writes whole. */
static bool may_be_assembled(const struct small *small)
{
	const struct transform *t = small->move->transform;
	int64_t n = span(&t->dst_extent);
	return !t->conversion.is && n > small->tuning->probe_bytes && n <= MADE_BYTES - CPU_LINE &&
	       !has_gaps(t) && cpu_plan(small->move->plan)->family != FAMILY_MEMCPY;
}

static void fetch(const struct small *small)
{
	const struct transform *t = small->move->transform;
	int64_t n_dst = span(&t->dst_extent), n_src = span(&t->src_extent);
	/* Where most lines between the first byte and the last are needed. */
	if ((uint64_t)(n_dst + n_src) <= 2 * t->bytes)
		small->tuning->isa->fetch(small->dst + t->dst_extent.low, may_be_assembled(small) ? 0 : n_dst,
		                          small->src + t->src_extent.low, n_src);
}

/* Reads a byte of each line of a source without gaps: fetches that are only asked for are forgotten when
 * there are more than a few dozen. */
static void touch(const struct small *small)
{
	const struct transform *t = small->move->transform;
	const volatile char *src = small->src + t->src_extent.low;
	int64_t n = span(&t->src_extent);
	if ((uint64_t)(t->count * t->element + n) != t->bytes)
		return;
	for (int64_t at = 0; at < n; at += CPU_LINE)
		(void)src[at];
}

/* A destination without gaps, in the cache, takes a constant's border and all between in one run of stores;
 * the interior then goes over it. */
static bool is_filled_first(const struct transform *t, const struct subregions *subregions)
{
	return t->mode == PAD_MODE_CONSTANT && subregions->interior && subregions->n > 1 && !has_gaps(t);
}

static void fill(const struct small *small, char *dst)
{
	const struct transform *t = small->move->transform;
	struct microkernel microkernel = { .isa = small->tuning->isa,
		                           .unit = t->element,
		                           .dst = dst,
		                           .src = (const char *)t->fill,
		                           .rows = 1,
		                           .cols = t->count };
	microkernel_repeat(&microkernel);
}

/* All subregions into dst, which is the destination or what stands for it; in_cache: so is dst. */
static void run_subregions(const struct small *small, char *dst, bool in_cache)
{
	const struct transform *t = small->move->transform;
	struct task task = { .isa = small->tuning->isa,
		             .transform = t,
		             .plan = cpu_plan(small->move->plan),
		             .place = { .dst = dst,
		                        .src = small->src,
		                        .fill = t->fill,
		                        .piece_bytes = small->tuning->piece_most,
		                        .tiled_bytes = INT64_MAX } };
	struct subregions subregions;
	if (t->conversion.is)
		task.place.conversion = running_job_conversion(small->move);
	subregions_init(&subregions, t);
	uint64_t n = subregions.n;
	if (in_cache && is_filled_first(t, &subregions)) {
		fill(small, dst + t->dst_extent.low);
		n = 1;
	}
	struct small_plan *plan = small_plan_find(&task, &cpu_memo(small->move->plan)->small, small->scratch);
	if (plan) {
		small_plan_run(plan, n, dst, small->src, small->scratch);
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		struct loop_nest room;
		struct offsets offsets;
		struct move move;
		const struct loop_nest *nest = task_subregion(&task, &subregions, i, &room);
		if (offsets_init(&offsets, nest)) {
			offsets_run(&offsets, task.isa, dst, small->src);
			continue;
		}
		move_init(&move, task.isa, nest, &task.place);
		if (move.pass == AMAX_REDUCE) {
			amax_run_groups(nest, task.isa, &task.place, NULL, small->scratch);
			continue;
		}
		for (int64_t piece = 0; piece < move.pieces; piece++)
			move_run(&move, piece, small->scratch);
	}
}

/* By way of scratch, where it begins at the same place in a line. */
static void assemble(const struct small *small)
{
	const struct tensor_extent *extent = &small->move->transform->dst_extent;
	const struct microkernel out = { .isa = small->tuning->isa, .scratch = small->scratch->move };
	char *dst = small->dst + extent->low;
	char *stage = small->scratch->made + (uintptr_t)dst % CPU_LINE;
	run_subregions(small, stage - extent->low, true);
	microkernel_copy_run(&out, dst, stage, span(extent));
	small->tuning->isa->fence();
}

/* Contiguous on both sides; not one element repeated, which is one subregion too. */
static bool is_one_run(const struct engine_move *move)
{
	const struct transform *t = move->transform;
	return cpu_plan(move->plan)->family == FAMILY_MEMCPY && cpu_plan(move->plan)->n_subregions == 1 &&
	       t->bytes == 2 * (uint64_t)t->count * t->element;
}

static void run_one_run(const struct small *small)
{
	const struct transform *t = small->move->transform;
	const struct loop_nest *nest = &cpu_plan(small->move->plan)->interior;
	memcpy(small->dst + nest->dst_offset, small->src + nest->src_offset, (size_t)(t->count * t->element));
}

static void work(void *arg)
{
	const struct small *small = arg;
	if (is_one_run(small->move)) {
		run_one_run(small);
		return;
	}
	const struct tensor_extent *extent = &small->move->transform->dst_extent;
	bool may_assemble = may_be_assembled(small);
	bool is_cold =
	    may_assemble && cold_is(small->dst + extent->low, span(extent), small->tuning->cold_ns);
	if (!is_near(small) && cpu_plan(small->move->plan)->family == FAMILY_TILE_TRANSPOSE)
		touch(small);
	if (is_cold)
		assemble(small);
	else
		run_subregions(small, small->dst, may_assemble || is_near(small));
}

/* What comes next, between these places; its lines are asked for. */
static void aim(struct small *small, struct engine_move *move, char *dst, const char *src)
{
	small->move = move;
	small->dst = dst;
	small->src = src;
	if (is_near(small))
		fetch(small);
}

static void aim_at_move(struct small *small, struct engine_move *move)
{
	aim(small, move, host_memory(move->dst)->data + (int64_t)move->dst_offset,
	    host_memory(move->src)->data + (int64_t)move->src_offset);
}

/* ranges: of the memory that it touches beside the operands of a conversion. */
static int run_guarded(struct small *small, const struct fault_range ranges[2])
{
	struct fault_range all[RUNNING_JOB_RANGES];
	uint32_t n = running_job_ranges(small->move, all);
	all[0] = ranges[0];
	all[1] = ranges[1];
	return fault_guard_ranges(all, n, work, small) ? 0 : STATUS_DEVICE;
}

static int run_one(struct small *small)
{
	struct fault_range ranges[2] = { host_memory(small->move->dst)->mapped,
		                         host_memory(small->move->src)->mapped };
	return run_guarded(small, ranges);
}

/* ---- A job ------------------------------------------------------------------------------------------ */

static int run_single(struct engine_move *move, struct small *small)
{
	move->status = run_one(small);
	running_job_judge(move);
	return move->status;
}

static int run_moves(struct engine_move *moves, uint32_t n, struct small *small)
{
	int first = 0;
	for (uint32_t i = 0; i < n; i++) {
		aim_at_move(small, &moves[i]);
		int status = run_single(&moves[i], small);
		if (!first)
			first = status;
	}
	return first;
}

struct reading {
	struct engine_blocks *blocks;
	struct index_list_group group;
};

static void read_list(void *arg)
{
	struct reading *reading = arg;
	index_list_read(reading->blocks, 0, &reading->group);
}

static int run_blocks(struct engine_job *job, struct small *small)
{
	struct reading reading;
	struct fault_range ranges[2] = { index_list_range(job->blocks) };
	const struct index_list_group *group = &reading.group;
	int status = 0;
	reading.blocks = job->blocks;
	if (!fault_guard(ranges, read_list, &reading))
		return STATUS_DEVICE;
	for (uint32_t layer = 0; layer < job->blocks->layers && group->named > 0; layer++) {
		index_list_layer_ranges(job, layer, ranges);
		for (uint32_t i = 0; i < group->n && !status; i++) {
			struct move_place place;
			if (group->block[i] < 0)
				continue;
			index_list_place(job, i, group->block[i], layer, &place);
			aim(small, &job->move, place.dst, place.src);
			status = run_guarded(small, ranges);
		}
	}
	return status;
}

void small_run(struct engine_job *job, const struct cpu_tuning *tuning, struct cpu_scratch *scratch)
{
	struct small small = { .tuning = tuning, .scratch = scratch };
	bool is_one = !job->blocks && !job->moves;
	/* The clock takes as long as the memory takes to answer. */
	if (is_one)
		aim_at_move(&small, &job->move);
	uint64_t start_ns = clock_ns();
	if (is_one)
		job->status = run_single(&job->move, &small);
	else if (job->moves)
		job->status = run_moves(job->moves, job->n_moves, &small);
	else
		job->status = run_blocks(job, &small);
	if (job->blocks && !job->status && job->move.changed)
		job->status = STATUS_OUT_OF_RANGE;
	job->ns = clock_ns() - start_ns;
}
