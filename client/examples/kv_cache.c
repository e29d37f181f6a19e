/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the heads of one rank out of a KV cache, in the layout of vLLM, and
 * stores them in the layout of Dynamo. */
#include <stdint.h>
#include <stdio.h>
#include <tmaclient.h>

enum { HEADS = 8, HEAD_SIZE = 16 };

static int convert(tma_client *client)
{
	struct tma_layout_cache all = {
		.layout = tma_layout_find("vllm_nhd"),
		.dtype = TMA_UINT16,
		.layers = 4,
		.blocks = 10,
		.tokens = 16,
		.heads = HEADS,
		.head_size = HEAD_SIZE,
	};
	struct tma_layout_cache shard = all;
	struct tma_layout_move move;
	uint64_t bytes, shard_bytes;
	uint16_t *cache, *heads;
	int r;

	shard.layout = tma_layout_find("universal");
	shard.ranks = 4;
	shard.rank = 3;
	r = tma_layout_bytes(client, &all, &bytes);
	if (r == 0)
		r = tma_layout_bytes(client, &shard, &shard_bytes);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD, bytes,
		                           &all.region);
	if (r == 0)
		r = tma_region_create_kind(client, TMA_REGION_MEMFD,
		                           shard_bytes, &shard.region);
	if (r < 0)
		return r;

	/* Set each element to the number of its head, whose key and value
	 * follow each other. */
	cache = tma_region_data(all.region);
	for (uint64_t i = 0; i < bytes / sizeof *cache; i++)
		cache[i] = i / (2 * HEAD_SIZE) % HEADS;
	r = tma_layout_convert(client, &shard, NULL, &all, NULL, &move);
	if (r == 0)
		r = tma_transform(client, &move.transform);
	if (r < 0)
		return r;

	/* In the new layout, a block has all elements of one head, then those
	 * of the next. */
	heads = tma_region_data(shard.region);
	printf("%d of %d bytes: heads %d and %d\n", (int)shard_bytes,
	       (int)bytes, heads[0], heads[4 * 2 * 16 * HEAD_SIZE]);
	return 0;
}

int main(void)
{
	tma_client *client = tma_new();
	int r = client ? tma_connect(client, NULL) : TMA_NO_MEMORY;

	if (r == 0)
		r = convert(client);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", tma_status_name(r),
		        client ? tma_last_error(client) : "");
	tma_free(client);
	return r < 0;
}
