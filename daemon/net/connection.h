/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is the socket of a session, with its input, its replies, its time slices and its deadlines.
 *
 * A request passes through these functions, in receive.c, dispatch.c and reply.c: on_readable -> feed ->
 * dispatch -> (job_submit -> on_job_done, or a mapping off the loop) -> connection_reply -> connection_flush.
 * Lower layers call the last two as session_reply and session_flush. Runs of plans also come from the
 * session's ring (submission.c), and their results go there.
 *
 * The connection_* functions that take a session are the members of struct peer_ops
 * (daemon/memory/session.h); connection_of returns the session's connection.
 */
#ifndef DAEMON_NET_CONNECTION_H
#define DAEMON_NET_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "daemon/memory/account.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "proto/wire/frame.h"
#include "input.h"
#include "listener.h"

struct clock;
struct connection;
struct method;

/* The users share the loop by time slices.
 *
 * In each iteration of the loop every user has one time slice, however many sessions it has. Requests that do
 * not fit into it wait for the next iteration, and so does input that the service has not read yet. So a
 * request waits for at most one slice of each other user. While several users send requests, a slice is about
 * as long as a small request takes with its reply, so that a user with one small request at a time keeps most
 * of its speed beside any other. A user that is alone has longer slices, because iterations cost time.
 *
 * The queue holds the accounts that have ready sessions, and each account has a queue of its ready sessions.
 * Both queues are served round robin.
 */
TAILQ_HEAD(account_queue, account);

struct time_slices {
	const struct clock *clock;
	const struct accounts *accounts;
	uv_idle_t busy;             /* runs while sessions are ready, and keeps the loop from sleeping */
	struct account_queue ready; /* accounts with ready sessions; the first is served next */
	uint64_t iteration;         /* number of the loop's iteration, counted from 1 */
	uint64_t last_user;         /* account->user of the last user that had a slice */
	uint64_t shared_until_ns;   /* time (clock->now_ns) until which slices are short */
};

TAILQ_HEAD(connection_queue, connection);

/* State that all connections share. */
struct connections {
	struct service *service;
	void (*on_freed)(void *arg); /* called after a session has been freed */
	void *arg;
	struct listener listener;
	struct refusals refusals;
	struct connection_queue unsent; /* connections with replies to send before the loop sleeps */
	struct time_slices time_slices;
	struct inputs inputs;
	struct trim trim;
	uv_timer_t resend;   /* runs while connections wait to send descriptors (reply.c) */
	uv_timer_t receipts; /* runs while descriptors are sent and not received (reply.c) */
	uv_timer_t idle;     /* ends sessions that do nothing (connections_watch_idle) */
	/* Number of descriptors that the process may open, and for which the loop has room. */
	uint64_t descriptors;
	uint64_t last_id;
	bool misses_cgroups;          /* the log has said that the cgroups of peers are not known */
	uint8_t receive[INPUT_BYTES]; /* input of any session, from reading it until it is handled or kept */
};

/* Maximum size of a buffer that an idle connection keeps. */
#define CONNECTION_KEEP_BYTES 4096

/* A descriptor that is to be sent with the byte at pos of the stream of replies. */
struct outgoing_fd {
	int fd;
	uint64_t pos;
};

#define CONNECTION_MAX_OUTGOING_FDS 64

/* A descriptor that was sent with the byte at pos, at sent_ms (service_now_ms), and that the peer may not
 * have received yet. */
struct unread_fd {
	uint64_t pos;
	uint64_t sent_ms;
};

#define CONNECTION_MAX_UNREAD_FDS 64

struct connection {
	struct session session; /* comes first: connection_of casts */
	struct connections *connections;
	int fd;
	struct charge charge;
	TAILQ_ENTRY(connection) unsent_entry; /* in connections->unsent */
	LIST_ENTRY(connection) unread_entry;  /* in account->unread */
	bool unsent;                          /* it is in connections->unsent */
	/* The peer has closed its sending side, which was noticed while the session waited. */
	bool sends_no_more;

	uv_poll_t poll;
	uv_timer_t frame_timer;  /* runs while the service waits for the rest of a message */
	uint64_t frame_start_ns; /* when frame_timer was last started (clock->now_ns) */
	/* Time in ns that was left for the message at frame_start_ns; if none has begun to arrive, the whole
	 * time for the next one. */
	uint64_t frame_left_ns;
	uv_timer_t reply_timer; /* runs while unsent replies wait for the peer to read */
	int poll_events;        /* events that poll watches */
	int handles;            /* number of libuv handles that are not closed yet */

	struct buffer in;        /* input that could not be handled at once */
	struct charge in_charge; /* for the bytes in `in` */
	struct frame_scan scan;
	uint64_t received; /* number of bytes of the stream that have been received */
	uint64_t last;     /* position at which reading ends; UINT64_MAX until that is decided */

	struct buffer out; /* replies that are not sent yet */
	uint64_t sent;     /* number of bytes of the stream of replies that have been sent */
	uint32_t n_out_fds;
	struct outgoing_fd out_fds[CONNECTION_MAX_OUTGOING_FDS]; /* not sent yet, in the order of pos */
	uint32_t n_unread_fds; /* descriptors sent and perhaps not received; oldest first */
	struct unread_fd unread_fds[CONNECTION_MAX_UNREAD_FDS];
	bool resend;                     /* the kernel took no descriptor, and reply.c will try again */
	struct engine_stream *streams[]; /* one for each device; session.streams points here */
};

