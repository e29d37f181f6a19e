/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in the program's CUDA streams, by a client of a service on the stand-in driver: launched in this
 * process if it can reach all memory, and otherwise carried out by tmad in the order of the stream. */
#include <criterion/criterion.h>
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Without libtma-local the service carries out all requests. */
static void start_without_library(void)
{
	start();
	client->has_no_launcher = true;
}

static void start_on_cpu(void)
{
	start_on("cpu");
}

static char fault_once[64];

/* The second kernel that the service launches fails, and the device with it. */
static void start_faulty(void)
{
	snprintf(fault_once, sizeof fault_once, "/tmp/tmad-test-fault-%d", (int)getpid());
	setenv("SOFTGPU_FAULT", "2", 1);
	setenv("SOFTGPU_FAULT_ONCE", fault_once, 1);
	start_without_library();
}

static void start_faulty_on_both(void)
{
	setenv("SOFTGPU_DEVICES", "2", 1);
	start_faulty();
}

static void stop(void)
{
	tma_free(client);
	process_stop(&service, SIGTERM);
	cuda(cuStreamDestroy(stream));
}

static void stop_faulty(void)
{
	stop();
	unlink(fault_once);
}

TestSuite(streams_here, .init = start, .fini = stop, .timeout = 120);
TestSuite(streams_there, .init = start_without_library, .fini = stop, .timeout = 120);
TestSuite(streams_both, .init = start, .fini = stop, .timeout = 120);
TestSuite(streams_lost, .init = start_faulty, .fini = stop_faulty, .timeout = 120);
TestSuite(streams_lost_of_two, .init = start_faulty_on_both, .fini = stop_faulty, .timeout = 120);
TestSuite(streams_cpu, .init = start_on_cpu, .fini = stop, .timeout = 120);

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

/* Copies to and from pinned memory do not block the caller. */
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

static tma_region *host_region(tma_client *of, size_t size)
{
	tma_region *region;

	cr_assert_eq(tma_region_create_kind(of, TMA_REGION_MEMFD, size, &region), TMA_OK, "%s",
	             tma_last_error(of));
	return region;
}

/* Returns the number of requests that moved data in the service. */
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
	cr_assert_eq(n[0] + n[1] + n[2] + n[3], n[4], "behind each request goes one without items");
	return n[4];
}

/* Makes the stream wait until the returned word is 1. */
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

/* Two transposes of device memory, with copies before and after them in the stream, which is held until all
 * are submitted. */
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

/* Prepares the transpose back, with the dimensions exchanged. */
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
	there.dst.region = NULL; /* the memory is given by its address alone */
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

/* Moves rows of a matrix by a list in device memory, one entry of which names no row. */
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

Test(streams_there, plans_and_items)
{
	plans_and_items();
	cr_assert_eq(served(), 4);
}

Test(streams_here, lists)
{
	lists();
	cr_assert_eq(served(), 0);
}

Test(streams_there, lists)
{
	lists();
	cr_assert_eq(served(), 2);
}

/* ---- Done by the service ------------------------------------------------------------------------------- */

Test(streams_there, in_the_order_of_the_stream)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES), back = allocate(BYTES);
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES),
		   *c = region_at(client, back, BYTES);
	struct pair there, and_back;

	pair_init(&there, b, 0, a, 0);
	pair_init_back(&and_back, c, b);
	assert_in_order(&there, &and_back, src, back);
	assert_nothing_failed();
	cr_assert_eq(served(), 6);
}

/* The device cannot reach host memory that no driver has registered. */
static void host_memory(bool is_cpu)
{
	tma_region *host = host_region(client, BYTES), *back = host_region(client, BYTES), *middle;
	uint32_t *in = tma_region_data(host), *out = tma_region_data(back);
	struct pair there, and_back;

	middle = is_cpu ? host_region(client, BYTES) : region_at(client, allocate(BYTES), BYTES);
	pair_init(&there, middle, 0, host, 0);
	pair_init_back(&and_back, back, middle);
	for (uint32_t round = 1; round <= 3; round++) {
		CUdeviceptr word = hold(stream);

		fill(in, 77);
		ok(tma_enqueue(client, &there.transpose, stream));
		ok(tma_enqueue(client, &and_back.transpose, stream));
		fill(in, round); /* the stream has not come to the request yet */
		let_go(word);
		cuda(cuStreamSynchronize(stream));
		for (size_t i = 0; i < ELEMENTS; i++)
			cr_assert_eq(out[i], value_at(i, round));
	}
	assert_nothing_failed();
	cr_assert_eq(served(), 6);
}

Test(streams_both, host_memory)
{
	host_memory(false);
}

Test(streams_cpu, host_memory)
{
	host_memory(true);
}

