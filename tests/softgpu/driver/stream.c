/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and their entry points. A stream of a context that is not current can be waited for, used for
 * copies and destroyed; only launches require its context to be current. */
#include <stdlib.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"

static uint64_t last_number;
static struct stream primary_legacy[MOST_DEVICES]; /* Legacy streams of primary contexts are never freed. */

static void add(struct stream *stream, struct context *context, bool blocking, int priority)
{
	*stream = (struct stream){ .context = context, .is_blocking = blocking, .priority = priority };
	STAILQ_INIT(&stream->ops);
	TAILQ_INSERT_TAIL(&streams, stream, entry);
}

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority)
{
	struct stream *stream = malloc(sizeof *stream);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	add(stream, context, blocking, priority);
	*ret = stream;
	return CUDA_SUCCESS;
}

CUresult stream_new_legacy(struct context *context)
{
	if (context->legacy)
		return CUDA_SUCCESS;
	CUresult result = CUDA_SUCCESS;
	if (context->is_primary) {
		context->legacy = &primary_legacy[context->ordinal];
		add(context->legacy, context, true, 0);
	} else {
		result = stream_new(&context->legacy, context, true, 0);
	}
	if (result == CUDA_SUCCESS)
		context->legacy->is_legacy = true;
	return result;
}

void stream_destroy(struct stream *stream)
{
	capture_leave(stream);
	stream->is_destroyed = true;
	stream_free_unused(stream);
}

void streams_destroy(const struct context *context)
{
	struct stream *stream, *next;
	for (stream = TAILQ_FIRST(&streams); stream; stream = next) {
		next = TAILQ_NEXT(stream, entry);
		if (stream->context != context || stream->is_hidden)
			continue;
		if (stream->is_legacy)
			stream->context->legacy = NULL;
		stream_destroy(stream);
	}
}

void stream_free_unused(struct stream *stream)
{
	if (!stream->is_destroyed || !STAILQ_EMPTY(&stream->ops))
		return;
	TAILQ_REMOVE(&streams, stream, entry);
	free(stream);
}

struct stream *stream_find(CUstream handle)
{
	struct stream *stream;
	if (!handle || handle == CU_STREAM_LEGACY)
		return context_current()->legacy;
	TAILQ_FOREACH(stream, &streams, entry)
		if ((CUstream)stream == handle && !stream->is_destroyed && !stream->is_legacy &&
		    !stream->is_hidden)
			return stream;
	return NULL;
}

size_t stream_live(void)
{
	const struct stream *stream;
	size_t n = 0;
	TAILQ_FOREACH(stream, &streams, entry)
		n += !stream->is_legacy && !stream->is_hidden;
	return n;
}

CUresult stream_fails(const struct stream *stream)
{
	return stream ? context_fails(stream->context) : CUDA_ERROR_INVALID_HANDLE;
}

void stream_push(struct stream *stream, struct op *op)
{
	op->context = stream->context;
	if (stream->capture) {
		capture_push(stream, op);
		return;
	}
	op->number = ++last_number;
	op->faults = op->is_launch && call_launch_faults(op->context->ordinal);
	op->least_ns = op->is_launch                                            ? call_launch_ns()
	               : op->unit == UNIT_TO_DEVICE || op->unit == UNIT_TO_HOST ? call_copy_ns()
	                                                                        : 0;
	STAILQ_INSERT_TAIL(&stream->ops, op, entry);
	queue_wake_ready();
}

CUresult stream_drain(struct stream *stream)
{
	int device = stream->context->ordinal;
	while (!STAILQ_EMPTY(&stream->ops) && call_stuck(device) == CUDA_SUCCESS)
		call_wait();
	return call_stuck(device);
}

static bool touches(const struct stream *stream, device_set memory)
{
	const struct op *op;
	STAILQ_FOREACH(op, &stream->ops, entry)
		if (op->touches & memory)
			return true;
	return false;
}

static bool is_idle(device_set its, device_set memory)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if ((its & device_bit(stream->context->ordinal) && !STAILQ_EMPTY(&stream->ops)) ||
		    touches(stream, memory))
			return false;
	return true;
}

static bool is_context_idle(const struct context *context)
{
	const struct stream *stream;
	TAILQ_FOREACH(stream, &streams, entry)
		if (stream->context == context && !STAILQ_EMPTY(&stream->ops))
			return false;
	return true;
}

CUresult stream_drain_all(const struct context *context)
{
	while (!is_context_idle(context) && call_stuck(context->ordinal) == CUDA_SUCCESS)
		call_wait();
	return call_stuck(context->ordinal);
}

CUresult queue_drain(device_set set, int owner)
{
	while (!is_idle(set, set) && call_stuck(owner) == CUDA_SUCCESS)
		call_wait();
	return call_stuck(owner);
}

/* ---- Entry points ------------------------------------------------------------------------------------- */

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
