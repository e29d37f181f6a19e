/* SPDX-License-Identifier: Apache-2.0 */
/* Late requests: those that wait for points, and all later ones that move something. They run in order in a
 * session of their own, on a thread that the first of them starts. The program's thread adds them, takes
 * their replies, and cancels those that have not started.
 *
 * A child of fork does not have this thread. The requests that it inherits are done by its parent; in the
 * child they end as canceled, and the next late request starts a new thread.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/thread.h"

#define KEEP_BYTES (64 * 1024)

struct request {
	TAILQ_ENTRY(request) entry;
	struct local_asked asked;
	struct msg_wait wait; /* the point to wait for, if wait_address is not 0 */
	uint64_t wait_address;
	int64_t deadline_ms;
	/* milliseconds within which the request has to begin, that is, by begin_until_ms; 0: no deadline */
	uint64_t begins_within_ms;
	int64_t begin_until_ms;
	void *context;   /* CUDA context of the thread that added the request; NULL: none */
	bool is_release; /* The request releases an object, and was answered when it was added. */
	bool has_started;
	bool is_canceled; /* The request is removed, and answered if is_answered. */
	bool is_answered;
	size_t len;
	uint8_t message[];
};

/* The late requests of a session. local_lock guards all members that are not the thread's own. */
struct local_late {
	struct local_session *session; /* belongs to the thread */
	uint64_t forks;                /* value of local_forks when the thread was started */
	pthread_t thread;
	pthread_cond_t added;           /* signaled when a request was added or is_closing was set */
	pthread_cond_t let_go;          /* signaled when `awaited` has changed */
	TAILQ_HEAD(, request) requests; /* in order; a request is removed when it has ended */
	const struct request *awaited;  /* the request whose word the thread is waiting for; NULL: none */
	atomic_bool stops;              /* The thread has to stop waiting. */
	bool is_closing;
	bool has_failed; /* A reply could not be made. */
	int ended_fd;
	struct buffer replies;
	atomic_uint ended; /* requests that have ended; wraps around, and is a futex */
	unsigned taken;    /* value of `ended` when replies were last taken */
};

static void lock(void)
{
	pthread_mutex_lock(&local_lock);
}

static void unlock(void)
{
	pthread_mutex_unlock(&local_lock);
}

/* ---- The end of a request: with the lock -------------------------------------------------------------- */