/* Memory that the service has made is within reach once it is mapped. */
Test(streams_both, memory_of_the_service)
{
	CUdeviceptr src = allocate(BYTES), back = allocate(BYTES);
	struct tma_mapping mapping;
	struct pair there, and_back;
	tma_region *made;

	ok(tma_region_create(client, BYTES, &made));
	pair_init(&there, made, 0, region_at(client, src, BYTES), 0);
	pair_init_back(&and_back, region_at(client, back, BYTES), made);
	assert_in_order(&there, &and_back, src, back);
	cr_assert_eq(served(), 6);
	ok(tma_region_map(made, &mapping));
	assert_in_order(&there, &and_back, src, back);
	cr_assert_eq(served(), 6);
	assert_nothing_failed();
}

Test(streams_both, a_thread_without_a_context)
{
	tma_region *host = host_region(client, 2 * BYTES);
	struct pair pair;
	CUcontext current;

	fill(tma_region_data(host), 6);
	pair_init(&pair, host, BYTES, host, 0);
	cuda(cuCtxSetCurrent(NULL));
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
	assert_transposed((uint32_t *)tma_region_data(host) + ELEMENTS, 6, "transposed");
	cuda(cuCtxGetCurrent(&current));
	cr_assert_eq(current, context);
}

Test(streams_there, a_capture_is_refused)
{
	tma_region *region = region_at(client, allocate(2 * BYTES), 2 * BYTES);
	struct tma_enqueued counts;
	struct pair pair;
	CUgraph graph;

	pair_init(&pair, region, 0, region, BYTES);
	cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_UNSUPPORTED);
	cr_assert_str_eq(tma_last_error(client),
	                 "stream: it is being captured, and a request to a service cannot be");
	cr_assert_eq(tma_enqueued(client, stream, &counts), TMA_UNSUPPORTED);
	cuda(cuStreamEndCapture(stream, &graph));
	cuda(cuGraphDestroy(graph));
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
}

Test(streams_both, orders)
{
	tma_region *host = host_region(client, 2 * BYTES), *words = host_region(client, 4096);
	uint64_t *word = tma_region_data(words);
	struct tma_order order = { .signal = { words, 8, 7 }, .wait_ms = 20000 };
	struct pair pair;
	struct tma_item item = { .transform = &pair.transpose };
	CUdeviceptr held;

	pair_init(&pair, host, 0, host, BYTES);
	held = hold(stream);
	pair.transpose.order = &order;
	ok(tma_enqueue(client, &pair.transpose, stream));
	cr_assert_eq(word[1], 0);
	let_go(held);
	cr_assert_eq(tma_point_wait(&word[1], 7, -1), TMA_OK);
	assert_nothing_failed();
	order.wait = (struct tma_point){ words, 0, 1 };
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "order.wait: "), "%s", tma_last_error(client));
	order.wait.region = NULL;
	pair.transpose.order = NULL;
	cr_assert_eq(tma_enqueue_items(client, &item, 1, &order, stream), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "order.signal: "), "%s", tma_last_error(client));
	assert_nothing_failed();
}

/* ---- Failures ----------------------------------------------------------------------------------------- */

static void assert_failed(int status, const char *what)
{
	struct tma_enqueued counts;

	cr_assert_eq(tma_enqueued(client, stream, &counts), status, "%s", tma_last_error(client));
	cr_assert(strstr(tma_last_error(client), what), "%s", tma_last_error(client));
	assert_nothing_failed();
}

/* The service refuses the second of three concurrent requests, while the first waits for the stream. */
Test(streams_there, a_request_that_is_refused)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES);
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES);
	tma_region *words = host_region(client, 4096);
	struct tma_order order = { .signal = { words, 0, 1 } };
	uint32_t *in = pinned(), *out = pinned();
	struct pair right, wrong;
	CUdeviceptr word = hold(stream);

	fill(in, 3);
	pair_init(&right, b, 0, a, 0);
	pair_init(&wrong, b, 4, a, 0);
	wrong.transpose.order = &order;
	cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
	ok(tma_enqueue(client, &right.transpose, stream));
	ok(tma_enqueue(client, &wrong.transpose, stream));
	cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
	ok(tma_enqueue(client, &right.transpose, stream));
	let_go(word);
	cuda(cuStreamSynchronize(stream));
	assert_transposed(out, 3, "the first");
	assert_failed(TMA_OUT_OF_RANGE, "dst");
	cr_assert_eq(*(uint64_t *)tma_region_data(words), 0);
	cr_assert_eq(served(), 3);
}

