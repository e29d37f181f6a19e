/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, counters and log lines of a session, and the descriptors that arrive with its messages. */
#include "session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

int session_open_stream(struct session *session, uint32_t device, struct error *err)
{
	struct engine_stream **stream = &session->streams[device];

	if (!*stream)
		*stream = engine_stream_new(device_engine(&session->service->devices, device),
		                            &session->account->owners[device]);
	return *stream ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for a stream");
}

static void metrics_count_error(struct metrics *metrics, int status)
{
	assert(status < 0 && status >= -STATUS_COUNT);
	metrics->errors[-status - 1]++;
}

static void metrics_count_transform(struct metrics *metrics, const struct transform_count *done)
{
	metrics->bytes[done->family] += done->bytes;
	metrics->ns[done->family] += done->ns;
	metrics->latency[done->family][done->bar]++;
	metrics->latency_ns[done->family] += done->latency_ns;
}

void session_count_request(struct session *session)
{
	session->service->metrics.requests++;
	session->account->usage->requests++;
	session->usage.requests++;
}

void session_count_error(struct session *session, int status)
{
	metrics_count_error(&session->service->metrics, status);
	usage_count_error(session->account->usage, status);
	usage_count_error(&session->usage, status);
}

void session_count_transform(struct session *session, const struct transform_count *done)
{
	metrics_count_transform(&session->service->metrics, done);
	usage_count_transform(session->account->usage, done);
	usage_count_transform(&session->usage, done);
}

/* ---- The log ------------------------------------------------------------------------------------------ */

static bool may_log(const struct session *session, enum log_level level)
{
	return log_wants(level) && (level == LOG_LEVEL_DEBUG ||
	                            log_allows(session->account->user, uv_now(&session->service->loop)));
}

static struct log_about about(const struct session *session)
{
	return (struct log_about){
		.has_uid = true,
		.uid = session->peer.uid,
		.cgroup = session->account->cgroup,
		.pid = session->peer.pid,
		.session = session->id,
	};
}

void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
{
	struct log_about of;
	char text[512];
	va_list args;

	if (!may_log(session, level))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	of = about(session);
	of.has_request = msgid >= 0;
	of.request = (uint32_t)msgid;
	log_about(level, &of, "%s", text);
}

/* Returns the level at which a refusal is logged. Malformed requests concern only the client; limits, lack of
 * memory, failures of the device and bugs also concern the operator. */
static enum log_level refusal_level(int status)
{
	switch (status) {
	case STATUS_QUOTA:
	case STATUS_BUSY:
	case STATUS_NO_MEMORY:
	case STATUS_DEVICE:
	case STATUS_INTERNAL:
		return LOG_LEVEL_WARNING;
	default:
		return LOG_LEVEL_NOTICE;
	}
}

void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error)
{
	enum log_level level = refusal_level(error->status);
	struct log_about of;

	if (!may_log(session, level))
		return;
	of = about(session);
	of.has_request = true;
	of.request = msgid;
	of.method = method ? method->name : NULL;
	of.status = status_name(error->status);
	of.duration_us = (uv_hrtime() - start_ns + 999) / 1000;
	log_about(level, &of, "refused %s: %s: %s", method ? method->name : "a request", of.status,
	          error->message);
}

/* ==== Descriptors ==================================================================================== */

/* A descriptor that arrives with input stays pending until a request takes it or it is dropped.
 *
 * Each pending descriptor has the range of stream bytes with which it arrived, which determines the messages
 * that it may belong to. Pending descriptors are in the order of arrival and count towards
 * pending_fds_per_uid. Dropped descriptors are closed off the loop (async_close_fd), because close may block.
 */

/* Makes room in session->fds for n more descriptors. Returns 0 or NO_MEMORY. */
static int reserve(struct session *session, size_t n, struct error *err)
{
	const size_t room = session->n_fds + n;
	struct pending_fd *grown;

	if (room <= session->fds_room)
		return 0;
	grown = realloc(session->fds, room * sizeof *grown);
	if (!grown)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %zu descriptors", room);
	session->fds = grown;
	session->fds_room = (uint32_t)room;
	return 0;
}

int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err)
{
	const struct limits *limits = &session->service->limits;
	int r = 0;

	if (n > limits->message_fds)
		r = error_set(err, STATUS_QUOTA,
		              "%zu descriptors in one message, at most %" PRIu64 " (message_fds)", n,
		              limits->message_fds);
	else if (n > SESSION_MAX_PENDING_FDS - session->n_fds)
		r = error_set(err, STATUS_QUOTA, "more than %d descriptors pending", SESSION_MAX_PENDING_FDS);
	else if (n > 0)
		r = reserve(session, n, err);
	if (r == 0 && n > 0)
		r = charge_take(&session->fds_charge, &session->service->accounts, session->account,
		                CHARGE_PENDING_FDS, n, err);
	if (r < 0) {
		session_close_fds(session, fds, n);
		return r;
	}

	for (size_t i = 0; i < n; i++)
		session->fds[session->n_fds++] = (struct pending_fd){ fds[i], start, end };
	return 0;
}

void session_close_fds(struct session *session, const int *fds, size_t n)
{
	struct charge none = { 0 };

	for (size_t i = 0; i < n; i++)
		async_close_fd(&session->service->chores, session->account, fds[i], &none);
}

static void forget_first(struct session *session, uint32_t n)
{
	session->n_fds -= n;
	if (session->n_fds > 0) {
		memmove(session->fds, session->fds + n, session->n_fds * sizeof *session->fds);
		return;
	}
	free(session->fds);
	session->fds = NULL;
	session->fds_room = 0;
}

static void drop_first(struct session *session, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct charge charge = { 0 };

		charge_move(&session->fds_charge, &charge, 1);
		async_close_fd(&session->service->chores, session->account, session->fds[i].fd, &charge);
	}
	forget_first(session, n);
}

/* Returns how many of the first n descriptors came with the message being handled. */
static uint32_t count_first(const struct session *session, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && i < session->n_fds && session->fds[i].start < session->handled)
		i++;
	return i;
}

const struct pending_fd *session_first_fds(const struct session *session, uint32_t n)
{
	return count_first(session, n) == n ? session->fds : NULL;
}

uint32_t session_count_own_fds(const struct session *session)
{
	uint32_t n = 0;

	while (n < session->n_fds && session->fds[n].end <= session->handled)
		n++;
	return n;
}

void session_take_fds(struct session *session, uint32_t n, struct charge *ret_charge)
{
	charge_move(&session->fds_charge, ret_charge, n);
	forget_first(session, n);
}

void session_drop_fds(struct session *session, uint32_t n)
{
	drop_first(session, count_first(session, n));
}

void session_drop_fds_before(struct session *session, uint64_t end)
{
	uint32_t n = 0;

	while (n < session->n_fds && session->fds[n].end <= end)
		n++;
	drop_first(session, n);
}
