/* SPDX-License-Identifier: Apache-2.0 */
/* The service runs on these devices, with an engine for each, or on the CPU with one engine.
 *
 * They are opened together and closed together; a device is named by its index. Whatever is the same for all
 * of them (the loop's wake-up, accounts) belongs to the service. Streams, memories, plans and the mappings of
 * a region belong to one engine, and so to one index. All of this belongs to the loop's thread.
 */
#ifndef DAEMON_MEMORY_DEVICES_H
#define DAEMON_MEMORY_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config/options.h"
#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"

typedef int engine_open_fn(struct engine **ret, const struct engine_options *options, struct error *err);

/* A build offers these engines. */
struct engine_openers {
	engine_open_fn *cpu;
	engine_open_fn *cuda;                 /* NULL: not in this build */
	int (*cuda_count)(struct error *err); /* returns the number of devices; NULL: at most one */
};

/* Holds the opened engines, and says why they were chosen if the user left the choice to the service. */
struct chosen_engines {
	uint32_t n;
	struct engine *engine[ENGINES_MOST];
	char note[256]; /* "": they were asked for, or are the first choice */
};

/* Opens the engine that choice names. AUTO stands for the cuda engine, or for the cpu engine if cuda does not
 * open. The cuda engine is opened once for each device that options->device names (NULL and "all" name every
 * device), all of them at once; if there are several, one that does not open is logged and left out. On
 * failure nothing is left open, and err says what is missing. */
int engines_open(struct chosen_engines *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err);

/* DEVICE_ANY stands for no device in particular. */
#define DEVICE_ANY UINT32_MAX

/* DEVICE_ASKED stands for no device in particular, too, for a caller that only asks which device would be
 * chosen: nothing is mapped for it. */
#define DEVICE_ASKED (UINT32_MAX - 1)

struct served_device {
	struct engine *engine;
	struct engine_link links[ENGINES_MOST]; /* links to the other devices; none to itself */
	uint32_t jobs;                          /* jobs that the engine has and that have not been reaped */
	/* These are the engine's counts of the same names, as they were last logged. */
	uint32_t losses;
	uint32_t failures;
	uint32_t dropped;
	bool is_away;     /* the device was lost and is not back */
	bool is_silent;   /* as of the last probe */
	uint64_t regions; /* regions whose own device this is, and their bytes */
	uint64_t mapped_bytes;
	uint64_t transforms, bytes, ns;    /* ended transforms, bytes read plus written, engine's time */
	uint64_t sent_bytes[ENGINES_MOST]; /* bytes that others have read in its memory (links.h) */
};

struct devices {
	uint32_t n;
	bool need_reach; /* regions have to be asked for before a device can use them (region_reach) */
	struct served_device of[ENGINES_MOST];
};

/* Takes the engines over. */
void devices_init(struct devices *devices, const struct chosen_engines *engines);
void devices_deinit(struct devices *devices);

/* Finds the device that a client names by its UUID, with or without "GPU-" and in any case, or by its index.
 * Returns 0 or NOT_FOUND. */
int devices_find(const struct devices *devices, const struct device_name *name, uint32_t *ret,
                 struct error *err);

/* Writes the UUIDs of all devices to text[size], as an error message lists them. */
void devices_list(const struct devices *devices, char *text, size_t size);

/* Calls on_done of every job that has ended. Returns the first device that is lost for good, or NULL if none
 * is. */
struct served_device *devices_reap(struct devices *devices);

/* Returns why the first lost device was lost, or "" if none is. */
const char *devices_lost_why(const struct devices *devices);

/* Calls engine_drive for all engines. If more than one device has jobs, ns is 0 for all, so that their
 * threads do the work. Returns whether a job waits to be reaped. */
bool devices_drive(struct devices *devices, uint64_t ns);

/* Returns whether every engine has given a sign of life at the last probe. Engines that come back by
 * themselves do not count: one that is silent for too long is declared lost. */
bool devices_answer(const struct devices *devices);

/* Returns whether no device is lost, and all have given a sign of life at the last probe. */
bool devices_are_up(const struct devices *devices);

/* These set *ret to the sums over all engines. */
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
