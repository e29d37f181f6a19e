/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the CPU engine in every way that it has, for the property tests: with each instruction set of this
 * machine; in the submitting thread, with scratch memory or without, or in threads, in pieces of a few
 * hundred bytes; through the cache or past it, either because the destination is in no cache or because it is
 * large. A failure here ends the program. */
#ifndef TESTS_UNIT_CPU_WAYS_H
#define TESTS_UNIT_CPU_WAYS_H

#include "kernels/cpu/isa/isa.h"
#include "kernels/engine.h"

/* Size of each memory of a bench, in bytes. */
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

/* An engine for one way and instruction set, with the memory that its jobs use. */
struct bench {
	const char *isa;
	enum way way;
	int wakeups;
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_memory *dst, *src, *index;
};

/* Opens all benches that this machine supports and returns how many there are. */
size_t benches_open(struct bench bench[MOST_BENCHES]);
void benches_close(struct bench *bench, size_t n);

/* Runs a job, of which it sets on_done, and returns the job's status. */
int bench_run(struct bench *bench, struct engine_job *job);

_Noreturn void bench_die(const char *what);

/* Returns the number in the environment variable, or `otherwise`. */
uint64_t bench_number(const char *name, uint64_t otherwise);

/* Makes n tries, each with a seed of its own, on the benches in turn, until too many have failed. `what` is
 * printed as the property that does not hold. */
void bench_try_all(bool (*try)(struct bench *bench, uint64_t seed), struct bench *bench, size_t n_benches,
                   uint64_t n, uint64_t seed, const char *what);

#endif
