/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the steps of a plan, one for each subregion, in a ring of bytes. */
#include "small_plan.h"

#include <stddef.h>
#include <string.h>

#include "cpu_choice.h"
#include "kernels/cpu/move/offsets.h"

/* The ring is small enough for the second cache. Other sizes were not measured. */
#define RING (256 << 10)

/* Transforms of more subregions have no such plan. This was not measured. */
#define MOST_STEPS 32

/* A step that goes by tiles counts as so many bytes: of as many steps as there is room for at once, plans of
 * tiles are kept too (tile.c). */
#define TILED_BYTES (RING / 16)

/* Bytes of the destination from which on tiles are faster where they are. Not measured apart. */
#define TILES_LEAST 2048

/* Runs that tiles move faster than one by one are shorter than this. */
#define SHORT_RUN 8

/* A subregion. */
struct step {
	uint32_t bytes; /* of the ring */
	bool by_offsets, is_fill;
	char *dst; /* where its move is now */
	const char *src;
	union {
		struct move move;
		struct offsets offsets; /* its tables as far as they go */
	};
};

struct small_plan {
	const struct cpu_isa *isa;
	uint64_t n;
	uint8_t fill[TENSOR_MAX_ELEMENT];
	/* Steps follow. */
};

struct ring {
	uint64_t written; /* bytes, ever */
	_Alignas(CPU_LINE) char bytes[RING];
};

_Static_assert(sizeof(struct ring) <= SMALL_PLANS_BYTES, "scratch.h: it has room");

static struct ring *ring_of(struct cpu_scratch *scratch)
{
	return (struct ring *)(void *)scratch->small_plans;
}

/* ---- The ring --------------------------------------------------------------------------------------- */

static struct small_plan *plan_at(struct ring *ring, uint64_t at)
{
	return (struct small_plan *)(void *)(ring->bytes + at % RING);
}

/* Up to a step beyond what was written last may have been used while that was made. */
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

/* Whether the source goes forwards where the destination does: there is nothing to put into order in a tile.
 */
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

/* Whether tiles are faster than what the step has. Those whose plans are kept; to plan tiles takes longer
 * than to move what is small.
 *
 * Speed by tiles to that without, medians of rows of 4 to 64 KiB: element by element, of 1 and 2 bytes 1.6,
 * of 4 and more 0.8; in squares, where columns are up to 16 bytes long, 1.9; of 8 bytes, where columns are 3
 * elements, or 2 and rows up to 4, 1.3; in others 0.8; runs of 3 to 7 bytes 1.2, longer ones 0.8; transposes
 * by the microkernel 0.8. */
static bool is_faster_by_tiles(const struct step *step, const struct loop_nest *nest)
{
	const struct offsets *offsets = &step->offsets;
	if (!cpu_has_tiles(nest) || loop_nest_count(nest) * nest->element < TILES_LEAST)
		return false;
	if (!step->by_offsets)
		return step->move.microkernel == microkernel_strided && step->move.unit < SHORT_RUN &&
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
	return step->move.tiled ? TILED_BYTES : (uint32_t)(offsetof(struct step, move) + sizeof(step->move));
}

/* Makes the plan at the end of the ring; NULL: it takes too much of it. */
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
	if (task->plan->n_subregions > MOST_STEPS || task->transform->conversion.is)
		return NULL;
	if (memo->forced != move_forced())
		*memo = (struct small_memo){ .forced = move_forced() };
	if (is_whole(ring, memo))
		return plan_at(ring, memo->at);
	memo->has_plan = false;
	/* At the second time, and then ever more rarely, in case that there is no room for all that come. */
	memo->seen++;
	if (memo->seen < 2 || memo->seen & (memo->seen - 1))
		return NULL;
	struct small_plan *plan = make_plan(ring, task, &memo->at);
	memo->has_plan = plan;
	return plan;
}

void small_plan_run(struct small_plan *plan, uint64_t n, char *dst, const char *src,
                    struct cpu_scratch *scratch)
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
		for (int64_t piece = 0; piece < step->move.pieces; piece++)
			move_run(&step->move, piece, scratch);
	}
}
