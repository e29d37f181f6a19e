/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronization of threads: __syncthreads, __syncwarp and the cluster barrier. Threads that have ended are
 * not waited for. */
#include "machine.h"

static bool is_alive(uint32_t thread)
{
	return machine.threads[thread].state != THREAD_DONE;
}

/* Returns whether all live threads of [first, first + n) are in that state, and if so makes them ready. */
static bool all_there(uint32_t first, uint32_t n, enum thread_state state)
{
	for (uint32_t t = first; t < first + n; t++)
		if (is_alive(t) && machine.threads[t].state != state)
			return false;
	return true;
}

static void release(uint32_t first, uint32_t n)
{
	for (uint32_t t = first; t < first + n; t++)
		if (is_alive(t))
			machine.threads[t].state = THREAD_READY;
}

static void try_block(const struct model_block *block)
{
	uint32_t first = block->rank * machine.block_threads;

	if (!block->n_alive || !all_there(first, machine.block_threads, THREAD_AT_SYNC))
		return;
	count_meeting(SOFTGPU_BLOCK_SYNC, first, machine.block_threads);
	order_meet_block(block->rank, is_alive);
	release(first, machine.block_threads);
}

static void try_cluster(void)
{
	if (!all_there(0, machine.n_threads, THREAD_AT_CLUSTER_SYNC))
		return;
	count_meeting(SOFTGPU_CLUSTER_SYNC, 0, machine.n_threads);
	order_meet_cluster(is_alive);
	release(0, machine.n_threads);
}

/* Returns the number of the first thread of the thread's warp. */
static uint32_t first_of_warp(const struct model_thread *thread)
{
	uint32_t in_block = thread->number % machine.block_threads;

	return thread->number - in_block % MODEL_WARP;
}

static void try_warp(const struct model_thread *thread, uint32_t mask)
{
	uint32_t first = first_of_warp(thread), n = 0, lanes[MODEL_WARP] = { 0 };
	uint32_t end = (thread->block->rank + 1) * machine.block_threads;

	for (uint32_t lane = 0; lane < MODEL_WARP && first + lane < end; lane++) {
		struct model_thread *other = &machine.threads[first + lane];

		if (!(mask >> lane & 1) || other->state == THREAD_DONE)
			continue;
		if (other->state != THREAD_AT_WARP_SYNC || other->mask != mask)
			return;
		lanes[n++] = first + lane;
	}
	order_meet(lanes, n);
	for (uint32_t i = 0; i < n; i++)
		machine.threads[lanes[i]].state = THREAD_READY;
}

/* ---- What kernels call ----------------------------------------------------------------------------- */

/* Arrives. The last thread to arrive makes all ready, the others wait; either way the scheduler runs next. */
static void meet(enum thread_state state)
{
	struct model_thread *self = machine.self;

	self->state = state;
	if (state == THREAD_AT_SYNC)
		try_block(self->block);
	else if (state == THREAD_AT_CLUSTER_SYNC)
		try_cluster();
	else
		try_warp(self, self->mask);
	model_rest(self->state);
}

void model_sync_block(void)
{
	meet(THREAD_AT_SYNC);
}

void model_sync_cluster(void)
{
	meet(THREAD_AT_CLUSTER_SYNC);
}

static void meet_warp(uint32_t mask)
{
	uint32_t lane = machine.self->number % machine.block_threads % MODEL_WARP;

	if (!(mask >> lane & 1))
		model_fail("__syncwarp of lanes 0x%08x by lane %u, which is not one of them", mask, lane);
	machine.self->mask = mask;
	meet(THREAD_AT_WARP_SYNC);
}

void model_sync_warp(uint32_t mask, uint32_t line)
{
	if (model_is_counting)
		count_instruction(SOFTGPU_WARP_SYNC, 0, 0, line);
	meet_warp(mask);
}

/* Safe to read after the synchronization: no lane brings its next value before all have taken this one. */
uint32_t model_shuffle(uint32_t value, uint32_t lane, uint32_t line)
{
	struct model_thread *self = machine.self;

	if (model_is_counting)
		count_instruction(SOFTGPU_SHUFFLE, 0, 0, line);
	self->value = value;
	meet_warp(UINT32_MAX);
	value = machine.threads[first_of_warp(self) + lane % MODEL_WARP].value;
	meet_warp(UINT32_MAX);
	return value;
}

uint32_t model_cluster_rank(void)
{
	return machine.self->block->rank;
}

void meet_thread_ended(struct model_thread *thread)
{
	uint32_t first = first_of_warp(thread);

	try_block(thread->block);
	if (machine.n_blocks > 1)
		try_cluster();
	for (uint32_t t = first; t < first + MODEL_WARP && t < machine.n_threads; t++)
		if (machine.threads[t].state == THREAD_AT_WARP_SYNC)
			try_warp(&machine.threads[t], machine.threads[t].mask);
}
