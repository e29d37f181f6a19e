/* SPDX-License-Identifier: Apache-2.0 */
/* Tests regions without a service, which may be any memory of this process. */
#include <string.h>

#include "client.h"

#define BYTES 4096

Test(local_regions, of_a_pointer)
{
	tma_client *client = local_client();
	char *memory = calloc(1, BYTES);
	struct tma_place place;
	tma_region *region;
	struct tma_tensor src = { .dtype = TMA_UINT8, .rank = 1, .shape = { BYTES / 2 } }, dst = src;

	memset(memory, 'a', BYTES / 2);
	cr_assert_eq(tma_region_from_host_ptr(client, memory, BYTES, 0, &region), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_find(client, memory + 100, 10, &place), 0);
	cr_assert(place.region == region && place.offset == 100);
	src.region = dst.region = region;
	dst.offset = BYTES / 2;
	cr_assert_eq(tma_copy(client, &dst, &src), 0, "%s", tma_last_error(client));
	for (int i = 0; i < BYTES; i++)
		cr_assert_eq(memory[i], 'a');
	dst.offset++;
	cr_assert_eq(tma_copy(client, &dst, &src), TMA_OUT_OF_RANGE);
	dst.offset = BYTES / 2 - 1;
	cr_assert_eq(tma_copy(client, &dst, &src), TMA_OVERLAP);
	cr_assert_eq(tma_region_release(region), 0);
	free(memory);
	tma_free(client);
}

/* Overlaps are found even between different regions of the same memory, and with a tensor in no region. */
Test(local_regions, of_one_memory)
{
	tma_client *client = local_client();
	char *memory = calloc(1, BYTES);
	tma_region *a, *b;
	struct tma_tensor src = { .dtype = TMA_UINT8, .rank = 1, .shape = { 16 } }, dst = src;

	cr_assert_eq(tma_region_from_host_ptr(client, memory, BYTES, 0, &a), 0);
	cr_assert_eq(tma_region_from_host_ptr(client, memory + 8, 64, TMA_REGION_READ_ONLY, &b), 0);
	dst.region = a;
	src.region = b;
	cr_assert_eq(tma_copy(client, &dst, &src), TMA_OVERLAP);
	dst.offset = 24;
	cr_assert_eq(tma_copy(client, &dst, &src), 0, "%s", tma_last_error(client));
	dst = src;
	dst.offset = 32;
	cr_assert_eq(tma_copy(client, &dst, &src), TMA_PERMISSION);
	src.region = NULL;
	src.offset = (uintptr_t)memory + 30;
	dst =
	    (struct tma_tensor){ .region = a, .offset = 40, .dtype = TMA_UINT8, .rank = 1, .shape = { 16 } };
	cr_assert_eq(tma_copy(client, &dst, &src), TMA_OVERLAP);
	cr_assert_eq(tma_region_release(a), 0);
	cr_assert_eq(tma_region_release(b), 0);
	free(memory);
	tma_free(client);
}

Test(local_regions, are_created)
{
	tma_client *client = local_client();
	tma_region *region;

	cr_assert_eq(tma_region_create(client, BYTES, &region), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_kind(region), TMA_REGION_MEMFD);
	char *data = tma_region_data(region);
	struct tma_tensor src = { .region = region, .dtype = TMA_UINT8, .rank = 1, .shape = { 8 } },
			  dst = src;
	memcpy(data, "ABCDEFGH", 8);
	dst.offset = 8;
	cr_assert_eq(tma_copy(client, &dst, &src), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(data + 8, "ABCDEFGH", 8), 0);
	tma_free(client);
}

/* Regions that reuse the ids of released ones work like the first. */
Test(local_regions, come_and_go)
{
	tma_client *client = local_client();
	char memory[256] = { 0 };
	tma_region *regions[100];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 100; i++)
			cr_assert_eq(tma_region_from_host_ptr(client, memory + i, 100, 0, &regions[i]), 0);
		for (int i = 0; i < 100; i++) {
			struct tma_tensor t = {
				.region = regions[i], .dtype = TMA_UINT8, .rank = 1, .shape = { 1 }
			};
			struct tma_tensor to = t;

			to.offset = 99;
			memory[i] = (char)(i + 1);
			cr_assert_eq(tma_copy(client, &to, &t), 0);
			cr_assert_eq(memory[i + 99], (char)(i + 1));
		}
		for (int i = 0; i < 100; i++)
			cr_assert_eq(tma_region_release(regions[i]), 0);
	}
	tma_free(client);
}

Test(local_regions, of_others)
{
	tma_client *client = local_client();
	tma_region *region = NULL;

	cr_assert_eq(tma_region_register_memfd(client, 0, 0, BYTES, TMA_REGION_READ_ONLY, &region),
	             TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "tma_region_from_host_ptr"));
	cr_assert_eq(tma_region_register_cuda_fd(client, 0, BYTES, 0, BYTES, 0, &region), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "use tma_region_from_device_ptr"));
	cr_assert_null(region);
	cr_assert_eq(tma_region_from_host_ptr(client, NULL, BYTES, 0, &region), TMA_INVALID_ARGUMENT);
	tma_free(client);
}
