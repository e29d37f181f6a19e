/* SPDX-License-Identifier: Apache-2.0 */
/* A request to stop: from a signal, or because another part of the work has failed. */
#ifndef CLIENT_TMACTL_STOP_H
#define CLIENT_TMACTL_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct stop {
	const atomic_int
	    *caught; /* not 0: a signal, which any thread may have met; NULL: none is looked for */
	atomic_bool failed;
};

/* NULL never asks. */
static inline bool stop_is_asked(const struct stop *stop)
{
	return stop && ((stop->caught && atomic_load(stop->caught)) || atomic_load(&stop->failed));
}

#endif
