/* A job: one request that moves something, from its check to its answer.
 *
 * It holds its session, its plans and the regions that it touches, and is charged to the uid. Structs are
 * kept for reuse, so that a request on the fast path allocates nothing. A method makes a job (job_new), says
 * what it moves, and submits it; at its end the method's `answer` builds the result.
 */
#ifndef DAEMON_RESOURCE_JOB_H
#define DAEMON_RESOURCE_JOB_H

#include <stdint.h>
#include <sys/queue.h>

#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "daemon/method/order.h"
#include "plan_cache.h"

struct placed;
struct region;
struct rpc_request;
struct server;
struct session;
struct method;

/* dst, src, wait, signal, index. */
#define JOB_MAX_REGIONS 5

struct job {
	struct engine_job engine_job;
	struct session *session;
	TAILQ_ENTRY(job) entry; /* in session->jobs_under_way */
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
	uint64_t wait_ms;
	void (*answer)(struct job *job);                          /* it ended with status 0: job_reply */
	void (*refuse)(struct job *job, const struct error *err); /* it failed; NULL: a reply says so */
	void (*release)(struct job *job); /* of what the method put into `own`; NULL: nothing */
	void *own;
	uint64_t tag;            /* of a submission ring's entry */
	struct plan_entry *plan; /* of engine_job.move; NULL: it has none */
	uint32_t n_regions;
	struct region *regions[JOB_MAX_REGIONS];
	struct charge charge;
	bool is_behind;       /* it waits for a timeline, or is behind one that does */
	struct charge behind; /* as charge, when it is */
	uint64_t start_ns;
	struct job *next_free;
};

TAILQ_HEAD(job_queue, job);

/* A job of the session's, charged, with its order. NULL: QUOTA or NO_MEMORY. */
struct job *job_new(struct session *session, const struct rpc_request *request, const struct order *order,
                    void (*answer)(struct job *job), struct error *err);

/* Charges it for so many more transforms; QUOTA, and then it is dropped. */
int job_charge(struct job *job, uint64_t more, struct error *err);

/* The region is held until the job is gone. */
void job_use(struct job *job, struct region *region);

/* What it moves. Takes over the caller's reference on plan. */
void job_set_move(struct job *job, struct plan_entry *plan, const struct placed *placed);

/* Queues it on the session's stream. */
void job_submit(struct job *job);

/* Instead of job_submit: nothing is answered. */
void job_drop(struct job *job);

/* For answer: as session_reply, when and how the request asked for it. */
void job_reply(struct job *job, const void *result);

/* For answer: counts what a transform has moved, and what of the engine's time it had. */
void job_count(struct job *job, enum family family, uint64_t bytes, uint64_t ns);

/* The job of the session's that answers msgid, the last submitted; NULL: none is under way. */
struct job *job_find(const struct session *session, uint32_t msgid);

/* Whether it had not started: it ends as CANCELED. */
bool job_cancel(struct job *job);

/* Frees the structs kept for reuse. */
void jobs_free_kept(struct server *server);

#endif
