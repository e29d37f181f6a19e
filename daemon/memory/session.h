/* SPDX-License-Identifier: Apache-2.0 */
/* A session is the state that the service keeps for one connection: its regions, tables, plans, jobs and
 * charges.
 *
 * The connection itself, with its socket, input and replies, belongs to a higher layer
 * (daemon/net/connection.h), which embeds the session. Lower layers reach it only through struct peer_ops.
 *
 * session_end ends a session; further calls have no effect. An ended session is freed when its last job,
 * mapping, relay and libuv handle is gone. Only the loop's thread may use it.
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
	SESSION_FINISHING, /* handles the input received so far, and ends when all of it is answered */
	SESSION_ENDED,     /* freed when its jobs, mappings, relays and handles are gone */
};

/* The reason why the session's next request has to wait. While it waits, the session's input stays unread. */
enum session_wait {
	WAIT_NONE,
	WAIT_JOBS,    /* waits for a job of the same user to end; the session is in account->waiting */
	WAIT_BEHIND,  /* waits for one of its own jobs to end, because a limit on waits for timelines is
	                 reached */
	WAIT_REPLIES, /* waits for its peer to read replies, or for its mappings to end */
	WAIT_MEMORY,  /* waits for a region to be mapped, plans to be made, or a relay to read its ring */
	WAIT_READY,   /* waits only for the user's next time slice; the session is in account->ready */
};

/* The descriptors of two messages may be pending, and a message brings at most SOCKET_MAX_FDS. */
#define SESSION_MAX_PENDING_FDS (2 * SOCKET_MAX_FDS)

/* A descriptor that no request has taken yet. It arrived with bytes [start, end) of the connection's byte
 * stream, so it belongs to a message that overlaps that range. */
struct pending_fd {
	int fd;
	uint64_t start;
	uint64_t end;
};

/* Tracks which jobs of the session have been given to an engine (job.h). A zeroed sequence has no jobs. */
struct sequence {
	struct job *held;   /* first job of session->jobs_under_way that no engine has yet; NULL: none */
	uint32_t under_way; /* number of jobs that an engine has */
	uint32_t device;    /* device of that engine; DEVICE_ANY: a batch runs on several devices */
};

/* The functions through which a session reaches its connection. Each is called by the inline function of the
 * same name below (session_reply and so on), which documents it. */
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
	uint64_t id; /* never reused while the service runs */
	enum session_state state;
	struct socket_peer peer;            /* credentials of the process that connected */
	struct account *account;            /* account of the user; the session holds a reference */
	TAILQ_ENTRY(session) entry;         /* in service->sessions */
	TAILQ_ENTRY(session) waiting_entry; /* in account->waiting or account->ready */
	enum session_wait waiting;
	uint64_t start_ms; /* start of the session (service_now_ms) */
	uint64_t used_ms;  /* time of the last input or output (service_now_ms) */

	/* Identifies the request being handled; it is the same when a request that had to wait is handled
	 * again. Even for messages, odd for entries of a submission ring. */
	uint64_t asking;
	uint64_t asked_ns; /* time at which the current message was first handled (service->taken_ns) */
	/* The next message was handled before and had to wait, so it is not counted again. */
	bool is_again;
	uint64_t handled;             /* bytes of the stream up to the end of the message being handled */
	uint32_t n_fds;               /* number of pending descriptors */
	uint32_t fds_room;            /* allocated elements of fds */
	struct pending_fd *fds;       /* pending descriptors in the order of arrival; NULL: none */
	struct charge fds_charge;     /* charge for the pending descriptors */
	struct charge out_charge;     /* charge for bytes of replies that are not sent yet */
	struct charge out_fds_charge; /* charge for descriptors that the peer has not received yet */

	struct region_table regions;
	struct id_table plans;           /* plans that the client has prepared (planning.h) */
	struct id_table tables;          /* tables that the client has prepared (table.h) */
	struct job_queue jobs_under_way; /* jobs not answered yet, in the order of submission */
	struct sequence sequence;
	uint32_t jobs;         /* number of jobs in jobs_under_way */
	uint64_t transforms;   /* number of transforms in those jobs; each item of a batch counts */
	uint32_t waiting_jobs; /* number of those jobs that have a wait, whether or not it is over */
	uint32_t relays;       /* relay threads of the session's rings that have not ended (relay.h) */
	uint32_t mappings; /* number of mappings and other chores that are queued or running off the loop */
	LIST_HEAD(, mapping) unmapped;  /* registrations and creations not mapped yet; method_region.c */
	LIST_HEAD(, reach) reaching;    /* mappings for further devices that are under way; region.c */
	struct bounce *bounce;          /* bounce buffer (links.h); NULL: none has been needed */
	struct planning *planning[2];   /* plans made for a message and for a ring entry; NULL: none */
	struct submission *submission;  /* the session's ring; NULL: none */
	struct usage usage;             /* counters of this session */
	struct engine_stream **streams; /* stream on each device; NULL: not needed yet */
};

/* Makes the session's stream on the device unless there is one. Returns 0 or NO_MEMORY. */
int session_open_stream(struct session *session, uint32_t device, struct error *err);

