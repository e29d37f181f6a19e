/* SPDX-License-Identifier: Apache-2.0 */
/* A service manager passes sockets by LISTEN_FDS and LISTEN_FDNAMES; see sd_listen_fds(3).
 *
 * One is for clients, whatever its name; one named "metrics" may come with it. They stay open until the
 * process ends, because after an execv (recovery.c) the program is passed them again under the same numbers.
 */
#ifndef DAEMON_LOOP_PASSED_H
#define DAEMON_LOOP_PASSED_H

#include "proto/status.h"

/* The socket for metrics has this FileDescriptorName=. */
#define PASSED_METRICS "metrics"

/* Reads the variables and removes them from the environment; must be called once, at the start. Returns
 * INVALID_ARGUMENT if they are malformed, or there is more than one socket of a kind. */
int passed_init(struct error *err);

/* Returns the socket of that name (NULL: the one for clients), or -1 if there is none. It is a listening
 * stream socket, Unix or not, and non-blocking. The caller must not close it while the service runs. */
int passed_socket(const char *name);

/* Passes the same sockets to the program that execv starts in this process. Returns 0 or a negative errno. */
int passed_pass_on(void);

#endif
