/* SPDX-License-Identifier: Apache-2.0 */
/* Tests blocking calls that move between memory of the device and of the host, mostly more than a staging
 * slot holds. property_host.c tests small moves of all kinds. */
#include "rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulated/emulated.h"

TestSuite(stream_host, .init = rig_open, .fini = rig_close);

static const int turned[] = { 1, 0 };

static uint32_t *host_numbers(size_t n, uint32_t seed)
{
	uint32_t *ret = malloc(n * sizeof *ret);

	cr_assert_not_null(ret);
	for (size_t i = 0; i < n; i++)
		ret[i] = (uint32_t)i * 2654435761u + seed;
	return ret;
}

static struct tma_tensor host_matrix(const uint32_t *data, int64_t rows, int64_t columns)
{
	return matrix((uintptr_t)data, rows, columns);
}

static bool is_turned(const uint32_t *dst, const uint32_t *src, int64_t rows, int64_t columns)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			if (dst[c * rows + r] != src[r * columns + c])
				return false;
	return true;
}

static int turn(struct tma_tensor dst, struct tma_tensor src)
{
	return tma_transpose(client, &dst, &src, turned);
}

#define works(call) cr_assert_eq(call, 0, "%s", tma_last_error(client))

/* ---- Large ones --------------------------------------------------------------------------------------- */

enum { ROWS = 1900, COLUMNS = 1501 }; /* 11 MB, in rows of which no whole number fills a slot */

Test(stream_host, there_and_back)
{
	const size_t n = (size_t)ROWS * COLUMNS;
	uint32_t *src = host_numbers(n, 1), *dst = calloc(n, sizeof *dst);
	CUdeviceptr device = rig_bytes(n * 4, 0);
	const struct tma_tensor from = host_matrix(src, ROWS, COLUMNS), to = host_matrix(dst, ROWS, COLUMNS);
	const struct tma_tensor between = matrix(device, COLUMNS, ROWS), same = matrix(device, ROWS, COLUMNS);
	uint32_t *got = malloc(n * sizeof *got);

	works(tma_transpose(client, &between, &from, turned));
	rig_get(got, device, n * 4);
	cr_assert(is_turned(got, src, ROWS, COLUMNS));
	works(tma_transpose(client, &to, &between, turned));
	cr_assert_eq(memcmp(dst, src, n * 4), 0);
	/* Bytes that are not rearranged need no copy on the device. */
	memset(dst, 0, n * 4);
	works(tma_copy(client, &same, &from));
	cr_assert_str_eq(tma_last_result(client)->path, "memcpy");
	works(tma_copy(client, &to, &same));
	cr_assert_eq(memcmp(dst, src, n * 4), 0);
	free(src);
	free(dst);
	free(got);
}

/* Every other row and every third column is moved, and what lies between them is unchanged. */
Test(stream_host, gaps)
{
	enum { H = 700, W = 900, PITCH = 3 * W + 5 };
	const size_t n = (size_t)2 * H * PITCH;
	uint32_t *pool = host_numbers(n, 2), *before = malloc(n * sizeof *before);
	CUdeviceptr device = rig_numbers((size_t)H * W);
	uint32_t *got = malloc((size_t)H * W * 4);
	const int64_t strides[] = { 2 * PITCH, 3 };
	struct tma_tensor view = host_matrix(pool, H, W), dense = matrix(device, W, H);

	view.strides = strides;
	memcpy(before, pool, n * 4);
	works(tma_transpose(client, &view, &dense, turned));
	rig_get(got, device, (size_t)H * W * 4);
	for (size_t i = 0; i < n; i++) {
		const size_t r = i / PITCH, c = i % PITCH;
		const bool is_in = r % 2 == 0 && c % 3 == 0 && c < 3 * W;

		cr_assert_eq(pool[i], is_in ? got[c / 3 * H + r / 2] : before[i]);
	}
	memset(got, 0, (size_t)H * W * 4);
	rig_put(device, got, (size_t)H * W * 4);
	works(tma_transpose(client, &dense, &view, turned));
	rig_get(got, device, (size_t)H * W * 4);
	for (size_t i = 0; i < (size_t)H * W; i++)
		cr_assert_eq(got[i], pool[i % H * 2 * PITCH + i / H * 3]);
	free(pool);
	free(before);
	free(got);
}

