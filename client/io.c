/* SPDX-License-Identifier: Apache-2.0 */
/* Moves bytes and descriptors between the socket and the requests. Transfers never block; functions that wait
 * call poll between them.
 *
 * Whoever waits, for a reply or for space in the socket's send buffer, keeps reading, so that the two sides
 * never block each other with full buffers. Every failure ends in client_break; callers notice because sock
 * is -1 and their request has ended.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/clock.h"

#define READ_BYTES 65536
/* maximum number of reads at once, so that a service that never stops sending cannot hold up a call beyond
 * its deadline */
#define READS      16
#define KEEP_BYTES (256 * 1024)

/* Longest wait, in milliseconds, before the program is asked whether to interrupt it. A signal that arrives
 * just before the wait, or on another thread, does not end the system call. */
#define SLICE_MS 100

static void client_time_out(tma_client *client, const char *what);
static bool give_up(tma_client *client, uint32_t slot);
static void receive_late(tma_client *client);
static bool may_repeat(const tma_client *client, const struct request *request, uint32_t n_waiting);
static void client_receive(tma_client *client);
static void client_queue_fds(tma_client *client, const int *fds, size_t n);
static void client_parse(tma_client *client);
static void on_message(tma_client *client, const uint8_t *data, size_t len);
static bool on_silent(tma_client *client, struct rpc_reply *reply);
static bool take_error(tma_client *client, struct rpc_reply *reply);
static void on_answer(tma_client *client, uint32_t slot, struct rpc_reply *reply);

int64_t client_deadline(const tma_client *client)
{
	return client->timeout_ms < 0 ? -1 : clock_ms() + client->timeout_ms;
}

