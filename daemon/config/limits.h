/* SPDX-License-Identifier: Apache-2.0 */
/* A running tmad has these limits, one field for each row of limits.def. */
#ifndef DAEMON_CONFIG_LIMITS_H
#define DAEMON_CONFIG_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/schema.h"
#include "proto/status.h"

struct headroom_figures;

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

void limits_init(struct limits *limits);

/* Fits the memory limits to the memory that the service may use: one user who reaches all limits holds less
 * than half of it. */
void limits_fit_memory(struct limits *limits, const struct headroom_figures *figures);

/* Lowers the limits on descriptors to fit `most`, the number that the service may open. */
void limits_fit_descriptors(struct limits *limits, uint64_t most);

/* Tells whether a reload applies a change of the limit; otherwise only a restart does. limits.def says which.
 */
bool limit_applies_at_once(int index);

/* Returns the limit with that index (LIMIT_INDEX_*). */
uint64_t *limits_at(struct limits *limits, int index);

/* One limit bounds another one, which could never be reached above it. */
struct limit_bound {
	int less; /* index of the limit that may not exceed the next one */
	int more;
};

#define LIMIT_BOUNDS 7
extern const struct limit_bound limit_bounds[LIMIT_BOUNDS];

/* Lowers limits that exceed their bounds, except fixed ones (NULL: none). */
void limits_fit(struct limits *limits, const bool fixed[LIMIT_COUNT]);

/* Converts a limit from milliseconds to nanoseconds. The result is capped at centuries, so that it can be
 * added to a point in time. */
static inline uint64_t limit_ns(uint64_t ms)
{
	return ms < INT64_MAX / 1000000 ? ms * 1000000 : INT64_MAX;
}

/* Writes all limits, and then the fixed ones of messages, as `info` reports them: at most n. Returns how
 * many. */
uint32_t limits_list(const struct limits *limits, struct counter *ret, uint32_t n);

/* People write limits as numbers with units: 4096, 64M, 30s. */

enum quantity {
	QUANTITY_COUNT, /* digits only */
	QUANTITY_BYTES, /* or with K, M, G or T (powers of 1024, either case), and B or iB: 4G, 1.5GiB */
	QUANTITY_MS,    /* milliseconds, or with us, ms, s, min or h: 30s */
	QUANTITY_US,    /* microseconds, or with one of these units */
};

/* Returns the kind of a limit by its name, which ends in _ms or _us, or contains bytes. */
enum quantity quantity_of(const char *name);

/* Parses a number from min to max, in its own unit. Returns 0, or INVALID_ARGUMENT with the rule. A fraction
 * of a byte is dropped; a fraction of the unit of time is an error. */
int quantity_parse(enum quantity quantity, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                   struct error *err);

#endif
