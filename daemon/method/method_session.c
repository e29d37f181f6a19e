/* SPDX-License-Identifier: Apache-2.0 */
/* session_list: the connections and their use of the service. Root and the user of the service see all, other
 * users see the connections of their own uid. */
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/server.h"
#include "daemon/net/session.h"

/* The most entries of a reply, and room for one of them. */
#define PAGE        256
#define ENTRY_BYTES 1024

static bool may_see(const struct session *asking, const struct session *session)
{
	uid_t uid = asking->peer.uid;

	return uid == 0 || uid == geteuid() || uid == session->peer.uid;
}

int session_find(struct session *asking, uint64_t id, struct session **ret, struct error *err)
{
	struct session *session;

	if (id == 0) {
		*ret = asking;
		return 0;
	}
	TAILQ_FOREACH(session, &asking->server->sessions, entry)
		if (session->id == id && may_see(asking, session)) {
			*ret = session;
			return 0;
		}
	return error_set(err, STATUS_NOT_FOUND,
	                 "session: there is no connection %" PRIu64 ", or it belongs to another uid", id);
}

static struct msg_session_entry entry_of(const struct session *session)
{
	const struct usage *usage = &session->usage;
	struct msg_session_entry entry = {
		.session = session->id,
		.uid = session->peer.uid,
		.pid = (uint64_t)session->peer.pid,
		.age_ms = server_now_ms(session->server) - session->start_ms,
		.requests = usage->requests,
		.errors = usage_sum(usage->errors, STATUS_COUNT),
		.bytes = usage_sum(usage->bytes, FAMILY_COUNT),
		.ns = usage_sum(usage->ns, FAMILY_COUNT),
		.regions = session->regions.ids.used,
		.mapped_bytes = session->regions.mapped_bytes,
		.plans = session->plans.used,
		.jobs = session->transforms,
		.has = F(session_entry, multiprocessor_ns) | F(session_entry, tables),
		.multiprocessor_ns = usage->multiprocessor_ns,
		.tables = session->tables.used,
		.queued_bytes = session->out_charge.amount,
	};

	if (*session->account->cgroup) {
		entry.has |= F(session_entry, cgroup);
		entry.cgroup = bytes_of(session->account->cgroup);
	}
	for (int i = 0; i < LATENCY_BARS; i++) {
		entry.latency.v[i] = (int64_t)usage->latency[i];
		if (usage->latency[i])
			entry.latency.n = (uint32_t)i + 1;
	}
	return entry;
}

/* As many entries as a reply should have bytes for. */
static uint32_t page_of(const struct limits *limits)
{
	uint64_t room = limits->reply_pause_bytes / ENTRY_BYTES;

	return room < 1 ? 1 : room < PAGE ? (uint32_t)room : PAGE;
}

int method_session_list(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct server *server = session->server;
	uint64_t after = request->params.session_list.after;
	uint32_t most = page_of(&server->limits);
	struct msg_session_entry *entries = calloc(most, sizeof *entries);
	struct message_list list = { .items = entries };
	struct session *other;

	if (!entries)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of connections");
	/* The list is in the order of ids. */
	TAILQ_FOREACH(other, &server->sessions, entry)
		if (other->id > after && list.n < most && may_see(session, other))
			entries[list.n++] = entry_of(other);
	session_reply(session, request->msgid, request->method, &list, -1);
	free(entries);
	return 0;
}
