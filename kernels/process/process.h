/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine in a process of its own. If that process fails irrecoverably, for example by an error that
 * makes its CUDA context unusable, it ends and nothing else does; a new process takes its place (`returns` of
 * struct engine).
 *
 * The process of the engine's owner is called the front, the engine's process the child. The front starts a
 * child by executing its own program again, so main must first check whether it is in a child.
 */
#ifndef KERNELS_PROCESS_PROCESS_H
#define KERNELS_PROCESS_PROCESS_H

#include "kernels/engine.h"

struct engine_process_opener {
	const char *name; /* "cpu" or "cuda" */
	int (*open)(struct engine **ret, const struct engine_options *options, struct error *err);
};

/* Starts a child that opens the named engine with these options. Does not wait for the child, so that several
 * engines can be opened at the same time. Sets *ret to the engine, which may only be passed to
 * engine_process_await. Returns 0 or an error; an engine that cannot be opened is reported by
 * engine_process_await. */
int engine_process_start(struct engine **ret, const char *name, const struct engine_options *options,
                         struct error *err);

/* Waits until the engine is open. The calling thread is the engine's owner from then on. Returns 0, or the
 * reason why the engine could not be opened; the engine has been freed in that case. */
int engine_process_await(struct engine *engine, struct error *err);

/* Returns whether this process was started to run an engine, according to its arguments. */
bool engine_process_is_child(char **argv);

/* Runs the engine until the front has closed it or has ended. Returns the exit status for main. The list of
 * openers ends with one whose name is NULL. All descriptors except standard input, output and error are
 * closed. */
int engine_process_run(const struct engine_process_opener *openers);

#endif
