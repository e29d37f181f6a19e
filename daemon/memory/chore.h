/* SPDX-License-Identifier: Apache-2.0 */
/* A chore is a piece of work that may block and is therefore done off the loop: mapping or unmapping memory,
 * making plans, or closing a descriptor.
 *
 * A client can make a thread that works on its memory sleep in the kernel for as long as it likes, by holding
 * a lock of the file or by never providing a page. So each account has threads of its own for its chores: at
 * most two for memory and one for closes. They start when they are needed and end after a while without work.
 * A thread that never returns harms only its own user: no other user's chores wait for it, and neither does
 * the end of the process (thread_start_apart).
 *
 * A chore is done in steps. After a time slice it goes to the end of its account's queue. The limits on what
 * an account may hold, such as regions, bound how many chores it has queued.
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

#define CHORE_THREADS 3 /* maximum number of chore threads of one account */

/* Each kind of chore has its own threads. */
enum chore_kind {
	CHORE_MEMORY, /* work on memory or plans, which may take long or block; two threads */
	CHORE_CLOSE,  /* closes of descriptors, one after the other (async_close_fd); one thread */
	CHORE_KIND_COUNT
};

/* The caller embeds this struct and sets kind and the functions; the other fields are private to chore.c. */
struct chore {
	enum chore_kind kind;
	/* Called on the loop before the first step; NULL: nothing is called. If it returns false, the chore
	 * is dropped without a call of on_done, and the function may have freed it. */
	bool (*begins)(struct chore *chore);
	/* Called repeatedly by a thread of the account, until it returns true: that was the last step. */
	bool (*step)(struct chore *chore);
	/* Called on the loop after the last step. May free the chore, or add it again. */
	void (*on_done)(struct chore *chore);

	TAILQ_ENTRY(chore) entry; /* in account->chores, thread->next or chores->worked */
	struct account *account;
	struct chore_thread *thread; /* thread that has been given the chore; NULL: none */
	uint64_t since_ns;           /* time at which the thread was given the chore (uv_hrtime) */
	bool is_begun;               /* begins has been called or is NULL */
	bool is_done;                /* the last step has been done; written by the thread */
};

TAILQ_HEAD(chore_queue, chore);

struct chores {
	uv_async_t wake;           /* sent by a thread after each time slice, and when it ends */
	uv_timer_t retry;          /* runs while a thread could not be started and is to be tried again */
	uv_mutex_t lock;           /* guards `worked`, `stopping` and fields of struct chore_thread */
	struct chore_queue worked; /* chores whose time slice is over, or that are done */
	bool stopping;             /* threads end instead of waiting for chores */
	/* Only the loop's thread uses the following fields. */
	struct accounts *accounts;
	struct stalls *stalls;
	uint64_t n; /* number of chores that have been added and have not ended */
	/* No GPU driver maps memory in this process, so threads may be started by thread_start_apart. */
	bool may_be_apart;
	void (*on_idle)(void *arg); /* called whenever n drops to 0 */
	void *arg;
};

/* Initializes *chores. on_idle(arg) is called on the loop whenever the last chore has ended. */
void chores_start(struct chores *chores, uv_loop_t *loop, struct accounts *accounts, struct stalls *stalls,
                  void (*on_idle)(void *arg), void *arg);

/* Ends the threads and waits for them. No chore may be left. The libuv handles close in the loop's next
 * iteration. */
void chores_stop(struct chores *chores);

/* Tells all threads to end, and waits only for those that have no chore; the others are detached. Must be
 * called before the process ends or calls execv while chores may be under way. */
void chores_leave(struct chores *chores);

/* Queues the chore for the account. Holds a reference to the account until on_done has been called or begins
 * has returned false; the latter may happen before chores_add returns. */
void chores_add(struct chores *chores, struct account *account, struct chore *chore);

/* Returns how many of the account's memory threads have been at work on a chore for at least ns. */
uint32_t chores_count_stuck(const struct account *account, uint64_t ns);

/* Logs each user who has chores of kind CHORE_MEMORY under way. */
void chores_log_stuck(const struct chores *chores);

/* Closing descriptors off the loop.
 *
 * close(2) may block for as long as the sender of the descriptor likes: on a TCP socket that lingers, on a
 * file of a FUSE file system that does not answer, or on a Unix socket whose queue holds such descriptors. So
 * each close is a chore of its account (CHORE_CLOSE). One thread per account closes them in the order given,
 * so a close that never returns delays only its own user.
 *
 * A descriptor stays charged until it is closed; the loop then releases the charge.
 */

/* Closes fd off the loop, and releases the charge after that. Takes over *charge, which may be empty, and
 * leaves it empty. If out of memory, closes fd at once, which may block. */
void async_close_fd(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Closes the socket of a connection as async_close_fd does. In the usual case, in which no descriptor is in
 * the socket's queue, closes it at once, because the close cannot block then. */
void async_close_socket(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Returns whether new connections of the account must be refused, because too many of its descriptors wait to
 * be closed. */
bool async_close_is_full(const struct account *account);

/* Logs each user who has descriptors that are not closed yet. */
void async_close_log_stuck(const struct accounts *accounts);

/* The watch for threads that do not return from users' memory.
 *
 * The watch looks at the threads that work for untrusted users: chore threads, relays and threads of engines
 * (engine_owner.is_stuck). It logs and counts each user whose thread is stuck. A timer drives it, which runs
 * only while an untrusted user has work under way.
 */

/* Time between two looks in ms, and the time after which a thread that has not returned counts as stuck. */
#define STALLS_LOOK_MS 2000

struct stalls {
	const struct accounts *accounts;
	uv_timer_t timer;                /* runs while is_looking */
	void (*look)(uv_timer_t *timer); /* on_look of service.c, which has access to all of these threads */
	bool is_looking;                 /* the timer runs */
	uint32_t users;                  /* number of users who had a stuck thread at the last look */
};

/* Starts the watch unless the account is trusted. Must be called when the account gets work for such a
 * thread. */
void stalls_expect(struct stalls *stalls, const struct account *account);

#endif
