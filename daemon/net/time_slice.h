/* Whose turn it is on the loop.
 *
 * In each turn of the loop a uid's requests are handled for a while, whatever the number of its sessions;
 * what is left waits for the next one, and so does what the uid has sent and nobody has read. So the requests
 * of one uid wait for one turn of each other uid at most. While several uids ask, turns are about as long as
 * a small request takes with its reply, so that a uid with one small request at a time keeps much of its
 * speed beside any other; a uid that is alone has longer ones, because it costs to go round.
 */
#ifndef DAEMON_NET_TIME_SLICE_H
#define DAEMON_NET_TIME_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <uv.h>

struct account;
struct clock;
struct server;
struct session;
TAILQ_HEAD(account_queue, account);

struct time_slices {
	const struct clock *clock;
	uv_idle_t busy;             /* runs while sessions are ready, so that the loop does not sleep */
	struct account_queue ready; /* accounts with sessions that are ready */
	uint64_t n;                 /* of the loop, counted from 1 */
	uid_t last_uid;             /* that had a turn */
	uint64_t shared_until;      /* turns are short (clock->now_ns) */
};

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock);
void time_slices_close(struct time_slices *time_slices);

/* The calling thread, which is the loop's, asks for little of a CPU at a time, so that it is given it as soon
 * as it wakes: else it waits for milliseconds behind threads of the engine. A kernel before 6.12 takes no
 * notice. */
void time_slices_ask_for_cpu(void);

/* Once in a turn of the loop, before it sleeps: sessions that are ready go on. */
void time_slices_run(struct server *server);

/* Whether the account's turn is over: to be asked before each thing that is done for it, or after. The first
 * call in a turn of the loop begins it. */
bool time_slice_is_over(struct time_slices *time_slices, struct account *account);

/* Has a session go on in its account's next turn; or not, when it ends before. */
void time_slices_add(struct server *server, struct session *session);
void time_slices_remove(struct server *server, struct session *session);

/* Lets the session of the account that has waited longest for a job to end go on, if one may be queued. */
void time_slices_wake_waiting(struct server *server, struct account *account);

#endif
