/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a service run requests in the order of the program's CUDA streams.
 *
 * Each request has a pair of words in memory that the service, the devices and this process share. The stream
 * writes `come` when it reaches the request, and the request waits for that value. The service writes `done`
 * when the request has ended, and the stream waits for that value. Then the stream writes `come` once more,
 * which frees the pair for another request. The words therefore hold all of the state, and nothing has to be
 * kept per stream.
 *
 * A request that fails sets no signal. Each one is therefore followed by a closing request without items. It
 * signals `done` whatever became of the request before it, because the requests of a connection run in order.
 * When the connection ends, a thread notices this and sets every `done` to a value beyond all request
 * numbers. Each connection has words of its own, because the service may still write to those of an earlier
 * connection while it finishes that connection's requests. Words are unmapped once the streams have passed
 * all requests that use them. Those of requests that have not been passed when the client is freed stay
 * mapped forever.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/clock.h"

/* Maximum number of requests that streams have not passed yet. The replies to that many fit into a socket
 * buffer while nobody reads them. */
#define MOST_UNDER_WAY 128

#define WORDS_BYTES 4096

#define BEYOND_ALL (UINT64_C(1) << 62)
/* interval, in milliseconds, at which a wait checks whether it is interrupted or the CUDA context has
 * failed */
#define LOOK_MS 100

enum {
	HOST_REGISTER_PORTABLE_AND_MAPPED = 3, /* CU_MEMHOSTREGISTER_PORTABLE | _DEVICEMAP */
	WAIT_UNTIL_REACHED = 0,                /* CU_STREAM_WAIT_VALUE_GEQ */
	WRITE_AFTER_ALL = 0,                   /* CU_STREAM_WRITE_VALUE_DEFAULT */
};

/* The words of one request. Requests are numbered from 1; the pair of request n is also that of n +
 * MOST_UNDER_WAY. */
struct words {
	/* 2 * n: a stream has reached request n; 2 * n + 1: it has passed the request */
	_Atomic uint64_t come;
	_Atomic uint64_t done; /* n: request n has ended */
};

_Static_assert(MOST_UNDER_WAY * sizeof(struct words) <= WORDS_BYTES, "the words fit into a page");

struct stream_order {
	struct stream_order *next; /* words of an earlier connection */
	uint32_t connection;
	tma_region *region; /* region of the words; NULL once another connection is in use */
	struct words *words;
	uint64_t address; /* the words' address on devices */
	uint64_t last;    /* number of the last request */
	/* for each pair of words, the slot of the closing request while that is under way; otherwise
	 * NO_SLOT */
	uint32_t closing[MOST_UNDER_WAY];
	pthread_t thread;
	bool has_thread;
	pid_t pid; /* the process that has the thread; a forked child does not */
	int sock;
	int stop_fd;
};

static uint32_t words_of(uint64_t number)
{
	return (uint32_t)(number % MOST_UNDER_WAY);
}

static bool has_passed(const struct stream_order *order, uint64_t number)
{
	const uint64_t come = atomic_load(&order->words[words_of(number)].come);

	return (int64_t)(come - (2 * number + 1)) >= 0;
}

static uint64_t first_of(const struct stream_order *order)
{
	return order->last > MOST_UNDER_WAY ? order->last - MOST_UNDER_WAY + 1 : 1;
}

static int finish(tma_client *client, device_result result, const char *what)
{
	struct error err;

	return result
	           ? client_fail(client, device_fail(client->driver, result, what, &err), "%s", err.message)
	           : 0;
}

/* ---- The thread --------------------------------------------------------------------------------------- */

static void let_all_go(struct stream_order *order)
{
	for (int i = 0; i < MOST_UNDER_WAY; i++)
		atomic_store(&order->words[i].done, BEYOND_ALL);
}

/* Thread that waits until the connection ends or the client stops it. In both cases it releases all
 * streams. */
static void *watch(void *arg)
{
	struct stream_order *order = arg;
	struct pollfd fds[] = { { .fd = order->sock, .events = POLLRDHUP },
		                { .fd = order->stop_fd, .events = POLLIN } };

	while (poll(fds, COUNT(fds), -1) <= 0)
		;
	let_all_go(order);
	return NULL;
}

/* Starts the thread with all signals blocked, so that no signal handler of the program runs on it. */
static int start_thread(tma_client *client, struct stream_order *order)
{
	sigset_t all, before;
	int error;

	order->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (order->stop_fd < 0)
		return client_fail_descriptor(client, "stream", errno);
	order->sock = client->sock;
	order->pid = getpid();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&order->thread, NULL, watch, order);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	order->has_thread = error == 0;
	if (error == 0)
		return 0;
	close(order->stop_fd);
	return client_fail(client, STATUS_NO_MEMORY,
	                   "stream: the thread that watches the connection cannot be started (%s)",
	                   strerror(error));
}

