/* SPDX-License-Identifier: Apache-2.0 */
/* Each account with something to close has a queue and a thread that empties it.
 *
 * One lock guards all queues and what has been closed; it is held for a few instructions, never during a
 * close. A queue is made with the first descriptor to close, and freed on the loop once its thread has ended
 * and all of its descriptors are accounted for.
 */
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

/* More than an account's limits let it send at once. */
#define MAX_CLOSING 8192

struct closing {
	TAILQ_ENTRY(closing) entry; /* in queue->fds, then in async_close->closed */
	struct async_close_queue *queue;
	int fd;
	struct charge charge;
};

struct async_close_queue {
	LIST_ENTRY(async_close_queue) entry;
	struct async_close *async_close;
	struct account *account;
	uint64_t n; /* not yet accounted for; the loop's alone */
	uv_thread_t thread;
	bool started; /* has to be joined; the loop's alone */
	/* Under the lock. */
	uv_cond_t cond;
	struct closing_queue fds;
	bool running; /* checks fds once more before it ends */
};

static void on_wake(uv_async_t *async);
static void queue_run(void *arg);

void async_close_start(struct async_close *async_close, uv_loop_t *loop, struct accounts *accounts,
                       void (*on_idle)(void *arg), void *arg)
{
	*async_close = (struct async_close){ .accounts = accounts, .on_idle = on_idle, .arg = arg };
	LIST_INIT(&async_close->queues);
	TAILQ_INIT(&async_close->closed);
	uv_mutex_init(&async_close->mutex);
	uv_async_init(loop, &async_close->wake, on_wake);
	async_close->wake.data = async_close;
}

static struct async_close_queue *queue_new(struct async_close *async_close, struct account *account)
{
	struct async_close_queue *queue = calloc(1, sizeof *queue);

	if (!queue)
		return NULL;
	if (uv_cond_init(&queue->cond) < 0) {
		free(queue);
		return NULL;
	}
	queue->async_close = async_close;
	queue->account = account_ref(async_close->accounts, account->uid);
	TAILQ_INIT(&queue->fds);
	LIST_INSERT_HEAD(&async_close->queues, queue, entry);
	account->async_close = queue;
	return queue;
}

/* Its thread has ended, or is about to. */
static void queue_free(struct async_close_queue *queue)
{
	assert(queue->n == 0);
	if (queue->started)
		uv_thread_join(&queue->thread);
	uv_cond_destroy(&queue->cond);
	LIST_REMOVE(queue, entry);
	queue->account->async_close = NULL;
	account_unref(queue->account);
	free(queue);
}

void async_close_stop(struct async_close *async_close)
{
	struct async_close_queue *queue;

	assert(async_close->n == 0);
	uv_mutex_lock(&async_close->mutex);
	async_close->stopping = true;
	LIST_FOREACH(queue, &async_close->queues, entry)
		uv_cond_signal(&queue->cond);
	uv_mutex_unlock(&async_close->mutex);
	while ((queue = LIST_FIRST(&async_close->queues)))
		queue_free(queue);
	uv_close((uv_handle_t *)&async_close->wake, NULL);
	uv_mutex_destroy(&async_close->mutex);
}

/* ---- Closing ------------------------------------------------------------------------------------------ */

/* All signals are blocked in the new thread from its start: the loop takes them. */
static bool queue_start_thread(struct async_close_queue *queue)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = uv_thread_create(&queue->thread, queue_run, queue);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == 0;
}

/* Makes sure that a thread checks the queue. */
static bool queue_wake(struct async_close_queue *queue)
{
	if (queue->running) {
		uv_cond_signal(&queue->cond);
		return true;
	}
	if (queue->started)
		uv_thread_join(&queue->thread);
	queue->started = queue->running = queue_start_thread(queue);
	return queue->running;
}

static bool queue_add(struct async_close_queue *queue, int fd, struct charge *charge)
{
	struct async_close *async_close = queue->async_close;
	struct closing *closing = malloc(sizeof *closing);
	bool taken;

	if (!closing)
		return false;
	*closing = (struct closing){ .queue = queue, .fd = fd, .charge = *charge };
	uv_mutex_lock(&async_close->mutex);
	TAILQ_INSERT_TAIL(&queue->fds, closing, entry);
	taken = queue_wake(queue);
	if (!taken)
		TAILQ_REMOVE(&queue->fds, closing, entry);
	uv_mutex_unlock(&async_close->mutex);
	if (!taken) {
		free(closing);
		return false;
	}
	*charge = (struct charge){ 0 };
	queue->n++;
	async_close->n++;
	return true;
}

