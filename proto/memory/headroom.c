/* SPDX-License-Identifier: Apache-2.0 */
/* From /proc/meminfo, and from the files of each cgroup. */
#include "headroom.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/arithmetic.h"

#define RESERVE_SHARE 4 /* of a cgroup's limit: the part that spare leaves */

void headroom_init(struct headroom *headroom, const char *root)
{
	*headroom = (struct headroom){ 0 };
	snprintf(headroom->root, sizeof headroom->root, "%s", root);
	/* Version 1 has the controller where both are mounted and memory is among version 1's. */
	for (int version = 1; !headroom->version && version <= 2; version++)
		if (cgroup_init(&headroom->group, version, "memory", root))
			headroom->version = version;
}

/* A file of one number, or of "max" and such, which is none. */
static uint64_t read_number(const struct cgroup *group, const char *name, uint64_t otherwise)
{
	int64_t value;

	return cgroup_read(group, name, 1, &value) && value >= 0 ? (uint64_t)value : otherwise;
}

/* The number after key in a file of "key number" lines, which may be NULL and is closed; of a unit of so many
 * bytes. */
static uint64_t read_line(FILE *file, const char *key, uint64_t unit, uint64_t otherwise)
{
	char name[64];
	uint64_t value;
	bool found = false;

	if (!file)
		return otherwise;
	while (!found && fscanf(file, "%63s %" SCNu64 "%*[^\n]", name, &value) == 2)
		found = !strcmp(name, key);
	fclose(file);
	return found ? value * unit : otherwise;
}

static uint64_t read_meminfo(const struct headroom *headroom, const char *key)
{
	char path[sizeof headroom->root + 32];

	snprintf(path, sizeof path, "%s/proc/meminfo", headroom->root);
	return read_line(fopen(path, "re"), key, 1024, UINT64_MAX);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* One group's part in the figures. */
static void add_group(const struct cgroup *group, int version, struct headroom_figures *figures)
{
	bool v2 = version == 2;
	uint64_t limit = read_number(group, v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
	uint64_t used, files, available;

	if (v2)
		limit = min_u64(limit, read_number(group, "memory.high", UINT64_MAX));
	if (limit >= figures->machine) /* version 1 says "none" with a large number */
		return;
	used = read_number(group, v2 ? "memory.current" : "memory.usage_in_bytes", 0);
	files =
	    read_line(cgroup_open(group, "memory.stat"), v2 ? "inactive_file" : "total_inactive_file", 1, 0);
	available = minus(limit, minus(used, files));
	figures->group = min_u64(figures->group, limit);
	figures->available = min_u64(figures->available, available);
	figures->spare = min_u64(figures->spare, minus(available, limit / RESERVE_SHARE));
}

void headroom_read(const struct headroom *headroom, struct headroom_figures *ret)
{
	struct cgroup group;
	uint64_t available = read_meminfo(headroom, "MemAvailable:");

	*ret = (struct headroom_figures){ .machine = read_meminfo(headroom, "MemTotal:"),
		                          .group = UINT64_MAX,
		                          .available = available,
		                          .spare = available };
	if (!headroom->version)
		return;
	group = headroom->group;
	do
		add_group(&group, headroom->version, ret);
	while (cgroup_ascend(&group));
}

void headroom_now(struct headroom_figures *ret)
{
	struct headroom headroom;

	headroom_init(&headroom, "");
	headroom_read(&headroom, ret);
}

uint64_t headroom_whole(const struct headroom_figures *figures)
{
	return min_u64(figures->machine, figures->group);
}
