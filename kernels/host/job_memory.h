/* SPDX-License-Identifier: Apache-2.0 */
/* Asks something of all memory that a job touches. It is inline because it is asked of every job, and the
 * test is then part of it. */
#ifndef KERNELS_HOST_JOB_MEMORY_H
#define KERNELS_HOST_JOB_MEMORY_H

#include <stdbool.h>

#include "kernels/engine.h"

typedef bool memory_test(struct engine_memory *memory);

static inline __attribute__((always_inline)) bool memory_is(struct engine_memory *memory, memory_test *test)
{
	return memory && test(memory);
}

static inline __attribute__((always_inline)) bool move_any_memory(const struct engine_move *move,
                                                                  memory_test *test)
{
	return memory_is(move->dst, test) || memory_is(move->src, test) ||
	       memory_is(move->scale.memory, test) || memory_is(move->bias.memory, test) ||
	       memory_is(move->amax_scale.memory, test) || memory_is(move->amax_inverse.memory, test);
}

static inline bool table_any_memory(const struct layer_table *table, memory_test *test)
{
	for (uint32_t i = 0; table && i < table->n; i++)
		if (test(table->memories[i]))
			return true;
	return false;
}

static inline bool blocks_any_memory(const struct engine_blocks *blocks, memory_test *test)
{
	return memory_is(blocks->index_memory, test) || table_any_memory(blocks->dst.table, test) ||
	       table_any_memory(blocks->src.table, test);
}

/* Tells whether the test holds for any memory that the job touches, but for the word that it waits for. */
static inline __attribute__((always_inline)) bool job_any_memory(const struct engine_job *job,
                                                                 memory_test *test)
{
	if (memory_is(job->signal.memory, test))
		return true;
	if (!job->moves)
		return move_any_memory(&job->move, test) ||
		       (job->blocks && blocks_any_memory(job->blocks, test));
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (move_any_memory(&job->moves[i], test))
			return true;
	return false;
}

#endif
