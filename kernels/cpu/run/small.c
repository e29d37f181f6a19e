/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which jobs are small, and moves those by the shortest path, without work items and without a lock.
 * The plan of a small move has a step for each subregion; such plans are kept in a ring of bytes.
 *
 * Moving a few KiB takes less time than memory takes to answer, so all cache lines of such a move are
 * prefetched before anything else is done. A larger transpose first reads its source once in address order,
 * because memory answers three times as fast to accesses that go line after line. If no cache holds the
 * destination, it is assembled in scratch memory and written past the cache from there, because a line that
 * is written in parts would be read first.
 */
#include "small.h"

#include <stddef.h>
#include <string.h>

#include "kernels/cpu/move/amax.h"
#include "kernels/cpu/move/microkernel.h"
#include "kernels/cpu/move/offsets.h"
#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/host/memory.h"
#include "proto/clock.h"
#include "running_job.h"

/* ---- Plans that are kept ---------------------------------------------------------------------------- */

/* Bytes of the ring, small enough for the second-level cache. Other sizes were not measured. */
#define RING (256 << 10)

/* Maximum number of subregions of a transform that gets a small plan. Other numbers were not measured. */
#define MOST_STEPS 32

/* Bytes of the ring that a step by tiles is charged, although it takes fewer. This limits such steps to the
 * number of plans of tiles that can be kept at once (tile.c). */
#define TILED_BYTES (RING / 16)

/* Minimum number of bytes of the destination for tiles to be considered. Not measured separately. */
#define TILES_LEAST 2048

/* Tiles move runs of fewer bytes than this faster than the microkernel, which moves them one by one. */
#define SHORT_RUN 8

/* The move of one subregion. */
struct step {
	uint32_t bytes; /* bytes of the step in the ring */
	bool by_offsets, is_fill, converts;
	char *dst; /* base addresses for which `move` is set up at present */
	const char *src;
	struct convert_place conversion; /* operands and results for which `move` is set up at present */
	union {
		struct move move;
		struct offsets offsets; /* only the used part of the tables is stored */
	};
};

struct small_plan {
	const struct cpu_isa *isa;
	uint64_t n;
	uint8_t fill[TENSOR_MAX_ELEMENT];
	/* The steps follow the struct. */
};

struct ring {
	uint64_t written; /* bytes written since the start; the ring position is this modulo RING */
	_Alignas(CPU_LINE) char bytes[RING];
};

_Static_assert(sizeof(struct ring) <= SMALL_PLANS_BYTES, "move.h: it has room");

static struct ring *ring_of(struct cpu_scratch *scratch)
{
	return (struct ring *)(void *)scratch->small_plans;
}

/* ---- The ring --------------------------------------------------------------------------------------- */

static struct small_plan *plan_at(struct ring *ring, uint64_t at)
{
	return (struct small_plan *)(void *)(ring->bytes + at % RING);
}

/* Returns whether the memo has a plan that has not been overwritten. Making another plan may have written up
 * to one step beyond `written`. */
static bool is_whole(const struct ring *ring, const struct small_memo *memo)
{
	return memo->has_plan && ring->written + sizeof(struct step) - memo->at <= RING;
}

static struct step *first_step(struct small_plan *plan)
{
	return (struct step *)(void *)((char *)plan + sizeof(*plan));
}

static struct step *next_step(struct step *step)
{
	return (struct step *)(void *)((char *)step + step->bytes);
}

/* ---- A plan ----------------------------------------------------------------------------------------- */

/* Returns whether the order of the dimensions is the same on both sides, so that a tile would have nothing to
 * reorder. */
static bool has_order(const struct loop_nest *nest)
{
	int64_t before = INT64_MAX;
	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].src < 0 || nest->dim[d].src > before)
			return false;
		before = nest->dim[d].src;
	}
	return true;
}

/* Returns whether tiles would be faster than the step's present way to move. This holds only for tiles whose
 * plans are kept, because planning tiles takes longer than a small move.
 *
 * Measured as speed by tiles relative to the speed without, medians of benchmark cases of 4 to 64 KiB:
 * element by element, 1.6 for elements of 1 and 2 bytes, 0.8 for larger ones; transposes in squares, 1.9 if
 * columns are up to 16 bytes long, 1.3 for elements of 8 bytes if columns have 3 elements or have 2 and rows
 * up to 4, else 0.8; 1.2 for runs of 3 to 7 bytes, 0.8 for longer ones; 0.8 for transposes by the
 * microkernel.
 */
