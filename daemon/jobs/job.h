/* SPDX-License-Identifier: Apache-2.0 */
/* A job is one request that moves something, from its check to its answer.
 *
 * A job holds its session, its plans and the regions that it touches, and is charged to the uid
 * (jobs_per_uid). Structs are kept for reuse, so that a request on the fast path allocates nothing. A method
 * creates a job (job_new), says what it moves, and submits it; when it has ended, the method's `answer`
 * builds the result. Jobs belong to the loop's thread; the engine has the embedded engine_job from job_submit
 * until on_job_done.
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
	uint32_t device;              /* device whose engine runs it; DEVICE_ANY: not known yet */
	bool is_given;                /* that engine has it; otherwise it is held (struct sequence) */
	TAILQ_ENTRY(job) entry;       /* in session->jobs_under_way */
	TAILQ_ENTRY(job) ended_entry; /* in service->ended */
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
	uint64_t wait_ms, deadline_ms;   /* of the order; for the texts of errors */
	struct region *wait, *signal;    /* regions of engine_job's points; NULL: none */
	void (*answer)(struct job *job); /* called if it succeeded; calls job_reply */
	void (*refuse)(struct job *job,
	               const struct error *err); /* it failed; NULL: the error is sent as a reply */
	void (*release)(struct job *job);        /* frees `own`; NULL: nothing to free */
	void *own;
	uint64_t tag;             /* tag of the entry of a submission ring */
	struct spread *spread;    /* steps of a batch on several devices; NULL: it is on one */
	struct batch *parts;      /* parts of a transform, or pieces of a reshard; NULL: none */
	struct region *dst, *src; /* regions of engine_job.move; NULL if that has no plan */
	uint32_t n_regions;
	struct region *regions[JOB_MAX_REGIONS];
	struct transforms_charge charge;
	uint64_t start_ns;
	struct job *next_free;
};

/* Creates a job of the session and charges for it. Returns NULL with QUOTA or NO_MEMORY. The words that it
 * waits for and signals are not looked up on a device until job_run_on. */
struct job *job_new(struct session *session, const struct rpc_request *request, const struct order *order,
                    void (*answer)(struct job *job), struct error *err);

/* Has the job run on the device. Returns 0, NO_MEMORY, or what region_reach does for the words that the job
 * waits for and signals; after an error the caller drops the job. */
int job_run_on(struct job *job, uint32_t device, struct error *err);

/* Holds the region until the job is gone. */
void job_use(struct job *job, struct region *region);

/* Sets the parts that the job moves, and charges for them: a job for which there was room may exceed the
 * limit by its parts. Takes over the caller's references to plans. Returns 0 or NO_MEMORY, after which the
 * caller drops the job. */
int job_set_parts(struct job *job, struct parts *parts, struct error *err);

/* Returns the bytes that the parts have moved, and sets the family of the largest. For use in `answer`. */
uint64_t job_moved(const struct job *job, enum family *ret);

/* Makes a list of blocks the job's work. */
void job_set_blocks(struct job *job, struct engine_plan *plan, const struct placed *placed,
                    struct engine_blocks *blocks);

/* Queues the job behind the session's others. */
void job_submit(struct job *job);

/* Queues a job that moves job->parts. `charged` of its moves have been charged for already; the others are
 * charged now, past the limit, because there was room for the job. */
void job_submit_parts(struct job *job, uint64_t charged);

/* Drops a job instead of submitting it; nothing is answered. */
void job_drop(struct job *job);

/* Replies as the request asked for (session_reply). For use in `answer`. */
void job_reply(struct job *job, const void *result);

/* Counts the bytes that a transform has moved on a device, and the engine's time that it took. For use in
 * `answer`. */
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

/* A session's jobs run in order, also on the engines of several devices.
 *
 * A job starts when the session's jobs before it have ended. An engine sees to that for the jobs that it has,
 * so all that engines have of a session at a time is on one device, and the first job for another one is
 * held, with all behind it, until these have ended. With one device nothing is ever held.
 */

/* Cancels all jobs of the session as engine_stream_cancel does. sequence_reap ends the held ones in their
 * turn. */
void sequence_cancel_all(struct session *session);

/* Calls on_done of the jobs that have ended without an engine. */
void sequence_reap(struct service *service);

#endif
