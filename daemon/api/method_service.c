/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the methods by which the service reports on itself and its connections (info, ping, stats,
 * session_list, region_list), and cancel. */
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/jobs/job.h"
#include "daemon/loop/log.h"
#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"

/* ---- info -----------------------------------------------------------------------------------------------
 */

static const char *const link_names[] = { [ENGINE_LINK_PCIE] = "pcie", [ENGINE_LINK_NVLINK] = "nvlink" };

/* Writes the links of a device to *links, advances *links past them, and returns them as a list. */
static struct message_list list_links(const struct devices *devices, const struct served_device *device,
                                      struct msg_device_link **links)
{
	struct message_list list = { .items = *links };

	for (uint32_t i = 0; i < devices->n; i++) {
		const struct engine_link *link = &device->links[i];

		if (link->kind == ENGINE_LINK_NONE)
			continue;
		*(*links)++ = (struct msg_device_link){ .device = bytes_of(device_engine(devices, i)->uuid),
			                                .kind = bytes_of(link_names[link->kind]),
			                                .rank = link->rank };
		list.n++;
	}
	return list;
}

/* Lists the devices that have a UUID. One allocation holds the devices and then their links; the caller frees
 * it by the list's items. The list is empty if out of memory. */
static struct message_list list_devices(const struct devices *devices)
{
	const size_t n = devices->n;
	struct msg_device_info *infos = calloc(1, n * sizeof *infos + n * n * sizeof(struct msg_device_link));
	struct msg_device_link *links = infos ? (struct msg_device_link *)(infos + n) : NULL;
	struct message_list list = { .items = infos };

	for (uint32_t i = 0; infos && i < n; i++) {
		const struct engine *engine = device_engine(devices, i);

		if (!*engine->uuid)
			continue;
		infos[list.n++] =
		    (struct msg_device_info){ .uuid = bytes_of(engine->uuid),
			                      .name = bytes_of(engine->device_name),
			                      .memory = engine->memory_bytes,
			                      .multiprocessors = engine->multiprocessors,
			                      .links = list_links(devices, &devices->of[i], &links) };
	}
	return list;
}

int method_info(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct service *service = session->service;
	const struct engine *first = device_engine(&service->devices, 0);
	struct counter limits[LIMIT_COUNT + 8];
	char device[160];
	struct msg_info info = {
		.version = bytes_of(PACKAGE_VERSION),
		.protocol = PROTOCOL_VERSION,
		.boot_id = bytes_of(service->boot_id),
		.engine = bytes_of(first->name),
		.limits = { limits, limits_list(account_limits(&service->accounts, session->account), limits,
		                                LIMIT_COUNT + 8) },
		.methods = { method_names, METHOD_COUNT },
		.dtypes = { dtype_names, DTYPE_COUNT },
		.has = F(info, devices),
		.devices = list_devices(&service->devices),
	};

	(void)err;
	service_describe(service, device, sizeof device);
	info.device = bytes_of(device);
	if (first->multiprocessors > 0) {
		info.has |= F(info, multiprocessors);
		info.multiprocessors = first->multiprocessors;
	}
	if (*service->engine_note) {
		info.has |= F(info, note);
		info.note = bytes_of(service->engine_note);
	}
	session_reply(session, request->msgid, request->method, &info, -1);
	free((void *)info.devices.items);
	return 0;
}

/* ---- ping and stats -------------------------------------------------------------------------------------
 */

int method_ping(struct session *session, const struct rpc_request *request, struct error *err)
{
	(void)err;
	session_reply(session, request->msgid, request->method, NULL, -1);
	return 0;
}

/* Lists the users that the session's user may see, and returns their number. ret has room for all users. */
static uint32_t list_users(const struct session *session, struct msg_user_stats *ret)
{
	const struct accounts *accounts = &session->service->accounts;
	const uid_t uid = session->peer.uid;
	const struct account *account;
	uint32_t n = 0;

	for (uint32_t i = 0; i < accounts->usages.n; i++) {
		const struct usage *usage = accounts->usages.of[i];
		struct msg_user_stats *user = &ret[n];

		if (uid != 0 && uid != geteuid() && uid != accounts->usages.uid[i])
			continue;
		*user = (struct msg_user_stats){ .uid = accounts->usages.uid[i],
			                         .ns = usage_sum(usage->ns, FAMILY_COUNT),
			                         .multiprocessor_ns = usage->multiprocessor_ns };
		if (*accounts->usages.cgroup[i]) {
			user->has |= F(user_stats, cgroup);
			user->cgroup = bytes_of(accounts->usages.cgroup[i]);
		}
		LIST_FOREACH(account, &accounts->list, entry)
			if (account->usage == usage) {
				user->has |= F(user_stats, multiprocessors) | F(user_stats, host_threads);
				user->multiprocessors = account_limits(accounts, account)->multiprocessors;
				user->host_threads = account_limits(accounts, account)->host_threads;
			}
		n++;
	}
	return n;
}

