/* SPDX-License-Identifier: Apache-2.0 */
/* The set of engines, and what is asked of all of them. */
#include "devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SAID 2 /* UUIDs in a sentence at most */

/* Drivers answer at once, and the same all the time. */
static void find_links(struct devices *devices)
{
	for (uint32_t i = 0; devices->n > 1 && i < devices->n; i++)
		for (uint32_t j = 0; j < devices->n; j++)
			if (i != j)
				engine_link(devices->of[i].engine, devices->of[j].engine->uuid,
				            &devices->of[i].links[j]);
}

void devices_init(struct devices *devices, const struct chosen_engines *engines)
{
	devices->n = engines->n;
	devices->need_reach = engines->n > 1 || engines->engine[0]->ops->settle;
	for (uint32_t i = 0; i < engines->n; i++)
		devices->of[i] = (struct served_device){ .engine = engines->engine[i] };
	find_links(devices);
}

void devices_deinit(struct devices *devices)
{
	while (devices->n > 0)
		engine_close(devices->of[--devices->n].engine);
}

/* ---- Names --------------------------------------------------------------------------------------------- */

static struct bytes without_prefix(struct bytes text)
{
	static const char *const prefixes[] = { "GPU-", "MIG-" };

	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
		const size_t len = strlen(prefixes[i]);

		if (text.len >= len && !strncasecmp(text.data, prefixes[i], len))
			return (struct bytes){ text.data + len, text.len - len };
	}
	return text;
}

bool devices_have_uuid(const struct engine *engine, struct bytes uuid)
{
	const struct bytes own = without_prefix(bytes_of(engine->uuid));

	uuid = without_prefix(uuid);
	return own.len > 0 && own.len == uuid.len && !strncasecmp(own.data, uuid.data, own.len);
}

/* Sentences have no room for many. */
void devices_list(const struct devices *devices, char *text, size_t size)
{
	const char *uuid[SAID] = { NULL };

	for (uint32_t i = 0; i < devices->n && i < SAID; i++)
		uuid[i] = devices->of[i].engine->uuid;
	if (devices->n == 1)
		snprintf(text, size, "%s", *uuid[0] ? uuid[0] : "none");
	else if (devices->n == SAID)
		snprintf(text, size, "%s and %s", uuid[0], uuid[1]);
	else
		snprintf(text, size, "%s, %s and %" PRIu32 " more", uuid[0], uuid[1], devices->n - SAID);
}

static int refuse_device(const struct devices *devices, const char *name, struct error *err)
{
	char all[160];

	devices_list(devices, all, sizeof all);
	return error_set(err, STATUS_NOT_FOUND, "device: the service has no device %s; it has %s", name, all);
}

int devices_find(const struct devices *devices, const struct device_name *name, uint32_t *ret,
                 struct error *err)
{
	char text[65];

	if (!name->uuid.data && name->number < devices->n) {
		*ret = (uint32_t)name->number;
		return 0;
	}
	for (uint32_t i = 0; name->uuid.data && i < devices->n; i++)
		if (devices_have_uuid(devices->of[i].engine, name->uuid)) {
			*ret = i;
			return 0;
		}
	if (name->uuid.data)
		snprintf(text, sizeof text, "%.*s", (int)(name->uuid.len < 64 ? name->uuid.len : 64),
		         name->uuid.data);
	else
		snprintf(text, sizeof text, "%" PRIu64, name->number);
	return refuse_device(devices, text, err);
}

/* ---- All of them --------------------------------------------------------------------------------------- */

struct served_device *devices_reap(struct devices *devices)
{
	struct served_device *lost = NULL;

	for (uint32_t i = 0; i < devices->n; i++) {
		struct served_device *device = &devices->of[i];

		engine_reap(device->engine);
		if (device->engine->lost && !device->engine->returns && !lost)
			lost = device;
	}
	return lost;
}

const char *devices_lost_why(const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->n; i++)
		if (devices->of[i].engine->lost)
			return devices->of[i].engine->lost_why;
	return "";
}

bool devices_drive(struct devices *devices, uint64_t ns)
{
	uint32_t busy = 0;
	bool any = false;

	for (uint32_t i = 0; i < devices->n; i++)
		busy += devices->of[i].jobs > 0;
	for (uint32_t i = 0; i < devices->n; i++)
		any |= engine_drive(devices->of[i].engine, busy > 1 ? 0 : ns);
	return any;
}

bool devices_answer(const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->n; i++)
		if (devices->of[i].is_silent && !devices->of[i].engine->returns)
			return false;
	return true;
}

bool devices_are_up(const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->n; i++)
		if (!device_is_up(&devices->of[i]))
			return false;
	return true;
}

static void sum(const struct devices *devices, void (*get)(struct engine *, struct engine_cache_stats *),
                struct engine_cache_stats *ret)
{
	struct engine_cache_stats one;

	*ret = (struct engine_cache_stats){ 0 };
	for (uint32_t i = 0; i < devices->n; i++) {
		get(devices->of[i].engine, &one);
		ret->hits += one.hits;
		ret->misses += one.misses;
		ret->evictions += one.evictions;
		ret->entries += one.entries;
	}
}

void devices_cache_stats(const struct devices *devices, struct engine_cache_stats *ret)
{
	sum(devices, engine_cache_stats, ret);
}

void devices_plan_stats(const struct devices *devices, struct engine_cache_stats *ret)
{
	sum(devices, engine_plan_stats, ret);
}

void devices_keep_plans(const struct devices *devices, uint64_t n)
{
	for (uint32_t i = 0; i < devices->n; i++)
		engine_keep_plans(devices->of[i].engine, n);
}

void devices_tune(const struct devices *devices, bool tunes)
{
	for (uint32_t i = 0; i < devices->n; i++)
		engine_tune(devices->of[i].engine, tunes);
}
