/* SPDX-License-Identifier: Apache-2.0 */
/* A chore is work off the loop that may take long, such as mapping and unmapping memory and making plans,
 * or a close.
 *
 * A client can make the kernel put whoever works on its memory to sleep for as long as it likes: by the lock
 * of its file, or by a page that never comes. So each account has threads of its own for its chores, at most
 * two for memory and one for closes, which start when they are needed and end when they have had nothing to
 * do for a while. A thread that does not come back is that user's loss: nobody else's chores wait for it, and
 * neither does the end of the process (thread_start_apart).
 *
 * A chore is done in steps; after a time slice it goes to the end of its account's queue. The charges for
 * regions bound how many chores an account has queued.
 */
#ifndef DAEMON_MEMORY_CHORE_H
#define DAEMON_MEMORY_CHORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

struct account;
struct accounts;
struct charge;
struct chore_thread;
struct stalls;

#define CHORE_THREADS 3 /* most threads of an account */

/* Chores of one kind have threads of their own. */
enum chore_kind {
	CHORE_MEMORY, /* Two threads do these, which take time, or wait for a page or a lock. */
	CHORE_CLOSE,  /* One thread closes descriptors, one after the other (async_close_fd). */
	CHORE_KIND_COUNT
};

/* The caller embeds it and sets the functions; the rest is private. */
struct chore {
	enum chore_kind kind;
	/* The loop calls this before the first step, unless it is NULL. If it returns false, the chore is
	 * dropped; the function may free it. */
	bool (*begins)(struct chore *chore);
	/* A thread of the account calls this again and again, until it returns that it was the last step. */
	bool (*step)(struct chore *chore);
	/* The loop calls this after the last step. It may free the chore, or add it again. */
	void (*on_done)(struct chore *chore);

	TAILQ_ENTRY(chore) entry; /* in account->chores, and after its time slice in chores->worked */
	struct account *account;
	struct chore_thread *thread; /* the thread that works on it */
	uint64_t since_ns;           /* when the thread was given the chore (uv_hrtime) */
	bool is_begun;
	bool is_done;
};

TAILQ_HEAD(chore_queue, chore);

struct chores {
	uv_async_t wake;  /* A thread sends it when it has worked, or has ended. */
	uv_timer_t retry; /* It runs when a thread could not be started. */
	uv_mutex_t lock;  /* It guards the next two, and what struct chore_thread says. */
	struct chore_queue worked;
	bool stopping;
	/* The loop alone uses these. */
	struct accounts *accounts;
	struct stalls *stalls;
	uint64_t n;        /* chores that have been added and are not done */
	bool may_be_apart; /* the engine maps memory without a GPU's driver in this process */
	void (*on_idle)(void *arg);
	void *arg;
};

/* The loop calls on_idle(arg) whenever the last chore is done. */
void chores_start(struct chores *chores, uv_loop_t *loop, struct accounts *accounts, struct stalls *stalls,
                  void (*on_idle)(void *arg), void *arg);

/* Ends the threads. No chore may be left. The handles close in the loop's next iteration. */
void chores_stop(struct chores *chores);

/* Waits until threads that have nothing to do have ended, and for no other thread. To be called before the
 * process ends in the middle of its work. */
void chores_leave(struct chores *chores);

/* Queues the chore for the account, and holds the account until on_done has been called or begins has
 * returned false, which may happen before chores_add returns. */
void chores_add(struct chores *chores, struct account *account, struct chore *chore);

/* Counts the account's chores for memory that have been under way for at least ns. */
uint32_t chores_count_stuck(const struct account *account, uint64_t ns);

/* Logs each user who has chores for memory under way, for however short a time. */
void chores_log_stuck(const struct chores *chores);

/* Descriptors are closed off the loop.
 *
 * close(2) may block for as long as the sender of the descriptor likes: a TCP socket that lingers, a file of
 * a FUSE file system that does not answer, a Unix socket whose queue holds such descriptors. So each close is
 * a chore of its account (CHORE_CLOSE). One thread does these for the account, in the order given; a close
 * that never returns delays its own user only.
 *
 * A descriptor keeps its charge until it is closed; the loop releases it then.
 */

/* Closes fd, then releases the charge. Takes the charge over: *charge, which may be empty, is empty
 * afterwards. */
void async_close_fd(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Closes a peer's connection, at once where nothing in it can block, which is the usual case. */
void async_close_socket(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Returns whether so many of the account's descriptors do not close that its connections are refused. */
bool async_close_is_full(const struct account *account);

/* Logs the users whose descriptors do not close. */
void async_close_log_stuck(const struct accounts *accounts);

/* The watch looks at the threads that belong to untrusted users (chore.h; relay.h; engine_owner.is_stuck). A
 * user whose thread does not come back from memory is named in the log, and counted. The watch looks only
 * while such a user has work under way. */

/* The time between two looks, and until a thread that has not come back is stuck. */
#define STALLS_LOOK_MS 2000

struct stalls {
	const struct accounts *accounts;
	uv_timer_t timer;                /* runs while is_looking */
	void (*look)(uv_timer_t *timer); /* on_look of service.c, which sees all of these threads */
	bool is_looking;
	uint32_t users; /* users who had a thread that was stuck at the last look */
};

/* Starts the watch if the account is untrusted, because it has work under way from now on. */
void stalls_expect(struct stalls *stalls, const struct account *account);

#endif
