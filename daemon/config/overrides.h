/* SPDX-License-Identifier: Apache-2.0 */
/* Single users, groups or cgroups have limits of their own, in sections such as [limits "uid:1004"] of
 * tmad.conf.
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

#include "proto/status.h"
#include "limits.h"

#define OVERRIDES_MOST 64 /* sections; a set of sections is a number with that many bits */

/* The path of a cgroup with its terminator is at most so long that a section's name fits into a line. */
#define OVERRIDE_CGROUP_BYTES 181

enum override_kind { OVERRIDE_UID, OVERRIDE_GID, OVERRIDE_CGROUP };

struct override {
	enum override_kind kind;
	uint32_t id;                        /* uid or gid */
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* path of the cgroup, as in /proc/PID/cgroup; otherwise "" */
	uint64_t value[LIMIT_COUNT];        /* 0: not overridden */
	const char *file[LIMIT_COUNT];      /* the file that sets it */
	unsigned line[LIMIT_COUNT];
};

/* A zero-initialised set has no overrides. */
struct overrides {
	uint32_t n;
	struct override of[OVERRIDES_MOST];
};

/* Tells whether the limit can be overridden: it is one of a uid, or of each of its transforms. */
bool override_is_allowed(int limit);

/* Parses uid:N, user:NAME, gid:N, group:NAME or cgroup:PATH. Looks names up, which may block. Returns 0, or
 * INVALID_ARGUMENT with the rule. */
int override_parse(const char *text, struct override *ret, struct error *err);

/* Tells whether both belong to the same user, group or cgroup. */
bool override_is_like(const struct override *override, const struct override *other);

/* Returns the override of that user, group or cgroup, created if it is new, or NULL if there are
 * OVERRIDES_MOST. */
struct override *overrides_get(struct overrides *overrides, const struct override *like);

/* Writes the name of what the override is for: "uid 1004", "gid 100" or "cgroup /user.slice". */
#define OVERRIDE_NAME_BYTES (OVERRIDE_CGROUP_BYTES + 16)
void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES]);

/* These return the sets that apply to a uid itself, to members of the groups, and to the cgroup that has this
 * section. overrides may be NULL, which has none. */
uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid);
uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n);
uint64_t overrides_of_cgroup(const struct overrides *overrides, const char *cgroup);

/* Tells whether there are sections of this kind. overrides may be NULL, which has none. */
bool overrides_have(const struct overrides *overrides, enum override_kind kind);

/* Returns the cgroup with a section that a process in the cgroup path belongs to: the longest of those that
 * are path or above it, or NULL if there is none. If path is longer than any section's, its beginning
 * suffices. */
const char *overrides_find_cgroup(const struct overrides *overrides, const char *path);

/* Applies the set to limits. Limits that exceed their bounds are lowered to fit. */
void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits);

/* Users and groups are given by name or number. Looking up a name may block: the loop's thread must not do so
 * while it runs. */

/* Parses a group: digits are an id, anything else is a name. Returns 0, or INVALID_ARGUMENT with the reason.
 */
int group_parse(const char *text, uint32_t *ret, struct error *err);

/* A user who may run processes as many subordinate uids (newuidmap) is one user all the same.
 *
 * The ranges and their owners come from a file such as /etc/subuid (subuid(5)), whose lines are
 * OWNER:FIRST:COUNT. It is read when the settings are; a lookup asks neither the file nor the names of users
 * again. It is no error if the file cannot be read or some of its lines are not understood: there are fewer
 * ranges then, and a warning says so.
 */

#define SUBUID_FILE          "/etc/subuid"
#define SUBUID_WARNING_BYTES 512

/* A range has the uids from first to last, both included. */
struct subuid_range {
	uint32_t first, last;
	uint32_t owner;
	uint32_t before; /* This is the greatest `last` of the ranges up to this one, which may overlap. */
	uint32_t line;   /* It stands in this line. Where ranges overlap, the first in the file counts. */
};

/* There are none in a zero-initialised one. */
struct subuids {
	struct subuid_range *of; /* They are sorted by `first`. */
	size_t n;
	char warning[SUBUID_WARNING_BYTES]; /* It is "" if there is nothing to say. */
};

/* Reads the file. A path of NULL stands for SUBUID_FILE, which may be missing; one of "" stands for no file.
 * This looks names up, and blocks. */
void subuids_read(struct subuids *ret, const char *path);
void subuids_deinit(struct subuids *subuids);

/* Returns the user that the uid belongs to: the owner of the range that it is in, or, if that one is in a
 * range itself, the owner of that, and so on; otherwise the uid itself. NULL has no ranges. */
uid_t subuids_user(const struct subuids *subuids, uid_t uid);

/* Returns the first uid of the range that the uid is in, or the uid itself if it is in none. */
uid_t subuids_first(const struct subuids *subuids, uid_t uid);

bool subuids_equal(const struct subuids *a, const struct subuids *b);

#endif
