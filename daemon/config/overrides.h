/* Limits that one user or group has instead of everybody's: sections [limits "uid:1004"] and its kin of
 * tmad.conf.
 *
 * Only limits of a uid (*_per_uid) can be overridden. Of those that apply to a uid, a user's section
 * overrides its groups', and of several groups' the greatest value counts; what none of them has is as in
 * [limits]. A uid is in a group when one of its connected processes is, as the kernel says; no lookup by name
 * happens while the service runs.
 */
#ifndef DAEMON_CONFIG_OVERRIDES_H
#define DAEMON_CONFIG_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "limits.h"
#include "proto/status.h"

#define OVERRIDES_MOST 64 /* sections; a set of them is a number of as many bits */

struct override {
	bool is_group;
	uint32_t id;                   /* uid or gid */
	uint64_t value[LIMIT_COUNT];   /* 0: not overridden */
	const char *file[LIMIT_COUNT]; /* where it stands */
	unsigned line[LIMIT_COUNT];
};

/* Zero-initialised: none. */
struct overrides {
	uint32_t n;
	struct override of[OVERRIDES_MOST];
};

/* Whether it is a limit of a uid. */
bool override_is_allowed(int limit);

/* Whose limits: uid:N, user:NAME, gid:N or group:NAME. Looks names up, which may block. 0, or
 * INVALID_ARGUMENT with the rule. */
int override_parse(const char *text, struct override *ret, struct error *err);

/* The one of the same user or group, made when it is new; NULL: there are OVERRIDES_MOST. */
struct override *overrides_get(struct overrides *overrides, const struct override *like);

/* "uid 1004", "gid 100". */
#define OVERRIDE_NAME_BYTES 24
void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES]);

/* Those that apply to a uid by itself, and to whoever is in one of the groups. NULL for overrides: none. */
uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid);
uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n);
bool overrides_have_groups(const struct overrides *overrides);

/* What limits are with these applied. Limits that others bound are lowered to fit. */
void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits);

#endif
