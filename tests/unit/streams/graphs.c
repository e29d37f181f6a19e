/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests that are captured in CUDA graphs and replayed. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

TestSuite(stream_graphs, .init = rig_open, .fini = rig_close);

static CUgraphExec end_capture(void)
{
	CUgraphExec exec;
	CUgraph graph;

	cuda(cuStreamEndCapture(stream, &graph));
	cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	cuda(cuGraphDestroy(graph));
	return exec;
}

/* What the first request in a context loads is loaded during the capture, in any capture mode. */
Test(stream_graphs, the_first_request_is_captured)
{
	CUdeviceptr src = rig_numbers(60 * 90), dst = rig_bytes(60 * 90 * 4, 0);
	const uint32_t other = 7;
	CUgraphExec exec;

	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	cr_assert_eq(enqueue_transpose(dst, src, 60, 90), 0, "%s", tma_last_error(client));
	exec = end_capture();
	cr_assert_not(is_transposed(dst, src, 60, 90));
	for (int i = 0; i < 3; i++) {
		rig_put(src + (size_t)i * 4, &other, sizeof other);
		cuda(cuGraphLaunch(exec, stream));
		cr_assert(is_transposed(dst, src, 60, 90));
	}
	cuda(cuGraphExecDestroy(exec));
}

/* A long list, a conversion with scales and an exact cast need memory beside their tensors, which lives as
 * long as the graph. */
Test(stream_graphs, graphs_hold_what_their_requests_need)
{
	enum { N = 5000, ROWS = 64 };
	CUdeviceptr src = rig_numbers(ROWS * 4), dst = rig_bytes(N * 16, 0);
	CUdeviceptr floats = rig_bytes(64, 0), scales = rig_bytes(4, 0), bytes = rig_bytes(16, 0),
		    exact = rig_bytes(32, 0);
	int32_t *index = malloc(N * sizeof *index);
	uint32_t from[ROWS][4], (*to)[4] = malloc(N * sizeof *to);
	float values[16] = { 1, 2.5f, 3 };
	const struct tma_tensor to_row = { .offset = dst, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } },
				from_row = { .offset = src, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } };
	const struct tma_transform row = { .dst = &to_row, .src = &from_row };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = N, .limit = ROWS
	};
	const struct tma_tensor x = { .offset = floats, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 16 } };
	const struct tma_tensor q = { .offset = bytes,
		                      .dtype = TMA_FLOAT8_E4M3FN,
		                      .rank = 1,
		                      .shape = { 16 } },
				scale = { .offset = scales, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 } };
	const struct tma_tensor y = { .offset = exact, .dtype = TMA_INT16, .rank = 1, .shape = { 16 } };
	const struct tma_amax amax = { .block = (const int64_t[]){ 16 }, .scale = &scale };
	const struct tma_conversion quantize = { .amax = &amax }, cast = { .cast = TMA_CAST_EXACT };
	struct tma_enqueued counts;
	CUgraphExec exec;
	float number;

	for (int i = 0; i < N; i++)
		index[i] = i * 5 % ROWS;
	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_enqueue(client,
	                         &(struct tma_transform){ .dst = &q, .src = &x, .conversion = &quantize },
	                         stream),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(
	    tma_enqueue(client, &(struct tma_transform){ .dst = &y, .src = &x, .conversion = &cast }, stream),
	    0, "%s", tma_last_error(client));
	exec = end_capture();
	memset(index, 0, N * sizeof *index);
	/* Lists of other requests use memory that does not belong to the graph. */
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
		values[0] = (float)(4 << i);
		rig_put(floats, values, sizeof values);
		cuda(cuGraphLaunch(exec, stream));
		rig_get(from, src, sizeof from);
		rig_get(to, dst, N * sizeof *to);
		for (int k = 0; k < N; k++)
			cr_assert_eq(memcmp(to[k], from[k * 5 % ROWS], sizeof to[k]), 0);
		rig_get(&number, scales, sizeof number);
		cr_assert_float_eq(number, values[0] / 448, 1e-7);
		cr_assert_eq(tma_enqueued(client, stream, &counts), 0, "%s", tma_last_error(client));
		cr_assert_eq(counts.changed, 1);
	}
	cuda(cuGraphExecDestroy(exec));
	free(index);
	free(to);
}

/* A graph that is destroyed without being launched leaves nothing behind. */
Test(stream_graphs, graphs_come_and_go)
{
	enum { N = 3000 };
	CUdeviceptr src = rig_numbers(8 * 4), dst = rig_bytes(N * 16, 0);
	static int32_t index[N];
	const struct tma_tensor to_row = { .offset = dst, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } },
				from_row = { .offset = src, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } };
	const struct tma_transform row = { .dst = &to_row, .src = &from_row };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = N, .limit = 8
	};
	CUgraph graph;

	for (int i = 0; i < 1000; i++) {
		cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
		cuda(cuStreamEndCapture(stream, &graph));
		cuda(cuGraphDestroy(graph));
	}
}

/* No node of a graph allocates memory, and what the graph holds lives until its last instance is
 * destroyed. */
Test(stream_graphs, several_instances)
{
	enum { N = 5000, INSTANCES = 3 };
	CUdeviceptr src = rig_numbers(64 * 4), dst = rig_bytes(N * 16, 0);
	int32_t *index = malloc(N * sizeof *index);
	uint32_t from[64][4], (*to)[4] = malloc(N * sizeof *to);
	const struct tma_tensor to_row = { .offset = dst, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } },
				from_row = { .offset = src, .dtype = TMA_UINT32, .rank = 1, .shape = { 4 } };
	const struct tma_transform row = { .dst = &to_row, .src = &from_row };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = N, .limit = 64
	};
	CUgraphExec instances[INSTANCES];
	CUgraph graph;

	for (int i = 0; i < N; i++)
		index[i] = i * 5 % 64;
	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	cuda(cuStreamEndCapture(stream, &graph));
	for (int i = 0; i < INSTANCES; i++)
		cuda(cuGraphInstantiateWithFlags(&instances[i], graph, 0));
	cuda(cuGraphDestroy(graph));
	rig_get(from, src, sizeof from);
	memset(index, 0, N * sizeof *index);
	for (int i = 0; i < INSTANCES; i++) {
		cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
		cuda(cuMemsetD8Async(dst, 0, N * 16, stream));
		cuda(cuGraphLaunch(instances[i], stream));
		cuda(cuGraphExecDestroy(instances[i])); /* its launch is still under way */
		rig_get(to, dst, N * sizeof *to);
		for (int k = 0; k < N; k++)
			cr_assert_eq(memcmp(to[k], from[k * 5 % 64], sizeof to[k]), 0, "%d: row %d", i, k);
	}
	free(index);
	free(to);
}
