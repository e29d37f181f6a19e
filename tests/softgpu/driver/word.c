/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that write a word of memory, and that wait for one (timelines). Nothing signals a change of a
 * word, so an idle unit polls the words that its operations wait for. */
#include <stdlib.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"

struct word {
	struct op op;
	uint64_t address;
	uint64_t value;
};

static CUresult push(CUstream handle, const struct word *word, enum access access)
{
	struct stream *stream = stream_find(handle);
	struct word *op;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (word->address % 8 || !range_reaches(stream->context, word->address, 8, access))
		return CUDA_ERROR_INVALID_VALUE;
	op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*op = *word;
	stream_push(stream, &op->op);
	return CUDA_SUCCESS;
}

static bool is_there(const struct word *word, enum access access)
{
	call_lock();
	bool there = range_reaches(word->op.context, word->address, 8, access);
	call_unlock();
	return there;
}

static CUresult run_write(struct op *op)
{
	const struct word *word = (struct word *)op;
	if (!is_there(word, ACCESS_WRITE))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	__atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

/* Caller holds the lock. If the memory has been freed, this returns true and run reports the error. */
static bool has_come(const struct op *op)
{
	const struct word *word = (const struct word *)op;
	if (!range_reaches(op->context, word->address, 8, ACCESS_READ))
		return true;
	uint64_t now = __atomic_load_n((const uint64_t *)word->address, __ATOMIC_ACQUIRE);
	return (int64_t)(now - word->value) >= 0;
}

static CUresult run_wait(struct op *op)
{
	return is_there((struct word *)op, ACCESS_READ) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)
{
	struct word word = { .op.run = run_write, .address = address, .value = value };
	if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	return push(stream, &word, ACCESS_WRITE);
}

/* Of the comparisons, only the one that timelines use is supported. */
static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)
{
	struct word word = { .op = { .is_due = has_come, .run = run_wait },
		             .address = address,
		             .value = value };
	if (flags != CU_STREAM_WAIT_VALUE_GEQ)
		return CUDA_ERROR_NOT_SUPPORTED;
	return push(stream, &word, ACCESS_READ);
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned int flags)
{
	return leave(enter(ENTRY_cuStreamWriteValue64) ?: write_value(stream, address, value, flags));
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned int flags)
{
	return leave(enter(ENTRY_cuStreamWaitValue64) ?: wait_value(stream, address, value, flags));
}
