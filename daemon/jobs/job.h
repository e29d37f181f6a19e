/* SPDX-License-Identifier: Apache-2.0 */
/* A job is one request that moves something, from its check to its answer.
 *
 * A job holds its session, its plans and the regions that it touches, and is charged to the user
 * (jobs_per_uid). Freed structs are kept for reuse, so that a request on the fast path allocates nothing. A
 * method creates a job (job_new), sets what it moves, and submits it; when it has ended, the method's
 * `answer` builds the result. Jobs belong to the loop's thread; the engine owns the embedded engine_job from
 * job_submit until on_job_done.
 */
#ifndef DAEMON_JOBS_JOB_H
#define DAEMON_JOBS_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/memory/account.h"
#include "kernels/engine.h"
#include "proto/schema.h"

struct batch;
struct batch_item;
struct job;
struct method;
struct order;
struct parts;
struct placed;
struct region;
struct rpc_request;
struct service;
struct session;
struct spread;

/* A job uses at most these regions: dst, src, scale, bias, two of amax, wait, signal and index. */
#define JOB_MAX_REGIONS 9

struct job {
	struct engine_job engine_job;
	struct session *session;
	uint32_t device; /* device whose engine runs it; DEVICE_ANY: not chosen yet */
	/* It has been submitted to its engine or engines. Otherwise it is held (struct sequence). */
	bool is_given;
	TAILQ_ENTRY(job) entry;       /* in session->jobs_under_way */
	TAILQ_ENTRY(job) ended_entry; /* in service->ended */
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
	uint64_t wait_ms, deadline_ms;   /* as in struct order; used in error messages only */
	struct region *wait, *signal;    /* regions of the words of engine_job.wait and .signal; NULL: none */
	void (*answer)(struct job *job); /* called if the job succeeded; reports the result */
	void (*refuse)(struct job *job,
	               const struct error *err); /* called if it failed; NULL: the error is sent as a reply */
	void (*release)(struct job *job);        /* frees `own`; NULL: nothing to free */
	void *own;                               /* data of the method */
	uint64_t tag;          /* tag of the ring's entry; valid only for a job from a submission ring */
	struct spread *spread; /* steps of the job; NULL: it runs on one device */
	/* Parts of a transform or a run, moves of a transform in steps, or pieces of a reshard. NULL: none.
	 */
	struct batch *parts;
	struct region *dst, *src; /* regions of engine_job.move; NULL: that has no plan */
	uint32_t n_regions;
	struct region *regions[JOB_MAX_REGIONS]; /* regions that the job holds */
	struct transforms_charge charge;
	uint64_t start_ns;     /* when handling of the request began (uv_hrtime) */
	struct job *next_free; /* next struct in service->free_jobs */
};

/* Creates a job of the session and charges for it. Returns NULL with *err set to QUOTA or NO_MEMORY. The
 * words that it waits for and signals are not looked up on a device until job_run_on. */
struct job *job_new(struct session *session, const struct rpc_request *request, const struct order *order,
                    void (*answer)(struct job *job), struct error *err);

/* Has the job run on the device. Returns 0, NO_MEMORY, or what region_reach does for the words that the job
 * waits for and signals; after an error the caller drops the job. */
int job_run_on(struct job *job, uint32_t device, struct error *err);

/* Holds the region until the job is freed. */
void job_use(struct job *job, struct region *region);

/* Sets the parts that the job moves, and charges for them, even beyond the limit: a job that has been
 * admitted may have any number of parts. Takes over the caller's references to plans. Returns 0 or NO_MEMORY,
 * after which the caller drops the job. */
int job_set_parts(struct job *job, struct parts *parts, struct error *err);

/* Returns the bytes that the job's transform has moved, and sets *ret to the family of its largest part. For
 * use in `answer`. */
uint64_t job_moved(const struct job *job, enum family *ret);

/* Sets the list of blocks that the job moves, and its plan. Takes a reference to the plan; the caller keeps
 * its own. */
void job_set_blocks(struct job *job, struct engine_plan *plan, const struct placed *placed,
                    struct engine_blocks *blocks);

/* Queues the job behind the session's others. */
void job_submit(struct job *job);

/* Queues a job that moves job->parts. `charged` is the number of its moves that have been charged for. The
 * others are charged now, even beyond the limit, because the job has been admitted. */
void job_submit_parts(struct job *job, uint64_t charged);

/* Drops a job instead of submitting it; nothing is answered. */
void job_drop(struct job *job);

/* Replies as the request asked for (session_reply). For use in `answer`. */
void job_reply(struct job *job, const void *result);

/* Counts a transform: the bytes that it has moved on the device, and the engine's time that it took. For use
 * in `answer`. */
void job_count_on(struct job *job, uint32_t device, enum family family, uint64_t bytes, uint64_t ns);

/* Counts the bytes of an item of a batch that have crossed links. None of its moves may have failed. */
void job_count_item(struct job *job, const struct batch_item *item, const struct engine_move *moves);

/* Does what job_count_on does, for the job's device, and counts the bytes that have crossed links. */
void job_count(struct job *job, enum family family, uint64_t bytes, uint64_t ns);

/* Returns the session's job for the request msgid, the last one submitted, or NULL if none is under way. */
struct job *job_find(const struct session *session, uint32_t msgid);

/* Cancels the job if it has not started, and returns whether it did. A canceled job ends as CANCELED. */
bool job_cancel(struct job *job);

/* Frees the structs kept for reuse. */
void jobs_free_kept(struct service *service);

/* A session's jobs run in order, even if they run on the engines of several devices.
 *
 * A job starts when all earlier jobs of its session have ended. An engine keeps that order among the jobs
 * that it has been given. So all jobs of a session that engines have at a time are on one device. The first
 * job for another device is held on the loop, with all jobs behind it, until the jobs that engines have are
 * done. If there is one device, no job is ever held.
 */

/* Cancels all jobs of the session as engine_stream_cancel does. sequence_reap ends the held jobs in their
 * turn. */
void sequence_cancel_all(struct session *session);

/* Calls on_done of the jobs that have ended without having been given to an engine. */
void sequence_reap(struct service *service);

#endif
