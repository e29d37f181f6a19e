/* SPDX-License-Identifier: Apache-2.0 */
/* Takes entries from submission rings, writes completions ("ends"), and polls rings between entries.
 *
 * All access to the shared memory is in the first section and guarded, because the client's pages can be
 * lost. If the memory may stall, a relay accesses it instead (relay.h), and the ring is not polled between
 * entries.
 */
#include "submission.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/futex.h>

#include "daemon/memory/chore.h"
#include "daemon/memory/region.h"
#include "daemon/memory/relay.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "job.h"
#include "planning.h"

#define NS_PER_US UINT64_C(1000)

/* Longest time for which one iteration of the loop polls rings that have no entries. */
#define POLL_NS 3000

/* A ring stays awake, that is, it is polled, only while it has credit. The credit is a time of at most
 * spin_ns, and is used up while the ring is awake. A ring earns RUNG_NS, about the cost of a message that
 * rings, each time that its client rings or its entries are taken. While it sleeps, it earns 1/SLEEP_SHARE of
 * the time. So a ring with an entry now and then costs little, whatever the rhythm of its client. */
#define RUNG_NS     20000
#define SLEEP_SHARE 8

static void waker_wake(struct waker *waker);
static void waker_free(struct waker *waker);
static struct waker *waker_new(struct session *session, struct region *region, uint32_t *word);
static void on_spin(uv_idle_t *spin);
static void answer(struct job *job);
static void refuse(struct job *job, const struct error *err);

/* ---- Shared memory, all access guarded ---------------------------------------------------------------- */

enum finding { FOUND_NONE, FOUND_ENTRY, FOUND_BROKEN };

struct touch {
	struct submission *submission;
	struct submission_entry entry;
	struct submission_end end;
	enum finding found;
	bool is_asleep; /* the client sleeps on `done` and wants to be woken */
};

/* Calls work(touch) under a guard against memory that fails. Returns false if the ring's memory has
 * failed. */
static bool touch(struct touch *touch, void (*work)(void *touch))
{
	struct submission *s = touch->submission;

	return engine_guard(s->shared, submission_bytes(s->entries), work, touch);
}

static enum finding find_entry(const struct submission *s)
{
	/* This load is ordered after the store to `awake` (say_awake). Otherwise the client could miss that
	 * the service sleeps while the service misses the client's entry. */
	uint32_t submitted = __atomic_load_n(&s->shared->submitted, __ATOMIC_SEQ_CST);
	uint32_t reaped = __atomic_load_n(&s->shared->reaped, __ATOMIC_RELAXED);

	if (submitted == s->taken)
		return FOUND_NONE;
	if (submitted - s->taken > s->entries || submitted - reaped > s->entries)
		return FOUND_BROKEN;
	return FOUND_ENTRY;
}

static void take_entry(void *arg)
{
	struct touch *touch = arg;
	struct submission *s = touch->submission;
	const volatile uint64_t *from = (const volatile uint64_t *)&s->shared->entry[s->taken % s->entries];
	uint64_t *to = (uint64_t *)&touch->entry;

	touch->found = find_entry(s);
	if (touch->found != FOUND_ENTRY)
		return;
	for (size_t i = 0; i < sizeof touch->entry / sizeof *to; i++)
		to[i] = from[i];
}

static void find(void *arg)
{
	struct touch *touch = arg;

	touch->found = find_entry(touch->submission);
}

static void put_end(void *arg)
{
	struct touch *touch = arg;
	struct submission *s = touch->submission;

	submission_ends(s->shared, s->entries)[s->done % s->entries] = touch->end;
	__atomic_store_n(&s->shared->done, s->done + 1, __ATOMIC_SEQ_CST);
	touch->is_asleep = __atomic_load_n(&s->shared->sleeps, __ATOMIC_SEQ_CST) != 0;
}

static void say_awake(void *arg)
{
	struct touch *touch = arg;
	struct submission *s = touch->submission;

	__atomic_store_n(&s->shared->awake, s->awake, __ATOMIC_SEQ_CST);
	touch->found = find_entry(s);
}

static void end_failed(struct session *session)
{
	session_end(session, LOG_LEVEL_NOTICE, "the memory of its submission ring failed");
}

static void end_broken(struct session *session)
{
	session_end(session, LOG_LEVEL_NOTICE,
	            "its submission ring has more entries than it has room for ends");
}

