/* SPDX-License-Identifier: Apache-2.0 */
/* Sections are few, so a list serves. The set of those that apply to a uid is determined when it connects,
 * and kept as bits. */
#include "overrides.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "names.h"

bool override_is_allowed(int limit)
{
	static const char end[] = "_per_uid";
	if (limit == LIMIT_INDEX_multiprocessors || limit == LIMIT_INDEX_host_threads)
		return true;
	size_t len = strlen(limit_infos[limit].name), n = strlen(end);

	return len > n && !strcmp(limit_infos[limit].name + len - n, end);
}

/* ---- Whose -------------------------------------------------------------------------------------------- */

/* As the kernel writes it, so that paths can be compared as texts. */
static int cgroup_parse(const char *path, char ret[OVERRIDE_CGROUP_BYTES], struct error *err)
{
	bool is_path = *path == '/' && strlen(path) < OVERRIDE_CGROUP_BYTES;

	for (const char *part = path; is_path && path[1] && part; part = strchr(part + 1, '/')) {
		size_t len = strcspn(part + 1, "/");

		is_path = len > 0 && !(len <= 2 && strspn(part + 1, ".") >= len);
	}
	if (!is_path)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "a cgroup's path begins with /, ends without one, has no part that is empty, . "
		    "or .., and has at most %d bytes",
		    OVERRIDE_CGROUP_BYTES - 1);
	strcpy(ret, path);
	return 0;
}

int override_parse(const char *text, struct override *ret, struct error *err)
{
	static const struct {
		const char *prefix;
		enum override_kind kind;
		int (*parse)(const char *text, uint32_t *ret, struct error *err);
	} kinds[] = {
		{ "uid:", OVERRIDE_UID, id_parse },   { "user:", OVERRIDE_UID, user_parse },
		{ "gid:", OVERRIDE_GID, id_parse },   { "group:", OVERRIDE_GID, group_parse },
		{ "cgroup:", OVERRIDE_CGROUP, NULL },
	};

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		const char *who = text + strlen(kinds[i].prefix);

		if (strncmp(text, kinds[i].prefix, strlen(kinds[i].prefix)) != 0)
			continue;
		*ret = (struct override){ .kind = kinds[i].kind };
		return kinds[i].parse ? kinds[i].parse(who, &ret->id, err)
		                      : cgroup_parse(who, ret->cgroup, err);
	}
	return error_set(
	    err, STATUS_INVALID_ARGUMENT,
	    "the user, group or cgroup is written as uid:NUMBER, user:NAME, gid:NUMBER, group:NAME "
	    "or cgroup:PATH");
}

bool override_is_like(const struct override *override, const struct override *other)
{
	return override->kind == other->kind && override->id == other->id &&
	       !strcmp(override->cgroup, other->cgroup);
}

struct override *overrides_get(struct overrides *overrides, const struct override *like)
{
	for (uint32_t i = 0; i < overrides->n; i++)
		if (override_is_like(&overrides->of[i], like))
			return &overrides->of[i];
	if (overrides->n == OVERRIDES_MOST)
		return NULL;
	overrides->of[overrides->n] = *like;
	return &overrides->of[overrides->n++];
}

void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES])
{
	if (override->kind == OVERRIDE_CGROUP)
		snprintf(name, OVERRIDE_NAME_BYTES, "cgroup %s", override->cgroup);
	else
		snprintf(name, OVERRIDE_NAME_BYTES, "%s %" PRIu32,
		         override->kind == OVERRIDE_GID ? "gid" : "uid", override->id);
}

/* ---- Which -------------------------------------------------------------------------------------------- */

static uint64_t find(const struct overrides *overrides, enum override_kind kind, uint32_t id,
                     const char *cgroup)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++) {
		const struct override *o = &overrides->of[i];

		if (o->kind == kind && o->id == id && !strcmp(o->cgroup, cgroup))
			return UINT64_C(1) << i;
	}
	return 0;
}

uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid)
{
	return find(overrides, OVERRIDE_UID, uid, "");
}

uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n)
{
	uint64_t set = 0;

	for (size_t i = 0; i < n; i++)
		set |= find(overrides, OVERRIDE_GID, groups[i], "");
	return set;
}

uint64_t overrides_of_cgroup(const struct overrides *overrides, const char *cgroup)
{
	return find(overrides, OVERRIDE_CGROUP, 0, cgroup);
}

bool overrides_have(const struct overrides *overrides, enum override_kind kind)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++)
		if (overrides->of[i].kind == kind)
			return true;
	return false;
}

/* Tells whether the cgroup at path is the one at top or below it. */
static bool is_within(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strcmp(top, "/") || (!strncmp(path, top, len) && (path[len] == '/' || path[len] == '\0'));
}

const char *overrides_find_cgroup(const struct overrides *overrides, const char *path)
{
	const char *longest = NULL;

	for (uint32_t i = 0; overrides && i < overrides->n; i++) {
		const struct override *o = &overrides->of[i];

		if (o->kind == OVERRIDE_CGROUP && is_within(path, o->cgroup) &&
		    (!longest || strlen(o->cgroup) > strlen(longest)))
			longest = o->cgroup;
	}
	return longest;
}

/* ---- What --------------------------------------------------------------------------------------------- */

static uint64_t value_of(const struct overrides *overrides, uint64_t set, int limit)
{
	uint64_t of_groups = 0;

	for (uint32_t i = 0; i < overrides->n; i++) {
		uint64_t value = overrides->of[i].value[limit];

		if (!(set >> i & 1) || value == 0)
			continue;
		if (overrides->of[i].kind != OVERRIDE_GID)
			return value;
		if (value > of_groups)
			of_groups = value;
	}
	return of_groups;
}

void overrides_apply(const struct overrides *overrides, uint64_t set, struct limits *limits)
{
	for (int i = 0; i < LIMIT_COUNT; i++) {
		uint64_t value = value_of(overrides, set, i);

		if (value)
			*limits_at(limits, i) = value;
	}
	limits_fit(limits, NULL);
}
