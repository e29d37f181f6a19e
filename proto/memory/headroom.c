/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self/cgroup names the process's cgroup in each hierarchy. /proc/self/mountinfo tells where the
 * hierarchy is mounted, and which part of it. The figures come from /proc/meminfo and from the files of each
 * cgroup. */
#include "headroom.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arithmetic.h"

/* ---- Cgroups ------------------------------------------------------------------------------------------- */

#define TEXT_BYTES 128 /* bytes that are read of a file of numbers */

/* The hierarchy that is looked for. controller is used with version 1 only. */
struct hierarchy {
	int version;
	const char *controller;
};

static FILE *open_file(const char *dir, const char *name)
{
	char path[CGROUP_PATH + 64];
	int n = snprintf(path, sizeof path, "%s/%s", dir, name);
	return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* Returns whether `word` is one of the comma-separated words in text. */
static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);
	for (; text; text = strchr(text, ','), text = text ? text + 1 : NULL)
		if (!strncmp(text, word, len) && (text[len] == ',' || !text[len]))
			return true;
	return false;
}

/* Parses a line such as "4:cpu,cpuacct:/path"; that of version 2 is "0::/path". Returns the path, which is a
 * part of line, or NULL if the line is of another hierarchy. */
static const char *parse_group(char *line, const struct hierarchy *hierarchy)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return NULL;
	*controllers++ = *path++ = 0;
	bool is_wanted = hierarchy->version == 2 ? !strcmp(line, "0") && !*controllers
	                                         : has_word(controllers, hierarchy->controller);
	return is_wanted ? path : NULL;
}

static bool find_path(const char *root, const struct hierarchy *hierarchy, char ret[CGROUP_PATH])
{
	FILE *file = open_file(root, "proc/self/cgroup");
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	while (file && !found && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		const char *path = parse_group(line, hierarchy);
		found = path && strlen(path) < CGROUP_PATH;
		if (found)
			strcpy(ret, path);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* Parses a line "36 35 98:0 /part /mount options ... - type source superoptions". */
static bool parse_mount(const char *line, const struct hierarchy *hierarchy, char mount[CGROUP_PATH],
                        char part[CGROUP_PATH])
{
	char type[32], options[512];
	const char *rest = strstr(line, " - ");
	if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
	    strcmp(type, hierarchy->version == 2 ? "cgroup2" : "cgroup") != 0 ||
	    (hierarchy->version == 1 && !has_word(options, hierarchy->controller)))
		return false;
	return sscanf(line, "%*s %*s %*s %4095s %4095s", part, mount) == 2 && *part == '/' && *mount == '/';
}

static bool find_mount(const char *root, const struct hierarchy *hierarchy, char mount[CGROUP_PATH],
                       char part[CGROUP_PATH])
{
	FILE *file = open_file(root, "proc/self/mountinfo");
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

/* In a container, only a part of the hierarchy may be mounted, while the process's path still begins at the
 * root of the whole. A path that leads out of the mounted part ("/..") names a cgroup that cannot be seen. */
bool cgroup_init(struct cgroup *ret, int version, const char *controller, const char *root)
{
	const struct hierarchy hierarchy = { version, controller };
	char path[CGROUP_PATH], mount[CGROUP_PATH], part[CGROUP_PATH];
	if (!find_path(root, &hierarchy, path) || !find_mount(root, &hierarchy, mount, part) ||
	    !strncmp(path, "/..", 3))
		return false;
	size_t len = strcmp(part, "/") != 0 ? strlen(part) : 0;
	if (strncmp(path, part, len) != 0 || (path[len] != '/' && path[len]))
		path[len = 0] = 0;
	int n = snprintf(ret->dir, sizeof ret->dir, "%s%s%s", root, mount, path + len);
	if (n < 0 || (size_t)n >= sizeof ret->dir)
		return false;
	ret->mount_len = strlen(root) + strlen(mount);
	while ((size_t)n > ret->mount_len && ret->dir[n - 1] == '/')
		ret->dir[--n] = 0;
	return true;
}

bool cgroup_ascend(struct cgroup *cgroup)
{
	char *slash = strrchr(cgroup->dir, '/');
	if (!slash || slash < cgroup->dir + cgroup->mount_len)
		return false;
	*slash = 0;
	return true;
}

FILE *cgroup_open(const struct cgroup *cgroup, const char *name)
{
	return open_file(cgroup->dir, name);
}

bool cgroup_read(const struct cgroup *cgroup, const char *name, int n, int64_t *ret)
{
	char text[TEXT_BYTES], *end;
	FILE *file = cgroup_open(cgroup, name);
	const char *next = file ? fgets(text, sizeof text, file) : NULL;
	if (file)
		fclose(file);
	for (int i = 0; next && i < n; i++) {
		errno = 0;
		ret[i] = strtoll(next, &end, 10);
		next = end > next && errno != ERANGE ? end : NULL;
	}
	return next;
}

/* ---- Headroom ------------------------------------------------------------------------------------------ */

#define RESERVE_SHARE 4 /* `spare` excludes 1 / RESERVE_SHARE of a cgroup's limit. */

void headroom_init(struct headroom *headroom, const char *root)
{
	*headroom = (struct headroom){ 0 };
	snprintf(headroom->root, sizeof headroom->root, "%s", root);
	/* Version 1 is tried first: if both versions are mounted, the memory controller belongs to only one
	 * of them, and version 2 would be found without it. */
	for (int version = 1; !headroom->version && version <= 2; version++)
		if (cgroup_init(&headroom->group, version, "memory", root))
			headroom->version = version;
}

/* Reads a file of one number. Returns `otherwise` if it has none, as with "max". */
static uint64_t read_number(const struct cgroup *group, const char *name, uint64_t otherwise)
{
	int64_t value;

	return cgroup_read(group, name, 1, &value) && value >= 0 ? (uint64_t)value : otherwise;
}

/* Reads the number after key in a file of "key number" lines, in units of `unit` bytes, and closes the file.
 * file may be NULL. Returns `otherwise` if there is no such line. */
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

/* Applies the limits of one cgroup to the figures. */
static void add_group(const struct cgroup *group, int version, struct headroom_figures *figures)
{
	bool v2 = version == 2;
	uint64_t limit = read_number(group, v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
	uint64_t used, files, available;

	if (v2)
		limit = min_u64(limit, read_number(group, "memory.high", UINT64_MAX));
	if (limit >= figures->machine) /* Version 1 expresses "no limit" as a large number. */
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
