/* SPDX-License-Identifier: Apache-2.0 */
/* A job: one request that moves something, from its check to its answer.
 *
 * A job holds its session, its plans and the regions that it touches, and is charged to the uid
 * (jobs_per_uid). Structs are kept for reuse, so that a request on the fast path allocates nothing. A method
 * creates a job (job_new), says what it moves, and submits it; when it has ended, the method's `answer`
 * builds the result. Jobs belong to the loop's thread; the engine has the embedded engine_job from job_submit
 * until on_job_done.
 */
#ifndef DAEMON_RESOURCE_JOB_H
#define DAEMON_RESOURCE_JOB_H

#include <stdint.h>
#include <sys/queue.h>

#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "daemon/method/order.h"

struct batch;
struct parts;
struct placed;
struct region;
struct rpc_request;
struct server;
struct session;
struct spread;
struct method;

/* dst, src, scale, bias, those of amax, wait, signal and index. */
#define JOB_MAX_REGIONS 9

struct job {
	struct engine_job engine_job;
	struct session *session;
	uint32_t device;              /* whose engine runs it; DEVICE_ANY: it is not known yet */
	bool is_given;                /* to that engine; otherwise it is held (sequence.h) */
	TAILQ_ENTRY(job) entry;       /* in session->jobs_under_way */
	TAILQ_ENTRY(job) ended_entry; /* in server->ended */
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
	uint64_t wait_ms;
	struct region *wait, *signal;    /* of engine_job; NULL: none */
	void (*answer)(struct job *job); /* it succeeded; calls job_reply */
	void (*refuse)(struct job *job,
	               const struct error *err); /* it failed; NULL: the error is sent as a reply */
	void (*release)(struct job *job);        /* frees `own`; NULL: nothing to free */
	void *own;
	uint64_t tag;             /* of an entry of a submission ring */
	struct spread *spread;    /* of a batch on several devices; NULL: it is on one */
	struct batch *parts;      /* of a transform of several parts, or of a reshard; NULL: none */
	struct region *dst, *src; /* of engine_job.move; NULL if there is none, and then it has no plan */
	uint32_t n_regions;
	struct region *regions[JOB_MAX_REGIONS];
	struct charge charge;
	bool is_behind;       /* it waits for a timeline, or is queued behind a job that does */
	struct charge behind; /* charged as behind_waits_per_uid if is_behind */
	uint64_t start_ns;
	struct job *next_free;
};

TAILQ_HEAD(job_queue, job);

/* Creates a job of the session and charges for it. NULL: QUOTA or NO_MEMORY. What it waits for and signals is
 * not looked up on a device until job_run_on. */
struct job *job_new(struct session *session, const struct rpc_request *request, const struct order *order,
                    void (*answer)(struct job *job), struct error *err);

/* Has the job run there: 0, or what region_reach says of what it waits for and signals, or NO_MEMORY; the
 * caller then drops the job. */
int job_run_on(struct job *job, uint32_t device, struct error *err);

/* Charges for more transforms, or, with QUOTA, for none. */
int job_charge(struct job *job, uint64_t more, struct error *err);

/* Gives back what was charged for so many. */
void job_discharge(struct job *job, uint64_t less);

/* Holds the region until the job is gone. */
void job_use(struct job *job, struct region *region);

/* Sets what the job moves, and charges for it: a job for which there was room may exceed the limit by its
 * parts. Takes over the caller's references to plans. NO_MEMORY: the caller drops the job. */
int job_set_parts(struct job *job, struct parts *parts, struct error *err);

/* For answer: the bytes that these have moved, and the family of the largest. */
uint64_t job_moved(const struct job *job, enum family *ret);

/* Makes a list of blocks the job's work. */
void job_set_blocks(struct job *job, struct engine_plan *plan, const struct placed *placed,
                    struct engine_blocks *blocks);

/* Queues the job behind the session's others. */
void job_submit(struct job *job);

/* The same of a job that moves job->parts, of whose moves so many have been charged for. The others are now,
 * past the limit: there was room for the job. */
void job_submit_parts(struct job *job, uint64_t charged);

/* Drops a job instead of submitting it; nothing is answered. */
void job_drop(struct job *job);

/* For answer: replies as the request asked for (session_reply). */
void job_reply(struct job *job, const void *result);

/* For answer: counts the bytes that a transform has moved on a device and the engine's time that it took. */
void job_count_on(struct job *job, uint32_t device, enum family family, uint64_t bytes, uint64_t ns);

/* The same on the job's device, with the links that the bytes have crossed. */
void job_count(struct job *job, enum family family, uint64_t bytes, uint64_t ns);

/* The session's job for the request msgid, the last one submitted; NULL: none is under way. */
struct job *job_find(const struct session *session, uint32_t msgid);

/* Cancels the job if it has not started, and returns whether it did; the job ends as CANCELED. */
bool job_cancel(struct job *job);

/* Frees the structs kept for reuse. */
void jobs_free_kept(struct server *server);

#endif
