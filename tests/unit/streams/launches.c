/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every kind of request, launched into a stream of the program. */
#include "kernels/cuda/cuda_plan.h"

#include "rig.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/live.h"

TestSuite(streams, .init = rig_open, .fini = rig_close);

Test(streams, transposes_of_all_sizes)
{
	static const int64_t sizes[][2] = { { 1, 1 }, { 3, 5 }, { 64, 64 }, { 300, 511 }, { 0, 7 } };

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const int64_t rows = sizes[i][0], columns = sizes[i][1];
		const size_t n = (size_t)(rows * columns);
		CUdeviceptr src = rig_numbers(n + 1), dst = rig_bytes((n + 1) * 4, 0xee);

		cr_assert_eq(enqueue_transpose(dst, src, rows, columns), 0, "%s", tma_last_error(client));
		cr_assert(is_transposed(dst, src, rows, columns));
		cr_assert_eq(tma_last_result(client)->bytes, 2 * 4 * n);
		if (n > 64 * 64)
			cr_assert_str_eq(tma_last_result(client)->path, "tile_transpose");
	}
}

/* The calls return before the device has started their work. */
Test(streams, order_is_that_of_the_stream)
{
	CUdeviceptr a = rig_numbers(64 * 48), b = rig_bytes(64 * 48 * 4, 1), c = rig_bytes(64 * 48 * 4, 2);
	CUdeviceptr word = rig_bytes(8, 0);
	CUstream other;

	cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	cuda(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	cr_assert_eq(enqueue_transpose(b, a, 64, 48), 0, "%s", tma_last_error(client));
	cr_assert_eq(enqueue_transpose(c, b, 48, 64), 0, "%s", tma_last_error(client));
	cuda(cuStreamWriteValue64(other, word, 1, 0));
	cr_assert(is_transposed(c, b, 48, 64));
	cr_assert(is_transposed(b, a, 64, 48));
	cuda(cuStreamDestroy(other));
}

Test(streams, the_default_stream)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	const struct tma_tensor to = matrix(dst, 7, 5), from = matrix(src, 5, 7);
	const struct tma_transform t = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };

	cr_assert_eq(tma_enqueue(client, &t, NULL), 0, "%s", tma_last_error(client));
	cuda(cuStreamSynchronize(NULL));
	cr_assert(is_transposed(dst, src, 5, 7));
}

Test(streams, further_destinations)
{
	CUdeviceptr src = rig_numbers(35), dst[3];
	struct tma_tensor to[3], from = matrix(src, 5, 7);
	struct tma_transform t = { .src = &from, .perm = (const int[]){ 1, 0 }, .n_further_dst = 2 };

	for (int i = 0; i < 3; i++) {
		dst[i] = rig_bytes(35 * 4, 0);
		to[i] = matrix(dst[i], 7, 5);
	}
	t.dst = &to[0];
	t.further_dst = &to[1];
	cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
	for (int i = 0; i < 3; i++)
		cr_assert(is_transposed(dst[i], src, 5, 7));
	cr_assert_eq(tma_last_result(client)->bytes, 3 * 2 * 35 * 4);
}

/* Returns the context's plans and makes them take copies to be so slow that every move is long enough to be
 * timed. */
static struct cuda_plans *plans_of_slow_copies(void)
{
	struct engine *engine;
	struct cuda_plans *plans;
	struct error err;

	cr_assert_eq(engine_cuda_of_stream(&engine, stream, &err), 0);
	plans = engine->plans->arg;
	plans->facts.copy.bytes_per_ns = 1e-3;
	return plans;
}

static size_t live_events(void)
{
	char text[4096];
	const char *at;

	softgpu_live(text, sizeof text);
	at = strstr(text, " events");
	while (at && at > text && at[-1] != '\n')
		at--;
	return at ? strtoul(at, NULL, 10) : 0;
}