/* Lists the devices that have a UUID, and returns their number. */
static uint32_t count_devices(const struct devices *devices, struct msg_device_stats *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < devices->n; i++) {
		const struct served_device *device = &devices->of[i];

		if (!*device->engine->uuid)
			continue;
		ret[n++] = (struct msg_device_stats){ .device = bytes_of(device->engine->uuid),
			                              .up = device_is_up(device),
			                              .transforms = device->transforms,
			                              .bytes = device->bytes,
			                              .ns = device->ns,
			                              .jobs = device->jobs,
			                              .regions = device->regions,
			                              .mapped_bytes = device->mapped_bytes };
	}
	return n;
}

static uint32_t count_links(const struct devices *devices)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < devices->n; i++)
		for (uint32_t j = 0; j < devices->n; j++)
			n += devices->of[i].sent_bytes[j] > 0;
	return n;
}

/* Lists the links that bytes have crossed. The caller frees ret->items. The list is empty if out of
 * memory. */
static void list_link_stats(const struct devices *devices, struct message_list *ret)
{
	const uint32_t n = count_links(devices);
	struct msg_link_stats *links = n ? calloc(n, sizeof *links) : NULL;

	*ret = (struct message_list){ .items = links };
	for (uint32_t i = 0; links && i < devices->n; i++)
		for (uint32_t j = 0; j < devices->n; j++)
			if (devices->of[i].sent_bytes[j])
				links[ret->n++] = (struct msg_link_stats){
					.from = bytes_of(devices->of[i].engine->uuid),
					.to = bytes_of(devices->of[j].engine->uuid),
					.bytes = devices->of[i].sent_bytes[j],
				};
}

int method_stats(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct service *service = session->service;
	const struct metrics *m = &service->metrics;
	struct msg_latency_bucket latency[LATENCY_BARS];
	struct counter by_method[METHOD_COUNT], errors[STATUS_COUNT], bytes[FAMILY_COUNT], ns[FAMILY_COUNT];
	struct msg_user_stats users[USAGE_UIDS];
	struct msg_device_stats devices[ENGINES_MOST];
	struct engine_cache_stats maps, plans;
	const char *status_names[STATUS_COUNT];
	uint32_t n_latency = 0;
	struct msg_stats stats;

	(void)err;
	for (int i = 0; i < STATUS_COUNT; i++)
		status_names[i] = status_name(-i - 1);
	for (int i = 0; i < LATENCY_BARS; i++) {
		uint64_t count = 0;

		for (int f = 0; f < FAMILY_COUNT; f++)
			count += m->latency[f][i];
		if (count)
			latency[n_latency++] =
			    (struct msg_latency_bucket){ .below_ns = latency_bound(i), .count = count };
	}

	devices_cache_stats(&service->devices, &maps);
	devices_plan_stats(&service->devices, &plans);

	stats = (struct msg_stats){
		.has = F(stats, tensor_maps) | F(stats, recoveries) | F(stats, pending_fds) |
		       F(stats, queued_bytes) | F(stats, plans) | F(stats, ns) | F(stats, engine_up) |
		       F(stats, waiting) | F(stats, log_lines_lost) | F(stats, input_bytes) |
		       F(stats, outgoing_fds) | F(stats, users) | F(stats, tables) | F(stats, devices) |
		       F(stats, links) | F(stats, stalled_users),
		.requests = m->requests,
		.requests_by_method =
		    counters_named(by_method, m->requests_by_method, method_names, METHOD_COUNT),
		.errors = counters_named(errors, m->errors, status_names, STATUS_COUNT),
		.bytes = counters_named(bytes, m->bytes, family_names, FAMILY_COUNT),
		.plan_cache = { .hits = plans.hits,
		                .misses = plans.misses,
		                .evictions = plans.evictions,
		                .entries = plans.entries },
		.connections_accepted = m->connections_accepted,
		.connections_refused = m->connections_refused,
		.sessions_ended = m->sessions_ended,
		.regions = service->n_regions,
		.mapped_bytes = service->mapped_bytes,
		.jobs = service->accounts.total[CHARGE_JOBS],
		.connections = service->accounts.total[CHARGE_CONNECTIONS],
		.uptime_ms = (uv_hrtime() - m->start_ns) / 1000000,
		.latency = { .items = latency, .n = n_latency },
		.tensor_maps = { .hits = maps.hits,
		                 .misses = maps.misses,
		                 .evictions = maps.evictions,
		                 .entries = maps.entries },
		.recoveries = service->recovery.count,
		.pending_fds = service->accounts.total[CHARGE_PENDING_FDS],
		.queued_bytes = service->accounts.total[CHARGE_QUEUED_BYTES],
		.plans = service->accounts.total[CHARGE_PLANS],
		.ns = counters_named(ns, m->ns, family_names, FAMILY_COUNT),
		.engine_up = service_is_up(service),
		.waiting = service_count_waiting(service),
		.stalled_users = service->stalls.users,
		.log_lines_lost = log_lost(),
		.input_bytes = service->accounts.total[CHARGE_INPUT_BYTES],
		.outgoing_fds = service->accounts.total[CHARGE_OUTGOING_FDS],
		.users = { .items = users, .n = list_users(session, users) },
		.tables = service->n_tables,
		.devices = { .items = devices, .n = count_devices(&service->devices, devices) },
	};
	list_link_stats(&service->devices, &stats.links);
	session_reply(session, request->msgid, request->method, &stats, -1);
	free((void *)stats.links.items);
	return 0;
}

