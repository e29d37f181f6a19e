/* How a job is cut into claims, and how one is executed: its slabs are made as they are reached, under the
 * guard against memory that fails. */
#include "run.h"

#include <assert.h>
#include <time.h>

#include "memory.h"

#define BATCH_MOST 256 /* slabs */

static void claim_work(void *arg);
static void next_move(struct run *run);

uint64_t run_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t max(int64_t a, int64_t b)
{
	return a > b ? a : b;
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

void run_start(struct run *run, struct engine_job *job, const struct cpu_tuning *tuning, uint32_t threads)
{
	const struct transform *t = job->move.transform;
	int64_t bytes = t->count * t->element;
	int64_t piece = bytes / (4 * (int64_t)threads);
	if (piece < tuning->piece_least)
		piece = tuning->piece_least;
	if (piece > tuning->piece_most)
		piece = tuning->piece_most;
	run->job = job;
	run->tuning = tuning;
	slabs_init(&run->slabs, t);
	run->place = (struct move_place){ .dst = cpu_memory(job->move.dst)->data + job->move.dst_offset,
		                          .src = cpu_memory(job->move.src)->data + job->move.src_offset,
		                          .fill = t->fill,
		                          .piece_bytes = piece,
		                          .stream = bytes >= tuning->stream_bytes };
	run->next_slab = 0;
	run->next_piece = 0;
	run->move.pieces = 0;
	run->active = 0;
	run->status = 0;
	run->start_ns = run_now_ns();
	atomic_init(&run->stopped, false);
	run->batch = 0;
	run->n_slabs = run->slabs.n;
	run->bands.transform = NULL;
	if (run->place.stream && run->slabs.n > 1 && bands_init(&run->bands, t)) {
		run->n_slabs = run->bands.n;
		run->batch = 1;
		return;
	}
	int64_t largest = largest_slab(t);
	if (run->slabs.n && largest <= piece) {
		uint64_t share = run->slabs.n / (4 * (uint64_t)threads) + 1;
		run->batch = (uint64_t)(piece / largest);
		if (run->batch > share)
			run->batch = share;
		if (run->batch > BATCH_MOST)
			run->batch = BATCH_MOST;
	}
}

unsigned run_claims(const struct run *run, unsigned most)
{
	uint64_t claims = (uint64_t)(run->move.pieces - run->next_piece);
	if (claims >= most)
		return most;
	uint64_t slabs = run->n_slabs - run->next_slab;
	if (run->batch)
		slabs = slabs / run->batch + (slabs % run->batch != 0);
	else if (slabs) /* each may have many pieces */
		slabs = most;
	return slabs < most - claims ? (unsigned)(claims + slabs) : most;
}

const struct nest *run_slab(const struct engine_job *job, const struct slabs *slabs, uint64_t i,
                            struct nest *room)
{
	if (i == 0 && slabs->interior && slabs->transform->mode == PAD_MODE_CONSTANT)
		return &job->move.plan->interior;
	slabs_get(slabs, i, CPU_ALIGN, room);
	return room;
}

static void next_move(struct run *run)
{
	struct nest room;
	move_init(&run->move, run->tuning->isa, run_slab(run->job, &run->slabs, run->next_slab++, &room),
	          &run->place);
	run->next_piece = 0;
}

void run_claim(struct run *run, struct claim *ret)
{
	ret->run = run;
	run->active++;
	if (run->batch) {
		uint64_t left = run->n_slabs - run->next_slab;
		ret->first = run->next_slab;
		run->next_slab += left < run->batch ? left : run->batch;
		ret->end = run->next_slab;
		return;
	}
	if (run->next_piece == run->move.pieces)
		next_move(run);
	ret->first = ret->end = run->next_slab;
	ret->move = run->move;
	ret->piece = run->next_piece++;
}

/* ---- Executing -------------------------------------------------------------------------------------- */

struct execution {
	struct claim *claim;
	char *scratch;
};

bool claim_execute(struct claim *claim, char *scratch)
{
	const struct engine_job *job = claim->run->job;
	struct fault_range ranges[2] = { cpu_memory(job->move.dst)->mapped,
		                         cpu_memory(job->move.src)->mapped };
	struct execution execution = { claim, scratch };
	return fault_guard(ranges, claim_work, &execution);
}

static void claim_work(void *arg)
{
	struct execution *execution = arg;
	struct claim *claim = execution->claim;
	struct run *run = claim->run;
	if (claim->first == claim->end)
		move_run(&claim->move, claim->piece, execution->scratch);
	for (uint64_t i = claim->first; i < claim->end; i++) {
		struct nest room;
		if (atomic_load_explicit(&run->stopped, memory_order_relaxed))
			return;
		if (run->bands.transform) {
			bands_run(&run->bands, i, run->tuning->isa, &run->place, execution->scratch);
			continue;
		}
		move_init(&claim->move, run->tuning->isa, run_slab(run->job, &run->slabs, i, &room),
		          &run->place);
		for (int64_t piece = 0; piece < claim->move.pieces; piece++)
			move_run(&claim->move, piece, execution->scratch);
	}
}

void run_end_claim(struct run *run, bool whole)
{
	run->active--;
	if (!whole)
		run_stop(run, STATUS_DEVICE);
}

void run_stop(struct run *run, int status)
{
	if (!run->status)
		run->status = status;
	run->next_slab = run->n_slabs;
	run->next_piece = run->move.pieces;
	atomic_store_explicit(&run->stopped, true, memory_order_relaxed);
}

bool run_end(struct run *run, struct engine_job **ret)
{
	if (run->active || run_claims(run, 1))
		return false;
	assert(run->job);
	run->job->status = run->status;
	run->job->ns = run_now_ns() - run->start_ns;
	*ret = run->job;
	run->job = NULL;
	return true;
}