Test(streams_both, memory_that_is_gone)
{
	CUdeviceptr dst = allocate(BYTES);
	int fd = memfd_create("gone", MFD_CLOEXEC);
	struct pair pair;
	tma_region *gone;
	CUdeviceptr word;

	cr_assert_eq(ftruncate(fd, BYTES), 0);
	ok(tma_region_register_memfd(client, fd, 0, BYTES, 0, &gone));
	pair_init(&pair, region_at(client, dst, BYTES), 0, gone, 0);
	word = hold(stream);
	ok(tma_enqueue(client, &pair.transpose, stream));
	cr_assert_eq(ftruncate(fd, 0), 0);
	let_go(word);
	cuda(cuStreamSynchronize(stream));
	assert_failed(TMA_DEVICE, "transform: ");
	close(fd);
}

/* The library is not called again before the stream has gone on. */
Test(streams_there, the_service_is_killed)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES);
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES);
	uint32_t in[ELEMENTS], out[ELEMENTS];
	struct pair pair;

	fill(in, 8);
	pair_init(&pair, b, 0, a, 0);
	for (int round = 0; round < 3; round++) {
		CUdeviceptr word = hold(stream);

		for (int i = 0; i < 5; i++)
			ok(tma_enqueue(client, &pair.transpose, stream));
		process_kill(&service);
		let_go(word);
		cuda(cuStreamSynchronize(stream));
		assert_failed(TMA_DISCONNECTED, "tmad at ");
		process_start_again(&service, NULL);
		cuda(cuMemsetD8Async(dst, 0, BYTES, stream));
		cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
		ok(tma_enqueue(client, &pair.transpose, stream));
		cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
		assert_nothing_failed();
		assert_transposed(out, 8, "by the next service");
	}
}

/* Returns false while the device is not back yet. */
static bool works_again(const struct pair *pair)
{
	struct tma_enqueued counts;

	return tma_restore(client) == 0 && tma_enqueue(client, &pair->transpose, stream) == 0 &&
	       tma_enqueued(client, stream, &counts) == 0;
}

static void the_device_is_lost(void)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES), word;
	tma_region *a = region_at(client, src, BYTES), *b = region_at(client, dst, BYTES);
	uint32_t *in = pinned(), *out = pinned();
	struct pair pair;

	fill(in, 4);
	pair_init(&pair, b, 0, a, 0);
	cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
	word = hold(stream);
	for (int i = 0; i < 3; i++)
		ok(tma_enqueue(client, &pair.transpose, stream));
	let_go(word);
	cuda(cuStreamSynchronize(stream));
	assert_failed(TMA_DEVICE_LOST, "device");
	cuda(cuMemsetD8Async(dst, 0, BYTES, stream));
	while (!works_again(&pair))
		;
	cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
	assert_nothing_failed();
	assert_transposed(out, 4, "by the device that has come back");
}

Test(streams_lost, the_device_is_lost)
{
	the_device_is_lost();
}

Test(streams_lost_of_two, the_device_is_lost)
{
	the_device_is_lost();
}

/* The service is gone before the call, which connects to the next one. */
Test(streams_there, a_connection_that_was_lost)
{
	tma_region *region = region_at(client, allocate(2 * BYTES), 2 * BYTES);
	struct pair pair;

	pair_init(&pair, region, 0, region, BYTES);
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
	process_kill(&service);
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_DISCONNECTED);
	assert_nothing_failed();
	process_start_again(&service, NULL);
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
	cr_assert_eq(tma_reconnects(client), 1);
}

Test(streams_there, too_many_under_way)
{
	tma_region *region = region_at(client, allocate(2 * BYTES), 2 * BYTES);
	CUdeviceptr word = hold(stream);
	struct pair pair;
	int rc = 0, n = 0;

	pair_init(&pair, region, 0, region, BYTES);
	while (n < 128 && (rc = tma_enqueue(client, &pair.transpose, stream)) == 0)
		n++;
	ok(rc);
	tma_set_timeout(client, 50);
	cr_assert_eq(tma_enqueue(client, &pair.transpose, stream), TMA_BUSY);
	tma_set_timeout(client, -1);
	let_go(word);
	ok(tma_enqueue(client, &pair.transpose, stream));
	assert_nothing_failed();
	cr_assert_eq(served(), 129);
}

Test(streams_there, the_client_is_freed)
{
	CUdeviceptr memory = allocate(2 * BYTES), word = hold(stream);
	tma_region *region = region_at(client, memory, 2 * BYTES);
	uint32_t *last = pinned();
	struct pair pair;

	pair_init(&pair, region, 0, region, BYTES);
	for (int i = 0; i < 5; i++)
		ok(tma_enqueue(client, &pair.transpose, stream));
	cuda(cuMemsetD8Async(memory, 0x11, 4, stream));
	cuda(cuMemcpyDtoHAsync(last, memory, 4, stream));
	tma_free(client);
	client = new_client();
	let_go(word);
	cuda(cuStreamSynchronize(stream));
	cr_assert_eq(*last, 0x11111111);
}

