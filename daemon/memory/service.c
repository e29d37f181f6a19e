/* SPDX-License-Identifier: Apache-2.0 */
/* Initialization and description of the service, probes of its engines, and the watch for threads that hang
 * on an access to a user's memory. */
#include "service.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/loop/log.h"
#include "relay.h"
#include "session.h"

/* Least time between two probes by service_is_up, in ms. */
#define PROBE_MS 2000

void service_init(struct service *service, const struct limits *limits, const struct clock *clock)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	service->start_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	service->metrics.start_ns = uv_hrtime();
	service->clock = clock ? clock : &clock_uv;
	service->limits = *limits;
	accounts_init(&service->accounts, &service->limits);
	TAILQ_INIT(&service->sessions);
	TAILQ_INIT(&service->ended);
}

const char *service_engine_name(const struct service *service)
{
	return device_engine(&service->devices, 0)->name;
}

void service_describe(const struct service *service, char *text, size_t size)
{
	const char *first = device_engine(&service->devices, 0)->device;

	if (service->devices.n == 1)
		snprintf(text, size, "%s", first);
	else
		snprintf(text, size, "%" PRIu32 " devices, the first: %s", service->devices.n, first);
}

uint64_t service_now_ms(const struct service *service)
{
	return service->clock->now_ms(&service->loop);
}

uint64_t service_count_waiting(const struct service *service)
{
	const struct session *session;
	uint64_t n = 0;

	TAILQ_FOREACH(session, &service->sessions, entry)
		n += session->waiting != WAIT_NONE;
	return n;
}

/* ==== Signs of life ================================================================================== */

/* of is appended to the engine's name in log lines: a space and the device's UUID, or "" if there is only one
 * device. */
static void probe_one(struct served_device *device, const char *of)
{
	struct error err;
	bool is_silent = engine_probe(device->engine, &err) < 0;

	if (is_silent && !device->is_silent && device->engine->returns)
		log_line(LOG_LEVEL_WARNING, "engine %s%s: %s; the process is ended unless there is one soon",
		         device->engine->name, of, err.message);
	else if (is_silent && !device->is_silent)
		log_line(LOG_LEVEL_WARNING,
		         "engine %s%s: %s; the watchdog is not notified until there is one",
		         device->engine->name, of, err.message);
	else if (device->is_silent && !is_silent)
		log_line(LOG_LEVEL_NOTICE, "engine %s%s: it shows signs of life again", device->engine->name,
		         of);
	device->is_silent = is_silent;
}

void service_probe(struct service *service)
{
	struct devices *devices = &service->devices;

	for (uint32_t i = 0; i < devices->n; i++) {
		char of[sizeof devices->of[i].engine->uuid + 1] = "";

		if (devices->n > 1)
			snprintf(of, sizeof of, " %s", devices->of[i].engine->uuid);
		probe_one(&devices->of[i], of);
	}
}

bool service_is_up(struct service *service)
{
	uint64_t now = uv_now(&service->loop);

	if (!service->is_watched && now - service->probed_ms >= PROBE_MS) {
		service->probed_ms = now;
		service_probe(service);
	}
	return devices_are_up(&service->devices);
}

/* ==== Threads that do not return ===================================================================== */

static bool is_stuck(const struct account *account)
{
	for (uint32_t i = 0; i < account->n_owners; i++)
		if (account->owners[i].is_stuck)
			return true;
	return chores_count_stuck(account, STALLS_LOOK_MS * UINT64_C(1000000)) > 0 ||
	       relays_are_busy(account, STALLS_LOOK_MS * UINT64_C(1000000));
}

static bool has_work(const struct account *account)
{
	return account->used[CHARGE_JOBS] > 0 || chores_count_stuck(account, 0) > 0 ||
	       relays_are_busy(account, 0);
}

static void note(struct account *account, bool is_stuck)
{
	const struct log_about about = account_about(account);

	if (is_stuck && !account->is_stuck)
		log_about(
		    LOG_LEVEL_WARNING, &about,
		    "its threads do not return from its memory: a page or a lock of a file of its own is kept "
		    "from them; its requests wait, and nobody else's");
	else if (!is_stuck && account->is_stuck)
		log_about(LOG_LEVEL_NOTICE, &about, "its threads have returned from its memory");
	account->is_stuck = is_stuck;
}

static void on_look(uv_timer_t *timer)
{
	struct service *service = timer->data;
	struct account *account;
	bool has_any_work = false;

	for (uint32_t i = 0; i < service->devices.n; i++)
		engine_note_stuck(device_engine(&service->devices, i));
	service->stalls.users = 0;
	LIST_FOREACH(account, &service->accounts.list, entry) {
		if (account_is_trusted(&service->accounts, account))
			continue;
		note(account, is_stuck(account));
		service->stalls.users += account->is_stuck;
		has_any_work |= account->is_stuck || has_work(account);
	}
	if (has_any_work)
		return;
	uv_timer_stop(timer);
	service->stalls.is_looking = false;
}

void service_start_stalls(struct service *service)
{
	service->stalls.accounts = &service->accounts;
	service->stalls.look = on_look;
	uv_timer_init(&service->loop, &service->stalls.timer);
	service->stalls.timer.data = service;
}