void async_close_fd(struct async_close *async_close, struct account *account, int fd, struct charge *charge)
{
	struct async_close_queue *queue =
	    account->async_close ? account->async_close : queue_new(async_close, account);

	if (queue && queue_add(queue, fd, charge))
		return;
	close(fd);
	charge_release(charge);
}

/* After the shutdown nothing more arrives. Descriptors travel with bytes, so a socket without unread bytes
 * holds none. While the account has descriptors to close, the socket goes behind them: a connection stays
 * charged until its descriptors are closed. */
void async_close_socket(struct async_close *async_close, struct account *account, int fd,
                        struct charge *charge)
{
	bool busy = account->async_close && account->async_close->n > 0;
	int unread;

	shutdown(fd, SHUT_RDWR);
	if (busy || ioctl(fd, SIOCINQ, &unread) < 0 || unread > 0) {
		async_close_fd(async_close, account, fd, charge);
		return;
	}
	close(fd);
	charge_release(charge);
}

/* ---- The thread --------------------------------------------------------------------------------------- */

/* The next descriptor to close; NULL when none came for IDLE_NS, or the service stops. */
static struct closing *next_closing(struct async_close_queue *queue)
{
	struct async_close *async_close = queue->async_close;
	struct closing *closing;
	int r = 0;

	while (TAILQ_EMPTY(&queue->fds) && !async_close->stopping && r == 0)
		r = uv_cond_timedwait(&queue->cond, &async_close->mutex, IDLE_NS);
	closing = TAILQ_FIRST(&queue->fds);
	if (closing)
		TAILQ_REMOVE(&queue->fds, closing, entry);
	return closing;
}

static void queue_run(void *arg)
{
	struct async_close_queue *queue = arg;
	struct async_close *async_close = queue->async_close;
	struct closing *closing;

	uv_mutex_lock(&async_close->mutex);
	while ((closing = next_closing(queue))) {
		uv_mutex_unlock(&async_close->mutex);
		close(closing->fd);
		uv_mutex_lock(&async_close->mutex);
		TAILQ_INSERT_TAIL(&async_close->closed, closing, entry);
		uv_async_send(&async_close->wake);
	}
	queue->running = false;
	uv_async_send(&async_close->wake);
	uv_mutex_unlock(&async_close->mutex);
}

/* ---- Back on the loop --------------------------------------------------------------------------------- */

static void account_for(struct async_close *async_close, struct closing_queue *closed)
{
	struct closing *closing;

	while ((closing = TAILQ_FIRST(closed))) {
		TAILQ_REMOVE(closed, closing, entry);
		charge_release(&closing->charge);
		closing->queue->n--;
		async_close->n--;
		free(closing);
	}
}

static void on_wake(uv_async_t *async)
{
	struct async_close *async_close = async->data;
	struct closing_queue closed = TAILQ_HEAD_INITIALIZER(closed);
	struct async_close_queue *queue, *next;
	uint64_t before = async_close->n;

	uv_mutex_lock(&async_close->mutex);
	TAILQ_CONCAT(&closed, &async_close->closed, entry);
	uv_mutex_unlock(&async_close->mutex);
	account_for(async_close, &closed);

	for (queue = LIST_FIRST(&async_close->queues); queue; queue = next) {
		bool running;

		next = LIST_NEXT(queue, entry);
		uv_mutex_lock(&async_close->mutex);
		running = queue->running;
		uv_mutex_unlock(&async_close->mutex);
		if (!running && queue->n == 0)
			queue_free(queue);
	}
	if (before > 0 && async_close->n == 0)
		async_close->on_idle(async_close->arg);
}

bool async_close_is_full(const struct account *account)
{
	return account->async_close && account->async_close->n >= MAX_CLOSING;
}

void async_close_log_stuck(const struct async_close *async_close)
{
	const struct async_close_queue *queue;

	LIST_FOREACH(queue, &async_close->queues, entry)
		if (queue->n > 0)
			log_about(LOG_LEVEL_WARNING,
			          &(struct log_about){ .has_uid = true, .uid = queue->account->uid },
			          "descriptors that it sent are still being closed: %" PRIu64, queue->n);
}
