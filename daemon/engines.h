/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the engine that the service runs on. */
#ifndef DAEMON_ENGINES_H
#define DAEMON_ENGINES_H

#include "kernels/engine.h"
#include "daemon/config/options.h"

typedef int engine_open_fn(struct engine **ret, const struct engine_options *options, struct error *err);

/* The engines of a build. */
struct engine_openers {
	engine_open_fn *cpu;
	engine_open_fn *cuda; /* NULL: not in this build */
};

/* An engine, and the reason for it where the user left the choice to us. */
struct chosen_engine {
	struct engine *engine;
	char note[256]; /* "": it was asked for, or is the first choice */
};

/* Opens the engine that choice names; auto: the cuda engine, or the cpu engine where that does not open. On
 * failure nothing is left open, and err says what is missing. */
int engines_open(struct chosen_engine *ret, const struct engine_openers *openers, enum engine_choice choice,
                 const struct engine_options *options, struct error *err);

#endif
