/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups that this process is in: its own in a hierarchy of version 1 or 2, and those above it as far as
 * they are to be seen; and how much memory the machine and they leave to it. Their limits end processes long
 * before the machine is short. Each may have a limit in files of its own; what cannot be read limits nothing.
 */
#ifndef PROTO_MEMORY_HEADROOM_H
#define PROTO_MEMORY_HEADROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- Cgroups ------------------------------------------------------------------------------------------- */

#define CGROUP_PATH 4096

/* A cgroup is known by its directory. */
struct cgroup {
	char dir[CGROUP_PATH];
	size_t mount_len; /* of dir: what is above it is not to be seen */
};

/* Finds the process's own cgroup: of version 2, which has all controllers in one hierarchy, or of version 1,
 * in the hierarchy that has this controller. Returns false if there is none, or it is not to be seen. root is
 * before every path: "" but for tests. */
bool cgroup_init(struct cgroup *ret, int version, const char *controller, const char *root);

/* Goes to the group above. Returns false if there is none that is to be seen. */
bool cgroup_ascend(struct cgroup *cgroup);

/* Opens a file of the group, for the caller to close. Returns NULL if it is not there. */
FILE *cgroup_open(const struct cgroup *cgroup, const char *name);

/* Reads the n numbers that a file of the group begins with. Returns false if it is not there, or says
 * something else ("max"). */
bool cgroup_read(const struct cgroup *cgroup, const char *name, int n, int64_t *ret);

/* ---- Headroom ------------------------------------------------------------------------------------------ */

/* The figures are found here: looked up once, read as often as one likes. */
struct headroom {
	char root[64]; /* before every path: "", or a test's tree */
	struct cgroup group;
	int version; /* of group; 0: there is none that limits memory */
};

/* These are bytes; UINT64_MAX where nobody says. */
struct headroom_figures {
	uint64_t machine;   /* all of its memory */
	uint64_t group;     /* the least limit of a cgroup, memory.high counted as one */
	uint64_t available; /* what can still be had of all of them. Cached files count as free. */
	uint64_t spare;     /* the same, a quarter of each cgroup's limit left untouched */
};

/* root is "" but for tests. */
void headroom_init(struct headroom *headroom, const char *root);
void headroom_read(const struct headroom *headroom, struct headroom_figures *ret);

/* Does both for this process, of the real tree. */
void headroom_now(struct headroom_figures *ret);

/* Returns the lesser of the machine's memory and of the cgroups' limits. */
uint64_t headroom_whole(const struct headroom_figures *figures);

#endif
