/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups that this process belongs to, and the memory that they and the machine have left. A process
 * belongs to its own cgroup in a hierarchy of version 1 or 2, and to those above it as far as they can be
 * seen. Each may have a limit, at which processes are killed long before the machine runs out of memory. A
 * file that cannot be read counts as no limit. */
#ifndef PROTO_MEMORY_HEADROOM_H
#define PROTO_MEMORY_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- Cgroups ------------------------------------------------------------------------------------------- */

#define CGROUP_PATH 4096

/* A cgroup, identified by its directory. */
struct cgroup {
	char dir[CGROUP_PATH];
	size_t mount_len; /* length of the mount point in dir; cgroups above it cannot be seen */
};

/* Finds the process's own cgroup: with version 2, which has all controllers in one hierarchy, or with version
 * 1, in the hierarchy that has this controller. Returns false if there is none, or it cannot be seen. root is
 * prefixed to every path; it is "" except in tests. */
bool cgroup_init(struct cgroup *ret, int version, const char *controller, const char *root);

/* Moves to the parent cgroup. Returns false if there is none that can be seen. */
bool cgroup_ascend(struct cgroup *cgroup);

/* Opens a file of the cgroup, which the caller closes. Returns NULL if it does not exist. */
FILE *cgroup_open(const struct cgroup *cgroup, const char *name);

/* Reads the n numbers at the start of a file of the cgroup. Returns false if there is no such file, or it
 * contains something else ("max"). */
bool cgroup_read(const struct cgroup *cgroup, const char *name, int n, int64_t *ret);

/* ---- Headroom ------------------------------------------------------------------------------------------ */

/* The source of the figures. headroom_init fills it once. */
struct headroom {
	char root[64]; /* prefix of every path: "", or a test's tree */
	struct cgroup group;
	int version; /* version of `group`; 0: no cgroup limits memory */
};

/* Figures in bytes; UINT64_MAX if unknown. */
struct headroom_figures {
	uint64_t machine; /* total memory of the machine */
	uint64_t group;   /* least limit of any cgroup; memory.high counts as a limit */
	/* bytes that can still be allocated under all limits, counting cached files as free */
	uint64_t available;
	uint64_t spare; /* `available`, with a quarter of each cgroup's limit left untouched */
};

/* headroom_init finds the cgroup; root is "" except in tests. headroom_read reads the current figures. */
void headroom_init(struct headroom *headroom, const char *root);
void headroom_read(const struct headroom *headroom, struct headroom_figures *ret);

/* Does both, for this process. */
void headroom_now(struct headroom_figures *ret);

/* Returns the lesser of the machine's memory and the cgroups' least limit. */
uint64_t headroom_whole(const struct headroom_figures *figures);

#endif
