/* SPDX-License-Identifier: Apache-2.0 */
/* Tests capture and graphs of the stand-in driver: what a replay does, what a capture refuses, and how long
 * objects live. */
#include "soft.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "tests/softgpu/live.h"

#define SIZE    4096
#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define REFUSED CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

/* The engine's driver table lacks some of these calls. */
#define OK(call)            soft_expect(call, CUDA_SUCCESS, #call, __LINE__)
#define FAILS(call, wanted) soft_expect(call, wanted, #call, __LINE__)

TestSuite(soft_capture, .init = soft_open, .fini = soft_close, .timeout = 60);
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

/* ---- Replays ------------------------------------------------------------------------------------------- */

/* Copies registered host memory to a, a kernel copies a to b, and b goes back to the host. */
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

/* Launches of one instance into different streams run one after the other, in the order of the calls. */
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

/* A second stream joins the capture by an event, waits in it for a word that the first one writes later, and
 * joins back. */
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

/* SOFTGPU_FAULT counts the launches of a replay, too. */
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

/* An instance does not keep the module of its kernels loaded. */
Test(soft_capture_fault, a_replay_needs_its_modules)
{
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	OK(cuStreamBeginCapture(stream, GLOBAL));
	cr_expect_eq(soft_launch(stream, memory, memory, 16), CUDA_SUCCESS);
	CUgraphExec instance = end_capture(stream);
	for (int i = 0; i < UNIT_COUNT; i++)
		expect_ok(cuModuleUnload(soft.module[i]));
	OK(cuGraphLaunch(instance, stream));
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_PC);
	OK(cuGraphExecDestroy(instance));
	memset(soft.module, 0, sizeof soft.module);
	device_close(&soft);
	driver_close();
}

/* ---- Memory of pools ----------------------------------------------------------------------------------- */

static CUmemoryPool new_pool(void)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemoryPool pool = NULL;
	uint64_t threshold = UINT64_MAX;
	OK(cuMemPoolCreate(&pool, &properties));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	FAILS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, NULL), CUDA_ERROR_INVALID_VALUE);
	return pool;
}

static size_t free_bytes(void)
{
	size_t free = 0, total;
	expect_ok(cuMemGetInfo(&free, &total));
	return free;
}

/* Work that the stream holds up can still use memory that is freed after it. */
Test(soft_capture, memory_is_freed_in_stream_order)
{
	CUdeviceptr words = soft_memory(SIZE, 0), to = soft_memory(SIZE, 0), from;
	CUstream stream = soft_stream();
	CUmemoryPool pool = new_pool();
	size_t before = free_bytes();
	OK(cuMemAllocFromPoolAsync(&from, SIZE, pool, stream));
	OK(cuStreamWaitValue64(stream, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
	expect_ok(cuMemsetD8Async(from, 3, SIZE, stream));
	cr_expect_eq(soft_launch(stream, to, from, SIZE), CUDA_SUCCESS);
	OK(cuMemFreeAsync(from, stream));
	FAILS(cuMemFreeAsync(from, stream), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolDestroy(pool));
	cr_expect_eq(free_bytes(), before - SIZE, "it went before its turn");
	__atomic_store_n((uint64_t *)words, 1, __ATOMIC_RELEASE);
	expect_ok(cuStreamSynchronize(stream));
	cr_expect(soft_is(to, SIZE, 3));
	cr_expect_eq(free_bytes(), before);
	expect_result(cuMemsetD8Async(from, 3, SIZE, stream), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(words));
	expect_ok(cuMemFree(to));
}

/* Each replay begins with other bytes than the last one left. A graph that allocates has one instance at a
 * time. */
Test(soft_capture, memory_of_a_graph)
{
	CUdeviceptr first = soft_memory(SIZE, 0), last = soft_memory(SIZE, 0), own, foreign;
	CUstream stream = soft_stream();
	CUmemoryPool pool = new_pool();
	CUgraphExec instance, another;
	CUgraph graph;
	size_t before = free_bytes();
	OK(cuMemAllocFromPoolAsync(&foreign, SIZE, pool, stream));
	OK(cuStreamBeginCapture(stream, GLOBAL));
	OK(cuMemAllocFromPoolAsync(&own, SIZE, pool, stream));
	expect_ok(cuMemcpyDtoDAsync(first, own, SIZE, stream));
	expect_ok(cuMemsetD8Async(own, 4, SIZE, stream));
	cr_expect_eq(soft_launch(stream, last, own, SIZE), CUDA_SUCCESS);
	OK(cuMemFreeAsync(own, stream));
	FAILS(cuMemFreeAsync(own, stream), CUDA_ERROR_INVALID_VALUE);
	FAILS(cuMemFreeAsync(foreign, stream), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamEndCapture(stream, &graph));
	FAILS(cuMemFreeAsync(own, stream), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeAsync(foreign, stream));
	OK(cuGraphInstantiateWithFlags(&instance, graph, 0));
	FAILS(cuGraphInstantiateWithFlags(&another, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	for (int i = 0; i < 3; i++) {
		expect_ok(cuMemsetD8Async(last, 0, SIZE, stream));
		OK(cuGraphLaunch(instance, stream));
		expect_ok(cuStreamSynchronize(stream));
		cr_expect(!soft_is(first, SIZE, 4) && soft_is(last, SIZE, 4), "replay %d", i);
	}
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(instance));
	OK(cuMemPoolDestroy(pool));
	cr_expect_eq(free_bytes(), before);
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(first));
	expect_ok(cuMemFree(last));
}

Test(soft_capture_fault, memory_of_a_graph_is_its_replays)
{
	soft_open();
	CUdeviceptr own;
	CUstream stream = soft_stream();
	CUmemoryPool pool = new_pool();
	OK(cuStreamBeginCapture(stream, GLOBAL));
	OK(cuMemAllocFromPoolAsync(&own, SIZE, pool, stream));
	expect_ok(cuMemsetD8Async(own, 4, SIZE, stream));
	OK(cuMemFreeAsync(own, stream));
	CUgraphExec instance = end_capture(stream);
	OK(cuGraphLaunch(instance, stream));
	expect_ok(cuStreamSynchronize(stream));
	expect_ok(cuMemsetD8Async(own, 4, SIZE, stream));
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuGraphExecDestroy(instance));
	device_close(&soft);
	driver_close();
}

/* ---- User objects ---------------------------------------------------------------------------------------
 */

struct watched {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int destroyed;
	CUresult result; /* result of a call made in the callback */
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

/* The object is attached while the capture goes on. The graph is destroyed first, then its instance, and last
 * a launch ends that was held up. */
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

/* Without the MOVE flag the caller keeps its reference; a capture that fails drops the graph's. */
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
	FAILS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	cr_expect_eq(destroyed(&watched, 0), 0);
	OK(cuUserObjectRelease(object, 1));
	cr_expect_eq(destroyed(&watched, 1), 1);
	expect_ok(cuStreamDestroy(stream));
}
