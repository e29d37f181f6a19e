/* One thread an account, one lock for all: it is held for a few instructions, never while closing. */
#include "async_close.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/observe/log.h"

#define IDLE_NS UINT64_C(1000000000)

/* Of one account, more than its limits let it bring at once. */
#define MAX_CLOSING 8192

struct closing {
	TAILQ_ENTRY(closing) entry; /* in closer->queue, then in closers->closed */
	struct closer *closer;
	int fd;
	struct charge charge;
};

struct closer {
	LIST_ENTRY(closer) entry;
	struct closers *closers;
	struct account *account;
	uint64_t n; /* not yet accounted for; the loop's alone */
	uv_thread_t thread;
	bool started; /* has to be joined; the loop's alone */
	/* Under the lock. */
	uv_cond_t cond;
	struct closing_queue queue;
	bool running; /* and looks at the queue once more before it ends */
};

static void on_wake(uv_async_t *async);
static void closer_run(void *arg);

void closers_open(struct closers *closers, uv_loop_t *loop, struct accounts *accounts,
                  void (*on_idle)(void *arg), void *arg)
{
	*closers = (struct closers){ .accounts = accounts, .on_idle = on_idle, .arg = arg };
	LIST_INIT(&closers->list);
	TAILQ_INIT(&closers->closed);
	uv_mutex_init(&closers->mutex);
	uv_async_init(loop, &closers->wake, on_wake);
	closers->wake.data = closers;
}

static struct closer *closer_new(struct closers *closers, struct account *account)
{
	struct closer *closer = calloc(1, sizeof *closer);

	if (!closer)
		return NULL;
	if (uv_cond_init(&closer->cond) < 0) {
		free(closer);
		return NULL;
	}
	closer->closers = closers;
	closer->account = account_ref(closers->accounts, account->uid);
	TAILQ_INIT(&closer->queue);
	LIST_INSERT_HEAD(&closers->list, closer, entry);
	account->closer = closer;
	return closer;
}

/* Its thread has ended, or is about to. */
static void closer_free(struct closer *closer)
{
	assert(closer->n == 0);
	if (closer->started)
		uv_thread_join(&closer->thread);
	uv_cond_destroy(&closer->cond);
	LIST_REMOVE(closer, entry);
	closer->account->closer = NULL;
	account_unref(closer->account);
	free(closer);
}

void closers_close(struct closers *closers)
{
	struct closer *closer;

	assert(closers->n == 0);
	uv_mutex_lock(&closers->mutex);
	closers->stopping = true;
	LIST_FOREACH(closer, &closers->list, entry)
		uv_cond_signal(&closer->cond);
	uv_mutex_unlock(&closers->mutex);
	while ((closer = LIST_FIRST(&closers->list)))
		closer_free(closer);
	uv_close((uv_handle_t *)&closers->wake, NULL);
	uv_mutex_destroy(&closers->mutex);
}

/* ---- Closing ------------------------------------------------------------------------------------------ */

/* The new thread takes no signals, from its first moment on: they are the loop's. */
static bool closer_start(struct closer *closer)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = uv_thread_create(&closer->thread, closer_run, closer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == 0;
}

/* Has a thread run that looks at the queue. */
static bool closer_wake(struct closer *closer)
{
	if (closer->running) {
		uv_cond_signal(&closer->cond);
		return true;
	}
	if (closer->started)
		uv_thread_join(&closer->thread);
	closer->started = closer->running = closer_start(closer);
	return closer->running;
}

static bool closer_add(struct closer *closer, int fd, struct charge *charge)
{
	struct closers *closers = closer->closers;
	struct closing *closing = malloc(sizeof *closing);
	bool taken;

	if (!closing)
		return false;
	*closing = (struct closing){ .closer = closer, .fd = fd, .charge = *charge };
	uv_mutex_lock(&closers->mutex);
	TAILQ_INSERT_TAIL(&closer->queue, closing, entry);
	taken = closer_wake(closer);
	if (!taken)
		TAILQ_REMOVE(&closer->queue, closing, entry);
	uv_mutex_unlock(&closers->mutex);
	if (!taken) {
		free(closing);
		return false;
	}
	*charge = (struct charge){ 0 };
	closer->n++;
	closers->n++;
	return true;
}

