/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the type Client: a connection, its settings, and what the service says about itself. lock.c says
 * how a client is locked, run.c and streams.c how it runs requests. */
#include "core.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client.h"

/* ---- Life ------------------------------------------------------------------------------------------ */

static void init_locks(struct py_client *c)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&c->lock, &attributes);
	pthread_mutex_init(&c->streams_lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	pthread_mutex_init(&c->deferred_lock, NULL);
}

static PyObject *py_client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "path", "timeout_ms", "reconnect_ms", "server_uid", NULL };
	PyObject *path = Py_None, *uid = Py_None, *bytes = NULL;
	int timeout_ms = -1, reconnect_ms = 5000, rc;
	struct py_client *c;
	uint32_t value;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OiiO:Client", names, &path, &timeout_ms,
	                                 &reconnect_ms, &uid) ||
	    (uid != Py_None && !parse_u32(uid, &value)))
		return NULL;
	if (path != Py_None && !PyUnicode_FSConverter(path, &bytes))
		return NULL;
	c = (struct py_client *)PyType_GenericAlloc(type, 0);
	if (!c) {
		Py_XDECREF(bytes);
		return NULL;
	}
	init_locks(c);
	c->pid = getpid();
	c->wake_fd = -1;
	c->ended_tail = &c->ended;
	c->client = tma_new();
	if (!c->client) {
		PyErr_NoMemory();
		goto err;
	}
	tma_set_timeout(c->client, timeout_ms);
	tma_set_reconnect(c->client, reconnect_ms);
	tma_set_interrupt(c->client, py_client_on_interrupt, c);
	if (uid != Py_None)
		tma_set_server_uid(c->client, value);
	CLIENT_CALL(c, rc = tma_connect(c->client, bytes ? PyBytes_AsString(bytes) : NULL));
	if (rc < 0)
		raise_status(rc, "%s", tma_last_error(c->client));
	if (PyErr_Occurred())
		goto err;
	c->is_local = c->client->local != NULL;
	Py_XDECREF(bytes);
	return (PyObject *)c;

err:
	Py_XDECREF(bytes);
	Py_DECREF(c);
	return NULL;
}

static void free_ended(struct py_client *c)
{
	struct pending *pending = c->ended;

	c->ended = NULL;
	c->ended_tail = &c->ended;
	pending_free_all(pending);
}

/* Closes the connection and frees the tma_client. First waits for the requests under way, because they may
 * still move memory that their callers free next; an exception from a signal's handler ends this wait. Caller
 * holds the lock and the GIL. */
static void close_client(struct py_client *c)
{
	tma_client *client = c->client;

	Py_BEGIN_ALLOW_THREADS tma_flush(client);
	while (c->n_pending && !c->is_interrupted) {
		struct tma_completed completed;
		int rc = tma_next(client, 1000, &completed);

		if (rc == 0)
			py_client_take_completed(c, &completed);
		else if (rc < 0)
			break;
	}
	streams_free(c);
	c->client = NULL;
	segments_free(c);
	tma_free(client);
	py_client_end_pending(c);
	Py_END_ALLOW_THREADS
}

static PyObject *py_client_close(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *forgotten;
	int rc;

	(void)unused;
	if (c->pid != getpid() || !c->client)
		Py_RETURN_NONE;
	rc = py_client_lock_to_close(c);
	if (rc < 0)
		return NULL;
	if (rc == 0) /* another thread has just closed it */
		Py_RETURN_NONE;
	close_client(c);
	forgotten = py_client_take_forgotten(c); /* their objects keep a reference to the client */
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->streams_lock);
	pending_free_all(forgotten);
	if (py_client_has_deferred(c))
		py_client_release_now(c);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

