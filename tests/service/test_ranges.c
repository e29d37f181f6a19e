/* SPDX-License-Identifier: Apache-2.0 */
/* Address ranges of many allocations: the library and tmad --engine=cuda on the stand-in driver. After a test
 * has released what it registered, both sides hold what they held before. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ranges.h"

#define GROWTH (64 * MIB)

static void start(void)
{
	ranges_start("--mapped-bytes-per-uid=8G");
}

TestSuite(ranges, .init = start, .fini = ranges_stop, .timeout = 300);

struct range_row {
	char name[32];
	uint64_t chunk;
	uint64_t bytes;
};

ParameterizedTestParameters(ranges, are_registered_moved_grown_and_released)
{
	static struct range_row rows[] = {
		{ "1 GiB of 2 MiB", 2 * MIB, 1024 * MIB },
		{ "1 GiB of 20 MiB", 20 * MIB, 1040 * MIB },
		{ "two chunks", 2 * MIB, 4 * MIB },
		{ "as many as a message brings", 2 * MIB, 253 * 2 * MIB },
		{ "one more", 2 * MIB, 254 * 2 * MIB },
	};

	return cr_make_param_array(struct range_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct range_row *row, ranges, are_registered_moved_grown_and_released)
{
	const size_t n = row->bytes / row->chunk, more = (GROWTH + row->chunk - 1) / row->chunk;
	struct span span = span_new(row->chunk, n, n + more);
	struct held before = held_now();
	tma_region *region = registered(span.start, span_bytes(&span)), *again, *grown;
	struct tma_place place;

	assert_counted("regions", 1, row->name); /* The call leaves nothing else behind. */
	assert_counted("mapped_bytes", (int64_t)row->bytes, row->name);
	cr_assert_eq(count_fds(getpid()), before.ours, "%s: it keeps no descriptors", row->name);
	assert_transposes(&span, region, 1, row->name);

	again = registered(span.start, span_bytes(&span));
	cr_assert_eq(again, region, "%s: the second time it is the same region", row->name);
	assert_counted("regions", 1, row->name);
	ok(tma_region_release(again));
	ok(tma_region_find(client, pointer_at(span.start + row->chunk + 5), 100, &place));
	cr_assert(place.region == region && place.offset == row->chunk + 5, "%s", row->name);

	span_grow(&span, more);
	cr_assert_eq(tma_region_find(client, pointer_at(span.start), span_bytes(&span), &place),
	             TMA_NOT_FOUND);
	grown = registered(span.start, span_bytes(&span));
	cr_assert_neq(grown, region);
	assert_transposes(&span, grown, 2, row->name);
	ok(tma_region_release(region));
	assert_transposes(&span, grown, 3, row->name);
	ok(tma_region_release(grown));
	before.ours += (int)more; /* The stand-in driver opens a descriptor for each allocation. */
	assert_held(&before, row->name);
	span_free(&span);
}

/* ---- What is registered again ------------------------------------------------------------------------ */

/* Chunk 3 is freed, and other memory is mapped at its address. */
Test(ranges, memory_at_a_reused_address_is_registered_anew)
{
	struct span span = span_new(2 * MIB, 8, 8);
	const struct held before = held_now();
	tma_region *old = registered(span.start, span_bytes(&span)), *new;
	tma_region *apart = registered(span.start, 2 * MIB);
	struct tma_place place;

	assert_transposes(&span, old, 1, "before");
	span_remap(&span, 3);
	ok(tma_region_find(client, pointer_at(span.start), span_bytes(&span), &place));
	cr_assert_eq(place.region, old, "a search alone does not notice");
	new = registered(span.start, span_bytes(&span));
	cr_assert_neq(new, old, "but a registration does");
	ok(tma_region_find(client, pointer_at(span.start), span_bytes(&span), &place));
	cr_assert_eq(place.region, new);
	ok(tma_region_find(client, pointer_at(span.start), 1, &place));
	cr_assert(place.region == new || place.region == apart);
	assert_transposes(&span, new, 2, "after");
	cr_assert_eq(registered(span.start, 2 * MIB), apart, "what was not given back is still the same");
	ok(tma_region_release(apart));
	ok(tma_region_release(apart));
	ok(tma_region_release(old));
	assert_transposes(&span, new, 3, "without the old one");
	ok(tma_region_release(new));
	assert_held(&before, "reuse");
	span_free(&span);
}