/* All plans that are tried move the same bytes, and so does a graph that is replayed meanwhile. */
Test(streams, a_layout_that_comes_again_tries_plans, .timeout = 120)
{
	const int64_t rows = 300, columns = 511;
	const size_t n = (size_t)(rows * columns);
	CUdeviceptr src = rig_numbers(n), dst = rig_bytes(n * 4, 0);
	CUgraphExec exec;
	CUgraph graph;

	struct cuda_plans *plans = plans_of_slow_copies();

	for (int i = 0; i < 60; i++) {
		cuda(cuMemsetD8Async(dst, 0xee, n * 4, stream));
		if (i == 7)
			cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		cr_assert_eq(enqueue_transpose(dst, src, rows, columns), 0, "%s", tma_last_error(client));
		if (i == 7) {
			cuda(cuStreamEndCapture(stream, &graph));
			cuda(cuGraphInstantiate(&exec, graph, 0));
			cuda(cuGraphLaunch(exec, stream));
		}
		cr_assert(is_transposed(dst, src, rows, columns), "launch %d", i);
		cr_assert_eq(plans->n_trials,
		             i == 0 || i >= 50 ? 0
		             : i == 1          ? 1
		                               : plans->n_trials,
		             "launch %d", i);
	}
	cr_assert_eq(live_events(), 2);
	cuda(cuGraphExecDestroy(exec));
	cuda(cuGraphDestroy(graph));
}

/* The bus determines how long a move to pinned memory takes, so such a move says nothing of plans. */
Test(streams, moves_over_the_bus_are_no_trials)
{
	const int64_t rows = 300, columns = 511;
	const size_t n = (size_t)(rows * columns);
	CUdeviceptr src = rig_numbers(n);
	struct cuda_plans *plans = plans_of_slow_copies();
	const size_t events = live_events();
	uint32_t *pinned;

	cuda(cuMemHostAlloc((void **)&pinned, n * 4, 0));
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(enqueue_transpose((uintptr_t)pinned, src, rows, columns), 0, "%s",
		             tma_last_error(client));
		cuda(cuStreamSynchronize(stream));
	}
	cr_assert_eq(plans->n_trials, 0);
	cr_assert_eq(live_events(), events);
	cuda(cuMemFreeHost(pinned));
}

/* Launches one layout again and again into a stream of its own. Returns NULL if all results were right. */
static void *launch_repeatedly(void *arg)
{
	const int64_t rows = 300, columns = 511;
	const size_t bytes = (size_t)(rows * columns) * 4;
	const CUdeviceptr src = *(const CUdeviceptr *)arg;
	const struct tma_tensor from = matrix(src, rows, columns);
	uint32_t *got = malloc(bytes);
	tma_client *own = tma_new();
	bool is_right = cuCtxSetCurrent(context) == CUDA_SUCCESS && tma_connect(own, "local:") == 0;
	CUdeviceptr dst;
	CUstream other;

	cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0);
	cuMemAlloc(&dst, bytes);
	const struct tma_tensor to = matrix(dst, columns, rows);
	const struct tma_transform t = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };

	for (int i = 0; i < 30 && is_right; i++) {
		cuMemsetD8Async(dst, 0xee, bytes, other);
		is_right = tma_enqueue(own, &t, other) == 0;
		cuMemcpyDtoHAsync(got, dst, bytes, other);
		cuStreamSynchronize(other);
		for (int64_t k = 0; k < rows * columns; k++)
			is_right &= got[k % columns * rows + k / columns] == (uint32_t)k * 2654435761u;
	}
	cuMemFree(dst);
	cuStreamDestroy(other);
	tma_free(own);
	free(got);
	return is_right ? NULL : arg;
}

Test(streams, threads_try_the_plans_of_one_layout, .timeout = 120)
{
	CUdeviceptr src = rig_numbers(300 * 511);
	pthread_t thread[4];
	void *wrong;

	plans_of_slow_copies();
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, launch_repeatedly, &src), 0);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(pthread_join(thread[i], &wrong), 0);
		cr_assert_null(wrong);
	}
}

