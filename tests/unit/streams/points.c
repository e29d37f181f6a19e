/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines whose words lie in other memory than what is moved, and those of requests in streams. */
#include "rig.h"

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

/* The memory of the host is not pinned. */
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

/* The stream itself waits and signals. */
Test(stream_points, not_in_a_stream)
{
	const CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0xee);
	const CUdeviceptr word = rig_bytes(8, 0xee);
	const struct tma_order order = { .signal = { .region = region_of(word, 8), .value = 4 } };
	const struct tma_tensor to = matrix(dst, 5, 7), from = matrix(src, 5, 7);
	const struct tma_transform alone = { .dst = &to, .src = &from };
	const struct tma_transform ordered = { .dst = &to, .src = &from, .order = &order };
	struct tma_item item = { .transform = &alone };
	uint8_t got[35 * 4];
	uint64_t value;

	cr_assert_eq(tma_enqueue(client, &ordered, stream), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "signal: "), "%s", tma_last_error(client));
	cr_assert_eq(tma_enqueue_items(client, &item, 1, &order, stream), TMA_UNSUPPORTED);
	rig_get(got, dst, sizeof got);
	rig_get(&value, word, sizeof value);
	cr_assert(got[0] == 0xee && value == UINT64_C(0xeeeeeeeeeeeeeeee));
	cr_assert_eq(tma_enqueue(client, &alone, stream), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_stream_signal(client, stream, word, 4), 0, "%s", tma_last_error(client));
	rig_get(&value, word, sizeof value);
	cr_assert_eq(value, 4);
}
