/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a client of a service in the program's CUDA streams, on the stand-in driver: they are launched
 * here. */
#include <criterion/criterion.h>
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/tmaclient.h"
#include "tests/support/process.h"

#define ROWS     24
#define COLUMNS  40
#define ELEMENTS (ROWS * COLUMNS)
#define BYTES    (ELEMENTS * sizeof(uint32_t))

static struct process service;
static tma_client *client;
static CUcontext context;
static CUstream stream;

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)
#define ok(call)   cr_assert_eq(call, TMA_OK, "%s: %s", #call, tma_last_error(client))

/* ---- The program -------------------------------------------------------------------------------------- */

static tma_client *new_client(void)
{
	tma_client *new = tma_new();

	cr_assert(new);
	cr_assert_eq(tma_connect(new, service.socket), TMA_OK, "%s", tma_last_error(new));
	return new;
}

static CUstream new_stream(void)
{
	CUstream new;

	cuda(cuStreamCreateWithPriority(&new, CU_STREAM_NON_BLOCKING, 0));
	return new;
}

static void start_on(const char *engine)
{
	service.engine = engine;
	process_start(&service, NULL);
	client = new_client();
	cuda(cuInit(0));
	cuda(cuDevicePrimaryCtxRetain(&context, 0));
	cuda(cuCtxSetCurrent(context));
	stream = new_stream();
}

static void start(void)
{
	start_on("cuda");
}

static void stop(void)
{
	tma_free(client);
	process_stop(&service, SIGTERM);
	cuda(cuStreamDestroy(stream));
}

TestSuite(streams_here, .init = start, .fini = stop, .timeout = 120);
/* ---- Memory ------------------------------------------------------------------------------------------- */

static uint32_t value_at(size_t i, uint32_t seed)
{
	return (uint32_t)i * 2654435761u + seed;
}

static void fill(uint32_t *to, uint32_t seed)
{
	for (size_t i = 0; i < ELEMENTS; i++)
		to[i] = value_at(i, seed);
}

static void assert_transposed(const uint32_t *data, uint32_t seed, const char *what)
{
	for (size_t r = 0; r < ROWS; r++)
		for (size_t c = 0; c < COLUMNS; c++)
			cr_assert_eq(data[c * ROWS + r], value_at(r * COLUMNS + c, seed), "%s: %zu, %zu",
			             what, r, c);
}

static CUdeviceptr allocate(size_t size)
{
	CUdeviceptr pointer;

	cuda(cuMemAlloc(&pointer, size));
	return pointer;
}

/* Copies to and from it do not wait. */
static uint32_t *pinned(void)
{
	void *memory;

	cuda(cuMemHostAlloc(&memory, BYTES, 0));
	return memory;
}

static tma_region *region_at(tma_client *of, CUdeviceptr pointer, size_t size)
{
	tma_region *region;

	cr_assert_eq(tma_region_from_device_ptr(of, (void *)(uintptr_t)pointer, size, 0, &region), TMA_OK,
	             "%s", tma_last_error(of));
	return region;
}

/* Requests that move something and have reached the service. */
static int64_t served(void)
{
	static const char *const names[] = { "transform", "plan_run", "gather", "scatter", "submit" };
	const tma_document *counts;
	tma_document *stats;
	int64_t n[5];

	ok(tma_stats(client, &stats));
	counts = tma_document_find(stats, "requests_by_method");
	for (size_t i = 0; i < 5; i++)
		n[i] = tma_document_int(tma_document_find(counts, names[i]));
	tma_document_free(stats);
	return n[0] + n[1] + n[2] + n[3] + n[4];
}

