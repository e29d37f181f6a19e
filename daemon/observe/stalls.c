/* SPDX-License-Identifier: Apache-2.0 */
#include "stalls.h"

#include "daemon/net/account.h"
#include "daemon/resource/relay.h"
#include "daemon/server.h"
#include "log.h"

#define LOOK_MS 2000

void stalls_open(struct stalls *stalls, struct server *server)
{
	*stalls = (struct stalls){ .users = 0 };
	uv_timer_init(&server->loop, &stalls->timer);
	stalls->timer.data = server;
}

void stalls_close(struct stalls *stalls)
{
	uv_close((uv_handle_t *)&stalls->timer, NULL);
}

static bool is_stuck(const struct account *account)
{
	for (uint32_t i = 0; i < account->n_owners; i++)
		if (account->owners[i].is_stuck)
			return true;
	return chores_count_stuck(account, LOOK_MS * UINT64_C(1000000)) > 0 ||
	       relays_are_busy(account, LOOK_MS * UINT64_C(1000000));
}

static bool has_work(const struct account *account)
{
	return account->used[CHARGE_JOBS] > 0 || chores_count_stuck(account, 0) > 0 ||
	       relays_are_busy(account, 0);
}

static void note(struct account *account, bool is_stuck)
{
	const struct log_about about = account_about(account);

	if (is_stuck && !account->is_stuck)
		log_about(
		    LOG_LEVEL_WARNING, &about,
		    "its threads do not return from its memory: a page or a lock of a file of its own is kept "
		    "from them; its requests wait, and nobody else's");
	else if (!is_stuck && account->is_stuck)
		log_about(LOG_LEVEL_NOTICE, &about, "its threads have returned from its memory");
	account->is_stuck = is_stuck;
}

static void on_look(uv_timer_t *timer)
{
	struct server *server = timer->data;
	struct account *account;
	bool has_any_work = false;

	for (uint32_t i = 0; i < server->devices.n; i++)
		engine_note_stuck(device_engine(&server->devices, i));
	server->stalls.users = 0;
	LIST_FOREACH(account, &server->accounts.list, entry) {
		if (account_is_trusted(&server->accounts, account))
			continue;
		note(account, is_stuck(account));
		server->stalls.users += account->is_stuck;
		has_any_work |= account->is_stuck || has_work(account);
	}
	if (has_any_work)
		return;
	uv_timer_stop(timer);
	server->stalls.is_looking = false;
}

void stalls_expect(struct stalls *stalls, const struct account *account)
{
	struct server *server = stalls->timer.data;

	if (stalls->is_looking || account_is_trusted(&server->accounts, account))
		return;
	stalls->is_looking = true;
	uv_timer_start(&stalls->timer, on_look, LOOK_MS, LOOK_MS);
}
