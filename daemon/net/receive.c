/* SPDX-License-Identifier: Apache-2.0 */
/* This file reads the input of sessions, bytes and descriptors, finds whole messages, and has them handled.
 *
 * Bytes are read into a buffer that all sessions share, and handled from there. Only what cannot be handled
 * at once (the beginning of a message, or requests that have to wait) is copied to a block of the session's
 * own and charged as input_bytes_per_uid. The session's poll handle asks only for events that can be acted
 * on.
 */
#include "connection.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "daemon/api/dispatch.h"
#include "daemon/jobs/submission.h"
#include "proto/arithmetic.h"
#include "proto/status.h"
#include "proto/wire/frame.h"
#include "input.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

static int input_keep(struct inputs *inputs, struct buffer *in, const uint8_t *data, size_t len);
static void on_readable(uv_poll_t *poll, int status, int events);
static void read_more(struct connection *connection);
static size_t room_to_read(const struct connection *connection);
static void take_input(struct connection *connection, const uint8_t *data, size_t len);
static void feed_kept(struct connection *connection);
static void charge_input(struct connection *connection);
static void stop_reading(struct connection *connection);
static size_t feed(struct connection *connection, const uint8_t *data, size_t len);

bool connection_reads(const struct connection *connection)
{
	return connection->session.state != SESSION_ENDED && connection->received < connection->last;
}

/* Called when the peer of a session that waits has closed its sending side or its socket. Ends the session if
 * the socket is closed; a peer that only closed its sending side still gets its answers. */
static void on_disconnect(struct connection *connection)
{
	struct pollfd peer = { .fd = connection->fd, .events = 0 };

	if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
		session_end(&connection->session, LOG_LEVEL_DEBUG, "disconnected");
	connection->sends_no_more = true;
	session_update_poll(&connection->session);
}

/* Returns the pending error of the socket, because libuv reports every error of a socket as EBADF. */
static int socket_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

/* Ends the session because of an error of its socket. ECONNRESET is usual: a peer that closes its socket
 * while replies are in it resets the connection. */
static void end_by_error(struct connection *connection, int error)
{
	if (error == ECONNRESET || error == 0)
		session_end(&connection->session, LOG_LEVEL_DEBUG, "disconnected, with replies unread");
	else
		session_end(&connection->session, LOG_LEVEL_NOTICE, strerror(error));
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct connection *connection = poll->data;

	if (status < 0) {
		end_by_error(connection, socket_error(connection->fd));
		return;
	}
	if (events & UV_DISCONNECT) {
		on_disconnect(connection);
		return;
	}
	if (events & UV_WRITABLE)
		session_flush(&connection->session);
	if (!(events & UV_READABLE) || !connection_reads(connection))
		return;
	if (connection->session.waiting != WAIT_NONE)
		stop_reading(connection);
	else if (time_slice_is_over(&connection->connections->time_slices, connection->session.account))
		time_slices_add(&connection->connections->time_slices, &connection->session);
	else
		read_more(connection);
}

/* Called when the peer sends no more. A peer that has closed its socket gets no answers; one that has only
 * closed its sending side does. */
static void on_end_of_stream(struct connection *connection)
{
	struct pollfd peer = { .fd = connection->fd, .events = 0 };

	connection->last = connection->received;
	if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
		session_end(&connection->session, LOG_LEVEL_DEBUG, "disconnected");
	else
		connection_finish(connection);
	session_settle(&connection->session);
}

static void read_more(struct connection *connection)
{
	struct connections *connections = connection->connections;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;
	ssize_t n;
	struct error err;

	if (!connection_reads(connection)) { /* the session began to finish while it waited for its slice */
		session_settle(&connection->session);
		return;
	}
	n = socket_receive(connection->fd, connections->receive, room_to_read(connection), fds, &n_fds);
	if (n == -EAGAIN || n == -EINTR) {
		/* If entries of the ring made the session wait, its socket may not be polled now. */
		session_update_poll(&connection->session);
		return;
	}
	if (n == -EMSGSIZE) {
		session_close_fds(&connection->session, fds, n_fds);
		session_end(&connection->session, LOG_LEVEL_NOTICE,
		            "it sent more descriptors than a message may carry");
		return;
	}
	if (n < 0) {
		end_by_error(connection, (int)-n);
		return;
	}
	if (n == 0) {
		on_end_of_stream(connection);
		return;
	}
	if (session_keep_fds(&connection->session, fds, n_fds, connection->received,
	                     connection->received + (uint64_t)n, &err) < 0) {
		session_end(&connection->session, LOG_LEVEL_NOTICE, err.message);
		return;
	}
	connection->received += (uint64_t)n;
	connection->session.used_ms = service_now_ms(connections->service);

	take_input(connection, connections->receive, (size_t)n);
	session_update_poll(&connection->session);
	session_settle(&connection->session);
}

