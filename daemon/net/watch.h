/* Polling a descriptor, where libuv would end the process: it aborts when the kernel has no memory for one
 * more in its set, or the process none for its table of them. */
#ifndef DAEMON_NET_WATCH_H
#define DAEMON_NET_WATCH_H

#include <stdint.h>

#include <uv.h>

/* Makes room in the loop's table for every descriptor that the process may open: most of them. Runs the loop
 * once, so before any handle of its is started; libuv may end the process. Negative errno. */
int watch_reserve(uv_loop_t *loop, uint64_t most);

/* uv_poll_start. Negative errno: the kernel has no memory to watch it, and it is not watched. */
int watch_start(uv_poll_t *poll, int events, uv_poll_cb on_event);

#endif
