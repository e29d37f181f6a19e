/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that the service runs on: an engine for each, or one engine on the CPU.
 *
 * They are opened together and closed together; a device is named by its index. Whatever is the same for all
 * of them (the loop's wake-up, accounts) belongs to the server. Streams, memories, plans and the mappings of
 * a region belong to one engine, and so to one index. All of this belongs to the loop's thread.
 */
#ifndef DAEMON_DEVICES_H
#define DAEMON_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "engines.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"

/* No device in particular. */
#define DEVICE_ANY UINT32_MAX

/* The same, for who only asks which it would be: nothing is mapped for it. */
#define DEVICE_ASKED (UINT32_MAX - 1)

struct served_device {
	struct engine *engine;
	struct engine_link links[ENGINES_MOST]; /* to the others; none to itself */
	uint32_t jobs;                          /* that the engine has and that have not been reaped */
	uint32_t losses; /* of an engine that returns, as has been told; what follows, too */
	uint32_t failures;
	uint32_t dropped;
	bool is_away;     /* it was lost and is not back */
	bool is_silent;   /* as of the last probe */
	uint64_t regions; /* mapped, and their bytes; those of other devices count there */
	uint64_t mapped_bytes;
	uint64_t transforms, bytes, ns; /* that have ended: how many, read plus written, the engine's time */
	uint64_t sent_bytes[ENGINES_MOST]; /* that others have read in its memory (links.h) */
};

struct devices {
	uint32_t n;
	bool need_reach; /* regions have to be asked for before a device can use them (reach.h) */
	struct served_device of[ENGINES_MOST];
};

/* Takes the engines over. */
void devices_init(struct devices *devices, const struct chosen_engines *engines);
void devices_deinit(struct devices *devices);

/* The device that a client names: by its UUID, with or without "GPU-", in any case, or by its index.
 * NOT_FOUND. */
int devices_find(const struct devices *devices, const struct device_name *name, uint32_t *ret,
                 struct error *err);

/* Whether the UUIDs are of one device. */
bool devices_have_uuid(const struct engine *engine, struct bytes uuid);

/* Their UUIDs, for a sentence. */
void devices_list(const struct devices *devices, char *text, size_t size);

/* Calls on_done of every job that has ended. Returns the first device that is lost for good; NULL: none is.
 */
struct served_device *devices_reap(struct devices *devices);

/* Returns why the first lost device was lost, or "" if none is. */
const char *devices_lost_why(const struct devices *devices);

/* As engine_drive, for all of them. Where more than one has jobs, each is left to its threads. */
bool devices_drive(struct devices *devices, uint64_t ns);

/* Whether each engine has given a sign of life at the last probe, but for those that return: if one of them
 * is silent for too long, it is lost. */
bool devices_answer(const struct devices *devices);

/* Whether all of them have, and none is lost. */
bool devices_are_up(const struct devices *devices);

/* The sum of all. */
void devices_cache_stats(const struct devices *devices, struct engine_cache_stats *ret);
void devices_plan_stats(const struct devices *devices, struct engine_cache_stats *ret);

/* Sets how many plans each engine keeps. */
void devices_keep_plans(const struct devices *devices, uint64_t n);

/* Sets whether engines try alternatives to plans that are used repeatedly. */
void devices_tune(const struct devices *devices, bool tunes);

static inline bool device_is_up(const struct served_device *device)
{
	return !device->engine->lost && !device->is_silent;
}

static inline struct engine *device_engine(const struct devices *devices, uint32_t device)
{
	return devices->of[device].engine;
}

#endif