/* ---- Ends --------------------------------------------------------------------------------------------- */

/* Subtracts the time since active_ns from the ring's credit if the ring was awake, or adds a share of it if
 * the ring slept. now is the current time (uv_hrtime). */
static void account_time(struct submission *s, uint64_t now)
{
	uint64_t ns = now - s->active_ns;

	if (s->awake)
		s->left_ns -= ns < s->left_ns ? ns : s->left_ns;
	else
		s->left_ns += ns / SLEEP_SHARE;
	if (s->left_ns > s->spin_ns)
		s->left_ns = s->spin_ns;
	s->active_ns = now;
}

static void finish(struct submission *s, const struct submission_end *end)
{
	struct touch put = { .submission = s, .end = *end };

	if (s->relay) {
		relay_end(s->relay, end);
	} else if (!touch(&put, put_end)) {
		end_failed(s->session);
		return;
	}
	s->done++;
	account_time(s, uv_hrtime());
	s->session->used_ms = service_now_ms(s->session->service);
	if (put.is_asleep)
		waker_wake(s->waker);
}

static void answer(struct job *job)
{
	enum family family;
	const uint64_t bytes = job_moved(job, &family);

	job_count(job, family, bytes, job->engine_job.ns);
	finish(job->session->submission,
	       &(struct submission_end){ .tag = job->tag, .bytes = bytes, .ns = job->engine_job.ns });
}

static void refuse(struct job *job, const struct error *err)
{
	struct session *session = job->session;

	session_count_error(session, err->status);
	if (session->state != SESSION_ENDED)
		finish(session->submission,
		       &(struct submission_end){ .tag = job->tag, .status = err->status });
}

static void release(struct job *job)
{
	job->session->submission->under_way--;
}

/* ---- Entries ------------------------------------------------------------------------------------------ */

static int check_words(const struct submission_entry *entry, struct error *err)
{
	if (entry->priority >= JOB_PRIORITY_COUNT)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "priority: %" PRIu32 ", but it must be 0 to %d", entry->priority,
		                 JOB_PRIORITY_COUNT - 1);
	if (entry->reserved)
		return error_set(err, STATUS_INVALID_ARGUMENT, "reserved: %" PRIu32 ", but it must be 0",
		                 entry->reserved);
	return 0;
}

static int start(struct submission *s, const struct submission_entry *entry, struct error *err)
{
	struct order order = { .completion = COMPLETION_SIGNAL };
	const struct order_fields share = { .priority = (enum job_priority)entry->priority,
		                            .multiprocessors = entry->multiprocessors,
		                            .host_threads = entry->host_threads };
	const struct msg_plan_run run = {
		.has = F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src),
		.plan = entry->plan,
		.dst = { entry->dst_region, entry->dst_offset },
		.src = { entry->src_region, entry->src_offset },
	};
	struct rpc_request request;
	struct parts parts;
	struct job *job;
	int r = check_words(entry, err);

	if (r == 0)
		r = prepared_plan(s->session, &run, DEVICE_ANY, NULL, &parts, err);
	if (r < 0)
		return r;
	order_set_share(s->session, &share, &order);
	request.msgid = 0;
	request.method = &methods[METHOD_plan_run];
	job = job_new(s->session, &request, &order, answer, err);
	if (!job) {
		parts_unref(&parts);
		return err->status;
	}
	r = job_run_on(job, parts.placed.device, err);
	if (r < 0)
		parts_unref(&parts);
	else
		r = job_set_parts(job, &parts, err);
	if (r < 0) {
		job_drop(job);
		return r;
	}
	job->refuse = refuse;
	job->release = release;
	job->tag = entry->tag;
	s->under_way++;
	job_submit(job);
	return 0;
}

static void take(struct submission *s, const struct submission_entry *entry)
{
	struct session *session = s->session;
	struct service *service = session->service;
	struct error err;
	int r = 0;

	if (!s->is_again) {
		session_count_request(session);
		service->metrics.requests_by_method[METHOD_plan_run]++;
	}
	session->asking = (uint64_t)s->taken << 1 | 1;
	planning_begin(session);
	if (service->state == SERVICE_LOST)
		r = STATUS_DEVICE_LOST;
	else if (service->penalties.n > 0)
		r = penalties_check(&service->penalties, session->account->user, uv_now(&service->loop),
		                    &err);
	if (r == 0)
		r = start(s, entry, &err);
	s->is_again = r == PLANNING_LATER;
	if (s->is_again) {
		session_wait_for_memory(session);
		return;
	}
	planning_end(session);
	s->taken++;
	if (r == 0)
		return;
	session_count_error(session, r);
	if (r != STATUS_DEVICE_LOST)
		session_log(session, LOG_LEVEL_NOTICE, -1,
		            "refused an entry of its ring, tag %" PRIu64 ": %s: %s", entry->tag,
		            status_name(r), err.message);
	finish(s, &(struct submission_end){ .tag = entry->tag, .status = r });
}

