/* SPDX-License-Identifier: Apache-2.0 */
/* Launches requests into the program's own CUDA streams through libtma-local. A client of "local:" uses its
 * session. A client of a service opens a second session beside its connection, the launcher, when it first
 * launches; the service sees nothing of it. The launcher is told of a region's address, or of a plan, when a
 * request names it. A request that libtma-local does not support is not refused, but left to the service. */
#include "client.h"

#include <string.h>

#include "proto/wire/codec.h"

static struct local_session *session_of(const tma_client *client)
{
	return client->local ? client->local : client->launcher;
}

static int fail(tma_client *client, const struct error *err)
{
	return client_fail(client, err->status, "%s", err->message);
}

static int launcher_open(tma_client *client)
{
	struct error err;
	int rc = 0;

	if (client->has_no_launcher)
		return LAUNCH_ELSEWHERE;
	if (!client->launcher) {
		rc = local_find_door(client, &err);
		client->has_no_launcher = rc < 0;
		if (rc < 0)
			return LAUNCH_ELSEWHERE;
		rc = client->door->open(&client->launcher, -1, &err);
	}
	return rc < 0 ? fail(client, &err) : 0;
}

void launch_close(tma_client *client)
{
	if (client->launcher)
		client->door->close(client->launcher);
	client->launcher = NULL;
}

/* ---- A launch ----------------------------------------------------------------------------------------- */

int launch_begin(tma_client *client, void *stream)
{
	struct error err;
	int rc = client->local ? 0 : launcher_open(client);

	if (rc)
		return rc;
	rc = client->door->stream_begin(session_of(client), stream, &err);
	if (rc == STATUS_UNSUPPORTED && !client->local)
		return LAUNCH_ELSEWHERE;
	if (rc < 0)
		return fail(client, &err);
	client->launching = client->local ? LAUNCHING_NOT : LAUNCHING_HERE;
	return 0;
}

int launch_run(tma_client *client, enum method_id method, const union params *params, union local_result *ret)
{
	struct error err;
	int rc = client->door->run(session_of(client), method, params, ret, &err);

	if (rc == STATUS_UNSUPPORTED && client->launching)
		return launch_elsewhere(client);
	return rc < 0 ? fail(client, &err) : 0;
}

int launch_end(tma_client *client, int rc)
{
	const bool is_elsewhere = client->launching == LAUNCHING_ELSEWHERE;

	client->door->stream_end(session_of(client));
	client->launching = LAUNCHING_NOT;
	return is_elsewhere ? LAUNCH_ELSEWHERE : rc;
}

int launch_elsewhere(tma_client *client)
{
	client->launching = LAUNCHING_ELSEWHERE;
	return STATUS_UNSUPPORTED;
}

int launch_counts(tma_client *client, void *stream, struct local_counts *ret)
{
	struct error err;
	int rc = client->door->stream_counts(session_of(client), stream, ret, &err);

	if (rc == STATUS_UNSUPPORTED && !client->local) { /* Nothing can have been launched. */
		*ret = (struct local_counts){ 0 };
		return 0;
	}
	return rc < 0 ? fail(client, &err) : 0;
}

/* ---- What requests name ------------------------------------------------------------------------------- */

void launch_forget_region(const tma_region *region)
{
	const tma_client *client = region->client;
	union params params = { .region_release = { .has = F(region_release, region),
		                                    .region = region->here } };
	union local_result ignored;
	struct error err;

	if (client->launcher && region->here)
		client->door->run(client->launcher, METHOD_region_release, &params, &ignored, &err);
}

/* Registers the region with the launcher, in place of an earlier registration: memory that was mapped again
 * has another address. */
static int tell_of_region(tma_client *client, tma_region *region)
{
	struct error err;
	int rc;

	launch_forget_region(region);
	region->here = 0;
	rc = client->door->map(client->launcher, (const void *)(uintptr_t)region->address, region->size,
	                       region->writable, &region->here, &err);
	if (rc < 0)
		return fail(client, &err);
	region->here_address = region->address;
	return 0;
}

int launch_region(tma_client *client, tma_region *region, uint64_t *ret)
{
	int rc = 0;

	if (!region->address || !client->door->reaches(client->launcher, region->address))
		return launch_elsewhere(client);
	if (!region->here || region->here_address != region->address)
		rc = tell_of_region(client, region);
	*ret = region->here;
	return rc;
}

void launch_forget_plan(const tma_plan *plan)
{
	const tma_client *client = plan->client;
	union params params = { .plan_release = { .has = F(plan_release, plan), .plan = plan->here } };
	union local_result ignored;
	struct error err;

	if (client->launcher && plan->here)
		client->door->run(client->launcher, METHOD_plan_release, &params, &ignored, &err);
}

int launch_plan(tma_client *client, tma_plan *plan, uint64_t *ret)
{
	union local_result result;
	union params params;
	int rc = 0;

	if (!plan->here) {
		params.transform = plan->params;
		codec_set_defaults(methods[METHOD_plan_prepare].params, &params);
		rc = launch_run(client, METHOD_plan_prepare, &params, &result);
		if (rc == 0)
			plan->here = result.plan_prepared.plan;
	}
	*ret = plan->here;
	return rc;
}