/* Does the same with chunk 3: a search that asks the driver notices, where it has to. */
Test(ranges, a_search_that_asks_the_driver)
{
	struct span span = span_new(2 * MIB, 8, 8);
	const struct held before = held_now();
	tma_region *old = registered(span.start, span_bytes(&span)), *fresh, *read_only = NULL;
	tma_region *apart = registered(span.start + 8 * MIB, 4 * MIB);
	struct tma_place place = { 0 };

	ok(tma_region_from_device_ptr(client, pointer_at(span.start), 10 * MIB, TMA_REGION_READ_ONLY,
	                              &read_only));
	ok(tma_region_find_current(client, pointer_at(span.start + 6 * MIB + 5), 2 * MIB, &place));
	cr_assert(place.region == old && place.offset == 6 * MIB + 5);
	ok(tma_region_find_current(client, pointer_at(span.start), span_bytes(&span), &place));
	cr_assert(place.region == old && place.offset == 0);
	cr_assert_eq(tma_region_find_current(client, pointer_at(span.start + 16 * MIB), 1, &place),
	             TMA_NOT_FOUND);

	span_remap(&span, 3);
	ok(tma_region_find_current(client, pointer_at(span.start + 5 * MIB), MIB, &place));
	cr_assert(place.region == old, "it asks about the allocations that the bytes are in alone");
	ok(tma_region_find_current(client, pointer_at(span.start + 8 * MIB), 8 * MIB, &place));
	cr_assert(place.region == old);
	place.region = NULL;
	cr_assert_eq(tma_region_find_current(client, pointer_at(span.start + 6 * MIB - 1), 2, &place),
	             TMA_NOT_FOUND);
	cr_assert(strstr(tma_last_error(client), "no longer the memory"), "%s", tma_last_error(client));
	cr_assert_null(place.region);
	cr_assert_eq(tma_region_find(client, pointer_at(span.start), 1, &place), TMA_NOT_FOUND,
	             "nor is anything else of the regions that had it");
	ok(tma_region_find_current(client, pointer_at(span.start + 8 * MIB), 4 * MIB, &place));
	cr_assert(place.region == apart && place.offset == 0, "another region is found");
	ok(copy_bytes(old, 0, old, 4 * MIB, MIB));

	fresh = registered(span.start, span_bytes(&span));
	cr_assert_neq(fresh, old);
	ok(tma_region_find_current(client, pointer_at(span.start + 6 * MIB - 1), 2, &place));
	cr_assert(place.region == fresh && place.offset == 6 * MIB - 1);
	cuda(cuMemUnmap(span.start + 6 * MIB, 2 * MIB));
	cr_assert_eq(tma_region_find_current(client, pointer_at(span.start + 7 * MIB), 1, &place),
	             TMA_NOT_FOUND, "nothing is there now");
	map_at(span.start + 6 * MIB, 2 * MIB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	ok(tma_region_release(fresh));
	ok(tma_region_release(read_only));
	ok(tma_region_release(apart));
	ok(tma_region_release(old));
	assert_held(&before, "released");
	span_free(&span);
}

/* The range is one allocation of cudaMalloc; host memory is searched as well. */
Test(ranges, a_search_that_asks_the_driver_about_one_allocation)
{
	CUdeviceptr start, again;
	tma_region *region, *host = NULL;
	struct tma_place place;
	const uint8_t *data;

	cuda(cuMemAlloc(&start, 2 * MIB));
	region = registered(start, 2 * MIB);
	ok(tma_region_find_current(client, pointer_at(start + 100), 10, &place));
	cr_assert(place.region == region && place.offset == 100);
	cuda(cuMemFree(start));
	cuda(cuMemAlloc(&again, 2 * MIB));
	cr_assert_eq(again, start);
	ok(tma_region_find(client, pointer_at(start + 100), 10, &place));
	cr_assert_eq(tma_region_find_current(client, pointer_at(start + 100), 10, &place), TMA_NOT_FOUND);
	cr_assert_eq(tma_region_find_current(client, pointer_at(start + 100), 10, &place), TMA_NOT_FOUND);
	ok(tma_region_release(region));
	region = registered(start, 2 * MIB);
	ok(tma_region_find_current(client, pointer_at(start + 100), 10, &place));
	cr_assert_eq(place.region, region);

	ok(tma_region_create_kind(client, TMA_REGION_MEMFD, 10000, &host));
	data = tma_region_data(host);
	ok(tma_region_find_current(client, data + 1234, 10000 - 1234, &place));
	cr_assert(place.region == host && place.offset == 1234);
}

/* Checks what a search finds, depending on the flags and on the size of what is registered. */
Test(ranges, places_by_address)
{
	struct span span = span_new(2 * MIB, 4, 4);
	tma_region *all = NULL, *half = registered(span.start, 4 * MIB), *host = NULL, *again = NULL;
	struct tma_place place;
	const uint8_t *data;

	ok(tma_region_from_device_ptr(client, pointer_at(span.start), 8 * MIB, TMA_REGION_READ_ONLY, &all));
	ok(tma_region_find(client, pointer_at(span.start + MIB), MIB, &place));
	cr_assert(place.region == half && place.offset == MIB, "one that may be written to is preferred");
	ok(tma_region_find(client, pointer_at(span.start + 4 * MIB - 1), 2, &place));
	cr_assert(place.region == all && place.offset == 4 * MIB - 1, "what only one region has");
	cr_assert_eq(tma_region_find(client, pointer_at(span.start + 8 * MIB - 1), 2, &place), TMA_NOT_FOUND);
	cr_assert_eq(tma_region_find(client, pointer_at(span.start - 1), 2, &place), TMA_NOT_FOUND);
	ok(tma_region_from_device_ptr(client, pointer_at(span.start), 4 * MIB, TMA_REGION_READ_ONLY, &again));
	cr_assert_neq(again, half, "with other flags it is another region");
	cr_assert_eq(copy_bytes(again, 0, half, 2 * MIB, 10), TMA_PERMISSION);
	cr_assert_eq(copy_bytes(half, 0, again, 9, 10), TMA_OVERLAP);
	ok(tma_region_release(half));
	ok(tma_region_find(client, pointer_at(span.start + MIB), MIB, &place));
	cr_assert(place.region == all || place.region == again, "a released one is not found");

	ok(tma_region_create_kind(client, TMA_REGION_MEMFD, 10000, &host));
	data = tma_region_data(host);
	ok(tma_region_find(client, data + 1234, 10000 - 1234, &place));
	cr_assert(place.region == host && place.offset == 1234);
	ok(tma_region_release(host));
	cr_assert_eq(tma_region_find(client, data, 1, &place), TMA_NOT_FOUND);
}

/* Two regions that share allocations count as the same memory where they overlap. */
Test(ranges, regions_that_share_allocations_are_compared)
{
	struct span span = span_new(2 * MIB, 6, 8);
	tma_region *all = registered(span.start, 12 * MIB), *late = registered(span.start + 5 * MIB, 6 * MIB);
	tma_region *one = registered(span.start + 2 * MIB, MIB), *grown;
	const struct {
		const char *name;
		tma_region *dst;
		uint64_t dst_offset;
		tma_region *src;
		uint64_t src_offset;
		int64_t bytes;
		int status;
	} rows[] = {
		{ "the same bytes", late, 0, all, 5 * MIB, 100, TMA_OVERLAP },
		{ "one byte", late, 0, all, 5 * MIB - 99, 100, TMA_OVERLAP },
		{ "up to it", late, 0, all, 5 * MIB - 100, 100, TMA_OK },
		{ "after it", late, 100, all, 5 * MIB, 100, TMA_OK },
		{ "across allocations", late, MIB - 50, all, 6 * MIB + 49, 100, TMA_OVERLAP },
		{ "across allocations, apart", late, MIB - 50, all, 6 * MIB + 50, 100, TMA_OK },
		{ "one allocation", one, 0, all, 2 * MIB + 99, 100, TMA_OVERLAP },
		{ "one allocation, apart", one, 0, all, 2 * MIB + 100, 100, TMA_OK },
		{ "into several", all, 2 * MIB - 99, one, 0, 100, TMA_OVERLAP },
		{ "no allocation in common", late, 0, one, 0, 100, TMA_OK },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		cr_assert_eq(copy_bytes(rows[i].dst, rows[i].dst_offset, rows[i].src, rows[i].src_offset,
		                        rows[i].bytes),
		             rows[i].status, "%s: %s", rows[i].name, tma_last_error(client));
	span_grow(&span, 2);
	grown = registered(span.start, 16 * MIB);
	cr_assert_eq(copy_bytes(grown, 7 * MIB, all, 7 * MIB, 10), TMA_OVERLAP,
	             "what has grown is the same memory");
	cr_assert_eq(copy_bytes(grown, 14 * MIB, all, 2 * MIB, 10), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(copy_bytes(grown, 6 * MIB, late, MIB, 10), TMA_OVERLAP);
}

/* ---- Ranges that cannot be registered ---------------------------------------------------------------- */

Test(ranges, with_gaps)
{
	struct span gap = span_new(2 * MIB, 4, 4);
	tma_region *region = NULL;
	struct held before;
	char address[32];

	cuda(cuMemUnmap(gap.start + 4 * MIB, 2 * MIB));
	before = held_now();
	snprintf(address, sizeof address, "%#" PRIx64, (uint64_t)gap.start + 4 * MIB);
	cr_assert_eq(tma_region_from_device_ptr(client, pointer_at(gap.start), 8 * MIB, 0, &region),
	             TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), address), "%s", tma_last_error(client));
	cr_assert_null(region);
	assert_held(&before, "refused");
}

Test(ranges, with_strangers)
{
	struct span sealed = span_new(2 * MIB, 2, 4);
	tma_region *region = NULL;
	struct held before;
	char address[32];

	map_at(sealed.start + 4 * MIB, 2 * MIB, CU_MEM_HANDLE_TYPE_NONE);
	before = held_now();
	snprintf(address, sizeof address, "%#" PRIx64, (uint64_t)sealed.start + 4 * MIB);
	cr_assert_eq(tma_region_from_device_ptr(client, pointer_at(sealed.start), 6 * MIB, 0, &region),
	             TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), address), "%s", tma_last_error(client));
	cr_assert(strstr(tma_last_error(client), "POSIX_FILE_DESCRIPTOR"), "%s", tma_last_error(client));
	cr_assert_null(region);
	assert_held(&before, "refused");
	ok(tma_region_from_device_ptr(client, pointer_at(sealed.start), 4 * MIB, 0, &region));
}