/* Each block of 2 x 2 gets a scale of its own. */
Test(streams, quantizes)
{
	const float values[4][4] = { { 1, 2, 8, 4 }, { 4, 3, 2, 1 }, { 0, 0, 7, 7 }, { 0, 0, 7, 14 } };
	float scales[4];
	CUdeviceptr src = rig_bytes(sizeof values, 0), dst = rig_bytes(16, 0), by = rig_bytes(16, 0);
	const struct tma_tensor from = { .offset = src, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 4, 4 } };
	const struct tma_tensor to = {
		.offset = dst, .dtype = TMA_FLOAT8_E4M3FN, .rank = 2, .shape = { 4, 4 }
	};
	const struct tma_tensor scale = { .offset = by, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 2, 2 } };
	const struct tma_amax amax = { .block = (const int64_t[]){ 2, 2 }, .scale = &scale };
	const struct tma_conversion conversion = { .amax = &amax };

	rig_put(src, values, sizeof values);
	cr_assert_eq(
	    tma_enqueue(client,
	                &(struct tma_transform){ .dst = &to, .src = &from, .conversion = &conversion },
	                stream),
	    0, "%s", tma_last_error(client));
	rig_get(scales, by, sizeof scales);
	cr_assert_float_eq(scales[0], 4.0f / 448, 1e-7);
	cr_assert_float_eq(scales[1], 8.0f / 448, 1e-7);
	cr_assert_eq(scales[2], 1);
	cr_assert_float_eq(scales[3], 14.0f / 448, 1e-7);
}

Test(streams, exact_casts_are_counted)
{
	const float values[4] = { 1, 1.5f, 3, 1e9f };
	CUdeviceptr src = rig_bytes(sizeof values, 0), dst = rig_bytes(8, 0);
	const struct tma_tensor from = { .offset = src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 } };
	const struct tma_tensor to = { .offset = dst, .dtype = TMA_INT16, .rank = 1, .shape = { 4 } };
	const struct tma_conversion conversion = { .cast = TMA_CAST_EXACT };
	const struct tma_transform t = { .dst = &to, .src = &from, .conversion = &conversion };
	struct tma_enqueued counts;
	tma_client *other = tma_new();

	rig_put(src, values, sizeof values);
	cr_assert_eq(tma_connect(other, "local:"), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_enqueue(other, &t, stream), 0);
	cr_assert_eq(tma_enqueued(client, stream, &counts), 0, "%s", tma_last_error(client));
	cr_assert_eq(counts.changed, 6);
	cr_assert_eq(tma_enqueued(client, stream, &counts), 0);
	cr_assert_eq(counts.changed, 0);
	cr_assert_eq(tma_enqueued(other, stream, &counts), 0);
	cr_assert_eq(counts.changed, 2);
	tma_free(other);
}

/* A tensor without elements needs no memory. */
Test(streams, nothing_to_move)
{
	const struct tma_tensor to = matrix(0, 7, 0), from = matrix(0, 0, 7);

	cr_assert_eq(
	    tma_enqueue(client,
	                &(struct tma_transform){ .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } },
	                stream),
	    0, "%s", tma_last_error(client));
}

/* ---- Lists -------------------------------------------------------------------------------------------- */

#define ROWS    32
#define COLUMNS 12

static struct tma_tensor row_at(CUdeviceptr address)
{
	return (struct tma_tensor){ .offset = address, .dtype = TMA_UINT32, .rank = 1, .shape = { COLUMNS } };
}

/* Returns whether row i of dst is row index[i] of src, or untouched if there is no such row. */
static bool is_gathered(CUdeviceptr dst, CUdeviceptr src, const int32_t *index, size_t n)
{
	uint32_t from[ROWS][COLUMNS], (*to)[COLUMNS] = malloc(n * sizeof *to), untouched[COLUMNS];
	bool is_right = true;

	memset(untouched, 0xee, sizeof untouched);
	rig_get(from, src, sizeof from);
	rig_get(to, dst, n * sizeof *to);
	for (size_t i = 0; i < n; i++)
		is_right &= memcmp(to[i], index[i] >= 0 && index[i] < ROWS ? from[index[i]] : untouched,
		                   sizeof untouched) == 0;
	free(to);
	return is_right;
}

/* Gathers n rows. Short lists travel in the arguments of the launch, long ones through pinned memory. The
 * list is changed as soon as the call has returned. */