static bool is_faster_by_tiles(const struct step *step, const struct loop_nest *nest)
{
	const struct offsets *offsets = &step->offsets;
	if (!cpu_strategy_tiles.probe(nest) || loop_nest_count(nest) * nest->element < TILES_LEAST)
		return false;
	if (!step->by_offsets)
		return step->move.strategy == &cpu_strategy_strided && step->move.unit < SHORT_RUN &&
		       !has_order(nest);
	if (!offsets->transposes)
		return offsets->unit <= 2;
	if (offsets->unit == 8)
		return offsets->cols == 3 || (offsets->cols < 3 && offsets->rows <= 4);
	return offsets->cols * offsets->unit <= 16;
}

static void step_init(struct step *step, const struct loop_nest *nest, const struct task *task)
{
	struct move_place place = task->place;
	step->is_fill = nest->fill;
	step->converts = nest->converted;
	step->conversion = place.conversion;
	step->dst = place.dst;
	step->src = place.src;
	step->by_offsets = offsets_init(&step->offsets, nest);
	if (!step->by_offsets)
		move_init(&step->move, task->isa, nest, &place);
	if (is_faster_by_tiles(step, nest)) {
		step->by_offsets = false;
		place.tiled_bytes = 0;
		move_init(&step->move, task->isa, nest, &place);
	}
}

static uint32_t step_bytes(const struct step *step)
{
	if (step->by_offsets)
		return (uint32_t)(offsetof(struct step, offsets) + offsets_size(&step->offsets));
	if (step->move.strategy->run && !(step->converts && step->move.is_direct))
		return TILED_BYTES;
	return (uint32_t)(offsetof(struct step, move) + sizeof(step->move));
}

/* Makes the plan at the end of the ring, and sets *ret_at to its position. Returns NULL if the plan would
 * take too much of the ring, or the move has amax blocks that are done in groups (amax.h). */
