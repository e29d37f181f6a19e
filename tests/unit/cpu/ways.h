/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine by every way that it has, for the property tests: each instruction set of this machine; run
 * where it is submitted, by way of scratch or not, or by threads in pieces of a few hundred bytes; through
 * the cache, or past it, because the destination is in no cache or because it is large. What goes wrong here
 * ends the program.
 */
#ifndef TESTS_UNIT_CPU_WAYS_H
#define TESTS_UNIT_CPU_WAYS_H

#include "kernels/cpu/isa/isa.h"
#include "kernels/engine.h"

/* Of each memory. */
#define BENCH_BYTES (4 << 20)

enum way {
	WAY_INLINE,
	WAY_INLINE_STAGED,
	WAY_PIECES,
	WAY_PIECES_COLD,
	WAY_PIECES_STREAMED,
	WAY_PIECES_TILED,
	WAYS
};

extern const char *const way_names[WAYS];

#define MOST_BENCHES (CPU_ISA_LEVELS * WAYS)

/* One engine for each way and instruction set, with the memory that its jobs use. */
struct bench {
	const char *isa;
	enum way way;
	int wakeups;
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_memory *dst, *src, *index;
};

/* All that this machine has; gives how many. */
size_t benches_open(struct bench bench[MOST_BENCHES]);
void benches_close(struct bench *bench, size_t n);

/* Runs a job, whose on_done is its own; gives its status. */
int bench_run(struct bench *bench, struct engine_job *job);

_Noreturn void bench_die(const char *what);

/* From the environment. */
uint64_t bench_number(const char *name, uint64_t otherwise);

/* n tries, each with a seed of its own, in turn on each of the benches, until too many have failed; what says
 * what has to hold. */
void bench_try_all(bool (*try)(struct bench *bench, uint64_t seed), struct bench *bench, size_t n_benches,
                   uint64_t n, uint64_t seed, const char *what);

#endif
