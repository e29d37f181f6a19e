/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, as the driver shows them. One of another context than the current one can be waited for, copied in
 * and destroyed; only launches ask for their own. */
#include "call.h"
#include "capture.h"
#include "softgpu.h"

static CUresult create(CUstream *ret, unsigned int flags, int priority)
{
	struct stream *stream;
	if (!ret || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = stream_new(&stream, context_current(), !(flags & CU_STREAM_NON_BLOCKING), priority);
	if (result == CUDA_SUCCESS)
		*ret = (CUstream)stream;
	return result;
}

static CUresult destroy(CUstream handle)
{
	struct stream *stream = stream_find(handle);
	if (!stream || stream->is_legacy)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = call_stuck(stream->context->ordinal);
	if (result == CUDA_SUCCESS)
		stream_destroy(stream);
	return result;
}

static CUresult synchronize(CUstream handle)
{
	struct stream *stream = stream_find(handle);
	return stream_fails(stream) ?: capture_check_wait(stream) ?: stream_drain(stream);
}

static CUresult query(CUstream handle)
{
	const struct stream *stream = stream_find(handle);
	CUresult result = stream_fails(stream) ?: capture_check_wait(stream);
	return result != CUDA_SUCCESS || STAILQ_EMPTY(&stream->ops) ? result : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	return leave(enter(ENTRY_cuStreamCreateWithPriority) ?: create(ret, flags, priority));
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
	return leave(enter(ENTRY_cuStreamDestroy) ?: destroy(stream));
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	return leave(enter(ENTRY_cuCtxSynchronize) ?: stream_drain_all(device_current()));
}

static CUresult get_context(CUstream handle, CUcontext *ret)
{
	const struct stream *stream = stream_find(handle);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUcontext)stream->context;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *ret)
{
	return leave(enter(ENTRY_cuStreamGetCtx) ?: get_context(stream, ret));
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
	return leave(enter(ENTRY_cuStreamSynchronize) ?: synchronize(stream));
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
	return leave(enter(ENTRY_cuStreamQuery) ?: query(stream));
}
