/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a request on several devices, and what becomes of them together. */
#include "spread.h"

#include <stdlib.h>

#include "batch.h"
#include "daemon/net/session.h"
#include "daemon/server.h"
#include "job.h"
#include "reach.h"

#define NONE UINT32_MAX

struct spread_step {
	struct engine_job engine_job; /* the first member */
	struct spread *spread;
	uint32_t device;
	bool is_withdrawn;    /* canceled, and to be given to its engine again */
	uint32_t *move;       /* of the batch, for each of its own */
	uint32_t after;       /* SPREAD_AT_ONCE, or the step that it comes after */
	uint32_t first, next; /* of the steps that come after it; of those after the same one; NONE */
};

struct spread {
	struct job *job;
	struct batch *batch;
	void (*on_done)(struct engine_job *job); /* the job's own, */
	struct engine_memory *wait;              /* and what it waits for */
	uint64_t ns;                             /* of all engines */
	uint32_t under_way;                      /* steps */
	uint32_t left;                           /* steps that have not started */
	bool is_stopped;
	uint32_t n;
	struct spread_step step[];
};

static void on_step_done(struct engine_job *engine_job);
static void on_signalled(struct engine_job *engine_job);

/* ---- Dividing ------------------------------------------------------------------------------------------ */

static struct spread *allocate(struct job *job, struct batch *batch, uint32_t n)
{
	struct spread *spread = calloc(1, sizeof *spread + n * sizeof spread->step[0]);

	if (!spread)
		return NULL;
	spread->job = job;
	spread->batch = batch;
	spread->n = n;
	for (uint32_t s = 0; s < n; s++)
		spread->step[s] = (struct spread_step){
			.spread = spread, .after = SPREAD_AT_ONCE, .first = NONE, .next = NONE
		};
	return spread;
}

/* step_of: of each item. */
static void count_moves(struct spread *spread, const uint32_t *step_of)
{
	const struct batch *batch = spread->batch;

	for (uint32_t i = 0; i < batch->n; i++) {
		if (!batch->items[i].n_moves)
			continue;
		spread->step[step_of[i]].device = batch->items[i].device;
		spread->step[step_of[i]].engine_job.n_moves += batch->items[i].n_moves;
	}
}

/* The moves of all steps are one block of memory, of which the first step has the start. */
static bool take_moves(struct spread *spread, const uint32_t *step_of)
{
	const struct batch *batch = spread->batch;
	struct engine_move *moves = malloc(batch->n_moves * (sizeof *moves + sizeof(uint32_t)));
	uint32_t *index, move = 0;

	if (!moves)
		return false;
	index = (uint32_t *)(moves + batch->n_moves);
	for (uint32_t s = 0; s < spread->n; s++) {
		struct spread_step *step = &spread->step[s];

		step->engine_job.moves = moves;
		step->move = index;
		moves += step->engine_job.n_moves;
		index += step->engine_job.n_moves;
		step->engine_job.n_moves = 0;
	}
	for (uint32_t i = 0; i < batch->n; i++)
		for (uint32_t m = 0; m < batch->items[i].n_moves; m++, move++) {
			struct spread_step *step = &spread->step[step_of[i]];
			const uint32_t at = step->engine_job.n_moves++;

			step->engine_job.moves[at] = batch->moves[move];
			step->move[at] = move;
		}
	return true;
}

static int take_wait(struct spread_step *step, const struct job *job, struct error *err)
{
	struct engine_job *own = &step->engine_job;
	int r = region_reach(job->wait, step->device, err);

	if (r < 0)
		return r;
	own->wait = job->engine_job.wait;
	own->wait.memory = region_memory(job->wait, step->device);
	own->wait_until_ns = job->engine_job.wait_until_ns;
	return 0;
}

/* Of the job's order, all but the signal. */
static int take_order(struct spread_step *step, const struct job *job, struct error *err)
{
	const struct engine_job *whole = &job->engine_job;
	struct engine_job *own = &step->engine_job;
	int r = session_open_stream(job->session, step->device, err);

	if (r == 0 && step->after == SPREAD_AT_ONCE && whole->wait.memory)
		r = take_wait(step, job, err);
	own->priority = whole->priority;
	own->multiprocessors = whole->multiprocessors;
	own->host_threads = whole->host_threads;
	own->on_done = on_step_done;
	return r;
}

static int fill(struct spread *spread, const uint32_t *step_of, struct error *err)
{
	int r = 0;

	count_moves(spread, step_of);
	if (!take_moves(spread, step_of))
		return error_set(err, STATUS_NO_MEMORY, "no memory for a request on several devices");
	for (uint32_t s = 0; s < spread->n && (r == 0 || r == REACH_LATER); s++) {
		const int one = take_order(&spread->step[s], spread->job, err);

		r = one < 0 ? one : r;
	}
	return r;
}

/* Takes spread over. */
static int finish(struct spread *spread, const uint32_t *step_of, struct spread **ret, struct error *err)
{
	int r = spread && step_of
	            ? fill(spread, step_of, err)
	            : error_set(err, STATUS_NO_MEMORY, "no memory for a request on several devices");

	if (r < 0)
		spread_free(spread);
	else
		*ret = spread;
	return r;
}

/* Numbers the devices that the items run on; returns how many. */
static uint32_t number_devices(const struct batch *batch, uint32_t *step_of)
{
	uint32_t step[ENGINES_MOST], n = 0;

	for (uint32_t d = 0; d < ENGINES_MOST; d++)
		step[d] = NONE;
	for (uint32_t i = 0; i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];

		if (!item->n_moves)
			continue;
		if (step[item->device] == NONE)
			step[item->device] = n++;
		step_of[i] = step[item->device];
	}
	return n;
}