/* The blocks belong to a pool in host memory, of which only those exist that the list names. */
Test(stream_host, only_named_blocks_travel)
{
	enum { BLOCK = 3 << 20, BLOCKS = 4096, N = 3 };
	const int64_t index[N] = { 4000, 7, 2048 };
	uint8_t *pool =
	    mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CUdeviceptr device = rig_bytes((size_t)N * BLOCK, 0);
	const struct tma_tensor there = {
		.offset = device, .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK }
	};
	const struct tma_tensor here = {
		.offset = (uintptr_t)pool, .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK }
	};
	const struct tma_transform in = { .dst = &there, .src = &here },
				   out = { .dst = &here, .src = &there };
	struct tma_blocks blocks = {
		.transform = &in, .index = index, .index_dtype = TMA_INT64, .count = N, .limit = BLOCKS
	};
	uint8_t *got = malloc((size_t)N * BLOCK);

	cr_assert_neq(pool, MAP_FAILED);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(mprotect(pool + index[i] * BLOCK, BLOCK, PROT_READ | PROT_WRITE), 0);
		for (size_t b = 0; b < BLOCK; b++)
			pool[(size_t)index[i] * BLOCK + b] = (uint8_t)(b * 7 + b / 4096 + (size_t)i);
	}
	works(tma_gather(client, &blocks));
	rig_get(got, device, (size_t)N * BLOCK);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(memcmp(got + (size_t)i * BLOCK, pool + index[i] * BLOCK, BLOCK), 0);
		memset(pool + index[i] * BLOCK, 0, BLOCK);
	}
	blocks.transform = &out;
	works(tma_scatter(client, &blocks));
	for (int i = 0; i < N; i++)
		cr_assert_eq(memcmp(got + (size_t)i * BLOCK, pool + index[i] * BLOCK, BLOCK), 0);
	munmap(pool, (size_t)BLOCK * BLOCKS);
	free(got);
}

/* The copy engine moves pinned memory if all of its bytes are used; otherwise a kernel accesses it where it
 * is. */
Test(stream_host, pinned)
{
	enum { H = 300, W = 500 };
	const size_t n = (size_t)H * W;
	CUdeviceptr device = rig_bytes(n * 4, 0);
	const int64_t strides[] = { 2 * W, 1 };
	const struct tma_tensor there = matrix(device, W, H);
	struct tma_tensor here;
	uint32_t *pages, *got = malloc(n * 4);

	cuda(cuMemHostAlloc((void **)&pages, 2 * n * 4, 0));
	for (size_t i = 0; i < 2 * n; i++)
		pages[i] = (uint32_t)i;
	here = host_matrix(pages, H, W);
	works(tma_transpose(client, &there, &here, turned));
	rig_get(got, device, n * 4);
	cr_assert(is_turned(got, pages, H, W));
	memset(pages, 0, n * 4);
	works(tma_transpose(client, &here, &there, turned));
	cr_assert(is_turned(got, pages, H, W));
	here.strides = strides;
	memset(pages, 0x55, 2 * n * 4);
	works(tma_transpose(client, &here, &there, turned));
	for (size_t i = 0; i < 2 * n; i++) {
		const size_t r = i / (2 * W), c = i % (2 * W);

		cr_assert_eq(pages[i], c < W ? got[c * H + r] : 0x55555555);
	}
	cuda(cuMemFreeHost(pages));
	free(got);
}

/* ---- Requests of other kinds -------------------------------------------------------------------------- */

Test(stream_host, plans)
{
	uint32_t *src = host_numbers(35, 3), *dst = calloc(35, sizeof *dst);
	CUdeviceptr device = rig_bytes(35 * 4, 0);
	const struct tma_tensor from = host_matrix(src, 5, 7), to = matrix(device, 7, 5);
	const struct tma_transform t = { .dst = &to, .src = &from, .perm = turned };
	struct tma_plan *plan;

	works(tma_plan_prepare(client, &t, &plan));
	works(tma_plan_run(client, plan, (struct tma_place){ .offset = device },
	                   (struct tma_place){ .offset = (uintptr_t)src }, NULL));
	works(tma_plan_run(client, plan, (struct tma_place){ .offset = (uintptr_t)dst },
	                   (struct tma_place){ .offset = (uintptr_t)src }, NULL));
	cr_assert(is_turned(dst, src, 5, 7));
	memset(src, 0, 35 * 4);
	rig_get(src, device, 35 * 4);
	cr_assert_eq(memcmp(src, dst, 35 * 4), 0);
	free(src);
	free(dst);
}

