/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and sets. Addresses are checked at the call, where the driver would refuse them, and again when
 * their turn comes: what has gone by then is an illegal address. */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "softgpu.h"
#include "tests/softgpu/model.h"

#define MOST_PITCH INT32_MAX

enum side { SIDE_DEVICE, SIDE_HOST, SIDE_EITHER };

struct copy {
	struct op op;
	uint64_t dst;
	uint64_t src;
	size_t size;
	uint64_t least_ns;
	bool dst_is_known; /* to the device */
	bool src_is_known;
	size_t rows; /* of size bytes; 0: one */
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

/* Whether the side can be what it is said to be, in *ret_known whether the device knows it: if not, it is
 * ordinary host memory, of which nothing is checked. */
static bool check_side(uint64_t address, size_t size, enum side side, enum access access, bool *ret_known)
{
	*ret_known = range_find(address) != NULL;
	if (!*ret_known)
		return side != SIDE_DEVICE && address != 0;
	if (side == SIDE_HOST && !is_host(address))
		return false;
	return range_reaches(address, size, access);
}

/* Host memory on both sides goes to the device and back. */
static enum unit unit_of(uint64_t dst, uint64_t src)
{
	return is_host(src) ? UNIT_TO_DEVICE : is_host(dst) ? UNIT_TO_HOST : UNIT_KERNELS;
}

/* Units run beside each other, and all add to them. */
static void count(uint64_t *sectors, uint64_t address, size_t size)
{
	call_lock();
	*sectors += model_sectors(address, size);
	call_unlock();
}

static CUresult run_copy(struct op *op)
{
	struct copy *copy = (struct copy *)op;
	uint64_t end = call_now_ns() + copy->least_ns;
	call_lock();
	bool good = (!copy->dst_is_known || range_reaches(copy->dst, copy->size, ACCESS_WRITE)) &&
	            (!copy->src_is_known || range_reaches(copy->src, copy->size, ACCESS_READ));
	call_unlock();
	if (!good)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	memmove((void *)copy->dst, (const void *)copy->src, copy->size);
	if (model_counts && copy->src_is_known)
		count(&model_counts->read.driver, copy->src, copy->size);
	if (model_counts && copy->dst_is_known)
		count(&model_counts->written.driver, copy->dst, copy->size);
	if (copy->least_ns > 0)
		call_sleep_until(end);
	return CUDA_SUCCESS;
}

/* A copy with ordinary host memory is over when the call returns: nobody may use the stack of a caller that
 * has gone on. */
static CUresult push_copy(uint64_t dst, uint64_t src, size_t size, enum side to, enum side from,
                          CUstream handle)
{
	struct stream *stream = stream_find(handle);
	struct copy copy = { .op = { .name = "copy", .amount = size, .run = run_copy },
		             .dst = dst,
		             .src = src,
		             .size = size },
		    *op;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (size == 0)
		return CUDA_SUCCESS;
	if (!check_side(dst, size, to, ACCESS_WRITE, &copy.dst_is_known) ||
	    !check_side(src, size, from, ACCESS_READ, &copy.src_is_known))
		return CUDA_ERROR_INVALID_VALUE;
	copy.op.unit = unit_of(dst, src);
	if (copy.op.unit != UNIT_KERNELS)
		copy.least_ns = call_copy_ns();
	op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = copy;
	stream_push(stream, &op->op);
	return copy.dst_is_known && copy.src_is_known ? CUDA_SUCCESS : stream_drain(stream);
}

/* All of a side, from its first row to its last. */
static size_t pitched_bytes(const struct copy *copy, size_t pitch)
{
	return (copy->rows - 1) * pitch + copy->size;
}

static CUresult run_rows(struct op *op)
{
	struct copy *copy = (struct copy *)op;
	uint64_t end = call_now_ns() + copy->least_ns;
	call_lock();
	bool good = range_reaches(copy->dst, pitched_bytes(copy, copy->dst_pitch), ACCESS_WRITE) &&
	            range_reaches(copy->src, pitched_bytes(copy, copy->src_pitch), ACCESS_READ);
	call_unlock();
	if (!good)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t i = 0; i < copy->rows; i++) {
		const uint64_t dst = copy->dst + i * copy->dst_pitch, src = copy->src + i * copy->src_pitch;

		memmove((void *)dst, (const void *)src, copy->size);
		if (model_counts) {
			count(&model_counts->read.driver, src, copy->size);
			count(&model_counts->written.driver, dst, copy->size);
		}
	}
	if (copy->least_ns > 0)
		call_sleep_until(end);
	return CUDA_SUCCESS;
}

