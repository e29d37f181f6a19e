/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers four blocks of a pool into one tensor. The index -1 leaves its block
 * of the tensor unchanged. */
#include <stdio.h>
#include <tmaclient.h>

enum { POOL = 100, LIST = 4, ROWS = 16, COLUMNS = 64 };
enum { BLOCK = ROWS * COLUMNS, BYTES = BLOCK * sizeof(float) };

static int gather(tma_client *client)
{
	static const int32_t list[LIST] = { 42, 7, -1, 13 };
	/* These describe block 0 of each side; the other blocks follow without
	 * gaps. */
	struct tma_tensor src = {
		.dtype = TMA_FLOAT32,
		.rank = 2,
		.shape = { ROWS, COLUMNS },
	};
	struct tma_tensor dst = src;
	struct tma_transform transform = { .dst = &dst, .src = &src };
	struct tma_blocks blocks = {
		.transform = &transform,
		.count = LIST,
		.index_dtype = TMA_INT32,
		.index = list,
	};
	float *pool, *result;
	int r;

	r = tma_region_create_kind(client, TMA_REGION_MEMFD, POOL * BYTES,
	                           &src.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD,
		                           LIST * BYTES, &dst.region);
	if (r < 0)
		return r;

	pool = tma_region_data(src.region);
	for (int i = 0; i < POOL * BLOCK; i++)
		pool[i] = (float)(i / BLOCK);
	r = tma_gather(client, &blocks);
	if (r < 0)
		return r;

	result = tma_region_data(dst.region);
	for (int i = 0; i < LIST; i++)
		printf("%g\n", result[i * BLOCK]);
	printf("%d moved, %d skipped\n", (int)tma_last_result(client)->moved,
	       (int)tma_last_result(client)->passed);
	return 0;
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = gather(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client);
	return r < 0;
}