static void wake_up(struct submission *s)
{
	struct submissions *all = &s->session->service->submissions;

	s->session->service->taken_ns = uv_hrtime();
	account_time(s, s->session->service->taken_ns);
	s->left_ns = s->left_ns + RUNG_NS < s->spin_ns ? s->left_ns + RUNG_NS : s->spin_ns;
	if (s->awake || s->spin_ns == 0)
		return;
	s->awake = true;
	LIST_INSERT_HEAD(&all->awake, s, entry);
	uv_idle_start(&all->spin, on_spin);
	touch(&(struct touch){ .submission = s }, say_awake);
}

static void take_from_relay(struct session *session)
{
	struct submission *s = session->submission;
	struct submission_entry entry;

	while (session->state == SESSION_OPEN && session->waiting == WAIT_NONE && !session_must_wait(session))
		switch (relay_entry(s->relay, s->taken, &entry)) {
		case RELAY_NONE:
			return;
		case RELAY_ENTRY:
			take(s, &entry);
			break;
		case RELAY_BROKEN:
			end_broken(session);
			return;
		case RELAY_FAILED:
			end_failed(session);
			return;
		}
}

static void on_relay_news(struct session *session)
{
	if (!session->submission)
		return;
	session->service->taken_ns = uv_hrtime();
	session_on_memory(session);
	submission_take(session);
	session_update_poll(session);
	session_settle(session);
}

void submission_take(struct session *session)
{
	struct submission *s = session->submission;
	struct touch one = { .submission = s };
	uint32_t most;

	if (!s || session->state != SESSION_OPEN)
		return;
	wake_up(s);
	if (s->relay) {
		take_from_relay(session);
		return;
	}
	/* No more entries are taken than the ring can hold: otherwise a client whose entries never have to
	 * wait could keep the loop here for ever. */
	for (most = s->entries; most > 0 && session->state == SESSION_OPEN && session->waiting == WAIT_NONE;
	     most--) {
		if (!touch(&one, find)) {
			end_failed(session);
			return;
		}
		if (one.found == FOUND_NONE || session_must_wait(session))
			return;
		if (!touch(&one, take_entry) || one.found == FOUND_BROKEN) {
			end_broken(session);
			return;
		}
		if (one.found == FOUND_NONE)
			return;
		take(s, &one.entry);
	}
}

void submission_ring(struct session *session)
{
	struct submission *s = session->submission;

	if (s && s->relay)
		relay_ring(s->relay);
	submission_take(session);
}

/* ---- Awake and asleep --------------------------------------------------------------------------------- */

void submission_stop(struct submission *s)
{
	struct submissions *all;

	if (!s || !s->awake)
		return;
	all = &s->session->service->submissions;
	s->awake = false;
	LIST_REMOVE(s, entry);
	if (LIST_EMPTY(&all->awake))
		uv_idle_stop(&all->spin);
}

/* Returns whether the ring has something to take. Puts a ring to sleep if its credit is used up or its
 * session has to wait, unless an entry comes at that moment. A session that has to wait takes the entry
 * later, when it goes on by itself. */
static bool poll_or_sleep(struct submission *s, uint64_t now)
{
	struct touch one = { .submission = s };
	bool must_wait = s->session->waiting != WAIT_NONE;

	if (must_wait || now - s->active_ns >= s->left_ns) {
		account_time(s, now);
		submission_stop(s);
		return touch(&one, say_awake) && one.found != FOUND_NONE && !must_wait;
	}
	return !touch(&one, find) || one.found != FOUND_NONE;
}

