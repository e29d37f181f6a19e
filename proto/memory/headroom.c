/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self/cgroup names the group, /proc/self/mountinfo where its hierarchy is mounted and which part of
 * it; each group up to there has its limit and its use in files of its own. What cannot be read limits
 * nothing. */
#include "headroom.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arithmetic.h"

#define RESERVE_SHARE 4 /* of a cgroup's limit: the part that spare leaves */

static bool find_group(char *ret, size_t size, int version, const char *root);
static bool find_mount(const struct headroom *headroom, char *mount, char *part);
static uint64_t read_meminfo(const struct headroom *headroom, const char *key);

static FILE *open_file(const char *root, const char *path)
{
	char whole[sizeof((struct headroom *)0)->root + HEADROOM_PATH + 64];

	snprintf(whole, sizeof whole, "%s%s", root, path);
	return fopen(whole, "re");
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

/* Lines "4:memory:/path"; version 2 has one "0::/path". */
static bool find_group(char *ret, size_t size, int version, const char *root)
{
	FILE *file = open_file(root, "/proc/self/cgroup");
	char *line = NULL, *controllers, *path;
	size_t room = 0;
	bool found = false;

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = 0;
		controllers = strchr(line, ':');
		path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*controllers++ = *path++ = 0;
		found = version == 2 ? !strcmp(line, "0") && !*controllers : has_word(controllers, "memory");
		found = found && strlen(path) < size;
		if (found)
			strcpy(ret, path);
	}
	free(line);
	fclose(file);
	return found;
}

/* Lines "36 35 98:0 /part /mount options ... - type source superoptions". */
static bool parse_mount(char *line, int version, char *mount, char *part)
{
	char type[32], options[512];
	const char *rest = strstr(line, " - ");

	if (!rest || sscanf(rest, " - %31s %*s %511s", type, options) != 2 ||
	    strcmp(type, version == 2 ? "cgroup2" : "cgroup") != 0 ||
	    (version == 1 && !has_word(options, "memory")))
		return false;
	return sscanf(line, "%*s %*s %*s %4095s %4095s", part, mount) == 2;
}

static bool find_mount(const struct headroom *headroom, char *mount, char *part)
{
	FILE *file = open_file(headroom->root, "/proc/self/mountinfo");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) > 0)
		found = parse_mount(line, headroom->version, mount, part);
	free(line);
	fclose(file);
	return found;
}

/* A container may see its own part of the hierarchy, mounted as the whole, and its path from the whole's
 * root. */
static bool find(struct headroom *headroom, int version)
{
	char path[HEADROOM_PATH], mount[HEADROOM_PATH], part[HEADROOM_PATH];
	size_t len;
	int n;

	headroom->version = version;
	if (!find_group(path, sizeof path, version, headroom->root) || !find_mount(headroom, mount, part))
		return false;
	len = strcmp(part, "/") != 0 ? strlen(part) : 0;
	if (strncmp(path, part, len) != 0 || (path[len] != '/' && path[len]))
		path[len = 0] = 0;
	n = snprintf(headroom->group, sizeof headroom->group, "%s%s", mount, path + len);
	if (n < 0 || (size_t)n >= sizeof headroom->group)
		return false;
	while (n > 1 && headroom->group[n - 1] == '/')
		headroom->group[--n] = 0;
	headroom->mount_len = (uint32_t)strlen(mount);
	return true;
}

void headroom_init(struct headroom *headroom, const char *root)
{
	*headroom = (struct headroom){ 0 };
	snprintf(headroom->root, sizeof headroom->root, "%s", root);
	/* Version 1 has the controller where both are mounted and memory is among version 1's. */
	if (!find(headroom, 1) && !find(headroom, 2))
		*headroom->group = 0;
}

/* ---- How much --------------------------------------------------------------------------------------- */

/* A file of one number, or of "max" and such, which is none. */
static uint64_t read_number(const struct headroom *headroom, const char *group, const char *name,
                            uint64_t otherwise)
{
	char path[HEADROOM_PATH + 64];
	uint64_t value;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", group, name);
	file = open_file(headroom->root, path);
	if (!file)
		return otherwise;
	if (fscanf(file, "%" SCNu64, &value) != 1)
		value = otherwise;
	fclose(file);
	return value;
}

/* The number after key in a file of "key number" lines, whose unit is of so many bytes. */
static uint64_t read_line(const struct headroom *headroom, const char *path, const char *key, uint64_t unit,
                          uint64_t otherwise)
{
	FILE *file = open_file(headroom->root, path);
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
	return read_line(headroom, "/proc/meminfo", key, 1024, UINT64_MAX);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* One group's part in the figures. */
static void add_group(const struct headroom *headroom, const char *group, struct headroom_figures *figures)
{
	bool v2 = headroom->version == 2;
	uint64_t limit =
	    read_number(headroom, group, v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
	uint64_t used, files, available;
	char stat[HEADROOM_PATH + 64];

	if (v2)
		limit = min_u64(limit, read_number(headroom, group, "memory.high", UINT64_MAX));
	if (limit >= figures->machine) /* version 1 says "none" with a large number */
		return;
	snprintf(stat, sizeof stat, "%s/memory.stat", group);
	used = read_number(headroom, group, v2 ? "memory.current" : "memory.usage_in_bytes", 0);
	files = read_line(headroom, stat, v2 ? "inactive_file" : "total_inactive_file", 1, 0);
	available = minus(limit, minus(used, files));
	figures->group = min_u64(figures->group, limit);
	figures->available = min_u64(figures->available, available);
	figures->spare = min_u64(figures->spare, minus(available, limit / RESERVE_SHARE));
}

void headroom_read(const struct headroom *headroom, struct headroom_figures *ret)
{
	char group[HEADROOM_PATH];
	uint64_t available = read_meminfo(headroom, "MemAvailable:");
	char *slash;

	*ret = (struct headroom_figures){ .machine = read_meminfo(headroom, "MemTotal:"),
		                          .group = UINT64_MAX,
		                          .available = available,
		                          .spare = available };
	if (!*headroom->group)
		return;
	strcpy(group, headroom->group);
	do {
		add_group(headroom, group, ret);
		slash = strrchr(group, '/');
		if (slash)
			*slash = 0;
	} while (slash && slash >= group + headroom->mount_len);
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