static void gather(size_t n)
{
	CUdeviceptr src = rig_numbers(ROWS * COLUMNS), dst = rig_bytes(n * COLUMNS * 4, 0xee);
	int32_t *index = malloc(n * sizeof *index), *kept = malloc(n * sizeof *kept);
	const struct tma_tensor to = row_at(dst), from = row_at(src);
	const struct tma_transform row = { .dst = &to, .src = &from };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = n, .limit = ROWS
	};

	for (size_t i = 0; i < n; i++)
		kept[i] = index[i] = (int32_t)(i * 7 % (ROWS + 1)) - 1;
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	memset(index, 0, n * sizeof *index);
	cr_assert(is_gathered(dst, src, kept, n));
	free(index);
	free(kept);
}

static int enqueue_long_list(CUdeviceptr dst, CUdeviceptr src, CUstream into)
{
	static int32_t index[3000];
	const struct tma_tensor to = row_at(dst), from = row_at(src);
	const struct tma_transform row = { .dst = &to, .src = &from };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = 3000, .limit = ROWS
	};

	return tma_enqueue_gather(client, &blocks, into);
}

Test(streams, gathers_by_short_and_long_lists)
{
	gather(1);
	gather(50);
	gather(9000);
}

/* Rows move within one array, by a list that travels with the launch. */
Test(streams, pairs_within_a_pool)
{
	const int32_t index[3][2] = { { 3, 1 }, { 0, 2 }, { 3, 7 } };
	CUdeviceptr rows = rig_numbers(ROWS * COLUMNS);
	uint32_t from[ROWS][COLUMNS], to[ROWS][COLUMNS];
	const struct tma_tensor tensor = row_at(rows);
	const struct tma_transform row = { .dst = &tensor, .src = &tensor };
	struct tma_blocks blocks = { .transform = &row,
		                     .index = index,
		                     .index_dtype = TMA_INT32,
		                     .count = 3,
		                     .limit = ROWS,
		                     .dst_limit = ROWS,
		                     .pairs = 1 };

	rig_get(from, rows, sizeof from);
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	rig_get(to, rows, sizeof to);
	for (int i = 0; i < 3; i++) {
		cr_assert(memcmp(to[index[i][1]], from[index[i][0]], sizeof from[0]) == 0, "%d", i);
		memcpy(from[index[i][1]], to[index[i][1]], sizeof from[0]);
	}
	cr_assert(memcmp(to, from, sizeof to) == 0, "Other rows stay as they are.");
	cr_assert_eq(tma_enqueue_scatter(client, &blocks, stream), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "pairs: only a gather takes them");
	blocks.dst_limit = 0;
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "dst_limit: missing; where dst has no region"), "%s",
	          tma_last_error(client));
}

Test(streams, scatters)
{
	const int32_t index[4] = { 3, -1, 0, 9 };
	CUdeviceptr src = rig_numbers(4 * COLUMNS), dst = rig_bytes(ROWS * COLUMNS * 4, 0xee);
	uint32_t from[4][COLUMNS], to[ROWS][COLUMNS];
	const struct tma_tensor dst_row = row_at(dst), src_row = row_at(src);
	const struct tma_transform row = { .dst = &dst_row, .src = &src_row };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = 4, .limit = ROWS
	};

	cr_assert_eq(tma_enqueue_scatter(client, &blocks, stream), 0, "%s", tma_last_error(client));
	rig_get(from, src, sizeof from);
	rig_get(to, dst, sizeof to);
	for (int i = 0; i < 4; i++)
		cr_assert(index[i] < 0 || memcmp(to[index[i]], from[i], sizeof from[i]) == 0);
	cr_assert_eq(to[1][0], 0xeeeeeeee);
}

