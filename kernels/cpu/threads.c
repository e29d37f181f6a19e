/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self/cgroup names the group in each hierarchy, /proc/self/mountinfo where that is mounted and which
 * part of it; each group up to there has its quota in files of its own. What cannot be read limits nothing.
 */
#include "threads.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define MOST_CPUS  (1 << 20) /* that an affinity mask is made large enough for */

/* A group, by its directory. */
struct group {
	const char *root;
	char dir[2 * PATH_BYTES];
	size_t mount_len; /* of dir: what is above it is not to be seen */
};

/* Where quotas are: version 2 of cgroups, and version 1. Both may be mounted, one of them with quotas. */
struct hierarchy {
	const char *type;
	const char *controller; /* NULL: all of them */
	uint64_t (*read_quota)(const struct group *group);
};

static uint64_t read_quota_1(const struct group *group);
static uint64_t read_quota_2(const struct group *group);

static const struct hierarchy hierarchies[] = {
	{ .type = "cgroup2", .read_quota = read_quota_2 },
	{ .type = "cgroup", .controller = "cpu", .read_quota = read_quota_1 },
};

static FILE *open_file(const char *root, const char *dir, const char *name)
{
	char path[3 * PATH_BYTES];
	int n = snprintf(path, sizeof path, "%s%s/%s", root, dir, name);
	return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* ---- Where ------------------------------------------------------------------------------------------ */

/* Whether one of the words in text, which commas part, is word. */
static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);
	for (; text; text = strchr(text, ','), text = text ? text + 1 : NULL)
		if (!strncmp(text, word, len) && (text[len] == ',' || !text[len]))
			return true;
	return false;
}

/* A line "4:cpu,cpuacct:/path"; version 2 has "0::/path". The path is left in line. */
static const char *parse_group(char *line, const struct hierarchy *hierarchy)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return NULL;
	*controllers++ = *path++ = 0;
	bool is_wanted = hierarchy->controller ? has_word(controllers, hierarchy->controller)
	                                       : !strcmp(line, "0") && !*controllers;
	return is_wanted ? path : NULL;
}

static bool find_path(const char *root, const struct hierarchy *hierarchy, char ret[PATH_BYTES])
{
	FILE *file = open_file(root, "/proc/self", "cgroup");
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	while (file && !found && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		const char *path = parse_group(line, hierarchy);
		found = path && strlen(path) < PATH_BYTES;
		if (found)
			strcpy(ret, path);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* A line "36 35 98:0 /part /mount options ... - type source superoptions". */
static bool parse_mount(const char *line, const struct hierarchy *hierarchy, char mount[PATH_BYTES],
                        char part[PATH_BYTES])
{
	char type[32], options[512];
	const char *rest = strstr(line, " - ");
	if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
	    strcmp(type, hierarchy->type) != 0 ||
	    (hierarchy->controller && !has_word(options, hierarchy->controller)))
		return false;
	return sscanf(line, "%*s %*s %*s %4095s %4095s", part, mount) == 2;
}

static bool find_mount(const char *root, const struct hierarchy *hierarchy, char mount[PATH_BYTES],
                       char part[PATH_BYTES])
{
	FILE *file = open_file(root, "/proc/self", "mountinfo");
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	while (file && !found && getline(&line, &room, file) > 0)
		found = parse_mount(line, hierarchy, mount, part);
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* A container may see its own part of the hierarchy, mounted as the whole, and its path from the whole's
 * root. A path that leads out of what is mounted ("/..") names a group that is not to be seen. */
static bool find_group(const char *root, const struct hierarchy *hierarchy, struct group *ret)
{
	char path[PATH_BYTES], mount[PATH_BYTES], part[PATH_BYTES];
	if (!find_path(root, hierarchy, path) || !find_mount(root, hierarchy, mount, part) ||
	    !strncmp(path, "/..", 3))
		return false;
	size_t len = strcmp(part, "/") != 0 ? strlen(part) : 0;
	if (strncmp(path, part, len) != 0 || (path[len] != '/' && path[len]))
		path[len = 0] = 0;
	ret->root = root;
	ret->mount_len = strlen(mount);
	snprintf(ret->dir, sizeof ret->dir, "%s%s", mount, path + len);
	return true;
}

/* ---- How much --------------------------------------------------------------------------------------- */

/* So many microseconds in each period, as CPUs; UINT64_MAX: no limit. */
static uint64_t cpus_of(long long quota_us, long long period_us)
{
	if (quota_us <= 0 || period_us <= 0)
		return UINT64_MAX;
	return (uint64_t)(quota_us / period_us + (quota_us % period_us != 0));
}

/* Of a file that begins with n numbers, one or two; false: it is not there, or says something else ("max").
 */
static bool read_numbers(const struct group *group, const char *name, int n, long long ret[2])
{
	FILE *file = open_file(group->root, group->dir, name);
	int found = file ? fscanf(file, "%18lld %18lld", &ret[0], &ret[1]) : 0;
	if (file)
		fclose(file);
	return found >= n;
}

static uint64_t read_quota_2(const struct group *group)
{
	long long max[2];
	return read_numbers(group, "cpu.max", 2, max) ? cpus_of(max[0], max[1]) : UINT64_MAX;
}

static uint64_t read_quota_1(const struct group *group)
{
	long long quota[2], period[2];
	return read_numbers(group, "cpu.cfs_quota_us", 1, quota) &&
	               read_numbers(group, "cpu.cfs_period_us", 1, period)
	           ? cpus_of(quota[0], period[0])
	           : UINT64_MAX;
}

/* The least of the group's quota and of those above it. */
static uint64_t least_quota(const struct hierarchy *hierarchy, struct group *group)
{
	uint64_t least = UINT64_MAX;
	char *slash;
	do {
		uint64_t quota = hierarchy->read_quota(group);
		least = quota < least ? quota : least;
		slash = strrchr(group->dir, '/');
		if (slash)
			*slash = 0;
	} while (slash && slash >= group->dir + group->mount_len);
	return least;
}

uint32_t threads_for(uint32_t cpus, const char *root)
{
	uint64_t least = cpus;
	for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
		struct group group;
		if (!find_group(root, &hierarchies[i], &group))
			continue;
		uint64_t quota = least_quota(&hierarchies[i], &group);
		least = quota < least ? quota : least;
	}
	return least > 1 ? (uint32_t)least : 1;
}

/* The kernel refuses a mask that has no room for all CPUs which the machine could have. */
static uint32_t count_affinity(void)
{
	int r = -1;
	uint32_t n = 0;
	for (int most = 64; r < 0 && most <= MOST_CPUS; most *= 2) {
		cpu_set_t *set = CPU_ALLOC(most);
		if (!set)
			return 0;
		r = sched_getaffinity(0, CPU_ALLOC_SIZE(most), set);
		if (r == 0)
			n = (uint32_t)CPU_COUNT_S(CPU_ALLOC_SIZE(most), set);
		CPU_FREE(set);
	}
	return n;
}

uint32_t threads_default(void)
{
	return threads_for(count_affinity(), "");
}
