/* SPDX-License-Identifier: Apache-2.0 */
/* ring_open, ring_close: a submission ring in memory that the connection shares. */
#include "dispatch.h"

#include <inttypes.h>

#include "proto/submission.h"
#include "daemon/resource/reach.h"
#include "daemon/resource/region.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "daemon/resource/submission.h"

static int check_entries(uint64_t entries, struct error *err)
{
	if (entries >= SUBMISSION_LEAST_ENTRIES && entries <= SUBMISSION_MOST_ENTRIES &&
	    (entries & (entries - 1)) == 0)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "entries: %" PRIu64 ", but it must be a power of two from %d to %d", entries,
	                 SUBMISSION_LEAST_ENTRIES, SUBMISSION_MOST_ENTRIES);
}

static int check_place(const struct region *region, uint64_t offset, uint64_t bytes, struct error *err)
{
	const struct engine_memory *memory = region->memory;

	if (!memory->host)
		return error_set(err, STATUS_UNSUPPORTED, "at: region %" PRIu64 " is not host memory (memfd)",
		                 region->id);
	if (((uintptr_t)memory->host + offset) % SUBMISSION_LINE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "at: byte %" PRIu64 " of region %" PRIu64 " is not aligned to %d bytes",
		                 offset, region->id, SUBMISSION_LINE);
	if (offset > memory->size || memory->size - offset < bytes)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "at: the ring's %" PRIu64 " bytes from byte %" PRIu64
		                 " exceed region %" PRIu64 ", which has %" PRIu64,
		                 bytes, offset, region->id, memory->size);
	return 0;
}

int method_ring_open(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_ring_open *p = &request->params.ring_open;
	uint64_t most = session->server->limits.ring_spin_us;
	struct msg_ring_opened opened = { .spin_us = p->spin_us < most ? p->spin_us : most };
	struct region *region;
	int r;

	if (session->submission)
		return error_set(err, STATUS_ALREADY_EXISTS, "ring_open: this connection already has a ring");
	r = check_entries(p->entries, err);
	if (r == 0)
		r = region_table_find(&session->regions, p->at.region, "at", &region, err);
	if (r == 0)
		r = region_check_writable(region, "at", err);
	if (r == 0)
		r = check_place(region, p->at.offset, submission_bytes((uint32_t)p->entries), err);
	if (r == 0)
		r = region_reach(region, region->device, err);
	if (r == 0)
		r = submission_open(session, region, p->at.offset, (uint32_t)p->entries, opened.spin_us, err);
	if (r < 0)
		return r;
	opened.spin_us = session->submission->spin_ns / 1000;
	session_reply(session, request->msgid, request->method, &opened, -1);
	return 0;
}

int method_ring_close(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct submission *ring = session->submission;
	uint32_t runs;

	if (!ring)
		return error_set(err, STATUS_NOT_FOUND, "ring_close: this connection has no ring");
	if (submission_is_rung(ring))
		return err->status = REACH_LATER;
	runs = submission_count(ring);
	if (runs > 0)
		return error_set(err, STATUS_BUSY, "ring_close: runs still under way: %" PRIu32, runs);
	submission_close(ring);
	session_reply(session, request->msgid, request->method, NULL, -1);
	return 0;
}
