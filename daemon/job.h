/* A job: one transform request from its check to its reply.
 *
 * It holds its session, its plan and its two regions, and is charged to the uid. Structs are kept for reuse,
 * so that a request on the fast path allocates nothing.
 */
#ifndef DAEMON_JOB_H
#define DAEMON_JOB_H

#include <stdint.h>

#include "account.h"
#include "kernels/engine.h"
#include "plan_cache.h"

struct region;
struct server;
struct session;
struct method;

/* Where a tensor of a job lies. */
struct job_tensor {
	struct region *region;
	uint64_t offset; /* bytes */
};

/* Queues plan between the two tensors on the session's stream; the reply to msgid follows. Takes over the
 * caller's reference on plan, also on failure (QUOTA, NO_MEMORY). */
int job_submit(struct session *session, uint32_t msgid, const struct method *method, struct plan_entry *plan,
               struct job_tensor dst, struct job_tensor src, struct error *err);

/* Frees the structs kept for reuse. */
void jobs_free_kept(struct server *server);

#endif