/* The child has none of its parent's threads, but shares the words of the timelines with it. */
Test(streams_there, a_child_frees_its_copy_of_the_client)
{
	CUdeviceptr src = allocate(BYTES), dst = allocate(BYTES);
	uint32_t *in = pinned(), *out = pinned();
	CUdeviceptr word = hold(stream);
	struct pair pair;
	pid_t child;

	fill(in, 9);
	pair_init(&pair, region_at(client, dst, BYTES), 0, region_at(client, src, BYTES), 0);
	ok(tma_enqueue(client, &pair.transpose, stream));
	child = fork();
	if (child == 0) {
		tma_free(client);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, NULL, 0), child);
	cuda(cuMemcpyHtoDAsync(src, in, BYTES, stream));
	ok(tma_enqueue(client, &pair.transpose, stream));
	cuda(cuMemcpyDtoHAsync(out, dst, BYTES, stream));
	let_go(word);
	assert_nothing_failed();
	assert_transposed(out, 9, "by the parent");
}

/* ---- Threads ------------------------------------------------------------------------------------------ */

struct worker {
	pthread_t thread;
	uint32_t seed;
	bool is_there;
};

/* Asserts nothing, because Criterion's failures must be raised on the test's main thread. */
static void *work(void *arg)
{
	const struct worker *worker = arg;
	tma_client *own = tma_new();
	tma_region *a, *b;
	uint32_t in[ELEMENTS], out[ELEMENTS];
	struct tma_enqueued counts;
	struct pair pair;
	CUdeviceptr src, dst;
	CUstream mine;
	uintptr_t wrong = 0;

	if (!own || tma_connect(own, service.socket) != 0 || cuCtxSetCurrent(context) != CUDA_SUCCESS ||
	    cuStreamCreateWithPriority(&mine, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS ||
	    cuMemAlloc(&src, BYTES) != CUDA_SUCCESS || cuMemAlloc(&dst, BYTES) != CUDA_SUCCESS ||
	    tma_region_from_device_ptr(own, (void *)(uintptr_t)src, BYTES, 0, &a) != 0 ||
	    tma_region_from_device_ptr(own, (void *)(uintptr_t)dst, BYTES, 0, &b) != 0)
		return (void *)(uintptr_t)1000;
	own->has_no_launcher = worker->is_there;
	pair_init(&pair, b, 0, a, 0);
	for (uint32_t round = 0; round < 40; round++) {
		fill(in, worker->seed + round);
		wrong += cuMemcpyHtoDAsync(src, in, BYTES, mine) != CUDA_SUCCESS;
		wrong += tma_enqueue(own, &pair.transpose, mine) != 0;
		wrong += cuMemcpyDtoHAsync(out, dst, BYTES, mine) != CUDA_SUCCESS;
		wrong += tma_enqueued(own, mine, &counts) != 0;
		for (size_t r = 0; r < ROWS; r++)
			for (size_t c = 0; c < COLUMNS; c++)
				wrong += out[c * ROWS + r] != in[r * COLUMNS + c];
	}
	tma_free(own);
	return (void *)wrong;
}

Test(streams_both, threads_with_streams_of_their_own)
{
	struct worker workers[4];
	void *wrong;

	for (uint32_t i = 0; i < 4; i++) {
		workers[i] = (struct worker){ .seed = 1000 * i, .is_there = i % 2 };
		cr_assert_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_eq(pthread_join(workers[i].thread, &wrong), 0);
		cr_assert_eq((uintptr_t)wrong, 0, "thread %u: %zu", i, (size_t)(uintptr_t)wrong);
	}
}

/* ---- Many --------------------------------------------------------------------------------------------- */

#define SLOTS 50
#define MOST  512 /* most elements of a tensor */

static uint32_t random_state = 20261130;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % n;
}

/* Computes what a transform of three dimensions makes of one slot in another. */
static void permute(uint32_t *dst, const uint32_t *src, const int64_t shape[3], const int perm[3])
{
	const int64_t steps[3] = { shape[1] * shape[2], shape[2], 1 };

	for (int64_t i = 0; i < shape[perm[0]]; i++)
		for (int64_t j = 0; j < shape[perm[1]]; j++)
			for (int64_t k = 0; k < shape[perm[2]]; k++)
				*dst++ = src[i * steps[perm[0]] + j * steps[perm[1]] + k * steps[perm[2]]];
}

/* Sends 1000 requests between 50 slots, each of which reads what earlier ones wrote. */
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

Test(streams_there, a_thousand)
{
	CUstream streams[2] = { stream, new_stream() };

	random_requests(streams);
	cr_assert_eq(served(), 1000);
}