/* ---- Limits ------------------------------------------------------------------------------------------ */

static void start_narrow(void)
{
	ranges_start("--message-fds=3");
}

Test(ranges_narrow, few_descriptors_in_a_message, .init = start_narrow, .fini = ranges_stop, .timeout = 120)
{
	struct span span = span_new(2 * MIB, 20, 20);
	const struct held before = held_now();
	tma_region *region = registered(span.start, span_bytes(&span));

	assert_counted("regions", 1, "narrow");
	assert_transposes(&span, region, 1, "narrow");
	ok(tma_region_release(region));
	assert_held(&before, "narrow");
}

static void start_tight(void)
{
	ranges_start("--mapped-bytes-per-uid=900M");
}

/* The first message of the call is accepted, and the last one is refused. */
Test(ranges_narrow, a_limit_is_reached_half_way, .init = start_tight, .fini = ranges_stop, .timeout = 120)
{
	struct span span = span_new(2 * MIB, 300, 300);
	const struct held before = held_now();
	tma_region *region = NULL;

	cr_assert_eq(
	    tma_region_from_device_ptr(client, pointer_at(span.start), span_bytes(&span), 0, &region),
	    TMA_QUOTA, "%s", tma_last_error(client));
	cr_assert_null(region);
	assert_held(&before, "refused");
	ok(tma_region_from_device_ptr(client, pointer_at(span.start), 400 * MIB, 0, &region));
}

