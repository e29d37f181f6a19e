/* SPDX-License-Identifier: Apache-2.0 */
/* Overrides give single users, groups or cgroups limits of their own, in sections such as [limits "uid:1004"]
 * of tmad.conf.
 *
 * Only limits that are per user (*_per_uid) and the limits multiprocessors and host_threads can be
 * overridden. The section of a uid takes precedence over those of groups; among several groups the greatest
 * value applies. Limits that no applicable section sets are those of [limits]. A uid counts as a member of a
 * group if one of its connected processes is in it, according to the kernel; no name is looked up while the
 * service runs.
 *
 * The section of a cgroup applies to that cgroup and to all cgroups below it that have no section of their
 * own. All of their processes together are one user (account.h), to which no section of a uid or group
 * applies.
 */
#ifndef DAEMON_CONFIG_OVERRIDES_H
#define DAEMON_CONFIG_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/status.h"
#include "limits.h"

/* Maximum number of sections. A set of sections is a uint64_t with one bit for each. */
#define OVERRIDES_MOST 64

/* Size of a buffer for the path of a cgroup. A longer path would not fit into a line of tmad.conf. */
#define OVERRIDE_CGROUP_BYTES 181

enum override_kind { OVERRIDE_UID, OVERRIDE_GID, OVERRIDE_CGROUP };

/* One section. Written while the settings are read, and constant afterwards. */
struct override {
	enum override_kind kind;
	uint32_t id;                        /* uid or gid; 0 for a cgroup */
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* path of the cgroup, as in /proc/PID/cgroup; otherwise "" */
	uint64_t value[LIMIT_COUNT];        /* 0: the limit is not overridden */
	const char *file[LIMIT_COUNT];      /* path of the file that sets the limit; borrowed */
	unsigned line[LIMIT_COUNT];         /* line in that file */
};

/* All overrides. A zeroed struct has none. */
struct overrides {
	uint32_t n;
	struct override of[OVERRIDES_MOST];
};

/* Returns whether the limit can be overridden. limit is a LIMIT_INDEX_*. */
bool override_is_allowed(int limit);

/* Parses "uid:N", "user:NAME", "gid:N", "group:NAME" or "cgroup:PATH", and sets *ret to an override without
 * values. Looks names up, which may block. Returns 0, or INVALID_ARGUMENT with the rule in err. */
int override_parse(const char *text, struct override *ret, struct error *err);

/* Returns whether both overrides are for the same uid, gid or cgroup. */
bool override_is_like(const struct override *override, const struct override *other);

/* Returns the override for the same uid, gid or cgroup as like; adds a copy of like if there is none. Returns
 * NULL if there are OVERRIDES_MOST already. */
struct override *overrides_get(struct overrides *overrides, const struct override *like);

/* Sets name to whom the override is for: "uid 1004", "gid 100" or "cgroup /user.slice". */
#define OVERRIDE_NAME_BYTES (OVERRIDE_CGROUP_BYTES + 16)
void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES]);

/* Return the sets of overrides for a uid, for members of any of the groups, and for the cgroup whose section
 * has this path. overrides may be NULL, which has none. */
uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid);
uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n);
uint64_t overrides_of_cgroup(const struct overrides *overrides, const char *cgroup);

/* Returns whether there are overrides of this kind. overrides may be NULL, which has none. */
bool overrides_have(const struct overrides *overrides, enum override_kind kind);

/* Returns the path of the cgroup whose section applies to a process in the cgroup `path`: the longest path
 * with a section that is path itself or one of its ancestors, or NULL if there is none. path may be truncated
 * to OVERRIDE_CGROUP_BYTES characters. The result is owned by overrides. */
const char *overrides_find_cgroup(const struct overrides *overrides, const char *path);

/* Overwrites limits with the values of the overrides in the set, and lowers limits that then exceed their
 * bounds (limit_bounds). */
void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits);

/* Parses a group: digits are a gid, anything else is a name. A name is looked up, which may block, so this
 * must not be called on the loop while the loop runs. Returns 0, or INVALID_ARGUMENT with the reason in err.
 */
int group_parse(const char *text, uint32_t *ret, struct error *err);

/* Subordinate uids.
 *
 * A user who may run processes under many subordinate uids (newuidmap(1)) still counts as one user. The
 * ranges of uids and their owners come from a file such as /etc/subuid (subuid(5)), whose lines are
 * OWNER:FIRST:COUNT. The file is read together with the settings, and lookups use only what was read then. A
 * file that cannot be read, or lines that cannot be parsed, are no error: there are fewer ranges, and a
 * warning says so.
 */

#define SUBUID_FILE          "/etc/subuid" /* default file */
#define SUBUID_WARNING_BYTES 512

/* A range of uids, from first to last, both included. */
struct subuid_range {
	uint32_t first, last;
	uint32_t owner;  /* uid of the owner */
	uint32_t before; /* greatest `last` among this range and those before it in the array; ranges may
	                    overlap */
	uint32_t line;   /* line in the file; where ranges overlap, the one with the lowest line applies */
};

/* All ranges. A zeroed struct has none. */
struct subuids {
	struct subuid_range *of; /* n ranges, sorted by `first` */
	size_t n;
	char warning[SUBUID_WARNING_BYTES]; /* warning for the administrator; "": none */
};

/* Reads the ranges from the file at path. NULL stands for SUBUID_FILE, which may be missing without a
 * warning; "" stands for no file. Blocks on the file and on lookups of names. */
void subuids_read(struct subuids *ret, const char *path);
void subuids_deinit(struct subuids *subuids);

/* Returns the uid of the user to whom the uid belongs: the owner of its range, or if the owner is in a range
 * as well, the owner of that one, and so on. Returns the uid itself if it is in no range. subuids may be
 * NULL, which has none. */
uid_t subuids_user(const struct subuids *subuids, uid_t uid);

/* Returns the first uid of the range that contains the uid, or the uid itself if it is in no range. subuids
 * may be NULL. */
uid_t subuids_first(const struct subuids *subuids, uid_t uid);

/* Returns whether both have the same ranges from the same lines. */
bool subuids_equal(const struct subuids *a, const struct subuids *b);

#endif
