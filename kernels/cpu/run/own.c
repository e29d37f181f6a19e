/* SPDX-License-Identifier: Apache-2.0 */
/* This file moves streams to the crews of their owners, and ends crews that have no streams any more. */
#include "own.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/host/job_memory.h"
#include "kernels/host/memory.h"

void owns_init(struct owns *owns, const struct engine_options *options, uint32_t threads)
{
	*owns = (struct owns){ .options = *options, .threads = threads };
	LIST_INIT(&owns->live);
	LIST_INIT(&owns->ending);
}

/* The threads of crews that were told to end have nothing to do, so they are not waited for long. */
static void free_ending(struct owns *owns)
{
	struct own *own;

	while ((own = LIST_FIRST(&owns->ending))) {
		LIST_REMOVE(own, entry);
		crew_deinit(&own->crew);
		free(own);
	}
}

void owns_deinit(struct owns *owns)
{
	assert(LIST_EMPTY(&owns->live));
	free_ending(owns);
}

/* ---- Crews ------------------------------------------------------------------------------------------ */

static struct own *own_of(struct owns *owns, struct engine_owner *user)
{
	struct own *own;
	struct error err;

	LIST_FOREACH(own, &owns->live, entry)
		if (own->user == user)
			return own;
	free_ending(owns);
	own = calloc(1, sizeof *own);
	if (!own)
		return NULL;
	if (crew_init(&own->crew, &owns->options, owns->threads, true, &err) < 0) {
		free(own);
		return NULL;
	}
	own->user = user;
	engine_owner_init(&own->owner);
	LIST_INSERT_HEAD(&owns->live, own, entry);
	return own;
}

/* The stream's owner counts its streams wherever they run. */
static bool join(struct owns *owns, struct engine_stream *stream)
{
	struct engine_owner *user = stream->fair.owner;
	struct own *own = own_of(owns, user);

	if (!own)
		return false;
	stream_move(stream, &own->crew.streams, &own->owner);
	user->streams++;
	stream->own = own;
	return true;
}

void owns_stream_free(struct owns *owns, struct engine_stream *stream)
{
	struct own *own = stream->own;

	assert(!stream->held && stream->jobs == 0);
	if (own)
		own->user->streams--;
	stream_free(stream);
	if (!own || own->owner.streams > 0)
		return;
	own->user->is_stuck = false;
	LIST_REMOVE(own, entry);
	LIST_INSERT_HEAD(&owns->ending, own, entry);
	crew_close(&own->crew);
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

static inline bool memory_may_stall(struct engine_memory *memory)
{
	return atomic_load_explicit(&memory->may_stall, memory_order_relaxed) &&
	       engine_memory_may_stall(memory);
}

static bool may_stall(const struct engine_job *job)
{
	return memory_is(job->wait.memory, memory_may_stall) || job_any_memory(job, memory_may_stall);
}

static void hold(struct engine_stream *stream, struct engine_job *job)
{
	job->status = 0;
	job->next = NULL;
	*stream->held_end = job;
	stream->held_end = &job->next;
}

static void end_held(struct engine_stream *stream, struct engine_job *job, int status)
{
	if (!job->status)
		job->status = status;
	stream->jobs++;
	stream_end(stream, job);
}

/* Starts the stream's held jobs; it has no others. If there is no memory for a crew, the jobs end with
 * NO_MEMORY. */
static void let_go(struct owns *owns, struct engine_stream *stream)
{
	const bool joined = stream->own || join(owns, stream);
	struct engine_job *job = stream->held, *next;

	stream->held = NULL;
	stream->held_end = &stream->held;
	for (; job; job = next) {
		next = job->next;
		if (!joined || job->status) {
			end_held(stream, job, STATUS_NO_MEMORY);
			continue;
		}
		stream->jobs++;
		stream_post(stream, job);
	}
}

void owns_submit(struct owns *owns, struct engine_stream *stream, struct engine_job *job)
{
	job->stream = stream;
	if (stream->own && !stream->held) {
		stream->jobs++;
		stream_post(stream, job);
		return;
	}
	if (!stream->held && (!stream->fair.owner->is_untrusted || !may_stall(job))) {
		stream->jobs++;
		stream_submit(stream, job);
		return;
	}
	hold(stream, job);
	if (stream->jobs == 0)
		let_go(owns, stream);
}

void owns_on_reaped(struct owns *owns, struct engine_stream *stream)
{
	assert(stream->jobs > 0);
	if (--stream->jobs == 0 && stream->held)
		let_go(owns, stream);
}

void owns_cancel_held(struct engine_stream *stream)
{
	for (struct engine_job *job = stream->held; job; job = job->next)
		job->status = STATUS_CANCELED;
}

bool owns_cancel_held_job(struct engine_stream *stream, const struct engine_job *wanted)
{
	for (struct engine_job *job = stream->held; job; job = job->next)
		if (job == wanted) {
			job->status = STATUS_CANCELED;
			return true;
		}
	return false;
}

struct engine_job *owns_reap(struct owns *owns)
{
	struct engine_job *first = NULL, **end = &first;
	struct own *own;

	LIST_FOREACH(own, &owns->live, entry) {
		*end = streams_reap(&own->crew.streams);
		while (*end)
			end = &(*end)->next;
	}
	return first;
}

void owns_note_stuck(struct owns *owns)
{
	struct own *own;
	struct error err;

	LIST_FOREACH(own, &owns->live, entry)
		own->user->is_stuck = crew_probe(&own->crew, &err) < 0;
	free_ending(owns);
}
