/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that a service manager passes by LISTEN_FDS and LISTEN_FDNAMES (sd_listen_fds(3)).
 *
 * A socket named "metrics" serves metrics; at most one other socket, of any name, is for clients. They stay
 * open until the process ends, because an execv (recovery.c) passes them on under the same descriptor
 * numbers.
 */
#ifndef DAEMON_LOOP_PASSED_H
#define DAEMON_LOOP_PASSED_H

#include "proto/status.h"

/* FileDescriptorName= of the socket for metrics. */
#define PASSED_METRICS "metrics"

/* Takes over the passed sockets, and removes the variables from the environment. Must be called once, at the
 * start. Returns 0, INVALID_ARGUMENT if the variables are malformed or there is more than one socket of a
 * kind, or NO_MEMORY. */
int passed_init(struct error *err);

/* Returns the socket for metrics if name is PASSED_METRICS, otherwise (also for NULL) the one for clients, or
 * -1 if it was not passed. It is a non-blocking listening stream socket of any address family. The caller
 * must not close it. */
int passed_socket(const char *name);

/* Prepares the sockets and the environment so that an execv passes the same sockets on. Returns 0 or a
 * negative errno. */
int passed_pass_on(void);

#endif
