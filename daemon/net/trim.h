/* SPDX-License-Identifier: Apache-2.0 */
/* Returns memory to the system after many connections have gone, or have read their replies.
 *
 * Freed memory lies between memory in use, and free alone leaves it to the process. malloc_trim returns it,
 * on the work queue. The loop waits for it where both want malloc's lock, so it runs at most once a second,
 * and only after much memory has been freed.
 */
#ifndef DAEMON_NET_TRIM_H
#define DAEMON_NET_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct server;

struct trim {
	struct server *server;
	uv_timer_t timer; /* runs when much has been freed, until it is trimmed */
	uv_work_t work;
	bool is_under_way;
	uint64_t peak; /* most bytes held since the last trim */
};

void trim_open(struct trim *trim, struct server *server, uv_loop_t *loop);
void trim_close(struct trim *trim);

/* Starts the timer if much has been freed. Once in each iteration of the loop. */
void trim_check(struct trim *trim);

#endif
