/* SPDX-License-Identifier: Apache-2.0 */
/* Limits for single users or groups: sections such as [limits "uid:1004"] of tmad.conf.
 *
 * Only limits of a uid (*_per_uid) can be overridden. Among the sections that apply to a uid, a user's
 * section overrides those of groups, and of several groups' values the greatest applies; limits that no
 * section has are those of [limits]. A uid is in a group when one of its connected processes is, as the
 * kernel says; no name is looked up while the service runs.
 */
#ifndef DAEMON_CONFIG_OVERRIDES_H
#define DAEMON_CONFIG_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "limits.h"
#include "proto/status.h"

#define OVERRIDES_MOST 64 /* sections; a set of sections is a number with that many bits */

struct override {
	bool is_group;
	uint32_t id;                   /* uid or gid */
	uint64_t value[LIMIT_COUNT];   /* 0: not overridden */
	const char *file[LIMIT_COUNT]; /* the file that has it */
	unsigned line[LIMIT_COUNT];
};

/* Zero-initialised, there are none. */
struct overrides {
	uint32_t n;
	struct override of[OVERRIDES_MOST];
};

/* Whether the limit is one of a uid, or of each of its transforms. */
bool override_is_allowed(int limit);

/* Parses uid:N, user:NAME, gid:N or group:NAME. Looks names up, which may block. Returns 0, or
 * INVALID_ARGUMENT with the rule. */
int override_parse(const char *text, struct override *ret, struct error *err);

/* Returns the override of that user or group, created if it is new; NULL: there are OVERRIDES_MOST. */
struct override *overrides_get(struct overrides *overrides, const struct override *like);

/* "uid 1004", "gid 100". */
#define OVERRIDE_NAME_BYTES 24
void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES]);

/* The sets that apply to a uid itself, and to members of the groups. NULL for overrides: none. */
uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid);
uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n);
bool overrides_have_groups(const struct overrides *overrides);

/* Applies the set to limits. Limits that others bound are lowered to fit. */
void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits);

#endif