/* No other thread can use the client any more, except the one that reads the replies of its streams. */
static void py_client_dealloc(PyObject *self)
{
	struct py_client *c = (struct py_client *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject *error_type, *value, *trace;

	PyErr_Fetch(&error_type, &value, &trace);
	if (c->client && c->pid == getpid()) {
		Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&c->lock);
		Py_END_ALLOW_THREADS c->is_interrupted = false;
		close_client(c);
		pthread_mutex_unlock(&c->lock);
		if (PyErr_Occurred())
			py_tell_later();
	}
	free_ended(c);
	free(c->launched);
	if (c->pid == getpid()) {
		py_client_release_now(c);
		pthread_mutex_destroy(&c->lock);
		pthread_mutex_destroy(&c->streams_lock);
		pthread_mutex_destroy(&c->deferred_lock);
	}
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	PyErr_Restore(error_type, value, trace);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

/* ---- What the service says ------------------------------------------------------------------------- */

typedef int document_call(tma_client *client, tma_document **ret);

static PyObject *call_document(PyObject *self, document_call *call)
{
	struct py_client *c = (struct py_client *)self;
	tma_document *document = NULL;
	int rc;

	if (!py_client_enter(c))
		return NULL;
	CLIENT_CALL(c, rc = call(c->client, &document));
	rc = py_client_check(c, rc);
	py_client_unlock(c);
	if (rc == 0)
		return document_convert(document);
	tma_document_free(document);
	return NULL;
}

static PyObject *py_client_info(PyObject *self, PyObject *unused)
{
	(void)unused;
	return call_document(self, tma_info);
}

static PyObject *py_client_stats(PyObject *self, PyObject *unused)
{
	(void)unused;
	return call_document(self, tma_stats);
}

static PyObject *py_client_regions(PyObject *self, PyObject *unused)
{
	(void)unused;
	return call_document(self, tma_regions);
}

static PyObject *py_client_ping(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;
	int rc;

	(void)unused;
	if (!py_client_enter(c))
		return NULL;
	CLIENT_CALL(c, rc = tma_ping(c->client));
	rc = py_client_check(c, rc);
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *set_limit(PyObject *self, PyObject *arg, const char *name,
                           void (*set)(tma_client *client, int ms))
{
	struct py_client *c = (struct py_client *)self;
	long ms = PyLong_AsLong(arg);

	if (ms == -1 && PyErr_Occurred())
		return NULL;
	if (ms != (int)ms) {
		PyErr_Format(PyExc_OverflowError, "%s: too many milliseconds", name);
		return NULL;
	}
	if (!py_client_lock(c))
		return NULL;
	set(c->client, (int)ms);
	py_client_unlock(c);
	Py_RETURN_NONE;
}

static PyObject *py_client_set_timeout(PyObject *self, PyObject *arg)
{
	return set_limit(self, arg, "timeout", tma_set_timeout);
}

static PyObject *py_client_set_reconnect(PyObject *self, PyObject *arg)
{
	return set_limit(self, arg, "reconnect", tma_set_reconnect);
}

/* Client.defer_releases() makes destructors wake the event loop instead of waiting for replies. */
static PyObject *py_client_defer_releases(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;

	(void)unused;
	if (!py_client_lock(c))
		return NULL;
	if (c->wake_fd < 0)
		c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->is_deferring = c->wake_fd >= 0;
	py_client_unlock(c);
	Py_RETURN_NONE;
}

/* Client.release_deferred() releases what destructors have left, and waits for the replies. */
static PyObject *py_client_release_deferred(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;

	(void)unused;
	if (c->pid == getpid())
		py_client_release_all(c);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *get_has_deferred(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(py_client_has_deferred((struct py_client *)self));
}

static PyObject *py_client_last_result(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;
	struct tma_result r;

	(void)unused;
	if (!py_client_lock(c))
		return NULL;
	r = *tma_last_result(c->client);
	py_client_unlock(c);
	return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:K,s:K,s:I}", "path", r.path, "bytes",
	                     (unsigned long long)r.bytes, "ns", (unsigned long long)r.ns, "moved",
	                     (unsigned long long)r.moved, "passed", (unsigned long long)r.passed, "beyond",
	                     (unsigned long long)r.beyond, "pieces", (unsigned long long)r.pieces, "repeats",
	                     (unsigned)r.repeats);
}

/* ---- The type -------------------------------------------------------------------------------------- */

static PyObject *get_path(PyObject *self, void *unused)
{
	struct py_client *c = (struct py_client *)self;
	PyObject *path;

	(void)unused;
	if (!py_client_lock(c))
		return NULL;
	path = PyUnicode_DecodeFSDefault(tma_socket_path(c->client));
	py_client_unlock(c);
	return path;
}

static PyObject *get_reconnects(PyObject *self, void *unused)
{
	struct py_client *c = (struct py_client *)self;
	uint32_t n;

	(void)unused;
	if (!py_client_lock(c))
		return NULL;
	n = tma_reconnects(c->client);
	py_client_unlock(c);
	return PyLong_FromUnsignedLong(n);
}

static PyObject *get_is_local(PyObject *self, void *unused)
{
	struct py_client *c = (struct py_client *)self;

	(void)unused;
	return PyBool_FromLong(c->is_local);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct py_client *)self)->client == NULL);
}

static PyGetSetDef py_client_getset[] = {
	{ "path", get_path, NULL, "Path of the service's socket.", NULL },
	{ "reconnects", get_reconnects, NULL, "How often the client has reconnected by itself.", NULL },
	{ "is_local", get_is_local, NULL, "Whether it moves memory in this process, without a service.",
	  NULL },
	{ "closed", get_closed, NULL, "Whether it is closed.", NULL },
	{ "has_deferred", get_has_deferred, NULL, "Whether there is something to release.", NULL },
	{ 0 },
};

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