/* ==== session_list =================================================================================== */

/* session_list lists the connections and their use of the service. Root and the user of the service see all;
 * other users see the connections of their own uid. */

/* Maximum number of entries in a reply, and the number of bytes that one entry is assumed to take. */
#define PAGE        256
#define ENTRY_BYTES 1024

static bool may_see(const struct session *asking, const struct session *session)
{
	uid_t uid = asking->peer.uid;

	return uid == 0 || uid == geteuid() || uid == session->peer.uid;
}

/* Finds a session by its id (0: the asking session itself) if the asking session's user may see it. The error
 * NOT_FOUND does not reveal whether a session that may not be seen exists. */
static int session_find(struct session *asking, uint64_t id, struct session **ret, struct error *err)
{
	struct session *session;

	if (id == 0) {
		*ret = asking;
		return 0;
	}
	TAILQ_FOREACH(session, &asking->service->sessions, entry)
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
		.age_ms = service_now_ms(session->service) - session->start_ms,
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

/* Returns the maximum number of entries in a reply. */
static uint32_t page_of(const struct limits *limits)
{
	uint64_t room = limits->reply_pause_bytes / ENTRY_BYTES;

	return room < 1 ? 1 : room < PAGE ? (uint32_t)room : PAGE;
}

int method_session_list(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct service *service = session->service;
	uint64_t after = request->params.session_list.after;
	uint32_t most = page_of(&service->limits);
	struct msg_session_entry *entries = calloc(most, sizeof *entries);
	struct message_list list = { .items = entries };
	struct session *other;

	if (!entries)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of connections");
	/* service->sessions is in the order of ids. */
	TAILQ_FOREACH(other, &service->sessions, entry)
		if (other->id > after && list.n < most && may_see(session, other))
			entries[list.n++] = entry_of(other);
	session_reply(session, request->msgid, request->method, &list, -1);
	free(entries);
	return 0;
}

/* ==== region_list ===================================================================================== */

int method_region_list(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct session *owner = NULL;
	struct region_table *table;
	struct msg_region_entry *entries;
	struct message_list list = { 0 };
	struct region *region;
	uint32_t cursor = 0;
	int r = session_find(session, request->params.region_list.session, &owner, err);

	if (r < 0)
		return r;
	table = &owner->regions;
	list.items = entries = calloc(table->ids.used + 1, sizeof *entries);
	if (!entries)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of %u regions",
		                 table->ids.used);
	while ((region = region_table_next(table, &cursor))) {
		const char *uuid = device_engine(&region->service->devices, region->device)->uuid;

		entries[list.n++] = (struct msg_region_entry){ .region = region->id,
			                                       .kind = region->memory->kind,
			                                       .size = region->memory->size,
			                                       .offset = region->memory->base,
			                                       .writable = region->memory->writable,
			                                       .state = region->state,
			                                       .jobs = region->jobs,
			                                       .device = bytes_of(uuid),
			                                       .has = *uuid ? F(region_entry, device) : 0 };
	}
	session_reply(session, request->msgid, request->method, &list, -1);
	free(entries);
	return 0;
}

/* ==== cancel ========================================================================================= */

/* cancel cancels a request whose job has not started. */

int method_cancel(struct session *session, const struct rpc_request *request, struct error *err)
{
	uint64_t msgid = request->params.cancel.request;
	struct job *job = msgid <= UINT32_MAX ? job_find(session, (uint32_t)msgid) : NULL;
	struct msg_canceled canceled = { .canceled = job && job_cancel(job) };

	(void)err;
	session_reply(session, request->msgid, request->method, &canceled, -1);
	return 0;
}
