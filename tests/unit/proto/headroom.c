/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how much memory exists and is left by trees of files in place of /proc and the cgroups. */
#include "proto/memory/headroom.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/support/tree.h"

#define MIB        ((uint64_t)1 << 20)
#define NONE       UINT64_MAX
#define MOST_FILES 12

struct row {
	char name[48];
	struct tree_file files[MOST_FILES];
	struct headroom_figures figures;
};

#define MEMINFO \
	"MemTotal:        4194304 kB\nMemFree:  100 kB\nMemAvailable:    3145728 kB\nHugePages_Total:       0\n"
#define MACHINE "proc/meminfo", MEMINFO
#define MOUNT_1 "33 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define MOUNT_2 "38 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define CPU_1   "32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"

ParameterizedTestParameters(headroom, figures)
{
	static struct row rows[] = {
		{ "nothing to read", { { "", "" } }, { NONE, NONE, NONE, NONE } },
		{ "no cgroups", { { MACHINE } }, { 4096 * MIB, NONE, 3072 * MIB, 3072 * MIB } },
		{ "version 2, no limit",
		  { { MACHINE },
		    { "proc/self/cgroup", "0::/a\n" },
		    { "proc/self/mountinfo", MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "max\n" },
		    { "sys/fs/cgroup/a/memory.high", "max\n" },
		    { "sys/fs/cgroup/a/memory.current", "1048576\n" } },
		  { 4096 * MIB, NONE, 3072 * MIB, 3072 * MIB } },
		{ "version 2",
		  { { MACHINE },
		    { "proc/self/cgroup", "0::/a\n" },
		    { "proc/self/mountinfo", CPU_1 MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "536870912\n" },
		    { "sys/fs/cgroup/a/memory.high", "max\n" },
		    { "sys/fs/cgroup/a/memory.current", "268435456\n" },
		    { "sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 67108864\nactive_file 7\n" } },
		  { 4096 * MIB, 512 * MIB, 320 * MIB, 192 * MIB } },
		{ "version 2, memory.high is lower",
		  { { MACHINE },
		    { "proc/self/cgroup", "0::/a\n" },
		    { "proc/self/mountinfo", MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "536870912\n" },
		    { "sys/fs/cgroup/a/memory.high", "268435456\n" },
		    { "sys/fs/cgroup/a/memory.current", "104857600\n" } },
		  { 4096 * MIB, 256 * MIB, 156 * MIB, 92 * MIB } },
		{ "version 2, one above has the least",
		  { { MACHINE },
		    { "proc/self/cgroup", "0::/a/b/c\n" },
		    { "proc/self/mountinfo", MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "134217728\n" },
		    { "sys/fs/cgroup/a/memory.current", "120586240\n" },
		    { "sys/fs/cgroup/a/b/memory.max", "max\n" },
		    { "sys/fs/cgroup/a/b/c/memory.max", "67108864\n" },
		    { "sys/fs/cgroup/a/b/c/memory.current", "1048576\n" } },
		  { 4096 * MIB, 64 * MIB, 13 * MIB, 0 } },
		{ "version 2, over its limit",
		  { { MACHINE },
		    { "proc/self/cgroup", "0::/a\n" },
		    { "proc/self/mountinfo", MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "1048576\n" },
		    { "sys/fs/cgroup/a/memory.current", "2097152\n" } },
		  { 4096 * MIB, MIB, 0, 0 } },
		{ "version 1",
		  { { MACHINE },
		    { "proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n" },
		    { "proc/self/mountinfo", CPU_1 MOUNT_1 },
		    { "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n" },
		    { "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n" },
		    { "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "536870912\n" },
		    { "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "268435456\n" },
		    { "sys/fs/cgroup/memory/a/b/memory.stat",
		      "cache 1\ninactive_file 5\ntotal_inactive_file 67108864\n" } },
		  { 4096 * MIB, 512 * MIB, 320 * MIB, 192 * MIB } },
		{ "version 1 in the root",
		  { { MACHINE },
		    { "proc/self/cgroup", "4:memory:/\n" },
		    { "proc/self/mountinfo", MOUNT_1 },
		    { "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n" },
		    { "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n" } },
		  { 4096 * MIB, 1024 * MIB, 1024 * MIB, 768 * MIB } },
		{ "a container that sees its part",
		  { { MACHINE },
		    { "proc/self/cgroup", "4:memory:/docker/1234/inner\n" },
		    { "proc/self/mountinfo",
		      "33 31 0:29 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" },
		    { "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n" },
		    { "sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "536870912\n" } },
		  { 4096 * MIB, 512 * MIB, 512 * MIB, 384 * MIB } },
		{ "a container that sees another's part",
		  { { MACHINE },
		    { "proc/self/cgroup", "4:memory:/docker/12345\n" },
		    { "proc/self/mountinfo",
		      "33 31 0:29 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" },
		    { "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n" } },
		  { 4096 * MIB, 1024 * MIB, 1024 * MIB, 768 * MIB } },
		{ "both versions, memory is in the first",
		  { { MACHINE },
		    { "proc/self/cgroup", "4:memory:/a\n0::/a\n" },
		    { "proc/self/mountinfo",
		      "39 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" MOUNT_1 },
		    { "sys/fs/cgroup/unified/a/memory.max", "1048576\n" },
		    { "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n" } },
		  { 4096 * MIB, 512 * MIB, 512 * MIB, 384 * MIB } },
		{ "both versions, memory is in the second",
		  { { MACHINE },
		    { "proc/self/cgroup", "4:cpu:/a\n0::/a\n" },
		    { "proc/self/mountinfo", CPU_1 MOUNT_2 },
		    { "sys/fs/cgroup/a/memory.max", "536870912\n" } },
		  { 4096 * MIB, 512 * MIB, 512 * MIB, 384 * MIB } },
		{ "what is no such file",
		  { { MACHINE },
		    { "proc/self/cgroup", "\n:\n::\n0:\nmemory\n4:memory:/a\n" },
		    { "proc/self/mountinfo", " - \n - cgroup\n1 2 3 - cgroup x rw,memory\n" } },
		  { 4096 * MIB, NONE, 3072 * MIB, 3072 * MIB } },
	};
	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, headroom, figures)
{
	struct tree tree;
	struct headroom_figures figures;
	struct headroom headroom;

	tree_init(&tree, row->files, MOST_FILES);
	headroom_init(&headroom, tree.root);
	headroom_read(&headroom, &figures);
	cr_assert_eq(figures.machine, row->figures.machine, "%s: machine %lu", row->name, figures.machine);
	cr_assert_eq(figures.group, row->figures.group, "%s: group %lu", row->name, figures.group);
	cr_assert_eq(figures.available, row->figures.available, "%s: available %lu", row->name,
	             figures.available);
	cr_assert_eq(figures.spare, row->figures.spare, "%s: spare %lu", row->name, figures.spare);
	cr_assert_eq(headroom_whole(&figures),
	             figures.group < figures.machine ? figures.group : figures.machine);
	tree_deinit(&tree);
}

/* This reads the files of the machine. */
Test(headroom, now)
{
	struct headroom_figures figures;

	headroom_now(&figures);
	cr_assert_gt(figures.machine, 64 * MIB);
	cr_assert_lt(figures.machine, NONE);
	cr_assert_leq(figures.available, figures.machine);
	cr_assert_leq(figures.spare, figures.available);
}