/* Polls each awake ring once, and takes the entries that it finds. Returns whether there were any. */
static bool poll_all(struct submissions *all)
{
	uint64_t now = uv_hrtime();
	struct submission *s, *next;
	bool found = false;

	for (s = LIST_FIRST(&all->awake); s; s = next) {
		struct session *session = s->session;

		next = LIST_NEXT(s, entry);
		if (!poll_or_sleep(s, now))
			continue;
		found = true;
		submission_take(session);
		session_update_poll(session);
		session_settle(session);
	}
	return found;
}

static void on_spin(uv_idle_t *spin)
{
	struct service *service = spin->data;
	uint64_t end = uv_hrtime() + POLL_NS;

	while (!poll_all(&service->submissions) && !service->is_job_done && uv_hrtime() < end &&
	       !LIST_EMPTY(&service->submissions.awake))
		continue;
}

/* ---- Opening and closing ------------------------------------------------------------------------------ */

int submission_open(struct session *session, struct region *region, uint64_t offset, uint32_t entries,
                    uint64_t spin_us, struct error *err)
{
	struct submission *s = calloc(1, sizeof *s);

	assert(!session->submission && region->memory->host);
	if (!s)
		goto err_memory;
	s->shared = (struct submission_ring *)((char *)region->memory->host + offset);
	s->waker = waker_new(session, region, &s->shared->done);
	if (!s->waker || engine_guard_init() < 0)
		goto err_memory;
	if (engine_memory_may_stall(region->memory)) {
		s->relay = relay_new(session, region, s->shared, entries, on_relay_news);
		if (!s->relay)
			goto err_guard;
	}
	s->session = session;
	s->region = region;
	s->entries = entries;
	s->spin_ns = s->left_ns = s->relay ? 0 : spin_us * NS_PER_US;
	s->active_ns = uv_hrtime();
	session->submission = s;
	region_use(region);
	return 0;

err_guard:
	engine_guard_deinit();
err_memory:
	if (s)
		waker_free(s->waker);
	free(s);
	return error_set(err, STATUS_NO_MEMORY, "no memory for a ring");
}

bool submission_is_rung(const struct submission *s)
{
	return s->relay && s->session->state == SESSION_OPEN && relay_is_rung(s->relay);
}

uint32_t submission_count(const struct submission *s)
{
	return s->under_way + (s->relay ? relay_count(s->relay, s->taken) : 0);
}

void submission_close(struct submission *s)
{
	if (!s)
		return;
	assert(s->under_way == 0);
	submission_stop(s);
	s->session->submission = NULL;
	relay_close(s->relay);
	waker_free(s->waker);
	region_unuse(s->region);
	engine_guard_deinit();
	free(s);
}

/* ==== Slow wakes ===================================================================================== */

/* A waker wakes the client that sleeps on a word of shared memory (futex), from the loop.
 *
 * A ring's word has one sleeper, or none. The kernel finds it among all sleepers whose words have the same
 * hash, and a client can create many of those. Once a call has taken long, calls are made off the loop for a
 * while, as chores of the client's account.
 *
 * At most one such chore is under way; all wakes that are asked for meanwhile are served by one more call.
 */

#define MOST    8      /* maximum number of sleepers that a call wakes; a ring has one client */
#define SLOW_NS 250000 /* after a call that takes longer, none is made on the loop for LONG_NS */
#define LONG_NS UINT64_C(1000000000)

struct waker {
	struct session *session;
	struct region *region;
	uint32_t *word;         /* word that the client sleeps on */
	uint64_t slow_until_ns; /* until then (uv_hrtime) calls are made off the loop */
	struct chore chore;
	bool is_under_way; /* the chore is under way, and holds the region and the session */
	bool again;        /* another wake was asked for while the chore was under way */
	bool is_freed;     /* waker_free was called meanwhile; on_done frees the waker */
};

/* Returns NULL if out of memory. The word lies in the region, which the caller holds until it calls
 * waker_free. */
static struct waker *waker_new(struct session *session, struct region *region, uint32_t *word)
{
	struct waker *waker = calloc(1, sizeof *waker);

	if (!waker)
		return NULL;
	waker->session = session;
	waker->region = region;
	waker->word = word;
	return waker;
}

/* Frees the waker, or has on_done free it if a call is under way; the session is not freed before that. NULL
 * is allowed. */
static void waker_free(struct waker *waker)
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
		chores_add(&session->service->chores, session->account, chore);
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
	chores_add(&waker->session->service->chores, waker->session->account, &waker->chore);
}

/* Wakes the client if it sleeps on the word, either at once or by a chore. */
static void waker_wake(struct waker *waker)
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
