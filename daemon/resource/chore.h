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
#ifndef DAEMON_RESOURCE_CHORE_H
#define DAEMON_RESOURCE_CHORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#define CHORE_THREADS 3 /* An account has at most so many. */

/* Chores of one kind have threads of their own. */
enum chore_kind {
	CHORE_MEMORY, /* Two threads do these, which take time, or wait for a page or a lock. */
	CHORE_CLOSE,  /* One thread closes descriptors, one after the other (async_close.h). */
	CHORE_KIND_COUNT
};

struct account;
struct accounts;
struct chore_thread;
struct stalls;

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

	TAILQ_ENTRY(chore) entry; /* It is in account->chores, and after its time slice in chores->worked. */
	struct account *account;
	struct chore_thread *thread; /* This thread works on it. */
	uint64_t since_ns;           /* The thread was given the chore then, by uv_hrtime. */
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
	uint64_t n;        /* So many chores have been added and are not done. */
	bool may_be_apart; /* The engine maps memory without a GPU's driver in this process. */
	void (*on_idle)(void *arg);
	void *arg;
};

/* The loop calls on_idle(arg) whenever the last chore is done. */
void chores_start(struct chores *chores, uv_loop_t *loop, struct accounts *accounts, struct stalls *stalls,
                  void (*on_idle)(void *arg), void *arg);

/* Ends the threads. No chore may be left. The handles close in the loop's next iteration. */
void chores_stop(struct chores *chores);

/* Waits for threads that have nothing to do, and for no other, before the process ends in the middle of its
 * work. */
void chores_leave(struct chores *chores);

/* Queues the chore for the account, and holds the account until on_done has been called or begins has
 * returned false, which may happen before chores_add returns. */
void chores_add(struct chores *chores, struct account *account, struct chore *chore);

/* Counts the account's chores for memory that have been under way for at least ns. */
uint32_t chores_count_stuck(const struct account *account, uint64_t ns);

/* Logs the users who have such chores under way. */
void chores_log_stuck(const struct chores *chores);

#endif
