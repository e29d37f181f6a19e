/* SPDX-License-Identifier: Apache-2.0 */
/* Stream captures: which streams take part in one, what a thread may call meanwhile, and how events extend a
 * capture from one stream to the next. The rules are those that cuda.h states at cuStreamBeginCapture and
 * cuThreadExchangeStreamCaptureMode. An invalidated capture prohibits the same calls as before until it is
 * ended. */
#include "capture.h"

#include <stdlib.h>

#include "call.h"
#include "softgpu.h"

struct lane {
	struct stream *stream; /* NULL once the stream is destroyed */
	unsigned nodes;
	unsigned seen[MOST_LANES]; /* how many nodes of each lane precede the stream's next node */
};

struct capture {
	TAILQ_ENTRY(capture) entry;
	uint64_t id;     /* unique among the captures of the process */
	uint64_t thread; /* the thread that began the capture */
	CUstreamCaptureMode mode;
	bool is_invalid;
	struct graph *graph;
	unsigned lanes;
	struct lane lane[MOST_LANES];
};

static TAILQ_HEAD(, capture) captures = TAILQ_HEAD_INITIALIZER(captures);
static uint64_t last_id;
static uint64_t last_thread;

/* Aligned for clang's leak checker; context.c explains why. */
static _Thread_local _Alignas(64) struct {
	uint64_t id; /* id of this thread; 0 until it is first needed */
	CUstreamCaptureMode mode;
} thread;

static uint64_t thread_id(void)
{
	if (thread.id == 0)
		thread.id = ++last_thread;
	return thread.id;
}

static struct capture *find(uint64_t id)
{
	struct capture *capture;
	TAILQ_FOREACH(capture, &captures, entry)
		if (capture->id == id)
			return capture;
	return NULL;
}

/* ---- What is refused ---------------------------------------------------------------------------------- */

static CUresult invalidate(struct capture *capture, CUresult result)
{
	if (capture)
		capture->is_invalid = true;
	return result;
}

