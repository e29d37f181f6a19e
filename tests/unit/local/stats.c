/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the process's statistics of its requests, and the list of regions. */
#include "memory.h"

#include <string.h>

enum { ROWS = 30, COLUMNS = 50, BYTES = 4 * ROWS * COLUMNS };

TestSuite(local_stats, .init = memory_open, .fini = memory_close);

static tma_document *stats(void)
{
	tma_document *ret;

	cr_assert_eq(tma_stats(client, &ret), 0, "%s", tma_last_error(client));
	return ret;
}

/* Returns the number under a path of one or two keys; inner may be NULL. */
static int64_t number(const tma_document *document, const char *key, const char *inner)
{
	const tma_document *node = tma_document_find(document, key);

	return tma_document_int(inner ? tma_document_find(node, inner) : node);
}

static int64_t sum(const tma_document *document, const char *key)
{
	const tma_document *map = tma_document_find(document, key);
	int64_t ret = 0;

	for (size_t i = 0; i < tma_document_count(map); i++)
		ret += tma_document_int(tma_document_at(map, i, NULL));
	return ret;
}

static int64_t moves_timed(const tma_document *document)
{
	const tma_document *list = tma_document_find(document, "latency");
	int64_t ret = 0;

	for (size_t i = 0; i < tma_document_count(list); i++)
		ret += number(tma_document_at(list, i, NULL), "count", NULL);
	return ret;
}

static int transpose(tma_client *by, uint64_t dst, uint64_t src)
{
	const struct tma_tensor to = {
		.offset = dst, .dtype = TMA_UINT32, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	const struct tma_tensor from = {
		.offset = src, .dtype = TMA_UINT32, .rank = 2, .shape = { ROWS, COLUMNS }
	};

	return tma_transpose(by, &to, &from, (const int[]){ 1, 0 });
}

Test(local_stats, count_moves_and_errors)
{
	const uint64_t a = memory_new(BYTES), b = memory_new(BYTES);
	tma_document *before = stats(), *after;

	cr_assert_eq(number(before, "connections", NULL), 1);
	cr_assert_eq(sum(before, "bytes"), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(transpose(client, b, a), 0, "%s", tma_last_error(client));
	cr_assert_eq(transpose(client, b, b), TMA_OVERLAP);
	after = stats();
	cr_assert_eq(number(after, "requests_by_method", "transpose"), 4);
	cr_assert_eq(number(after, "requests", NULL) - number(before, "requests", NULL), 5);
	cr_assert_eq(number(after, "errors", "OVERLAP"), 1);
	cr_assert_eq(number(after, "bytes", "tile_transpose"), 3 * 2 * BYTES);
	cr_assert_eq(sum(after, "bytes"), 3 * 2 * BYTES);
	cr_assert_eq(moves_timed(after), 3);
	cr_assert_geq(number(after, "plan_cache", "hits"), 2);
	cr_assert_geq(number(after, "plan_cache", "misses"), 1);
	cr_assert_eq(number(after, "plan_cache", "entries"), number(after, "plan_cache", "misses"));
	tma_document_free(before);
	tma_document_free(after);
}

/* All clients of a process are counted together, also after they have been freed. */
Test(local_stats, are_of_the_process)
{
	const uint64_t a = memory_new(BYTES), b = memory_new(BYTES);
	tma_client *other = tma_new();
	tma_document *document;
	tma_region *region;

	cr_assert_eq(tma_connect(other, "local:"), 0);
	cr_assert_eq(transpose(other, b, a), 0, "%s", tma_last_error(other));
	cr_assert_eq(transpose(client, b, a), 0);
	region = memory_region(a, BYTES, 0);
	document = stats();
	cr_assert_eq(number(document, "connections", NULL), 2);
	cr_assert_eq(number(document, "requests_by_method", "transpose"), 2);
	cr_assert_eq(number(document, "regions", NULL), 1);
	cr_assert_eq(number(document, "mapped_bytes", NULL), BYTES);
	tma_document_free(document);
	tma_free(other);
	cr_assert_eq(tma_region_release(region), 0);
	document = stats();
	cr_assert_eq(number(document, "connections", NULL), 1);
	cr_assert_eq(number(document, "connections_accepted", NULL), 2);
	cr_assert_eq(number(document, "requests_by_method", "transpose"), 2);
	cr_assert_eq(number(document, "regions", NULL), 0);
	cr_assert_eq(number(document, "mapped_bytes", NULL), 0);
	tma_document_free(document);
}

Test(local_stats, regions_are_listed)
{
	const uint64_t a = memory_new(BYTES), b = memory_new(BYTES);
	tma_region *first = memory_region(a, BYTES, 0);
	const tma_document *entry;
	tma_document *list;

	memory_region(b, BYTES - 8, TMA_REGION_READ_ONLY);
	cr_assert_eq(tma_region_release(first), 0);
	cr_assert_eq(tma_regions(client, &list), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_document_count(list), 1);
	entry = tma_document_at(list, 0, NULL);
	cr_assert_eq(number(entry, "size", NULL), BYTES - 8);
	cr_assert_eq(number(entry, "offset", NULL), (int64_t)b);
	cr_assert_eq(number(entry, "writable", NULL), 0);
	tma_document_free(list);
	cr_assert_eq(tma_session_regions(client, 7, &list), TMA_NOT_FOUND);
	cr_assert_eq(tma_sessions(client, 0, &list), TMA_UNSUPPORTED);
}
