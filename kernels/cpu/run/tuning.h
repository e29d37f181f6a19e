/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that the engine chooses when it is opened: the instruction set, and the sizes at which it
 * changes its method. Tests force others, so that small cases take every path. */
#ifndef KERNELS_CPU_RUN_TUNING_H
#define KERNELS_CPU_RUN_TUNING_H

#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

struct cpu_tuning {
	const struct cpu_isa *isa;
	/* Bytes read plus written. Jobs up to this size run in the thread that submits them. */
	int64_t inline_bytes;
	int64_t fetch_bytes; /* bytes of either side; small jobs up to this size are prefetched as a whole */
	/* Bytes of the destination. For larger ones it is checked whether they are in the cache (cold_is). */
	int64_t probe_bytes;
	/* Bytes of the destination; pieces are not made smaller than this to use more threads. */
	int64_t piece_least;
	int64_t piece_most;
	uint64_t awake_ns;    /* how long a thread looks for more work before it sleeps */
	unsigned more_wakes;  /* sleeping threads that one thread wakes at once besides the first */
	int64_t tiled_bytes;  /* bytes of the destination; larger moves that are not regular use tiles */
	int64_t stream_bytes; /* bytes of the destination; larger ones are written past the cache */
	uint64_t cold_ns;     /* read time from which on memory counts as being in no cache (cold_is) */
	/* Words of timelines that the watcher sleeps on at a time, at most WATCHER_MOST_WORDS. 0: it polls
	 * them. */
	uint32_t wait_words;
};

/* Returns the tuning for this machine, or the one that cpu_tuning_force has set. */
struct cpu_tuning cpu_tuning_get(void);

/* For tests: sets what cpu_tuning_get returns from now on; NULL ends that. No engine may be opened at the
 * same time. */
void cpu_tuning_force(const struct cpu_tuning *tuning);

#endif
