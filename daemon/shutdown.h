/* The drain: how a service that is asked to stop, or whose device was lost, comes to its end. */
#ifndef DAEMON_SHUTDOWN_H
#define DAEMON_SHUTDOWN_H

#include <uv.h>

/* SIGTERM and SIGINT: begins it (server_drain); asked again, ends at once what is under way. */
void drain_on_signal(uv_signal_t *signal, int number);

/* Ends the loop when nothing is left that it waits for. arg: the server. */
void drain_check(void *arg);

#endif
