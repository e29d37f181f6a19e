/* SPDX-License-Identifier: Apache-2.0 */
/* A session is what one connection holds: regions, tables, plans, jobs, and what they are charged to.
 *
 * The connection itself, with its socket, its input and its replies, lies above (daemon/net/connection.h).
 * What lies below reaches it through struct peer_ops alone.
 *
 * A session ends once (session_end, idempotent). Work under way holds it: it is freed when no job, no
 * mapping, no relay and no handle is left. It belongs to the loop's thread.
 */
#ifndef DAEMON_MEMORY_SESSION_H
#define DAEMON_MEMORY_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/loop/log.h"
#include "proto/wire/socket.h"
#include "account.h"
#include "metrics.h"
#include "region.h"
#include "service.h"

struct bounce;
struct error;
struct mapping;
struct method;
struct planning;
struct reach;
struct session;

enum session_state {
	SESSION_OPEN,
	SESSION_FINISHING, /* handles what had arrived before, and ends when all of it is answered and sent */
	SESSION_ENDED,     /* freed when its jobs, mappings and handles are gone */
};

/* The session's next request waits for one of these. */
enum session_wait {
	WAIT_NONE,
	WAIT_JOBS,    /* for a job of the user to end; in account->waiting */
	WAIT_BEHIND,  /* for a job of its own to end, because one of them waits for a timeline */
	WAIT_REPLIES, /* for replies to be read, or mappings to end */
	WAIT_MEMORY, /* for a region to be mapped for another device, plans to be made, or its ring to be read
	              */
	WAIT_READY,  /* for a time slice only; in account->ready */
};

/* Descriptors of two messages may be pending, each with as many as a message can bring. */
#define SESSION_MAX_PENDING_FDS (2 * SOCKET_MAX_FDS)

/* A descriptor came with bytes [start, end) of the stream: it belongs to a message that has a byte there. */
struct pending_fd {
	int fd;
	uint64_t start;
	uint64_t end;
};

/* This says which jobs of the session have been given to an engine (job.h). A zero-initialised sequence has
 * no jobs. */
struct sequence {
	struct job *held;   /* first of session->jobs_under_way that no engine has; NULL: none */
	uint32_t under_way; /* jobs that an engine has */
	uint32_t device;    /* the device of that engine; DEVICE_ANY: a batch runs on several */
};

/* A session reaches its connection through these functions. Each is called by the inline function of the same
 * name below (session_reply and so on), whose comment says what it does. */
struct peer_ops {
	void (*reply)(struct session *session, uint32_t msgid, const struct method *method,
	              const void *result, int fd);
	void (*reply_queued)(struct session *session, uint32_t msgid);
	void (*notify_done)(struct session *session, uint32_t msgid, const struct method *method,
	                    const void *result, const struct error *error);
	void (*refuse)(struct session *session, uint32_t msgid, const struct method *method,
	               uint64_t start_ns, const struct error *error);
	void (*flush)(struct session *session);
	int (*charge_fd)(struct session *session, struct charge *charge, struct error *err);
	bool (*must_wait)(struct session *session);
	void (*wait_for_memory)(struct session *session);
	void (*on_memory)(struct session *session);
	void (*on_job_ended)(struct session *session);
	void (*update_poll)(struct session *session);
	void (*end)(struct session *session, enum log_level level, const char *reason);
	void (*settle)(struct session *session);
};

struct session {
	struct service *service;
	const struct peer_ops *ops;
	uint64_t id;
	enum session_state state;
	struct socket_peer peer;
	struct account *account;
	TAILQ_ENTRY(session) entry;         /* in service->sessions */
	TAILQ_ENTRY(session) waiting_entry; /* in account->waiting or account->ready */
	enum session_wait waiting;
	uint64_t start_ms; /* service_now_ms */
	uint64_t used_ms;  /* when it last sent or received something (service_now_ms) */

	/* Tells requests apart: it stays the same when a request is handled again. */
	uint64_t asking;
	uint64_t asked_ns; /* when it was handled first (service->taken_ns) */
	/* The next message has been counted already, because it is handled once more. */
	bool is_again;
	uint64_t handled; /* bytes of the stream */
	uint32_t n_fds;
	uint32_t fds_room;
	struct pending_fd *fds; /* NULL: none are pending */
	struct charge fds_charge;
	struct charge out_charge;     /* for replies that are not sent */
	struct charge out_fds_charge; /* for descriptors that are not sent, or not received */

	struct region_table regions;
	struct id_table plans;           /* planning.h */
	struct id_table tables;          /* table.h */
	struct job_queue jobs_under_way; /* in the order submitted */
	struct sequence sequence;
	uint32_t jobs;                 /* number of jobs under way */
	uint64_t transforms;           /* transforms in these jobs; each item of a batch counts */
	uint32_t waiting_jobs;         /* jobs with a wait, whether or not it is over */
	uint32_t relays;               /* threads of its rings that have not ended (relay.h) */
	uint32_t mappings;             /* mappings and other chores, queued or under way off the loop */
	LIST_HEAD(, mapping) unmapped; /* mappings that have not been mapped yet */
	LIST_HEAD(, reach) reaching;   /* mappings for further devices; region.c */
	struct bounce *bounce;         /* links.h; NULL: none has been needed */
	struct planning *planning[2];  /* planning.h; NULL: no request waits for plans */
	struct submission *submission; /* the session's ring; NULL: none */
	struct usage usage;
	struct engine_stream **streams; /* one for each device; NULL: not needed yet */
};

