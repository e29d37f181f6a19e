/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which calls the stand-in driver refuses because of a capture, and that it then invalidates the
 * capture. */
#include "soft.h"

#include <pthread.h>
#include <stdlib.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define SIZE         4096
#define GLOBAL       CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED      CU_STREAM_CAPTURE_MODE_RELAXED
#define REFUSED      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

/* The engine's driver table lacks some of these calls. */
#define OK(call)            soft_expect(call, CUDA_SUCCESS, #call, __LINE__)
#define FAILS(call, wanted) soft_expect(call, wanted, #call, __LINE__)

static void set_up(void);
static void tear_down(void);

TestSuite(soft_capture_rule, .init = set_up, .fini = tear_down, .timeout = 60);

static CUstreamCaptureStatus status_of(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	OK(cuStreamIsCapturing(stream, &status));
	return status;
}

/* Ends a capture that was invalidated, which gives no graph. */
static void end_invalid(CUstream stream, const char *name)
{
	CUgraph graph = (CUgraph)&graph;
	cr_expect_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED, "%s", name);
	cr_expect_eq(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "%s", name);
	cr_expect_null(graph, "%s", name);
	cr_expect_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE, "%s", name);
}

/* Objects that the calls of the tables use. */
static struct {
	CUstream stream, other, blocking;
	CUevent event, captured;
	CUdeviceptr memory;
	unsigned char *host;
	unsigned char *registered;
} at;

static void set_up(void)
{
	soft_open();
	at.stream = soft_stream();
	at.other = soft_stream();
	expect_ok(cuStreamCreateWithPriority(&at.blocking, CU_STREAM_DEFAULT, 0));
	at.event = soft_event();
	at.captured = soft_event();
	at.memory = soft_memory(SIZE, 0);
	cr_assert_eq(posix_memalign((void **)&at.host, SIZE, SIZE), 0);
	cr_assert_eq(posix_memalign((void **)&at.registered, SIZE, SIZE), 0);
	expect_ok(cuMemHostRegister(at.registered, SIZE, 0));
	expect_ok(cuEventRecord(at.event, at.other));
	expect_ok(cuStreamSynchronize(at.other));
}

static void tear_down(void)
{
	expect_ok(cuMemHostUnregister(at.registered));
	free(at.host);
	free(at.registered);
	expect_ok(cuMemFree(at.memory));
	expect_ok(cuEventDestroy(at.event));
	expect_ok(cuEventDestroy(at.captured));
	expect_ok(cuStreamDestroy(at.stream));
	expect_ok(cuStreamDestroy(at.other));
	expect_ok(cuStreamDestroy(at.blocking));
	soft_close();
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

enum unsafe {
	UNSAFE_ALLOC,
	UNSAFE_FREE,
	UNSAFE_REGISTER,
	UNSAFE_UNREGISTER,
	UNSAFE_LOAD,
	UNSAFE_UNLOAD,
	UNSAFE_EVENT_QUERY,
	UNSAFE_EVENT_SYNCHRONIZE,
	UNSAFE_STREAM_QUERY,
	UNSAFE_STREAM_SYNCHRONIZE,
	UNSAFE_CONTEXT_SYNCHRONIZE,
	UNSAFE_POOL,
	UNSAFES
};

static const char *const unsafe_names[UNSAFES] = {
	[UNSAFE_ALLOC] = "cuMemAlloc",
	[UNSAFE_FREE] = "cuMemFree",
	[UNSAFE_REGISTER] = "cuMemHostRegister",
	[UNSAFE_UNREGISTER] = "cuMemHostUnregister",
	[UNSAFE_LOAD] = "cuModuleLoadData",
	[UNSAFE_UNLOAD] = "cuModuleUnload",
	[UNSAFE_EVENT_QUERY] = "cuEventQuery",
	[UNSAFE_EVENT_SYNCHRONIZE] = "cuEventSynchronize",
	[UNSAFE_STREAM_QUERY] = "cuStreamQuery",
	[UNSAFE_STREAM_SYNCHRONIZE] = "cuStreamSynchronize",
	[UNSAFE_CONTEXT_SYNCHRONIZE] = "cuCtxSynchronize",
	[UNSAFE_POOL] = "cuMemPoolCreate",
};

static const CUmemPoolProps pool_properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                        .location.type = CU_MEM_LOCATION_TYPE_DEVICE };