int client_left_ms(int64_t deadline)
{
	int64_t left = deadline < 0 ? -1 : deadline - clock_ms();

	if (deadline >= 0 && left < 0)
		left = 0;
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

void client_wait_reply(tma_client *client, uint32_t slot, int64_t deadline)
{
	bool is_told;

	client_flush(client);
	is_told = client->local && client->requests[slot].state == REQUEST_WAITING;
	while (client->requests[slot].state == REQUEST_WAITING) {
		if (client_poll(client, deadline) || client->requests[slot].state != REQUEST_WAITING)
			continue;
		if (client->local)
			is_told = !give_up(client, slot);
		else
			client_time_out(client, client->requests[slot].method->name);
	}
	if (is_told && client->local && !client->requests[slot].has_ticket)
		local_untell(client);
}

/* Ends the wait for a late request. If it has not started, it is canceled and ends with NO_REPLY: returns
 * true. If it has started, it ends soon, so this waits for its end and returns false. */
static bool give_up(tma_client *client, uint32_t slot)
{
	const char *what = client->requests[slot].method->name;
	struct error error;

	if (!local_take_back(client, slot)) {
		while (client->requests[slot].state == REQUEST_WAITING) {
			local_await(client, -1);
			receive_late(client);
		}
		return false;
	}
	if (client->is_interrupted)
		error_set(&error, STATUS_NO_REPLY,
		          "%s was interrupted by a signal before it started; it is canceled", what);
	else
		error_set(&error, STATUS_NO_REPLY, "%s had not started after %d ms; it is canceled", what,
		          client->timeout_ms);
	request_end(client, slot, &error);
	return true;
}

void client_wait_sent(tma_client *client, size_t keep, int64_t deadline, const char *what)
{
	client_flush(client);
	while (client->sock >= 0 && buffer_len(&client->out) > keep)
		if (!client_poll(client, deadline) && buffer_len(&client->out) > keep)
			client_time_out(client, what);
}

void client_pump(tma_client *client)
{
	client_flush(client);
	client_receive(client);
}

/* Has the session run the queued requests. If that leaves something for the program to take, the descriptor
 * becomes readable, as a socket would. */
static void flush_here(tma_client *client)
{
	const uint32_t ended = client->n_ended_tickets;
	const bool has_failed = client->silent.status;

	if (buffer_len(&client->out) == 0 || !local_exchange(client))
		return;
	client_parse(client);
	if (client->n_ended_tickets != ended || (client->silent.status && !has_failed))
		local_tell(client, (int)(client->n_ended_tickets - ended));
}

void client_flush(tma_client *client)
{
	ssize_t n;

	if (client->local) {
		flush_here(client);
		return;
	}
	while (client->sock >= 0 && buffer_len(&client->out)) {
		n = socket_send(client->sock, client->out.data + client->out.start, buffer_len(&client->out),
		                client->out_fds, client->n_out_fds);
		if (n == -EAGAIN)
			return;
		if (n == -EPIPE || n == -ECONNRESET) {
			/* Whatever the service sent before it went away is still to be read. */
			buffer_consume(&client->out, buffer_len(&client->out), KEEP_BYTES);
			client_receive(client);
			return;
		}
		if (n > 0) {
			buffer_consume(&client->out, (size_t)n, KEEP_BYTES);
			client->sent += (uint64_t)n;
			client->n_out_fds = 0;
		} else {
			client_break(client, STATUS_DISCONNECTED, "tmad at %s cannot be written to (%s)",
			             client->path, strerror((int)-n));
		}
	}
}

/* Does what client_poll does for a "local:" client: late requests end without any traffic on a descriptor. */
static bool poll_here(tma_client *client, int64_t deadline)
{
	const int left_ms = client_left_ms(deadline);
	const bool has_ended = local_await(client, client_slice_ms(client, left_ms));

	client->is_interrupted = false;
	client_pump(client);
	if (!has_ended && left_ms != 0 && client_ask_interrupted(client)) {
		client_pump(client);
		return false;
	}
	return left_ms != 0;
}

bool client_poll(tma_client *client, int64_t deadline)
{
	struct pollfd wait = { .fd = client->sock, .events = tma_events(client) };
	int left_ms = client_left_ms(deadline), slice_ms = client_slice_ms(client, left_ms);
	int rc;

	if (client->local)
		return poll_here(client, deadline);
	rc = poll(&wait, 1, slice_ms);
	client->is_interrupted = false;
	if (rc < 0 && errno != EINTR)
		client_break(client, STATUS_INTERNAL, "poll failed (%s)", strerror(errno));
	/* If the poll was not to wait, a signal during it does not count as an interruption. */
	else if (rc > 0 || (rc < 0 && left_ms == 0))
		client_pump(client);
	else if ((rc < 0 || slice_ms != left_ms) && client_ask_interrupted(client)) {
		client_pump(client);
		return false;
	}
	return left_ms != 0;
}

bool client_pause(tma_client *client, int ms)
{
	poll(NULL, 0, ms);
	return !client_ask_interrupted(client);
}

int client_slice_ms(const tma_client *client, int left_ms)
{
	return client->interrupted && (left_ms < 0 || left_ms > SLICE_MS) ? SLICE_MS : left_ms;
}

bool client_ask_interrupted(tma_client *client)
{
	client->is_interrupted = client->interrupted && client->interrupted(client->interrupted_arg);
	return client->is_interrupted;
}

static void client_time_out(tma_client *client, const char *what)
{
	if (client->is_interrupted)
		client_break(client, STATUS_NO_REPLY,
		             "%s was interrupted by a signal; the connection is closed and the outcome is "
		             "unknown",
		             what);
	else
		client_break(
		    client, STATUS_NO_REPLY,
		    "%s was not answered within %d ms; the connection is closed and the outcome is unknown",
		    what, client->timeout_ms);
}

short tma_events(const tma_client *client)
{
	return client && client->sock >= 0 ? POLLIN | (buffer_len(&client->out) ? POLLOUT : 0) : 0;
}

static void receive_late(tma_client *client)
{
	if (client->has_late && local_receive(client))
		client_parse(client);
}

static void client_receive(tma_client *client)
{
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;
	uint8_t *data;
	ssize_t n;

	if (client->local) {
		receive_late(client);
		return;
	}
	for (int i = 0; i < READS; i++) {
		if (client->sock < 0)
			return;
		data = buffer_reserve(&client->in, READ_BYTES);
		if (!data) {
			client_break(client, STATUS_NO_MEMORY, "out of memory for %d bytes of replies",
			             READ_BYTES);
			return;
		}
		n = socket_receive(client->sock, data, READ_BYTES, fds, &n_fds);
		if (n == -EAGAIN)
			return;
		if (n == -EMSGSIZE) {
			while (n_fds)
				close(fds[--n_fds]);
			client_break(client, STATUS_PROTOCOL, "more than %d file descriptors arrived at once",
			             SOCKET_MAX_FDS);
		} else if (n == 0) {
			client_break(client, STATUS_DISCONNECTED, "tmad at %s closed the connection",
			             client->path);
		} else if (n < 0) {
			client_break(client, STATUS_DISCONNECTED, "tmad at %s went away (%s)", client->path,
			             strerror((int)-n));
		} else {
			client_queue_fds(client, fds, n_fds);
			buffer_commit(&client->in, (size_t)n);
			client_parse(client);
		}
		if (n < READ_BYTES)
			return;
	}
}

/* Keeps descriptors for region_create, the only request whose reply brings one, and closes any others. */
static void client_queue_fds(tma_client *client, const int *fds, size_t n)
{
	size_t room = client->n_creating < CLIENT_MAX_FDS ? client->n_creating : CLIENT_MAX_FDS;

	for (size_t i = 0; i < n; i++) {
		if (client->n_fds < room)
			client->fds[client->n_fds++] = fds[i];
		else
			close(fds[i]);
	}
}

int client_take_fd(tma_client *client)
{
	int fd;

	if (!client->n_fds)
		return -1;
	fd = client->fds[0];
	client->n_fds--;
	memmove(client->fds, client->fds + 1, client->n_fds * sizeof client->fds[0]);
	return fd;
}

static void client_parse(tma_client *client)
{
	struct error err;
	size_t len = 0;

	while (client->sock >= 0 && buffer_len(&client->in)) {
		switch (frame_scan(&client->scan, client->in.data + client->in.start, buffer_len(&client->in),
		                   &frame_reply_limits, &len, &err)) {
		case FRAME_COMPLETE:
			on_message(client, client->in.data + client->in.start, len);
			if (client->sock >= 0)
				buffer_consume(&client->in, len, KEEP_BYTES);
			break;
		case FRAME_PARTIAL:
			return;
		case FRAME_BROKEN:
			client_break(client, STATUS_PROTOCOL,
			             "tmad at %s sent something that is not a reply: %s", client->path,
			             err.message);
			return;
		}
	}
}

static void on_message(tma_client *client, const uint8_t *data, size_t len)
{
	struct error err;
	struct request *request;
	struct rpc_reply reply;
	uint32_t slot = 0;
	int rc;

	rc = rpc_decode_reply(client->decoder, data, len, &reply, &err);
	if (rc < 0) {
		client_break(client, err.status == STATUS_NO_MEMORY ? STATUS_NO_MEMORY : STATUS_PROTOCOL,
		             "tmad at %s sent something that is not a reply: %s", client->path, err.message);
		return;
	}
	if (rc > 0)
		return;
	if (on_silent(client, &reply))
		return;
	request = request_find(client, reply.msgid, &slot);
	if (!request || request->is_queued != reply.is_done) {
		client_break(client, STATUS_PROTOCOL,
		             "tmad at %s answered request %u, which is not under way", client->path,
		             reply.msgid);
		return;
	}
	if (take_error(client, &reply)) {
		request_end(client, slot, &reply.error);
		if (reply.ends)
			client_break(client, STATUS_DISCONNECTED, "tmad at %s refused the connection: %s",
			             client->path, reply.error.message);
	} else if (request->completion == COMPLETION_QUEUED && rpc_is_queued(&reply))
		request->is_queued = true;
	else
		on_answer(client, slot, &reply);
}

/* Takes the error of a request that is answered only if it fails. Returns false if the reply is not such an
 * answer. */
static bool on_silent(tma_client *client, struct rpc_reply *reply)
{
	if ((reply->msgid & 0xffff) != MSGID_SILENT || reply->msgid >> 16 >= client->n_silent ||
	    reply->is_done)
		return false;
	if (!take_error(client, reply) && items_silent_error(reply, &reply->error) < 0)
		return false;
	client_keep_silent(client, &reply->error);
	return true;
}

static bool take_error(tma_client *client, struct rpc_reply *reply)
{
	/* The protocol has no positive codes, and NO_REPLY is the library's own. */
	if (reply->error.status > 0 || reply->error.status == STATUS_NO_REPLY)
		reply->error.status = STATUS_INTERNAL;
	if (reply->error.status == STATUS_DEVICE_LOST)
		client->is_device_lost = true;
	return reply->error.status != 0;
}

static void on_answer(tma_client *client, uint32_t slot, struct rpc_reply *reply)
{
	struct request *request = &client->requests[slot];
	struct error err = { 0 };
	int rc = request->on_reply(client, reply, request->method,
	                           request->arg ? request->arg : &request->result, &err);

	if (rc == STATUS_PROTOCOL)
		client_break(client, STATUS_PROTOCOL, "tmad at %s sent an invalid reply to %s: %s",
		             client->path, request->method->name, err.message);
	else
		request_end(client, slot, &err);
}

void client_break(tma_client *client, int status, const char *format, ...)
{
	uint32_t n_waiting = 0;
	va_list args;

	if (client->sock < 0)
		return;
	stream_order_stop(client);
	close(client->sock);
	client->sock = -1;
	local_close(client);
	client->ended.status = status;
	va_start(args, format);
	vsnprintf(client->ended.message, sizeof client->ended.message, format, args);
	va_end(args);
	for (uint32_t slot = 0; slot < client->n_requests; slot++)
		n_waiting += client->requests[slot].state == REQUEST_WAITING;
	if (client->n_silent || client_has_ring(client))
		client_keep_silent(client, &client->ended);
	for (uint32_t slot = 0; slot < client->n_requests; slot++) {
		struct request *request = &client->requests[slot];

		if (request->state != REQUEST_WAITING)
			continue;
		request->is_unsent = status == STATUS_DISCONNECTED && request->start >= client->sent;
		request->may_repeat = status == STATUS_DISCONNECTED && !client->is_device_lost &&
		                      may_repeat(client, request, n_waiting);
		request_end(client, slot, &client->ended);
	}
	client_reset(client);
}

/* Returns whether the request may be repeated on another connection, by the rule that tmaclient.h states. A
 * request that moves nothing may be repeated, because whatever it made ended with its connection. A request
 * that moves data must have been the only one under way, because an earlier request may have been due to
 * write what this one reads. It must not signal, because whoever saw the signal may have gone on to use the
 * memory. */
static bool may_repeat(const tma_client *client, const struct request *request, uint32_t n_waiting)
{
	switch (request->method->id) {
	case METHOD_copy:
	case METHOD_transpose:
	case METHOD_pad:
	case METHOD_transform:
	case METHOD_plan_run:
	case METHOD_submit:
	case METHOD_gather:
	case METHOD_scatter:
	case METHOD_reshard:
		return n_waiting == 1 && !client->n_silent && !client_has_ring(client) &&
		       !request->has_signal;
	default:
		return true;
	}
}

void client_reset(tma_client *client)
{
	for (size_t i = 0; i < client->n_fds; i++)
		close(client->fds[i]);
	client->n_fds = 0;
	client->n_out_fds = 0;
	memset(&client->scan, 0, sizeof client->scan);
	buffer_truncate(&client->in, 0);
	buffer_truncate(&client->out, 0);
}