/* Makes the stream on a device, unless there is one. Returns 0 or NO_MEMORY. */
int session_open_stream(struct session *session, uint32_t device, struct error *err);

/* These count for the service, the user and the session. */
void session_count_request(struct session *session);
void session_count_error(struct session *session, int status);
void session_count_transform(struct session *session, const struct transform_count *done);

/* Logs a line that names uid, pid, session and request (msgid -1: none). The lines that one uid can cause are
 * limited to a few a second; the next line counts those that were dropped. */
void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Only logs that a request was refused, for one that is answered in another way. */
void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error);

/* Keeps descriptors that came with bytes [start, end) of the stream. Returns 0; or QUOTA or NO_MEMORY, after
 * which all of them are closed. */
int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err);

/* Closes descriptors that are not pending, off the loop. */
void session_close_fds(struct session *session, const int *fds, size_t n);

/* Returns the first n descriptors that came with the message being handled, or NULL when there are fewer. */
const struct pending_fd *session_first_fds(const struct session *session, uint32_t n);

/* Returns how many descriptors came with the message being handled and with no byte of a later one. */
uint32_t session_count_own_fds(const struct session *session);

/* session_take_fds gives the first n descriptors to the caller, with what they are charged to.
 * session_drop_fds closes those of the n that are there. */
void session_take_fds(struct session *session, uint32_t n, struct charge *ret_charge);
void session_drop_fds(struct session *session, uint32_t n);

/* Drops the descriptors that came only with bytes before end, because they belong to no later message. */
void session_drop_fds_before(struct session *session, uint64_t end);

/* Answers a request. result is as rpc_encode_result takes it. fd (-1: none) goes with the reply and becomes
 * the property of the session, which is already charged for it (out_fds_charge). Does nothing on a session
 * that has ended, except closing fd. */
static inline void session_reply(struct session *session, uint32_t msgid, const struct method *method,
                                 const void *result, int fd)
{
	session->ops->reply(session, msgid, method, result, fd);
}

/* Answers a request with "queued"; session_notify_done reports its end. */
static inline void session_reply_queued(struct session *session, uint32_t msgid)
{
	session->ops->reply_queued(session, msgid);
}

/* Reports the end of such a request. error is NULL if it succeeded; result is then as for session_reply. */
static inline void session_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                                       const void *result, const struct error *error)
{
	session->ops->notify_done(session, msgid, method, result, error);
}

/* Answers a request with an error, counts and logs it. method is NULL if it is unknown. start_ns is when
 * handling began (uv_hrtime). */
static inline void session_refuse(struct session *session, uint32_t msgid, const struct method *method,
                                  uint64_t start_ns, const struct error *error)
{
	session->ops->refuse(session, msgid, method, start_ns, error);
}

/* Sends as many replies as the socket takes. */
static inline void session_flush(struct session *session)
{
	session->ops->flush(session);
}

/* Charges for one more descriptor on its way to the client. Returns 0; or QUOTA if the limit is reached even
 * after a look at what clients have received. */
static inline int session_charge_fd(struct session *session, struct charge *charge, struct error *err)
{
	return session->ops->charge_fd(session, charge, err);
}

/* Tells whether the next request has to stay where it is for now; the session then goes on by itself. */
static inline bool session_must_wait(struct session *session)
{
	return session->ops->must_wait(session);
}

/* Makes the next request, which is the same as the last one, wait for session_on_memory, and has the plans
 * made that it noted. */
static inline void session_wait_for_memory(struct session *session)
{
	session->ops->wait_for_memory(session);
}

/* Resumes a request that waited for memory. To be called when a chore that is not answered has ended, such as
 * the mapping of a region for another device or the making of plans, when the relay of the session's ring has
 * read it, and when there are fewer mappings. */
static inline void session_on_memory(struct session *session)
{
	session->ops->on_memory(session);
}

/* Resumes requests that waited for a job of the user or of the session to end. */
static inline void session_on_job_ended(struct session *session)
{
	session->ops->on_job_ended(session);
}

/* Polls the socket for those events alone that can be acted on. */
static inline void session_update_poll(struct session *session)
{
	session->ops->update_poll(session);
}

/* Ends the session now. Its jobs are canceled, its regions are released when their jobs have ended, and then
 * the connection closes: a peer that sees this may use its memory again. reason is logged. */
static inline void session_end(struct session *session, enum log_level level, const char *reason)
{
	session->ops->end(session, level, reason);
}

/* Ends a finishing session that has nothing left to do, and frees an ended one that nothing holds. To be
 * called whenever the number of jobs or mappings has decreased. */
static inline void session_settle(struct session *session)
{
	session->ops->settle(session);
}

#endif
