/* The limits of a running tmad, one field a row of limits.def. */
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
	uint64_t least; /* that makes sense */
	uint64_t dflt;
};

extern const struct limit_info limit_infos[LIMIT_COUNT];

struct headroom_figures;

void limits_init(struct limits *limits);

/* Makes the limits of memory fit what the service may use: at all of them one user holds less than half of
 * it. */
void limits_fit_memory(struct limits *limits, const struct headroom_figures *figures);

/* Whether a reload applies a change of it, as limits.def says; else a restart does. */
bool limit_applies_at_once(int index);

/* The limit with that index (LIMIT_INDEX_*). */
uint64_t *limits_at(struct limits *limits, int index);

/* One limit bounds another one: to pass it would be impossible. */
struct limit_bound {
	int less; /* may not exceed... */
	int more;
};

#define LIMIT_BOUNDS 7
extern const struct limit_bound limit_bounds[LIMIT_BOUNDS];

/* Lowers what exceeds its bound, but for the limits that are fixed (NULL: none is). */
void limits_fit(struct limits *limits, const bool fixed[LIMIT_COUNT]);

/* A limit in milliseconds as nanoseconds: centuries are as long as they can be, so that a moment can be
 * added. */
static inline uint64_t limit_ns(uint64_t ms)
{
	return ms < INT64_MAX / 1000000 ? ms * 1000000 : INT64_MAX;
}

/* All of them with the fixed ones of a message, for `info`: writes at most n, returns how many. */
uint32_t limits_list(const struct limits *limits, struct counter *ret, uint32_t n);

#endif
