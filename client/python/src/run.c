/* SPDX-License-Identifier: Apache-2.0 */
/* Runs requests. Client.run starts a request and waits for its end. Client.submit and Client.wait do these
 * two steps separately, and an event loop learns from Client.completed which requests have ended.
 *
 * Each submitted request has a struct pending. It is in the client's list `flying` while the request is under
 * way. When the request has ended it moves to the list `ended`, from which one of Client.wait,
 * Client.completed and py_client_take_forgotten takes and frees it. The client's lock protects both lists. */
#include "core.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- Orders ---------------------------------------------------------------------------------------- */

/* Reads a point from a tuple (region, offset, value). None leaves *ret as it is. */
static int parse_point(const struct py_client *c, PyObject *object, struct tma_point *ret)
{
	uint64_t offset, value;
	struct py_region *region;

	if (object == Py_None)
		return 0;
	if (!PyTuple_Check(object)) {
		PyErr_Format(PyExc_TypeError, "wait, signal: %R is no point of a timeline", object);
		return -1;
	}
	if (!PyArg_ParseTuple(object, "O!O&O&:point", core.region_type, &region, parse_u64, &offset,
	                      parse_u64, &value))
		return -1;
	if (region->client != c) {
		PyErr_SetString(PyExc_ValueError, "wait, signal: the timeline belongs to another client");
		return -1;
	}
	if (!region->region) {
		PyErr_SetString(PyExc_ValueError, "the timeline was released");
		return -1;
	}
	if (region->block) {
		PyErr_SetString(PyExc_ValueError, "wait, signal: the region is an array's, and no timeline");
		return -1;
	}
	*ret = (struct tma_point){ .region = region->region, .offset = offset, .value = value };
	return 0;
}

/* Reads the keywords of an order. Returns 0, or -1 with an exception. */
static int parse_order(const struct py_client *c, PyObject *kwargs, struct tma_order *ret,
                       bool *ret_has_points)
{
	static char *names[] = { "wait",         "signal",      "wait_ms", "priority", "multiprocessors",
		                 "host_threads", "deadline_ms", NULL };
	PyObject *none, *wait = Py_None, *signal = Py_None;
	int priority = TMA_PRIORITY_NORMAL, rc;

	*ret = (struct tma_order){ 0 };
	*ret_has_points = false;
	if (!kwargs)
		return 0;
	none = PyTuple_New(0);
	if (!none)
		return -1;
	rc =
	    PyArg_ParseTupleAndKeywords(none, kwargs, "|$OOO&iO&O&O&:order", names, &wait, &signal, parse_u32,
	                                &ret->wait_ms, &priority, parse_u32, &ret->multiprocessors, parse_u32,
	                                &ret->host_threads, parse_u32, &ret->deadline_ms)
		? 0
		: -1;
	Py_DECREF(none);
	if (rc < 0 || parse_point(c, wait, &ret->wait) < 0 || parse_point(c, signal, &ret->signal) < 0)
		return -1;
	ret->priority = (enum tma_priority)priority;
	*ret_has_points = wait != Py_None || signal != Py_None;
	return 0;
}

int order_parse_enqueued(const struct py_client *c, PyObject *kwargs, struct tma_order *ret)
{
	bool has_points;

	if (parse_order(c, kwargs, ret, &has_points) < 0)
		return -1;
	if (ret->deadline_ms) {
		PyErr_SetString(PyExc_ValueError, "deadline: what goes into a stream begins in its turn");
		return -1;
	}
	if (!has_points)
		return 0;
	if (c->is_local && !ret->wait_ms)
		return 0;
	if (c->is_local)
		PyErr_SetString(PyExc_ValueError, "wait_timeout: a stream waits without a limit");
	else
		PyErr_SetString(
		    PyExc_ValueError,
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
		if (r->items)
			return tma_run_items(c->client, r->items, 1, order);
		return tma_plan_run(c->client, q->plan->plan, r->dst_place, r->src_place, order);
	case REQUEST_BLOCKS:
		r->blocks.order = order;
		return q->is_scatter ? tma_scatter(c->client, &r->blocks) : tma_gather(c->client, &r->blocks);
	case REQUEST_ITEMS:
		return tma_run_items(c->client, r->items, r->n_items, order);
	case REQUEST_RESHARD:
		r->reshard.order = order;
		return tma_reshard(c->client, &r->reshard);
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
		if (r->items)
			return tma_submit_items(c->client, r->items, 1, order, ret);
		return tma_submit_run(c->client, q->plan->plan, r->dst_place, r->src_place, order, ret);
	case REQUEST_BLOCKS:
		r->blocks.order = order;
		return q->is_scatter ? tma_submit_scatter(c->client, &r->blocks, ret)
		                     : tma_submit_gather(c->client, &r->blocks, ret);
	case REQUEST_ITEMS:
		return tma_submit_items(c->client, r->items, r->n_items, order, ret);
	case REQUEST_RESHARD:
		r->reshard.order = order;
		return tma_submit_reshard(c->client, &r->reshard, ret);
	}
	return TMA_INTERNAL;
}

