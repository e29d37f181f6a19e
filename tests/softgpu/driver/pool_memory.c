/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations from pools. Memory is available as soon as the call returns and is freed when its stream
 * reaches the free. In a capture, an allocation only gets an address; replays of the graph give it memory. */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "capture.h"
#include "pool.h"
#include "softgpu.h"

#define ALIGN_BYTES 512u
#define POISON      0xa5

/* Returns the lowest offset with enough free room; 0 if there is none. */
static uint64_t find_room(const struct pool *pool, uint64_t size)
{
	uint64_t at = pool->start;
	const struct range *range;
	for (bool moved = true; moved;) {
		moved = false;
		TAILQ_FOREACH(range, &ranges, entry)
			if (range->pool == pool && range->start < at + size &&
			    at < range->start + range->size) {
				at = (range->start + range->size + ALIGN_BYTES - 1) & ~(ALIGN_BYTES - 1ull);
				moved = true;
			}
	}
	return size <= pool->start + POOL_BYTES - at ? at : 0;
}

static void remove_range(struct range *range)
{
	struct pool *pool = range->pool;
	if (range->kind != RANGE_IMPORTED)
		memory_discharge(range->home, range->size);
	range_remove(range);
	pool->used--;
	pool_free_unused(pool);
}

/* An operation of a graph that allocates or frees memory. */
struct turn {
	struct op op;
	struct range *range;
};

static CUresult push_turn(struct stream *stream, const struct op *op, struct range *range)
{
	struct turn *turn = malloc(sizeof *turn);
	if (!turn)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*turn = (struct turn){ .op = *op, .range = range };
	stream_push(stream, &turn->op);
	return CUDA_SUCCESS;
}

static void drop_range(struct op *op)
{
	remove_range(((struct turn *)op)->range);
}

/* Fills the memory with poison, because a replay cannot rely on what the previous one left. */
static CUresult run_give(struct op *op)
{
	struct range *range = ((struct turn *)op)->range;
	memset((void *)range->start, POISON, range->size);
	call_lock();
	range->is_live = true;
	call_unlock();
	return CUDA_SUCCESS;
}

static CUresult run_take(struct op *op)
{
	call_lock();
	((struct turn *)op)->range->is_live = false;
	call_unlock();
	return CUDA_SUCCESS;
}

/* The node that allocates the memory owns the range. */
static CUresult capture_memory(struct range *range, struct stream *stream)
{
	range->capture = capture_id(stream);
	return push_turn(stream, &(struct op){ .allocates = true, .run = run_give, .drop = drop_range },
	                 range);
}

static CUresult allocate_in(CUdeviceptr *ret, size_t size, struct pool *pool, struct stream *stream)
{
	uint64_t start = find_room(pool, size);
	CUdeviceptr address;
	if (start == 0 || size > memory_free(pool->name.ordinal))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result =
	    pool_add_range(&address, pool, stream->capture ? RANGE_GRAPH : RANGE_POOLED, start, size);
	if (result != CUDA_SUCCESS)
		return result;
	memory_charge(pool->name.ordinal, size);
	struct range *range = range_find(address);
	if (stream->capture && (result = capture_memory(range, stream)) != CUDA_SUCCESS)
		remove_range(range);
	else
		*ret = address;
	return result;
}

static CUresult allocate(CUdeviceptr *ret, size_t size, CUmemoryPool handle, CUstream stream_handle)
{
	struct pool *pool = pool_find(handle);
	struct stream *stream = stream_find(stream_handle);
	if (!ret || size == 0 || size > POOL_BYTES || !pool || pool->is_imported || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_fails(stream) ?: capture_check(stream) ?: call_stuck(pool->name.ordinal);
	return result ?: allocate_in(ret, size, pool, stream);
}

/* A graph's memory can be freed only by the graph itself: memory that outlives the replay is not modelled. */
static bool can_free(const struct range *range, const struct stream *stream)
{
	return stream->capture ? range->kind == RANGE_GRAPH && range->capture == capture_id(stream)
	                       : range->kind != RANGE_GRAPH;
}

static CUresult release(CUdeviceptr pointer, CUstream stream_handle)
{
	struct range *range = range_find(pointer);
	struct stream *stream = stream_find(stream_handle);
	if (!range || !range->pool || range->start != pointer || range->is_freed || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_fails(stream) ?: capture_check(stream) ?: call_stuck(range->home);
	if (result != CUDA_SUCCESS)
		return result;
	if (!can_free(range, stream))
		return CUDA_ERROR_INVALID_VALUE;
	const struct op op = { .run = stream->capture ? run_take : NULL,
		               .drop = stream->capture ? NULL : drop_range };
	result = push_turn(stream, &op, range);
	range->is_freed = result == CUDA_SUCCESS;
	return result;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
	return leave(enter(ENTRY_cuMemAllocFromPoolAsync) ?: allocate(ret, size, pool, stream));
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	return leave(enter_mapping(ENTRY_cuMemFreeAsync) ?: release(pointer, stream));
}