static void tell(struct local_late *late, bool has_reply)
{
	atomic_fetch_add(&late->ended, 1);
	syscall(SYS_futex, &late->ended, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	if (has_reply && late->ended_fd >= 0)
		eventfd_write(late->ended_fd, 1);
}

static void request_remove(struct local_late *late, struct request *request)
{
	TAILQ_REMOVE(&late->requests, request, entry);
	free(request);
}

static void request_end(struct local_late *late, struct request *request, const union local_result *result,
                        const struct error *failed)
{
	const size_t before = buffer_len(&late->replies);

	if (!request->is_release) {
		late->has_failed |=
		    local_session_answer(&request->asked, true, result, failed, &late->replies) < 0;
		tell(late, late->has_failed || buffer_len(&late->replies) > before);
	}
	request_remove(late, request);
}

static void request_cancel(struct local_late *late, struct request *request)
{
	struct error canceled;

	error_set(&canceled, STATUS_CANCELED, "the request was canceled before it started");
	if (request->is_answered)
		request_end(late, request, NULL, &canceled);
	else
		request_remove(late, request);
}

/* ---- The thread --------------------------------------------------------------------------------------- */

/* Waits for the request's point, if it has one. The caller must hold local_lock, which is released
 * meanwhile. */
static int await_point(struct local_late *late, const struct request *request, struct error *err)
{
	const struct local_points points = { .wait = &request->wait, .wait_address = request->wait_address };
	int64_t until_ms = request->deadline_ms;
	int r;

	if (!request->wait_address)
		return 0;
	if (request->begins_within_ms && request->begin_until_ms < until_ms)
		until_ms = request->begin_until_ms;
	late->awaited = request;
	late->stops = late->is_closing;
	unlock();
	local_enter(request->context);
	r = local_points_wait(late->session, &points, until_ms, &late->stops, err);
	lock();
	late->awaited = NULL;
	pthread_cond_broadcast(&late->let_go);
	return r;
}

/* Runs the request and removes it. The caller must hold local_lock, which is released while the request
 * runs. */
static void run(struct local_late *late, struct request *request)
{
	struct local_session *session = late->session;
	struct rpc_request *decoded = &session->request;
	union local_result result;
	struct error err;
	int r;

	request->has_started = true;
	unlock();
	local_enter(request->context);
	r = rpc_decode_request(session->decoder, request->message, request->len, decoded, &err);
	r = r == RPC_DISPATCH
	        ? local_session_run(session, decoded->method->id, &decoded->params, &result, &err)
	        : err.status;
	lock();
	request_end(late, request, &result, r < 0 ? &err : NULL);
	rpc_decoder_rest(session->decoder);
}

static void serve(struct local_late *late, struct request *request)
{
	struct error err;
	int r = await_point(late, request, &err);

	if (late->is_closing)
		return;
	if ((r == 0 || r == STATUS_TIMEOUT) && request->begins_within_ms &&
	    clock_ms() >= request->begin_until_ms)
		r = error_set(&err, STATUS_TIMEOUT,
		              "deadline_ms: the request had not begun %" PRIu64 " ms after it came",
		              request->begins_within_ms);
	if (request->is_canceled)
		request_cancel(late, request);
	else if (r < 0)
		request_end(late, request, NULL, &err);
	else
		run(late, request);
}

static void *work(void *arg)
{
	struct local_late *late = arg;

	lock();
	while (!late->is_closing) {
		struct request *first = TAILQ_FIRST(&late->requests);

		if (first)
			serve(late, first);
		else
			pthread_cond_wait(&late->added, &local_lock);
	}
	unlock();
	return NULL;
}

/* ---- Life --------------------------------------------------------------------------------------------- */

static void late_free(struct local_late *late)
{
	while (!TAILQ_EMPTY(&late->requests))
		request_remove(late, TAILQ_FIRST(&late->requests));
	buffer_deinit(&late->replies);
	pthread_cond_destroy(&late->added);
	pthread_cond_destroy(&late->let_go);
	local_session_free(late->session);
	free(late);
}

static int late_new(struct local_session *session, struct local_late **ret, struct error *err)
{
	struct local_late *late = calloc(1, sizeof *late);
	int r, error;

	if (!late)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for requests that wait");
	TAILQ_INIT(&late->requests);
	pthread_cond_init(&late->added, NULL);
	pthread_cond_init(&late->let_go, NULL);
	late->forks = local_forks;
	late->ended_fd = local_forks == session->objects->forks ? session->ended_fd : -1;
	r = local_session_new(&late->session, session->objects, err);
	if (r < 0) {
		late_free(late);
		return r;
	}
	local_usage_begin(late->session, false);
	session->objects->is_shared = true;
	error = thread_start(&late->thread, work, late); /* No signal handler of the program runs on it. */
	if (error == 0) {
		*ret = late;
		return 0;
	}
	local_usage_end(late->session, false);
	late_free(late);
	return error_set(err, STATUS_NO_MEMORY,
	                 "the thread of requests that wait for points cannot be started (%s)",
	                 strerror(error));
}

/* Ends all requests of a forked child as canceled. Memory that the parent's thread had allocated for the
 * request that it was running at the fork is not freed. The child keeps the replies that had not been
 * taken. */
static void leave_to_parent(struct local_late *late)
{
	struct error canceled;

	error_set(&canceled, STATUS_CANCELED, "the request is done by the process that has forked this one");
	late->ended_fd = -1;
	while (!TAILQ_EMPTY(&late->requests))
		request_end(late, TAILQ_FIRST(&late->requests), NULL, &canceled);
}

/* Returns the session's late requests, or NULL if there were none. Ends those that a forked child has
 * inherited from its parent, because only the parent has the thread that runs them. */
static struct local_late *late_of(struct local_session *session)
{
	struct local_late *late = session->late;

	if (late && late->forks != local_forks && !TAILQ_EMPTY(&late->requests))
		leave_to_parent(late);
	return late;
}

void local_late_free(struct local_session *session)
{
	struct local_late *late = session->late;

	if (!late)
		return;
	session->late = NULL;
	if (late->forks != local_forks) {
		buffer_deinit(&late->replies);
		return;
	}
	lock();
	late->is_closing = true;
	late->stops = true;
	pthread_cond_signal(&late->added);
	unlock();
	pthread_join(late->thread, NULL);
	local_usage_end(late->session, false);
	late_free(late);
}

/* ---- The program's thread ----------------------------------------------------------------------------- */

bool local_late_is_busy(struct local_session *session)
{
	const struct local_late *late = late_of(session);
	bool is;

	if (!late)
		return false;
	lock();
	is = !TAILQ_EMPTY(&late->requests);
	unlock();
	return is;
}

bool local_late_is_there(struct local_session *session)
{
	const struct local_late *late = late_of(session);
	bool is;

	if (!late)
		return false;
	lock();
	is = !TAILQ_EMPTY(&late->requests) || late->ended != late->taken;
	unlock();
	return is;
}

/* Starts a thread if this process has none. The new thread's replies begin with those that the parent's
 * thread had made and nobody has taken. */
static int need_thread(struct local_session *session, struct error *err)
{
	struct local_late *old = late_of(session), *late = NULL;
	int r;

	if (old && old->forks == local_forks)
		return 0;
	r = late_new(session, &late, err);
	if (r < 0)
		return r;
	if (old) {
		late->replies = old->replies;
		late->ended++; /* The inherited replies have to be taken. */
	}
	session->late = late;
	return 0;
}

int local_late_add(struct local_session *session, const struct local_asked *asked, const uint8_t *message,
                   size_t len, const struct local_points *points, bool is_release, struct error *err)
{
	struct request *request;
	int r = need_thread(session, err);

	if (r < 0)
		return r;
	request = malloc(sizeof *request + len);
	if (!request)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for a request that waits");
	*request = (struct request){
		.asked = *asked, .context = local_context(), .is_release = is_release, .len = len
	};
	if (points->wait) {
		request->wait = *points->wait;
		request->wait_address = points->wait_address;
		request->deadline_ms = local_points_deadline(points);
	}
	request->begins_within_ms = points->deadline_ms;
	request->begin_until_ms =
	    clock_ms() + (int64_t)(points->deadline_ms < INT32_MAX ? points->deadline_ms : INT32_MAX);
	memcpy(request->message, message, len);
	lock();
	TAILQ_INSERT_TAIL(&session->late->requests, request, entry);
	pthread_cond_signal(&session->late->added);
	unlock();
	return 0;
}

static struct request *find(struct local_late *late, uint32_t msgid)
{
	struct request *request;

	TAILQ_FOREACH(request, &late->requests, entry)
		if (request->asked.msgid == msgid && !request->is_release)
			return request;
	return NULL;
}

/* Cancels a request. The word that the thread is waiting for may lie in memory that the program is about to
 * free, so this waits until the thread has stopped looking at it; the thread then removes the request. The
 * caller must hold local_lock. */
static bool cancel(struct local_late *late, uint32_t msgid, bool is_answered)
{
	struct request *request = find(late, msgid);

	if (!request || request->has_started)
		return false;
	request->is_canceled = true;
	request->is_answered = is_answered;
	if (late->awaited != request) {
		request_cancel(late, request);
		return true;
	}
	late->stops = true;
	while (late->awaited == request)
		pthread_cond_wait(&late->let_go, &local_lock);
	return true;
}

bool local_late_cancel(struct local_session *session, uint32_t msgid, bool is_answered)
{
	struct local_late *late = late_of(session);
	bool is_canceled;

	if (!late)
		return false;
	lock();
	is_canceled = cancel(late, msgid, is_answered);
	unlock();
	return is_canceled;
}

static int take(struct local_late *late, struct buffer *replies, struct error *err)
{
	const size_t bytes = buffer_len(&late->replies);
	int r = late->has_failed ? STATUS_NO_MEMORY : 0;

	if (r == 0 && bytes > 0) /* A buffer that has held nothing has no memory. */
		r = buffer_append(replies, late->replies.data + late->replies.start, bytes);
	if (r < 0)
		return error_set(err, r, "out of memory for a reply");
	buffer_consume(&late->replies, bytes, KEEP_BYTES);
	late->taken = late->ended;
	return !TAILQ_EMPTY(&late->requests);
}

int local_late_take(struct local_session *session, struct buffer *replies, struct error *err)
{
	struct local_late *late = late_of(session);
	int r;

	if (!late)
		return 0;
	lock();
	r = take(late, replies, err);
	unlock();
	return r;
}

bool local_late_await(struct local_session *session, int timeout_ms)
{
	const struct timespec most = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };
	struct local_late *late = late_of(session);

	if (!late)
		return false;
	if (late->ended == late->taken)
		syscall(SYS_futex, &late->ended, FUTEX_WAIT_PRIVATE, late->taken,
		        timeout_ms < 0 ? NULL : &most, NULL, 0);
	return late->ended != late->taken;
}
