/* SPDX-License-Identifier: Apache-2.0 */
/* An engine may run in a process of its own. What goes wrong in there for good, as a sticky error of a CUDA
 * device does, ends that process and nothing else, and the engine comes back by itself (`returns` of struct
 * engine).
 *
 * The front, which is the process of the owner, starts the child by executing its own program anew, so main
 * has to ask first whether it is one.
 */
#ifndef KERNELS_PROCESS_PROCESS_H
#define KERNELS_PROCESS_PROCESS_H

#include "kernels/engine.h"

struct engine_process_opener {
	const char *name; /* "cpu", "cuda" */
	int (*open)(struct engine **ret, const struct engine_options *options, struct error *err);
};

/* Starts a process that opens the named engine with these options, and does not wait for it, so that several
 * engines open side by side. *ret may be given to engine_process_await and to nothing else. */
int engine_process_start(struct engine **ret, const char *name, const struct engine_options *options,
                         struct error *err);

/* Waits until the engine is open, on the thread that is its owner's from then on. On failure it is gone. */
int engine_process_await(struct engine *engine, struct error *err);

/* Tells by its arguments if this process was started to run an engine. */
bool engine_process_is_child(char **argv);

/* Runs the engine until the front has closed it or has ended; main returns the result. The list of engines
 * ends with one that has no name. Standard input, output and error are not used; all other descriptors are
 * closed. */
int engine_process_run(const struct engine_process_opener *openers);

#endif
