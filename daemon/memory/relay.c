/* SPDX-License-Identifier: Apache-2.0 */
/* Implements relays. The loop and the thread of a relay exchange orders and results under relay->lock, which
 * is never held during an access to the ring. */
#include "relay.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>
#include <uv.h>

#include "kernels/thread.h"
#include "chore.h"
#include "region.h"
#include "service.h"
#include "session.h"

#define MOST_SLEEPERS 8 /* maximum number of waiters that a wake-up wakes; a ring belongs to one client */

struct relay {
	LIST_ENTRY(relay) entry; /* in account->relays; used by the loop only */
	struct session *session;
	struct region *region;          /* a reference is held (region_use) */
	struct submission_ring *shared; /* accessed by the thread only, under a guard (engine_guard) */
	uint32_t entries;               /* number of entries that the ring has room for */
	void (*on_news)(struct session *session);
	bool is_closed; /* relay_close has been called; used by the loop only */
	pthread_t thread;
	uv_async_t news; /* sent by the thread when it has news for the loop, or has ended */
	uv_mutex_t lock;
	uv_cond_t cond; /* signalled when the thread gets work or is to end */

	/* `lock` guards the following fields, except the elements of the arrays. */
	bool look;    /* the thread has to look for entries */
	bool is_rung; /* the client has sent "ring", and no look has begun since */
	bool looks;   /* a look that began after a "ring" is under way */
	bool closing; /* the thread has to end once it has written all ends */
	bool has_ended;
	uint64_t since_ns; /* time at which the thread got its current work (uv_hrtime); 0: it has none */
	enum relay_found found;           /* result of the last look */
	uint32_t first, n_fetched;        /* number of the first fetched entry, and how many were fetched */
	struct submission_entry *fetched; /* copies of entries; `entries` elements */
	struct submission_end *ends;      /* end number i is at index i % entries; `entries` elements */
	uint32_t n_ends, written;         /* ends queued and ends written to the ring so far; modulo 2^32 */
};

/* Arguments and results of one access to the ring, which runs under a guard and must hold no resources. */
struct touch {
	struct relay *relay;
	uint32_t first; /* number of the first entry to fetch */
	uint32_t n;     /* set by fetch: number of fetched entries; for ends: number of ends to write */
	uint32_t done;  /* number of the first end to write */
	enum relay_found found; /* set by fetch */
	bool is_asleep;         /* set by publish_ends: the client sleeps and has to be woken */
};

static void *work(void *arg);
static void on_news(uv_async_t *async);

static void relay_free(struct relay *relay)
{
	uv_mutex_destroy(&relay->lock);
	uv_cond_destroy(&relay->cond);
	free(relay->fetched);
	free(relay->ends);
	free(relay);
}

/* libuv lets go of the handle, which is part of the relay, in the loop's next iteration. */
static void on_unused(uv_handle_t *handle)
{
	relay_free(handle->data);
}

struct relay *relay_new(struct session *session, struct region *region, struct submission_ring *shared,
                        uint32_t entries, void (*news)(struct session *session))
{
	struct relay *relay = calloc(1, sizeof *relay);

	if (!relay)
		return NULL;
	*relay = (struct relay){ .session = session,
		                 .region = region,
		                 .shared = shared,
		                 .entries = entries,
		                 .on_news = news,
		                 .fetched = calloc(entries, sizeof *relay->fetched),
		                 .ends = calloc(entries, sizeof *relay->ends) };
	uv_mutex_init(&relay->lock);
	uv_cond_init(&relay->cond);
	if (!relay->fetched || !relay->ends || engine_guard_init() < 0)
		goto err_memory;
	uv_async_init(&session->service->loop, &relay->news, on_news);
	relay->news.data = relay;
	if (thread_start_apart(&relay->thread, work, relay) != 0)
		goto err_async;
	region_use(region);
	session->relays++;
	LIST_INSERT_HEAD(&session->account->relays, relay, entry);
	return relay;

err_async:
	engine_guard_deinit();
	uv_close((uv_handle_t *)&relay->news, on_unused);
	return NULL;
err_memory:
	relay_free(relay);
	return NULL;
}

void relay_close(struct relay *relay)
{
	if (!relay)
		return;
	relay->is_closed = true;
	uv_mutex_lock(&relay->lock);
	relay->closing = true;
	uv_cond_signal(&relay->cond);
	uv_mutex_unlock(&relay->lock);
}