/* These functions count a request, an error or a transform for the service, the user and the session. */
void session_count_request(struct session *session);
void session_count_error(struct session *session, int status);
void session_count_transform(struct session *session, const struct transform_count *done);

/* Logs a line that names uid, pid, session and request. A msgid of -1 stands for no request. The number of
 * lines that one user can cause per second is limited (log_allows), except for LOG_LEVEL_DEBUG. */
void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Logs that a request was refused, without answering or counting it, for callers that answer in another way.
 * Other parameters are as for session_refuse. */
void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error);

/* Adds n descriptors that arrived with bytes [start, end) of the stream to the pending ones. Takes them over:
 * on QUOTA or NO_MEMORY all of them are closed. */
int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err);

/* Closes descriptors that are not among the pending ones, off the loop. */
void session_close_fds(struct session *session, const int *fds, size_t n);

/* Returns the first n descriptors that came with the message being handled, or NULL if there are fewer. */
const struct pending_fd *session_first_fds(const struct session *session, uint32_t n);

/* Returns the number of descriptors that can belong only to the message being handled, because they came with
 * no byte of a later one. */
uint32_t session_count_own_fds(const struct session *session);

/* session_take_fds gives the first n descriptors (session_first_fds) and their charge to the caller.
 * session_drop_fds closes the first n, or as many as came with the message being handled. */
void session_take_fds(struct session *session, uint32_t n, struct charge *ret_charge);
void session_drop_fds(struct session *session, uint32_t n);

/* Closes the descriptors that came only with bytes before end: no later message can claim them. */
void session_drop_fds_before(struct session *session, uint64_t end);

/* Answers a request. result is as rpc_encode_result takes it. fd is sent with the reply; -1 stands for none.
 * The session takes fd over, and must already be charged for it (out_fds_charge). If the session has ended,
 * only fd is closed. */
static inline void session_reply(struct session *session, uint32_t msgid, const struct method *method,
                                 const void *result, int fd)
{
	session->ops->reply(session, msgid, method, result, fd);
}

/* Answers a request with "queued"; its end is reported later by session_notify_done. */
static inline void session_reply_queued(struct session *session, uint32_t msgid)
{
	session->ops->reply_queued(session, msgid);
}

/* Reports the end of a request that was answered with "queued". error is NULL if it succeeded; result is then
 * as for session_reply. */
static inline void session_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                                       const void *result, const struct error *error)
{
	session->ops->notify_done(session, msgid, method, result, error);
}

/* Answers a request with an error, and counts and logs the refusal. method is NULL if the request names no
 * known method. start_ns is the time at which handling began (uv_hrtime). */
static inline void session_refuse(struct session *session, uint32_t msgid, const struct method *method,
                                  uint64_t start_ns, const struct error *error)
{
	session->ops->refuse(session, msgid, method, start_ns, error);
}

/* Sends as many queued replies as the socket accepts without blocking. */
static inline void session_flush(struct session *session)
{
	session->ops->flush(session);
}

/* Charges for one more descriptor to be sent to the client. If the limit is reached, first checks which
 * descriptors the user's clients have received in the meantime. Returns 0 or QUOTA. */
static inline int session_charge_fd(struct session *session, struct charge *charge, struct error *err)
{
	return session->ops->charge_fd(session, charge, err);
}

/* Returns whether the next request has to wait, and sets session->waiting accordingly. The session resumes by
 * itself when the reason is gone. */
static inline bool session_must_wait(struct session *session)
{
	return session->ops->must_wait(session);
}

/* Suspends the request being handled until session_on_memory resumes it, which handles it again from the
 * start. Also starts making the plans that the request has noted (planning.h). */
static inline void session_wait_for_memory(struct session *session)
{
	session->ops->wait_for_memory(session);
}

/* Resumes the session if it waits for memory and nothing is missing any more, or if it waits for replies and
 * there is room again. Must be called when a chore of the session has ended without a reply (a reply resumes
 * the session itself), and when the relay of the session's ring has read the ring. */
static inline void session_on_memory(struct session *session)
{
	session->ops->on_memory(session);
}

/* Resumes the sessions of the user that wait for a job to end (WAIT_JOBS), and this one (WAIT_BEHIND). */
static inline void session_on_job_ended(struct session *session)
{
	session->ops->on_job_ended(session);
}

/* Updates the events that the socket is polled for: only those that can be handled now. */
static inline void session_update_poll(struct session *session)
{
	session->ops->update_poll(session);
}

/* Ends the session: cancels its jobs, and releases its regions when their jobs have ended. The connection is
 * closed only after that, so a peer that sees it close may use its memory again. Logs reason. */
static inline void session_end(struct session *session, enum log_level level, const char *reason)
{
	session->ops->end(session, level, reason);
}

/* Ends a finishing session that has nothing left to do, and frees an ended one that nothing holds any more;
 * the caller must not use the session afterwards. Must be called whenever the number of jobs, mappings or
 * relays has decreased. */
static inline void session_settle(struct session *session)
{
	session->ops->settle(session);
}

#endif
