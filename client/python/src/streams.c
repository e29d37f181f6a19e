/* SPDX-License-Identifier: Apache-2.0 */
/* Puts requests of a client with a service into CUDA streams of the program. A request starts when its stream
 * has done what was queued before, and what is queued next waits for the request; the host waits for neither.
 * Each stream has two words in memory that it shares with the service, `ready` and `done`, and a request
 * takes the stream's next number for both: the stream sets `ready` to the number, for which the request
 * waits, and the request sets `done`, for which the stream waits.
 *
 * A request that fails does not signal, and its stream would wait forever. A thread therefore reads the
 * replies while requests are pending, signals in place of one that failed, and keeps the error for the next
 * call. It signals only when all earlier requests of the stream have ended, because a request may be refused
 * while they still wait or run.
 *
 * The words are in a file whose memory the CUDA driver pins, so they cannot be moved to another file. If the
 * service has sealed the file, a later connection cannot register it, and the client makes new words. The old
 * ones stay mapped until the client is closed, because streams may still have to read them.
 *
 * streams_lock is held while work is queued in streams. The client's lock protects everything else here, and
 * the thread uses only that one. */
#include "core.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/client.h"

enum {
	MOST_STREAMS = 1024,
	WORD_STEP = 64, /* bytes from one stream's words to the next's: a cache line */
	WORDS_BYTES = MOST_STREAMS * WORD_STEP,
	/* Maximum number of a client's requests in streams that have not ended. */
	MOST_PENDING = 256,
	/* Timeout of a poll for a reply, which a call in another thread may have read already. */
	POLL_MS = 20,
};

enum end { NOT_ENDED, ENDED, FAILED };

/* WORDS_LOST: the request was not submitted, because the words were lost with their connection. */
enum submitted { NOT_SUBMITTED, UNDER_WAY, WORDS_LOST };

struct stream {
	struct cuda_stream cuda;
	uint64_t last;              /* number of the last request; 0: none */
	uint64_t ended;             /* all requests up to this number have ended */
	uint8_t ends[MOST_PENDING]; /* at n % MOST_PENDING: the enum end of request n, if n > ended */
	struct streams *all;
};

/* A stream's two words, in memory that the service, the device and this process share. See the head of the
 * file. */
struct words {
	_Atomic uint64_t ready;
	_Atomic uint64_t done;
};

/* A mapping of words that a lost connection used. All requests that used it have ended. */
struct old_words {
	struct old_words *next;
	char *words;
};

struct streams {
	/* A client that is never connected and holds the error messages of calls that queue work in
	 * streams. The thread that holds streams_lock uses it. */
	tma_client *client;
	tma_region *region;
	char *words;
	uint64_t device_words;
	struct old_words *old;
	struct stream streams[MOST_STREAMS];
	size_t n;
	uint64_t n_pending;
	int status; /* status of the first failed request that no call has raised yet; 0: none */
	char *message;

	pthread_t thread;
	pthread_cond_t wake;
	bool has_thread;
	bool is_ending;
};

static uint64_t offset_of(const struct stream *stream)
{
	return (uint64_t)(stream - stream->all->streams) * WORD_STEP;
}

static struct words *words_of(const struct stream *stream)
{
	return (struct words *)(void *)(stream->all->words + offset_of(stream));
}

/* Sets the stream's `done` to the number of a request that will not set it itself. Keeps a later number,
 * which the service may have set meanwhile. */
static void signal_done(const struct stream *stream, uint64_t number)
{
	_Atomic uint64_t *done = &words_of(stream)->done;
	uint64_t now = atomic_load(done);

	while ((int64_t)(now - number) < 0 && !atomic_compare_exchange_weak(done, &now, number))
		;
}

static void end_request(struct stream *stream, uint64_t number, enum end end)
{
	stream->ends[number % MOST_PENDING] = (uint8_t)end;
	while (stream->ended < stream->last) {
		uint8_t *next = &stream->ends[(stream->ended + 1) % MOST_PENDING];

		if (*next == NOT_ENDED)
			return;
		stream->ended++;
		if (*next == FAILED)
			signal_done(stream, stream->ended);
		*next = NOT_ENDED;
	}
}

/* ---- The thread ------------------------------------------------------------------------------------ */

