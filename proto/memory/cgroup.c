/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self/cgroup names the group in each hierarchy, /proc/self/mountinfo where that is mounted and which
 * part of it. */
#include "cgroup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 128 /* of a file that is read for its numbers */

/* What a line is looked at for. */
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

/* A line "36 35 98:0 /part /mount options ... - type source superoptions". */
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

/* A container may see its own part of the hierarchy, mounted as the whole, and its path from the whole's
 * root. A path that leads out of what is mounted ("/..") names a group that is not to be seen. */
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