/* ---- On the loop -------------------------------------------------------------------------------------- */

/* Wakes the thread, which has work from now on. The caller must hold relay->lock. */
static void wake(struct relay *relay)
{
	const struct session *session = relay->session;

	if (!relay->since_ns)
		relay->since_ns = uv_hrtime();
	uv_cond_signal(&relay->cond);
	stalls_expect(&session->service->stalls, session->account);
}

enum relay_found relay_entry(struct relay *relay, uint32_t number, struct submission_entry *ret)
{
	enum relay_found found;

	uv_mutex_lock(&relay->lock);
	found = relay->found;
	if (number - relay->first < relay->n_fetched) {
		*ret = relay->fetched[number - relay->first];
		found = RELAY_ENTRY;
	} else if (found == RELAY_NONE || found == RELAY_ENTRY) {
		found = RELAY_NONE;
		relay->look = true;
		wake(relay);
	}
	uv_mutex_unlock(&relay->lock);
	return found;
}

void relay_ring(struct relay *relay)
{
	uv_mutex_lock(&relay->lock);
	relay->is_rung = true;
	uv_mutex_unlock(&relay->lock);
}

void relay_end(struct relay *relay, const struct submission_end *end)
{
	uv_mutex_lock(&relay->lock);
	relay->ends[relay->n_ends % relay->entries] = *end;
	relay->n_ends++;
	wake(relay);
	uv_mutex_unlock(&relay->lock);
}

bool relay_is_rung(struct relay *relay)
{
	bool is_rung;

	uv_mutex_lock(&relay->lock);
	is_rung = relay->found != RELAY_FAILED && (relay->is_rung || relay->looks);
	uv_mutex_unlock(&relay->lock);
	return is_rung;
}

uint32_t relay_count(struct relay *relay, uint32_t number)
{
	uint32_t n = 0;

	uv_mutex_lock(&relay->lock);
	if (relay->found != RELAY_FAILED)
		n = relay->n_ends - relay->written;
	if (number - relay->first < relay->n_fetched)
		n += relay->first + relay->n_fetched - number;
	uv_mutex_unlock(&relay->lock);
	return n;
}

bool relays_are_busy(const struct account *account, uint64_t ns)
{
	const uint64_t now = uv_hrtime();
	bool is_busy = false;
	struct relay *relay;

	LIST_FOREACH(relay, &account->relays, entry) {
		uv_mutex_lock(&relay->lock);
		is_busy |= relay->since_ns && now - relay->since_ns >= ns;
		uv_mutex_unlock(&relay->lock);
	}
	return is_busy;
}

static void on_freed(uv_handle_t *handle)
{
	struct relay *relay = handle->data;
	struct session *session = relay->session;

	LIST_REMOVE(relay, entry);
	region_unuse(relay->region);
	relay_free(relay);
	session->relays--;
	session_settle(session);
}

static void on_news(uv_async_t *async)
{
	struct relay *relay = async->data;
	bool has_ended;

	uv_mutex_lock(&relay->lock);
	has_ended = relay->has_ended;
	uv_mutex_unlock(&relay->lock);
	if (has_ended) {
		pthread_join(relay->thread, NULL);
		engine_guard_deinit();
		uv_close((uv_handle_t *)async, on_freed);
		return;
	}
	if (!relay->is_closed)
		relay->on_news(relay->session);
}

/* ---- The thread --------------------------------------------------------------------------------------- */

/* Copies the new entries out of the ring. Each word is read exactly once and nothing is interpreted here,
 * because the client may change the ring at any time. */
static void fetch(void *arg)
{
	struct touch *touch = arg;
	struct relay *relay = touch->relay;
	struct submission_ring *shared = relay->shared;
	const uint32_t submitted = __atomic_load_n(&shared->submitted, __ATOMIC_SEQ_CST);
	const uint32_t reaped = __atomic_load_n(&shared->reaped, __ATOMIC_RELAXED);

	touch->found = RELAY_NONE;
	if (submitted == touch->first)
		return;
	touch->found = RELAY_BROKEN;
	if (submitted - touch->first > relay->entries || submitted - reaped > relay->entries)
		return;
	for (touch->n = 0; touch->n < submitted - touch->first; touch->n++) {
		const volatile uint64_t *from =
		    (const volatile uint64_t *)&shared->entry[(touch->first + touch->n) % relay->entries];
		uint64_t *to = (uint64_t *)&relay->fetched[touch->n];

		for (size_t i = 0; i < sizeof *relay->fetched / sizeof *to; i++)
			to[i] = from[i];
	}
	touch->found = RELAY_ENTRY;
}

