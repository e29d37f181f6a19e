/* SPDX-License-Identifier: Apache-2.0 */
/* A request to stop the work, made by a signal handler or by a part of the work that has failed. Any thread
 * may set it and look at it. */
#ifndef CLIENT_TMACTL_STOP_H
#define CLIENT_TMACTL_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct stop {
	/* The number of the signal that asks to stop, stored by its handler; 0: none was caught. NULL:
	 * signals do not stop the work. */
	const atomic_int *caught;
	atomic_bool failed; /* set by the thread that failed */
};

/* Returns whether the work is to stop. A NULL stop never asks for it. */
static inline bool stop_is_asked(const struct stop *stop)
{
	return stop && ((stop->caught && atomic_load(stop->caught)) || atomic_load(&stop->failed));
}

#endif
