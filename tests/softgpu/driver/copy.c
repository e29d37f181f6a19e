/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets. Addresses are checked at the call, where the real driver would refuse them, and again when
 * the operation runs: memory that has been freed by then is an illegal address. Memory of another device's
 * context can be copied whether or not peer access is enabled, since the driver then takes another route.
 * Memory that was mapped with cuMemMap or comes from a pool must be accessible to the stream's device, or, in
 * cuMemcpyPeerAsync, to the device of the context named for it. */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"
#include "tests/softgpu/model.h"

#define MOST_PITCH INT32_MAX

enum side { SIDE_DEVICE, SIDE_HOST, SIDE_EITHER };

struct end {
	uint64_t address;
	enum side side;
	const struct context *context; /* the context that accesses this end; NULL: pageable host memory */
};

struct copy {
	struct op op;
	struct end dst;
	struct end src;
	size_t size;
	size_t rows; /* number of rows of size bytes; 0: one */
	size_t dst_pitch;
	size_t src_pitch;
};

struct set {
	struct op op;
	uint64_t dst;
	size_t size;
	unsigned char value;
};

static bool is_host(uint64_t address)
{
	const struct range *range = range_find(address);
	return !range || range->kind == RANGE_HOST;
}

static bool has_context(const struct range *range)
{
	return range->kind == RANGE_MEMORY || range->kind == RANGE_OPENED;
}

/* Returns 0, or why the memory cannot be used by anyone. */
static CUresult memory_fails(const struct range *range)
{
	if (range->kind == RANGE_HOST)
		return CUDA_SUCCESS;
	CUresult result = has_context(range) ? context_fails(range->context) : CUDA_SUCCESS;
	return result ?: call_stuck(range->home);
}

/* Checks that the end is what the call claims. An end that names no context is accessed by the context of its
 * memory, or by the stream's if the memory has none. Pageable host memory is not checked. */
