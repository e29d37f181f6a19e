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
