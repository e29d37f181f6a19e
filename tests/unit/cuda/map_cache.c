/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the map cache: equal layouts share an entry whatever their addresses, the least recently used entry
 * goes first, a hit allocates nothing, and a failing driver leaves the cache intact. Maps are read back with
 * the model's help. */
#include "kernels/cuda/launch/launch.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/driver/driver.h"
#include "tests/softgpu/model.h"

/* Allocations are counted only where the C library lets a program replace malloc, and malloc may fail, which
 * a sanitizer prevents. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MALLOC 0
#endif
#endif
#ifndef COUNTS_MALLOC
#define COUNTS_MALLOC 1
#endif

#define ADDRESS UINT64_C(0x7f0000000000)

/* Stands in for two functions of the driver, counts their calls and can make them fail. */
static struct {
	__typeof__(&cuTensorMapEncodeTiled) encode;
	__typeof__(&cuTensorMapReplaceAddress) replace;
	unsigned encoded, replaced;
	CUresult fail; /* what both return, without doing anything; CUDA_SUCCESS: they work */
} real;

static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                       const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *element_stride, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
	real.encoded++;
	if (real.fail)
		return real.fail;
	return real.encode(map, type, rank, address, dim, stride, box, element_stride, interleave, swizzle,
	                   l2, fill);
}

static CUresult replace(CUtensorMap *map, void *address)
{
	real.replaced++;
	return real.fail ? real.fail : real.replace(map, address);
}

static void start(void)
{
	static struct device device;
	struct error err;

	cr_assert_eq(device_open(&device, NULL, &err), 0, "%s", err.message);
	real.encode = driver.cuTensorMapEncodeTiled;
	real.replace = driver.cuTensorMapReplaceAddress;
	driver.cuTensorMapEncodeTiled = encode;
	driver.cuTensorMapReplaceAddress = replace;
}

TestSuite(map_cache, .init = start);

static struct tensor_map_layout layout_of(uint64_t columns)
{
	return (struct tensor_map_layout){
		.type = TENSOR_MAP_FLOAT32,
		.rank = 2,
		.dim = { columns, 100 },
		.stride = { 4096 },
		.box = { 32, 8 },
		.element_stride = { 1, 2 },
		.swizzle = TENSOR_MAP_SWIZZLE_128B,
		.l2 = TENSOR_MAP_L2_256B,
	};
}

static void init(struct map_cache *cache, uint64_t capacity)
{
	struct error err;

	cr_assert_eq(map_cache_init(cache, capacity, 7, &err), 0, "%s", err.message);
}

/* Gets a map and checks that it has the layout and the address. */
static void get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address)
{
	struct tensor_map_layout got;
	struct error err;
	uint64_t at;
	CUtensorMap map;

	cr_assert_eq(map_cache_get(cache, layout, address, &map, &err), 0, "%s", err.message);
	cr_assert(model_map_decode(&map, &got, &at));
	cr_assert(tensor_map_equal(&got, layout));
	cr_assert_eq(at, address, "0x%lx", (unsigned long)at);
}

static void get_columns(struct map_cache *cache, uint64_t columns)
{
	struct tensor_map_layout layout = layout_of(columns);

	get(cache, &layout, ADDRESS);
}

static void expect(const struct map_cache *cache, uint64_t hits, uint64_t misses, uint64_t evictions,
                   uint64_t entries)
{
	struct engine_cache_stats stats;

	map_cache_stats(cache, &stats);
	cr_expect_eq(stats.hits, hits, "%lu hits", (unsigned long)stats.hits);
	cr_expect_eq(stats.misses, misses, "%lu misses", (unsigned long)stats.misses);
	cr_expect_eq(stats.evictions, evictions, "%lu evictions", (unsigned long)stats.evictions);
	cr_expect_eq(stats.entries, entries, "%lu entries", (unsigned long)stats.entries);
}

Test(map_cache, the_address_is_patched_into_a_copy)
{
	struct tensor_map_layout layout = layout_of(1000);
	struct map_cache cache;

	init(&cache, 4);
	get(&cache, &layout, ADDRESS);
	get(&cache, &layout, ADDRESS + 4096);
	get(&cache, &layout, ADDRESS);
	get(&cache, &layout, ADDRESS + 16);
	cr_expect_eq(real.encoded, 1);
	cr_expect_eq(real.replaced, 2, "%u", real.replaced);
	expect(&cache, 3, 1, 0, 1);
	map_cache_deinit(&cache);
}

