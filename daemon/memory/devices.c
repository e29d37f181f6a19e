/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses and opens the engines of the service, and performs operations on all of them. */
#include "devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/loop/log.h"
#include "kernels/process/process.h"

/* ==== Engines ======================================================================================== */

/* The engines of several devices are opened in parallel, each in a process of its own (process.h explains
 * why). A single engine is opened in this process, which makes each request faster. */

/* One engine that is being opened. */
struct opening {
	char name[DEVICE_NAME_BYTES];
	struct engine_options options;
	struct engine *engine; /* NULL: it could not be opened */
	struct error why;      /* valid if engine is NULL */
};

/* ---- Several ------------------------------------------------------------------------------------------- */

/* Closes the engine of openings[i] if an earlier one is for the same device, given by another name. */
static void drop_same(struct opening *openings, int i)
{
	struct opening *own = &openings[i];

	for (int j = 0; j < i && own->engine; j++) {
		const struct engine *other = openings[j].engine;

		if (!other || !*other->uuid || strcasecmp(other->uuid, own->engine->uuid) != 0)
			continue;
		engine_close(own->engine);
		own->engine = NULL;
		error_set(&own->why, STATUS_INVALID_ARGUMENT, "it is the same device as %s",
		          openings[j].name);
	}
}

static int take_opened(struct chosen_engines *ret, struct opening *openings, int n, struct error *err)
{
	for (int i = 0; i < n; i++) {
		if (openings[i].engine && engine_process_await(openings[i].engine, &openings[i].why) < 0)
			openings[i].engine = NULL;
		drop_same(openings, i);
		if (openings[i].engine)
			ret->engine[ret->n++] = openings[i].engine;
	}
	if (ret->n == 0) {
		*err = openings[0].why;
		return err->status;
	}
	for (int i = 0; i < n; i++)
		if (!openings[i].engine)
			log_line(LOG_LEVEL_WARNING, "device %s is not used: %s", openings[i].name,
			         openings[i].why.message);
	return 0;
}

static int open_single(struct chosen_engines *ret, engine_open_fn *open, const struct engine_options *options,
                       struct error *err)
{
	int r = open(&ret->engine[0], options, err);

	ret->n = r == 0;
	return r;
}

/* Closes the engine of the only device that could be opened, and opens one for it in this process. */
static int open_remaining(struct chosen_engines *ret, engine_open_fn *open,
                          const struct engine_options *options, struct error *err)
{
	struct engine_options own = *options;
	char uuid[sizeof ret->engine[0]->uuid];

	memcpy(uuid, ret->engine[0]->uuid, sizeof uuid);
	own.device = uuid;
	engine_close(ret->engine[0]);
	return open_single(ret, open, &own, err);
}

/* names is a list of n devices (device_option_next), or NULL for the devices with ordinals 0 to n - 1. */
static int open_several(struct chosen_engines *ret, engine_open_fn *open, const char *names, int n,
                        const struct engine_options *options, struct error *err)
{
	struct opening *openings = calloc((size_t)n, sizeof *openings);
	int r;

	if (!openings)
		return error_set(err, STATUS_NO_MEMORY, "no memory to open %d devices", n);
	for (int i = 0; i < n; i++) {
		openings[i].options = *options;
		if (names)
			device_option_next(&names, openings[i].name);
		else
			snprintf(openings[i].name, sizeof openings[i].name, "%d", i);
		openings[i].options.device = openings[i].name;
		if (engine_process_start(&openings[i].engine, "cuda", &openings[i].options,
		                         &openings[i].why) < 0)
			openings[i].engine = NULL;
	}
	r = take_opened(ret, openings, n, err);
	free(openings);
	return r == 0 && ret->n == 1 ? open_remaining(ret, open, options, err) : r;
}

/* ---- The choice ---------------------------------------------------------------------------------------- */

static int count_names(const char *devices)
{
	int n = 1;

	for (const char *at = devices; (at = strchr(at, ',')); at++)
		n++;
	return n;
}

static int open_cuda(struct chosen_engines *ret, const struct engine_openers *openers,
                     const struct engine_options *options, struct error *err)
{
	struct engine_options any = *options;
	int n = 1;

	if (!openers->cuda)
		return error_set(err, STATUS_UNSUPPORTED, "this build has the cpu engine only");
	if (!device_option_is_all(options->device)) {
		n = count_names(options->device);
		return n > 1 ? open_several(ret, openers->cuda, options->device, n, options, err)
		             : open_single(ret, openers->cuda, options, err);
	}
	any.device = NULL;
	if (openers->cuda_count)
		n = openers->cuda_count(err);
	if (n < 0)
		return n;
	return n > 1 ? open_several(ret, openers->cuda, NULL, n < ENGINES_MOST ? n : ENGINES_MOST, &any, err)
	             : open_single(ret, openers->cuda, &any, err);
}

static int open_any(struct chosen_engines *ret, const struct engine_openers *openers,
                    const struct engine_options *options, struct error *err)
{
	struct error why;

	if (open_cuda(ret, openers, options, &why) == 0)
		return 0;
	snprintf(ret->note, sizeof ret->note, "%s", why.message);
	return open_single(ret, openers->cpu, options, err);
}

int engines_open(struct chosen_engines *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err)
{
	struct error why;
	int r;

	*ret = (struct chosen_engines){ 0 };
	switch (choice) {
	case ENGINE_CHOICE_CPU:
		return open_single(ret, openers->cpu, options, err);
	case ENGINE_CHOICE_CUDA:
		r = open_cuda(ret, openers, options, &why);
		return r < 0 ? error_set(err, r, "--engine=cuda: %s", why.message) : 0;
	case ENGINE_CHOICE_AUTO:
		break;
	}
	return open_any(ret, openers, options, err);
}

/* ==== Devices ======================================================================================== */

#define SAID 2 /* maximum number of UUIDs that devices_list names */

/* Queries the links once: drivers answer at once, and the answer never changes. */
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

/* Returns whether the engine's device has that UUID. */
static bool devices_have_uuid(const struct engine *engine, struct bytes uuid)
{
	const struct bytes own = without_prefix(bytes_of(engine->uuid));

	uuid = without_prefix(uuid);
	return own.len > 0 && own.len == uuid.len && !strncasecmp(own.data, uuid.data, own.len);
}

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
