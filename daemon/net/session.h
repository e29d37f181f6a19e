/* One connection: bytes in, requests, replies, bytes out; and everything that it holds.
 *
 * A request's life reads downward in receive.c and dispatch.c: on_readable -> session_feed -> dispatch ->
 * (job_submit -> on_job_done, or a mapping off the loop) -> session_reply -> session_flush (reply.c).
 * Runs of plans come by the session's ring too (submission.c), and end there.
 *
 * A session ends once (session_end, idempotent). What is under way holds it: it is freed when no job, no
 * mapping and no handle is left.
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
#include "daemon/resource/region.h"
#include "daemon/observe/usage.h"

enum session_state {
	SESSION_OPEN,
	SESSION_FINISHING, /* reads what had come before; ends when all of it is answered and sent */
	SESSION_ENDED,     /* waits for jobs, mappings and handles */
};

/* What the next request waits for. */
enum session_wait {
	WAIT_NONE,
	WAIT_JOBS,    /* a job of the uid's to end; in account->waiting */
	WAIT_BEHIND,  /* a job of its own to end, because one of them waits for a timeline */
	WAIT_REPLIES, /* replies to be read, or a mapping to be answered; session_flush ends it */
	WAIT_READY,   /* nothing more: in account->ready */
};

/* An idle session keeps no more buffer than this. */
#define SESSION_KEEP_BYTES 4096

#define SESSION_MAX_PENDING_FDS 64

/* A descriptor that came with bytes [start, end) of the connection's stream: it belongs to a message that
 * has a byte there. */
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

/* One that was sent with the byte at pos, at server_now_ms, and is not known to be received. */
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
	bool sends_no_more; /* its peer closed its sending side, and was seen to while the session waited */
	enum session_wait waiting;

	uv_poll_t poll;
	uv_timer_t frame_timer; /* runs while a message has begun and not ended, and its rest would be read */
	uint64_t frame_start_ns;
	uint64_t frame_left_ns; /* at frame_start_ns, or of the next message */
	uv_timer_t reply_timer; /* runs while replies wait for the peer */
	int poll_events;
	int handles;       /* not yet closed */
	uint64_t start_ms; /* server_now_ms */
	uint64_t used_ms;  /* when it last sent something or was answered (server_now_ms) */

	/* In. */
	struct buffer in; /* what could not be handled at once */
	struct charge in_charge;
	struct frame_scan scan;
	uint64_t received; /* bytes of the stream */
	uint64_t handled;
	uint64_t last; /* where it stops reading; UINT64_MAX while it is open */
	uint32_t n_fds;
	struct pending_fd fds[SESSION_MAX_PENDING_FDS];
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
	bool resend;                  /* its descriptors cannot be sent now; reply.c tries again */

	struct engine_stream *stream;
	struct region_table regions;
	struct id_table plans;           /* prepared.c */
	struct job_queue jobs_under_way; /* in the order submitted */
	uint32_t jobs;                   /* as many */
	uint64_t transforms;             /* in them: items of batches count each */
	uint32_t waiting_jobs;           /* of them, with a wait, whether or not it has come */
	uint32_t mappings;               /* and other chores, not begun or under way off the loop */
	LIST_HEAD(, mapping) unmapped;   /* those of them that map, or will */
	struct submission *submission;   /* its ring; NULL: it has none */
	struct usage usage;
};

/* Takes over an accepted, non-blocking socket. One that a limit refuses gets no session (refusal.h). Returns
 * whether no more should be accepted in this iteration of the loop. */
bool session_open(struct server *server, int fd);

/* Its process's groups may have limits of their own: they are its account's. Never waits. */
void session_meet_groups(struct session *session);

/* For the service, the uid and the session itself. metrics.c. */
void session_count_request(struct session *session);
void session_count_error(struct session *session, int status);
void session_count_transform(struct session *session, const struct transform_count *done);

/* Whether the next request has to stay where it is for now; the session then goes on by itself.
 * backpressure.c, as the next two. */
bool session_must_wait(struct session *session);

/* A request that waited for one of the session's own jobs goes on. */
void session_on_job_ended(struct session *session);

/* The session ends: nothing goes on. */
void session_stop_waiting(struct session *session);

/* Answers a request. result as rpc_encode_result takes it. fd: goes with the reply and becomes the session's,
 * which is charged for it already (out_fds_charge); -1 for none. Nothing happens on a session that has ended.
 */
void session_reply(struct session *session, uint32_t msgid, const struct method *method, const void *result,
                   int fd);

/* Answers one that is under way and will be answered by session_notify_done. */
void session_reply_queued(struct session *session, uint32_t msgid);

/* The end of such a request; error NULL: it went well, and result is as for session_reply. */
void session_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                         const void *result, const struct error *error);

/* Answers a request with an error, counts and logs it. method may be NULL (not known). start_ns: when it was
 * taken up (uv_hrtime). */
void session_refuse(struct session *session, uint32_t msgid, const struct method *method, uint64_t start_ns,
                    const struct error *error);

/* Logs that a request was refused, which is answered otherwise. */
void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error);

/* Keeps what came with bytes [start, end) of the stream, or closes all of it. descriptors.c, as the next six.
 */
int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err);

/* Closes, off the loop, what is not pending. */
void session_close_fds(struct session *session, const int *fds, size_t n);

/* The first descriptor that came with the message being handled, or -1. It becomes the caller's when it is
 * taken; dropped, it is closed. */
int session_first_fd(const struct session *session);
void session_take_fd(struct session *session);
void session_drop_fd(struct session *session);

/* What came with bytes before end and was not taken belongs to no later message. */
void session_drop_fds(struct session *session, uint64_t end);

/* Sends what can be sent now. */
void session_flush(struct session *session);

/* Of the server's: tries again to send to sessions whose descriptors the kernel did not take. */
void on_resend(uv_timer_t *timer);

/* A session by its id, 0: the asking one itself, as long as the asking one may see it. NOT_FOUND does not
 * tell one that it may not see from none. method_session.c. */
int session_find(struct session *asking, uint64_t id, struct session **ret, struct error *err);

/* Whether another reply may be queued, with a descriptor. */
bool session_has_room(const struct session *session);

/* Whether there may be more to read. receive.c, as the next one. */
bool session_reads(const struct session *session);

/* Asks the loop for just the events that can be acted on. */
void session_update_poll(struct session *session);

/* Nobody waits for what is being mapped. method_region.c. */
void session_give_up_mappings(struct session *session);

/* Goes on with requests that waited (for a job to end, or for replies to be read), and when the engine is
 * lost with all of them: dispatch refuses those. */
void session_resume(struct session *session);

/* No new requests but those that have arrived; ends when all of them are answered and sent. */
void session_finish(struct session *session);

/* Ends now: jobs are cancelled, regions go when their jobs do, and so does the connection: a peer that sees
 * its end may use its memory again. reason is logged. */
void session_end(struct session *session, enum log_level level, const char *reason);

/* To be called whenever jobs or mappings went down: ends a finishing session, frees an ended one. */
void session_settle(struct session *session);

/* A line that names uid, pid, session and request (msgid -1: none). What one uid can cause is bounded to a
 * few lines a second; dropped ones are counted in the next. */
void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
