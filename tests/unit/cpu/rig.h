/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the engine share: one engine, one owner of its streams, and jobs of square float32 tensors.
 * Failures are Criterion's. */
#ifndef TESTS_UNIT_CPU_RIG_H
#define TESTS_UNIT_CPU_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine.h"

#define MOST_JOBS 512

extern struct engine *engine;
extern struct engine_owner owner;
extern int wakeups; /* an eventfd */

/* Jobs in the order that they came back. */
extern struct engine_job *done[MOST_JOBS];
extern size_t n_done;

extern atomic_bool hold; /* a thread of the engine's that wakes the owner stays in wake */

/* The engine's wake function: counts in wakeups. */
void wake(void *arg);

/* Everything small enough to be looked at goes to the threads, in many pieces. */
void open_engine(uint32_t threads, int64_t inline_bytes);
/* The same, and how many words of timelines one sleep watches. */
void open_engine_words(uint32_t threads, int64_t inline_bytes, uint32_t wait_words);
void close_engine(void);

/* Until n jobs have come back in all. */
void wait_done(size_t n);

struct engine_memory *new_memory(uint64_t size);
char *data(struct engine_memory *memory);

/* A work is a job with its transform of float32 [n, n], where perm is 1, 0 if it is transposed. */
struct work {
	struct engine_job job;
	struct transform transform;
};

void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Keeps the only thread in wake until hold is false again; everything submitted meanwhile is there when it
 * comes back. */
void hold_thread(struct work *work, struct engine_stream *stream, struct engine_memory *dst,
                 struct engine_memory *src);

/* A run of one block's transform over n entries of a list in layers: blocks of `bytes` bytes, one after the
 * other on either side, the layers too. dst is the indexed side when scatter is set. */
struct list_work {
	struct engine_job job;
	struct transform transform;
	struct engine_blocks blocks;
};

/* limit: as many blocks as fit the indexed side's memory. The index is for the caller to set. */
void list_work_init(struct list_work *work, int64_t bytes, uint64_t n, uint32_t layers, bool scatter,
                    struct engine_memory *dst, struct engine_memory *src);

/* Takes the memory from this byte on away, as a hole punched when memory is short would; a multiple of the
 * page. */
void break_memory(struct engine_memory *memory, size_t from);

#endif