/* A list in device memory is read when the work in the stream has ended. Entries out of range are counted. */
Test(stream_host, lists_of_the_device)
{
	const int32_t list[6] = { 3, -1, 9, 0, -7, 3 };
	uint32_t *pool = host_numbers(4 * 8, 4), got[6][8];
	CUdeviceptr index = rig_bytes(sizeof list, 0), device = rig_bytes(sizeof got, 0xee);
	const struct tma_tensor row = { .offset = device, .dtype = TMA_UINT32, .rank = 1, .shape = { 8 } };
	const struct tma_tensor from = {
		.offset = (uintptr_t)pool, .dtype = TMA_UINT32, .rank = 1, .shape = { 8 }
	};
	const struct tma_transform t = { .dst = &row, .src = &from };
	const struct tma_blocks blocks = { .transform = &t,
		                           .index_at = { .offset = index },
		                           .index_dtype = TMA_INT32,
		                           .count = 6,
		                           .limit = 4 };

	rig_put(index, list, sizeof list);
	works(tma_gather(client, &blocks));
	cr_assert_eq(tma_last_result(client)->moved, 3);
	cr_assert_eq(tma_last_result(client)->passed, 1);
	cr_assert_eq(tma_last_result(client)->beyond, 2);
	rig_get(got, device, sizeof got);
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < 8; k++)
			cr_assert_eq(got[i][k],
			             list[i] >= 0 && list[i] < 4 ? pool[list[i] * 8 + k] : 0xeeeeeeee);
	free(pool);
}

Test(stream_host, nothing_to_move)
{
	const int32_t list[2] = { -1, -1 };
	uint32_t *pool = host_numbers(8, 5);
	CUdeviceptr device = rig_bytes(64, 0xee);
	uint32_t got[16];
	const struct tma_tensor row = { .offset = device, .dtype = TMA_UINT32, .rank = 1, .shape = { 8 } };
	const struct tma_tensor from = {
		.offset = (uintptr_t)pool, .dtype = TMA_UINT32, .rank = 1, .shape = { 8 }
	};
	const struct tma_tensor none = { .offset = device, .dtype = TMA_UINT32, .rank = 1, .shape = { 0 } };
	CUdeviceptr pads = rig_bytes(24, 0);
	const struct tma_tensor padded = { .offset = pads, .dtype = TMA_UINT32, .rank = 1, .shape = { 3 } };
	const struct tma_tensor no_host = {
		.offset = (uintptr_t)pool, .dtype = TMA_UINT32, .rank = 1, .shape = { 0 }
	};
	const struct tma_transform t = { .dst = &row, .src = &from };
	struct tma_blocks blocks = {
		.transform = &t, .index = list, .index_dtype = TMA_INT32, .count = 2, .limit = 1
	};

	works(tma_gather(client, &blocks));
	cr_assert_eq(tma_last_result(client)->moved, 0);
	cr_assert_eq(tma_last_result(client)->passed, 2);
	blocks.count = 0;
	works(tma_gather(client, &blocks));
	works(tma_copy(client, &none, &no_host));
	/* Blocks that are all padding need no source. */
	blocks.transform = &(struct tma_transform){ .dst = &padded,
		                                    .src = &no_host,
		                                    .after = (const int64_t[]){ 3 },
		                                    .value = { .kind = TMA_NUMBER_UINT, .u = 9 } };
	blocks.index = (const int32_t[]){ 0, 0 };
	blocks.count = 2;
	works(tma_gather(client, &blocks));
	rig_get(got, pads, 24);
	for (int i = 0; i < 6; i++)
		cr_assert_eq(got[i], 9);
	works(tma_copy(client, &no_host, &none));
	rig_get(got, device, 64);
	for (int i = 0; i < 16; i++)
		cr_assert_eq(got[i], 0xeeeeeeee);
	free(pool);
}

