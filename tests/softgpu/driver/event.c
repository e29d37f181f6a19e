/* SPDX-License-Identifier: Apache-2.0 */
/* Events. An event holds the mark of its last record; a wait keeps the mark that was current when it was
 * submitted. An event is recorded in streams of its own context, and streams of any context may wait for
 * it. */
#include <stdlib.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"

struct event {
	TAILQ_ENTRY(event) entry;
	struct context *context;
	bool has_time;
	struct mark *mark; /* NULL until the event is first recorded */
};

static TAILQ_HEAD(, event) events = TAILQ_HEAD_INITIALIZER(events);

struct mark *mark_new(void)
{
	struct mark *mark = malloc(sizeof *mark);
	if (mark)
		*mark = (struct mark){ .refs = 1 };
	return mark;
}

void mark_unref(struct mark *mark)
{
	if (!mark || --mark->refs > 0)
		return;
	free(mark->moment);
	free(mark);
}

static struct event *find(CUevent handle)
{
	struct event *event;
	TAILQ_FOREACH(event, &events, entry)
		if ((CUevent)event == handle)
			return event;
	return NULL;
}

size_t event_live(void)
{
	const struct event *event;
	size_t n = 0;
	TAILQ_FOREACH(event, &events, entry)
		n++;
	return n;
}

static CUresult create(CUevent *ret, unsigned int flags)
{
	if (!ret || (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	struct event *event = malloc(sizeof *event);
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*event =
	    (struct event){ .context = context_current(), .has_time = !(flags & CU_EVENT_DISABLE_TIMING) };
	TAILQ_INSERT_HEAD(&events, event, entry);
	*ret = (CUevent)event;
	return CUDA_SUCCESS;
}

static void event_free(struct event *event)
{
	TAILQ_REMOVE(&events, event, entry);
	mark_unref(event->mark);
	free(event);
}

void events_destroy(const struct context *context)
{
	struct event *event, *next;
	for (event = TAILQ_FIRST(&events); event; event = next) {
		next = TAILQ_NEXT(event, entry);
		if (event->context == context)
			event_free(event);
	}
}

static CUresult destroy(CUevent handle)
{
	struct event *event = find(handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = call_stuck(event->context->ordinal);
	if (result != CUDA_SUCCESS)
		return result;
	event_free(event);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream_handle)
{
	struct event *event = find(handle);
	struct stream *stream = stream_find(stream_handle);
	if (!event || !stream || event->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = stream_fails(stream) ?: capture_check(stream);
	if (result != CUDA_SUCCESS)
		return result;
	struct mark *mark = mark_new();
	struct op *op = malloc(sizeof *op);
	if (!mark || !op || (stream->capture && capture_record(stream, mark) != CUDA_SUCCESS)) {
		mark_unref(mark);
		free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mark_unref(event->mark);
	event->mark = mark;
	mark->refs++;
	*op = (struct op){ .reaches = mark };
	stream_push(stream, op);
	return CUDA_SUCCESS;
}

static CUresult wait(CUstream stream_handle, CUevent handle, unsigned int flags)
{
	struct event *event = find(handle);
	struct stream *stream = stream_find(stream_handle);
	if (!event || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags != CU_EVENT_WAIT_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result =
	    stream_fails(stream) ?: call_stuck(event->context->ordinal) ?: capture_check(stream);
	if (result != CUDA_SUCCESS || !event->mark)
		return result;
	struct op *op = malloc(sizeof *op);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (stream->capture || event->mark->moment)
		result = capture_wait(stream, event->mark);
	if (result != CUDA_SUCCESS || event->mark->reached) {
		free(op);
		return result;
	}
	event->mark->refs++;
	*op = (struct op){ .after = event->mark };
	stream_push(stream, op);
	return CUDA_SUCCESS;
}

static CUresult query(CUevent handle)
{
	const struct event *event = find(handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = call_stuck(event->context->ordinal) ?: capture_check_mark(event->mark);
	if (result != CUDA_SUCCESS)
		return result;
	return !event->mark || event->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Keeps its own reference to the mark, because the event may be recorded anew or destroyed during the
 * wait. */
static CUresult synchronize(CUevent handle)
{
	const struct event *event = find(handle);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	int device = event->context->ordinal;
	struct mark *mark = event->mark;
	CUresult result = call_stuck(device) ?: capture_check_mark(mark);
	if (result != CUDA_SUCCESS || !mark)
		return result;
	mark->refs++;
	while (!mark->reached && call_stuck(device) == CUDA_SUCCESS)
		call_wait();
	mark_unref(mark);
	return call_stuck(device);
}

static CUresult elapsed(float *ret_ms, CUevent start_handle, CUevent end_handle)
{
	const struct event *start = find(start_handle), *end = find(end_handle);
	if (!ret_ms)
		return CUDA_ERROR_INVALID_VALUE;
	if (!start || !end || start->context != end->context || !start->has_time || !end->has_time ||
	    !start->mark || !end->mark)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = call_stuck(start->context->ordinal)
	                      ?: capture_check_mark(start->mark) ?: capture_check_mark(end->mark);
	if (result != CUDA_SUCCESS)
		return result;
	if (!start->mark->reached || !end->mark->reached)
		return CUDA_ERROR_NOT_READY;
	*ret_ms = (float)(((double)end->mark->ns - (double)start->mark->ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent *ret, unsigned int flags)
{
	return leave(enter(ENTRY_cuEventCreate) ?: create(ret, flags));
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	return leave(enter(ENTRY_cuEventDestroy) ?: destroy(event));
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
	return leave(enter(ENTRY_cuEventRecord) ?: record(event, stream));
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	return leave(enter(ENTRY_cuStreamWaitEvent) ?: wait(stream, event, flags));
}

CUresult CUDAAPI cuEventQuery(CUevent event)
{
	return leave(enter(ENTRY_cuEventQuery) ?: query(event));
}

CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
	return leave(enter(ENTRY_cuEventSynchronize) ?: synchronize(event));
}

CUresult CUDAAPI cuEventElapsedTime(float *ret_ms, CUevent start, CUevent end)
{
	return leave(enter(ENTRY_cuEventElapsedTime) ?: elapsed(ret_ms, start, end));
}
