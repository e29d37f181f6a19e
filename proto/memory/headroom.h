/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is, and how much is left, for this process: the machine's, and that of the cgroups
 * that it is in (version 1 or 2), whose limits end processes long before the machine is short.
 */
#ifndef PROTO_MEMORY_HEADROOM_H
#define PROTO_MEMORY_HEADROOM_H

#include <stdint.h>

#include "cgroup.h"

/* Where the figures are found: looked up once, read as often as one likes. */
struct headroom {
	char root[64]; /* before every path: "", or a test's tree */
	struct cgroup group;
	int version; /* of group; 0: there is none that limits memory */
};

/* Bytes; UINT64_MAX: nobody says. */
struct headroom_figures {
	uint64_t machine;   /* all of its memory */
	uint64_t group;     /* the least limit of a cgroup, memory.high counted as one */
	uint64_t available; /* what can still be had of all of them. Cached files count as free. */
	uint64_t spare;     /* the same, a quarter of each cgroup's limit left untouched */
};

/* root is "" but for tests. */
void headroom_init(struct headroom *headroom, const char *root);
void headroom_read(const struct headroom *headroom, struct headroom_figures *ret);

/* Both for this process, of the real tree. */
void headroom_now(struct headroom_figures *ret);

/* The lesser of the machine's memory and of the cgroups' limits. */
uint64_t headroom_whole(const struct headroom_figures *figures);

#endif
