/* SPDX-License-Identifier: Apache-2.0 */
/* The quota of a cgroup is CPU time in each period. */
#include "threads.h"

#include <sched.h>
#include <stddef.h>

#include "proto/arithmetic.h"
#include "proto/memory/cgroup.h"

#define MOST_CPUS (1 << 20) /* that an affinity mask is made large enough for */

/* So many microseconds in each period, as CPUs; UINT64_MAX: no limit. */
static uint64_t cpus_of(int64_t quota_us, int64_t period_us)
{
	if (quota_us <= 0 || period_us <= 0)
		return UINT64_MAX;
	return (uint64_t)divide_up_i64(quota_us, period_us);
}

static uint64_t read_quota(const struct cgroup *group, int version)
{
	int64_t quota_us[2]; /* and period */
	bool found = version == 2 ? cgroup_read(group, "cpu.max", 2, quota_us)
	                          : cgroup_read(group, "cpu.cfs_quota_us", 1, &quota_us[0]) &&
	                                cgroup_read(group, "cpu.cfs_period_us", 1, &quota_us[1]);
	return found ? cpus_of(quota_us[0], quota_us[1]) : UINT64_MAX;
}

/* Both versions may be mounted, one of them with quotas. */
uint32_t threads_for(uint32_t cpus, const char *root)
{
	uint64_t least = cpus;
	for (int version = 1; version <= 2; version++) {
		struct cgroup group;
		bool found = cgroup_init(&group, version, "cpu", root);
		for (; found; found = cgroup_ascend(&group))
			least = min_u64(least, read_quota(&group, version));
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
