/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one connection and everything that it holds.
 *
 * The life of a request reads downward in receive.c and dispatch.c: on_readable -> session_feed -> dispatch
 * -> (job_submit -> on_job_done, or a mapping off the loop) -> session_reply -> session_flush (reply.c). Runs
 * of plans also come from the session's ring (submission.c), and their results go there.
 *
 * A session ends once (session_end, idempotent). Work under way holds it: it is freed when no job, no mapping
 * and no handle is left. It belongs to the loop's thread.
 */
#ifndef DAEMON_NET_SESSION_H
#define DAEMON_NET_SESSION_H

#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "account.h"
#include "daemon/resource/id_table.h"
#include "daemon/resource/job.h"
#include "kernels/engine.h"
#include "daemon/observe/log.h"
#include "proto/wire/buffer.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "daemon/resource/sequence.h"
#include "daemon/resource/region.h"
#include "daemon/observe/usage.h"

enum session_state {
	SESSION_OPEN,
	SESSION_FINISHING, /* reads what had arrived before; ends when all of it is answered and sent */
	SESSION_ENDED,     /* freed when its jobs, mappings and handles are gone */
};

/* What the session's next request waits for. */
enum session_wait {
	WAIT_NONE,
	WAIT_JOBS,    /* for a job of the uid to end; in account->waiting */
	WAIT_BEHIND,  /* for a job of its own to end, because one of them waits for a timeline */
	WAIT_REPLIES, /* for replies to be read, or mappings to end; session_flush, session_on_memory */
	WAIT_MEMORY,  /* for a region to be mapped further, plans to be made, or its ring to be read */
	WAIT_READY,   /* for a time slice only; in account->ready */
};

/* An idle session keeps no more buffer than this. */
#define SESSION_KEEP_BYTES 4096

/* Of two messages that bring as many as one can. */
#define SESSION_MAX_PENDING_FDS (2 * SOCKET_MAX_FDS)

/* A descriptor that came with bytes [start, end) of the stream: it belongs to a message that has a byte
 * there. */
struct pending_fd {
	int fd;
	uint64_t start;
	uint64_t end;
};

/* A descriptor to send with the byte at pos of the stream out. */
struct outgoing_fd {
	int fd;
	uint64_t pos;
};

#define SESSION_MAX_OUTGOING_FDS 64

/* A descriptor that was sent with the byte at pos, at sent_ms (server_now_ms), and may not have been
 * received. */
struct unread_fd {
	uint64_t pos;
	uint64_t sent_ms;
};

#define SESSION_MAX_UNREAD_FDS 64

struct session {
	struct server *server;
	uint64_t id;
	enum session_state state;
	int fd;
	struct socket_peer peer;
	struct account *account;
	struct charge connection;
	TAILQ_ENTRY(session) entry;         /* in server->sessions */
	TAILQ_ENTRY(session) unsent_entry;  /* in server->unsent */
	TAILQ_ENTRY(session) waiting_entry; /* in account->waiting or account->ready */
	LIST_ENTRY(session) unread_entry;   /* in account->unread */
	bool unsent;
	bool sends_no_more; /* the peer was seen, while the session waited, to have closed its sending side */
	enum session_wait waiting;

	uv_poll_t poll;
	uv_timer_t frame_timer; /* runs while the rest of a message is awaited (deadline.h) */
	uint64_t frame_start_ns;
	uint64_t frame_left_ns; /* at frame_start_ns, or for the next message */
	uv_timer_t reply_timer; /* runs while unsent replies wait for the peer */
	int poll_events;
	int handles;       /* not yet closed */
	uint64_t start_ms; /* server_now_ms */
	uint64_t used_ms;  /* when it last sent or received something (server_now_ms) */

	/* In. */
	struct buffer in; /* kept because it could not be handled at once */
	struct charge in_charge;
	struct frame_scan scan;
	uint64_t received; /* bytes of the stream */
	uint64_t handled;
	uint64_t last; /* the end of reading; UINT64_MAX while it is open */
	uint32_t n_fds;
	uint32_t fds_room;
	struct pending_fd *fds; /* NULL: none are pending */
	struct charge fds_charge;

	/* Out. */
	struct buffer out;
	uint64_t sent;
	uint32_t n_out_fds;
	struct outgoing_fd out_fds[SESSION_MAX_OUTGOING_FDS];
	struct charge out_charge;
	uint32_t n_unread_fds; /* outgoing.c */
	struct unread_fd unread_fds[SESSION_MAX_UNREAD_FDS];
	struct charge out_fds_charge; /* of out_fds and unread_fds */
	bool resend;                  /* the kernel took no descriptor; reply.c tries again */

	struct region_table regions;
	struct id_table plans;           /* prepared.c */
	struct id_table tables;          /* table.c */
	struct job_queue jobs_under_way; /* in the order submitted */
	struct sequence sequence;        /* which of them engines have */
	uint32_t jobs;                   /* as many */
	uint64_t transforms;             /* in them; each item of a batch counts */
	uint32_t waiting_jobs;           /* jobs with a wait, whether or not it is over */
	uint32_t relays;                 /* threads of its rings that have not ended (relay.h) */
	uint32_t mappings;               /* mappings and other chores, queued or under way off the loop */
	LIST_HEAD(, mapping) unmapped;   /* mappings that have not been mapped yet */
	LIST_HEAD(, reach) reaching;     /* those for further devices; reach.c */
	struct bounce *bounce;           /* bounce.c; NULL: none has been needed */
	struct planning *planning[2];    /* planning.c; NULL: no request waits for plans */
	uint64_t asking;               /* which request is being handled; the same when it is handled again */
	bool is_again;                 /* the next message has been counted, and is handled once more */
	struct submission *submission; /* its ring; NULL: it has none */
	struct usage usage;
	struct engine_stream *streams[]; /* one for each device; NULL: it has not been needed */
};