/* The stream stands still until the word is 1. */
static CUdeviceptr hold(CUstream held)
{
	CUdeviceptr word = allocate(8);

	cuda(cuMemsetD8Async(word, 0, 8, NULL));
	cuda(cuStreamSynchronize(NULL));
	cuda(cuStreamWaitValue64(held, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	return word;
}

static void let_go(CUdeviceptr word)
{
	CUstream other = new_stream();

	cuda(cuStreamWriteValue64(other, word, 1, 0));
	cuda(cuStreamSynchronize(other));
	cuda(cuStreamDestroy(other));
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

struct pair {
	struct tma_tensor dst, src;
	struct tma_transform transpose;
};

static const int swapped[] = { 1, 0 };

static void pair_init(struct pair *pair, tma_region *dst, uint64_t to, tma_region *src, uint64_t from)
{
	pair->dst = (struct tma_tensor){
		.region = dst, .offset = to, .dtype = TMA_UINT32, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	pair->src = (struct tma_tensor){
		.region = src, .offset = from, .dtype = TMA_UINT32, .rank = 2, .shape = { ROWS, COLUMNS }
	};
	pair->transpose = (struct tma_transform){ .dst = &pair->dst, .src = &pair->src, .perm = swapped };
}

/* Two transposes of device memory, with copies before and behind them in the stream, which begins last. */
static void assert_in_order(struct pair *first, struct pair *second, CUdeviceptr src, CUdeviceptr dst)
{
	uint32_t *in = pinned(), *out = pinned();

	for (uint32_t round = 1; round <= 3; round++) {
		CUdeviceptr word = hold(stream);

		fill(in, round);
		cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
		ok(tma_enqueue(client, &first->transpose, stream));
		if (second)
			ok(tma_enqueue(client, &second->transpose, stream));
		cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
		cr_assert_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY, "the calls do not wait");
		let_go(word);
		cuda(cuStreamSynchronize(stream));
		if (second)
			cr_assert_arr_eq(out, in, BYTES, "there and back");
		else
			assert_transposed(out, round, "there");
	}
}

static void assert_nothing_failed(void)
{
	struct tma_enqueued counts = { .beyond = 9 };

	ok(tma_enqueued(client, stream, &counts));
	cr_assert(counts.beyond == 0 && counts.changed == 0);
}

/* The other dimensions: a transpose back. */
static void pair_init_back(struct pair *pair, tma_region *dst, tma_region *src)
{
	pair_init(pair, dst, 0, src, 0);
	pair->dst.shape[0] = pair->src.shape[1] = ROWS;
	pair->dst.shape[1] = pair->src.shape[0] = COLUMNS;
}

/* ---- Launched here ------------------------------------------------------------------------------------ */

Test(streams_here, the_service_sees_nothing)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES), back = allocate(BYTES);
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES),
		   *c = region_at(client, back, BYTES);
	struct pair there, and_back;

	pair_init(&there, b, 0, a, 0);
	pair_init_back(&and_back, c, b);
	assert_in_order(&there, &and_back, src, back);
	cr_assert_eq(tma_last_result(client)->bytes, 2 * BYTES);
	cr_assert_str_neq(tma_last_result(client)->path, "");
	assert_nothing_failed();
	cr_assert_eq(served(), 0);
	there.dst.region = NULL; /* It has an address alone. */
	there.dst.offset = dst;
	assert_in_order(&there, NULL, src, dst);
	cr_assert_eq(served(), 0);
}

Test(streams_here, what_is_outside_of_a_region_is_refused_at_once)
{
	CUdeviceptr memory = allocate(4 * BYTES);
	tma_region *region = region_at(client, memory, 2 * BYTES);
	struct pair pair;

	pair_init(&pair, region, BYTES + 4, region, 0);
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_OUT_OF_RANGE);
	pair_init(&pair, region, 4, region, 0);
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_OVERLAP);
	cr_assert_eq(tma_region_release(region), TMA_OK);
	region = region_at(client, memory, 4 * BYTES);
	pair_init(&pair, region, BYTES + 4, region, 0);
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
}

