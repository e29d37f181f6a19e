/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the points of timelines that a request waits for and signals, and what it may take. */
#include "order.h"

#include <inttypes.h>

#include "daemon/resource/region.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "transforms.h"

static int find_word(struct session *session, uint64_t id, uint64_t offset, const char *name,
                     struct region **ret, struct error *err)
{
	struct tensor_place place;
	char region_name[16];
	int r;

	snprintf(region_name, sizeof region_name, "%s.region", name);
	r = region_table_find(&session->regions, id, region_name, ret, err);
	if (r == 0)
		r = region_check_writable(*ret, region_name, err);
	if (r < 0)
		return r;
	place = place_of(*ret, offset);
	return request_check_word(&place, id, name, err);
}

static int check_wait(struct session *session, const struct msg_wait *wait, struct order *ret,
                      struct error *err)
{
	uint64_t most = session->server->limits.wait_deadline_ms;

	ret->wait_ms = wait->has & F(wait, deadline_ms) ? wait->deadline_ms : most;
	if (ret->wait_ms > most)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "wait.deadline_ms: %" PRIu64 ", at most %" PRIu64 " (wait_deadline_ms)",
		                 ret->wait_ms, most);
	ret->wait_offset = wait->offset;
	ret->wait_value = wait->value;
	return find_word(session, wait->region, wait->offset, "wait", &ret->wait, err);
}

int order_check(struct session *session, const struct msg_wait *wait, const struct msg_signal *signal,
                enum completion completion, struct order *ret, struct error *err)
{
	int r = 0;

	*ret = (struct order){ .completion = completion };
	if (completion == COMPLETION_SIGNAL && !signal)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "reply: signal, but the request has no signal to tell when it is done");
	if (wait)
		r = check_wait(session, wait, ret, err);
	if (r == 0 && signal) {
		ret->signal_offset = signal->offset;
		ret->signal_value = signal->value;
		r = find_word(session, signal->region, signal->offset, "signal", &ret->signal, err);
	}
	return r;
}

void order_set_share(struct session *session, enum job_priority priority, uint64_t multiprocessors,
                     uint64_t host_threads, struct order *ret)
{
	const struct limits *limits = account_limits(&session->server->accounts, session->account);

	ret->priority = priority;
	ret->multiprocessors = order_within(multiprocessors, limits->multiprocessors);
	ret->host_threads = order_within(host_threads, limits->host_threads);
}
