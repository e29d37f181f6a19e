/* SPDX-License-Identifier: Apache-2.0 */
/* The deadlines of sessions: for a message to arrive, for replies to be read, and for a connection that does
 * nothing. Each ends the session. They use the server's clock (daemon/clock.h).
 */
#ifndef DAEMON_NET_DEADLINE_H
#define DAEMON_NET_DEADLINE_H

struct server;
struct session;

/* A message that has begun has frame_deadline_ms in all to arrive. The time runs while the service waits for
 * the rest of the message, and stands still while it leaves input unread: that delay is not the peer's. A
 * reset stops the time; the next message has all of it. */
void frame_timer_run(struct session *session);
void frame_timer_pause(struct session *session);
void frame_timer_reset(struct session *session);

/* Replies that the peer's socket does not take have to make progress within reply_deadline_ms. Running a
 * timer that runs already does nothing; a reset stops it. */
void reply_timer_run(struct session *session);
void reply_timer_reset(struct session *session);

/* Starts to end sessions that do nothing for idle_deadline_ms, or stops when there is no such deadline. */
void server_watch_idle(struct server *server);

#endif
