/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a batch on several devices, and what becomes of them together. */
#include "spread.h"

#include <stdlib.h>

#include "batch.h"
#include "daemon/net/session.h"
#include "daemon/server.h"
#include "job.h"
#include "reach.h"

/* What one device has of it. */
struct spread_part {
	struct engine_job engine_job; /* the first member */
	struct spread *spread;
	uint32_t device;
	uint32_t *move; /* of the batch, for each of its own */
};

struct spread {
	struct job *job;
	struct batch *batch;
	void (*on_done)(struct engine_job *job); /* the job's own */
	uint64_t ns;                             /* of all engines */
	uint32_t left;                           /* parts that have not ended */
	uint32_t n;
	struct spread_part part[];
};

static void on_part_done(struct engine_job *engine_job);
static void on_signalled(struct engine_job *engine_job);

/* ---- Dividing ------------------------------------------------------------------------------------------ */

/* The part of a device, which is made if there is none. */
static struct spread_part *part_of(struct spread *spread, uint32_t device)
{
	struct spread_part *part = spread->part;

	while (part < spread->part + spread->n && part->device != device)
		part++;
	if (part == spread->part + spread->n) {
		*part = (struct spread_part){ .spread = spread, .device = device };
		spread->n++;
	}
	return part;
}

static void count_moves(struct spread *spread)
{
	const struct batch *batch = spread->batch;

	for (uint32_t i = 0; i < batch->n; i++)
		if (batch->items[i].n_moves)
			part_of(spread, batch->items[i].device)->engine_job.n_moves +=
			    batch->items[i].n_moves;
}

/* The moves of all parts are one block of memory, of which the first part has the start. */
static bool take_moves(struct spread *spread)
{
	const struct batch *batch = spread->batch;
	struct engine_move *moves = malloc(batch->n_moves * (sizeof *moves + sizeof(uint32_t)));
	uint32_t *index = (uint32_t *)(moves + batch->n_moves), move = 0;

	if (!moves)
		return false;
	for (uint32_t p = 0; p < spread->n; p++) {
		struct spread_part *part = &spread->part[p];

		part->engine_job.moves = moves;
		part->move = index;
		moves += part->engine_job.n_moves;
		index += part->engine_job.n_moves;
		part->engine_job.n_moves = 0;
	}
	for (uint32_t i = 0; i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];

		for (uint32_t m = 0; m < item->n_moves; m++, move++) {
			struct spread_part *part = part_of(spread, item->device);
			const uint32_t at = part->engine_job.n_moves++;

			part->engine_job.moves[at] = batch->moves[move];
			part->move[at] = move;
		}
	}
	return true;
}

/* Of the job's order, all but the signal. */
static int take_order(struct spread_part *part, const struct job *job, struct error *err)
{
	const struct engine_job *whole = &job->engine_job;
	struct engine_job *own = &part->engine_job;
	int r = region_reach_if(job->wait, part->device, err);

	if (r == 0)
		r = session_open_stream(job->session, part->device, err);
	if (r < 0)
		return r;
	own->wait = whole->wait;
	if (whole->wait.memory)
		own->wait.memory = region_memory(job->wait, part->device);
	own->wait_until_ns = whole->wait_until_ns;
	own->priority = whole->priority;
	own->multiprocessors = whole->multiprocessors;
	own->host_threads = whole->host_threads;
	own->on_done = on_part_done;
	return 0;
}

int spread_new(struct job *job, struct batch *batch, struct spread **ret, struct error *err)
{
	const uint32_t most = job->session->server->devices.n;
	struct spread *spread = calloc(1, sizeof *spread + most * sizeof spread->part[0]);
	int r = 0;

	if (!spread)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a batch on several devices");
	spread->job = job;
	spread->batch = batch;
	count_moves(spread);
	if (!take_moves(spread))
		r = error_set(err, STATUS_NO_MEMORY, "no memory for a batch on several devices");
	for (uint32_t p = 0; p < spread->n && (r == 0 || r == REACH_LATER); p++) {
		const int one = take_order(&spread->part[p], job, err);

		r = one < 0 ? one : r;
	}
	if (r < 0)
		spread_free(spread);
	else
		*ret = spread;
	return r;
}

void spread_free(struct spread *spread)
{
	if (!spread)
		return;
	free(spread->part[0].engine_job.moves);
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

void spread_submit(struct spread *spread)
{
	spread->on_done = spread->job->engine_job.on_done;
	spread->left = spread->n;
	for (uint32_t p = 0; p < spread->n; p++)
		submit(spread, spread->part[p].device, &spread->part[p].engine_job);
}

/* What failed single moves is told by these; anything else failed the whole. */
static bool is_of_moves(int status)
{
	return status == 0 || status == STATUS_DEVICE || status == STATUS_OUT_OF_RANGE;
}

static void take_outcome(const struct spread *spread, const struct spread_part *part)
{
	const struct engine_job *own = &part->engine_job;
	struct engine_job *whole = &spread->job->engine_job;

	for (uint32_t i = 0; i < own->n_moves; i++)
		spread->batch->moves[part->move[i]] = own->moves[i];
	if (whole->status == 0 || (is_of_moves(whole->status) && !is_of_moves(own->status)))
		whole->status = own->status;
	whole->begun |= own->begun;
}

static void on_part_done(struct engine_job *engine_job)
{
	struct spread_part *part = (struct spread_part *)engine_job;
	struct spread *spread = part->spread;
	struct engine_job *whole = &spread->job->engine_job;

	device_of(spread, part->device)->jobs--;
	take_outcome(spread, part);
	spread->ns += engine_job->ns;
	if (--spread->left > 0)
		return;
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

static void on_signalled(struct engine_job *engine_job)
{
	struct job *job = (struct job *)engine_job; /* its first member */
	struct spread *spread = job->spread;

	device_of(spread, job->device)->jobs--;
	engine_job->ns = spread->ns;
	engine_job->n_moves = spread->batch->n_moves;
	engine_job->wait.memory = spread->part[0].engine_job.wait.memory;
	engine_job->on_done = spread->on_done;
	engine_job->on_done(engine_job);
}
