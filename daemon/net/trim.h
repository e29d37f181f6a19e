/* Memory that many connections took goes back to the system when they are gone, or have read their replies.
 *
 * What is freed lies between what is not, where free alone leaves it to the process. malloc_trim gives it
 * back, on the work queue: the loop waits for it where both want malloc's lock, so it runs once a second at
 * most, and only after much has become free.
 */
#ifndef DAEMON_NET_TRIM_H
#define DAEMON_NET_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct server;

struct trim {
	struct server *server;
	uv_timer_t timer; /* runs from when much has become free */
	uv_work_t work;
	bool is_under_way;
	uint64_t peak; /* bytes held, at most, since the last time */
};

void trim_open(struct trim *trim, struct server *server, uv_loop_t *loop);
void trim_close(struct trim *trim);

/* Starts the timer if much has become free. Once in each iteration of the loop. */
void trim_check(struct trim *trim);

#endif
