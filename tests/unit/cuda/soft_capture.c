/* SPDX-License-Identifier: Apache-2.0 */
/* Capture and graphs of the stand-in driver: what a replay does, what a capture refuses, and what lives how
 * long.
 */
#include "soft.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/softgpu/live.h"

#define SIZE         4096
#define GLOBAL       CU_STREAM_CAPTURE_MODE_GLOBAL
#define THREAD_LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED      CU_STREAM_CAPTURE_MODE_RELAXED
#define REFUSED      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

/* The engine's table does not have all of these calls. */
#define OK(call)            soft_expect(call, CUDA_SUCCESS, #call, __LINE__)
#define FAILS(call, wanted) soft_expect(call, wanted, #call, __LINE__)

static void set_up(void);
static void tear_down(void);

TestSuite(soft_capture, .init = soft_open, .fini = soft_close, .timeout = 60);
TestSuite(soft_capture_rule, .init = set_up, .fini = tear_down, .timeout = 60);
TestSuite(soft_capture_fault, .timeout = 60);

static CUgraphExec end_capture(CUstream stream)
{
	CUgraph graph = NULL;
	CUgraphExec instance = NULL;
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&instance, graph, 0));
	OK(cuGraphDestroy(graph));
	return instance;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	OK(cuStreamIsCapturing(stream, &status));
	return status;
}

/* A capture that came to nothing. */
static void end_invalid(CUstream stream, const char *name)
{
	CUgraph graph = (CUgraph)&graph;
	cr_expect_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED, "%s", name);
	cr_expect_eq(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "%s", name);
	cr_expect_null(graph, "%s", name);
	cr_expect_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE, "%s", name);
}

/* ---- Replays ------------------------------------------------------------------------------------------- */

/* Host memory that is registered, to a, by a kernel to b, and to the host again. */
Test(soft_capture, replays_move_what_is_there)
{
	static _Alignas(4096) unsigned char from[SIZE], to[SIZE];
	CUdeviceptr a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream stream = soft_stream(), other = soft_stream();
	expect_ok(cuMemHostRegister(from, SIZE, 0));
	expect_ok(cuMemHostRegister(to, SIZE, 0));
	memset(from, 9, SIZE);
	OK(cuStreamBeginCapture(stream, GLOBAL));
	expect_ok(cuMemcpyHtoDAsync(a, from, SIZE, stream));
	cr_expect_eq(soft_launch(stream, b, a, SIZE), CUDA_SUCCESS);
	expect_ok(cuMemcpyDtoHAsync(to, b, SIZE, stream));
	expect_ok(cuMemsetD8Async(b, 77, SIZE, stream));
	CUgraphExec instance = end_capture(stream);
	expect_ok(cuStreamSynchronize(stream));
	cr_expect_eq(to[0], 0, "the capture ran what it captured");
	for (unsigned char i = 1; i <= 20; i++) {
		CUstream in = i % 2 ? stream : other;
		memset(from, i, SIZE);
		OK(cuGraphLaunch(instance, in));
		expect_ok(cuStreamSynchronize(in));
		cr_expect(to[0] == i && to[SIZE - 1] == i, "replay %d moved %d", i, to[0]);
		cr_expect(soft_is(b, SIZE, 77), "replay %d", i);
	}
	OK(cuGraphExecDestroy(instance));
	FAILS(cuGraphLaunch(instance, stream), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemHostUnregister(from));
	expect_ok(cuMemHostUnregister(to));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuStreamDestroy(other));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* Launches of one instance in different streams follow each other in the order of the calls. */