static CUresult check_end(struct end *end, const struct context *context, size_t size, enum access access)
{
	const struct range *range = range_find(end->address);
	if (!range && (end->side == SIDE_DEVICE || end->address == 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (!range)
		return CUDA_SUCCESS;
	if (end->side == SIDE_HOST && !is_host(end->address))
		return CUDA_ERROR_INVALID_VALUE;
	if (!end->context)
		end->context = has_context(range) ? range->context : context;
	if (!range_reaches(end->context, end->address, size, access))
		return CUDA_ERROR_INVALID_VALUE;
	return memory_fails(range);
}

/* A copy from host memory to host memory runs on UNIT_TO_DEVICE. */
static enum unit unit_of(uint64_t dst, uint64_t src, int device)
{
	if (is_host(src))
		return UNIT_TO_DEVICE;
	if (is_host(dst))
		return UNIT_TO_HOST;
	int to = range_find(dst)->home, from = range_find(src)->home;
	return to == from ? UNIT_KERNELS : to == device ? UNIT_TO_DEVICE : UNIT_TO_HOST;
}

/* Returns the device that holds the end's memory, as a set; the empty set for host memory. */
static device_set home_of(const struct end *end)
{
	return is_host(end->address) ? 0 : device_bit(range_find(end->address)->home);
}

static bool is_there(const struct end *end, size_t size, enum access access)
{
	return !end->context || range_reaches(end->context, end->address, size, access);
}

/* Takes the lock, because several units add to the same counts. */
static void count(uint64_t *sectors, uint64_t address, size_t size)
{
	call_lock();
	*sectors += model_sectors(address, size);
	call_unlock();
}

static CUresult run_copy(struct op *op)
{
	struct copy *copy = (struct copy *)op;
	call_lock();
	bool good =
	    is_there(&copy->dst, copy->size, ACCESS_WRITE) && is_there(&copy->src, copy->size, ACCESS_READ);
	call_unlock();
	if (!good)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	memmove((void *)copy->dst.address, (const void *)copy->src.address, copy->size);
	if (model_counts && copy->src.context)
		count(&model_counts->read.driver, copy->src.address, copy->size);
	if (model_counts && copy->dst.context)
		count(&model_counts->written.driver, copy->dst.address, copy->size);
	return CUDA_SUCCESS;
}

/* A copy from or to pageable host memory is complete when the call returns, because the buffer may be on the
 * stack of a caller that then goes on. */
static CUresult push_copy(const struct end *dst, const struct end *src, size_t size, CUstream handle)
{
	struct stream *stream = stream_find(handle);
	struct copy copy = { .op = { .name = "copy", .amount = size, .run = run_copy },
		             .dst = *dst,
		             .src = *src,
		             .size = size },
		    *op;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	const struct context *context = stream->context;
	result = check_end(&copy.dst, context, size, ACCESS_WRITE)
	             ?: check_end(&copy.src, context, size, ACCESS_READ);
	if (result != CUDA_SUCCESS)
		return result;
	bool is_pageable = !copy.dst.context || !copy.src.context;
	if (is_pageable && stream->capture)
		return capture_refuse(stream);
	copy.op.unit = unit_of(dst->address, src->address, context->ordinal);
	copy.op.touches = home_of(dst) | home_of(src);
	op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = copy;
	stream_push(stream, &op->op);
	return is_pageable ? stream_drain(stream) : CUDA_SUCCESS;
}

/* Each end is accessed by the context that the call names for it, not by the current one. */
static CUresult push_peer(uint64_t dst, CUcontext to, uint64_t src, CUcontext from, size_t size,
                          CUstream handle)
{
	struct end ends[] = { { dst, SIDE_DEVICE, context_find(to) },
		              { src, SIDE_DEVICE, context_find(from) } };
	for (int i = 0; i < 2; i++) {
		if (!ends[i].context)
			return CUDA_ERROR_INVALID_CONTEXT;
		CUresult result = context_fails(ends[i].context);
		if (result != CUDA_SUCCESS)
			return result;
		if (size > 0 && is_host(ends[i].address))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return push_copy(&ends[0], &ends[1], size, handle);
}

static CUresult push_plain(uint64_t dst, enum side to, uint64_t src, enum side from, size_t size,
                           CUstream handle)
{
	return push_copy(&(struct end){ dst, to, NULL }, &(struct end){ src, from, NULL }, size, handle);
}

/* Bytes from the end's first row to the end of its last. */
static size_t pitched_bytes(const struct copy *copy, size_t pitch)
{
	return (copy->rows - 1) * pitch + copy->size;
}

static CUresult run_rows(struct op *op)
{
	struct copy *copy = (struct copy *)op;
	call_lock();
	bool good = is_there(&copy->dst, pitched_bytes(copy, copy->dst_pitch), ACCESS_WRITE) &&
	            is_there(&copy->src, pitched_bytes(copy, copy->src_pitch), ACCESS_READ);
	call_unlock();
	if (!good)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t i = 0; i < copy->rows; i++) {
		const uint64_t dst = copy->dst.address + i * copy->dst_pitch;
		const uint64_t src = copy->src.address + i * copy->src_pitch;

		memmove((void *)dst, (const void *)src, copy->size);
		if (model_counts) {
			count(&model_counts->read.driver, src, copy->size);
			count(&model_counts->written.driver, dst, copy->size);
		}
	}
	return CUDA_SUCCESS;
}

/* Only copies between registered host memory and the device are supported: no caller needs others. */
static CUresult push_rows(const CUDA_MEMCPY2D *wanted, CUstream handle)
{
	struct stream *stream = stream_find(handle);
	const bool out = wanted->dstMemoryType == CU_MEMORYTYPE_HOST;
	const CUmemorytype src_type = out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	struct copy copy = { .op = { .name = "copy",
		                     .amount = wanted->WidthInBytes * wanted->Height,
		                     .unit = out ? UNIT_TO_HOST : UNIT_TO_DEVICE,
		                     .run = run_rows },
		             .dst = { out ? (uint64_t)wanted->dstHost : wanted->dstDevice,
		                      out ? SIDE_HOST : SIDE_DEVICE, NULL },
		             .src = { out ? wanted->srcDevice : (uint64_t)wanted->srcHost,
		                      out ? SIDE_DEVICE : SIDE_HOST, NULL },
		             .size = wanted->WidthInBytes,
		             .rows = wanted->Height,
		             .dst_pitch = wanted->dstPitch,
		             .src_pitch = wanted->srcPitch },
		    *op;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS || copy.size == 0 || copy.rows == 0)
		return result;
	if (wanted->srcMemoryType != src_type || (!out && wanted->dstMemoryType != CU_MEMORYTYPE_DEVICE) ||
	    wanted->srcXInBytes || wanted->srcY || wanted->dstXInBytes || wanted->dstY ||
	    copy.src_pitch < copy.size || copy.dst_pitch < copy.size || copy.src_pitch > MOST_PITCH ||
	    copy.dst_pitch > MOST_PITCH)
		return CUDA_ERROR_INVALID_VALUE;
	const struct context *context = stream->context;
	result = check_end(&copy.dst, context, pitched_bytes(&copy, copy.dst_pitch), ACCESS_WRITE)
	             ?: check_end(&copy.src, context, pitched_bytes(&copy, copy.src_pitch), ACCESS_READ);
	if (result != CUDA_SUCCESS)
		return result;
	if (!copy.dst.context || !copy.src.context)
		return CUDA_ERROR_INVALID_VALUE;
	copy.op.touches = home_of(&copy.dst) | home_of(&copy.src);
	op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = copy;
	stream_push(stream, &op->op);
	return CUDA_SUCCESS;
}

static CUresult run_set(struct op *op)
{
	struct set *set = (struct set *)op;
	call_lock();
	bool good = range_reaches(op->context, set->dst, set->size, ACCESS_WRITE);
	call_unlock();
	if (!good)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	memset((void *)set->dst, set->value, set->size);
	if (model_counts)
		count(&model_counts->written.driver, set->dst, set->size);
	return CUDA_SUCCESS;
}

static CUresult push_set(uint64_t dst, unsigned char value, size_t size, CUstream handle)
{
	struct stream *stream = stream_find(handle);
	struct set *op;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	if (!range_reaches(stream->context, dst, size, ACCESS_WRITE))
		return CUDA_ERROR_INVALID_VALUE;
	if ((result = memory_fails(range_find(dst))) != CUDA_SUCCESS)
		return result;
	op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = (struct set){ .op = { .unit = UNIT_KERNELS, .name = "set", .amount = size, .run = run_set },
		            .dst = dst,
		            .size = size,
		            .value = value };
	stream_push(stream, &op->op);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyAsync)
	                 ?: push_plain(dst, SIDE_EITHER, src, SIDE_EITHER, size, stream));
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyDtoDAsync)
	                 ?: push_plain(dst, SIDE_DEVICE, src, SIDE_DEVICE, size, stream));
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from,
                                   size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyPeerAsync) ?: push_peer(dst, to, src, from, size, stream));
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyHtoDAsync)
	                 ?: push_plain(dst, SIDE_DEVICE, (uint64_t)src, SIDE_HOST, size, stream));
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyDtoHAsync)
	                 ?: push_plain((uint64_t)dst, SIDE_HOST, src, SIDE_DEVICE, size, stream));
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpy2DAsync) ?: push_rows(copy, stream));
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemsetD8Async) ?: push_set(dst, value, size, stream));
}
