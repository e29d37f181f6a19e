/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run a request: and wait, by ticket, or by ticket in an event loop. */
#include "core.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- Orders ---------------------------------------------------------------------------------------- */

/* (region, offset, value), or None. */
static int parse_point(PyObject *object, struct tma_point *ret)
{
	unsigned long long offset, value;
	struct py_region *region;

	if (object == Py_None)
		return 0;
	if (!PyArg_ParseTuple(object, "O!KK:point", core.region_type, &region, &offset, &value))
		return -1;
	if (!region->region) {
		PyErr_SetString(PyExc_ValueError, "the timeline was released");
		return -1;
	}
	*ret = (struct tma_point){ .region = region->region, .offset = offset, .value = value };
	return 0;
}

/* The keywords wait, signal, wait_ms, priority, multiprocessors and host_threads. */
static int parse_order(PyObject *kwargs, struct tma_order *ret, bool *ret_has_points)
{
	static char *names[] = { "wait",         "signal", "wait_ms", "priority", "multiprocessors",
		                 "host_threads", NULL };
	PyObject *none, *wait = Py_None, *signal = Py_None;
	int priority = TMA_PRIORITY_NORMAL, rc;

	*ret = (struct tma_order){ 0 };
	*ret_has_points = false;
	if (!kwargs)
		return 0;
	none = PyTuple_New(0);
	if (!none)
		return -1;
	rc = PyArg_ParseTupleAndKeywords(none, kwargs, "|$OOIiII:order", names, &wait, &signal, &ret->wait_ms,
	                                 &priority, &ret->multiprocessors, &ret->host_threads)
	         ? 0
	         : -1;
	Py_DECREF(none);
	if (rc < 0 || parse_point(wait, &ret->wait) < 0 || parse_point(signal, &ret->signal) < 0)
		return -1;
	ret->priority = (enum tma_priority)priority;
	*ret_has_points = wait != Py_None || signal != Py_None;
	return 0;
}

int order_parse_enqueued(PyObject *kwargs, struct tma_order *ret)
{
	bool has_points;

	if (parse_order(kwargs, ret, &has_points) < 0)
		return -1;
	if (!has_points)
		return 0;
	PyErr_SetString(PyExc_ValueError,
	                "wait, signal: device memory is ordered by its stream; let the stream wait "
	                "for the point, or signal it (Timeline.wait and Timeline.signal with stream=)");
	return -1;
}

/* ---- Running --------------------------------------------------------------------------------------- */

int resolved_run(struct py_client *c, const struct py_request *q, struct resolved *r,
                 const struct tma_order *order)
{
	switch (q->kind) {
	case REQUEST_TRANSFORM:
		r->transform.order = order;
		return tma_transform(c->client, &r->transform);
	case REQUEST_PLAN:
		return tma_plan_run(c->client, q->plan->plan, r->dst_place, r->src_place, order);
	case REQUEST_BLOCKS:
		r->blocks.order = order;
		return q->is_scatter ? tma_scatter(c->client, &r->blocks) : tma_gather(c->client, &r->blocks);
	case REQUEST_ITEMS:
		return tma_run_items(c->client, r->items, r->n_items, order);
	}
	return TMA_INTERNAL;
}

int resolved_submit(struct py_client *c, const struct py_request *q, struct resolved *r,
                    const struct tma_order *order, tma_ticket *ret)
{
	switch (q->kind) {
	case REQUEST_TRANSFORM:
		r->transform.order = order;
		return tma_submit(c->client, &r->transform, ret);
	case REQUEST_PLAN:
		return tma_submit_run(c->client, q->plan->plan, r->dst_place, r->src_place, order, ret);
	case REQUEST_BLOCKS:
		r->blocks.order = order;
		return q->is_scatter ? tma_submit_scatter(c->client, &r->blocks, ret)
		                     : tma_submit_gather(c->client, &r->blocks, ret);
	case REQUEST_ITEMS:
		return tma_submit_items(c->client, r->items, r->n_items, order, ret);
	}
	return TMA_INTERNAL;
}

/* Client.run(request, **order) */
PyObject *py_client_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_client *c = (struct py_client *)self;
	struct tma_order order;
	PyObject *request;
	struct resolved r;
	bool has_points;
	int rc;

	if (!PyArg_ParseTuple(args, "O!:run", core.request_type, &request) ||
	    parse_order(kwargs, &order, &has_points) < 0 || !py_client_lock(c))
		return NULL;
	rc = py_request_resolve(c, (struct py_request *)request, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = resolved_run(c, (struct py_request *)request, &r, &order));
		if (rc < 0)
			py_client_raise(c, rc);
		resolved_deinit(&r);
	}
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Tickets --------------------------------------------------------------------------------------- */

void py_client_take_completed(struct py_client *c, const struct tma_completed *completed)
{
	struct pending *pending = completed->user;

	c->n_pending--;
	pending->result = completed->result;
	if (completed->result.status < 0)
		pending->message = strdup(tma_last_error(c->client));
	if (pending->stream)
		streams_end(c, pending);
	if (!pending->request) {
		resolved_deinit(&pending->items);
		free(pending->message);
		free(pending);
		return;
	}
	pending->next = NULL;
	*c->ended_tail = pending;
	c->ended_tail = &pending->next;
	if (c->wake_fd >= 0)
		eventfd_write(c->wake_fd, 1);
}

void py_client_take_ended(struct py_client *c)
{
	struct tma_completed completed;

	while (c->n_pending && tma_next(c->client, 0, &completed) == 0)
		py_client_take_completed(c, &completed);
}