int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err)
{
	uint32_t *step_of = malloc(batch->n * sizeof *step_of);
	struct spread *spread = step_of ? allocate(job, batch, number_devices(batch, step_of)) : NULL;
	int r = finish(spread, step_of, ret, err);

	free(step_of);
	return r;
}

int spread_new_tree(struct job *job, struct batch *batch, const uint32_t *after, struct spread **ret,
                    struct error *err)
{
	uint32_t *step_of = malloc(batch->n * sizeof *step_of);
	struct spread *spread = allocate(job, batch, batch->n);
	int r;

	for (uint32_t i = batch->n; step_of && spread && i-- > 0;) {
		step_of[i] = i;
		spread->step[i].after = after[i];
		if (after[i] == SPREAD_AT_ONCE)
			continue;
		spread->step[i].next = spread->step[after[i]].first;
		spread->step[after[i]].first = i;
	}
	r = finish(spread, step_of, ret, err);
	free(step_of);
	return r;
}

void spread_free(struct spread *spread)
{
	if (!spread)
		return;
	free(spread->step[0].engine_job.moves);
	free(spread);
}

/* ---- Under way ----------------------------------------------------------------------------------------- */

static struct served_device *device_of(const struct spread *spread, uint32_t device)
{
	return &spread->job->session->server->devices.of[device];
}

static void submit(const struct spread *spread, uint32_t at, struct engine_job *engine_job)
{
	struct served_device *device = device_of(spread, at);

	device->jobs++;
	engine_submit(device->engine, spread->job->session->streams[at], engine_job);
}

static void start(struct spread *spread, struct spread_step *step)
{
	spread->under_way++;
	spread->left--;
	submit(spread, step->device, &step->engine_job);
}

void spread_submit(struct spread *spread)
{
	spread->on_done = spread->job->engine_job.on_done;
	spread->wait = spread->job->engine_job.wait.memory;
	spread->left = spread->n;
	for (uint32_t s = 0; s < spread->n; s++)
		if (spread->step[s].after == SPREAD_AT_ONCE)
			start(spread, &spread->step[s]);
}

static bool cancel_step(const struct spread *spread, struct spread_step *step)
{
	return engine_cancel(device_of(spread, step->device)->engine,
	                     spread->job->session->streams[step->device], &step->engine_job);
}

bool spread_cancel(struct spread *spread)
{
	struct spread_step *step = spread->step, *end = spread->step + spread->n;
	bool any = false;

	if (spread->under_way + spread->left < spread->n || spread->is_stopped)
		return false;
	while (step < end && (step->after != SPREAD_AT_ONCE || cancel_step(spread, step)))
		any |= (step++)->after == SPREAD_AT_ONCE;
	if (step == end) {
		spread->is_stopped = true;
		return true;
	}
	while (any && step-- > spread->step)
		step->is_withdrawn = step->after == SPREAD_AT_ONCE;
	return false;
}

void spread_stop(struct spread *spread)
{
	spread->is_stopped = true;
}

/* How much of a job a status is about: single elements, single moves, all of it. */
static int gravity(int status)
{
	switch (status) {
	case 0:
		return 0;
	case STATUS_OUT_OF_RANGE:
		return 1;
	case STATUS_DEVICE:
		return 2;
	default:
		return 3;
	}
}

static void take_outcome(struct spread *spread, const struct spread_step *step)
{
	const struct engine_job *own = &step->engine_job;
	struct engine_job *whole = &spread->job->engine_job;

	for (uint32_t i = 0; i < own->n_moves; i++)
		spread->batch->moves[step->move[i]] = own->moves[i];
	if (gravity(own->status) > gravity(whole->status))
		whole->status = own->status;
	whole->begun |= own->begun && own->status; /* a lost device is suspected of those that it had */
	spread->ns += own->ns;
	spread->is_stopped |= gravity(own->status) > gravity(STATUS_OUT_OF_RANGE);
}

static void end(struct spread *spread)
{
	struct engine_job *whole = &spread->job->engine_job;

	if (spread->left > 0 && gravity(whole->status) <= gravity(STATUS_OUT_OF_RANGE))
		whole->status = STATUS_CANCELED;
	whole->ns = spread->ns;
	if (whole->status || !whole->signal.memory) {
		whole->on_done(whole);
		return;
	}
	whole->n_moves = 0;
	whole->wait.memory = NULL;
	whole->on_done = on_signalled;
	submit(spread, spread->job->device, whole);
}

static void give_again(struct spread *spread, struct spread_step *step)
{
	step->is_withdrawn = false;
	for (uint32_t i = 0; i < step->engine_job.n_moves; i++)
		step->engine_job.moves[i].status = 0;
	submit(spread, step->device, &step->engine_job);
}

static void on_step_done(struct engine_job *engine_job)
{
	struct spread_step *step = (struct spread_step *)engine_job;
	struct spread *spread = step->spread;

	device_of(spread, step->device)->jobs--;
	if (step->is_withdrawn && !spread->is_stopped) {
		give_again(spread, step);
		return;
	}
	take_outcome(spread, step);
	for (uint32_t s = step->first; s != NONE && !spread->is_stopped; s = spread->step[s].next)
		start(spread, &spread->step[s]);
	if (--spread->under_way == 0)
		end(spread);
}

static void on_signalled(struct engine_job *engine_job)
{
	struct job *job = (struct job *)engine_job; /* its first member */
	struct spread *spread = job->spread;

	device_of(spread, job->device)->jobs--;
	engine_job->ns = spread->ns;
	engine_job->n_moves = spread->batch->n_moves;
	engine_job->wait.memory = spread->wait;
	engine_job->on_done = spread->on_done;
	engine_job->on_done(engine_job);
}