void closer_close(struct closers *closers, struct account *account, int fd, struct charge *charge)
{
	struct closer *closer = account->closer ? account->closer : closer_new(closers, account);

	if (closer && closer_add(closer, fd, charge))
		return;
	close(fd);
	charge_release(charge);
}

/* After the shutdown nothing more arrives. Descriptors travel with bytes, so where none is unread there are
 * none in the queue. What is under way for the account comes first: a connection is charged until its
 * descriptors are gone. */
void closer_close_socket(struct closers *closers, struct account *account, int fd, struct charge *charge)
{
	bool busy = account->closer && account->closer->n > 0;
	int unread;

	shutdown(fd, SHUT_RDWR);
	if (busy || ioctl(fd, SIOCINQ, &unread) < 0 || unread > 0) {
		closer_close(closers, account, fd, charge);
		return;
	}
	close(fd);
	charge_release(charge);
}

/* ---- The thread --------------------------------------------------------------------------------------- */

/* The next to close; NULL when there was none for a while, or there will be none. */
static struct closing *next_closing(struct closer *closer)
{
	struct closers *closers = closer->closers;
	struct closing *closing;
	int r = 0;

	while (TAILQ_EMPTY(&closer->queue) && !closers->stopping && r == 0)
		r = uv_cond_timedwait(&closer->cond, &closers->mutex, IDLE_NS);
	closing = TAILQ_FIRST(&closer->queue);
	if (closing)
		TAILQ_REMOVE(&closer->queue, closing, entry);
	return closing;
}

static void closer_run(void *arg)
{
	struct closer *closer = arg;
	struct closers *closers = closer->closers;
	struct closing *closing;
	uv_mutex_lock(&closers->mutex);
	while ((closing = next_closing(closer))) {
		uv_mutex_unlock(&closers->mutex);
		close(closing->fd);
		uv_mutex_lock(&closers->mutex);
		TAILQ_INSERT_TAIL(&closers->closed, closing, entry);
		uv_async_send(&closers->wake);
	}
	closer->running = false;
	uv_async_send(&closers->wake);
	uv_mutex_unlock(&closers->mutex);
}

/* ---- Back on the loop --------------------------------------------------------------------------------- */

static void account_for(struct closers *closers, struct closing_queue *closed)
{
	struct closing *closing;

	while ((closing = TAILQ_FIRST(closed))) {
		TAILQ_REMOVE(closed, closing, entry);
		charge_release(&closing->charge);
		closing->closer->n--;
		closers->n--;
		free(closing);
	}
}

static void on_wake(uv_async_t *async)
{
	struct closers *closers = async->data;
	struct closing_queue closed = TAILQ_HEAD_INITIALIZER(closed);
	struct closer *closer, *next;
	uint64_t before = closers->n;

	uv_mutex_lock(&closers->mutex);
	TAILQ_CONCAT(&closed, &closers->closed, entry);
	uv_mutex_unlock(&closers->mutex);
	account_for(closers, &closed);

	for (closer = LIST_FIRST(&closers->list); closer; closer = next) {
		bool running;

		next = LIST_NEXT(closer, entry);
		uv_mutex_lock(&closers->mutex);
		running = closer->running;
		uv_mutex_unlock(&closers->mutex);
		if (!running && closer->n == 0)
			closer_free(closer);
	}
	if (before > 0 && closers->n == 0)
		closers->on_idle(closers->arg);
}

bool closer_is_full(const struct account *account)
{
	return account->closer && account->closer->n >= MAX_CLOSING;
}

void closers_log(const struct closers *closers)
{
	const struct closer *closer;

	LIST_FOREACH(closer, &closers->list, entry)
		if (closer->n > 0)
			log_about(LOG_LEVEL_WARNING,
			          &(struct log_about){ .has_uid = true, .uid = closer->account->uid },
			          "descriptors that it sent are still being closed: %" PRIu64, closer->n);
}