/* The first block of either side begins where its region does. */
Test(streams, gathers_in_regions)
{
	const int32_t index[3] = { 4, 0, 31 };
	CUdeviceptr src = rig_numbers(ROWS * COLUMNS), dst = rig_bytes(3 * COLUMNS * 4, 0xee);
	struct tma_tensor to = row_at(0), from = row_at(0);
	const struct tma_transform row = { .dst = &to, .src = &from };
	const struct tma_blocks blocks = {
		.transform = &row, .index = index, .index_dtype = TMA_INT32, .count = 3
	};

	cr_assert_eq(tma_region_from_device_ptr(client, (const void *)dst, 3 * COLUMNS * 4, 0, &to.region),
	             0);
	cr_assert_eq(tma_region_from_device_ptr(client, (const void *)src, ROWS * COLUMNS * 4,
	                                        TMA_REGION_READ_ONLY, &from.region),
	             0);
	cr_assert_eq(tma_enqueue_gather(client, &blocks, stream), 0, "%s", tma_last_error(client));
	cr_assert(is_gathered(dst, src, index, 3));
}

/* A launch with a list does not block, however many are under way and whichever stream is held up. */
Test(streams, many_long_lists_at_once)
{
	CUdeviceptr word = rig_bytes(8, 0), src = rig_numbers(ROWS * COLUMNS);
	CUdeviceptr dst = rig_bytes(3000 * COLUMNS * 4, 0);
	CUstream other;

	cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	cuda(cuStreamWaitValue64(other, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	for (int i = 0; i < 300; i++) {
		cr_assert_eq(enqueue_long_list(dst, src, other), 0, "%s", tma_last_error(client));
		cr_assert_eq(enqueue_long_list(dst, src, stream), 0, "%s", tma_last_error(client));
	}
	cuda(cuStreamSynchronize(stream));
	cuda(cuStreamWriteValue64(stream, word, 1, 0));
	cuda(cuStreamSynchronize(other));
	cuda(cuStreamDestroy(other));
}

/* ---- Plans and items ---------------------------------------------------------------------------------- */

Test(streams, plans_and_items)
{
	CUdeviceptr src = rig_numbers(2 * 35), dst = rig_bytes(2 * 35 * 4, 0), third = rig_bytes(35 * 4, 0);
	const struct tma_tensor to = matrix(dst, 7, 5), from = matrix(src, 5, 7), away = matrix(3, 5, 7);
	const struct tma_transform t = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };
	struct tma_transform refused = t;
	struct tma_plan *plan;
	struct tma_item items[3] = { { .dst = { .offset = third }, .src = { .offset = src + 35 * 4 } },
		                     { .transform = &refused },
		                     { .transform = &t } };

	refused.src = &away;
	cr_assert_eq(tma_plan_prepare(client, &t, &plan), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_enqueue_run(client, plan, (struct tma_place){ .offset = dst + 35 * 4 },
	                             (struct tma_place){ .offset = src + 35 * 4 }, NULL, stream),
	             0, "%s", tma_last_error(client));
	cr_assert(is_transposed(dst + 35 * 4, src + 35 * 4, 5, 7));
	items[0].plan = plan;
	cr_assert_eq(tma_enqueue_items(client, items, 3, NULL, stream), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client),
	                 "src: 0x3 is neither memory of a device nor pinned memory of the host");
	cr_assert(items[0].status == 0 && items[1].status == TMA_INVALID_ARGUMENT && items[2].status == 0);
	cr_assert(is_transposed(dst, src, 5, 7));
	cr_assert(is_transposed(third, src + 35 * 4, 5, 7));
}

/* A blocked tensor is launched as a single request here, where the client sends a service a batch of its
 * parts. */
Test(streams, splits)
{
	CUdeviceptr src = rig_numbers(6 * 10), dst = rig_bytes(2 * 6 * 8 * 4, 0xee);
	uint32_t from[6][10], to[2][6][8];
	struct tma_tensor plain = matrix(src, 6, 10);
	const struct tma_tensor blocked = {
		.offset = dst, .dtype = TMA_UINT32, .rank = 3, .shape = { 2, 6, 8 }
	};

	plain.split = (const int64_t[]){ 1, 8 };
	plain.n_split = 1;
	cr_assert_eq(tma_enqueue(client,
	                         &(struct tma_transform){
				     .dst = &blocked, .src = &plain, .perm = (const int[]){ 1, 0, 2 } },
	                         stream),
	             0, "%s", tma_last_error(client));
	rig_get(from, src, sizeof from);
	rig_get(to, dst, sizeof to);
	for (int r = 0; r < 6; r++)
		for (int c = 0; c < 16; c++)
			cr_assert_eq(to[c / 8][r][c % 8], c < 10 ? from[r][c] : 0);
}