int resolved_enqueue(struct py_client *c, const struct py_request *q, struct resolved *r,
                     const struct tma_order *order, void *stream)
{
	switch (q->kind) {
	case REQUEST_TRANSFORM:
		r->transform.order = order;
		return tma_enqueue(c->client, &r->transform, stream);
	case REQUEST_PLAN:
		if (r->items)
			return tma_enqueue_items(c->client, r->items, 1, order, stream);
		return tma_enqueue_run(c->client, q->plan->plan, r->dst_place, r->src_place, order, stream);
	case REQUEST_BLOCKS:
		r->blocks.order = order;
		return q->is_scatter ? tma_enqueue_scatter(c->client, &r->blocks, stream)
		                     : tma_enqueue_gather(c->client, &r->blocks, stream);
	case REQUEST_ITEMS:
		return tma_enqueue_items(c->client, r->items, r->n_items, order, stream);
	case REQUEST_RESHARD:
		r->reshard.order = order;
		return tma_reshard(c->client, &r->reshard);
	}
	return TMA_INTERNAL;
}

/* Waits for the end of the request with this ticket and sets *ret to its result. Returns the request's
 * status. Caller holds the lock and not the GIL. Meanwhile also takes the completions of requests in CUDA
 * streams: a stream continues after a failed request only when its completion is taken, and this request may
 * be queued behind others that wait for such a stream. */
static int wait_ticket(struct py_client *c, tma_ticket ticket, struct tma_result *ret)
{
	while (streams_are_pending(c) && !c->is_interrupted) {
		struct tma_completed completed;
		int rc = tma_next(c->client, 100, &completed);

		if (rc < 0)
			break;
		if (rc == 0 && completed.ticket == ticket) {
			*ret = completed.result;
			return ret->status;
		}
		if (rc == 0)
			py_client_take_completed(c, &completed);
	}
	return tma_wait(c->client, ticket, ret);
}

static int run(struct py_client *c, const struct py_request *q, struct resolved *r, struct tma_order *order)
{
	struct tma_result result;
	tma_ticket ticket;
	int rc;

	if (!streams_are_pending(c))
		return resolved_run(c, q, r, order);
	rc = resolved_submit(c, q, r, order, &ticket);
	return rc < 0 ? rc : wait_ticket(c, ticket, &result);
}

/* Client.run(request, stream, **order) runs a request and waits for its end. stream is optional, and only for
 * a client without a service: the request then runs after all work that is queued in the stream. */
PyObject *py_client_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_client *c = (struct py_client *)self;
	PyObject *request, *number = NULL;
	struct cuda_stream stream;
	struct tma_order order;
	struct resolved r;
	bool has_points;
	int rc;

	if (!PyArg_ParseTuple(args, "O!|O:run", core.request_type, &request, &number) ||
	    (number && cuda_stream_parse(number, &stream) < 0) ||
	    parse_order(c, kwargs, &order, &has_points) < 0)
		return NULL;
	if (number) {
		if (launch_and_wait(c, &stream, (struct py_request *)request, &order) < 0)
			return NULL;
		Py_RETURN_NONE;
	}
	if (!py_client_enter(c))
		return NULL;
	rc = py_request_resolve(c, (struct py_request *)request, &r);
	if (rc == 0) {
		CLIENT_CALL(c, rc = run(c, (struct py_request *)request, &r, &order));
		rc = py_client_check(c, rc);
		resolved_deinit(&r);
	}
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- Tickets --------------------------------------------------------------------------------------- */

