/* SPDX-License-Identifier: Apache-2.0 */
/* Locks clients, releases what destructors have left when a client is unlocked, and handles signals that come
 * while a call waits. */
#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

static bool is_usable(struct py_client *c)
{
	if (c->pid != getpid())
		PyErr_SetString(PyExc_RuntimeError,
		                "the client was made by another process; a child has to connect by itself");
	else if (!c->client)
		PyErr_SetString(PyExc_ValueError, "the client is closed");
	else
		return true;
	return false;
}

/* Waits for a mutex without the GIL, and lets signals' handlers run meanwhile. Returns 0, EDEADLK, or
 * ETIMEDOUT with an exception that a handler has raised. */
static int wait_for_lock(pthread_mutex_t *lock)
{
	int rc;

	do {
		struct timespec until;

		Py_BEGIN_ALLOW_THREADS clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 100000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		rc = pthread_mutex_timedlock(lock, &until);
		Py_END_ALLOW_THREADS
	} while (rc == ETIMEDOUT && PyErr_CheckSignals() == 0);
	return rc;
}

/* Takes one of the client's locks. Returns false with an exception, also if the client belongs to another
 * process. */
static bool take(struct py_client *c, pthread_mutex_t *lock)
{
	int rc;

	if (c->pid != getpid())
		return is_usable(c);
	rc = pthread_mutex_trylock(lock);
	if (rc == EBUSY)
		rc = wait_for_lock(lock);
	if (rc == EDEADLK)
		PyErr_SetString(PyExc_RuntimeError,
		                "the client is in a call of this thread; a signal's handler cannot use it");
	return rc == 0;
}

int py_client_lock_if_open(struct py_client *c)
{
	if (!take(c, &c->lock))
		return -1;
	c->is_interrupted = false;
	c->failed = 0;
	if (c->client)
		return 1;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

bool py_client_lock(struct py_client *c)
{
	int rc = py_client_lock_if_open(c);

	return rc == 0 ? is_usable(c) : rc > 0;
}

bool py_client_lock_streams(struct py_client *c)
{
	if (!take(c, &c->streams_lock))
		return false;
	if (is_usable(c))
		return true;
	pthread_mutex_unlock(&c->streams_lock);
	return false;
}

int py_client_lock_to_close(struct py_client *c)
{
	int rc;

	if (!take(c, &c->streams_lock))
		return -1;
	rc = py_client_lock_if_open(c);
	if (rc <= 0)
		pthread_mutex_unlock(&c->streams_lock);
	return rc;
}

/* Returns whether a call closed the connection when it gave up waiting for a reply, and the client may
 * reconnect. The caller must then call tma_connect. After DISCONNECTED and DEVICE_LOST, in contrast, the
 * library reconnects by itself. */
static bool is_given_up(const tma_client *client)
{
	return client->sock < 0 && client->ended.status != TMA_DISCONNECTED &&
	       client->ended.status != TMA_DEVICE_LOST && client->retry_ms >= 0;
}

bool py_client_enter(struct py_client *c)
{
	char path[sizeof c->client->path];
	int rc;

	if (!py_client_lock(c))
		return false;
	if (tma_fd(c->client) < 0)
		segments_release_stale(c, NULL);
	rc = py_client_check(c, 0);
	if (rc == 0 && !is_given_up(c->client))
		return true;
	if (rc == 0) {
		memcpy(path, c->client->path, sizeof path);
		CLIENT_CALL(c, rc = tma_connect(c->client, path));
		if (rc < 0 && tma_fd(c->client) >= 0)
			rc = 0; /* connected: a region or plan that was lost reports that when it is used */
		rc = py_client_check(c, rc);
	}
	if (rc == 0)
		return true;
	py_client_unlock(c);
	return false;
}

static struct deferred *take_deferred(struct py_client *c)
{
	struct deferred *first;

	pthread_mutex_lock(&c->deferred_lock);
	first = c->deferred;
	c->deferred = NULL;
	pthread_mutex_unlock(&c->deferred_lock);
	return first;
}

static int raise_again(void *exception)
{
	PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
	Py_DECREF((PyObject *)exception);
	return -1;
}

/* A destructor cannot raise what a signal's handler has raised in it. The main thread, in which handlers run,
 * raises the same exception before its next bytecode. */
void py_tell_later(void)
{
	PyObject *type, *exception, *trace;

	PyErr_Fetch(&type, &exception, &trace);
	PyErr_NormalizeException(&type, &exception, &trace);
	if (trace)
		PyException_SetTraceback(exception, trace);
	if (Py_AddPendingCall(raise_again, exception) < 0) { /* Python's queue of pending calls is full */
		PyErr_Restore(type, exception, trace);
		PyErr_WriteUnraisable(NULL);
		return;
	}
	Py_XDECREF(type);
	Py_XDECREF(trace);
}

/* Calls the release function of each entry without the GIL, and frees the entries. Caller holds the lock and
 * the GIL. */
static void run_deferred(struct py_client *c, struct deferred *entry)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	c->is_interrupted = false;
	Py_BEGIN_ALLOW_THREADS while (entry)
	{
		struct deferred *next = entry->next;

		entry->release(entry->object);
		free(entry);
		entry = next;
	}
	Py_END_ALLOW_THREADS if (PyErr_Occurred()) py_tell_later();
	PyErr_Restore(type, value, trace);
}

