/* SPDX-License-Identifier: Apache-2.0 */
/* Tests timelines whose words lie in other memory than what is moved, and timelines of requests in
 * streams. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

TestSuite(stream_points, .init = rig_open, .fini = rig_close);

static tma_region *region_of(uint64_t address, size_t size)
{
	tma_region *ret;

	cr_assert_eq(tma_region_from_host_ptr(client, (const void *)address, size, 0, &ret), 0, "%s",
	             tma_last_error(client));
	return ret;
}

static struct tma_order order_of(tma_region *region)
{
	return (struct tma_order){ .wait = { .region = region, .value = 3 },
		                   .signal = { .region = region, .value = 4 },
		                   .wait_ms = 1 };
}

/* The host memory is not pinned. */
Test(stream_points, on_the_device_of_a_move_on_the_host)
{
	const uint32_t src[2] = { 1, 2 };
	uint32_t dst[2] = { 0 };
	uint64_t value = 2;
	const CUdeviceptr word = rig_bytes(8, 0);
	const struct tma_order order = order_of(region_of(word, 8));
	const struct tma_tensor to = matrix((uintptr_t)dst, 1, 2), from = matrix((uintptr_t)src, 1, 2);
	const struct tma_transform t = { .dst = &to, .src = &from, .order = &order };

	rig_put(word, &value, sizeof value);
	cr_assert_eq(tma_transform(client, &t), TMA_TIMEOUT);
	cr_assert_eq(dst[0], 0);
	value = 3;
	rig_put(word, &value, sizeof value);
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(dst, src, sizeof dst), 0);
	rig_get(&value, word, sizeof value);
	cr_assert_eq(value, 4);
}

Test(stream_points, on_the_host_of_a_move_on_the_device)
{
	const CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	uint64_t word = 3;
	const struct tma_order order = order_of(region_of((uintptr_t)&word, sizeof word));
	const struct tma_tensor to = matrix(dst, 7, 5), from = matrix(src, 5, 7);
	const struct tma_transform t = {
		.dst = &to, .src = &from, .perm = (const int[]){ 1, 0 }, .order = &order
	};

	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert_eq(word, 4);
	cr_assert(is_transposed(dst, src, 5, 7));
}

/* ---- In a stream -------------------------------------------------------------------------------------- */

/* A matrix and its transpose, and two words: the stream waits for the first and writes the second. */
struct scene {
	CUdeviceptr src, dst;
	uint64_t words;
	struct tma_order order;
	struct tma_tensor to, from;
};

static struct scene scene_of(uint64_t words)
{
	struct scene ret = { .src = rig_numbers(35), .dst = rig_bytes(35 * 4, 0xee), .words = words };
	tma_region *region = region_of(words, 16);

	ret.to = matrix(ret.dst, 7, 5);
	ret.from = matrix(ret.src, 5, 7);
	ret.order = (struct tma_order){ .wait = { .region = region, .value = 1 },
		                        .signal = { .region = region, .offset = 8, .value = 2 } };
	return ret;
}

static struct tma_transform transform_of(const struct scene *s)
{
	static const int transposed[] = { 1, 0 };

	return (
	    struct tma_transform){ .dst = &s->to, .src = &s->from, .perm = transposed, .order = &s->order };
}

/* Returns words of the host, which this thread accesses without the driver. */
static uint64_t *host_words(void)
{
	uint64_t *ret = aligned_alloc(4096, 4096);

	memset(ret, 0, 4096);
	return ret;
}

static bool has_started(const struct scene *s)
{
	CUstream other;
	uint8_t byte;

	cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	cuda(cuMemcpyDtoHAsync(&byte, s->dst, 1, other));
	cuda(cuStreamSynchronize(other));
	cuda(cuStreamDestroy(other));
	return byte != 0xee;
}

