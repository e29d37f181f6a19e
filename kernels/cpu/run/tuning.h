/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine chooses when it is opened: the instruction set, and the sizes at which it changes its
 * method. Tests force others, so that small cases take every path. */
#ifndef KERNELS_CPU_RUN_TUNING_H
#define KERNELS_CPU_RUN_TUNING_H

#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

struct cpu_tuning {
	const struct cpu_isa *isa;
	int64_t inline_bytes; /* read and written: jobs up to this run where they are submitted */
	int64_t fetch_bytes;  /* of either side: such jobs are fetched whole beforehand up to this */
	int64_t probe_bytes;  /* of the destination: larger ones are looked for in the cache (cold.h) */
	int64_t piece_least;  /* of the destination: no piece is made smaller for the sake of more threads */
	int64_t piece_most;
	uint64_t awake_ns;    /* that a thread looks for more work before it sleeps */
	unsigned more_wakes;  /* threads that sleep and that one thread wakes at once, after a first one */
	int64_t tiled_bytes;  /* of the destination: moves that are not regular go by tiles from here on */
	int64_t stream_bytes; /* of the destination: from here on it is written past the cache */
	uint64_t cold_ns;     /* that a look takes, at least, when no cache has them */
	uint32_t wait_words;  /* of timelines: slept on together, up to WATCHER_MOST_WORDS; 0: only naps */
};

/* The machine's own, or the one forced. */
struct cpu_tuning cpu_tuning_get(void);

/* For tests: what cpu_tuning_get gives from now on; NULL ends it. Not while an engine is being opened. */
void cpu_tuning_force(const struct cpu_tuning *tuning);

#endif