/* A forked child does nothing: it does not have the thread, and shares the words with its parent. */
void stream_order_stop(tma_client *client)
{
	struct stream_order *order = client->streams;

	if (!order || !order->has_thread || order->pid != getpid())
		return;
	eventfd_write(order->stop_fd, 1);
	pthread_join(order->thread, NULL);
	close(order->stop_fd);
	order->has_thread = false;
}

/* ---- Words -------------------------------------------------------------------------------------------- */

/* Maps the words for devices. From now on the region must not move, because the driver pins its memory. */
static int map_words(tma_client *client, struct stream_order *order)
{
	const struct device_driver *driver = client->driver;
	void *words = tma_region_data(order->region);
	device_result result;

	region_pin(order->region);
	order->region->is_replaceable = true;
	result = driver->cuMemHostRegister(words, WORDS_BYTES, HOST_REGISTER_PORTABLE_AND_MAPPED);
	if (result)
		return finish(client, result, "cuMemHostRegister");
	result = driver->cuMemHostGetDevicePointer(&order->address, words, 0);
	if (result) {
		driver->cuMemHostUnregister(words);
		return finish(client, result, "cuMemHostGetDevicePointer");
	}
	order->words = words;
	return 0;
}

static void free_words(const tma_client *client, struct stream_order *order)
{
	if (client->driver->cuMemHostUnregister(order->words) == 0)
		munmap(order->words, WORDS_BYTES);
}

/* Detaches the words from their region, so that releasing the region does not unmap them. */
static void keep_words(struct stream_order *order)
{
	if (order->region)
		order->region->data = NULL;
	order->region = NULL;
}

static int new_order(tma_client *client, struct stream_order **ret)
{
	struct stream_order *order = calloc(1, sizeof *order);
	int rc;

	if (!order)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for requests in streams");
	for (int i = 0; i < MOST_UNDER_WAY; i++)
		order->closing[i] = NO_SLOT;
	rc = tma_region_create_kind(client, TMA_REGION_MEMFD, WORDS_BYTES, &order->region);
	if (rc == 0)
		rc = map_words(client, order);
	order->connection = client->connection;
	if (rc == 0) {
		rc = start_thread(client, order);
		if (rc < 0)
			client->driver->cuMemHostUnregister(order->words);
	}
	if (rc < 0) {
		struct error why = client->error;

		tma_region_release(order->region);
		client->error = why;
		free(order);
		return rc;
	}
	*ret = order;
	return 0;
}

static bool have_all_passed(const struct stream_order *order)
{
	for (uint64_t number = first_of(order); number <= order->last; number++)
		if (!has_passed(order, number))
			return false;
	return true;
}

/* Frees the words of earlier connections whose requests have all been passed by their streams. */
static void sweep(tma_client *client)
{
	struct stream_order **link = &client->streams, *order;

	while ((order = *link)) {
		if (order->region || !have_all_passed(order)) {
			link = &order->next;
			continue;
		}
		*link = order->next;
		free_words(client, order);
		free(order);
	}
}

void stream_order_free(tma_client *client)
{
	struct stream_order *order;

	for (order = client->streams; order; order = order->next)
		keep_words(order);
	if (client->streams && client->streams->pid == getpid())
		sweep(client);
	/* A stream will still access these words, so they stay mapped forever. */
	while ((order = client->streams)) {
		client->streams = order->next;
		free(order);
	}
}

/* Sets *ret to the words of the current connection. Reconnects if the connection was lost, and makes the
 * words if there are none. */
static int get(tma_client *client, struct stream_order **ret)
{
	struct stream_order *last = client->streams, *order = NULL;
	tma_region *region;
	int rc;

	client_pump(client); /* Reads replies, so that they do not fill the socket. */
	rc = client_ready(client, client_deadline(client), PATIENCE_NONE);
	if (rc < 0)
		return rc;
	if (last && last->has_thread && last->connection == client->connection) {
		*ret = last;
		return 0;
	}
	if (last && (region = last->region)) {
		keep_words(last);
		tma_region_release(region);
	}
	sweep(client);
	rc = new_order(client, &order);
	if (rc < 0)
		return rc;
	order->next = client->streams;
	client->streams = *ret = order;
	return 0;
}

/* ---- Streams ------------------------------------------------------------------------------------------ */