/* Returns the maximum number of bytes to read. Kept input is the beginning of a message, so no more is read
 * than its block has room for. If a user has much kept input, its sockets are read in small amounts. */
static size_t room_to_read(const struct connection *connection)
{
	uint64_t left = connection->last - connection->received;
	size_t unhandled = buffer_len(&connection->in), room;

	room = INPUT_BYTES - unhandled;
	if (room > CONNECTION_KEEP_BYTES &&
	    connection->session.account->used[CHARGE_INPUT_BYTES] >
	        account_limits(&connection->session.service->accounts, connection->session.account)
	                ->input_bytes_per_uid /
	            2)
		room = CONNECTION_KEEP_BYTES;
	return left < room ? (size_t)left : room;
}

/* Handles what has been read, as far as possible, and keeps the rest. */
static void take_input(struct connection *connection, const uint8_t *data, size_t len)
{
	bool direct = buffer_len(&connection->in) == 0;
	size_t used = direct ? feed(connection, data, len) : 0;

	if (connection->session.state == SESSION_ENDED)
		return;
	if (used < len &&
	    input_keep(&connection->connections->inputs, &connection->in, data + used, len - used) < 0)
		session_end(&connection->session, LOG_LEVEL_WARNING, "no memory for what it sent");
	else if (direct)
		charge_input(connection);
	else
		feed_kept(connection);
}

/* Handles kept input, as far as possible. */
static void feed_kept(struct connection *connection)
{
	size_t used =
	    feed(connection, connection->in.data + connection->in.start, buffer_len(&connection->in));

	input_drop(&connection->connections->inputs, &connection->in, used);
	charge_input(connection);
}

/* Adjusts the charge to the bytes that are kept now. This may end the session. */
static void charge_input(struct connection *connection)
{
	uint64_t kept = buffer_len(&connection->in), charged = connection->in_charge.amount;
	struct error err;

	if (kept < charged)
		charge_shrink(&connection->in_charge, charged - kept);
	else if (kept > charged && connection->session.state != SESSION_ENDED &&
	         charge_take(&connection->in_charge, &connection->session.service->accounts,
	                     connection->session.account, CHARGE_INPUT_BYTES, kept - charged, &err) < 0)
		session_end(&connection->session, LOG_LEVEL_NOTICE, err.message);
}

/* Handles the whole messages in data, as far as limits and the user's time slice allow, and returns the bytes
 * used. data is everything not yet handled, from the start of a message. */
static size_t feed(struct connection *connection, const uint8_t *data, size_t len)
{
	struct error err;
	size_t used = 0, frame_len;
	bool partial = false;

	connection->session.service->taken_ns = uv_hrtime();
	while (connection->session.state != SESSION_ENDED && !partial && used < len &&
	       !session_must_wait(&connection->session)) {
		switch (frame_scan(&connection->scan, data + used, len - used, &frame_request_limits,
		                   &frame_len, &err)) {
		case FRAME_COMPLETE:
			connection->session.handled += frame_len;
			if (!dispatch(&connection->session, data + used, frame_len)) {
				connection->session.handled -= frame_len;
				session_wait_for_memory(&connection->session);
				break;
			}
			used += frame_len;
			session_drop_fds_before(&connection->session, connection->session.handled);
			frame_timer_reset(connection);
			break;
		case FRAME_PARTIAL:
			partial = true;
			break;
		case FRAME_BROKEN:
			session_end(&connection->session, LOG_LEVEL_NOTICE, err.message);
			break;
		}
	}

	if (partial && connection->session.state == SESSION_OPEN)
		frame_timer_run(connection);
	return used;
}

void connection_resume(struct connection *connection)
{
	submission_take(&connection->session);
	if (connection->session.state == SESSION_ENDED || connection->session.waiting != WAIT_NONE)
		return;
	if (buffer_len(&connection->in) == 0) {
		read_more(connection);
		return;
	}
	feed_kept(connection);
	session_update_poll(&connection->session);
	session_settle(&connection->session);
}

/* ---- What the loop watches ---------------------------------------------------------------------------- */

