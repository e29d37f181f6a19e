/* SPDX-License-Identifier: Apache-2.0 */
/* Chores: work on memory that may take long, such as mapping and unmapping, done off the loop.
 *
 * All users share the threads that do chores (libuv's), so each thread works in time slices. A chore is done
 * in steps; after a time slice it goes to the end of its account's queue, and the account to the end of the
 * queue of accounts. One chore of an account is under way, and a second one while half of the threads are
 * free: even if several users have chores of one long step each, a thread is left for the next user. The
 * charges for regions bound how many chores an account has queued.
 */
#ifndef DAEMON_RESOURCE_CHORE_H
#define DAEMON_RESOURCE_CHORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

struct account;
struct chores;
TAILQ_HEAD(chore_account_queue, account);

/* The caller embeds it and sets the functions; the rest is private. */
struct chore {
	bool (*begins)(
	    struct chore *chore); /* on the loop; NULL: true. false: the chore is dropped, and may be freed */
	bool (*step)(struct chore *chore);    /* off the loop; returns whether that was the last step */
	void (*on_done)(struct chore *chore); /* on the loop; may free the chore, or add it again */

	uv_work_t work;
	TAILQ_ENTRY(chore) entry; /* in account->chores */
	struct chores *chores;
	struct account *account;
	bool is_begun;
	bool is_done;
};

struct chores {
	uv_loop_t *loop;
	struct chore_account_queue waiting; /* accounts with a chore that may begin or go on */
	uint32_t under_way;
};

/* Before the loop's first work: sets the number of libuv's threads. */
void chores_init(struct chores *chores, uv_loop_t *loop);

/* Holds the account until on_done is called or begins returns false, which may happen before chores_add
 * returns. */
void chores_add(struct chores *chores, struct account *account, struct chore *chore);

#endif