/* ---- Without a stream --------------------------------------------------------------------------------- */

Test(streams, calls_that_wait)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	const struct tma_tensor from = matrix(src, 5, 7);
	struct tma_tensor to = matrix(0, 7, 5);
	tma_region *region;
	tma_ticket ticket;
	struct tma_result result;

	cr_assert_eq(tma_region_from_device_ptr(client, (const void *)dst, 35 * 4, 0, &region), 0, "%s",
	             tma_last_error(client));
	to.region = region;
	cr_assert_eq(tma_transpose(client, &to, &from, (const int[]){ 1, 0 }), 0, "%s",
	             tma_last_error(client));
	cr_assert(is_transposed(dst, src, 5, 7));
	to.shape[0] = 8;
	cr_assert_eq(tma_transpose(client, &to, &from, (const int[]){ 1, 0 }), TMA_INVALID_ARGUMENT);
	to = matrix(rig_bytes(35 * 4, 0), 7, 5);
	cr_assert_eq(
	    tma_submit(client,
	               &(struct tma_transform){ .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } },
	               &ticket),
	    0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, &result), 0);
	cr_assert(is_transposed(to.offset, src, 5, 7));
	cr_assert_eq(tma_region_release(region), 0);
}

Test(streams, calls_that_wait_count)
{
	const float values[4] = { 1, 1.5f, 3, 1e9f };
	const int64_t list[5] = { 2, -1, 0, 7, 1 };
	CUdeviceptr src = rig_bytes(sizeof values, 0), dst = rig_bytes(5 * 4, 0),
		    index = rig_bytes(sizeof list, 0);
	const struct tma_tensor from = { .offset = src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 } };
	const struct tma_tensor to = { .offset = dst, .dtype = TMA_INT16, .rank = 1, .shape = { 4 } };
	const struct tma_conversion conversion = { .cast = TMA_CAST_EXACT };
	const struct tma_tensor one = { .offset = src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 } };
	const struct tma_tensor picked = { .offset = dst, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 } };
	const struct tma_transform row = { .dst = &picked, .src = &one };
	const struct tma_blocks blocks = { .transform = &row,
		                           .index_at = { .offset = index },
		                           .index_dtype = TMA_INT64,
		                           .count = 5,
		                           .limit = 4 };
	struct tma_enqueued counts;
	float got[5];

	rig_put(src, values, sizeof values);
	rig_put(index, list, sizeof list);
	/* A launch's counts are not added to those of a blocking call. */
	cr_assert_eq(
	    tma_enqueue(client,
	                &(struct tma_transform){ .dst = &to, .src = &from, .conversion = &conversion },
	                stream),
	    0);
	cuda(cuStreamSynchronize(stream));
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(tma_transform(client, &(struct tma_transform){ .dst = &to,
		                                                            .src = &from,
		                                                            .conversion = &conversion }),
		             TMA_OUT_OF_RANGE);
		cr_assert_str_eq(tma_last_error(client),
		                 "cast: exact, but the values of 2 elements of float32 are not "
		                 "values of int16; dst has the nearest");
	}
	cuda(cuMemsetD8Async(dst, 0, sizeof got, stream));
	cuda(cuStreamSynchronize(stream));
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->moved, 3);
	cr_assert_eq(tma_last_result(client)->passed, 1);
	cr_assert_eq(tma_last_result(client)->beyond, 1);
	rig_get(got, dst, sizeof got);
	cr_assert(got[0] == 3 && got[1] == 0 && got[2] == 1 && got[3] == 0 && got[4] == 1.5f);
	cr_assert_eq(tma_enqueued(client, stream, &counts), 0);
	cr_assert_eq(counts.changed, 2);
}