Test(soft_capture, an_instance_runs_one_launch_at_a_time)
{
	CUdeviceptr words = soft_memory(SIZE, 0), a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream first = soft_stream(), second = soft_stream();
	OK(cuStreamBeginCapture(first, GLOBAL));
	expect_ok(cuMemcpyDtoDAsync(b, a, SIZE, first));
	expect_ok(cuMemsetD8Async(a, 5, SIZE, first));
	CUgraphExec instance = end_capture(first);
	OK(cuStreamWaitValue64(first, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuGraphLaunch(instance, first));
	OK(cuGraphLaunch(instance, second));
	FAILS(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
	__atomic_store_n((uint64_t *)words, 1, __ATOMIC_RELEASE);
	expect_ok(cuStreamSynchronize(second));
	OK(cuStreamQuery(second));
	cr_expect(soft_is(b, SIZE, 5), "the second launch did not wait for the first");
	OK(cuGraphExecDestroy(instance));
	expect_ok(cuStreamDestroy(first));
	expect_ok(cuStreamDestroy(second));
	expect_ok(cuMemFree(words));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* A second stream joins by an event, waits there for a word that the first one writes later, and comes back.
 */
Test(soft_capture, events_fork_and_join)
{
	CUdeviceptr words = soft_memory(SIZE, 0), a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream stream = soft_stream(), side = soft_stream();
	CUevent fork = soft_event(), join = soft_event();
	OK(cuStreamBeginCapture(stream, GLOBAL));
	expect_ok(cuMemsetD8Async(a, 1, SIZE, stream));
	expect_ok(cuEventRecord(fork, stream));
	cr_expect_eq(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
	expect_ok(cuStreamWaitEvent(side, fork, 0));
	cr_expect_eq(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuStreamWaitValue64(side, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
	expect_ok(cuMemcpyDtoDAsync(b, a, SIZE, side));
	expect_ok(cuEventRecord(join, side));
	expect_ok(cuStreamWriteValue64(stream, words, 1, 0));
	expect_ok(cuStreamWaitEvent(stream, join, 0));
	expect_ok(cuMemsetD8Async(a, 2, SIZE, stream));
	CUgraphExec instance = end_capture(stream);
	cr_expect_eq(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
	for (int i = 0; i < 20; i++) {
		expect_ok(cuMemsetD8Async(words, 0, 8, stream));
		expect_ok(cuMemsetD8Async(b, 0, SIZE, stream));
		OK(cuGraphLaunch(instance, stream));
		expect_ok(cuStreamSynchronize(stream));
		cr_expect(soft_is(a, SIZE, 2) && soft_is(b, SIZE, 1), "replay %d", i);
	}
	OK(cuGraphExecDestroy(instance));
	expect_ok(cuEventDestroy(fork));
	expect_ok(cuEventDestroy(join));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuStreamDestroy(side));
	expect_ok(cuMemFree(words));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* The Nth launch that faults may be one of a replay. */
Test(soft_capture_fault, a_replay_can_fault)
{
	soft_set("SOFTGPU_FAULT=2");
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	OK(cuStreamBeginCapture(stream, GLOBAL));
	cr_expect_eq(soft_launch(stream, memory, memory, 16), CUDA_SUCCESS);
	CUgraphExec instance = end_capture(stream);
	OK(cuGraphLaunch(instance, stream));
	expect_ok(cuStreamSynchronize(stream));
	OK(cuGraphLaunch(instance, stream));
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuGraphExecDestroy(instance));
	device_close(&soft);
	driver_close();
}

/* ---- What a capture refuses ---------------------------------------------------------------------------- */

/* What the calls of the tables work on. */
static struct {
	CUstream stream, other;
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
	soft_close();
}

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

/* Does it, and undoes what was done. */
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

/* A thread that calls, in a mode of its own. */
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

/* ---- User objects ---------------------------------------------------------------------------------------
 */

struct watched {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int destroyed;
	CUresult result; /* of a call there */
	pthread_t thread;
};

static void on_destroy(void *arg)
{
	struct watched *watched = arg;
	pthread_mutex_lock(&watched->lock);
	watched->destroyed++;
	watched->result = cuStreamQuery(NULL);
	watched->thread = pthread_self();
	pthread_cond_signal(&watched->changed);
	pthread_mutex_unlock(&watched->lock);
}

static int destroyed(struct watched *watched, int wanted)
{
	pthread_mutex_lock(&watched->lock);
	while (watched->destroyed < wanted)
		pthread_cond_wait(&watched->changed, &watched->lock);
	int n = watched->destroyed;
	pthread_mutex_unlock(&watched->lock);
	return n;
}

/* It is attached while the capture goes on; the graph goes first, then its instance, and last a launch that
 * is held up. */
Test(soft_capture, objects_live_as_long_as_launches)
{
	static struct watched watched = { .lock = PTHREAD_MUTEX_INITIALIZER,
		                          .changed = PTHREAD_COND_INITIALIZER };
	CUdeviceptr words = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	CUstreamCaptureStatus status;
	CUuserObject object;
	CUgraph graph;
	cuuint64_t id = 0;
	FAILS(cuUserObjectCreate(&object, &watched, on_destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuUserObjectCreate(&object, &watched, on_destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuStreamBeginCapture(stream, GLOBAL));
	OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL));
	cr_expect(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id > 0);
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	FAILS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamWaitValue64(stream, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
	CUgraphExec instance = end_capture(stream);
	OK(cuGraphLaunch(instance, stream));
	OK(cuGraphExecDestroy(instance));
	cr_expect_eq(destroyed(&watched, 0), 0);
	__atomic_store_n((uint64_t *)words, 1, __ATOMIC_RELEASE);
	cr_expect_eq(destroyed(&watched, 1), 1);
	cr_expect_not(pthread_equal(watched.thread, pthread_self()));
	cr_expect_eq(watched.result, CUDA_ERROR_NOT_PERMITTED);
	expect_ok(cuStreamSynchronize(stream));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(words));
}

/* Without MOVE the caller keeps its reference; a capture that fails gives up the graph's. */
Test(soft_capture, objects_of_a_failed_capture)
{
	static struct watched watched = { .lock = PTHREAD_MUTEX_INITIALIZER,
		                          .changed = PTHREAD_COND_INITIALIZER };
	CUstream stream = soft_stream();
	CUstreamCaptureStatus status;
	CUuserObject object;
	CUgraph graph;
	OK(cuUserObjectCreate(&object, &watched, on_destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuStreamBeginCapture(stream, GLOBAL));
	OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL));
	OK(cuGraphRetainUserObject(graph, object, 2, 0));
	expect_result(cuStreamSynchronize(stream), REFUSED);
	end_invalid(stream, "a failed capture");
	cr_expect_eq(destroyed(&watched, 0), 0);
	OK(cuUserObjectRelease(object, 1));
	cr_expect_eq(destroyed(&watched, 1), 1);
	expect_ok(cuStreamDestroy(stream));
}
