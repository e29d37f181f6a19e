/* SPDX-License-Identifier: Apache-2.0 */
/* From a batch of items, which have been checked, to a job on the devices that have to move them. */
#include "batch_job.h"

#include "daemon/net/session.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/job.h"
#include "daemon/resource/links.h"
#include "daemon/resource/region.h"
#include "daemon/resource/spread.h"
#include "daemon/server.h"

/* ---- Devices ------------------------------------------------------------------------------------------ */

/* That of the first item; without any, that of what it signals or waits for. */
static uint32_t device_of(const struct job *job, const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (batch->items[i].n_moves)
			return batch->items[i].device;
	if (job->signal && !job->signal->memory->host)
		return job->signal->device;
	return job->wait && !job->wait->memory->host ? job->wait->device : 0;
}

static bool is_spread(const struct batch *batch, uint32_t device)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (batch->items[i].n_moves && batch->items[i].device != device)
			return true;
	return false;
}

int batch_job_run_on(struct job *job, struct batch *batch, struct error *err)
{
	const uint32_t device = device_of(job, batch);
	int r = job_run_on(job, device, err);

	if (r < 0 || job->session->server->devices.n == 1 || !is_spread(batch, device))
		return r;
	return spread_new(job, batch, &job->spread, err);
}

/* ---- Start and end ------------------------------------------------------------------------------------ */

static void answer_at_once(struct job *job)
{
	if (job->completion == COMPLETION_QUEUED)
		session_reply_queued(job->session, job->msgid);
	job->answer(job);
	job_drop(job);
}

void batch_job_submit(struct job *job, struct batch *batch)
{
	const struct engine_job *engine_job = &job->engine_job;

	if (batch->n_moves == 0 &&
	    (batch->n > 0 || !(engine_job->wait.memory || engine_job->signal.memory))) {
		answer_at_once(job);
		return;
	}
	job->engine_job.moves = batch->moves;
	job->engine_job.n_moves = batch->n_moves;
	job_submit(job);
}

/* The engine measures the batch as a whole: each item that succeeded gets a share of the time by its bytes.
 */
void batch_job_count(struct job *job, const struct batch *batch, uint64_t bytes)
{
	const struct batch_item *item = batch->items;
	double share = bytes ? (double)job->engine_job.ns / (double)bytes : 0;
	uint64_t counted = 0, counted_ns = 0;
	bool is_told = false;

	for (const struct engine_move *move = batch->moves; move < batch->moves + batch->n_moves; item++) {
		const int status = batch_item_status(item, move);
		enum family family;
		uint64_t moved, ns;

		if (!item->n_moves)
			continue;
		moved = batch_item_moved(item, move, &family);
		counted += moved;
		if (!item->continues)
			is_told = false;
		if (status) {
			if (!is_told)
				session_count_error(job->session, status);
			is_told = true;
		} else {
			ns = (uint64_t)(share * (double)counted + 0.5) - counted_ns;
			counted_ns += ns;
			job_count_on(job, item->device, family, moved, ns);
			links_count_item(&job->session->server->devices, item, move);
		}
		move += item->n_moves;
	}
}
