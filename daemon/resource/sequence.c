/* SPDX-License-Identifier: Apache-2.0 */
/* Gives jobs to engines in their order. */
#include "sequence.h"

#include "daemon/net/session.h"
#include "daemon/server.h"
#include "job.h"
#include "spread.h"

static void give(struct job *job)
{
	struct session *session = job->session;
	struct served_device *device = &session->server->devices.of[job->device];

	job->is_given = true;
	session->sequence.under_way++;
	session->sequence.device = job->spread ? DEVICE_ANY : job->device;
	if (job->spread) {
		spread_submit(job->spread);
		return;
	}
	device->jobs++;
	engine_submit(device->engine, session->streams[job->device], &job->engine_job);
}

/* Ends it as canceled at the next reaping. */
static void end(struct job *job)
{
	struct server *server = job->session->server;

	TAILQ_INSERT_TAIL(&server->ended, job, ended_entry);
	server->is_job_done = true;
}

/* Jobs that were canceled while they were held end in their turn too. */
static void go_on(struct session *session)
{
	struct sequence *sequence = &session->sequence;
	struct job *job;

	while ((job = sequence->held)) {
		if (sequence->under_way > 0 &&
		    (job->engine_job.status || job->spread || sequence->device != job->device))
			return;
		sequence->held = TAILQ_NEXT(job, entry);
		if (job->engine_job.status)
			end(job);
		else
			give(job);
	}
}

void sequence_add(struct job *job)
{
	struct sequence *sequence = &job->session->sequence;

	job->engine_job.status = 0;
	if (!sequence->held && !job->spread &&
	    (sequence->under_way == 0 || sequence->device == job->device)) {
		give(job);
		return;
	}
	if (!sequence->held)
		sequence->held = job;
	go_on(job->session);
}

void sequence_on_end(struct job *job)
{
	struct session *session = job->session;

	session->sequence.under_way -= job->is_given;
	if (job->is_given && !job->spread)
		session->server->devices.of[job->device].jobs--;
	if (session->sequence.held)
		go_on(session);
}

static void cancel(struct engine_job *job)
{
	job->status = STATUS_CANCELED;
	job->ns = 0;
	job->begun = job->is_measured = false;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = STATUS_CANCELED;
}

bool sequence_cancel(struct job *job)
{
	struct session *session = job->session;

	if (job->is_given && job->spread)
		return spread_cancel(job->spread);
	if (job->is_given)
		return engine_cancel(device_engine(&session->server->devices, job->device),
		                     session->streams[job->device], &job->engine_job);
	cancel(&job->engine_job);
	return true;
}

void sequence_cancel_all(struct session *session)
{
	const struct devices *devices = &session->server->devices;
	struct job *job;

	TAILQ_FOREACH(job, &session->jobs_under_way, entry)
		if (job->is_given && job->spread)
			spread_stop(job->spread);
	for (job = session->sequence.held; job; job = TAILQ_NEXT(job, entry))
		cancel(&job->engine_job);
	for (uint32_t i = 0; i < devices->n; i++)
		if (session->streams[i])
			engine_stream_cancel(device_engine(devices, i), session->streams[i]);
	go_on(session);
}

void sequence_reap(struct server *server)
{
	struct job *job;

	while ((job = TAILQ_FIRST(&server->ended))) {
		TAILQ_REMOVE(&server->ended, job, ended_entry);
		job->engine_job.on_done(&job->engine_job);
	}
}
