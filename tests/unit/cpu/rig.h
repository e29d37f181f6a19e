/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the CPU engine: one engine, one owner of its streams, and jobs on square float32
 * tensors. Failures are Criterion's. */
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
extern int wakeups; /* an eventfd that wake() adds to */

/* Jobs in the order in which they came back. */
extern struct engine_job *done[MOST_JOBS];
extern size_t n_done;

/* While a test keeps this set, a thread of the engine that calls wake() stays in it. */
extern atomic_bool hold;

/* The owner's wake function, which the engine calls. */
void wake(void *arg);

/* Opens an engine that cuts even small jobs into many pieces for its threads; jobs of at most inline_bytes
 * run where they are submitted. */
void open_engine(uint32_t threads, int64_t inline_bytes);
/* Opens the same engine, with a watcher that sleeps on up to wait_words words of timelines at once. */
void open_engine_words(uint32_t threads, int64_t inline_bytes, uint32_t wait_words);
void close_engine(void);

/* Waits until n jobs in all have come back. */
void wait_done(size_t n);

struct engine_memory *new_memory(uint64_t size);
char *data(struct engine_memory *memory);

/* A job with its transform of float32 [n, n], with perm 1, 0 if it is transposed. */
struct work {
	struct engine_job job;
	struct transform transform;
};

void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Keeps the only thread in wake() until a test clears hold; jobs that are submitted meanwhile are waiting
 * when it leaves. */
void hold_thread(struct work *work, struct engine_stream *stream, struct engine_memory *dst,
                 struct engine_memory *src);

/* A job that moves n blocks of a list in each layer. Blocks of `bytes` bytes, and the layers, lie one after
 * the other on both sides. The list names blocks of dst if scatter is set, otherwise of src. */
struct list_work {
	struct engine_job job;
	struct transform transform;
	struct engine_blocks blocks;
};

/* The list's limit is as many blocks as fit the indexed side's memory. The caller sets the index. */
void list_work_init(struct list_work *work, int64_t bytes, uint64_t n, uint32_t layers, bool scatter,
                    struct engine_memory *dst, struct engine_memory *src);

/* Removes the memory from this byte on, a multiple of the page size, as a hole does that is punched in a
 * client's file. */
void break_memory(struct engine_memory *memory, size_t from);

#endif