static inline struct connection *connection_of(struct session *session)
{
	return (struct connection *)session;
}

/* Prepares the timers and the queues. The service's loop must exist. on_freed(arg) is called whenever a
 * session has been freed. */
void connections_start(struct connections *connections, struct service *service, void (*on_freed)(void *arg),
                       void *arg);

/* Calls act for each connection; act may end the connection. */
void connections_each(struct connections *connections, void (*act)(struct connection *connection));

/* Takes over an accepted, non-blocking socket. A connection that a limit refuses gets no session
 * (refuse_socket). Returns whether no more should be accepted in this iteration of the loop. */
bool connection_open(struct connections *connections, int fd);

/* Applies to the account the limits that the settings have for the groups of the peer's process. Does not
 * block. */
void connection_meet_groups(struct connection *connection);

/* Resumes a connection that waits for a limit, if it fits into the limits as they are now. To be called after
 * the limits have changed. */
void connection_try_again(struct connection *connection);

/* Makes the session finish: no requests are accepted except those that have arrived, and the session ends
 * when all of these are answered and the answers are sent. */
void connection_finish(struct connection *connection);

bool connection_must_wait(struct session *session);
void connection_on_memory(struct session *session);
void connection_wait_for_memory(struct session *session);
void connection_on_job_ended(struct session *session);
void connection_end(struct session *session, enum log_level level, const char *reason);
void connection_settle(struct session *session);

/* Returns whether there may be more to read. This function and the next two are in receive.c. */
bool connection_reads(const struct connection *connection);

/* Handles the requests that had to wait, as far as limits and time slices allow, or reads more if there are
 * none. Does nothing while the session waits. If the device is lost (SERVICE_LOST), no limit applies, and
 * dispatch refuses the requests. */
void connection_resume(struct connection *connection);

void connection_update_poll(struct session *session);

/* Returns whether another reply may be queued, even one with a descriptor. This function and the next six are
 * in reply.c. */
bool connection_has_room(const struct connection *connection);

void connection_reply(struct session *session, uint32_t msgid, const struct method *method,
                      const void *result, int fd);
void connection_reply_queued(struct session *session, uint32_t msgid);
void connection_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                            const void *result, const struct error *error);
void connection_refuse(struct session *session, uint32_t msgid, const struct method *method,
                       uint64_t start_ns, const struct error *error);
void connection_flush(struct session *session);
int connection_charge_fd(struct session *session, struct charge *charge, struct error *err);

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock,
                      const struct accounts *accounts);

/* Asks the kernel for short slices of a CPU for the calling thread, which is the loop's, so that it runs as
 * soon as it wakes: otherwise it waits for milliseconds behind threads of the engine. Kernels before 6.12
 * ignore this. */
void time_slices_ask_for_cpu(void);

/* Begins an iteration, and lets the ready sessions go on for a slice of each account. To be called once in
 * each iteration of the loop, before it sleeps. */
void time_slices_resume_ready(struct time_slices *time_slices);

/* Returns whether the account's slice is over. To be called before or after each act for the account; the
 * first call in an iteration begins the slice. */
bool time_slice_is_over(struct time_slices *time_slices, struct account *account);

/* Makes a session ready, so that it goes on in its account's next slice. */
void time_slices_add(struct time_slices *time_slices, struct session *session);

/* A session has three deadlines: for a message to arrive, for replies to be read, and for a connection that
 * does nothing. Each of them ends the session. They use the service's clock (daemon/loop/loop.h). */

/* A message that has begun to arrive has frame_deadline_ms in all to arrive completely. The time runs while
 * the service waits for the rest of the message, and stands still while it leaves input unread: that delay is
 * not the peer's. A reset stops the timer and gives the next message the whole time. */
void frame_timer_run(struct connection *connection);
void frame_timer_reset(struct connection *connection);

/* While the peer's socket takes no replies, it has reply_deadline_ms to take some. Running a timer that runs
 * already does nothing; a reset stops it. */
void reply_timer_run(struct connection *connection);
void reply_timer_reset(struct connection *connection);

/* Starts to end sessions that do nothing for idle_deadline_ms, or stops if there is no such deadline. */
void connections_watch_idle(struct connections *connections);

/* The service sends clients the descriptors of regions that it creates (region_create).
 *
 * Each descriptor is charged to the uid (outgoing_fds_per_uid) from before it is created until the peer has
 * received it, or until it is closed here unsent. The kernel counts descriptors that are sent and not
 * received against the service's own RLIMIT_NOFILE, whoever the receiver is, until the receiver's socket
 * closes; closing the service's socket does not end that. So if a session ends before everything is received,
 * its socket lingers: it is shut down but stays open, and the charges for the connection and for the
 * descriptors are kept.
 *
 * The kernel does not notify the sender of a receipt. The service checks for it when the uid has no more
 * room, when the session has another descriptor to send, and at intervals while any is outstanding: SIOCOUTQ
 * tells how much memory the unread bytes take.
 */

/* Closes the descriptors that were not sent, because the session ends. */
void outgoing_drop(struct connection *connection);

/* Closes the socket of a session that has ended, at once or when everything is received. */
void outgoing_close_socket(struct connection *connection);

/* Closes the sockets that linger. */
void outgoing_end(struct connections *connections);

#endif