Test(map_cache, every_part_of_the_layout_counts)
{
	struct tensor_map_layout layout = layout_of(64);
	struct map_cache cache;

	init(&cache, 64);
	get(&cache, &layout, ADDRESS);
	layout.type = TENSOR_MAP_UINT32;
	get(&cache, &layout, ADDRESS);
	layout.dim[1]++;
	get(&cache, &layout, ADDRESS);
	layout.stride[0] += 16;
	get(&cache, &layout, ADDRESS);
	layout.box[1]++;
	get(&cache, &layout, ADDRESS);
	layout.element_stride[1]++;
	get(&cache, &layout, ADDRESS);
	layout.swizzle = TENSOR_MAP_SWIZZLE_NONE;
	get(&cache, &layout, ADDRESS);
	layout.l2 = TENSOR_MAP_L2_NONE;
	get(&cache, &layout, ADDRESS);
	layout.type = TENSOR_MAP_FLOAT32;
	layout.fill = TENSOR_MAP_FILL_NAN;
	get(&cache, &layout, ADDRESS);
	layout.rank = 3;
	layout.dim[2] = layout.box[2] = layout.element_stride[2] = 1;
	get(&cache, &layout, ADDRESS);
	layout.interleave = TENSOR_MAP_INTERLEAVE_16B;
	get(&cache, &layout, ADDRESS);
	expect(&cache, 0, 11, 0, 11);
	map_cache_deinit(&cache);
}

Test(map_cache, least_recently_used_goes_first)
{
	struct map_cache cache;

	init(&cache, 3);
	get_columns(&cache, 1);
	get_columns(&cache, 2);
	get_columns(&cache, 3);
	get_columns(&cache, 1); /* 2 is the oldest now */
	get_columns(&cache, 4);
	expect(&cache, 1, 4, 1, 3);
	get_columns(&cache, 1);
	get_columns(&cache, 3);
	get_columns(&cache, 4);
	expect(&cache, 4, 4, 1, 3);
	get_columns(&cache, 2); /* drops 1 */
	get_columns(&cache, 1); /* drops 3 */
	get_columns(&cache, 4);
	expect(&cache, 5, 6, 3, 3);
	map_cache_deinit(&cache);
}

/* The cache is compared with the simplest model of it: an array in order of use, the most recent entry
 * first. */
Test(map_cache, order_under_random_use)
{
	enum { CAPACITY = 7, KEYS = 12 };
	uint64_t kept[CAPACITY], hits = 0, misses = 0, n = 0;
	struct map_cache cache;

	srand(5);
	init(&cache, CAPACITY);
	for (int round = 0; round < 5000; round++) {
		uint64_t key = (uint64_t)rand() % KEYS + 1, i = 0;

		while (i < n && kept[i] != key)
			i++;
		hits += i < n;
		misses += i == n;
		if (i == n && n < CAPACITY)
			n++;
		if (i == CAPACITY)
			i--;
		memmove(kept + 1, kept, i * sizeof *kept);
		kept[0] = key;
		get_columns(&cache, key);
	}
	expect(&cache, hits, misses, misses - CAPACITY, CAPACITY);
	map_cache_deinit(&cache);
}

Test(map_cache, room_for_one)
{
	struct map_cache cache;

	init(&cache, 1);
	get_columns(&cache, 1);
	get_columns(&cache, 1);
	get_columns(&cache, 2);
	get_columns(&cache, 1);
	expect(&cache, 1, 3, 2, 1);
	map_cache_deinit(&cache);
}

Test(map_cache, room_for_none)
{
	struct map_cache cache;

	init(&cache, 0);
	get_columns(&cache, 1);
	get_columns(&cache, 1);
	expect(&cache, 0, 2, 0, 0);
	map_cache_deinit(&cache);
}

Test(map_cache, too_much_to_hold)
{
	static const uint64_t capacities[] = {
		UINT64_MAX,
		INT64_MAX,
#if COUNTS_MALLOC
		UINT64_C(1) << 52,
#endif
	};
	struct map_cache cache;
	struct error err;

	for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
		cr_assert_eq(map_cache_init(&cache, capacities[i], 1, &err), STATUS_NO_MEMORY);
		cr_expect(strstr(err.message, " tensor maps"), "%s", err.message);
		map_cache_deinit(&cache);
	}
}

/* map_cache_get returns the driver's failure and leaves *ret and the cache as they were; the next call
 * succeeds. */
