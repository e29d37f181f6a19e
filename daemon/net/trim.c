/* SPDX-License-Identifier: Apache-2.0 */
/* The charges tell how much memory connections hold. */
#include "trim.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "daemon/server.h"

#define ENOUGH_BYTES (UINT64_C(8) << 20)
#define DELAY_MS     1000

#define CONNECTION_BYTES 20000 /* about what an idle one takes */

static void on_time(uv_timer_t *timer);

void trim_open(struct trim *trim, struct server *server, uv_loop_t *loop)
{
	trim->server = server;
	uv_timer_init(loop, &trim->timer);
	trim->timer.data = trim->work.data = trim;
}

void trim_close(struct trim *trim)
{
	uv_close((uv_handle_t *)&trim->timer, NULL);
}

static uint64_t held(const struct server *server)
{
	const uint64_t *total = server->accounts.total;

	return total[CHARGE_CONNECTIONS] * CONNECTION_BYTES + total[CHARGE_QUEUED_BYTES];
}

void trim_check(struct trim *trim)
{
	uint64_t now = held(trim->server);

	if (now > trim->peak)
		trim->peak = now;
	else if (trim->peak - now >= ENOUGH_BYTES && !trim->is_under_way &&
	         trim->server->state == SERVER_RUNNING && !uv_is_active((uv_handle_t *)&trim->timer))
		uv_timer_start(&trim->timer, on_time, DELAY_MS, 0);
}

static void do_trim(uv_work_t *work)
{
	(void)work;
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

static void on_trimmed(uv_work_t *work, int status)
{
	struct trim *trim = work->data;

	(void)status;
	trim->is_under_way = false;
}

static void on_time(uv_timer_t *timer)
{
	struct trim *trim = timer->data;

	trim->peak = held(trim->server);
	trim->is_under_way = true;
	uv_queue_work(timer->loop, &trim->work, do_trim, on_trimmed);
}
