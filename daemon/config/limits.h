/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a running tmad, one field for each row of limits.def. */
#ifndef DAEMON_CONFIG_LIMITS_H
#define DAEMON_CONFIG_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/schema.h"

struct limits {
#define LIMIT(name, least, dflt, doc) uint64_t name;
#include "limits.def"
};

enum {
#define LIMIT(name, least, dflt, doc) LIMIT_INDEX_##name,
#include "limits.def"
	LIMIT_COUNT
};

struct limit_info {
	const char *name;
	const char *doc;
	uint64_t least; /* smallest sensible value */
	uint64_t dflt;
};

extern const struct limit_info limit_infos[LIMIT_COUNT];

struct headroom_figures;

void limits_init(struct limits *limits);

/* Fits the memory limits to the memory that the service may use: one user who reaches all limits holds less
 * than half of it. */
void limits_fit_memory(struct limits *limits, const struct headroom_figures *figures);

/* The same for the descriptors that it may open. */
void limits_fit_descriptors(struct limits *limits, uint64_t most);

/* Whether a reload applies a change of the limit, as limits.def says; otherwise a restart does. */
bool limit_applies_at_once(int index);

/* The limit with that index (LIMIT_INDEX_*). */
uint64_t *limits_at(struct limits *limits, int index);

/* One limit bounds another one, which could never be reached above it. */
struct limit_bound {
	int less; /* may not exceed... */
	int more;
};

#define LIMIT_BOUNDS 7
extern const struct limit_bound limit_bounds[LIMIT_BOUNDS];

/* Lowers limits that exceed their bounds, except fixed ones (NULL: none). */
void limits_fit(struct limits *limits, const bool fixed[LIMIT_COUNT]);

/* Converts a limit from milliseconds to nanoseconds; centuries are capped, so that a point in time can be
 * added. */
static inline uint64_t limit_ns(uint64_t ms)
{
	return ms < INT64_MAX / 1000000 ? ms * 1000000 : INT64_MAX;
}

/* All limits and the fixed ones of a message, for `info`. Writes at most n, returns how many. */
uint32_t limits_list(const struct limits *limits, struct counter *ret, uint32_t n);

#endif
