/* SPDX-License-Identifier: Apache-2.0 */
/* Takes what the parts of a region_register name. What the driver has to say of them is the engine's to find
 * out, off the loop. */
#include "region_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/net/session.h"
#include "daemon/resource/region.h"
#include "daemon/server.h"
#include "proto/wire/rpc.h"

static int find_region(struct session *session, uint32_t i, uint64_t id, struct region **ret,
                       struct error *err)
{
	char name[32];
	int r;

	snprintf(name, sizeof name, "parts[%" PRIu32 "].region", i);
	r = region_table_find(&session->regions, id, name, ret, err);
	if (r == 0 && (*ret)->memory->kind != REGION_KIND_CUDA_FD)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: region %" PRIu64 " is of kind %s; parts are of kind cuda_fd", name, id,
		                 region_kind_names[(*ret)->memory->kind]);
	return r;
}

/* A part without its descriptor. */
static int take_part(struct region_parts *parts, struct session *session, const struct message_list *list,
                     uint32_t *n_fds, struct error *err)
{
	const uint32_t i = parts->n;
	struct region *region = NULL;
	struct msg_part part;
	int r = rpc_decode_part(list, i, &part, err);

	if (r < 0)
		return r;
	if (part.has & F(part, region))
		r = find_region(session, i, part.region, &region, err);
	else if (part.has & F(part, offset))
		r = error_set(err, STATUS_INVALID_ARGUMENT,
		              "parts[%" PRIu32 "].offset: only a part of a region has one; an allocation is "
		              "mapped from its start",
		              i);
	if (r < 0)
		return r;
	if (__builtin_add_overflow(parts->bytes, part.size, &parts->bytes))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "parts[%" PRIu32 "].size: with the parts before it %" PRIu64
		                 " bytes overflow 64 bits",
		                 i, part.size);
	parts->list[i] = (struct engine_part){
		.fd = -1, .memory = region ? region->memory : NULL, .offset = part.offset, .size = part.size
	};
	parts->regions[i] = region;
	if (region)
		region_use(region);
	else
		++*n_fds;
	parts->n++;
	return 0;
}

static int take_fds(struct region_parts *parts, struct session *session, uint32_t n, struct error *err)
{
	const uint32_t came = session_count_own_fds(session);
	const struct pending_fd *fds = session_first_fds(session, n);

	if (came > n || (n > 0 && !fds))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "parts: %" PRIu32 " of them are allocations, but %" PRIu32
		                 " file descriptors (SCM_RIGHTS) came with the request",
		                 n, came);
	for (uint32_t i = 0; i < parts->n; i++)
		if (!parts->regions[i])
			parts->list[i].fd = fds++->fd;
	if (n > 0)
		session_take_fds(session, n, &parts->fds);
	return 0;
}

static int take(struct region_parts *parts, struct session *session,
                const struct msg_region_register *request, struct error *err)
{
	const struct message_list *list = &request->parts;
	const uint64_t bytes = (uint64_t)list->n * (sizeof *parts->list + sizeof *parts->regions);
	uint32_t n_fds = 0;
	int r;

	if (request->kind != REGION_KIND_CUDA_FD)
		return error_set(err, STATUS_INVALID_ARGUMENT, "parts: kind %s has none; cuda_fd has",
		                 region_kind_names[request->kind]);
	if (request->has & F(region_register, allocation))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "allocation: each part has its size; it is of a region without parts");
	if (list->n == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "parts: a region has at least 1, got 0");
	r = charge_take(&parts->list_bytes, &session->server->accounts, session->account, CHARGE_LIST_BYTES,
	                bytes, err);
	if (r < 0)
		return r;
	parts->list = calloc(list->n, sizeof *parts->list);
	parts->regions = calloc(list->n, sizeof *parts->regions);
	if (!parts->list || !parts->regions)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " parts", list->n);
	while (r == 0 && parts->n < list->n)
		r = take_part(parts, session, list, &n_fds, err);
	return r < 0 ? r : take_fds(parts, session, n_fds, err);
}

/* How many of the request's descriptors are dropped when it is refused: those that came with its bytes
 * alone, and others as far as its list takes them. What a request behind it brings is that one's, even if it
 * came with bytes of both. */
static uint32_t count_fds(const struct session *session, const struct message_list *list)
{
	const uint32_t own = session_count_own_fds(session);
	uint32_t taken = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		struct msg_part part;
		struct error ignored;

		taken += rpc_decode_part(list, i, &part, &ignored) == 0 && !(part.has & F(part, region));
	}
	return own > taken ? own : taken;
}

void region_parts_drop_fds(struct session *session, const struct message_list *list)
{
	session_drop_fds(session, count_fds(session, list));
}

int region_parts_init(struct region_parts *parts, struct session *session,
                      const struct msg_region_register *request, struct error *err)
{
	int r;

	*parts = (struct region_parts){ 0 };
	r = take(parts, session, request, err);
	if (r < 0) {
		region_parts_drop_fds(session, &request->parts);
		region_parts_deinit(parts, session);
	}
	return r;
}

uint64_t region_parts_count(const struct region_parts *parts)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < parts->n; i++) {
		const struct engine_part *part = &parts->list[i];
		const struct memory_range range = { part->memory ? part->memory->chunks : NULL, part->offset,
			                            part->offset + part->size };
		uint32_t first;

		n += range.chunks ? memory_range_touched(&range, &first) : 1;
	}
	return n;
}

void region_parts_deinit(struct region_parts *parts, struct session *session)
{
	for (uint32_t i = 0; i < parts->n; i++) {
		struct charge charge = { 0 };

		if (parts->regions[i])
			region_unuse(parts->regions[i]);
		if (parts->list[i].fd < 0)
			continue;
		charge_move(&parts->fds, &charge, 1);
		async_close_fd(&session->server->chores, session->account, parts->list[i].fd, &charge);
	}
	charge_release(&parts->fds);
	charge_release(&parts->list_bytes);
	free(parts->list);
	free(parts->regions);
	*parts = (struct region_parts){ 0 };
}