Test(streams_here, graphs)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES);
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES);
	uint32_t in[ELEMENTS], out[ELEMENTS];
	struct pair pair;
	CUgraphExec exec;
	CUgraph graph;

	pair_init(&pair, b, 0, a, 0);
	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ok(tma_enqueue(client, &pair.transpose, stream));
	cuda(cuStreamEndCapture(stream, &graph));
	cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t round = 1; round <= 3; round++) {
		fill(in, round);
		cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
		cuda(cuGraphLaunch(exec, stream));
		cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
		cuda(cuStreamSynchronize(stream));
		assert_transposed(out, round, "replay");
	}
	cuda(cuGraphExecDestroy(exec));
	cuda(cuGraphDestroy(graph));
	cr_assert_eq(served(), 0);
}

/* ---- Plans, items and lists, by either ----------------------------------------------------------------- */

static void plans_and_items(void)
{
	CUdeviceptr src = allocate(3 * BYTES), dst = allocate(3 * BYTES);
	tma_region *a = region_at(client, src, 3 * BYTES), *b = region_at(client, dst, 3 * BYTES);
	uint32_t in[3][ELEMENTS], out[3][ELEMENTS];
	struct pair pair, alone;
	struct tma_item items[2];
	tma_plan *plan;

	pair_init(&pair, b, 0, a, 0);
	pair_init(&alone, b, BYTES, a, BYTES);
	ok(tma_plan_prepare(client, &pair.transpose, &plan));
	items[0] = (struct tma_item){ .transform = &alone.transpose };
	items[1] = (struct tma_item){ .plan = plan, .dst = { b, 2 * BYTES }, .src = { a, 2 * BYTES } };
	for (uint32_t i = 0; i < 3; i++)
		fill(in[i], i);
	cuda(cuMemcpyHtoDAsync(src, in, sizeof in, stream));
	ok(tma_enqueue_run(client, plan, (struct tma_place){ b }, (struct tma_place){ a },
	                   &(struct tma_order){ .multiprocessors = 2, .priority = TMA_PRIORITY_URGENT },
	                   stream));
	ok(tma_enqueue_items(client, items, 2, NULL, stream));
	cr_assert(items[0].status == 0 && items[1].status == 0);
	cuda(cuMemcpyDtoHAsync(out, dst, sizeof out, stream));
	assert_nothing_failed();
	for (uint32_t i = 0; i < 3; i++)
		assert_transposed(out[i], i, "item");
	ok(tma_plan_release(plan));
	items[1].plan = NULL;
	cr_assert_eq(tma_enqueue_items(client, items, 2, NULL, stream), TMA_INVALID_ARGUMENT);
	cr_assert(items[0].status == 0 && items[1].status == TMA_INVALID_ARGUMENT);
	assert_nothing_failed();
}

/* Rows of a matrix by a list in memory of the device, in which an entry names no row. */
static void lists(void)
{
	const int64_t index[4] = { 3, -1, 1000, 0 };
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES), list = allocate(sizeof index);
	struct tma_tensor to = { .region = region_at(client, dst, BYTES),
		                 .dtype = TMA_UINT32,
		                 .rank = 1,
		                 .shape = { COLUMNS } },
			  from = to;
	const struct tma_transform row = { .dst = &to, .src = &from };
	struct tma_blocks blocks = { .transform = &row,
		                     .count = 4,
		                     .index_dtype = TMA_INT64,
		                     .index_at.region = region_at(client, list, sizeof index) };
	uint32_t in[ELEMENTS], out[ELEMENTS];
	struct tma_enqueued counts;

	from.region = region_at(client, src, BYTES);
	fill(in, 5);
	cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
	cuda(cuMemsetD8Async(dst, 0xee, BYTES, stream));
	cuda(cuMemcpyHtoDAsync(list, index, sizeof index, stream));
	ok(tma_enqueue_gather(client, &blocks, stream));
	cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
	ok(tma_enqueued(client, stream, &counts));
	cr_assert_eq(counts.beyond, 1);
	cr_assert_arr_eq(out, in + 3 * COLUMNS, COLUMNS * 4);
	cr_assert_eq(out[COLUMNS], 0xeeeeeeee);
	cr_assert_eq(out[2 * COLUMNS], 0xeeeeeeee);
	cr_assert_arr_eq(out + 3 * COLUMNS, in, COLUMNS * 4);
	assert_nothing_failed();
	blocks.index_at.region = NULL;
	blocks.index = (const int64_t[]){ 7, 1, 0, 2 };
	ok(tma_enqueue_scatter(client, &blocks, stream));
	cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
	assert_nothing_failed();
	cr_assert_arr_eq(out + 7 * COLUMNS, in, COLUMNS * 4);
}

