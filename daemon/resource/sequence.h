/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a session's jobs on the engines of several devices.
 *
 * A job starts when the session's jobs before it have ended. An engine sees to that for those that it has; so
 * all that engines have of a session at a time is on one device, and the first job for another one is held,
 * with all behind it, until these have ended. With one device nothing is ever held.
 */
#ifndef DAEMON_RESOURCE_SEQUENCE_H
#define DAEMON_RESOURCE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

struct job;
struct server;
struct session;

/* Zero-initialised: there are no jobs. */
struct sequence {
	struct job *held;   /* the first of session->jobs_under_way that no engine has; NULL: there is none */
	uint32_t under_way; /* jobs that an engine has: */
	uint32_t device;    /* that of this device; DEVICE_ANY: a batch's, that of several */
};

/* The last of session->jobs_under_way, which is new. */
void sequence_add(struct job *job);

/* A job has ended and is in that list no more. */
void sequence_on_end(struct job *job);

/* As engine_cancel and engine_stream_cancel. A job that was held ends by sequence_reap, in its turn. */
bool sequence_cancel(struct job *job);
void sequence_cancel_all(struct session *session);

/* Calls on_done of the jobs that ended without an engine. */
void sequence_reap(struct server *server);

#endif