static void set_poll(struct connection *connection, int events)
{
	if (events == connection->poll_events)
		return;
	connection->poll_events = events;
	if (!events)
		uv_poll_stop(&connection->poll);
	else if (watch_start(&connection->poll, events, on_readable) < 0)
		session_end(&connection->session, LOG_LEVEL_WARNING, "no memory to watch its socket");
}

/* Stops polling for input: the session waits, and its readable socket would wake the loop again and again. */
static void stop_reading(struct connection *connection)
{
	set_poll(connection, connection->poll_events & ~UV_READABLE);
}

/* A session that is ready goes on so soon that its socket stays polled as it is: to stop and start again
 * would take three system calls. */
void connection_update_poll(struct session *session)
{
	struct connection *connection = connection_of(session);
	int events = 0;

	if (connection->session.state == SESSION_ENDED)
		return;
	if (connection_reads(connection) && connection->session.waiting == WAIT_READY)
		events |= connection->poll_events & UV_READABLE;
	if (connection_reads(connection) && connection->session.waiting == WAIT_NONE)
		events |= UV_READABLE;
	if ((connection->session.waiting == WAIT_JOBS || connection->session.waiting == WAIT_BEHIND ||
	     connection->session.waiting == WAIT_MEMORY) &&
	    !connection->sends_no_more)
		events |= UV_DISCONNECT;
	if (buffer_len(&connection->out) > 0 && !connection->unsent && !connection->resend)
		events |= UV_WRITABLE;
	set_poll(connection, events);
}

/* ==== Kept input ===================================================================================== */

/* The stack of free blocks holds their numbers. Blocks without memory are at its bottom, so that they are
 * used last. */

#define INPUT_CHECK_MS 500

/* Number of blocks beyond one for each session: blocks whose memory is being returned cannot be taken. */
#define SPARE (INPUTS_RETURNED + 64)

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define MOST 0 /* the sanitizer watches only blocks that malloc has returned */
#else
#define MOST 65536
#endif

static void on_input_check(uv_timer_t *timer);
static void return_memory(uv_work_t *work);
static void on_returned(uv_work_t *work, int status);

static uint8_t *map(size_t bytes)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	madvise(memory, bytes, MADV_NOHUGEPAGE); /* a few bytes must not take up a huge page */
	return memory;
}

void inputs_open(struct inputs *inputs, uv_loop_t *loop, uint64_t n)
{
	*inputs = (struct inputs){ 0 };
	uv_timer_init(loop, &inputs->timer);
	inputs->timer.data = inputs->work.data = inputs;
	n += SPARE;
	if (n > MOST)
		n = MOST;
	inputs->free = n ? malloc(n * sizeof *inputs->free) : NULL;
	inputs->memory = inputs->free ? map(n * INPUT_BYTES) : NULL;
	if (!inputs->memory)
		return;
	inputs->n = inputs->n_free = inputs->n_clean = inputs->unused = (uint32_t)n;
	for (uint32_t i = 0; i < inputs->n; i++)
		inputs->free[i] = inputs->n - 1 - i;
}