static PyMethodDef py_client_methods[] = {
	{ "close", py_client_close, METH_NOARGS,
	  "close()\n--\n\nCloses the connection; waits for what is in flight." },
	{ "ping", py_client_ping, METH_NOARGS, "ping()\n--\n\nReturns if the service answers." },
	{ "info", py_client_info, METH_NOARGS,
	  "info()\n--\n\nEngine, device, limits, methods and element types." },
	{ "stats", py_client_stats, METH_NOARGS, "stats()\n--\n\nCounters of the whole service." },
	{ "regions", py_client_regions, METH_NOARGS, "regions()\n--\n\nThe regions of this connection." },
	{ "set_timeout", py_client_set_timeout, METH_O,
	  "set_timeout(ms)\n--\n\nLimits later calls; -1: no limit." },
	{ "set_reconnect", py_client_set_reconnect, METH_O,
	  "set_reconnect(ms)\n--\n\nFor how long later calls try to connect again; -1: they do not." },
	{ "last_result", py_client_last_result, METH_NOARGS,
	  "last_result()\n--\n\nWhat the last request did." },
	{ "create", py_client_create, METH_VARARGS,
	  "create(size, device=None, is_shared=False)\n--\n\nA region of zeroed host memory." },
	{ "allocate", py_client_allocate, METH_VARARGS,
	  "allocate(size, device=None, zeroed=True)\n--\n\nThe same for an array: small ones share regions." },
	{ "register", py_client_register, METH_VARARGS,
	  "register(tensor, readonly, mapping=None)\n--\n\nA region of a tensor's memory; mapping is the mmap that has it." },
	{ "is_shared", py_client_is_shared, METH_VARARGS,
	  "is_shared(tensor)\n--\n\nWhether the service has a tensor's memory; device memory is registered." },
	{ "run", WITH_KEYWORDS(py_client_run),
	  "run(request, stream, **order)\n--\n\nRuns a request and waits for its end; without a service, behind "
	  "what is on a stream." },
	{ "submit", WITH_KEYWORDS(py_client_submit),
	  "submit(request, token, **order)\n--\n\nStarts a request; completed() returns its end, or wait() if the token "
	  "is None." },
	{ "wait", py_client_wait, METH_VARARGS, "wait(ticket)\n--\n\nWaits for a submitted request." },
	{ "settle", py_client_settle, METH_O,
	  "settle(request)\n--\n\nWaits until a request is not under way, however it ends." },
	{ "forget", py_client_forget, METH_VARARGS, "forget(ticket)\n--\n\nNobody will ask for its end." },
	{ "cancel", py_client_cancel, METH_VARARGS,
	  "cancel(ticket)\n--\n\nWhether it was canceled before it started." },
	{ "completed", py_client_completed, METH_NOARGS,
	  "completed()\n--\n\nReads what has arrived: a list of (token, status, message), one for each that ended." },
	{ "poll_fds", py_client_poll_fds, METH_NOARGS,
	  "poll_fds()\n--\n\nThe socket, whether to poll it for writing, and a descriptor that becomes readable." },
	{ "defer_releases", py_client_defer_releases, METH_NOARGS,
	  "defer_releases()\n--\n\nFrom now on destructors do not wait: the wake descriptor says that there is something "
	  "for release_deferred()." },
	{ "release_deferred", py_client_release_deferred, METH_NOARGS,
	  "release_deferred()\n--\n\nReleases what destructors have left." },
	{ "enqueue", WITH_KEYWORDS(py_client_enqueue),
	  "enqueue(request, stream, **order)\n--\n\nStarts a request between what a CUDA stream has and will get." },
	{ "permuted", (PyCFunction)(void (*)(void))py_client_permuted, METH_FASTCALL,
	  "permuted(src, axes, out, is_reversed, takes_host)\n--\n\nThe result of a move that only permutes, of arrays with "
	  "DLPack's table of C functions; None: it is no such move." },
	{ "synchronize", py_client_synchronize, METH_VARARGS,
	  "synchronize(stream=None)\n--\n\nWaits for all that was enqueued on streams; without a service, on one." },
	{ "stream_point", py_client_stream_point, METH_VARARGS,
	  "stream_point(region, offset, value, stream, is_wait)\n--\n\nA stream signals a point, or waits for it." },
	{ "explain", py_client_explain, METH_VARARGS,
	  "explain(request, engine)\n--\n\nThe plan of a transform." },
	{ "picture", py_client_picture, METH_VARARGS,
	  "picture(request, engine)\n--\n\nThe same, drawn, as SVG." },
	{ 0 },
};

PyDoc_STRVAR(py_client_doc,
             "Client(path=None, timeout_ms=-1, reconnect_ms=5000, server_uid=None)\n--\n\n"
             "A connection to tmad. Any thread may use it; calls of several threads take turns.");

static PyType_Slot py_client_slots[] = {
	{ Py_tp_doc, (void *)py_client_doc }, { Py_tp_new, py_client_new },
	{ Py_tp_dealloc, py_client_dealloc }, { Py_tp_methods, py_client_methods },
	{ Py_tp_getset, py_client_getset },   { 0 },
};

PyType_Spec py_client_spec = {
	.name = "tmaclient._core.Client",
	.basicsize = sizeof(struct py_client),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = py_client_slots,
};