/* Checks that the stream has not gone past the request yet, lets it go, and checks what it has done. */
static void check_released(const struct scene *s, uint64_t *words)
{
	cr_assert_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	cr_assert_not(has_started(s));
	cr_assert_eq(words[1], 0);
	cr_assert_eq(tma_point_signal(&words[0], 1), 0);
	cr_assert_eq(tma_point_wait(&words[1], 2, 20000), 0);
	cr_assert(is_transposed(s->dst, s->src, 5, 7));
}

Test(stream_points, of_every_request)
{
	uint64_t *words = host_words();
	struct scene s = scene_of((uintptr_t)words);
	const struct tma_transform t = transform_of(&s);
	struct tma_transform alone = t;
	const struct tma_place dst = { .offset = s.dst }, src = { .offset = s.src };
	const int32_t index = 0;
	const struct tma_blocks blocks = { .transform = &alone,
		                           .count = 1,
		                           .index_dtype = TMA_INT32,
		                           .index = &index,
		                           .limit = 1,
		                           .order = &s.order };
	tma_plan *plan;

	alone.order = NULL;
	cr_assert_eq(tma_plan_prepare(client, &alone, &plan), 0);
	for (int i = 0; i < 4; i++) {
		int rc = i == 0   ? tma_enqueue(client, &t, stream)
		         : i == 1 ? tma_enqueue_run(client, plan, dst, src, &s.order, stream)
		         : i == 2 ? tma_enqueue_gather(client, &blocks, stream)
		                  : tma_enqueue_scatter(client, &blocks, stream);

		cr_assert_eq(rc, 0, "%d: %s", i, tma_last_error(client));
		check_released(&s, words);
		words[0] = words[1] = 0;
		cuda(cuMemsetD8Async(s.dst, 0xee, 35 * 4, stream));
		cuda(cuStreamSynchronize(stream));
	}
	free(words);
}

/* The stream waits before the first item and signals after the last, whatever becomes of the first. */
Test(stream_points, of_several_destinations_and_items)
{
	uint64_t *words = host_words();
	struct scene s = scene_of((uintptr_t)words);
	const CUdeviceptr other = rig_bytes(35 * 4, 0xee);
	const struct tma_tensor further = matrix(other, 7, 5);
	struct tma_transform t = transform_of(&s), alone = t, bad = t;
	struct tma_item items[] = { { .transform = &bad }, { .transform = &alone } };

	t.further_dst = &further;
	t.n_further_dst = 1;
	cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
	check_released(&s, words);
	cr_assert(is_transposed(other, s.src, 5, 7));
	words[0] = words[1] = 0;
	alone.order = bad.order = NULL;
	bad.src = &s.to;
	cuda(cuMemsetD8Async(s.dst, 0xee, 35 * 4, stream));
	cuda(cuStreamSynchronize(stream));
	cr_assert_lt(tma_enqueue_items(client, items, 2, &s.order, stream), 0);
	cr_assert(items[0].status < 0 && items[1].status == 0);
	cr_assert_not(has_started(&s));
	tma_point_signal(&words[0], 1);
	cr_assert(is_transposed(s.dst, s.src, 5, 7));
	cr_assert_eq(words[1], 0, "an item has failed");
	items[0].transform = &alone;
	words[0] = 0;
	cuda(cuMemsetD8Async(s.dst, 0xee, 35 * 4, stream));
	cuda(cuStreamSynchronize(stream));
	cr_assert_eq(tma_enqueue_items(client, items, 2, &s.order, stream), 0, "%s", tma_last_error(client));
	check_released(&s, words);
	free(words);
}

/* Words may lie in any memory but managed memory. Words of the host are pinned as long as their region
 * exists, and nothing else is. */