/* Makes the call and undoes what it did. */
static CUresult call_unsafe(enum unsafe unsafe)
{
	static const uint32_t image[4] = { 0xba55ed50u };
	static CUdeviceptr memory;
	static CUmodule module;
	CUmemoryPool pool;
	CUresult result;
	switch (unsafe) {
	case UNSAFE_ALLOC:
		return cuMemAlloc(&memory, SIZE);
	case UNSAFE_FREE:
		return cuMemFree(memory);
	case UNSAFE_REGISTER:
		return cuMemHostRegister(at.host, SIZE, 0);
	case UNSAFE_UNREGISTER:
		return cuMemHostUnregister(at.host);
	case UNSAFE_LOAD:
		return cuModuleLoadData(&module, image);
	case UNSAFE_UNLOAD:
		return cuModuleUnload(module);
	case UNSAFE_EVENT_QUERY:
		return cuEventQuery(at.event);
	case UNSAFE_EVENT_SYNCHRONIZE:
		return cuEventSynchronize(at.event);
	case UNSAFE_STREAM_QUERY:
		return cuStreamQuery(at.other);
	case UNSAFE_STREAM_SYNCHRONIZE:
		return cuStreamSynchronize(at.other);
	case UNSAFE_CONTEXT_SYNCHRONIZE:
		return cuCtxSynchronize();
	default:
		result = cuMemPoolCreate(&pool, &pool_properties);
		return result ?: cuMemPoolDestroy(pool);
	}
}

Test(soft_capture_rule, unsafe_calls)
{
	for (int i = 0; i < UNSAFES; i++) {
		OK(cuStreamBeginCapture(at.stream, GLOBAL));
		CUresult result = call_unsafe((enum unsafe)i);
		cr_expect_eq(result, REFUSED, "%s: %d", unsafe_names[i], (int)result);
		cr_expect_eq(driver.cuMemsetD8Async(at.memory, 1, SIZE, at.stream),
		             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "%s", unsafe_names[i]);
		end_invalid(at.stream, unsafe_names[i]);
	}
	cr_expect(soft_is(at.memory, SIZE, 0));
}

/* A thread that makes all unsafe calls in a capture mode of its own. */
struct caller {
	CUstreamCaptureMode mode;
	CUresult results[UNSAFES];
};

static void *call_all(void *arg)
{
	struct caller *caller = arg;
	CUstreamCaptureMode mode = caller->mode;
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	cr_expect_eq(mode, GLOBAL, "a thread's first mode is %d", (int)mode);
	expect_ok(cuCtxSetCurrent(soft.context));
	for (int i = 0; i < UNSAFES; i++)
		caller->results[i] = call_unsafe((enum unsafe)i);
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	cr_expect_eq(mode, caller->mode);
	return NULL;
}

struct mode_row {
	char name[80];
	CUstreamCaptureMode capture;
	CUstreamCaptureMode thread;
	bool same_thread;
	CUresult result;
};

