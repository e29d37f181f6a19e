/* SPDX-License-Identifier: Apache-2.0 */
/* Polling a descriptor without libuv's aborts: libuv ends the process when the kernel has no memory for one
 * more descriptor in its epoll set, or the process has none for its table of them. */
#ifndef DAEMON_NET_WATCH_H
#define DAEMON_NET_WATCH_H

#include <stdint.h>

#include <uv.h>

/* Makes room in the loop's table for every descriptor that the process may open (most). Runs the loop once,
 * so it comes before any handle is started; libuv may end the process here. Negative errno. */
int watch_reserve(uv_loop_t *loop, uint64_t most);

/* As uv_poll_start. Negative errno: the kernel has no memory for it, and the descriptor is not polled. */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb on_event);

#endif