/* ---- Errors ------------------------------------------------------------------------------------------- */

static void assert_error(int rc, int wanted, const char *text)
{
	cr_expect_eq(rc, wanted, "%s: %s", tma_status_name(rc), tma_last_error(client));
	cr_expect_str_eq(tma_last_error(client), text);
}

Test(stream_host, refused)
{
	float values[4] = { 1, 2, 3, 4 }, into[4];
	int16_t exact[4] = { 0 };
	CUdeviceptr device = rig_bytes(16, 0), three = rig_bytes(4, 0);
	const struct tma_tensor from = {
		.offset = (uintptr_t)values, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 }
	};
	const struct tma_tensor to = {
		.offset = (uintptr_t)into, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 }
	};
	const struct tma_tensor scale = { .offset = three, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 } };
	struct tma_tensor there = { .offset = device, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 4 } };
	const struct tma_tensor whole = {
		.offset = (uintptr_t)exact, .dtype = TMA_INT16, .rank = 1, .shape = { 4 }
	};
	const struct tma_conversion scaled = { .scale_tensor = &scale }, cast = { .cast = TMA_CAST_EXACT };
	const struct tma_transform t = { .dst = &to, .src = &from, .conversion = &scaled };
	const struct tma_transform bad = { .dst = &there, .src = &from, .perm = turned };
	const struct tma_transform counts = { .dst = &whole, .src = &there, .conversion = &cast };

	assert_error(tma_transform(client, &t), TMA_UNSUPPORTED,
	             "scale: it is memory of a device, but dst and src are the host's; copy it to the host");
	cr_assert_eq(tma_transform(client, &bad), TMA_INVALID_ARGUMENT);
	values[2] = 2.5f;
	works(tma_copy(client, &there, &from));
	/* The values that an exact cast has changed are written all the same. */
	assert_error(
	    tma_transform(client, &counts), TMA_OUT_OF_RANGE,
	    "cast: exact, but the values of 1 element of float32 are not values of int16; dst has the "
	    "nearest");
	cr_assert(exact[0] == 1 && exact[1] == 2 && exact[2] == 2 && exact[3] == 4);
}

/* If the device has too little memory, a request with ordinary host memory fails, and later ones work; pinned
 * memory is used where it is. */
Test(stream_host, no_memory, .init = NULL)
{
	enum { H = 1500, W = 2000 };
	const size_t n = (size_t)H * W;
	uint32_t *src, *got = malloc(n * 4), *pages;
	struct tma_tensor there, here;
	CUdeviceptr device, small;

	setenv("SOFTGPU_MEMORY", "20000000", 1);
	rig_open();
	src = host_numbers(n, 6);
	device = rig_bytes(n * 4, 0xee);
	small = rig_bytes(35 * 4, 0);
	there = matrix(device, H, W);
	here = host_matrix(src, H, W);
	assert_error(
	    turn(matrix(device, W, H), host_matrix(src, H, W)), TMA_NO_MEMORY,
	    "src: it lies on the host, and the device does not have the 12000000 bytes that its copy "
	    "there takes");
	works(turn(matrix(small, 7, 5), host_matrix(src, 5, 7)));
	rig_get(got, small, 35 * 4);
	cr_assert(is_turned(got, src, 5, 7));
	works(tma_copy(client, &there, &here));
	cuda(cuMemHostAlloc((void **)&pages, n * 4, 0));
	memcpy(pages, src, n * 4);
	works(turn(matrix(device, W, H), host_matrix(pages, H, W)));
	rig_get(got, device, n * 4);
	cr_assert(is_turned(got, src, H, W));
	cuda(cuMemFreeHost(pages));
	free(src);
	free(got);
}

