/* SPDX-License-Identifier: Apache-2.0 */
/* One call is under way at a time; all requests that come meanwhile are served by one more call. */
#include "waker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#include "chore.h"
#include "region.h"
#include "daemon/server.h"
#include "daemon/net/session.h"

#define MOST    8      /* sleepers at most: a ring belongs to one client */
#define SLOW_NS 250000 /* a call that takes longer must not be made on the loop */
#define LONG_NS UINT64_C(1000000000)

struct waker {
	struct session *session;
	struct region *region;
	uint32_t *word;
	uint64_t slow_until_ns; /* uv_hrtime */
	struct chore chore;
	bool is_under_way; /* the chore, which holds the region and the session meanwhile */
	bool again;
	bool is_freed;
};

struct waker *waker_new(struct session *session, struct region *region, uint32_t *word)
{
	struct waker *waker = calloc(1, sizeof *waker);

	if (!waker)
		return NULL;
	waker->session = session;
	waker->region = region;
	waker->word = word;
	return waker;
}

void waker_free(struct waker *waker)
{
	if (waker && waker->is_under_way)
		waker->is_freed = true;
	else
		free(waker);
}

static void wake(const struct waker *waker)
{
	syscall(SYS_futex, waker->word, FUTEX_WAKE, MOST, NULL, NULL, 0);
}

static struct waker *waker_of(struct chore *chore)
{
	return (struct waker *)((char *)chore - offsetof(struct waker, chore));
}

static bool step(struct chore *chore)
{
	wake(waker_of(chore));
	return true;
}

static void on_done(struct chore *chore)
{
	struct waker *waker = waker_of(chore);
	struct session *session = waker->session;

	if (waker->again && !waker->is_freed) {
		waker->again = false;
		chores_add(&session->server->chores, session->account, chore);
		return;
	}
	waker->is_under_way = false;
	region_unuse(waker->region);
	if (waker->is_freed)
		free(waker);
	session->mappings--;
	session_on_memory(session);
	session_settle(session);
}

static void wake_later(struct waker *waker)
{
	if (waker->is_under_way) {
		waker->again = true;
		return;
	}
	waker->is_under_way = true;
	waker->again = false;
	waker->chore = (struct chore){ .step = step, .on_done = on_done };
	region_use(waker->region);
	waker->session->mappings++;
	chores_add(&waker->session->server->chores, waker->session->account, &waker->chore);
}

void waker_wake(struct waker *waker)
{
	uint64_t start = uv_hrtime(), end;

	if (waker->is_under_way || start < waker->slow_until_ns) {
		wake_later(waker);
		return;
	}
	wake(waker);
	end = uv_hrtime();
	if (end - start > SLOW_NS)
		waker->slow_until_ns = end + LONG_NS;
}