void py_client_release_now(struct py_client *c)
{
	if (c->is_deferring && c->client)
		eventfd_write(c->wake_fd, 1);
	else
		py_client_release_all(c);
}

void py_client_release_all(struct py_client *c)
{
	struct deferred *entry;

	while ((entry = take_deferred(c)) != NULL) {
		struct pending *forgotten;

		if (pthread_mutex_trylock(&c->lock) != 0) {
			struct deferred *last = entry;

			while (last->next)
				last = last->next;
			pthread_mutex_lock(&c->deferred_lock);
			last->next = c->deferred;
			c->deferred = entry;
			pthread_mutex_unlock(&c->deferred_lock);
			return;
		}
		run_deferred(c, entry);
		forgotten = py_client_take_forgotten(c);
		pthread_mutex_unlock(&c->lock);
		pending_free_all(forgotten);
	}
}

bool py_client_has_deferred(struct py_client *c)
{
	bool has;

	pthread_mutex_lock(&c->deferred_lock);
	has = c->deferred != NULL;
	pthread_mutex_unlock(&c->deferred_lock);
	return has;
}

/* Creates exceptions and drops references only after it has released the lock, because both may run other
 * code, such as finalizers, which may use the client. */
void py_client_unlock(struct py_client *c)
{
	const int failed = c->failed;
	char failure[sizeof c->failure];
	struct pending *forgotten;

	if (failed)
		memcpy(failure, c->failure, sizeof failure);
	if (c->n_pending)
		py_client_take_ended(c);
	forgotten = py_client_take_forgotten(c);
	pthread_mutex_unlock(&c->lock);
	if (failed)
		raise_status(failed, "%s", failure);
	pending_free_all(forgotten);
	if (py_client_has_deferred(c))
		py_client_release_now(c);
}

bool py_client_defer(struct py_client *c, void (*release)(void *object), void *object)
{
	struct deferred *entry = malloc(sizeof *entry);

	if (!entry)
		return false;
	pthread_mutex_lock(&c->deferred_lock);
	*entry = (struct deferred){ c->deferred, release, object };
	c->deferred = entry;
	pthread_mutex_unlock(&c->deferred_lock);
	return true;
}

void py_client_release(struct py_client *c, void (*release)(void *object), void *object)
{
	if (c->pid == getpid() && py_client_defer(c, release, object))
		py_client_release_now(c);
}

int py_client_check(struct py_client *c, int status)
{
	if (PyErr_Occurred()) /* A signal's handler has raised it. */
		return -1;
	if (status >= 0)
		return status;
	c->failed = status;
	snprintf(c->failure, sizeof c->failure, "%s", tma_last_error(c->client));
	return -1;
}

/* ---- Signals ----------------------------------------------------------------------------------------- */

/* Called when a signal has come while a call waits: Python's handler for it may raise an exception such as
 * KeyboardInterrupt, which ends the call. Later waits within the same call do not begin. Returns whether the
 * call has to end. */
int py_client_on_interrupt(void *arg)
{
	struct py_client *c = arg;
	PyGILState_STATE state;

	if (c->is_interrupted)
		return 1;
	if (gettid() != getpid()) /* Python runs handlers in the main thread only */
		return 0;
	state = PyGILState_Ensure();
	c->is_interrupted = PyErr_CheckSignals() < 0;
	PyGILState_Release(state);
	return c->is_interrupted;
}
