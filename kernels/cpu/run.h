/* A run: one job under way, handed out to threads in claims.
 *
 * A claim is either one piece of a slab, or a batch of slabs where all of the job's slabs are smaller than a
 * piece, or a band of slabs (band.h). Slabs are computed as they are reached; nothing is stored for those
 * to come. A run owns nothing. All calls but claim_execute are made under one lock.
 */
#ifndef KERNELS_CPU_RUN_H
#define KERNELS_CPU_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "band.h"
#include "kernels/engine.h"
#include "move.h"
#include "tuning.h"

struct run {
	struct engine_job *job; /* NULL: idle */
	const struct cpu_tuning *tuning;
	struct slabs slabs;
	struct move_place place;
	struct bands bands; /* when transform is set, they are what is called slabs below */
	uint64_t n_slabs;
	uint64_t next_slab;
	uint64_t batch;     /* slabs of a claim; 0: pieces are claimed */
	struct move move;   /* of slab next_slab - 1, when pieces are claimed */
	int64_t next_piece; /* of it */
	unsigned active;    /* claims being executed */
	uint64_t start_ns;
	int status; /* the first failure */
	atomic_bool stopped;
};

struct claim {
	struct run *run;
	uint64_t first, end; /* slabs; equal when it is a piece */
	int64_t piece;
	struct move move;
};

/* The clock of a job's ns. */
uint64_t run_now_ns(void);

/* Slab i of a job's; room is where it is made when the plan does not hold it. */
const struct nest *run_slab(const struct engine_job *job, const struct slabs *slabs, uint64_t i,
                            struct nest *room);

/* Takes a job up; threads: how many may claim from it. *tuning must live as long as the run. */
void run_start(struct run *run, struct engine_job *job, const struct cpu_tuning *tuning, uint32_t threads);

/* About how many claims are left, capped at most. */
unsigned run_claims(const struct run *run, unsigned most);

/* One claim, for claim_execute and then run_end_claim. There must be one. */
void run_claim(struct run *run, struct claim *ret);

/* Runs a claim in this thread; false when the memory failed under it. scratch as for move_run. */
bool claim_execute(struct claim *claim, char *scratch);

void run_end_claim(struct run *run, bool whole);

/* No more claims; the job ends with status when those being executed have. */
void run_stop(struct run *run, int status);

/* Whether all is done; fills the job's result and makes the run idle. */
bool run_end(struct run *run, struct engine_job **ret);

#endif
