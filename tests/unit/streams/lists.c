/* SPDX-License-Identifier: Apache-2.0 */
/* Tests gathers and scatters by lists of any length in ordinary host memory, which the caller changes as soon
 * as the call has returned. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

TestSuite(stream_lists, .init = rig_open, .fini = rig_close);

#define WORDS 4 /* uint32 in a row */
#define ROWS  97

/* A list of int32 or int64 entries. */
struct list {
	enum tma_dtype dtype;
	size_t n;
	void *entries;
};

static const struct {
	const char *name;
	size_t n;
	enum tma_dtype dtype;
} rows[] = {
	{ "6145 of int32", 6145, TMA_INT32 },     { "9000 of int32", 9000, TMA_INT32 },
	{ "100000 of int32", 100000, TMA_INT32 }, { "524288 of int32", 524288, TMA_INT32 },
	{ "6145 of int64", 6145, TMA_INT64 },     { "9000 of int64", 9000, TMA_INT64 },
	{ "100000 of int64", 100000, TMA_INT64 }, { "524288 of int64", 524288, TMA_INT64 },
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static struct list list_new(enum tma_dtype dtype, size_t n)
{
	struct list list = { dtype, n, malloc(n * tma_dtype_size(dtype)) };

	cr_assert_not_null(list.entries);
	return list;
}

static void set(struct list *list, size_t i, int64_t entry)
{
	if (list->dtype == TMA_INT32)
		((int32_t *)list->entries)[i] = (int32_t)entry;
	else
		((int64_t *)list->entries)[i] = entry;
}

/* Returns entry i of a gather; the entries take turns through every block and -1. */
static int64_t picked(size_t i)
{
	return (int64_t)(i * 7 % (ROWS + 1)) - 1;
}

/* Returns entry i of a scatter: block n - 1 - i, or -1. */
static int64_t spread(size_t i, size_t n)
{
	return i % 5 == 3 ? -1 : (int64_t)(n - 1 - i);
}

static struct tma_tensor row_at(CUdeviceptr address)
{
	return (struct tma_tensor){ .offset = address, .dtype = TMA_UINT32, .rank = 1, .shape = { WORDS } };
}

typedef int enqueue(tma_client *client, const struct tma_blocks *blocks, void *stream);

static int launch(enqueue *how, const struct list *list, CUdeviceptr dst, CUdeviceptr src, uint64_t limit)
{
	const struct tma_tensor to = row_at(dst), from = row_at(src);
	const struct tma_transform row = { .dst = &to, .src = &from };
	const struct tma_blocks blocks = { .transform = &row,
		                           .index_at = { .offset = (uintptr_t)list->entries },
		                           .index_dtype = list->dtype,
		                           .count = list->n,
		                           .limit = limit };

	return how(client, &blocks, stream);
}

static void forget(struct list *list)
{
	memset(list->entries, 0, list->n * tma_dtype_size(list->dtype));
}

static bool is_row(const uint32_t got[WORDS], const uint32_t (*from)[WORDS], int64_t row)
{
	static const uint32_t untouched[WORDS] = { 0xeeeeeeee, 0xeeeeeeee, 0xeeeeeeee, 0xeeeeeeee };

	return memcmp(got, row < 0 ? untouched : from[row], sizeof untouched) == 0;
}

static bool is_gathered(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	uint32_t from[ROWS][WORDS], (*to)[WORDS] = malloc(n * sizeof *to);
	bool is_right = true;

	rig_get(from, src, sizeof from);
	rig_get(to, dst, n * sizeof *to);
	for (size_t i = 0; i < n; i++)
		is_right &= is_row(to[i], from, picked(i));
	free(to);
	return is_right;
}

static bool is_scattered(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	uint32_t(*from)[WORDS] = malloc(n * sizeof *from), (*to)[WORDS] = malloc(n * sizeof *to);
	bool is_right = true;

	rig_get(from, src, n * sizeof *from);
	rig_get(to, dst, n * sizeof *to);
	for (size_t i = 0; i < n; i++)
		is_right &= is_row(to[n - 1 - i], from, spread(i, n) < 0 ? -1 : (int64_t)i);
	free(from);
	free(to);
	return is_right;
}

Test(stream_lists, gathers)
{
	CUdeviceptr src = rig_numbers(ROWS * WORDS);

	for (int r = 0; r < N_ROWS; r++) {
		struct list list = list_new(rows[r].dtype, rows[r].n);
		CUdeviceptr dst = rig_bytes(list.n * WORDS * 4, 0xee);

		for (size_t i = 0; i < list.n; i++)
			set(&list, i, picked(i));
		cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, ROWS), 0, "%s: %s", rows[r].name,
		             tma_last_error(client));
		forget(&list);
		cr_assert(is_gathered(dst, src, list.n), "%s", rows[r].name);
		free(list.entries);
		cuda(cuMemFree(dst));
	}
}