/* Each call of the driver fails once. The request then fails or succeeds, and the next one succeeds. */
Test(stream_host, each_call_fails)
{
	enum { H = 60, W = 500 };
	const size_t n = (size_t)H * W;
	uint32_t *src = host_numbers(n, 7), *dst = malloc(n * 4);
	CUdeviceptr device = rig_bytes(n * 4, 0);
	const struct tma_tensor from = host_matrix(src, H, W), there = matrix(device, W, H);
	const struct tma_tensor back = host_matrix(dst, H, W);
	int failures = 0, rc = -1;

	for (int call = 2; call < 150; call++) {
		char text[16];

		snprintf(text, sizeof text, "%d", call);
		setenv("SOFTGPU_FAIL", text, 1);
		cuda(cuInit(0)); /* makes the driver read its environment again; this is call 1 */
		memset(dst, 0, n * 4);
		rc = tma_transpose(client, &there, &from, turned);
		if (rc == 0)
			rc = tma_transpose(client, &back, &there, turned);
		failures += rc < 0;
		setenv("SOFTGPU_FAIL", "0", 1);
		cuda(cuInit(0));
		cr_assert(rc < 0 || memcmp(dst, src, n * 4) == 0, "call %d", call);
		works(tma_transpose(client, &there, &from, turned));
		works(tma_transpose(client, &back, &there, turned));
		cr_assert_eq(memcmp(dst, src, n * 4), 0, "after call %d", call);
	}
	cr_assert(failures > 20, "%d", failures);
	cr_assert_eq(rc, 0, "all calls have failed once");
	free(src);
	free(dst);
}

/* ---- Threads and processes ----------------------------------------------------------------------------- */

static void *go_there_and_back(void *arg)
{
	enum { H = 600, W = 700 };
	const size_t n = (size_t)H * W;
	const uint32_t seed = *(const uint32_t *)arg;
	tma_client *own = tma_new();
	uint32_t *src = host_numbers(n, seed), *dst = malloc(n * 4);
	CUdeviceptr device;

	cuda(cuCtxSetCurrent(context));
	cuda(cuMemAlloc(&device, n * 4));
	cr_assert_eq(tma_connect(own, "local:"), 0);
	for (int i = 0; i < 4; i++) {
		const struct tma_tensor from = host_matrix(src, H, W), there = matrix(device, W, H);
		const struct tma_tensor back = host_matrix(dst, H, W);

		memset(dst, 0, n * 4);
		cr_assert_eq(tma_transpose(own, &there, &from, turned), 0, "%s", tma_last_error(own));
		cr_assert_eq(tma_transpose(own, &back, &there, turned), 0, "%s", tma_last_error(own));
		cr_assert_eq(memcmp(dst, src, n * 4), 0, "thread %u, round %d", seed, i);
	}
	tma_free(own);
	free(src);
	free(dst);
	return NULL;
}

/* There are more threads than sets of staging slots. */
Test(stream_host, threads)
{
	enum { THREADS = 9 };
	pthread_t threads[THREADS];
	uint32_t seeds[THREADS];

	for (uint32_t i = 0; i < THREADS; i++) {
		seeds[i] = i;
		cr_assert_eq(pthread_create(&threads[i], NULL, go_there_and_back, &seeds[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static bool turns_here(void)
{
	uint32_t *src = host_numbers(300 * 400, 8), *dst = calloc(300 * 400, sizeof *dst);
	const struct tma_tensor from = host_matrix(src, 300, 400), to = host_matrix(dst, 400, 300);
	const bool good = tma_transpose(client, &to, &from, turned) == 0 && is_turned(dst, src, 300, 400);

	free(src);
	free(dst);
	return good;
}

/* A forked child has no GPU and moves host memory. Its parent goes on with its staging slots, of which the
 * child has no copy. */
Test(stream_host, children)
{
	bool *is_right =
	    mmap(NULL, sizeof *is_right, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t seed = 9;
	pthread_t thread;
	int status;

	if (emulated_by("qemu"))
		cr_skip("qemu fails in a forked child that starts threads");
	cr_assert_neq(is_right, MAP_FAILED);
	cr_assert_eq(pthread_create(&thread, NULL, go_there_and_back, &seed), 0);
	for (int i = 0; i < 10; i++) {
		*is_right = false;
		const pid_t child = fork();
		if (child == 0) {
			*is_right = turns_here();
			raise(SIGKILL);
		}
		cr_assert(child > 0);
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(*is_right, "child %d", i);
	}
	pthread_join(thread, NULL);
	munmap(is_right, sizeof *is_right);
}