/* Client.submit(request, token, **order): a ticket. */
PyObject *py_client_submit(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *pending;
	struct tma_order order;
	PyObject *request, *token;
	tma_ticket ticket = 0;
	struct resolved r;
	bool has_points;
	int rc;

	if (!PyArg_ParseTuple(args, "O!O:submit", core.request_type, &request, &token) ||
	    parse_order(kwargs, &order, &has_points) < 0)
		return NULL;
	pending = calloc(1, sizeof *pending);
	if (!pending)
		return PyErr_NoMemory();
	if (!py_client_lock(c)) {
		free(pending);
		return NULL;
	}
	order.user = pending;
	rc = py_request_resolve(c, (struct py_request *)request, &r);
	if (rc == 0) {
		Py_INCREF(request);
		Py_INCREF(token);
		pending->request = request;
		pending->token = token;
		CLIENT_CALL(c, rc = resolved_submit(c, (struct py_request *)request, &r, &order, &ticket));
		if (rc < 0)
			py_client_raise(c, rc);
		else {
			pending->ticket = ticket;
			pending->items = r; /* their statuses are written when the request ends */
			c->n_pending++;
		}
		if (rc < 0)
			resolved_deinit(&r);
	}
	py_client_unlock(c);
	if (rc < 0) {
		Py_XDECREF(pending->request);
		Py_XDECREF(pending->token);
		free(pending);
		return NULL;
	}
	return PyLong_FromUnsignedLongLong(ticket);
}

/* With the lock: of those that ended, the one with this ticket, or the first; NULL: none. */
static struct pending *take_ended(struct py_client *c, tma_ticket ticket)
{
	struct pending **at = &c->ended, *pending;

	while (*at && ticket && (*at)->ticket != ticket)
		at = &(*at)->next;
	pending = *at;
	if (!pending)
		return NULL;
	*at = pending->next;
	if (c->ended_tail == &pending->next)
		c->ended_tail = at;
	return pending;
}

void pending_free(struct pending *pending)
{
	resolved_deinit(&pending->items);
	Py_XDECREF(pending->request);
	Py_XDECREF(pending->token);
	free(pending->message);
	free(pending);
}

/* Client.wait(ticket) */
PyObject *py_client_wait(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	unsigned long long ticket;
	struct pending *pending;
	PyObject *result = NULL;

	if (!PyArg_ParseTuple(args, "K:wait", &ticket) || !py_client_lock(c))
		return NULL;
	while ((pending = take_ended(c, ticket)) == NULL) {
		struct tma_completed completed;
		int rc;

		if (!c->n_pending) {
			raise_status(TMA_NOT_FOUND, "no request has the ticket %llu", ticket);
			break;
		}
		CLIENT_CALL(c, rc = tma_next(c->client, 1000, &completed));
		if (PyErr_Occurred())
			break;
		if (rc == 0)
			py_client_take_completed(c, &completed);
		else if (rc < 0) {
			py_client_raise(c, rc);
			break;
		}
	}
	py_client_unlock(c);
	if (!pending)
		return NULL;
	if (pending->result.status < 0)
		raise_status(pending->result.status, "%s", pending->message ? pending->message : "");
	else {
		Py_INCREF(Py_None);
		result = Py_None;
	}
	pending_free(pending);
	return result;
}

/* Client.cancel(ticket) */
PyObject *py_client_cancel(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	unsigned long long ticket;
	int rc;

	if (!PyArg_ParseTuple(args, "K:cancel", &ticket) || !py_client_lock(c))
		return NULL;
	CLIENT_CALL(c, rc = tma_cancel(c->client, ticket));
	if (rc < 0 && rc != TMA_NOT_FOUND)
		py_client_raise(c, rc);
	py_client_unlock(c);
	if (rc < 0 && rc != TMA_NOT_FOUND)
		return NULL;
	return PyBool_FromLong(rc == 1);
}

/* ---- In an event loop ------------------------------------------------------------------------------ */

/* Client.poll_fds(): (socket, whether to wait for room to write, wake descriptor). */
PyObject *py_client_poll_fds(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;
	int fd, wants_write;

	(void)unused;
	if (!py_client_lock(c))
		return NULL;
	if (c->wake_fd < 0)
		c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fd = tma_fd(c->client);
	wants_write = (tma_events(c->client) & POLLOUT) != 0;
	py_client_unlock(c);
	return Py_BuildValue("iNi", fd, PyBool_FromLong(wants_write), c->wake_fd);
}

/* Client.completed() */
PyObject *py_client_completed(PyObject *self, PyObject *unused)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *pending, *next;
	PyObject *list = PyList_New(0);
	eventfd_t count;

	(void)unused;
	if (!list)
		return NULL;
	if (c->client) {
		if (!py_client_lock(c)) {
			Py_DECREF(list);
			return NULL;
		}
		if (c->wake_fd >= 0)
			eventfd_read(c->wake_fd, &count);
		tma_dispatch(c->client);
		py_client_take_ended(c);
	}
	pending = c->ended;
	c->ended = NULL;
	c->ended_tail = &c->ended;
	if (c->client)
		py_client_unlock(c);
	for (; pending; pending = next) {
		PyObject *entry =
		    Py_BuildValue("Oiz", pending->token, pending->result.status, pending->message);

		next = pending->next;
		if (!entry || PyList_Append(list, entry) < 0)
			PyErr_Clear(); /* out of memory: its end is lost, and the others' must not be */
		Py_XDECREF(entry);
		pending_free(pending);
	}
	return list;
}