static void put_ends(void *arg)
{
	struct touch *touch = arg;
	struct relay *relay = touch->relay;
	struct submission_end *to = submission_ends(relay->shared, relay->entries);

	for (uint32_t i = touch->done; i != touch->done + touch->n; i++)
		to[i % relay->entries] = relay->ends[i % relay->entries];
}

static void publish_ends(void *arg)
{
	struct touch *touch = arg;
	struct submission_ring *shared = touch->relay->shared;

	__atomic_store_n(&shared->done, touch->done + touch->n, __ATOMIC_SEQ_CST);
	touch->is_asleep = __atomic_load_n(&shared->sleeps, __ATOMIC_SEQ_CST) != 0;
}

static bool touch_ring(struct touch *touch, void (*act)(void *touch))
{
	const struct relay *relay = touch->relay;

	return engine_guard(relay->shared, submission_bytes(relay->entries), act, touch);
}

/* Looks for new entries in the ring and copies them. The caller must hold relay->lock, which is released
 * during the access. */
static void look(struct relay *relay)
{
	struct touch touch = { .relay = relay, .first = relay->first + relay->n_fetched };

	relay->looks = relay->is_rung;
	relay->look = relay->is_rung = false;
	relay->n_fetched = 0;
	relay->first = touch.first;
	uv_mutex_unlock(&relay->lock);
	if (!touch_ring(&touch, fetch))
		touch.found = RELAY_FAILED;
	uv_mutex_lock(&relay->lock);
	if (relay->looks || touch.found != RELAY_NONE)
		uv_async_send(&relay->news);
	relay->looks = false;
	relay->found = touch.found;
	if (touch.found == RELAY_ENTRY) {
		/* Another look would overwrite the fetched entries: the loop has to take them first, and then
		 * asks for the next look. */
		relay->look = false;
		relay->n_fetched = touch.n;
	}
}

/* Writes the outstanding ends to the ring and wakes the client if it sleeps. The caller must hold
 * relay->lock, which is released during the accesses. `written` is advanced before the client can see the
 * ends, so that a client that has seen all of its ends can close the ring without being told that runs are
 * left. */
static void write_ends(struct relay *relay)
{
	struct touch touch = { .relay = relay, .done = relay->written, .n = relay->n_ends - relay->written };
	bool failed;

	uv_mutex_unlock(&relay->lock);
	failed = !touch_ring(&touch, put_ends);
	uv_mutex_lock(&relay->lock);
	relay->written += touch.n;
	uv_mutex_unlock(&relay->lock);
	failed = failed || !touch_ring(&touch, publish_ends);
	if (!failed && touch.is_asleep)
		syscall(SYS_futex, &relay->shared->done, FUTEX_WAKE, MOST_SLEEPERS, NULL, NULL, 0);
	uv_mutex_lock(&relay->lock);
	if (failed && relay->found != RELAY_FAILED) {
		relay->found = RELAY_FAILED;
		relay->n_fetched = 0;
		uv_async_send(&relay->news);
	}
}

static bool has_ends(const struct relay *relay)
{
	return relay->found != RELAY_FAILED && relay->written != relay->n_ends;
}

static bool is_to_look(const struct relay *relay)
{
	return relay->found != RELAY_FAILED && relay->look && !relay->closing;
}

static void *work(void *arg)
{
	struct relay *relay = arg;

	pthread_setname_np(pthread_self(), "ring-relay");
	uv_mutex_lock(&relay->lock);
	for (;;) {
		if (has_ends(relay))
			write_ends(relay);
		else if (is_to_look(relay))
			look(relay);
		else if (relay->closing)
			break;
		else
			uv_cond_wait(&relay->cond, &relay->lock);
		relay->since_ns = has_ends(relay) || is_to_look(relay) ? uv_hrtime() : 0;
	}
	relay->has_ended = true;
	uv_async_send(&relay->news);
	uv_mutex_unlock(&relay->lock);
	return NULL;
}