void inputs_deinit(struct inputs *inputs)
{
	assert(inputs->n_free == inputs->n);
	if (inputs->memory)
		munmap(inputs->memory, (size_t)inputs->n * INPUT_BYTES);
	free(inputs->free);
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

static uint8_t *take_block(struct inputs *inputs)
{
	if (inputs->n_free == 0)
		return malloc(INPUT_BYTES);
	inputs->n_free--;
	inputs->n_clean = min_u32(inputs->n_clean, inputs->n_free);
	inputs->unused = min_u32(inputs->unused, inputs->n_free);
	return inputs->memory + (size_t)inputs->free[inputs->n_free] * INPUT_BYTES;
}

static void give_back(struct inputs *inputs, uint8_t *block)
{
	uintptr_t at = (uintptr_t)block - (uintptr_t)inputs->memory;

	if (!inputs->memory || at >= (uintptr_t)inputs->n * INPUT_BYTES) {
		free(block);
		return;
	}
	inputs->free[inputs->n_free++] = (uint32_t)(at / INPUT_BYTES);
	if (!uv_is_active((uv_handle_t *)&inputs->timer))
		uv_timer_start(&inputs->timer, on_input_check, INPUT_CHECK_MS, INPUT_CHECK_MS);
}

/* Appends bytes to those that are kept; both together must not exceed INPUT_BYTES. Returns 0 or NO_MEMORY. */
static int input_keep(struct inputs *inputs, struct buffer *in, const uint8_t *data, size_t len)
{
	size_t kept = buffer_len(in);

	assert(len <= INPUT_BYTES - kept);
	if (!in->data) {
		*in = (struct buffer){ .data = take_block(inputs), .cap = INPUT_BYTES };
		if (!in->data)
			return STATUS_NO_MEMORY;
	}
	if (len > in->cap - in->end) {
		memmove(in->data, in->data + in->start, kept);
		in->start = 0;
		in->end = kept;
	}
	memcpy(in->data + in->end, data, len);
	in->end += len;
	return 0;
}

void input_drop(struct inputs *inputs, struct buffer *in, size_t len)
{
	in->start += len;
	if (!in->data || in->start < in->end)
		return;
	give_back(inputs, in->data);
	*in = (struct buffer){ 0 };
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void on_input_check(uv_timer_t *timer)
{
	struct inputs *inputs = timer->data;
	uint32_t n = inputs->unused > inputs->n_clean ? inputs->unused - inputs->n_clean : 0;

	if (inputs->n_returning > 0)
		return;
	inputs->unused = inputs->n_free;
	if (inputs->n_free == inputs->n_clean)
		uv_timer_stop(timer);
	if (n == 0)
		return;
	n = min_u32(n, INPUTS_RETURNED);
	memcpy(inputs->returning, inputs->free + inputs->n_clean, n * sizeof *inputs->free);
	memmove(inputs->free + inputs->n_clean, inputs->free + inputs->n_clean + n,
	        (inputs->n_free - inputs->n_clean - n) * sizeof *inputs->free);
	inputs->n_free -= n;
	inputs->unused = inputs->n_free;
	inputs->n_returning = n;
	uv_queue_work(timer->loop, &inputs->work, return_memory, on_returned);
}

static void return_memory(uv_work_t *work)
{
	struct inputs *inputs = work->data;

	for (uint32_t i = 0; i < inputs->n_returning; i++)
		madvise(inputs->memory + (size_t)inputs->returning[i] * INPUT_BYTES, INPUT_BYTES,
		        MADV_DONTNEED);
}

/* Puts the blocks back, at the bottom of the stack. If the work item had the maximum number of blocks, starts
 * the next one at once. */
static void on_returned(uv_work_t *work, int status)
{
	struct inputs *inputs = work->data;
	uint32_t n = inputs->n_returning;

	(void)status;
	memmove(inputs->free + n, inputs->free, inputs->n_free * sizeof *inputs->free);
	memcpy(inputs->free, inputs->returning, n * sizeof *inputs->free);
	inputs->n_free += n;
	inputs->n_clean += n;
	inputs->unused += n;
	inputs->n_returning = 0;
	if (n == INPUTS_RETURNED && !uv_is_closing((uv_handle_t *)&inputs->timer))
		on_input_check(&inputs->timer);
}

/* ==== Memory that malloc holds ======================================================================= */

/* How much memory connections hold is known from the charges. */

/* Bytes that must have been freed before malloc_trim is called. */
#define ENOUGH_BYTES  (UINT64_C(8) << 20)
#define TRIM_DELAY_MS 1000

#define CONNECTION_BYTES 20000 /* approximate number of bytes that an idle connection takes */

static void on_trim_time(uv_timer_t *timer);

static uint64_t held(const struct connections *connections)
{
	const uint64_t *total = connections->service->accounts.total;

	return total[CHARGE_CONNECTIONS] * CONNECTION_BYTES + total[CHARGE_QUEUED_BYTES];
}

void trim_check(struct connections *connections)
{
	struct trim *trim = &connections->trim;
	uint64_t now = held(connections);

	if (now > trim->peak)
		trim->peak = now;
	else if (trim->peak - now >= ENOUGH_BYTES && !trim->is_under_way &&
	         connections->service->state == SERVICE_RUNNING && !uv_is_active((uv_handle_t *)&trim->timer))
		uv_timer_start(&trim->timer, on_trim_time, TRIM_DELAY_MS, 0);
}

static void do_trim(uv_work_t *work)
{
	(void)work;
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

static void on_trimmed(uv_work_t *work, int status)
{
	struct connections *connections = work->data;

	(void)status;
	connections->trim.is_under_way = false;
}

static void on_trim_time(uv_timer_t *timer)
{
	struct connections *connections = timer->data;
	struct trim *trim = &connections->trim;

	trim->peak = held(connections);
	trim->is_under_way = true;
	trim->work.data = connections;
	uv_queue_work(timer->loop, &trim->work, do_trim, on_trimmed);
}
