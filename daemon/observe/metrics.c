/* SPDX-License-Identifier: Apache-2.0 */
/* Counts for the service, the uid and the session together. */
#include "metrics.h"

#include <assert.h>

#include "daemon/server.h"
#include "daemon/net/session.h"

void metrics_count_error(struct metrics *metrics, int status)
{
	assert(status < 0 && status >= -STATUS_COUNT);
	metrics->errors[-status - 1]++;
}

void metrics_count_transform(struct metrics *metrics, const struct transform_count *done)
{
	metrics->bytes[done->family] += done->bytes;
	metrics->ns[done->family] += done->ns;
	metrics->latency[done->family][done->bar]++;
	metrics->latency_ns[done->family] += done->latency_ns;
}

void session_count_request(struct session *session)
{
	session->server->metrics.requests++;
	session->account->usage->requests++;
	session->usage.requests++;
}

void session_count_error(struct session *session, int status)
{
	metrics_count_error(&session->server->metrics, status);
	usage_count_error(session->account->usage, status);
	usage_count_error(&session->usage, status);
}

void session_count_transform(struct session *session, const struct transform_count *done)
{
	metrics_count_transform(&session->server->metrics, done);
	usage_count_transform(session->account->usage, done);
	usage_count_transform(&session->usage, done);
}
