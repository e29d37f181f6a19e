/* SPDX-License-Identifier: Apache-2.0 */
/* How a service that is asked to stop, or whose device is lost, comes to its end. server.h has the rest:
 * server_drain, server_lose, server_abandon. */
#ifndef DAEMON_SHUTDOWN_H
#define DAEMON_SHUTDOWN_H

#include <uv.h>

/* SIGTERM and SIGINT: the first one drains the server, the second one ends at once what is under way. */
void drain_on_signal(uv_signal_t *signal, int number);

/* Stops the server (draining) or the loop (device lost) if nothing is left to wait for. arg: the server. */
void drain_check(void *arg);

#endif
