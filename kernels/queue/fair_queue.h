/* SPDX-License-Identifier: Apache-2.0 */
/* Every engine's scheduler has three things: the fair queue, lists of jobs, and the count of jobs that met
 * others. They allocate nothing and take no lock; the engine makes all calls under one.
 *
 * The fair queue tells which stream an engine serves next. Owners are served by the time that they have had,
 * and the streams of one owner by priority, those of one priority in rotation. Background streams are served
 * while no other stream is in the queue.
 *
 * The queue holds the streams that have something to run, by owner. An engine decides what a time slice is: a
 * work item of a job, or a whole job. The next slice goes to the owner that has had the least of the
 * engine's time, and to that owner's first stream, which then goes last. An owner that comes back has saved
 * nothing up: it starts where the others are. An owner with several streams in the queue pays a quarter more
 * for its time, so that one that waits for each of its jobs keeps more than half of its speed beside it.
 * Time in which an owner has only background streams is not saved up, either. The links are in the streams
 * and their owners.
 */
#ifndef KERNELS_QUEUE_FAIR_QUEUE_H
#define KERNELS_QUEUE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "proto/clock.h"

/* The engine embeds this. Fields other than owner begin as zeros: the stream is not in the queue. */
struct fair_stream {
	struct engine_owner *owner;
	TAILQ_ENTRY(fair_stream) entry; /* in owner->ready */
	bool queued;
	/* Priority of what it runs next; changes only while it is not in the queue. */
	enum job_priority priority;
};

struct fair_queue {
	/* Owners that have a stream in the queue, least time first. */
	TAILQ_HEAD(fair_owners, engine_owner) owners;
	uint64_t now; /* engine time that the owner served last had had by then */
};

void fair_queue_init(struct fair_queue *fair_queue);

/* The stream goes last among those of its owner and priority. It must not be in the queue. */
void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream);

/* A stream that is not in the queue is allowed. */
void fair_queue_remove(struct fair_queue *fair_queue, struct fair_stream *stream);

/* Returns the stream that gets the next time slice, which stays in the queue, or NULL if the queue is empty.
 */
struct fair_stream *fair_queue_next(struct fair_queue *fair_queue);

/* Does the same past streams that cannot run now, which keep their place. Returns NULL if none can. */
struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg);

/* Charges the owner for a time slice that took ns. The owner need not be in the queue. */
void fair_queue_charge(struct fair_queue *fair_queue, struct engine_owner *owner, uint64_t ns);

/* ---- Lists of jobs ---------------------------------------------------------------------------------- */

/* A list has jobs in their order, linked by their `next`: those that wait in a stream, or those that have
 * ended and wait for the owner to reap them. It stays where it is once it is initialised. */
struct job_list {
	struct engine_job *first;
	struct engine_job **end;
};

static inline void job_list_init(struct job_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

/* Adds a job at the end. Returns whether it is the only one: the owner reaps all jobs that have ended at
 * once, and so is woken for the first of them. */
static inline bool job_list_add(struct job_list *list, struct engine_job *job)
{
	const bool is_only = !list->first;

	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
	return is_only;
}

/* Takes the first job; the list must have one. */
static inline struct engine_job *job_list_take(struct job_list *list)
{
	struct engine_job *job = list->first;

	list->first = job->next;
	if (!list->first)
		list->end = &list->first;
	return job;
}

/* Takes all jobs, linked by next. */
static inline struct engine_job *job_list_take_all(struct job_list *list)
{
	struct engine_job *first = list->first;

	job_list_init(list);
	return first;
}

bool job_list_has(const struct job_list *list, const struct engine_job *job);

/* Returns whether the list had the job. */
bool job_list_remove(struct job_list *list, struct engine_job *job);

/* Tells whether the job may not begin any more. */
static inline bool job_is_late(const struct engine_job *job)
{
	return job->share.begin_until_ns && clock_ns() >= job->share.begin_until_ns;
}

/* Returns until when the job may wait for its point. */
static inline uint64_t job_waits_until(const struct engine_job *job)
{
	return job->share.begin_until_ns && job->share.begin_until_ns < job->wait_until_ns
	           ? job->share.begin_until_ns
	           : job->wait_until_ns;
}

/* Ends the job and each of its moves with this status. */
void job_end_all(struct engine_job *job, int status);

/* Ends those of the list's jobs that have no status yet with this one; they stay in the list. */
void job_list_end_all(struct job_list *list, int status);

/* Calls back for jobs that have been taken, each of which may be gone after that. */
void jobs_call_back(struct engine_job *first);

/* ---- Jobs that had the engine to themselves --------------------------------------------------------- */

/* A job was alone if no job of another stream was under way at any time between its start and its end. Jobs
 * of other processes on the same device are not known of. An engine has one struct, zeroed at first. */
#define CONTENTION_MET UINT64_MAX

struct contention {
	uint32_t busy; /* streams with a job under way */
	uint64_t met;  /* how many jobs started while another stream was busy */
};

/* Counts a job that starts; is_first tells that its stream was not busy. Returns what contention_end takes.
 */
static inline uint64_t contention_start(struct contention *contention, bool is_first)
{
	contention->busy += is_first;
	if (contention->busy == 1)
		return contention->met;
	contention->met++;
	return CONTENTION_MET;
}

/* Counts its end; is_last tells that its stream is not busy any more. Returns whether it was alone. */
static inline bool contention_end(struct contention *contention, uint64_t since, bool is_last)
{
	contention->busy -= is_last;
	return since == contention->met;
}

#endif