Test(streams_here, plans_and_items)
{
	plans_and_items();
	cr_assert_eq(served(), 0);
}

Test(streams_here, lists)
{
	lists();
	cr_assert_eq(served(), 0);
}

/* ---- Many --------------------------------------------------------------------------------------------- */

#define SLOTS 50
#define MOST  512 /* elements of a tensor */

static uint32_t random_state = 20261130;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % n;
}

/* What a transform of three dimensions makes of one slot in another. */
static void permute(uint32_t *dst, const uint32_t *src, const int64_t shape[3], const int perm[3])
{
	const int64_t steps[3] = { shape[1] * shape[2], shape[2], 1 };

	for (int64_t i = 0; i < shape[perm[0]]; i++)
		for (int64_t j = 0; j < shape[perm[1]]; j++)
			for (int64_t k = 0; k < shape[perm[2]]; k++)
				*dst++ = src[i * steps[perm[0]] + j * steps[perm[1]] + k * steps[perm[2]]];
}

/* 1000 requests between 50 slots: each reads what some before it wrote. */
static void random_requests(CUstream streams[2])
{
	static const int perms[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
		                         { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	static uint32_t expected[SLOTS][MOST], found[SLOTS][MOST];
	CUdeviceptr memory = allocate(sizeof expected);
	tma_region *region = region_at(client, memory, sizeof expected);
	CUevent event;
	size_t wrong = 0;

	cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (size_t i = 0; i < SLOTS * MOST; i++)
		expected[i / MOST][i % MOST] = value_at(i, 1);
	cuda(cuMemcpyHtoDAsync(memory, expected, sizeof expected, streams[0]));
	cuda(cuStreamSynchronize(streams[0]));
	for (int n = 0; n < 1000; n++) {
		const int64_t shape[3] = { 1 + random_below(8), 1 + random_below(8), 1 + random_below(8) };
		const int *perm = perms[random_below(6)];
		const uint32_t to = random_below(SLOTS), from = (to + 1 + random_below(SLOTS - 1)) % SLOTS;
		CUstream one = streams[random_below(2)], other = one == streams[0] ? streams[1] : streams[0];
		struct tma_tensor dst = {
			.region = region, .offset = to * MOST * 4, .dtype = TMA_UINT32, .rank = 3
		};
		struct tma_tensor src = dst;

		src.offset = from * MOST * 4;
		for (int d = 0; d < 3; d++) {
			src.shape[d] = shape[d];
			dst.shape[d] = shape[perm[d]];
		}
		ok(tma_enqueue(client, &(struct tma_transform){ .dst = &dst, .src = &src, .perm = perm },
		               one));
		permute(expected[to], expected[from], shape, perm);
		cuda(cuEventRecord(event, one));
		cuda(cuStreamWaitEvent(other, event, 0));
	}
	cuda(cuMemcpyDtoHAsync(found, memory, sizeof found, streams[0]));
	cuda(cuStreamSynchronize(streams[1]));
	cuda(cuStreamSynchronize(streams[0]));
	for (size_t i = 0; i < SLOTS * MOST; i++)
		wrong += found[i / MOST][i % MOST] != expected[i / MOST][i % MOST];
	cr_assert_eq(wrong, 0, "%zu elements", wrong);
	assert_nothing_failed();
	cuda(cuEventDestroy(event));
}

Test(streams_here, a_thousand)
{
	CUstream streams[2] = { stream, new_stream() };

	random_requests(streams);
	cr_assert_eq(served(), 0);
}