/* ---- After a reconnection ---------------------------------------------------------------------------- */

Test(ranges, are_registered_again_when_the_service_comes_back)
{
	struct span span = span_new(2 * MIB, 300, 302), kept = span_new(2 * MIB, 2, 2),
		    lost = span_new(2 * MIB, 3, 3);
	tma_region *region = registered(span.start, span_bytes(&span)), *grown, *gone;

	span_grow(&span, 2);
	grown = registered(span.start, span_bytes(&span));
	gone = registered(lost.start, 6 * MIB);
	registered(kept.start, 4 * MIB);
	span_remap(&lost, 1);
	process_kill(&service);
	ranges_restart("--mapped-bytes-per-uid=8G");
	cr_assert_eq(tma_ping(client), TMA_INVALID_ARGUMENT, "the first call reports what is gone");
	cr_assert(strstr(tma_last_error(client), "allocation 1 of the region"), "%s", tma_last_error(client));
	cr_assert_eq(copy_bytes(gone, 0, gone, 4 * MIB, 10), TMA_INVALID_ARGUMENT);
	assert_counted("regions", 3, "each once, and nothing of their calls");
	assert_transposes(&span, grown, 1, "grown");
	cr_assert_eq(copy_bytes(grown, 10, region, 10, 10), TMA_OVERLAP,
	             "they still share their allocations");
	ok(tma_region_release(gone));
	gone = registered(lost.start, 6 * MIB);
	ok(copy_bytes(gone, 0, gone, 4 * MIB, 10));
}
