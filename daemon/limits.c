/* The table of limits, and the defaults that depend on the machine. */
#include "limits.h"

#include <unistd.h>

#include "proto/frame.h"

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

void limits_init(struct limits *limits)
{
	for (int i = 0; i < LIMIT_COUNT; i++)
		*limits_at(limits, i) = limit_infos[i].dflt;

	limits->mapped_bytes_per_uid = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What is lowered here is looked at below. */
const struct limit_bound limit_bounds[LIMIT_BOUNDS] = {
	{ LIMIT_INDEX_connections_per_uid, LIMIT_INDEX_connections },
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
	return index != LIMIT_INDEX_tensor_map_entries;
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
