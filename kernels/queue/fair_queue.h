/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all engines' schedulers share: the fair queue, lists of jobs, and the detection of jobs that
 * ran alone. None of it allocates memory or takes a lock; the engine makes all calls under a lock of its own,
 * or from one thread.
 *
 * The fair queue decides which stream an engine serves next. It contains the streams that have something to
 * run, grouped by owner. An engine decides what a time slice is: a work item of a job, or a whole job. The
 * next slice goes to the owner that has used the least of the engine's time. Among that owner's streams,
 * those of higher priority come first, and those of equal priority take turns. Background streams are served
 * only while no other stream is in the queue.
 *
 * Time that an owner does not use is not saved up: an owner that comes back starts where the others are, and
 * so does one that had only background streams. An owner with several streams in the queue is charged a
 * quarter more for its time. Beside such an owner, one that submits its next job only when the last has ended
 * therefore keeps more than half of its speed. The links of the queue are in the streams and their owners.
 */
#ifndef KERNELS_QUEUE_FAIR_QUEUE_H
#define KERNELS_QUEUE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "proto/clock.h"

/* An engine embeds this in its streams. The fields other than owner must be zeroed at first; the stream is
 * then not in the queue. */
struct fair_stream {
	struct engine_owner *owner;
	TAILQ_ENTRY(fair_stream) entry; /* in owner->ready, if queued */
	bool queued;
	/* Priority of what the stream runs next. It may change only while the stream is not in the queue. */
	enum job_priority priority;
};

struct fair_queue {
	/* Owners that have a stream in the queue, in ascending order of their time. */
	TAILQ_HEAD(fair_owners, engine_owner) owners;
	/* The most engine time that any owner had used when it was served. Owners that come back start
	 * here. */
	uint64_t now;
};

void fair_queue_init(struct fair_queue *fair_queue);

/* Puts the stream behind those of its owner that have the same priority. The stream must not be in the
 * queue. */
void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream);

/* Removes the stream; does nothing if it is not in the queue. */
void fair_queue_remove(struct fair_queue *fair_queue, struct fair_stream *stream);

/* Gives the next time slice to a stream and returns it; the stream stays in the queue. Returns NULL if the
 * queue is empty. */
struct fair_stream *fair_queue_next(struct fair_queue *fair_queue);

/* Like fair_queue_next, but skips streams for which can_run returns false; these keep their places. Returns
 * NULL if no stream can run. */
struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg);

/* Charges the owner for a time slice of ns nanoseconds. The owner need not be in the queue. */
void fair_queue_charge(struct fair_queue *fair_queue, struct engine_owner *owner, uint64_t ns);

/* ---- Lists of jobs ---------------------------------------------------------------------------------- */

/* A list of jobs in order, linked by `next`: those that wait in a stream, or those that have ended and wait
 * for the owner to reap them. An initialized list must not be moved in memory. */
struct job_list {
	struct engine_job *first;
	struct engine_job **end;
};

static inline void job_list_init(struct job_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

/* Appends a job. Returns whether it is the only one in the list: the owner reaps all ended jobs at once, so
 * it is woken only for the first of them. */
static inline bool job_list_add(struct job_list *list, struct engine_job *job)
{
	const bool is_only = !list->first;

	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
	return is_only;
}

/* Removes and returns the first job. The list must not be empty. */
static inline struct engine_job *job_list_take(struct job_list *list)
{
	struct engine_job *job = list->first;

	list->first = job->next;
	if (!list->first)
		list->end = &list->first;
	return job;
}

/* Removes all jobs and returns the first one; they stay linked by `next`. */
static inline struct engine_job *job_list_take_all(struct job_list *list)
{
	struct engine_job *first = list->first;

	job_list_init(list);
	return first;
}

bool job_list_has(const struct job_list *list, const struct engine_job *job);

/* Removes the job. Returns whether it was in the list. */
bool job_list_remove(struct job_list *list, struct engine_job *job);

/* Returns whether the job's deadline to begin has passed. */
static inline bool job_is_late(const struct engine_job *job)
{
	return job->share.begin_until_ns && clock_ns() >= job->share.begin_until_ns;
}

/* Returns the monotonic time until which the job may wait for its point. */
static inline uint64_t job_waits_until(const struct engine_job *job)
{
	return job->share.begin_until_ns && job->share.begin_until_ns < job->wait_until_ns
	           ? job->share.begin_until_ns
	           : job->wait_until_ns;
}

/* Sets the status of the job and of each of its moves. */
void job_end_all(struct engine_job *job, int status);

/* Sets the status of those jobs in the list that have none yet. They stay in the list. */
void job_list_end_all(struct job_list *list, int status);

/* Calls on_done for each of these jobs, which are linked by `next`. A job may be freed in its on_done. */
void jobs_call_back(struct engine_job *first);

/* ---- Jobs that had the engine to themselves --------------------------------------------------------- */

/* Detects jobs that ran alone: from the start to the end of such a job, no job of another stream of this
 * engine was under way. Jobs of other processes on the same device are not seen. An engine has one struct
 * contention, zeroed at first. */
#define CONTENTION_MET UINT64_MAX /* contention_start returns it for a job that does not run alone */

struct contention {
	uint32_t busy; /* streams with a job under way */
	uint64_t met;  /* number of jobs that have started while another stream was busy */
};

/* Counts a job that starts. is_first: its stream had no job under way. Returns the value to pass to
 * contention_end. */
static inline uint64_t contention_start(struct contention *contention, bool is_first)
{
	contention->busy += is_first;
	if (contention->busy == 1)
		return contention->met;
	contention->met++;
	return CONTENTION_MET;
}

/* Counts the end of a job. since is what contention_start returned for it. is_last: its stream has no other
 * job under way. Returns whether the job ran alone. */
static inline bool contention_end(struct contention *contention, uint64_t since, bool is_last)
{
	contention->busy -= is_last;
	return since == contention->met;
}

#endif
