/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the service, one field for each row of limits.def, and numbers with units. */
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
	const char *doc; /* text for --help and the manual */
	uint64_t least;  /* smallest value that is accepted */
	uint64_t dflt;   /* default; 0 where the least is 1: it depends on the machine's memory */
};

/* Indexed by LIMIT_INDEX_*. */
extern const struct limit_info limit_infos[LIMIT_COUNT];

/* Sets all limits to their defaults, fitted to the machine's memory and the limit on open descriptors. */
void limits_init(struct limits *limits);

/* Sets or lowers the limits on memory to fit the memory that the service may use, so that one user who
 * reaches all of them holds less than half of it. */
void limits_fit_memory(struct limits *limits, const struct headroom_figures *figures);

/* Lowers region_fds_per_uid to fit `most`, the number of descriptors that the service may open. */
void limits_fit_descriptors(struct limits *limits, uint64_t most);

/* Returns whether a reload applies a new value of the limit; otherwise only a restart does. */
bool limit_applies_at_once(int index);

/* Returns a pointer to the limit with that index (LIMIT_INDEX_*). */
uint64_t *limits_at(struct limits *limits, int index);

/* A pair of limits: a value of `less` above `more` could never be reached. */
struct limit_bound {
	int less; /* LIMIT_INDEX_* of the limit that may not exceed `more` */
	int more; /* LIMIT_INDEX_* of the limit that bounds it */
};

#define LIMIT_BOUNDS 7
extern const struct limit_bound limit_bounds[LIMIT_BOUNDS];

/* Lowers each limit that exceeds its bound, unless fixed is true for it. fixed may be NULL. */
void limits_fit(struct limits *limits, const bool fixed[LIMIT_COUNT]);

/* Converts a limit from ms to ns. The result is at most INT64_MAX, so that it can be added to a time of the
 * monotonic clock without overflow. */
static inline uint64_t limit_ns(uint64_t ms)
{
	return ms < INT64_MAX / 1000000 ? ms * 1000000 : INT64_MAX;
}

/* Fills ret with the names and values of all limits, followed by the fixed limits of messages, as the method
 * `info` reports them. Writes at most n elements and returns their number. */
uint32_t limits_list(const struct limits *limits, struct counter *ret, uint32_t n);

/* Limits are written as numbers that may have a unit: 4096, 64M, 30s. */

enum quantity {
	QUANTITY_COUNT, /* digits only */
	/* Bytes, or with a unit: K, M, G or T (powers of 1024, in either case), also followed by B or iB;
	   4G, 1.5GiB. */
	QUANTITY_BYTES,
	QUANTITY_MS, /* milliseconds, or with the unit us, ms, s, min or h: 30s */
	QUANTITY_US, /* microseconds, or with one of the same units */
};

/* Returns the kind of a limit's value, derived from its name: QUANTITY_MS for _ms at the end, QUANTITY_US for
 * _us, QUANTITY_BYTES for a name that contains "bytes". */
enum quantity quantity_of(const char *name);

/* Parses a number from min to max. min, max and *ret are in the quantity's own unit. Returns 0, or
 * INVALID_ARGUMENT with the rule in err. A fraction of a byte is dropped; a fraction of a ms or us is an
 * error. */
int quantity_parse(enum quantity quantity, const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                   struct error *err);

#endif