void py_client_add_pending(struct py_client *c, struct pending *pending)
{
	c->n_pending++;
	pending->next_flying = c->flying;
	pending->link_flying = &c->flying;
	if (c->flying)
		c->flying->link_flying = &pending->next_flying;
	c->flying = pending;
}

static void end_flight(struct py_client *c, struct pending *pending)
{
	c->n_pending--;
	*pending->link_flying = pending->next_flying;
	if (pending->next_flying)
		pending->next_flying->link_flying = pending->link_flying;
}

static void add_ended(struct py_client *c, struct pending *pending)
{
	pending->next = NULL;
	*c->ended_tail = pending;
	c->ended_tail = &pending->next;
	c->has_forgotten = c->has_forgotten || pending->is_forgotten;
	if (c->wake_fd >= 0)
		eventfd_write(c->wake_fd, 1);
}

static struct pending *find_flying(struct py_client *c, tma_ticket ticket)
{
	struct pending *pending = c->flying;

	while (pending && pending->ticket != ticket)
		pending = pending->next_flying;
	return pending;
}

void py_client_take_completed(struct py_client *c, const struct tma_completed *completed)
{
	struct pending *pending = completed->user;

	end_flight(c, pending);
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
	add_ended(c, pending);
}

void py_client_end_pending(struct py_client *c)
{
	while (c->flying) {
		struct pending *pending = c->flying;

		end_flight(c, pending);
		if (!pending->request) {
			pending_free(pending);
			continue;
		}
		pending->result.status = TMA_DISCONNECTED;
		pending->message = strdup("the client was closed before the request had ended");
		add_ended(c, pending);
	}
}

void py_client_take_ended(struct py_client *c)
{
	struct tma_completed completed;

	while (c->client && c->n_pending && tma_next(c->client, 0, &completed) == 0)
		py_client_take_completed(c, &completed);
}

struct py_ticket {
	PyObject ob_base;
	struct py_client *client;
	tma_ticket number; /* ticket of the request; 0: nothing was submitted */
	bool has_token;    /* Client.completed reports the request's end, so the Ticket does not forget it */
};

/* Cancels a request of a client without a service or, if the request has started, waits for its end.
 * Otherwise it would go on moving memory of this process that no object keeps alive any more. Caller holds
 * the lock and need not hold the GIL. */
static void end_here(struct py_client *c, struct pending *pending)
{
	struct tma_completed completed = { .ticket = pending->ticket, .user = pending };

	pending->is_forgotten = true;
	tma_cancel(c->client, pending->ticket);
	tma_wait(c->client, pending->ticket, &completed.result);
	py_client_take_completed(c, &completed);
}

/* Forgets a request: nobody will ask for its end. Caller holds the lock and need not hold the GIL.
 *
 * A request that is under way at the service drops its references to Python objects at once. They keep the
 * client alive, and perhaps no later call on the client would notice the request's end. The service keeps the
 * memory until then. `objects`, which must be zeroed and is owned by this function from now on, carries the
 * references to the list `ended`, where py_client_take_forgotten finds them. */
static void forget(struct py_client *c, tma_ticket ticket, struct pending *objects)
{
	struct pending *pending = find_flying(c, ticket);

	if (pending && pending->request && c->is_local) {
		end_here(c, pending);
		free(objects);
		return;
	}
	if (pending && pending->request) {
		slabs_retire_of(c);
		objects->request = pending->request;
		objects->token = pending->token;
		objects->is_forgotten = true;
		pending->request = pending->token = NULL;
		add_ended(c, objects);
		return;
	}
	free(objects);
	for (pending = c->ended; pending; pending = pending->next)
		if (pending->ticket == ticket)
			pending->is_forgotten = c->has_forgotten = true;
}

struct remains {
	struct py_client *client;
	tma_ticket ticket;
	struct pending *objects;
};

static void release(void *arg)
{
	struct remains *remains = arg;

	forget(remains->client, remains->ticket, remains->objects);
	free(remains);
}

/* A Ticket that is destroyed forgets its request. So a request cannot stay behind unnoticed if an exception,
 * which may occur between any two bytecodes, keeps the caller from waiting for it. */