static bool prohibits(const struct capture *capture)
{
	if (thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->thread == thread_id())
		return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
	return thread.mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_thread(void)
{
	struct capture *capture;
	CUresult result = CUDA_SUCCESS;
	TAILQ_FOREACH(capture, &captures, entry)
		if (prohibits(capture))
			result = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return result;
}

/* Returns whether a stream of the capture synchronizes with the legacy stream. */
static bool is_with_legacy(const struct capture *capture, const struct stream *legacy)
{
	for (unsigned i = 0; i < capture->lanes; i++) {
		const struct stream *stream = capture->lane[i].stream;
		if (stream && stream->is_blocking && stream->context == legacy->context)
			return true;
	}
	return false;
}

static CUresult check_legacy(const struct stream *stream, bool invalidates)
{
	struct capture *capture;
	CUresult result = CUDA_SUCCESS;
	if (!stream->is_legacy)
		return CUDA_SUCCESS;
	TAILQ_FOREACH(capture, &captures, entry)
		if (is_with_legacy(capture, stream))
			result = invalidate(invalidates ? capture : NULL, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	return result;
}

CUresult capture_check(const struct stream *stream)
{
	CUresult result = check_legacy(stream, true);
	if (result != CUDA_SUCCESS)
		return result;
	return stream->capture && stream->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	                                                      : CUDA_SUCCESS;
}

CUresult capture_refuse(const struct stream *stream)
{
	return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult capture_check_wait(const struct stream *stream)
{
	return check_legacy(stream, true) ?: stream->capture ? capture_refuse(stream) : CUDA_SUCCESS;
}

CUresult capture_check_mark(const struct mark *mark)
{
	return mark && mark->moment ? invalidate(find(mark->moment->capture), CUDA_ERROR_CAPTURED_EVENT)
	                            : CUDA_SUCCESS;
}

/* ---- Nodes -------------------------------------------------------------------------------------------- */

static struct lane *lane_of(const struct stream *stream)
{
	return &stream->capture->lane[stream->lane];
}

/* Event records and waits become no nodes of their own: they only determine which nodes precede which. */
void capture_push(struct stream *stream, struct op *op)
{
	struct lane *lane = lane_of(stream);
	if (!op->after && !op->reaches)
		lane->seen[stream->lane] = ++lane->nodes;
	graph_add(stream->capture->graph, op, stream->lane);
}

CUresult capture_record(struct stream *stream, struct mark *mark)
{
	struct moment *moment = malloc(sizeof *moment);
	if (!moment)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*moment =
	    (struct moment){ .capture = stream->capture->id, .slot = graph_add_mark(stream->capture->graph) };
	for (unsigned i = 0; i < MOST_LANES; i++)
		moment->seen[i] = lane_of(stream)->seen[i];
	mark->moment = moment;
	return CUDA_SUCCESS;
}

static CUresult join(struct capture *capture, struct stream *stream)
{
	if (capture->lanes == MOST_LANES)
		return invalidate(capture, CUDA_ERROR_NOT_SUPPORTED);
	stream->capture = capture;
	stream->lane = capture->lanes++;
	*lane_of(stream) = (struct lane){ .stream = stream };
	graph_add_lane(capture->graph, stream);
	return CUDA_SUCCESS;
}

/* A captured stream cannot wait for work outside its capture. */
static CUresult check_boundary(const struct stream *stream, const struct mark *mark)
{
	if (!mark->moment)
		return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	struct capture *capture = find(mark->moment->capture);
	if (!capture)
		return invalidate(stream->capture, CUDA_ERROR_CAPTURED_EVENT);
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->is_legacy)
		return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (!stream->capture || stream->capture == capture)
		return CUDA_SUCCESS;
	invalidate(stream->capture, CUDA_SUCCESS);
	return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
}

CUresult capture_wait(struct stream *stream, const struct mark *mark)
{
	CUresult result = check_boundary(stream, mark);
	if (result == CUDA_SUCCESS && !stream->capture)
		result = join(find(mark->moment->capture), stream);
	if (result != CUDA_SUCCESS)
		return result;
	struct lane *lane = lane_of(stream);
	for (unsigned i = 0; i < MOST_LANES; i++)
		if (lane->seen[i] < mark->moment->seen[i])
			lane->seen[i] = mark->moment->seen[i];
	return CUDA_SUCCESS;
}

/* ---- Begin and end ------------------------------------------------------------------------------------- */

static CUresult capture_begin(struct stream *stream, CUstreamCaptureMode mode)
{
	struct capture *capture = malloc(sizeof *capture);
	struct graph *graph = graph_new();
	if (!capture || !graph) {
		free(capture);
		graph_free(graph);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*capture = (struct capture){ .id = ++last_id, .thread = thread_id(), .mode = mode, .graph = graph };
	TAILQ_INSERT_TAIL(&captures, capture, entry);
	return join(capture, stream);
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode)
{
	struct stream *stream = stream_find(handle);
	CUresult result = stream_fails(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->is_legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return stream->capture ? CUDA_ERROR_ILLEGAL_STATE : capture_begin(stream, mode);
}

/* Returns the captured graph, which the caller then owns. */
static struct graph *capture_free(struct capture *capture)
{
	struct graph *graph = capture->graph;
	for (unsigned i = 0; i < capture->lanes; i++)
		if (capture->lane[i].stream)
			capture->lane[i].stream->capture = NULL;
	TAILQ_REMOVE(&captures, capture, entry);
	free(capture);
	return graph;
}

/* A capture whose first stream is destroyed can no longer be ended, so it is freed. */
void capture_leave(struct stream *stream)
{
	struct capture *capture = stream->capture;
	if (!capture)
		return;
	capture->is_invalid = true;
	lane_of(stream)->stream = NULL;
	stream->capture = NULL;
	if (stream->lane == 0)
		graph_free(capture_free(capture));
}

/* Returns whether all nodes precede the end of the first stream. */
static bool is_joined(const struct capture *capture)
{
	for (unsigned i = 0; i < capture->lanes; i++)
		if (capture->lane[0].seen[i] != capture->lane[i].nodes)
			return false;
	return true;
}

static CUresult end(CUstream handle, CUgraph *ret)
{
	const struct stream *stream = stream_find(handle);
	if (!stream || !ret)
		return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*ret = NULL;
	struct capture *capture = stream->capture;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream->lane != 0)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_id())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	CUresult result = capture->is_invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	                  : !is_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
	                                        : CUDA_SUCCESS;
	struct graph *graph = capture_free(capture);
	if (result != CUDA_SUCCESS) {
		graph_free(graph);
		return result;
	}
	graph_end_capture(graph);
	*ret = (CUgraph)graph;
	return CUDA_SUCCESS;
}

/* ---- Questions ----------------------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(const struct stream *stream)
{
	return !stream->capture              ? CU_STREAM_CAPTURE_STATUS_NONE
	       : stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
	                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult get_status(CUstream handle, CUstreamCaptureStatus *ret, const struct stream **ret_stream)
{
	*ret_stream = stream_find(handle);
	CUresult result = stream_fails(*ret_stream) ?: check_legacy(*ret_stream, false);
	if (result == CUDA_SUCCESS && !ret)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ret = status_of(*ret_stream);
	return result;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *ret)
{
	const struct stream *stream;
	return get_status(handle, ret, &stream);
}

/* The callers never ask for the nodes, so none are reported. */
static CUresult get_info(CUstream handle, CUstreamCaptureStatus *ret, cuuint64_t *ret_id, CUgraph *ret_graph)
{
	const struct stream *stream;
	CUresult result = get_status(handle, ret, &stream);
	if (result != CUDA_SUCCESS || *ret != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	if (ret_id)
		*ret_id = stream->capture->id;
	if (ret_graph)
		*ret_graph = (CUgraph)stream->capture->graph;
	return CUDA_SUCCESS;
}

uint64_t capture_id(const struct stream *stream)
{
	return stream->capture->id;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode old = thread.mode;
	thread.mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	return leave(enter(ENTRY_cuStreamBeginCapture) ?: begin(stream, mode));
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
	return leave(enter(ENTRY_cuStreamEndCapture) ?: end(stream, ret));
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret)
{
	return leave(enter(ENTRY_cuStreamIsCapturing) ?: is_capturing(stream, ret));
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret, cuuint64_t *ret_id,
                                        CUgraph *ret_graph, const CUgraphNode **ret_nodes,
                                        const CUgraphEdgeData **ret_edges, size_t *ret_n)
{
	if (ret_nodes)
		*ret_nodes = NULL;
	if (ret_edges)
		*ret_edges = NULL;
	if (ret_n)
		*ret_n = 0;
	return leave(enter(ENTRY_cuStreamGetCaptureInfo) ?: get_info(stream, ret, ret_id, ret_graph));
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	return leave(enter(ENTRY_cuThreadExchangeStreamCaptureMode) ?: exchange_mode(mode));
}
