/* Chores: work on memory that may take long, off the loop. Memory is mapped and unmapped so.
 *
 * The threads that do them are everybody's (libuv's), so users take turns. A chore is done in steps; after a
 * time slice it goes last in its account, and its account last among those that wait. Of one account one is
 * under way, and a second one while half of the threads have nothing to do: some users with chores of one
 * long step each still leave a thread to the next user. What an account has queued is bounded by what is
 * charged for it (regions).
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

/* The caller embeds it and fills in the functions; the rest is ours. */
struct chore {
	bool (*begins)(struct chore *chore); /* on the loop; NULL: yes. false: it is gone, and may be freed */
	bool (*step)(struct chore *chore);   /* off the loop; whether that was the last */
	void (*on_done)(struct chore *chore); /* on the loop; may free it, or add it again */

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

/* Before the loop's first work: says how many threads it has. */
void chores_init(struct chores *chores, uv_loop_t *loop);

/* The account is held until on_done is called, or begins has given false: which may be before this returns.
 */
void chores_add(struct chores *chores, struct account *account, struct chore *chore);

#endif