void streams_end(struct py_client *c, struct pending *pending)
{
	struct streams *all = pending->stream->all;
	const bool is_failed = pending->result.status != 0;

	(void)c;
	all->n_pending--;
	end_request(pending->stream, pending->value, is_failed ? FAILED : ENDED);
	if (is_failed && !pending->token && all->status == 0) {
		all->status = pending->result.status;
		all->message = pending->message;
		pending->message = NULL;
	}
}

bool streams_are_pending(const struct py_client *c)
{
	return c->streams && c->streams->n_pending;
}

static void *read_replies(void *arg)
{
	struct py_client *c = arg;
	struct streams *all = c->streams;

	pthread_mutex_lock(&c->lock);
	while (!all->is_ending) {
		struct pollfd poll_fd = { .events = POLLIN };

		if (all->n_pending == 0) {
			pthread_cond_wait(&all->wake, &c->lock);
			continue;
		}
		poll_fd.fd = tma_fd(c->client);
		pthread_mutex_unlock(&c->lock);
		poll(&poll_fd, 1, poll_fd.fd < 0 ? 1 : POLL_MS);
		pthread_mutex_lock(&c->lock);
		if (!all->is_ending) {
			tma_dispatch(c->client);
			py_client_take_ended(c);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------ */

/* Makes new words, all of them 0. Caller holds the lock. Returns 0, or -1 with an exception. */
static int make_words(struct py_client *c, struct streams *all)
{
	tma_region *region = NULL;
	uint64_t address;
	int rc;

	CLIENT_CALL(c, rc = tma_region_create_kind(c->client, TMA_REGION_MEMFD, WORDS_BYTES, &region));
	if (py_client_check(c, rc) < 0) {
		tma_region_release(region);
		return -1;
	}
	region_pin(region);
	region->is_replaceable = true;
	address = cuda_host_address(tma_region_data(region), WORDS_BYTES);
	if (!address) {
		tma_region_release(region);
		return -1;
	}
	all->region = region;
	all->words = tma_region_data(region);
	all->device_words = address;
	return 0;
}

/* Makes new words in place of those that are lost. Caller holds both locks, and no request may have taken a
 * number without having been submitted yet. The requests that used the old words ended with their connection;
 * streams_end signals in place of them before the words are replaced. Returns 0, or -1 with an exception. */
static int replace_words(struct py_client *c, struct streams *all)
{
	struct old_words *old = malloc(sizeof *old);
	tma_region *lost = all->region;

	if (!old) {
		PyErr_NoMemory();
		return -1;
	}
	*old = (struct old_words){ all->old, all->words };
	py_client_take_ended(c);
	if (make_words(c, all) < 0) {
		free(old);
		return -1;
	}
	all->old = old;
	lost->data = NULL; /* old->words is the mapping now */
	tma_region_release(lost);
	return 0;
}

/* Returns the client's streams, which the first call makes, or NULL with an exception. Caller holds the
 * lock. */
static struct streams *get_streams(struct py_client *c)
{
	struct streams *all = c->streams;

	if (all)
		return all;
	all = calloc(1, sizeof *all);
	if (all)
		all->client = tma_new();
	if (!all || !all->client) {
		free(all);
		PyErr_NoMemory();
		return NULL;
	}
	if (make_words(c, all) < 0) {
		tma_free(all->client);
		free(all);
		return NULL;
	}
	pthread_cond_init(&all->wake, NULL);
	c->streams = all;
	if (pthread_create(&all->thread, NULL, read_replies, c) != 0) {
		PyErr_SetString(PyExc_RuntimeError, "no thread can be made for the replies of streams");
		cuda_host_retire(all->words);
		c->streams = NULL;
		tma_region_release(all->region);
		pthread_cond_destroy(&all->wake);
		tma_free(all->client);
		free(all);
		return NULL;
	}
	all->has_thread = true;
	return all;
}

/* Sets c->client to NULL before it releases the lock, which the thread needs in order to end: no other call
 * can then use the client meanwhile. */
void streams_free(struct py_client *c)
{
	struct streams *all = c->streams;

	c->client = NULL;
	if (!all)
		return;
	all->is_ending = true;
	pthread_cond_signal(&all->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(all->thread, NULL);
	pthread_mutex_lock(&c->lock);
	/* Requests that have not ended will not signal any more; their streams go on. */
	for (size_t i = 0; i < all->n; i++)
		signal_done(&all->streams[i], all->streams[i].last);
	cuda_host_retire(all->words);
	while (all->old) {
		struct old_words *next = all->old->next;

		cuda_host_retire(all->old->words);
		munmap(all->old->words, WORDS_BYTES);
		free(all->old);
		all->old = next;
	}
	pthread_cond_destroy(&all->wake);
	tma_free(all->client);
	free(all->message);
	free(all);
	c->streams = NULL;
}

int streams_check(struct py_client *c)
{
	struct streams *all = c->streams;
	int status;

	if (!all || all->status == 0)
		return 0;
	status = all->status;
	all->status = 0;
	raise_status(status, "an earlier request in a stream failed: %s", all->message ? all->message : "");
	free(all->message);
	all->message = NULL;
	return -1;
}

/* ---- Enqueuing ------------------------------------------------------------------------------------- */

static struct stream *get_stream(struct streams *all, const struct cuda_stream *cuda)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->streams[i].cuda.handle == cuda->handle &&
		    ((uintptr_t)cuda->handle > LAST_DEFAULT_STREAM ||
		     all->streams[i].cuda.context == cuda->context))
			return &all->streams[i];
	if (all->n == MOST_STREAMS) {
		PyErr_Format(PyExc_ValueError, "a client serves at most %d streams", MOST_STREAMS);
		return NULL;
	}
	all->streams[all->n] = (struct stream){ .cuda = *cuda, .all = all };
	return &all->streams[all->n++];
}

/* Waits until the stream and the client can take another request. The caller holds the lock and not the GIL.
 * Returns 0 or the status of a wait that was interrupted or failed. */
static int make_room(struct py_client *c, struct stream *stream)
{
	while (stream->all->n_pending >= MOST_PENDING || stream->last - stream->ended >= MOST_PENDING) {
		struct tma_completed completed;
		int rc = c->is_interrupted ? TMA_NO_REPLY : tma_next(c->client, 1000, &completed);

		if (rc < 0)
			return rc;
		if (rc == 0)
			py_client_take_completed(c, &completed);
	}
	return 0;
}

/* Submits a request, on a new connection if the old one is lost. The caller holds the lock and not the
 * GIL. */
static int submit(struct py_client *c, const struct py_request *q, struct resolved *r,
                  const struct tma_order *order, struct pending *pending)
{
	int rc = resolved_submit(c, q, r, order, &pending->ticket);

	if (rc != TMA_DISCONNECTED)
		return rc;
	py_client_take_ended(c); /* lets streams that wait for the old connection's requests go on */
	segments_release_stale(c, r);
	rc = tma_ping(c->client);
	return rc < 0 ? rc : resolved_submit(c, q, r, order, &pending->ticket);
}

/* Sets *ret_number to the stream's next number. The caller must submit a request with that number or call
 * give_up_number. Caller holds streams_lock. Returns the stream, or NULL with an exception. */
static struct stream *take_number(struct py_client *c, const struct cuda_stream *cuda, uint64_t *ret_number)
{
	struct streams *all;
	struct stream *stream;
	int rc;

	if (!py_client_enter(c))
		return NULL;
	all = streams_check(c) < 0 ? NULL : get_streams(c);
	if (all && all->region->life == REGION_GONE && replace_words(c, all) < 0)
		all = NULL;
	stream = all ? get_stream(all, cuda) : NULL;
	if (stream) {
		CLIENT_CALL(c, rc = make_room(c, stream));
		if (py_client_check(c, rc) < 0)
			stream = NULL;
		else
			*ret_number = ++stream->last;
	}
	py_client_unlock(c);
	return stream;
}

/* Ends a number that no request will signal, and for which the stream does not wait. Caller holds the GIL and
 * not the lock. */
static void give_up_number(struct py_client *c, struct stream *stream, uint64_t number)
{
	Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&c->lock);
	end_request(stream, number, ENDED);
	pthread_mutex_unlock(&c->lock);
	Py_END_ALLOW_THREADS
}

/* Has pending keep the request's host memory until the service no longer uses it. Otherwise a caller that is
 * interrupted before it has waited for the end could free the memory, and the service would write to whatever
 * array gets it next. */
static void keep_request(struct pending *pending, struct py_request *q)
{
	Py_INCREF((PyObject *)q);
	pending->request = (PyObject *)q;
	pending->is_forgotten = true;
}

/* Submits the request with its number, and sets *ret to what became of it. Caller holds streams_lock. Returns
 * 0, or -1 with an exception. If the exception is from a signal's handler, the request may be under way all
 * the same. Takes ownership of pending, unless *ret is WORDS_LOST: then it returns 0, and the caller has to
 * call it again with a number of new words. */
static int submit_numbered(struct py_client *c, struct stream *stream, uint64_t number, struct py_request *q,
                           struct tma_order *order, struct pending *pending, enum submitted *ret)
{
	struct streams *all = stream->all;
	struct resolved r;
	int rc;

	*ret = NOT_SUBMITTED;
	if (!py_client_enter(c)) {
		pending_free(pending);
		return -1;
	}
	c->has_placed_host = false;
	rc = py_request_resolve(c, q, &r);
	if (rc == 0) {
		const uint64_t offset = offset_of(stream);

		if (c->has_placed_host && !pending->request)
			keep_request(pending, q);

		order->wait = (struct tma_point){ .region = all->region,
			                          .offset = offset + offsetof(struct words, ready),
			                          .value = number };
		order->signal = (struct tma_point){ .region = all->region,
			                            .offset = offset + offsetof(struct words, done),
			                            .value = number };
		order->user = pending;
		pending->stream = stream;
		pending->value = number;
		CLIENT_CALL(c, rc = submit(c, q, &r, order, pending));
		if (pending->ticket) {
			pending->items = r; /* the library writes the items' statuses when the request ends */
			py_client_add_pending(c, pending);
			all->n_pending++;
			pthread_cond_signal(&all->wake);
			pending = NULL;
			*ret = UNDER_WAY;
			rc = 0;
		} else
			resolved_deinit(&r);
		if (*ret != UNDER_WAY && all->region->life == REGION_GONE && !PyErr_Occurred()) {
			pending = NULL;
			*ret = WORDS_LOST;
			rc = 0;
		}
		rc = py_client_check(c, rc);
	}
	py_client_unlock(c);
	if (pending)
		pending_free(pending);
	return rc;
}

/* Queues in a stream either a wait until a word reaches value (is_wait) or a store of value to it. word is
 * its address on the device. Caller holds streams_lock. May block until the device has done some of its work.
 * Returns 0, or -1 with an exception. */
static int queue_point(struct streams *all, const struct cuda_stream *cuda, uint64_t word, uint64_t value,
                       bool is_wait)
{
	void *before;
	int rc;

	Py_BEGIN_ALLOW_THREADS before = cuda_switch(cuda->context);
	rc = is_wait ? tma_stream_wait(all->client, cuda->handle, word, value)
	             : tma_stream_signal(all->client, cuda->handle, word, value);
	cuda_switch(before);
	Py_END_ALLOW_THREADS return rc < 0 ? raise_status(rc, "%s", tma_last_error(all->client)) : 0;
}

/* Puts a request into a stream: queues the signal of `ready`, submits the request, and queues the wait for
 * `done`. Caller holds streams_lock. Takes pending. Returns 0, or -1 with an exception. */
static int enqueue(struct py_client *c, const struct cuda_stream *cuda, struct py_request *q,
                   struct tma_order *order, struct pending *pending)
{
	enum submitted submitted;
	struct streams *all;
	uint64_t words, number;
	int rc;

	do {
		struct stream *stream = take_number(c, cuda, &number);

		submitted = NOT_SUBMITTED;
		if (!stream) {
			pending_free(pending);
			return -1;
		}
		all = stream->all;
		words = all->device_words + offset_of(stream);
		rc = queue_point(all, cuda, words + offsetof(struct words, ready), number, false);
		if (rc < 0)
			pending_free(pending);
		else
			rc = submit_numbered(c, stream, number, q, order, pending, &submitted);
		if (submitted != UNDER_WAY)
			give_up_number(c, stream, number);
	} while (submitted == WORDS_LOST);
	if (submitted == UNDER_WAY &&
	    queue_point(all, cuda, words + offsetof(struct words, done), number, true) < 0)
		rc = -1;
	return rc;
}

int cuda_stream_parse(PyObject *object, struct cuda_stream *ret)
{
	PyObject *handle = object;
	int device = -1;

	if (PyTuple_Check(object) && !PyArg_ParseTuple(object, "Oi:stream", &handle, &device))
		return -1;
	*ret = (struct cuda_stream){ .handle = PyLong_AsVoidPtr(handle), .context = cuda_context_of(device) };
	return ret->handle == NULL && PyErr_Occurred() ? -1 : 0;
}

/* Client.enqueue(request, stream, token, **order) puts a request into a stream. With a token,
 * Client.completed returns the request's end. */
PyObject *py_client_enqueue(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct py_client *c = (struct py_client *)self;
	PyObject *request, *number, *token = NULL;
	struct pending *pending;
	struct tma_order order;
	struct cuda_stream cuda;
	int rc;

	if (!PyArg_ParseTuple(args, "O!O|O:enqueue", core.request_type, &request, &number, &token) ||
	    cuda_stream_parse(number, &cuda) < 0 || order_parse_enqueued(c, kwargs, &order) < 0)
		return NULL;
	if (c->is_local) {
		if (launch(c, &cuda, (struct py_request *)request, &order) < 0)
			return NULL;
		Py_RETURN_NONE;
	}
	pending = calloc(1, sizeof *pending);
	if (!pending)
		return PyErr_NoMemory();
	if (token) {
		Py_INCREF(request);
		Py_INCREF(token);
		pending->request = request;
		pending->token = token;
	}
	if (!py_client_lock_streams(c)) {
		pending_free(pending);
		return NULL;
	}
	rc = enqueue(c, &cuda, (struct py_request *)request, &order, pending);
	pthread_mutex_unlock(&c->streams_lock);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Client.synchronize(stream=None) waits for the requests in streams and raises the first error. A client with
 * a service always waits for all of them; one without waits for that stream alone if it is given. */
PyObject *py_client_synchronize(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	int rc = 0, waited_ms = 0, step_ms;
	PyObject *number = Py_None;
	struct cuda_stream cuda;

	if (!PyArg_ParseTuple(args, "|O:synchronize", &number) ||
	    (number != Py_None && cuda_stream_parse(number, &cuda) < 0))
		return NULL;
	if (c->is_local) {
		if (launches_wait(c, number == Py_None ? NULL : &cuda) < 0)
			return NULL;
		Py_RETURN_NONE;
	}
	if (!py_client_lock(c))
		return NULL;
	step_ms = c->client->timeout_ms >= 0 && c->client->timeout_ms < 1000 ? c->client->timeout_ms : 1000;
	while (rc >= 0 && c->streams && c->streams->n_pending) {
		struct tma_completed completed;

		CLIENT_CALL(c, rc = tma_next(c->client, step_ms, &completed));
		if (rc == 0)
			py_client_take_completed(c, &completed);
		rc = py_client_check(c, rc);
		if (rc == TMA_PENDING && c->client->timeout_ms >= 0 &&
		    (waited_ms += step_ms) >= c->client->timeout_ms)
			rc = raise_status(TMA_NO_REPLY, "the work in streams has not ended within %d ms",
			                  c->client->timeout_ms);
	}
	if (rc >= 0)
		rc = streams_check(c);
	py_client_unlock(c);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Client.stream_point(region, offset, value, stream, is_wait) has a stream wait for a point of a timeline, or
 * signal it. */
PyObject *py_client_stream_point(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	uint64_t offset, value;
	PyObject *object, *number;
	struct py_region *region;
	struct streams *all = NULL;
	struct cuda_stream cuda;
	int is_wait, rc;

	if (!PyArg_ParseTuple(args, "O!O&O&Op:stream_point", core.region_type, &object, parse_u64, &offset,
	                      parse_u64, &value, &number, &is_wait) ||
	    cuda_stream_parse(number, &cuda) < 0)
		return NULL;
	region = (struct py_region *)object;
	if (!region->address || !region->region || region->size < 8 || offset > region->size - 8) {
		PyErr_SetString(PyExc_ValueError, "the timeline is not in the region");
		return NULL;
	}
	if (!py_client_lock_streams(c))
		return NULL;
	rc = cuda_enter(0);
	if (rc == 0 && py_client_lock(c)) { /* no call moves the region's memory while the lock is held */
		if (!region->device_address) {
			region_pin(region->region);
			region->device_address = cuda_host_address(region->address, region->size);
		}
		if (region->device_address)
			all = get_streams(c);
		py_client_unlock(c);
	}
	if (!all || queue_point(all, &cuda, region->device_address + offset, value, is_wait) < 0)
		rc = -1;
	pthread_mutex_unlock(&c->streams_lock);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}
