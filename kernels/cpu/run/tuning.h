/* SPDX-License-Identifier: Apache-2.0 */
/* The engine chooses these when it is opened: the instruction set, and the sizes at which it changes its
 * method. Tests force others, so that small cases take every path. */
#ifndef KERNELS_CPU_RUN_TUNING_H
#define KERNELS_CPU_RUN_TUNING_H

#include <stdint.h>

#include "kernels/cpu/isa/isa.h"

struct cpu_tuning {
	const struct cpu_isa *isa;
	/* Bytes read and written; jobs up to this run on the thread that submits them. */
	int64_t inline_bytes;
	int64_t fetch_bytes; /* bytes of either side; such jobs are fetched whole beforehand up to this */
	/* Bytes of the destination; larger ones are looked for in the cache (cold_is). */
	int64_t probe_bytes;
	int64_t piece_least; /* bytes of the destination; no piece is made smaller to use more threads */
	int64_t piece_most;
	uint64_t awake_ns;    /* how long a thread looks for more work before it sleeps */
	unsigned more_wakes;  /* sleeping threads that one thread wakes at once, after a first one */
	int64_t tiled_bytes;  /* bytes of the destination; larger moves that are not regular go by tiles */
	int64_t stream_bytes; /* bytes of the destination; larger ones are written past the cache */
	uint64_t cold_ns;     /* time of a look (cold_is) from which on memory is taken to be in no cache */
	/* Words of timelines slept on together, up to WATCHER_MOST_WORDS; 0: only naps. */
	uint32_t wait_words;
};

/* Returns the tuning for this machine, or the one that is forced. */
struct cpu_tuning cpu_tuning_get(void);

/* Tests set with it what cpu_tuning_get returns from now on; NULL ends that. No engine may be being opened.
 */
void cpu_tuning_force(const struct cpu_tuning *tuning);

#endif
