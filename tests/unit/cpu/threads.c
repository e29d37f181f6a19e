/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many threads an engine starts, with trees of files in place of /proc and the cgroups. */
#include "kernels/host/threads.h"

#include <sched.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/engine.h"
#include "tests/support/tree.h"

#define MOST_FILES 8

struct threads_row {
	char name[48];
	uint32_t cpus;
	struct tree_file files[MOST_FILES];
	uint32_t threads;
};

#define GROUP(text)                      \
	{                                \
		"proc/self/cgroup", text \
	}
#define MOUNTS(text)                        \
	{                                   \
		"proc/self/mountinfo", text \
	}
#define MOUNT_1     "33 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define MOUNT_2     "38 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define UNIFIED     "39 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define CPUSET      "32 31 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
#define MAX(dir)    "sys/fs/cgroup/" dir "cpu.max"
#define QUOTA(dir)  "sys/fs/cgroup/cpu/" dir "cpu.cfs_quota_us"
#define PERIOD(dir) "sys/fs/cgroup/cpu/" dir "cpu.cfs_period_us"

ParameterizedTestParameters(threads, by_quota)
{
	static struct threads_row rows[] = {
		{ "nothing to read", 16, { { "", "" } }, 16 },
		{ "no CPU is known", 0, { { "", "" } }, 1 },
		{ "group without a mount", 16, { GROUP("0::/a\n"), { MAX("a/"), "100000 100000\n" } }, 16 },
		{ "mount without a group", 16, { MOUNTS(MOUNT_2), { MAX(""), "100000 100000\n" } }, 16 },
		{ "version 2, no limit",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "max 100000\n" } },
		  16 },
		{ "version 2, no file", 16, { GROUP("0::/a\n"), MOUNTS(MOUNT_2) }, 16 },
		{ "version 2, below the affinity mask",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(CPUSET MOUNT_2), { MAX("a/"), "400000 100000\n" } },
		  4 },
		{ "version 2, above the affinity mask",
		  2,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "400000 100000\n" } },
		  2 },
		{ "version 2, a part of a CPU more",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "200001 100000\n" } },
		  3 },
		{ "version 2, less than a CPU",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "1000 100000\n" } },
		  1 },
		{ "version 2, another period",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "50000 10000\n" } },
		  5 },
		{ "version 2, one above is tighter",
		  16,
		  { GROUP("0::/a/b/c\n"),
		    MOUNTS(MOUNT_2),
		    { MAX("a/"), "300000 100000\n" },
		    { MAX("a/b/"), "max 100000\n" },
		    { MAX("a/b/c/"), "800000 100000\n" } },
		  3 },
		{ "version 2, one above is wider",
		  16,
		  { GROUP("0::/a/b\n"),
		    MOUNTS(MOUNT_2),
		    { MAX("a/"), "800000 100000\n" },
		    { MAX("a/b/"), "200000 100000\n" } },
		  2 },
		{ "version 2, one beside is tighter",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("ab/"), "100000 100000\n" } },
		  16 },
		{ "version 2, the container's root",
		  16,
		  { GROUP("0::/\n"), MOUNTS(MOUNT_2), { MAX(""), "600000 100000\n" } },
		  6 },
		{ "version 2, out of what is mounted",
		  16,
		  { GROUP("0::/../a\n"), MOUNTS(MOUNT_2), { MAX(""), "600000 100000\n" } },
		  16 },
		{ "version 1",
		  16,
		  { GROUP("9:cpuset:/x\n4:cpu,cpuacct:/a\n0::/\n"),
		    MOUNTS(CPUSET MOUNT_1),
		    { QUOTA("a/"), "250000\n" },
		    { PERIOD("a/"), "100000\n" } },
		  3 },
		{ "version 1, no limit",
		  16,
		  { GROUP("4:cpu,cpuacct:/a\n"),
		    MOUNTS(MOUNT_1),
		    { QUOTA("a/"), "-1\n" },
		    { PERIOD("a/"), "100000\n" } },
		  16 },
		{ "version 1, no period",
		  16,
		  { GROUP("4:cpu,cpuacct:/a\n"), MOUNTS(MOUNT_1), { QUOTA("a/"), "250000\n" } },
		  16 },
		{ "version 1, one above is tighter",
		  16,
		  { GROUP("4:cpuacct,cpu:/a/b\n"),
		    MOUNTS(MOUNT_1),
		    { QUOTA("a/"), "200000\n" },
		    { PERIOD("a/"), "100000\n" },
		    { QUOTA("a/b/"), "-1\n" },
		    { PERIOD("a/b/"), "100000\n" } },
		  2 },
		{ "version 1, its part is mounted as the whole",
		  16,
		  { GROUP("4:cpu:/docker/1234/inner\n"),
		    MOUNTS("33 31 0:29 /docker/1234 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"),
		    { QUOTA(""), "500000\n" },
		    { PERIOD(""), "100000\n" },
		    { QUOTA("inner/"), "300000\n" },
		    { PERIOD("inner/"), "100000\n" } },
		  3 },
		{ "version 1, another's part is mounted",
		  16,
		  { GROUP("4:cpu:/docker/12345\n"),
		    MOUNTS("33 31 0:29 /docker/1234 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"),
		    { QUOTA(""), "500000\n" },
		    { PERIOD(""), "100000\n" } },
		  5 },
		{ "both versions, the first is tighter",
		  16,
		  { GROUP("4:cpu:/a\n0::/a\n"),
		    MOUNTS(UNIFIED MOUNT_1),
		    { MAX("unified/a/"), "900000 100000\n" },
		    { QUOTA("a/"), "300000\n" },
		    { PERIOD("a/"), "100000\n" } },
		  3 },
		{ "both versions, the second is tighter",
		  16,
		  { GROUP("4:cpu:/a\n0::/a\n"),
		    MOUNTS(UNIFIED MOUNT_1),
		    { MAX("unified/a/"), "200000 100000\n" },
		    { QUOTA("a/"), "300000\n" },
		    { PERIOD("a/"), "100000\n" } },
		  2 },
		{ "files of something else",
		  16,
		  { GROUP("\n:\n::\n0:\ncpu\n4:cpu:/a\n0::/a\n"),
		    MOUNTS(" - \n - cgroup\n1 2 3 - cgroup x rw,cpu\n" MOUNT_2),
		    { MAX(""), "\n" },
		    { MAX("a/"), "many 100000\n" } },
		  16 },
		{ "no number in a period",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "100000 0\n" }, { MAX(""), "100000\n" } },
		  16 },
		{ "less than nothing",
		  16,
		  { GROUP("0::/a\n"), MOUNTS(MOUNT_2), { MAX("a/"), "-100000 100000\n" } },
		  16 },
		{ "more than a number holds",
		  16,
		  { GROUP("0::/a\n"),
		    MOUNTS(MOUNT_2),
		    { MAX("a/"), "99999999999999999999999999 99999999999999999999999999\n" } },
		  16 },
	};
	return cr_make_param_array(struct threads_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct threads_row *row, threads, by_quota)
{
	struct tree tree;
	tree_init(&tree, row->files, MOST_FILES);
	uint32_t threads = threads_for(row->cpus, tree.root);
	tree_deinit(&tree);
	cr_assert_eq(threads, row->threads, "%s: %u", row->name, threads);
}

static void on_wake(void *arg)
{
	(void)arg;
}

/* A process that may run on one CPU has one thread, unless it is told a number. */
Test(threads, by_affinity)
{
	struct engine_options options = { .wake = on_wake };
	struct engine *engine;
	struct error err;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
	cr_assert_eq(threads_default(), 1);
	for (options.threads = 0; options.threads <= 3; options.threads += 3) {
		cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0, "%s", err.message);
		cr_assert(strstr(engine->device, options.threads ? ", 3 threads" : ", 1 thread"), "%s",
		          engine->device);
		engine_close(engine);
	}
}
