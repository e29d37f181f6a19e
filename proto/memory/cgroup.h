/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups that this process is in: its own in a hierarchy of version 1 or 2, and those above it as far as
 * they are to be seen. Each may have a limit in files of its own; what cannot be read limits nothing.
 */
#ifndef PROTO_MEMORY_CGROUP_H
#define PROTO_MEMORY_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CGROUP_PATH 4096

/* One of them, by its directory. */
struct cgroup {
	char dir[CGROUP_PATH];
	size_t mount_len; /* of dir: what is above it is not to be seen */
};

/* The process's own: of version 2, which has all controllers in one hierarchy, or of version 1, in the
 * hierarchy that has this controller. false: there is none, or it is not to be seen. root is before every
 * path: "" but for tests. */
bool cgroup_init(struct cgroup *ret, int version, const char *controller, const char *root);

/* Goes to the group above. false: there is none that is to be seen. */
bool cgroup_ascend(struct cgroup *cgroup);

/* A file of the group, for the caller to close; NULL: it is not there. */
FILE *cgroup_open(const struct cgroup *cgroup, const char *name);

/* The n numbers that a file of the group begins with. false: it is not there, or says something else ("max").
 */
bool cgroup_read(const struct cgroup *cgroup, const char *name, int n, int64_t *ret);

#endif
