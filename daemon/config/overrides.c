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

int override_parse(const char *text, struct override *ret, struct error *err)
{
	static const struct {
		const char *prefix;
		bool is_group;
		int (*parse)(const char *text, uint32_t *ret, struct error *err);
	} kinds[] = {
		{ "uid:", false, id_parse },
		{ "user:", false, user_parse },
		{ "gid:", true, id_parse },
		{ "group:", true, group_parse },
	};

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strncmp(text, kinds[i].prefix, strlen(kinds[i].prefix))) {
			*ret = (struct override){ .is_group = kinds[i].is_group };
			return kinds[i].parse(text + strlen(kinds[i].prefix), &ret->id, err);
		}
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "the user or group is written as uid:NUMBER, user:NAME, gid:NUMBER or group:NAME");
}

struct override *overrides_get(struct overrides *overrides, const struct override *like)
{
	for (uint32_t i = 0; i < overrides->n; i++)
		if (overrides->of[i].is_group == like->is_group && overrides->of[i].id == like->id)
			return &overrides->of[i];
	if (overrides->n == OVERRIDES_MOST)
		return NULL;
	overrides->of[overrides->n] = *like;
	return &overrides->of[overrides->n++];
}

void override_name(const struct override *override, char name[OVERRIDE_NAME_BYTES])
{
	snprintf(name, OVERRIDE_NAME_BYTES, "%s %" PRIu32, override->is_group ? "gid" : "uid", override->id);
}

/* ---- Which -------------------------------------------------------------------------------------------- */

static uint64_t find(const struct overrides *overrides, bool is_group, uint32_t id)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++)
		if (overrides->of[i].is_group == is_group && overrides->of[i].id == id)
			return UINT64_C(1) << i;
	return 0;
}

uint64_t overrides_of_uid(const struct overrides *overrides, uid_t uid)
{
	return find(overrides, false, uid);
}

uint64_t overrides_of_groups(const struct overrides *overrides, const gid_t *groups, size_t n)
{
	uint64_t set = 0;

	for (size_t i = 0; i < n; i++)
		set |= find(overrides, true, groups[i]);
	return set;
}

bool overrides_have_groups(const struct overrides *overrides)
{
	for (uint32_t i = 0; overrides && i < overrides->n; i++)
		if (overrides->of[i].is_group)
			return true;
	return false;
}

/* ---- What --------------------------------------------------------------------------------------------- */

static uint64_t value_of(const struct overrides *overrides, uint64_t set, int limit)
{
	uint64_t of_groups = 0;

	for (uint32_t i = 0; i < overrides->n; i++) {
		uint64_t value = overrides->of[i].value[limit];

		if (!(set >> i & 1) || value == 0)
			continue;
		if (!overrides->of[i].is_group)
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
