/* SPDX-License-Identifier: Apache-2.0 */
/* How many threads are worth starting: as many as the CPUs that the process can keep busy. The CPU engine has
 * so many, unless it is told, and the packers (packers.h) a share of them.
 *
 * The CPUs are those of its affinity mask, or fewer where the CPU quota of a cgroup, its own or one above,
 * allows less time than they have. More threads than that would be stopped together, in the middle of their
 * work items, for the rest of each period of the quota. A cpuset is part of the affinity mask.
 *
 * Each hardware thread of a core (SMT) counts as a CPU. A second one adds little to what memory answers, but
 * it adds instructions where a transpose of short elements lacks them, and a virtual machine often hides
 * which CPUs share a core, or calls two CPUs one core: to count cores would leave half of it idle. The kernel
 * wakes threads on idle cores before it wakes them beside busy ones, so jobs for few threads do not share
 * cores. Not measured.
 *
 * Threads are bound neither to CPUs nor to nodes. The memory of a request is where its client touched it
 * first, on any node or on several, so no order of threads suits all requests; the kernel knows which CPUs
 * other programs of the host use, and a bound thread would wait for its CPU meanwhile. That is not measured;
 * memcpy's threads, bound, were faster beside two other processes than unbound (tests/bench/EXPERIMENTS.md).
 * So nothing here needs the machine's topology (hwloc). A service of one node is made with CPUAffinity=
 * (systemd/GUIDE.md).
 */
#ifndef KERNELS_HOST_THREADS_H
#define KERNELS_HOST_THREADS_H

#include <stdint.h>

/* For this process, of the calling thread's affinity mask; at least 1. */
uint32_t threads_default(void);

/* For a process that may run on so many CPUs, in the cgroups that the files below root name; root is "" but
 * for tests. At least 1. */
uint32_t threads_for(uint32_t cpus, const char *root);

#endif