ParameterizedTestParameters(soft_capture_rule, modes)
{
	static struct mode_row rows[] = {
		{ "global capture, global thread", GLOBAL, GLOBAL, true, REFUSED },
		{ "global capture, local thread", GLOBAL, THREAD_LOCAL, true, REFUSED },
		{ "global capture, relaxed thread", GLOBAL, RELAXED, true, CUDA_SUCCESS },
		{ "global capture, other global thread", GLOBAL, GLOBAL, false, REFUSED },
		{ "global capture, other local thread", GLOBAL, THREAD_LOCAL, false, CUDA_SUCCESS },
		{ "global capture, other relaxed thread", GLOBAL, RELAXED, false, CUDA_SUCCESS },
		{ "local capture, global thread", THREAD_LOCAL, GLOBAL, true, REFUSED },
		{ "local capture, other global thread", THREAD_LOCAL, GLOBAL, false, CUDA_SUCCESS },
		{ "relaxed capture, global thread", RELAXED, GLOBAL, true, CUDA_SUCCESS },
		{ "relaxed capture, other global thread", RELAXED, GLOBAL, false, CUDA_SUCCESS },
	};
	return cr_make_param_array(struct mode_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct mode_row *row, soft_capture_rule, modes)
{
	struct caller caller = { .mode = row->thread };
	pthread_t thread;
	CUgraph graph;
	OK(cuStreamBeginCapture(at.stream, row->capture));
	if (row->same_thread) {
		call_all(&caller);
	} else {
		cr_assert_eq(pthread_create(&thread, NULL, call_all, &caller), 0);
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < UNSAFES; i++)
		cr_expect_eq(caller.results[i], row->result, "%s: %s: %d", row->name, unsafe_names[i],
		             (int)caller.results[i]);
	if (row->result != CUDA_SUCCESS) {
		end_invalid(at.stream, row->name);
		return;
	}
	cr_expect_eq(status_of(at.stream), CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s", row->name);
	OK(cuStreamEndCapture(at.stream, &graph));
	OK(cuGraphDestroy(graph));
}

/* ---- Streams and events ---------------------------------------------------------------------------------
 */

enum conflict {
	CONFLICT_SYNCHRONIZE,
	CONFLICT_QUERY,
	CONFLICT_EVENT_QUERY,
	CONFLICT_EVENT_SYNCHRONIZE,
	CONFLICT_PAGEABLE,
	CONFLICT_OUTSIDE,
	CONFLICT_LEGACY_SET,
	CONFLICT_LEGACY_LAUNCH,
	CONFLICT_LEGACY_RECORD,
	CONFLICT_LEGACY_SYNCHRONIZE,
	CONFLICT_LEGACY_WAIT,
	CONFLICT_MERGE,
};

struct conflict_row {
	char name[64];
	enum conflict conflict;
	CUresult result;
};

ParameterizedTestParameters(soft_capture_rule, conflicts)
{
	static struct conflict_row rows[] = {
		{ "synchronize with the stream", CONFLICT_SYNCHRONIZE, REFUSED },
		{ "query the stream", CONFLICT_QUERY, REFUSED },
		{ "query an event of it", CONFLICT_EVENT_QUERY, CUDA_ERROR_CAPTURED_EVENT },
		{ "synchronize with an event of it", CONFLICT_EVENT_SYNCHRONIZE, CUDA_ERROR_CAPTURED_EVENT },
		{ "copy from pageable memory", CONFLICT_PAGEABLE, REFUSED },
		{ "wait for an event outside", CONFLICT_OUTSIDE, CUDA_ERROR_STREAM_CAPTURE_ISOLATION },
		{ "set in the legacy stream", CONFLICT_LEGACY_SET, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
		{ "launch in the legacy stream", CONFLICT_LEGACY_LAUNCH, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
		{ "record in the legacy stream", CONFLICT_LEGACY_RECORD, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
		{ "synchronize with the legacy stream", CONFLICT_LEGACY_SYNCHRONIZE,
		  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
		{ "the legacy stream waits", CONFLICT_LEGACY_WAIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT },
		{ "join two captures", CONFLICT_MERGE, CUDA_ERROR_STREAM_CAPTURE_MERGE },
	};
	return cr_make_param_array(struct conflict_row, rows, sizeof rows / sizeof *rows);
}

/* at.captured has been recorded in the blocking stream, which is being captured. */
static CUresult call_conflict(enum conflict conflict)
{
	switch (conflict) {
	case CONFLICT_SYNCHRONIZE:
		return cuStreamSynchronize(at.blocking);
	case CONFLICT_QUERY:
		return cuStreamQuery(at.blocking);
	case CONFLICT_EVENT_QUERY:
		return cuEventQuery(at.captured);
	case CONFLICT_EVENT_SYNCHRONIZE:
		return cuEventSynchronize(at.captured);
	case CONFLICT_PAGEABLE:
		return cuMemcpyHtoDAsync(at.memory, at.host, SIZE, at.blocking);
	case CONFLICT_OUTSIDE:
		return cuStreamWaitEvent(at.blocking, at.event, 0);
	case CONFLICT_LEGACY_SET:
		return cuMemsetD8Async(at.memory, 1, SIZE, NULL);
	case CONFLICT_LEGACY_LAUNCH:
		return soft_launch(CU_STREAM_LEGACY, at.memory, at.memory, 16);
	case CONFLICT_LEGACY_RECORD:
		return cuEventRecord(at.event, NULL);
	case CONFLICT_LEGACY_SYNCHRONIZE:
		return cuStreamSynchronize(NULL);
	case CONFLICT_LEGACY_WAIT:
		return cuStreamWaitEvent(NULL, at.captured, 0);
	default:
		return cuStreamWaitEvent(at.stream, at.captured, 0);
	}
}

/* The modes of the capture and of the thread prohibit no calls; these conflict with the capture itself. */
ParameterizedTest(struct conflict_row *row, soft_capture_rule, conflicts)
{
	CUstreamCaptureMode mode = RELAXED;
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuStreamBeginCapture(at.blocking, RELAXED));
	expect_ok(cuEventRecord(at.captured, at.blocking));
	if (row->conflict == CONFLICT_MERGE)
		OK(cuStreamBeginCapture(at.stream, RELAXED));
	CUresult result = call_conflict(row->conflict);
	cr_expect_eq(result, row->result, "%s: %d", row->name, (int)result);
	if (row->conflict == CONFLICT_MERGE)
		FAILS(cuStreamEndCapture(at.stream, &(CUgraph){ NULL }),
		      CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	cr_expect_eq(driver.cuMemsetD8Async(at.memory, 1, SIZE, at.blocking),
	             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "%s", row->name);
	FAILS(cuStreamEndCapture(at.blocking, &(CUgraph){ NULL }), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	expect_ok(cuStreamSynchronize(at.blocking));
	FAILS(cuEventQuery(at.captured), CUDA_ERROR_CAPTURED_EVENT);
	cr_expect(soft_is(at.memory, SIZE, 0), "%s", row->name);
}

/* A query does not invalidate a capture. */
Test(soft_capture_rule, questions)
{
	CUstreamCaptureStatus status;
	cuuint64_t id = 0, other = 0;
	CUgraph graph;
	OK(cuStreamBeginCapture(at.blocking, GLOBAL));
	FAILS(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	FAILS(cuStreamGetCaptureInfo(NULL, &status, NULL, NULL, NULL, NULL, NULL),
	      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	OK(cuStreamGetCaptureInfo(at.blocking, &status, &id, NULL, NULL, NULL, NULL));
	cr_expect_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	cr_expect_eq(status_of(at.stream), CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamEndCapture(at.blocking, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuStreamIsCapturing(NULL, &status));
	OK(cuStreamBeginCapture(at.blocking, GLOBAL));
	OK(cuStreamGetCaptureInfo(at.blocking, &status, &other, NULL, NULL, NULL, NULL));
	cr_expect(id > 0 && id != other, "captures have the ids %lu and %lu", (long)id, (long)other);
	OK(cuStreamEndCapture(at.blocking, &graph));
	OK(cuGraphDestroy(graph));
}

/* The legacy stream can be used while a non-blocking stream is captured. */
Test(soft_capture_rule, the_legacy_stream_beside_a_capture)
{
	CUgraph graph;
	OK(cuStreamBeginCapture(at.stream, RELAXED));
	expect_ok(cuMemsetD8Async(at.memory, 1, SIZE, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	OK(cuStreamEndCapture(at.stream, &graph));
	OK(cuGraphDestroy(graph));
	cr_expect(soft_is(at.memory, SIZE, 1));
}

/* ---- Begin and end ---------------------------------------------------------------------------------------
 */

static void *end_there(void *ret)
{
	CUgraph graph = NULL;
	expect_ok(cuCtxSetCurrent(soft.context));
	*(CUresult *)ret = cuStreamEndCapture(at.stream, &graph);
	if (graph)
		OK(cuGraphDestroy(graph));
	return NULL;
}

static CUresult end_in_a_thread(void)
{
	CUresult result = CUDA_SUCCESS;
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, end_there, &result), 0);
	pthread_join(thread, NULL);
	return result;
}

Test(soft_capture_rule, beginning_and_ending)
{
	CUgraph graph = NULL;
	FAILS(cuStreamBeginCapture(NULL, GLOBAL), REFUSED);
	FAILS(cuStreamEndCapture(at.stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuStreamBeginCapture(at.stream, THREAD_LOCAL));
	FAILS(cuStreamBeginCapture(at.stream, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	FAILS(end_in_a_thread(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	OK(cuStreamEndCapture(at.stream, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuStreamBeginCapture(at.stream, RELAXED));
	OK(end_in_a_thread());
}

/* A stream that has joined a capture cannot end it, and has to be joined back. */
Test(soft_capture_rule, a_fork_is_joined)
{
	CUgraph graph = NULL;
	OK(cuStreamBeginCapture(at.stream, GLOBAL));
	expect_ok(cuEventRecord(at.captured, at.stream));
	expect_ok(cuStreamWaitEvent(at.other, at.captured, 0));
	FAILS(cuStreamEndCapture(at.other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	expect_ok(cuMemsetD8Async(at.memory, 1, SIZE, at.other));
	expect_ok(cuEventRecord(at.captured, at.other));
	expect_ok(cuStreamWaitEvent(at.stream, at.captured, 0));
	expect_ok(cuMemsetD8Async(at.memory, 1, SIZE, at.other));
	FAILS(cuStreamEndCapture(at.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	cr_expect_null(graph);
	cr_expect_eq(status_of(at.other), CU_STREAM_CAPTURE_STATUS_NONE);
}

Test(soft_capture_rule, a_stream_that_is_destroyed)
{
	CUstream stream = soft_stream();
	OK(cuStreamBeginCapture(at.stream, GLOBAL));
	expect_ok(cuEventRecord(at.captured, at.stream));
	expect_ok(cuStreamWaitEvent(stream, at.captured, 0));
	expect_ok(cuStreamDestroy(stream));
	end_invalid(at.stream, "a joined stream is gone");
	stream = soft_stream();
	OK(cuStreamBeginCapture(stream, GLOBAL));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuStreamSynchronize(at.stream));
}