/* Between host memory that is registered and the device: what there is use for. */
static CUresult push_rows(const CUDA_MEMCPY2D *wanted, CUstream handle)
{
	struct stream *stream = stream_find(handle);
	const bool out = wanted->dstMemoryType == CU_MEMORYTYPE_HOST;
	const CUmemorytype src_type = out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	struct copy copy = { .op = { .name = "copy",
		                     .amount = wanted->WidthInBytes * wanted->Height,
		                     .unit = out ? UNIT_TO_HOST : UNIT_TO_DEVICE,
		                     .run = run_rows },
		             .least_ns = call_copy_ns(),
		             .dst = out ? (uint64_t)wanted->dstHost : wanted->dstDevice,
		             .src = out ? wanted->srcDevice : (uint64_t)wanted->srcHost,
		             .size = wanted->WidthInBytes,
		             .rows = wanted->Height,
		             .dst_pitch = wanted->dstPitch,
		             .src_pitch = wanted->srcPitch },
		    *op;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (copy.size == 0 || copy.rows == 0)
		return CUDA_SUCCESS;
	if (wanted->srcMemoryType != src_type || (!out && wanted->dstMemoryType != CU_MEMORYTYPE_DEVICE) ||
	    wanted->srcXInBytes || wanted->srcY || wanted->dstXInBytes || wanted->dstY ||
	    copy.src_pitch < copy.size || copy.dst_pitch < copy.size || copy.src_pitch > MOST_PITCH ||
	    copy.dst_pitch > MOST_PITCH ||
	    !check_side(copy.dst, pitched_bytes(&copy, copy.dst_pitch), out ? SIDE_HOST : SIDE_DEVICE,
	                ACCESS_WRITE, &copy.dst_is_known) ||
	    !check_side(copy.src, pitched_bytes(&copy, copy.src_pitch), out ? SIDE_DEVICE : SIDE_HOST,
	                ACCESS_READ, &copy.src_is_known) ||
	    !copy.dst_is_known || !copy.src_is_known)
		return CUDA_ERROR_INVALID_VALUE;
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
	bool good = range_reaches(set->dst, set->size, ACCESS_WRITE);
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
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (size == 0)
		return CUDA_SUCCESS;
	if (!range_reaches(dst, size, ACCESS_WRITE))
		return CUDA_ERROR_INVALID_VALUE;
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
	                 ?: push_copy(dst, src, size, SIDE_EITHER, SIDE_EITHER, stream));
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyDtoDAsync)
	                 ?: push_copy(dst, src, size, SIDE_DEVICE, SIDE_DEVICE, stream));
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyHtoDAsync)
	                 ?: push_copy(dst, (uint64_t)src, size, SIDE_DEVICE, SIDE_HOST, stream));
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpyDtoHAsync)
	                 ?: push_copy((uint64_t)dst, src, size, SIDE_HOST, SIDE_DEVICE, stream));
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	return leave(enter(ENTRY_cuMemcpy2DAsync) ?: push_rows(copy, stream));
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t size, CUstream stream)
{
	return leave(enter(ENTRY_cuMemsetD8Async) ?: push_set(dst, value, size, stream));
}