static struct small_plan *make_plan(struct ring *ring, const struct task *task, uint64_t *ret_at)
{
	uint64_t most = RING / 4, bytes = sizeof(struct small_plan);
	struct subregions subregions;
	if (RING - ring->written % RING < most)
		ring->written += RING - ring->written % RING;
	struct small_plan *plan = plan_at(ring, ring->written);
	*ret_at = ring->written;
	ring->written += most;
	subregions_init(&subregions, task->transform);
	plan->isa = task->isa;
	plan->n = subregions.n;
	memcpy(plan->fill, task->transform->fill, sizeof(plan->fill));
	struct task own = *task;
	own.place.fill = plan->fill;
	struct step *step = first_step(plan);
	for (uint64_t i = 0; i < plan->n; i++, step = next_step(step)) {
		struct loop_nest room;
		if (most - bytes < sizeof(*step))
			return NULL;
		step_init(step, task_subregion(task, &subregions, i, &room), &own);
		if (!step->by_offsets && step->move.pass == AMAX_REDUCE)
			return NULL;
		step->bytes = (step_bytes(step) + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
		bytes += step->bytes;
		if (bytes > most)
			return NULL;
	}
	ring->written -= most - bytes;
	return plan;
}

struct small_plan *small_plan_find(const struct task *task, struct small_memo *memo,
                                   struct cpu_scratch *scratch)
{
	struct ring *ring = ring_of(scratch);
	if (memo->forced != move_forced())
		*memo = (struct small_memo){ .forced = move_forced() };
	if (is_whole(ring, memo))
		return plan_at(ring, memo->at);
	memo->has_plan = false;
	/* The plan is made the second time that the layout is seen. After that, making it is tried less and
	 * less often, because there may not be enough space for the plans of all layouts in use. */
	memo->seen++;
	if (task->plan->n_subregions > MOST_STEPS || memo->seen < 2 || memo->seen & (memo->seen - 1))
		return NULL;
	kept_count(task->place.kept);
	struct small_plan *plan = make_plan(ring, task, &memo->at);
	memo->has_plan = plan;
	return plan;
}

void small_plan_run(struct small_plan *plan, uint64_t n, char *dst, const char *src,
                    const struct convert_place *conversion, struct cpu_scratch *scratch)
{
	struct step *step = first_step(plan);
	for (uint64_t i = 0; i < n; i++, step = next_step(step)) {
		if (step->by_offsets) {
			offsets_run(&step->offsets, plan->isa, dst, src);
			continue;
		}
		move_shift(&step->move, dst - step->dst, step->is_fill ? 0 : src - step->src);
		step->dst = dst;
		step->src = src;
		if (step->converts) {
			move_convert_at(&step->move, &step->conversion, conversion);
			step->conversion = *conversion;
		}
		for (int64_t piece = 0; piece < step->move.pieces; piece++)
			move_run(&step->move, piece, scratch);
	}
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

/* Limits of a small job: its subregions, its moves or blocks, and the bytes from its first to its last on
 * either side. Jobs beyond these limits do not run in the submitting thread, however few bytes they move,
 * because the owner's thread should touch only a few pages that are not in its TLB. */
#define MOST_SUBREGIONS 64
#define MOST_MOVES      64
#define MOST_SPAN       (256 * 1024)

/* State of running one small move, or one block. */
struct small {
	struct engine_move *move;
	const struct cpu_tuning *tuning;
	char *dst; /* address of element [0, ..., 0] */
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
	int64_t dst, src; /* bytes from the first to the last byte on each side, summed over the moves */
};

/* Adds a move n times. Returns false if the sum exceeds the limits. */
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

/* Returns the number of list entries that name a block, as far as that is known before the list is read. */
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

/* Returns whether the destination is to be assembled in scratch if it turns out to be in no cache. That of a
 * plain memcpy is not, because memcpy does not read lines that it writes as a whole. */
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
	/* Fetching both sides as a whole pays off if most lines between the first byte and the last are
	 * needed. */
	if ((uint64_t)(n_dst + n_src) <= 2 * t->bytes)
		small->tuning->isa->fetch(small->dst + t->dst_extent.low, may_be_assembled(small) ? 0 : n_dst,
		                          small->src + t->src_extent.low, n_src);
}

/* Reads a byte of each line of a source without gaps. Prefetching would not do, because the CPU drops
 * prefetches when there are more than a few dozen. */
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

/* Returns whether the destination is first filled with the padding value as a whole. This is done for a
 * constant border if the destination has no gaps and is in the cache: one run of stores fills all of it, and
 * the interior is then written over the filling. */
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

/* Moves all subregions to dst, which is the destination or a buffer in its place. in_cache says whether dst
 * is in the cache. */
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
		                        .tiled_bytes = INT64_MAX,
		                        .kept = &cpu_plan(small->move->plan)->kept } };
	struct subregions subregions;
	if (t->conversion.is)
		task.place.conversion = running_job_conversion(small->move);
	subregions_init(&subregions, t);
	uint64_t n = subregions.n;
	if (in_cache && is_filled_first(t, &subregions)) {
		fill(small, dst + t->dst_extent.low);
		n = 1;
	}
	struct small_plan *plan = small_plan_find(&task, &cpu_plan(small->move->plan)->small, small->scratch);
	if (plan) {
		small_plan_run(plan, n, dst, small->src, &task.place.conversion, small->scratch);
		return;
	}
	/* The first run of a layout keeps nothing, because the layout may not come again, or may get a small
	 * plan the next time. */
	if (cpu_plan(small->move->plan)->small.seen == 1) {
		kept_count(task.place.kept);
		task.place.kept = NULL;
	}
	for (uint64_t i = 0; i < n; i++) {
		struct loop_nest room;
		struct offsets tables;
		struct move move;
		const struct loop_nest *nest = task_subregion(&task, &subregions, i, &room);
		const struct offsets *offsets = offsets_find(task.place.kept, nest, &tables);
		if (offsets) {
			offsets_run(offsets, task.isa, dst, small->src);
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

/* Assembles the destination in scratch and copies it from there. In scratch it starts at the same offset
 * within a cache line as in its place. */
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

/* Returns whether the move is contiguous on both sides. A single source element that is repeated makes one
 * subregion too, but is not contiguous. */
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

/* Sets the next move and its places, and prefetches its lines if they are few. */
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

/* Runs the move under a guard. ranges is the memory of dst and src; that of the operands and results is added
 * here. */
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
			if (group->entry[i].dst < 0)
				continue;
			index_list_place(job, &group->entry[i], layer, &place);
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
	/* Prefetch before the clock is read, because reading the clock takes as long as memory takes to
	 * answer. */
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
