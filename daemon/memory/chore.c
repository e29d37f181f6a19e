/* SPDX-License-Identifier: Apache-2.0 */
/* The loop schedules chores. A memory chore is given to a thread that has none, and comes back to the loop
 * when it is done or its time slice is over. A chore that closes a descriptor is given to its thread at once,
 * even if the thread is busy: a message may bring hundreds of descriptors, and a round trip to the loop for
 * each would be slow.
 *
 * One lock (chores->lock) guards what the loop and the threads share. It is held for a few instructions,
 * never during a step.
 */
#include "chore.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/loop/log.h"
#include "kernels/thread.h"
#include "account.h"

/* Time after which an unfinished chore goes back to the queue. */
#define SLICE_NS 5000000
#define IDLE_NS  UINT64_C(1000000000) /* time without work after which a thread ends */
#define RETRY_MS 100                  /* pause before another attempt to start a thread */

struct chore_thread {
	struct chores *chores;
	struct account *account; /* the thread holds a reference */
	uint32_t place;          /* index of the thread in account->chore_threads */
	pthread_t thread;
	/* The chore that was last given to the thread; NULL once the loop has got all chores back. Only the
	 * loop's thread uses it. */
	struct chore *given;
	uv_cond_t cond; /* signalled when `next` gets a chore, or the service stops */
	/* chores->lock guards the following fields. */
	struct chore_queue next; /* chores that were given to the thread and that it has not begun */
	bool has_ended;          /* the thread takes no more chores: it has ended, or is about to */
};

/* For each kind of chore: the range of its threads in account->chore_threads. */
static const struct {
	uint32_t first, n;
} places[CHORE_KIND_COUNT] = { [CHORE_MEMORY] = { 0, 2 }, [CHORE_CLOSE] = { 2, 1 } };

static void on_wake(uv_async_t *async);
static void on_retry(uv_timer_t *timer);
static void *work(void *arg);