static int check_stream(tma_client *client, void *stream)
{
	const struct device_driver *driver;
	device_result result;
	int is_capturing = 0;
	int rc = client_find_driver(client);

	if (rc < 0)
		return rc;
	driver = client->driver;
	if (!driver->cuStreamWriteValue64 || !driver->cuStreamWaitValue64 || !driver->cuStreamIsCapturing ||
	    !driver->cuStreamSynchronize || !driver->cuMemHostRegister || !driver->cuMemHostUnregister ||
	    !driver->cuMemHostGetDevicePointer)
		return client_fail(
		    client, STATUS_UNSUPPORTED,
		    "the CUDA driver here has no 64-bit stream memory operations: it is too old");
	result = driver->cuStreamIsCapturing(stream, &is_capturing);
	if (result)
		return finish(client, result, "cuStreamIsCapturing");
	return is_capturing
	           ? client_fail(client, STATUS_UNSUPPORTED,
	                         "stream: it is being captured, and a request to a service cannot be")
	           : 0;
}

static uint64_t come_address(const struct stream_order *order, uint64_t number)
{
	return order->address + words_of(number) * sizeof *order->words + offsetof(struct words, come);
}

static int write_come(tma_client *client, const struct stream_order *order, void *stream, uint64_t number,
                      uint64_t value)
{
	return finish(
	    client,
	    client->driver->cuStreamWriteValue64(stream, come_address(order, number), value, WRITE_AFTER_ALL),
	    "cuStreamWriteValue64");
}

static int wait_for_done(tma_client *client, const struct stream_order *order, void *stream, uint64_t number)
{
	const uint64_t address = order->address + words_of(number) * sizeof *order->words;

	return finish(client,
	              client->driver->cuStreamWaitValue64(stream, address + offsetof(struct words, done),
	                                                  number, WAIT_UNTIL_REACHED),
	              "cuStreamWaitValue64");
}

/* ---- Enqueuing ---------------------------------------------------------------------------------------- */

static void await_reply(tma_client *client, const struct stream_order *order, uint64_t number)
{
	const uint32_t slot = order->closing[words_of(number)];

	if (slot != NO_SLOT && client->sock >= 0)
		client_wait_reply(client, slot, client_deadline(client));
}

/* Waits until the words of the next request are free. */
static int make_room(tma_client *client, const struct stream_order *order, void *stream)
{
	const int64_t deadline = client_deadline(client);
	uint64_t first = order->last + 1 - MOST_UNDER_WAY;
	int rc = 0;

	if (order->last < MOST_UNDER_WAY)
		return 0;
	while (rc == 0 && !has_passed(order, first)) {
		const int left_ms = client_left_ms(deadline);

		tma_point_wait(&order->words[words_of(first)].come, 2 * first + 1,
		               left_ms >= 0 && left_ms < LOOK_MS ? left_ms : LOOK_MS);
		if (!has_passed(order, first) && (left_ms == 0 || client_ask_interrupted(client)))
			return client_fail(
			    client, STATUS_BUSY,
			    "stream: %d requests of the client are under way, and a stream has "
			    "not come past the first of them",
			    MOST_UNDER_WAY);
		rc = check_stream(client, stream);
	}
	if (rc == 0)
		await_reply(client, order, first);
	return rc;
}

/* Hands the request, which may have ended already, over to stream_order_on_end. words is the index of the
 * pair that it closes, or NO_WORDS. */
static void leave(tma_client *client, uint32_t slot, uint32_t words)
{
	struct request *request = &client->requests[slot];

	request->is_enqueued = true;
	request->words = words;
	if (request->state == REQUEST_DONE)
		stream_order_on_end(client, slot);
}

static struct tma_point done_point(const struct stream_order *order, uint64_t number)
{
	return (struct tma_point){ .region = order->region,
		                   .offset =
		                       words_of(number) * sizeof *order->words + offsetof(struct words, done),
		                   .value = number };
}

static int send_request(tma_client *client, const struct stream_order *order, const struct call *call,
                        uint64_t number)
{
	struct tma_order ordered = call->order ? *call->order : (struct tma_order){ 0 };
	struct call sent = *call;
	uint32_t slot = 0;
	int rc;

	ordered.wait = (struct tma_point){ .region = order->region,
		                           .offset = words_of(number) * sizeof *order->words +
		                                     offsetof(struct words, come),
		                           .value = 2 * number };
	if (!ordered.signal.region)
		ordered.signal = done_point(order, number);
	sent.order = &ordered;
	sent.is_submit = true;
	rc = request_start(client, &sent, client_deadline(client), &slot);
	if (rc == 0)
		leave(client, slot, NO_WORDS);
	return rc;
}

