/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits, defaults that depend on the machine, and the parser of numbers with units. */
#include "limits.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/memory/headroom.h"
#include "proto/wire/frame.h"

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

/* The pages of a client's file are charged to the client. The page tables that map them, 8 bytes for every 4
 * KiB, are charged to the service. So mapped_bytes_per_uid is limited too, to 32 times the cgroup's limit. */
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

/* The order matters: limits_fit goes through the pairs from first to last, so a pair that lowers a limit
 * precedes the pairs in which that limit is the bound. */
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

/* ==== Quantities ===================================================================================== */

/* A number consists of digits and an optional unit. With a unit it may also have a decimal point and more
 * digits. */

#define MOST_OF UINT64_C(1000000000) /* greatest divisor, which allows nine digits after the point */

struct number {
	uint64_t digits;  /* all digits as one integer; the number is digits / of */
	uint64_t of;      /* a power of ten */
	const char *unit; /* rest of the text; "": no unit */
};

struct unit {
	const char *name;
	uint64_t size;
};

static const struct unit byte_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ NULL, 0 },
};
static const struct unit time_units[] = {
	{ "us", 1 }, { "ms", 1000 }, { "s", 1000000 }, { "min", 60000000 }, { "h", UINT64_C(3600000000) },
	{ NULL, 0 },
};

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len >= n && !strcmp(text + len - n, end);
}

enum quantity quantity_of(const char *name)
{
	if (ends_with(name, "_ms"))
		return QUANTITY_MS;
	if (ends_with(name, "_us"))
		return QUANTITY_US;
	return strstr(name, "bytes") ? QUANTITY_BYTES : QUANTITY_COUNT;
}

static bool read_number(const char *text, struct number *ret)
{
	struct number n = { .of = 1 };
	bool is_fraction = false;

	if (*text < '0' || *text > '9')
		return false;
	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !is_fraction); text++) {
		if (*text == '.') {
			is_fraction = true;
			continue;
		}
		if (__builtin_mul_overflow(n.digits, 10, &n.digits) ||
		    __builtin_add_overflow(n.digits, (uint64_t)(*text - '0'), &n.digits))
			return false;
		if (is_fraction)
			n.of *= 10;
		if (n.of > MOST_OF)
			return false;
	}
	n.unit = text;
	*ret = n;
	return !is_fraction || (n.of > 1 && *n.unit);
}

/* Returns the size of a unit, or 0 if it is unknown. Ignores case, and treats K, KB and KiB as equal. */
static uint64_t unit_size(const struct unit *units, const char *name)
{
	size_t len = strlen(name);

	if (units == byte_units && len > 1 && strchr("KMGTkmgt", *name) &&
	    (!strcasecmp(name + 1, "B") || !strcasecmp(name + 1, "iB")))
		len = 1;
	for (; units->name; units++)
		if (strlen(units->name) == len && !strncasecmp(units->name, name, len))
			return units->size;
	return 0;
}

/* Sets *ret to digits / of * size / own, rounded down. Returns false if the result does not fit into 64 bits,
 * or if it is not a whole number and rest is false. */
static bool scale(const struct number *n, uint64_t size, uint64_t own, bool rest, uint64_t *ret)
{
	unsigned __int128 whole = (unsigned __int128)n->digits * size, by = (unsigned __int128)n->of * own;

	if (whole / by > UINT64_MAX || (!rest && whole % by))
		return false;
	*ret = (uint64_t)(whole / by);
	return true;
}

static bool parse(enum quantity quantity, const char *text, uint64_t *ret)
{
	struct number n;
	uint64_t size;

	if (!read_number(text, &n))
		return false;
	switch (quantity) {
	case QUANTITY_COUNT:
		*ret = n.digits;
		return !*n.unit;
	case QUANTITY_BYTES:
		size = unit_size(byte_units, n.unit);
		return size && scale(&n, size, 1, true, ret);
	case QUANTITY_MS:
	case QUANTITY_US:
		break;
	}
	*ret = n.digits;
	if (!*n.unit)
		return true;
	size = unit_size(time_units, n.unit);
	return size && scale(&n, size, quantity == QUANTITY_MS ? 1000 : 1, false, ret);
}

int quantity_parse(enum quantity quantity, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                   struct error *err)
{
	static const char *const what[] = { "a whole number", "bytes", "milliseconds", "microseconds" };
	static const char *const as[] = { "", ", or with a unit such as 64M or 4G",
		                          ", or with a unit such as 500ms, 30s, 5min or 1h",
		                          ", or with a unit such as 200us or 1ms" };
	uint64_t value = 0;

	if (!parse(quantity, text, &value) || value < min || value > max)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "it takes %s from %" PRIu64 " to %" PRIu64 "%s", what[quantity], min, max,
		                 as[quantity]);
	*ret = value;
	return 0;
}
