/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that the service uses: one or more GPUs with an engine for each, or the CPU with one engine.
 *
 * All devices are opened and closed together, and each is identified by its index. Streams, memories, plans
 * and mappings of regions belong to one engine, and thus to one device. Only the loop's thread may use this.
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

/* The functions that open the engines of this build. */
struct engine_openers {
	engine_open_fn *cpu;
	engine_open_fn *cuda; /* NULL: this build has no cuda engine */
	/* Returns the number of GPUs, or a negative status. NULL: the service uses at most one GPU. */
	int (*cuda_count)(struct error *err);
};

/* The engines that have been opened. */
struct chosen_engines {
	uint32_t n;
	struct engine *engine[ENGINES_MOST];
	/* Why AUTO fell back to the cpu engine; "" if it did not. */
	char note[256];
};

/* Opens the engines that choice selects. AUTO selects the cuda engine, or the cpu engine if cuda cannot be
 * opened. The cuda engine is opened once for each device that options->device names (NULL and "all": every
 * device), all of them at the same time. If several devices are named, a device that cannot be opened is
 * logged and left out. Returns 0, or an error with nothing left open. */
int engines_open(struct chosen_engines *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err);

/* Stands for no device in particular where a device index is expected. */
#define DEVICE_ANY UINT32_MAX

/* Stands for no device in particular, for a caller that only asks which device would be chosen: no region is
 * mapped for that device. */
#define DEVICE_ASKED (UINT32_MAX - 1)

struct served_device {
	struct engine *engine;
	struct engine_link links[ENGINES_MOST]; /* link to each other device, by index */
	uint32_t jobs; /* number of jobs that the engine has and that have not been reaped */
	/* Values of the engine's counters of the same names when they were last logged. */
	uint32_t losses;
	uint32_t failures;
	uint32_t dropped;
	bool is_away;     /* the device was lost and is not back */
	bool is_silent;   /* the engine gave no sign of life at the last probe */
	uint64_t regions; /* regions whose own device this is (struct region) and that are not unmapped yet */
	uint64_t mapped_bytes; /* bytes of those regions that are not closed */
	/* Number of ended transforms, bytes that they have read plus written, and engine's time in ns. */
	uint64_t transforms, bytes, ns;
	/* Indexed by device: bytes in this device's memory that were read for destinations on that device
	 * (links.h). */
	uint64_t sent_bytes[ENGINES_MOST];
};

struct devices {
	uint32_t n;
	bool need_reach; /* a region may be unusable on a device until region_reach has been called */
	struct served_device of[ENGINES_MOST]; /* the first n are used */
};

/* Takes over the engines; devices_deinit closes them. */
void devices_init(struct devices *devices, const struct chosen_engines *engines);
void devices_deinit(struct devices *devices);

/* Sets *ret to the index of the device that a client names by its UUID, case-insensitively and with or
 * without the prefix "GPU-" or "MIG-", or by its index. Returns 0 or NOT_FOUND. */
int devices_find(const struct devices *devices, const struct device_name *name, uint32_t *ret,
                 struct error *err);

/* Writes the UUIDs of the devices to text[size] as a phrase for error messages; names at most two of them. */
void devices_list(const struct devices *devices, char *text, size_t size);

/* Calls on_done of every job that has ended. Returns the first device that is lost and does not return by
 * itself (engine.returns), or NULL if there is none. */
struct served_device *devices_reap(struct devices *devices);

/* Returns the reason for the loss of the first lost device, or "" if no device is lost. */
const char *devices_lost_why(const struct devices *devices);

/* Calls engine_drive for all engines. If more than one device has jobs, passes 0 for ns, so that the engines'
 * threads do the work in parallel. Returns whether a job waits to be reaped. */
bool devices_drive(struct devices *devices, uint64_t ns);

/* Returns whether every engine gave a sign of life at the last probe. Ignores engines that restart by
 * themselves (engine.returns): one that is silent for too long is declared lost and restarted. */
bool devices_answer(const struct devices *devices);

/* Returns whether no device is lost, and every engine gave a sign of life at the last probe. */
bool devices_are_up(const struct devices *devices);

/* Set *ret to the statistics of the caches of tensor maps and of plans, summed over all engines. */
void devices_cache_stats(const struct devices *devices, struct engine_cache_stats *ret);
void devices_plan_stats(const struct devices *devices, struct engine_cache_stats *ret);

/* Sets the capacity of each engine's cache of plans. */
void devices_keep_plans(const struct devices *devices, uint64_t n);

/* Sets whether the engines try alternatives to plans that are used repeatedly. */
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
