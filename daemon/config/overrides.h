/* SPDX-License-Identifier: Apache-2.0 */
/* Limits for single users, groups or cgroups: sections such as [limits "uid:1004"] of tmad.conf.
 *
 * Only limits of a uid (*_per_uid) can be overridden. Among the sections that apply to a uid, a user's
 * section overrides those of groups, and of several groups' values the greatest applies; limits that no
 * section has are those of [limits]. A uid is in a group when one of its connected processes is, as the
 * kernel says; no name is looked up while the service runs.
 *
 * The section of a cgroup applies to the cgroup and to all below it that have no section of their own: their
 * processes are one user together (account.h), to whom no section of a uid or group applies.
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

/* With its terminator; a section's name fits into a line with it. */
#define OVERRIDE_CGROUP_BYTES 181

enum override_kind { OVERRIDE_UID, OVERRIDE_GID, OVERRIDE_CGROUP };

struct override {
	enum override_kind kind;
	uint32_t id;                        /* uid or gid */
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* path of the cgroup, as in /proc/PID/cgroup; otherwise "" */
	uint64_t value[LIMIT_COUNT];        /* 0: not overridden */
	const char *file[LIMIT_COUNT];      /* the file that has it */
	unsigned line[LIMIT_COUNT];
};

/* Zero-initialised, there are none. */
struct overrides {
	uint32_t n;
	struct override of[OVERRIDES_MOST];
};

/* Whether the limit is one of a uid, or of each of its transforms. */
bool override_is_allowed(int limit);

/* Parses uid:N, user:NAME, gid:N, group:NAME or cgroup:PATH. Looks names up, which may block. Returns 0, or
 * INVALID_ARGUMENT with the rule. */
int override_parse(const char *text, struct override *ret, struct error *err);

/* Tells whether both belong to the same user, group or cgroup. */
bool override_is_like(const struct override *override, const struct override *other);

/* Returns the override of that user, group or cgroup, created if it is new; NULL: there are OVERRIDES_MOST.
 */
struct override *overrides_get(struct overrides *overrides, const struct override *like);

/* "uid 1004", "gid 100", "cgroup /user.slice". */
#define OVERRIDE_NAME_BYTES (OVERRIDE_CGROUP_BYTES + 16)
void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES]);

/* The sets that apply to a uid itself, to members of the groups, and to the cgroup that has this section.
 * NULL for overrides: none. */
uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid);
uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n);
uint64_t overrides_of_cgroup(const struct overrides *overrides, const char *cgroup);

/* Tells whether there are sections of this kind. NULL for overrides: none. */
bool overrides_have(const struct overrides *overrides, enum override_kind kind);

/* The cgroup with a section that a process in the cgroup path belongs to: the longest of those that are path
 * or above it; NULL: there is none. Of a path that is longer than any section's, its beginning suffices. */
const char *overrides_find_cgroup(const struct overrides *overrides, const char *path);

/* Applies the set to limits. Limits that others bound are lowered to fit. */
void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits);

#endif