static void py_ticket_dealloc(PyObject *self)
{
	struct py_ticket *ticket = (struct py_ticket *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (ticket->number && !ticket->has_token) {
		struct pending *objects = calloc(1, sizeof *objects);
		struct remains *remains = objects ? malloc(sizeof *remains) : NULL;

		if (remains) {
			*remains = (struct remains){ ticket->client, ticket->number, objects };
			py_client_release(ticket->client, release, remains);
		} else /* out of memory: the request stays until the client is closed */
			free(objects);
	}
	Py_XDECREF((PyObject *)ticket->client);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyObject *py_ticket_index(PyObject *self)
{
	return PyLong_FromUnsignedLongLong(((struct py_ticket *)self)->number);
}

static PyType_Slot py_ticket_slots[] = {
	{ Py_tp_doc, (void *)"The ticket of a request. What waits for none is forgotten with it." },
	{ Py_tp_dealloc, py_ticket_dealloc },
	{ Py_nb_index, py_ticket_index },
	{ 0 },
};

PyType_Spec py_ticket_spec = {
	.name = "tmaclient._core.Ticket",
	.basicsize = sizeof(struct py_ticket),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = py_ticket_slots,
};

/* Client.submit(request, token, **order) submits a request and returns its Ticket. token is the object with
 * which Client.completed will report the request's end; None: Client.wait takes the end. */
PyObject *py_client_submit(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *pending;
	struct py_ticket *ret;
	struct tma_order order;
	PyObject *request, *token;
	tma_ticket ticket = 0;
	struct resolved r;
	bool has_points;
	int rc;

	if (!PyArg_ParseTuple(args, "O!O:submit", core.request_type, &request, &token) ||
	    parse_order(c, kwargs, &order, &has_points) < 0)
		return NULL;
	ret = (struct py_ticket *)PyType_GenericAlloc(core.ticket_type, 0);
	if (!ret)
		return NULL;
	Py_INCREF(self);
	ret->client = c;
	ret->has_token = token != Py_None;
	pending = calloc(1, sizeof *pending);
	if (!pending) {
		Py_DECREF((PyObject *)ret);
		return PyErr_NoMemory();
	}
	if (!py_client_enter(c)) {
		free(pending);
		Py_DECREF((PyObject *)ret);
		return NULL;
	}
	order.user = pending;
	rc = py_request_resolve(c, (struct py_request *)request, &r);
	if (rc == 0) {
		Py_INCREF(request);
		Py_INCREF(token);
		pending->request = request;
		pending->token = token;
		pending->of = request;
		CLIENT_CALL(c, rc = resolved_submit(c, (struct py_request *)request, &r, &order, &ticket));
		if (rc == 0) {
			pending->ticket = ticket;
			pending->items = r; /* the library writes the items' statuses when the request ends */
			py_client_add_pending(c, pending);
		} else
			resolved_deinit(&r);
		if (py_client_check(c, rc) < 0 && rc == 0 && c->is_local) {
			CLIENT_CALL(c, end_here(c, pending));
			rc = -1;
			pending = NULL;
		} else if (rc == 0 && PyErr_Occurred()) { /* interrupted; forget it */
			slabs_retire_of(c);
			pending->request = pending->token = NULL;
			Py_DECREF(request);
			Py_DECREF(token);
			rc = -1;
			pending = NULL;
		}
	}
	py_client_unlock(c);
	if (rc < 0) {
		if (pending)
			pending_free(pending);
		Py_DECREF((PyObject *)ret);
		return NULL;
	}
	ret->number = ticket;
	return (PyObject *)ret;
}

/* Removes the request with this ticket, or the first if ticket is 0, from those that have ended. Returns NULL
 * if there is none. Caller holds the lock. */
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

void pending_free_all(struct pending *first)
{
	while (first) {
		struct pending *next = first->next;

		pending_free(first);
		first = next;
	}
}

struct pending *py_client_take_forgotten(struct py_client *c)
{
	struct pending **at = &c->ended, *taken = NULL;

	if (!c->has_forgotten)
		return NULL;
	c->has_forgotten = false;
	while (*at) {
		struct pending *pending = *at;

		if (pending->is_forgotten) {
			*at = pending->next;
			pending->next = taken;
			taken = pending;
		} else
			at = &pending->next;
	}
	c->ended_tail = at;
	return taken;
}

/* Waits for the end of a request that is under way. Caller holds the lock. Returns 0, or -1 with an exception
 * that a signal's handler has raised. */
static int await_end(struct py_client *c, struct pending *pending)
{
	struct tma_completed completed = { .ticket = pending->ticket, .user = pending };

	CLIENT_CALL(c, wait_ticket(c, pending->ticket, &completed.result));
	py_client_take_completed(c, &completed);
	return py_client_check(c, 0);
}

/* Client.settle(request) waits until the request is not under way any more, however often it was submitted
 * and however it ends. */
PyObject *py_client_settle(PyObject *self, PyObject *request)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *pending;
	int rc = py_client_lock_if_open(c);

	if (rc < 0)
		return NULL;
	if (rc == 0)
		Py_RETURN_NONE;
	do {
		pending = c->flying;
		while (pending && pending->of != request)
			pending = pending->next_flying;
		rc = pending ? await_end(c, pending) : 0;
	} while (pending && rc == 0);
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Client.wait(ticket) waits for a request and raises its error. */
PyObject *py_client_wait(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *pending;
	uint64_t ticket;
	int rc = 0;

	if (!PyArg_ParseTuple(args, "O&:wait", parse_u64, &ticket) || !py_client_lock(c))
		return NULL;
	pending = find_flying(c, ticket);
	if (pending)
		rc = await_end(c, pending);
	pending = take_ended(c, ticket);
	py_client_unlock(c);
	if (!pending)
		raise_status(TMA_NOT_FOUND, "no request has the ticket %llu", (unsigned long long)ticket);
	else if (rc == 0 && pending->result.status < 0)
		rc = raise_status(pending->result.status, "%s", pending->message ? pending->message : "");
	if (pending)
		pending_free(pending);
	if (!pending || rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

PyObject *py_client_forget(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	struct pending *objects;
	uint64_t ticket;

	if (!PyArg_ParseTuple(args, "O&:forget", parse_u64, &ticket))
		return NULL;
	objects = calloc(1, sizeof *objects);
	if (!objects)
		return PyErr_NoMemory();
	if (!py_client_lock(c)) {
		free(objects);
		return NULL;
	}
	forget(c, ticket, objects);
	py_client_unlock(c);
	Py_RETURN_NONE;
}

/* Client.cancel(ticket) returns whether the request was canceled before it started. */
PyObject *py_client_cancel(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	uint64_t ticket;
	int rc;

	if (!PyArg_ParseTuple(args, "O&:cancel", parse_u64, &ticket) || !py_client_lock(c))
		return NULL;
	CLIENT_CALL(c, rc = tma_cancel(c->client, ticket));
	rc = py_client_check(c, rc == TMA_NOT_FOUND ? 0 : rc);
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	return PyBool_FromLong(rc == 1);
}

/* ---- In an event loop ------------------------------------------------------------------------------ */

/* Client.poll_fds() returns (socket, whether to poll it for writing, the eventfd wake_fd). The socket is -1
 * while the client is not connected. */
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

/* Removes the requests with a token other than None from the list `ended`, and returns them in the order in
 * which they ended. Caller holds the lock. Leaves those whose token is None, which Client.wait takes, and
 * those without a token, for which nobody asks. */
static struct pending *take_all_ended(struct py_client *c)
{
	struct pending **at = &c->ended, *taken = NULL, **tail = &taken;

	while (*at) {
		struct pending *pending = *at;

		if (!pending->token || pending->token == Py_None) {
			at = &pending->next;
			continue;
		}
		*at = pending->next;
		pending->next = NULL;
		*tail = pending;
		tail = &pending->next;
	}
	c->ended_tail = at;
	return taken;
}

/* Client.completed() reads what has arrived, and returns a list of (token, status, message) of the requests
 * that have ended. Works also for a closed client, whose requests ended when it was closed. */
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
	pending = take_all_ended(c);
	if (c->client)
		py_client_unlock(c);
	for (; pending; pending = next) {
		PyObject *entry =
		    Py_BuildValue("Oiz", pending->token, pending->result.status, pending->message);

		next = pending->next;
		if (!entry || PyList_Append(list, entry) < 0)
			PyErr_Clear(); /* out of memory: this entry is lost, but the others must not be */
		Py_XDECREF(entry);
		pending_free(pending);
	}
	return list;
}