Test(stream_points, of_any_memory)
{
	uint64_t *words = host_words(), word;
	const CUdeviceptr on_device = rig_bytes(16, 0);
	CUdeviceptr pinned;
	void *host;

	cuda(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	memset(host, 0, 4096);
	for (int i = 0; i < 2; i++) {
		struct scene s = scene_of((uintptr_t)&words[4 * i]);
		const struct tma_transform t = transform_of(&s);

		cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
		check_released(&s, &words[4 * i]);
		cr_assert_eq(cuMemHostGetDevicePointer(&pinned, &words[4 * i], 0), CUDA_SUCCESS);
		cr_assert_neq(cuMemHostGetDevicePointer(&pinned, &words[4 * i + 2], 0), CUDA_SUCCESS);
		if (i == 0)
			continue;
		cr_assert_eq(tma_region_release(s.order.wait.region), 0);
		cr_assert_neq(cuMemHostGetDevicePointer(&pinned, &words[4], 0), CUDA_SUCCESS);
		cr_assert_eq(cuMemHostGetDevicePointer(&pinned, &words[0], 0), CUDA_SUCCESS);
	}
	{
		struct scene s = scene_of((uintptr_t)host);
		const struct tma_transform t = transform_of(&s);

		cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
		check_released(&s, host);
	}
	{
		struct scene s = scene_of(on_device);
		const struct tma_transform t = transform_of(&s);

		cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
		cr_assert_not(has_started(&s));
		*(volatile uint64_t *)on_device = 1;
		cr_assert(is_transposed(s.dst, s.src, 5, 7));
		rig_get(&word, on_device + 8, sizeof word);
		cr_assert_eq(word, 2);
	}
	cuda(cuMemFreeHost(host));
	tma_free(client);
	client = NULL;
	cr_assert_neq(cuMemHostGetDevicePointer(&pinned, words, 0), CUDA_SUCCESS, "the word is still pinned");
	free(words);
}

/* Each launch of the graph waits and signals. */
Test(stream_points, of_a_graph)
{
	uint64_t *words = host_words();
	struct scene s = scene_of((uintptr_t)words);
	const struct tma_transform t = transform_of(&s);
	CUgraphExec exec;
	CUgraph graph;

	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
	cuda(cuStreamEndCapture(stream, &graph));
	cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		words[0] = words[1] = 0;
		cuda(cuMemsetD8Async(s.dst, 0xee, 35 * 4, stream));
		cuda(cuStreamSynchronize(stream));
		cuda(cuGraphLaunch(exec, stream));
		check_released(&s, words);
	}
	cuda(cuGraphExecDestroy(exec));
	cuda(cuGraphDestroy(graph));
	free(words);
}

static void refuse_words_in_captures(void)
{
	setenv("SOFTGPU_FAIL_CALL", "cuStreamWaitValue64", 1);
	setenv("SOFTGPU_FAIL_WITH", "900", 1); /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
	rig_open();
}

Test(stream_points, that_the_driver_does_not_capture, .init = refuse_words_in_captures)
{
	struct scene s = scene_of(rig_bytes(16, 0));
	const struct tma_transform t = transform_of(&s);

	cr_assert_eq(tma_enqueue(client, &t, stream), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "takes no words of timelines into a graph"), "%s",
	                   tma_last_error(client));
	cr_assert_not(has_started(&s));
}

/* A refused request leaves nothing in the stream. */
Test(stream_points, are_checked_in_a_stream)
{
	uint64_t *words = host_words();
	struct scene s = scene_of((uintptr_t)words);
	struct tma_transform t = transform_of(&s);

	t.src = &s.to;
	cr_assert_lt(tma_enqueue(client, &t, stream), 0);
	t.src = &s.from;
	s.order.wait_ms = 1;
	cr_assert_eq(tma_enqueue(client, &t, stream), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "wait.deadline_ms: "), "%s",
	                   tma_last_error(client));
	s.order.wait_ms = 0;
	s.order.wait.offset = 16;
	cr_assert_eq(tma_enqueue(client, &t, stream), TMA_OUT_OF_RANGE);
	cuda(cuStreamQuery(stream));
	cr_assert(!has_started(&s) && words[1] == 0);
	free(words);
}
