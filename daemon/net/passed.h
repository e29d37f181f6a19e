/* Sockets that a service manager passed: LISTEN_FDS and LISTEN_FDNAMES, as sd_listen_fds(3) has them.
 *
 * One is for clients, whatever its name; one named "metrics" may come with it. They stay open until the
 * process ends, because what follows an execv (recovery.c) is passed them again under the same numbers.
 */
#ifndef DAEMON_NET_PASSED_H
#define DAEMON_NET_PASSED_H

#include "proto/status.h"

/* FileDescriptorName= of the socket for metrics. */
#define PASSED_METRICS "metrics"

/* Reads the variables, and takes them out of the environment; once, at the start. INVALID_ARGUMENT: they make
 * no sense, or there is more than one socket of a kind. */
int passed_init(struct error *err);

/* The socket of that name, NULL: the one for clients; -1: there is none. It listens, is a stream socket,
 * Unix or not, is not blocking, and is not the caller's to close while the service runs. */
int passed_socket(const char *name);

/* What execv starts in this process is passed the same. Negative errno. */
int passed_pass_on(void);

#endif