Test(stream_lists, scatters)
{
	for (int r = 0; r < N_ROWS; r++) {
		struct list list = list_new(rows[r].dtype, rows[r].n);
		CUdeviceptr src = rig_numbers(list.n * WORDS), dst = rig_bytes(list.n * WORDS * 4, 0xee);

		for (size_t i = 0; i < list.n; i++)
			set(&list, i, spread(i, list.n));
		cr_assert_eq(launch(tma_enqueue_scatter, &list, dst, src, list.n), 0, "%s: %s", rows[r].name,
		             tma_last_error(client));
		forget(&list);
		cr_assert(is_scattered(dst, src, list.n), "%s", rows[r].name);
		free(list.entries);
		cuda(cuMemFree(dst));
		cuda(cuMemFree(src));
	}
}

/* A graph does not need the list on the host any more, and two instances of it may exist. */
Test(stream_lists, in_graphs)
{
	CUdeviceptr src = rig_numbers(ROWS * WORDS);

	for (int r = 0; r < N_ROWS; r++) {
		struct list list = list_new(rows[r].dtype, rows[r].n);
		CUdeviceptr dst = rig_bytes(list.n * WORDS * 4, 0xee);
		CUgraphExec instances[2];
		CUgraph graph;

		for (size_t i = 0; i < list.n; i++)
			set(&list, i, picked(i));
		cuda(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, ROWS), 0, "%s: %s", rows[r].name,
		             tma_last_error(client));
		cuda(cuStreamEndCapture(stream, &graph));
		for (int i = 0; i < 2; i++)
			cuda(cuGraphInstantiateWithFlags(&instances[i], graph, 0));
		cuda(cuGraphDestroy(graph));
		forget(&list);
		/* This launch uses the pages that held the list. */
		cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, ROWS), 0);
		for (int i = 0; i < 2; i++) {
			cuda(cuMemsetD8Async(dst, 0xee, list.n * WORDS * 4, stream));
			cuda(cuGraphLaunch(instances[i], stream));
			cr_assert(is_gathered(dst, src, list.n), "%s, instance %d", rows[r].name, i);
			cuda(cuGraphExecDestroy(instances[i]));
		}
		free(list.entries);
		cuda(cuMemFree(dst));
	}
}

static void assert_refused(int rc, int wanted, const char *text)
{
	cr_expect_eq(rc, wanted, "%s: %s", tma_status_name(rc), tma_last_error(client));
	cr_expect_str_eq(tma_last_error(client), text);
}

/* The entries of a list are checked before anything is launched. */
Test(stream_lists, refused)
{
	enum { N = 20000 };
	CUdeviceptr src = rig_numbers(N * WORDS), dst = rig_bytes(N * WORDS * 4, 0xee);
	struct list list = list_new(TMA_INT64, N);
	uint32_t got[N];

	for (size_t i = 0; i < N; i++)
		set(&list, i, (int64_t)(N - 1 - i));
	set(&list, 19999, N);
	assert_refused(launch(tma_enqueue_gather, &list, dst, src, N), TMA_OUT_OF_RANGE,
	               "index[19999]: 20000, but src has 20000 blocks (limit)");
	set(&list, 19999, -2);
	assert_refused(launch(tma_enqueue_scatter, &list, dst, src, N), TMA_OUT_OF_RANGE,
	               "index[19999]: -2, but dst has 20000 blocks (limit)");
	set(&list, 19999, 7);
	assert_refused(launch(tma_enqueue_scatter, &list, dst, src, N), TMA_OVERLAP,
	               "index[19999]: 7, as index[19992]: two blocks would be written to the same place in "
	               "dst");
	rig_get(got, dst, sizeof got);
	for (size_t i = 0; i < N; i++)
		cr_assert_eq(got[i], 0xeeeeeeee);
	list.n = 0;
	cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, N), 0, "%s", tma_last_error(client));
	free(list.entries);
}

/* Pinned pages of long lists are kept up to a limit, which lists that are under way at once may exceed. */
Test(stream_lists, many_at_once)
{
	enum { N = 300000, LAUNCHES = 18 };
	CUdeviceptr word = rig_bytes(8, 0), src = rig_numbers(ROWS * WORDS);
	CUdeviceptr dst = rig_bytes((size_t)N * WORDS * 4, 0xee);
	struct list list = list_new(TMA_INT64, N);
	CUstream other;

	for (size_t i = 0; i < N; i++)
		set(&list, i, i < 1000 ? picked(i) : -1);
	cuda(cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
	for (int round = 0; round < 2; round++) {
		cuda(cuStreamWaitValue64(stream, word, (uint64_t)round + 1, CU_STREAM_WAIT_VALUE_GEQ));
		for (int i = 0; i < LAUNCHES; i++)
			cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, ROWS), 0, "%s",
			             tma_last_error(client));
		cuda(cuStreamWriteValue64(other, word, (uint64_t)round + 1, 0));
		cr_assert(is_gathered(dst, src, 1000));
	}
	cuda(cuStreamDestroy(other));
	free(list.entries);
	/* Pages of another size replace those. */
	list = list_new(TMA_INT64, 2 * N);
	for (size_t i = 0; i < 2 * N; i++)
		set(&list, i, i < 1000 ? picked(i) : -1);
	cuda(cuMemFree(dst));
	dst = rig_bytes((size_t)2 * N * WORDS * 4, 0xee);
	cr_assert_eq(launch(tma_enqueue_gather, &list, dst, src, ROWS), 0, "%s", tma_last_error(client));
	cr_assert(is_gathered(dst, src, 1000));
	free(list.entries);
}
