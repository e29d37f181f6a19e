/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of accounts, each with a queue of chores. libuv's own queue never holds more work than it has
 * threads, so that the order is decided here. */
#include "chore.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/net/account.h"

#define THREADS  8
#define SLICE_NS 5000000

static void on_work(uv_work_t *work);
static void on_worked(uv_work_t *work, int status);

/* libuv reads the variable when it gets its first work. */
void chores_init(struct chores *chores, uv_loop_t *loop)
{
	char threads[16];

	*chores = (struct chores){ .loop = loop };
	TAILQ_INIT(&chores->waiting);
	snprintf(threads, sizeof threads, "%d", THREADS);
	setenv("UV_THREADPOOL_SIZE", threads, 1);
}

/* Whether a chore of the account may begin beside those that are under way. */
static bool may_begin(const struct chores *chores, const struct account *account)
{
	if (account->chores_under_way == 0)
		return chores->under_way < THREADS;
	return account->chores_under_way == 1 && chores->under_way < THREADS / 2;
}

static struct account *next_account(struct chores *chores)
{
	struct account *account;

	TAILQ_FOREACH(account, &chores->waiting, chores_entry)
		if (may_begin(chores, account))
			return account;
	return NULL;
}

static void begin(struct chores *chores)
{
	struct account *account;

	while ((account = next_account(chores))) {
		struct chore *chore = TAILQ_FIRST(&account->chores);

		TAILQ_REMOVE(&chores->waiting, account, chores_entry);
		TAILQ_REMOVE(&account->chores, chore, entry);
		if (!TAILQ_EMPTY(&account->chores))
			TAILQ_INSERT_TAIL(&chores->waiting, account, chores_entry);
		if (!chore->is_begun && chore->begins && !chore->begins(chore)) {
			account_unref(account);
			continue;
		}
		chore->is_begun = true;
		account->chores_under_way++;
		chores->under_way++;
		uv_queue_work(chores->loop, &chore->work, on_work, on_worked);
	}
}

static void add(struct chore *chore)
{
	struct account *account = chore->account;

	if (TAILQ_EMPTY(&account->chores))
		TAILQ_INSERT_TAIL(&chore->chores->waiting, account, chores_entry);
	TAILQ_INSERT_TAIL(&account->chores, chore, entry);
}

void chores_add(struct chores *chores, struct account *account, struct chore *chore)
{
	chore->chores = chores;
	chore->account = account;
	chore->is_begun = chore->is_done = false;
	account->refs++;
	add(chore);
	begin(chores);
}

/* ---- Off the loop, and back on it ---------------------------------------------------------------------- */

static struct chore *chore_of(uv_work_t *work)
{
	return (struct chore *)((char *)work - offsetof(struct chore, work));
}

static void on_work(uv_work_t *work)
{
	struct chore *chore = chore_of(work);
	uint64_t end = uv_hrtime() + SLICE_NS;

	do
		chore->is_done = chore->step(chore);
	while (!chore->is_done && uv_hrtime() < end);
}

static void on_worked(uv_work_t *work, int status)
{
	struct chore *chore = chore_of(work);
	struct account *account = chore->account;
	struct chores *chores = chore->chores;
	bool is_done = chore->is_done; /* read before another thread may go on with it */

	(void)status;
	account->chores_under_way--;
	chores->under_way--;
	if (!is_done)
		add(chore);
	begin(chores);
	if (!is_done)
		return;
	chore->on_done(chore);
	account_unref(account);
}
