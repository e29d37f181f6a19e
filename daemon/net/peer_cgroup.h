/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup of the process at the other end of a connection, for limits by cgroup (overrides.h).
 *
 * /proc/PID/cgroup names it. A pid may be another process's by the time it is read, so a pidfd that the
 * kernel makes for the peer (SO_PEERPIDFD) has to say afterwards that the process is still there. A peer that
 * has ended is an error: otherwise processes could leave their cgroup's account by having a child connect for
 * them.
 */
#ifndef DAEMON_NET_PEER_CGROUP_H
#define DAEMON_NET_PEER_CGROUP_H

#include <sys/types.h>

#include "daemon/config/overrides.h"
#include "proto/status.h"

struct peer_cgroup {
	char path[OVERRIDE_CGROUP_BYTES + 1]; /* its beginning, if it is longer than any section's */
	const char
	    *unknown; /* why this machine does not say, which no client can bring about; NULL: it does */
};

/* pid is the peer's as the socket reports it. Does not wait. Returns PERMISSION if the peer has ended, or its
 * path is too long for the kernel, and NO_MEMORY if descriptors or memory are short. */
int peer_cgroup_find(int sock, pid_t pid, struct peer_cgroup *ret, struct error *err);

#endif