/* Makes the stream on a device, unless there is one. */
int session_open_stream(struct session *session, uint32_t device, struct error *err);

/* Takes over an accepted, non-blocking socket. A connection that a limit refuses gets no session (refusal.h).
 * Returns whether no more should be accepted in this iteration of the loop. */
bool session_open(struct server *server, int fd);

/* Applies the limits of the groups of the peer's process to the account. Does not block. */
void session_meet_groups(struct session *session);

/* Count for the service, the uid and the session. metrics.c. */
void session_count_request(struct session *session);
void session_count_error(struct session *session, int status);
void session_count_transform(struct session *session, const struct transform_count *done);

/* Whether the next request has to stay where it is for now; the session then goes on by itself.
 * backpressure.c, as are the next four. */
bool session_must_wait(struct session *session);

/* A chore that is not answered has ended, such as the mapping of a region for another device, or the making
 * of plans, or the relay of its ring has read it: a request that waited for that, or for there to be fewer
 * mappings, goes on. */
void session_on_memory(struct session *session);

/* Its next request waits for that; it is the same as the last one. What plans it noted are made. */
void session_wait_for_memory(struct session *session);

/* A job of the session has ended: a request that waited for that goes on. */
void session_on_job_ended(struct session *session);

/* Removes the session from the queue that it waits in. */
void session_stop_waiting(struct session *session);

/* Answers a request. result is as rpc_encode_result takes it. fd (-1: none) goes with the reply and becomes
 * the property of the session, which is already charged for it (out_fds_charge). Does nothing on a session
 * that has ended, except closing fd. */
void session_reply(struct session *session, uint32_t msgid, const struct method *method, const void *result,
                   int fd);

/* Answers a request with "queued"; session_notify_done reports its end. */
void session_reply_queued(struct session *session, uint32_t msgid);

/* Reports the end of such a request. error NULL: it succeeded, and result is as for session_reply. */
void session_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                         const void *result, const struct error *error);

/* Answers a request with an error, counts and logs it. method may be NULL (unknown). start_ns: when handling
 * began (uv_hrtime). */
void session_refuse(struct session *session, uint32_t msgid, const struct method *method, uint64_t start_ns,
                    const struct error *error);

/* Only logs that a request was refused, when it is answered otherwise. */
void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error);

/* Keeps the descriptors that came with bytes [start, end) of the stream, or closes all of them.
 * descriptors.c, as are the next six. */
int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err);

/* Closes descriptors that are not pending, off the loop. */
void session_close_fds(struct session *session, const int *fds, size_t n);

/* The first n descriptors that came with the message being handled; NULL when there are fewer. */
const struct pending_fd *session_first_fds(const struct session *session, uint32_t n);

/* How many descriptors came with the message being handled and with no byte of a later one. */
uint32_t session_count_own_fds(const struct session *session);

/* Makes those the caller's, with what they are charged to; or closes those of the n that are there. */
void session_take_fds(struct session *session, uint32_t n, struct charge *ret_charge);
void session_drop_fds(struct session *session, uint32_t n);

/* Drops the descriptors that came with bytes before end: they belong to no later message. */
void session_drop_fds_before(struct session *session, uint64_t end);

/* Sends as many replies as the socket takes. reply.c. */
void session_flush(struct session *session);

/* The server's timer: tries again to send to sessions whose descriptors the kernel did not take. */
void on_resend(uv_timer_t *timer);

/* Finds a session by its id (0: the asking one itself) if the asking one may see it. NOT_FOUND does not tell
 * one that may not be seen from one that does not exist. method_session.c. */
int session_find(struct session *asking, uint64_t id, struct session **ret, struct error *err);

/* Whether another reply may be queued, with a descriptor. */
bool session_has_room(const struct session *session);

/* Whether there may be more to read. receive.c, as is the next one. */
bool session_reads(const struct session *session);

/* Polls for just the events that can be acted on. */
void session_update_poll(struct session *session);

/* Marks the mappings under way as no longer wanted. method_region.c. */
void session_give_up_mappings(struct session *session);

/* Goes on with requests that waited (for a job to end, or for replies to be read). If the engine is lost,
 * with all requests: dispatch refuses them. receive.c. */
void session_resume(struct session *session);

/* Accepts no requests except those that have arrived; the session ends when all of them are answered and
 * sent. */
void session_finish(struct session *session);

/* Ends the session now: its jobs are canceled, its regions are released when their jobs have ended, and then
 * the connection closes: a peer that sees that may use its memory again. reason is logged. */
void session_end(struct session *session, enum log_level level, const char *reason);

/* Ends a finishing session that has nothing left to do, frees an ended one. To be called whenever the number
 * of jobs or mappings has decreased. */
void session_settle(struct session *session);

/* Logs a line that names uid, pid, session and request (msgid -1: none). The lines that one uid can cause are
 * limited to a few a second; the next line counts those that were dropped. */
void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