static int on_closed(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                     void *arg, struct error *err)
{
	struct msg_submit_done done;

	(void)client;
	(void)arg;
	return rpc_decode_result(reply, method, &done, err);
}

/* Sends the closing request for the request with this number. That request was made by the call `behind`,
 * whose priority the closing request gets. */
static int send_closing(tma_client *client, struct stream_order *order, const struct call *behind,
                        uint64_t number)
{
	const struct tma_order signals = { .signal = done_point(order, number),
		                           .priority = behind->order ? behind->order->priority
		                                                     : TMA_PRIORITY_NORMAL };
	struct msg_submit params = { .has = F(submit, items) };
	const struct call call = { .method = METHOD_submit,
		                   .params = &params,
		                   .order = &signals,
		                   .fd = -1,
		                   .is_submit = true,
		                   .on_reply = on_closed };
	uint32_t slot = 0;
	int rc = order_fill(submit, client, &signals, &params);

	if (rc == 0)
		rc = request_start(client, &call, client_deadline(client), &slot);
	if (rc < 0)
		return rc;
	order->closing[words_of(number)] = slot;
	leave(client, slot, words_of(number));
	return 0;
}

/* Sends the closing request in full. If that fails, a message may have gone out in part, which cannot be
 * taken back. The connection then ends, which releases the stream. */
static void close_request(tma_client *client, struct stream_order *order, const struct call *call,
                          uint64_t number)
{
	if (send_closing(client, order, call, number) < 0)
		client_break(client, client->error.status, "a request in a stream could not be sent: %s",
		             client->error.message);
	client_wait_sent(client, 0, client_deadline(client), methods[METHOD_submit].name);
}

void stream_order_on_end(tma_client *client, uint32_t slot)
{
	struct request *request = &client->requests[slot];
	const struct error error = request->error;
	const uint32_t words = request->words;

	if (error.status && words == NO_WORDS && !client->stream_error.status)
		client->stream_error = error;
	client->stream_beyond += request->result.beyond;
	request_free(client, slot);
	if (words == NO_WORDS)
		return;
	client->streams->closing[words] = NO_SLOT;
	if (error.status) /* The closing request failed, so nobody signals the stream. */
		client_break(client, STATUS_DISCONNECTED, "the service does not signal a stream: %s",
		             error.message);
}

static int enqueue(tma_client *client, const struct call *call, void *stream)
{
	struct stream_order *order = NULL;
	uint64_t number;
	int rc = get(client, &order);

	if (rc == 0)
		rc = make_room(client, order, stream);
	number = rc == 0 ? order->last + 1 : 0;
	if (rc == 0)
		rc = write_come(client, order, stream, number, 2 * number);
	if (rc < 0)
		return rc;
	order->last = number;
	client->is_bound = true; /* The words belong to this connection only. */
	rc = send_request(client, order, call, number);
	if (rc == 0)
		close_request(client, order, call, number);
	client->is_bound = false;
	if (rc < 0) {
		client->driver->cuStreamWriteValue64(stream, come_address(order, number), 2 * number + 1,
		                                     WRITE_AFTER_ALL);
		return rc;
	}
	rc = wait_for_done(client, order, stream, number);
	return rc < 0 ? rc : write_come(client, order, stream, number, 2 * number + 1);
}

/* Tries once more if the connection turns out to be lost before anything was sent on it. */
int stream_order_enqueue(tma_client *client, const struct call *call, void *stream)
{
	int rc = check_stream(client, stream);

	if (rc < 0)
		return rc;
	rc = enqueue(client, call, stream);
	if ((rc == STATUS_DISCONNECTED || rc == STATUS_DEVICE_LOST) && client->sock < 0 &&
	    client_check_usable(client) == 0)
		rc = enqueue(client, call, stream);
	return rc;
}

int stream_order_wait(tma_client *client, void *stream)
{
	const struct stream_order *order = client->streams;
	int rc = check_stream(client, stream);

	if (rc == 0)
		rc = finish(client, client->driver->cuStreamSynchronize(stream), "cuStreamSynchronize");
	if (rc < 0)
		return rc;
	for (uint64_t number = order ? first_of(order) : 1; order && number <= order->last; number++)
		if (has_passed(order, number))
			await_reply(client, order, number);
	rc = client->stream_error.status;
	if (rc < 0)
		client->error = client->stream_error;
	client->stream_error.status = 0;
	return rc;
}