void chores_start(struct chores *chores, uv_loop_t *loop, struct accounts *accounts, struct stalls *stalls,
                  void (*on_idle)(void *arg), void *arg)
{
	*chores = (struct chores){ .accounts = accounts, .stalls = stalls, .on_idle = on_idle, .arg = arg };
	TAILQ_INIT(&chores->worked);
	uv_mutex_init(&chores->lock);
	uv_async_init(loop, &chores->wake, on_wake);
	uv_timer_init(loop, &chores->retry);
	chores->wake.data = chores->retry.data = chores;
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

static struct chore_thread *thread_new(struct chores *chores, struct account *account, uint32_t place)
{
	struct chore_thread *thread = calloc(1, sizeof *thread);
	const bool is_apart = chores->may_be_apart && !account_is_trusted(chores->accounts, account);

	if (!thread)
		return NULL;
	thread->chores = chores;
	thread->account = account;
	thread->place = place;
	TAILQ_INIT(&thread->next);
	if (uv_cond_init(&thread->cond) < 0) {
		free(thread);
		return NULL;
	}
	if ((is_apart ? thread_start_apart : thread_start)(&thread->thread, work, thread) != 0) {
		uv_cond_destroy(&thread->cond);
		free(thread);
		return NULL;
	}
	account->refs++;
	account->chore_threads[place] = thread;
	return thread;
}

/* Joins the thread, which has ended or is about to, and frees the struct. */
static void thread_free(struct chore_thread *thread)
{
	assert(!thread->given);
	pthread_join(thread->thread, NULL);
	uv_cond_destroy(&thread->cond);
	thread->account->chore_threads[thread->place] = NULL;
	account_unref(thread->account);
	free(thread);
}

static bool has_ended(struct chore_thread *thread)
{
	bool ended;

	uv_mutex_lock(&thread->chores->lock);
	ended = thread->has_ended;
	uv_mutex_unlock(&thread->chores->lock);
	return ended;
}

static void free_ended(struct account *account)
{
	for (uint32_t i = 0; i < CHORE_THREADS; i++) {
		struct chore_thread *thread = account->chore_threads[i];

		if (thread && !thread->given && has_ended(thread))
			thread_free(thread);
	}
}

void chores_stop(struct chores *chores)
{
	struct account *account, *next;

	assert(chores->n == 0);
	uv_mutex_lock(&chores->lock);
	chores->stopping = true;
	LIST_FOREACH(account, &chores->accounts->list, entry)
		for (uint32_t i = 0; i < CHORE_THREADS; i++)
			if (account->chore_threads[i])
				uv_cond_signal(&account->chore_threads[i]->cond);
	uv_mutex_unlock(&chores->lock);
	for (account = LIST_FIRST(&chores->accounts->list); account; account = next) {
		next = LIST_NEXT(account, entry);
		account->refs++;
		for (uint32_t i = 0; i < CHORE_THREADS; i++)
			if (account->chore_threads[i])
				thread_free(account->chore_threads[i]);
		account_unref(account);
	}
	uv_close((uv_handle_t *)&chores->wake, NULL);
	uv_close((uv_handle_t *)&chores->retry, NULL);
	uv_mutex_destroy(&chores->lock);
}

void chores_leave(struct chores *chores)
{
	struct account *account;

	uv_mutex_lock(&chores->lock);
	chores->stopping = true;
	uv_mutex_unlock(&chores->lock);
	LIST_FOREACH(account, &chores->accounts->list, entry)
		for (uint32_t i = 0; i < CHORE_THREADS; i++) {
			struct chore_thread *thread = account->chore_threads[i];

			if (!thread)
				continue;
			uv_cond_signal(&thread->cond);
			if (thread->given)
				pthread_detach(thread->thread);
			else
				pthread_join(thread->thread, NULL);
		}
}

/* ---- On the loop -------------------------------------------------------------------------------------- */

/* Returns a thread that can be given a chore of that kind, and starts one if necessary. That is an idle
 * thread; a chore that closes a descriptor can also be given to a busy one. Returns NULL if all threads are
 * busy, or if none could be started. If the account then has no thread of the kind at all, starts the retry
 * timer. */
static struct chore_thread *thread_for(struct chores *chores, struct account *account, enum chore_kind kind)
{
	const uint32_t first = places[kind].first, end = first + places[kind].n;
	struct chore_thread *thread;
	bool any = false;

	free_ended(account);
	for (uint32_t i = first; i < end; i++) {
		thread = account->chore_threads[i];
		any |= thread != NULL;
		if (thread && (!thread->given || kind == CHORE_CLOSE))
			return thread;
	}
	for (uint32_t i = first; i < end; i++)
		if (!account->chore_threads[i]) {
			thread = thread_new(chores, account, i);
			if (!thread && !any)
				uv_timer_start(&chores->retry, on_retry, RETRY_MS, 0);
			return thread;
		}
	return NULL;
}

/* Gives the chore to the thread. Returns false if the thread has just ended. */
static bool give(struct chore_thread *thread, struct chore *chore)
{
	struct chores *chores = thread->chores;
	bool given;

	uv_mutex_lock(&chores->lock);
	given = !thread->has_ended;
	if (given) {
		thread->given = chore;
		TAILQ_INSERT_TAIL(&thread->next, chore, entry);
		chore->thread = thread;
		chore->since_ns = uv_hrtime();
		uv_cond_signal(&thread->cond);
	}
	uv_mutex_unlock(&chores->lock);
	return given;
}

static void count_done(struct chores *chores)
{
	if (--chores->n == 0)
		chores->on_idle(chores->arg);
}

/* Gives queued chores of that kind to threads of the account, for as long as there are both. */
static void begin(struct chores *chores, struct account *account, enum chore_kind kind)
{
	struct chore_queue *queue = &account->chores[kind];
	struct chore_thread *thread;
	struct chore *chore;

	account->refs++;
	while ((chore = TAILQ_FIRST(queue)) && (thread = thread_for(chores, account, kind))) {
		TAILQ_REMOVE(queue, chore, entry);
		if (!chore->is_begun && chore->begins && !chore->begins(chore)) {
			account_unref(account);
			count_done(chores);
			continue;
		}
		chore->is_begun = true;
		if (!give(thread, chore))
			TAILQ_INSERT_HEAD(queue, chore, entry);
	}
	account_unref(account);
}

void chores_add(struct chores *chores, struct account *account, struct chore *chore)
{
	chore->account = account;
	chore->thread = NULL;
	chore->is_begun = chore->is_done = false;
	account->refs++;
	chores->n++;
	stalls_expect(chores->stalls, account);
	TAILQ_INSERT_TAIL(&account->chores[chore->kind], chore, entry);
	begin(chores, account, chore->kind);
}

static void on_retry(uv_timer_t *timer)
{
	struct chores *chores = timer->data;
	struct account *account, *next;

	for (account = LIST_FIRST(&chores->accounts->list); account; account = next) {
		account->refs++;
		for (int kind = 0; kind < CHORE_KIND_COUNT; kind++)
			begin(chores, account, (enum chore_kind)kind);
		next = LIST_NEXT(account, entry);
		account_unref(account);
	}
}

static void take_back(struct chores *chores, struct chore *chore)
{
	struct account *account = chore->account;
	const enum chore_kind kind = chore->kind;
	const bool is_done = chore->is_done; /* read now: begin() may give the chore to another thread */

	if (chore->thread->given == chore)
		chore->thread->given = NULL;
	chore->thread = NULL;
	account->refs++;
	if (!is_done)
		TAILQ_INSERT_TAIL(&account->chores[kind], chore, entry);
	begin(chores, account, kind);
	if (is_done) {
		chore->on_done(chore);
		account_unref(account);
		count_done(chores);
	}
	account_unref(account);
}

static void on_wake(uv_async_t *async)
{
	struct chores *chores = async->data;
	struct chore_queue worked = TAILQ_HEAD_INITIALIZER(worked);
	struct account *account, *next;
	struct chore *chore;

	uv_mutex_lock(&chores->lock);
	TAILQ_CONCAT(&worked, &chores->worked, entry);
	uv_mutex_unlock(&chores->lock);
	while ((chore = TAILQ_FIRST(&worked))) {
		TAILQ_REMOVE(&worked, chore, entry);
		take_back(chores, chore);
		if (chores->stopping)
			return;
	}
	for (account = LIST_FIRST(&chores->accounts->list); account; account = next) {
		next = LIST_NEXT(account, entry);
		account->refs++;
		free_ended(account);
		account_unref(account);
	}
}

/* ---- Off the loop ------------------------------------------------------------------------------------- */

/* Waits for a chore and returns it. Returns NULL if none came within IDLE_NS, or if the service stops. The
 * caller must hold chores->lock, which is released while the thread waits. */
static struct chore *next_chore(struct chore_thread *thread)
{
	struct chores *chores = thread->chores;
	struct chore *chore;
	int r = 0;

	while (TAILQ_EMPTY(&thread->next) && !chores->stopping && r == 0)
		r = uv_cond_timedwait(&thread->cond, &chores->lock, IDLE_NS);
	chore = TAILQ_FIRST(&thread->next);
	if (chore)
		TAILQ_REMOVE(&thread->next, chore, entry);
	return chore;
}

static void work_for_a_slice(struct chore *chore)
{
	const uint64_t end = uv_hrtime() + SLICE_NS;

	do
		chore->is_done = chore->step(chore);
	while (!chore->is_done && uv_hrtime() < end);
}

static void *work(void *arg)
{
	struct chore_thread *thread = arg;
	struct chores *chores = thread->chores;
	struct chore *chore;

	pthread_setname_np(pthread_self(), "chore");
	uv_mutex_lock(&chores->lock);
	while ((chore = next_chore(thread))) {
		uv_mutex_unlock(&chores->lock);
		work_for_a_slice(chore);
		uv_mutex_lock(&chores->lock);
		TAILQ_INSERT_TAIL(&chores->worked, chore, entry);
		uv_async_send(&chores->wake);
	}
	thread->has_ended = true;
	if (!chores->stopping)
		uv_async_send(&chores->wake);
	uv_mutex_unlock(&chores->lock);
	return NULL;
}

/* ---- Stuck -------------------------------------------------------------------------------------------- */

uint32_t chores_count_stuck(const struct account *account, uint64_t ns)
{
	const uint64_t now = uv_hrtime();
	uint32_t n = 0;

	for (uint32_t i = 0; i < places[CHORE_MEMORY].n; i++) {
		const struct chore_thread *thread = account->chore_threads[i];

		n += thread && thread->given && now - thread->given->since_ns >= ns;
	}
	return n;
}

void chores_log_stuck(const struct chores *chores)
{
	const struct account *account;

	LIST_FOREACH(account, &chores->accounts->list, entry) {
		const struct log_about about = account_about(account);

		if (chores_count_stuck(account, 0) > 0)
			log_about(LOG_LEVEL_WARNING, &about,
			          "memory of its own is still being mapped or unmapped, by %" PRIu32
			          " of its %" PRIu32 " threads",
			          chores_count_stuck(account, 0), places[CHORE_MEMORY].n);
	}
}

/* ==== Closing descriptors ============================================================================ */

/* Maximum number of descriptors of an account that may wait to be closed before its connections are refused.
 * With the default limits an account cannot have that many pending at once. */
#define MAX_CLOSING 8192

struct closing {
	struct chore chore;
	int fd;
	struct charge charge;
};

static struct closing *closing_of(struct chore *chore)
{
	return (struct closing *)((char *)chore - offsetof(struct closing, chore));
}

static bool close_one(struct chore *chore)
{
	close(closing_of(chore)->fd);
	return true;
}

static void on_closed(struct chore *chore)
{
	struct closing *closing = closing_of(chore);

	chore->account->closing--;
	charge_release(&closing->charge);
	free(closing);
}

void async_close_fd(struct chores *chores, struct account *account, int fd, struct charge *charge)
{
	struct closing *closing = malloc(sizeof *closing);

	if (!closing) {
		close(fd);
		charge_release(charge);
		return;
	}
	*closing = (struct closing){
		.chore = { .kind = CHORE_CLOSE, .step = close_one, .on_done = on_closed },
		.fd = fd,
		.charge = *charge,
	};
	*charge = (struct charge){ 0 };
	account->closing++;
	chores_add(chores, account, &closing->chore);
}

/* After the shutdown nothing more arrives. Descriptors always arrive with bytes, so a socket without unread
 * bytes holds none, and its close cannot block. While the account has other descriptors to close, the socket
 * is queued behind them, so that the connection stays charged until they are closed. */
void async_close_socket(struct chores *chores, struct account *account, int fd, struct charge *charge)
{
	int unread;

	shutdown(fd, SHUT_RDWR);
	if (account->closing > 0 || ioctl(fd, SIOCINQ, &unread) < 0 || unread > 0) {
		async_close_fd(chores, account, fd, charge);
		return;
	}
	close(fd);
	charge_release(charge);
}

bool async_close_is_full(const struct account *account)
{
	return account->closing >= MAX_CLOSING;
}

void async_close_log_stuck(const struct accounts *accounts)
{
	const struct account *account;

	LIST_FOREACH(account, &accounts->list, entry) {
		const struct log_about about = account_about(account);

		if (account->closing > 0)
			log_about(LOG_LEVEL_WARNING, &about,
			          "descriptors that it sent are still being closed: %" PRIu64,
			          account->closing);
	}
}

/* ==== Threads that do not return ===================================================================== */

void stalls_expect(struct stalls *stalls, const struct account *account)
{
	if (stalls->is_looking || account_is_trusted(stalls->accounts, account))
		return;
	stalls->is_looking = true;
	uv_timer_start(&stalls->timer, stalls->look, STALLS_LOOK_MS, STALLS_LOOK_MS);
}