Test(map_cache, the_driver_fails)
{
	struct tensor_map_layout kept = layout_of(1), other = layout_of(2);
	CUtensorMap map, before;
	struct map_cache cache;
	struct error err;

	init(&cache, 1);
	get(&cache, &kept, ADDRESS);
	memset(&map, 0x5a, sizeof map);
	before = map;

	real.fail = CUDA_ERROR_INVALID_VALUE;
	cr_expect_eq(map_cache_get(&cache, &other, ADDRESS, &map, &err), STATUS_INVALID_ARGUMENT);
	cr_expect(strstr(err.message, "cuTensorMapEncodeTiled"), "%s", err.message);
	cr_expect(strstr(err.message, ": CUDA_ERROR_INVALID_VALUE"), "%s", err.message);
	real.fail = CUDA_ERROR_ILLEGAL_ADDRESS;
	cr_expect_eq(map_cache_get(&cache, &kept, ADDRESS + 16, &map, &err), STATUS_DEVICE_LOST);
	cr_expect(strstr(err.message, "cuTensorMapReplaceAddress"), "%s", err.message);
	cr_expect_arr_eq(&map, &before, sizeof map);
	expect(&cache, 0, 1, 0, 1);

	get(&cache, &kept, ADDRESS); /* a hit, which does not call the driver */
	real.fail = CUDA_SUCCESS;
	get(&cache, &kept, ADDRESS + 16);
	get(&cache, &other, ADDRESS);
	expect(&cache, 2, 2, 1, 1);
	map_cache_deinit(&cache);
}

Test(map_cache, every_broken_rule_is_said)
{
	struct tensor_map_layout layout = layout_of(0);
	CUtensorMap map;
	struct map_cache cache;
	struct error err;

	init(&cache, 1);
	layout.stride[0] = 100;
	cr_assert_eq(map_cache_get(&cache, &layout, ADDRESS + 8, &map, &err), STATUS_INVALID_ARGUMENT);
	cr_expect_str_eq(err.message,
	                 "tensor map: address: 0x7f0000000008 is not a multiple of 16; dim[0]: 0 is not 1 to "
	                 "4294967296; stride[0]: 100 bytes is not a multiple of 16",
	                 "%s", err.message);

	memset(layout.box, 0xff, sizeof layout.box);
	memset(layout.element_stride, 0xff, sizeof layout.element_stride);
	cr_assert_eq(map_cache_get(&cache, &layout, ADDRESS + 8, &map, &err), STATUS_INVALID_ARGUMENT);
	cr_expect_str_eq(err.message,
	                 "tensor map: address: 0x7f0000000008 is not a multiple of 16; dim[0]: 0 is not 1 to "
	                 "4294967296; stride[0]: 100 bytes is not a multiple of 16; box[0]: 4294967295 is "
	                 "not 1 to 256; box[1]: 4294967295 is not 1 to 256; 4 more",
	                 "%s", err.message);
	cr_expect_eq(real.encoded, 0);
	expect(&cache, 0, 0, 0, 0);
	map_cache_deinit(&cache);
}

/* The driver might accept such an address, but a hit is checked against the rule all the same. */
Test(map_cache, a_hit_does_not_excuse_the_address)
{
	struct tensor_map_layout layout = layout_of(1);
	CUtensorMap map;
	struct map_cache cache;
	struct error err;

	init(&cache, 1);
	get(&cache, &layout, ADDRESS);
	cr_assert_eq(map_cache_get(&cache, &layout, ADDRESS + 4, &map, &err), STATUS_INVALID_ARGUMENT);
	cr_expect_str_eq(err.message, "tensor map: address: 0x7f0000000004 is not a multiple of 16", "%s",
	                 err.message);
	cr_expect_eq(real.replaced, 0);
	map_cache_deinit(&cache);
}

/* ---- Allocations: where the C library lets a program replace malloc, which under a sanitizer it does not.
 */

#if COUNTS_MALLOC

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);

static unsigned long allocations;

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	allocations++;
	return __libc_calloc(n, size);
}

Test(map_cache, no_allocation_for_a_hit_nor_for_a_miss)
{
	struct tensor_map_layout layout;
	struct map_cache cache;
	unsigned long before;
	CUtensorMap map;
	struct error err;
	int failed = 0;

	init(&cache, 16);
	before = allocations;
	cr_assert_gt(before, 0, "malloc is not counted");
	for (uint64_t i = 0; i < 1000; i++) {
		layout = layout_of(i % 20 + 1);
		failed += map_cache_get(&cache, &layout, ADDRESS + i % 3 * 16, &map, &err) < 0;
	}
	cr_assert_eq(allocations, before, "%lu allocations", allocations - before);
	cr_assert_eq(failed, 0);
	for (uint64_t i = 0; i < 1000; i++) {
		layout = layout_of(i % 16 + 1);
		failed += map_cache_get(&cache, &layout, ADDRESS + i % 3 * 16, &map, &err) < 0;
	}
	cr_assert_eq(allocations, before, "%lu allocations", allocations - before);
	cr_assert_eq(failed, 0);
	expect(&cache, 1000 - 16, 1000 + 16, 1000, 16);
	map_cache_deinit(&cache);
}

#endif
