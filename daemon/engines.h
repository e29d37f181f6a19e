/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the engines that the service runs on: one for each device that it serves, or a single one. */
#ifndef DAEMON_ENGINES_H
#define DAEMON_ENGINES_H

#include "kernels/engine.h"
#include "daemon/config/options.h"

typedef int engine_open_fn(struct engine **ret, const struct engine_options *options, struct error *err);

/* The engines of a build. */
struct engine_openers {
	engine_open_fn *cpu;
	engine_open_fn *cuda;                 /* NULL: not in this build */
	int (*cuda_count)(struct error *err); /* of devices; NULL: there is one at most */
};

#define ENGINES_MOST 64

/* Engines, and the reason for them where the user left the choice to us. */
struct chosen_engines {
	uint32_t n;
	struct engine *engine[ENGINES_MOST];
	char note[256]; /* "": they were asked for, or are the first choice */
};

/* Checks what options->device may be: "all", or ordinals and UUIDs, separated by commas. */
int engines_check_devices(const char *devices, struct error *err);

/* Opens the engine that choice names; auto: the cuda engine, or the cpu engine where that does not open. The
 * cuda engine is opened for each device that options->device names (NULL, "all": that there is), all at once.
 * Where there are several, one that does not open is logged and left out. On failure nothing is left open,
 * and err says what is missing. */
int engines_open(struct chosen_engines *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err);

#endif
