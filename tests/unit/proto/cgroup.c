/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which directories are found as a process's cgroups, and what is read from their files, with trees of
 * files in place of /proc and the cgroups. */
#include "proto/memory/headroom.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/support/tree.h"

#define MOST_GROUPS 4

struct walk_row {
	char name[48];
	int version;
	char controller[16];
	char group[96];            /* /proc/self/cgroup */
	char mounts[256];          /* /proc/self/mountinfo */
	char dir[MOST_GROUPS][48]; /* from the process's own upwards; "" ends the list */
};

#define MOUNT_1 "33 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define MOUNT_2 "38 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define CPUSET  "32 31 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
#define INNER   "33 31 0:29 /docker/1234 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"

ParameterizedTestParameters(cgroup, walk)
{
	static struct walk_row rows[] = {
		{ "nothing to read", 2, "cpu", "", "", { "" } },
		{ "group without a mount", 2, "cpu", "0::/a\n", "", { "" } },
		{ "mount without a group", 2, "cpu", "", MOUNT_2, { "" } },
		{ "version 2",
		  2,
		  "cpu",
		  "4:cpu:/x\n0::/a/b\n",
		  CPUSET MOUNT_1 MOUNT_2,
		  { "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup" } },
		{ "version 2 in the root", 2, "cpu", "0::/\n", MOUNT_2, { "/sys/fs/cgroup" } },
		{ "version 2 without its mount", 2, "cpu", "4:cpu:/x\n0::/a/b\n", CPUSET MOUNT_1, { "" } },
		{ "version 2, out of what is mounted", 2, "cpu", "0::/../a\n", MOUNT_2, { "" } },
		{ "version 1",
		  1,
		  "cpu",
		  "9:cpuset:/x\n4:cpuacct,cpu:/a\n0::/y\n",
		  MOUNT_2 CPUSET MOUNT_1,
		  { "/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu" } },
		{ "version 1, a controller whose name is longer",
		  1,
		  "cpu",
		  "9:cpuset:/x\n",
		  CPUSET MOUNT_1,
		  { "" } },
		{ "version 1 without the controller", 1, "memory", "4:cpu:/a\n0::/a\n", MOUNT_1, { "" } },
		{ "version 1, its part is mounted as the whole",
		  1,
		  "cpu",
		  "4:cpu:/docker/1234/inner\n",
		  INNER,
		  { "/sys/fs/cgroup/cpu/inner", "/sys/fs/cgroup/cpu" } },
		{ "version 1, it is what is mounted",
		  1,
		  "cpu",
		  "4:cpu:/docker/1234\n",
		  INNER,
		  { "/sys/fs/cgroup/cpu" } },
		{ "version 1, another's part is mounted",
		  1,
		  "cpu",
		  "4:cpu:/docker/12345\n",
		  INNER,
		  { "/sys/fs/cgroup/cpu" } },
		{ "mounted at the top",
		  2,
		  "cpu",
		  "0::/a\n",
		  "38 31 0:38 / / rw,relatime - cgroup2 cgroup2 rw\n",
		  { "//a", "/" } },
		{ "files of something else",
		  1,
		  "cpu",
		  "\n:\n::\n0:\ncpu\n4:cpu:/a\n",
		  " - \n - cgroup\n1 2 3 - cgroup x rw,cpu\n",
		  { "" } },
	};
	return cr_make_param_array(struct walk_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct walk_row *row, cgroup, walk)
{
	struct tree_file files[] = { { .path = "proc/self/cgroup" }, { .path = "proc/self/mountinfo" } };
	struct tree tree;
	struct cgroup group;
	strcpy(files[0].text, row->group);
	strcpy(files[1].text, row->mounts);
	tree_init(&tree, files, 2);
	bool found = cgroup_init(&group, row->version, row->controller, tree.root);
	for (int i = 0; i < MOST_GROUPS; i++, found = found && cgroup_ascend(&group)) {
		cr_assert_eq(found, *row->dir[i] != 0, "%s: %d", row->name, i);
		if (found)
			cr_assert_str_eq(group.dir + strlen(tree.root), row->dir[i], "%s: %d", row->name, i);
	}
	tree_deinit(&tree);
}

/* A path longer than any file's counts as none, and is neither cut nor written past the end. */
Test(cgroup, long_paths)
{
	static const size_t lengths[] = { 4000, CGROUP_PATH, 2 * CGROUP_PATH };
	const struct tree_file files[] = { { "proc/self/mountinfo", MOUNT_2 }, { "proc/self/cgroup", "" } };
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		char path[64], line[2 * CGROUP_PATH + 8] = "0::/";
		struct tree tree;
		struct cgroup group;
		tree_init(&tree, files, 2);
		memset(line + 4, 'a', lengths[i]);
		strcpy(line + 4 + lengths[i], "\n");
		snprintf(path, sizeof path, "%s/proc/self/cgroup", tree.root);
		FILE *file = fopen(path, "w");
		cr_assert_not_null(file);
		fputs(line, file);
		fclose(file);
		cr_assert_eq(cgroup_init(&group, 2, "cpu", tree.root), lengths[i] == 4000, "%zu", lengths[i]);
		tree_deinit(&tree);
	}
}

struct read_row {
	char name[32];
	char text[64];
	int n;
	bool is_read;
	int64_t numbers[2];
};

ParameterizedTestParameters(cgroup, read)
{
	static struct read_row rows[] = {
		{ "one number", "4096\n", 1, true, { 4096 } },
		{ "one of two", "4096 100\n", 1, true, { 4096 } },
		{ "two", "50000 100000\n", 2, true, { 50000, 100000 } },
		{ "no second", "50000\n", 2, false, { 0 } },
		{ "one on the next line", "50000\n100000\n", 2, false, { 0 } },
		{ "less than nothing", "-1\n", 1, true, { -1 } },
		{ "the largest", "9223372036854775807\n", 1, true, { INT64_MAX } },
		{ "more than a number holds", "9223372036854775808\n", 1, false, { 0 } },
		{ "a word", "max 100000\n", 2, false, { 0 } },
		{ "a word in second place", "100000 max\n", 2, false, { 0 } },
		{ "an empty line", "\n", 1, false, { 0 } },
		{ "nothing", "", 1, false, { 0 } },
	};
	return cr_make_param_array(struct read_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct read_row *row, cgroup, read)
{
	struct tree_file files[] = { { "proc/self/cgroup", "0::/a\n" },
		                     { "proc/self/mountinfo", MOUNT_2 },
		                     { .path = "sys/fs/cgroup/a/limit" } };
	struct tree tree;
	struct cgroup group;
	int64_t numbers[2];
	strcpy(files[2].text, row->text);
	tree_init(&tree, files, 3);
	cr_assert(cgroup_init(&group, 2, "cpu", tree.root), "%s", row->name);
	cr_assert_eq(cgroup_read(&group, "limit", row->n, numbers), row->is_read, "%s", row->name);
	for (int i = 0; row->is_read && i < row->n; i++)
		cr_assert_eq(numbers[i], row->numbers[i], "%s: %d", row->name, i);
	cr_assert_not(cgroup_read(&group, "none", row->n, numbers), "%s", row->name);
	FILE *file = cgroup_open(&group, "limit");
	cr_assert_not_null(file, "%s", row->name);
	fclose(file);
	cr_assert_null(cgroup_open(&group, "none"), "%s", row->name);
	tree_deinit(&tree);
}
