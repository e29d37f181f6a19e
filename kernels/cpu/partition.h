/* One transform between two places, cut into parts that threads can run side by side.
 *
 * A part is one piece of a subregion, or a few subregions where all of them are smaller than a piece, or a
 * scratch block of them (scratch block.h). Subregions are made as they are reached; nothing is stored for
 * those to come. A part needs nothing of the cut that it was taken from but the transform and its plan.
 */
#ifndef KERNELS_CPU_PARTITION_H
#define KERNELS_CPU_PARTITION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "scratch_block.h"
#include "kernels/plan/plan.h"
#include "move.h"

/* What is cut; the transform and the plan must outlive the cut and its parts. */
struct task {
	const struct cpu_isa *isa;
	const struct transform *transform;
	const struct plan *plan;
	struct move_place place;
};

struct part {
	struct task task;
	int64_t piece; /* of move; -1: the subregions from first to end */
	uint64_t first, end;
	bool banded; /* they are scratch blocks */
	struct move move;
};

struct cut {
	struct task task;
	struct subregions subregions;
	bool banded;
	uint64_t n, next;   /* subregions or scratch blocks */
	uint64_t batch;     /* of a part; 0: pieces are parts */
	struct move move;   /* of subregion next - 1, when pieces are parts */
	int64_t next_piece; /* of it */
};

/* Bytes of the lines that a transform touches on the side where they are more, about, with something for each
 * subregion: what it costs. INT64_MAX: more than can be said. */
int64_t task_cost(const struct transform *transform, const struct plan *plan);

/* Subregion i; room is where it is made when the plan does not hold it. */
const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room);

void cut_init(struct cut *cut, const struct task *task, uint32_t threads);

/* About how many parts are left, capped at most; exact where it is 0. A zeroed cut has none. */
unsigned cut_parts(const struct cut *cut, unsigned most);

/* One part. There must be one. */
void cut_next(struct cut *cut, struct part *ret);

/* No more parts. */
void cut_stop(struct cut *cut);

/* All of a task. */
void part_whole(struct part *ret, const struct task *task);

/* false: it was stopped before all was done. scratch as for move_run. */
bool part_run(struct part *part, const atomic_bool *stopped, char *scratch);

#endif
