/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits, and the defaults that depend on the machine. */
#include "limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "proto/memory/headroom.h"

const struct limit_info limit_infos[LIMIT_COUNT] = {
#define LIMIT(name, least, dflt, doc) { #name, doc, least, dflt },
#include "limits.def"
};

uint64_t *limits_at(struct limits *limits, int index)
{
	static const size_t offsets[LIMIT_COUNT] = {
#define LIMIT(name, least, dflt, doc) offsetof(struct limits, name),
#include "limits.def"
	};

	return (uint64_t *)((char *)limits + offsets[index]);
}

static void lower(uint64_t *limit, uint64_t most)
{
	if (*limit > most)
		*limit = most > 0 ? most : 1;
}

void limits_init(struct limits *limits)
{
	struct headroom_figures figures;
	struct rlimit descriptors;

	for (int i = 0; i < LIMIT_COUNT; i++)
		*limits_at(limits, i) = limit_infos[i].dflt;

	headroom_now(&figures);
	if (figures.machine == UINT64_MAX)
		figures.machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	limits_fit_memory(limits, &figures);
	getrlimit(RLIMIT_NOFILE, &descriptors);
	limits_fit_descriptors(limits, descriptors.rlim_max);
}

void limits_fit_descriptors(struct limits *limits, uint64_t most)
{
	lower(&limits->region_fds_per_uid, most / 2);
}

/* Pages of clients' files belong to the clients, but mapping 4 KiB of them takes 8 bytes of ours. */
void limits_fit_memory(struct limits *limits, const struct headroom_figures *figures)
{
	uint64_t whole = headroom_whole(figures);

	limits->mapped_bytes_per_uid = figures->machine;
	if (figures->group < UINT64_MAX / 32)
		lower(&limits->mapped_bytes_per_uid, figures->group * 32);
	limits->created_bytes_per_uid = UINT64_MAX;
	lower(&limits->created_bytes_per_uid, whole / 4);
	lower(&limits->input_bytes_per_uid, whole / 16);
	lower(&limits->queued_bytes_per_uid, whole / 16);
	lower(&limits->list_bytes_per_uid, whole / 32);
	lower(&limits->plan_bytes_per_uid, whole / 32);
}

/* A limit that is lowered here may bound one that is checked later. */
const struct limit_bound limit_bounds[LIMIT_BOUNDS] = {
	{ LIMIT_INDEX_connections_per_uid, LIMIT_INDEX_connections },
	{ LIMIT_INDEX_created_bytes_per_uid, LIMIT_INDEX_mapped_bytes_per_uid },
	{ LIMIT_INDEX_behind_waits_per_uid, LIMIT_INDEX_jobs_per_uid },
	{ LIMIT_INDEX_jobs_behind_wait, LIMIT_INDEX_jobs_per_uid },
	{ LIMIT_INDEX_message_fds, LIMIT_INDEX_pending_fds_per_uid },
	{ LIMIT_INDEX_reply_limit_bytes, LIMIT_INDEX_queued_bytes_per_uid },
	{ LIMIT_INDEX_reply_pause_bytes, LIMIT_INDEX_reply_limit_bytes },
};

void limits_fit(struct limits *limits, const bool fixed[LIMIT_COUNT])
{
	for (int i = 0; i < LIMIT_BOUNDS; i++) {
		uint64_t *less = limits_at(limits, limit_bounds[i].less);
		uint64_t more = *limits_at(limits, limit_bounds[i].more);

		if (*less > more && !(fixed && fixed[limit_bounds[i].less]))
			*less = more;
	}
}

bool limit_applies_at_once(int index)
{
	return index != LIMIT_INDEX_tensor_map_entries && index != LIMIT_INDEX_restart_pause_ms;
}

uint32_t limits_list(const struct limits *limits, struct counter *ret, uint32_t n)
{
	const struct counter fixed[] = {
		{ "message_bytes", frame_request_limits.bytes },
		{ "message_depth", frame_request_limits.depth },
		{ "message_elements", frame_request_limits.elements },
		{ "rank", TENSOR_MAX_RANK },
	};
	uint32_t used = 0;

	for (int i = 0; i < LIMIT_COUNT && used < n; i++)
		ret[used++] = (struct counter){ limit_infos[i].name, *limits_at((struct limits *)limits, i) };
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0] && used < n; i++)
		ret[used++] = fixed[i];
	return used;
}
