/* SPDX-License-Identifier: Apache-2.0 */
/* Timers are also started in libuv, for a time that never comes, so that libuv counts the active ones. */
#include "fake_clock.h"

#include <criterion/criterion.h>
#include <stddef.h>

#define NS_PER_MS UINT64_C(1000000)
#define MOST      64
#define NEVER_MS  (UINT64_C(1) << 40)

struct started {
	uv_timer_t *timer;
	uv_timer_cb on_time;
	uint64_t due_ns;
	uint64_t every_ms;
};

static uint64_t now = 1000 * NS_PER_MS, tick, readings;
static struct started started[MOST];
static size_t n_started;

static uint64_t read_ns(void)
{
	readings++;
	now += tick;
	return now;
}

static uint64_t read_ms(const uv_loop_t *loop)
{
	(void)loop;
	return now / NS_PER_MS;
}

static int stop(uv_timer_t *timer)
{
	for (size_t i = 0; i < n_started; i++)
		if (started[i].timer == timer)
			started[i] = started[--n_started];
	return uv_timer_stop(timer);
}

static int start(uv_timer_t *timer, uv_timer_cb on_time, uint64_t after_ms, uint64_t every_ms)
{
	stop(timer);
	cr_assert_lt(n_started, MOST);
	started[n_started++] = (struct started){ timer, on_time, now + after_ms * NS_PER_MS, every_ms };
	return uv_timer_start(timer, on_time, NEVER_MS, 0);
}

const struct clock fake_clock = {
	.now_ns = read_ns, .now_ms = read_ms, .timer_start = start, .timer_stop = stop
};

static const struct started *first_due(uint64_t end)
{
	const struct started *first = NULL;

	for (size_t i = 0; i < n_started; i++)
		if (started[i].due_ns <= end && (!first || started[i].due_ns < first->due_ns))
			first = &started[i];
	return first;
}

void fake_clock_pass_ms(uint64_t ms)
{
	uint64_t end = now + ms * NS_PER_MS;
	const struct started *first;

	while ((first = first_due(end))) {
		struct started due = *first;

		now = due.due_ns > now ? due.due_ns : now;
		stop(due.timer);
		if (due.every_ms > 0)
			start(due.timer, due.on_time, due.every_ms, due.every_ms);
		due.on_time(due.timer);
	}
	now = end;
}

void fake_clock_pass_ns(uint64_t ns)
{
	now += ns;
}

void fake_clock_tick(uint64_t ns)
{
	tick = ns;
}

uint64_t fake_clock_readings(void)
{
	return readings;
}
