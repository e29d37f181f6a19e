/* SPDX-License-Identifier: Apache-2.0 */
/* Tests gather and scatter: what the client sends for them, and what it makes of the reply. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

static struct tma_tensor dst = { .dtype = TMA_UINT16, .rank = 2, .shape = { 8, 4 } };
static struct tma_tensor src = { .dtype = TMA_UINT16, .rank = 2, .shape = { 4, 8 }, .offset = 64 };
static struct tma_transform transform = { .dst = &dst, .src = &src, .perm = (int[]){ 1, 0 } };
static const int32_t list[] = { 5, -1, 2 };

static struct msg_blocks asked;
static uint8_t index_bytes[64], layer_bytes[64];
static enum method_id method;
static int n_asked;

static void script(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		if (request.method->id == METHOD_region_register) {
			server_answer_registered(s, &request, 7);
			continue;
		}
		asked = request.params.blocks;
		method = request.method->id;
		n_asked++;
		if (asked.index.len && asked.index.len <= sizeof index_bytes)
			memcpy(index_bytes, asked.index.data, asked.index.len);
		if (asked.dst_layers.len && asked.dst_layers.len <= sizeof layer_bytes)
			memcpy(layer_bytes, asked.dst_layers.data, asked.dst_layers.len);
		server_answer(s, &request,
		              &(struct msg_blocks_done){ .path = bytes_of("tile_transpose"),
		                                         .bytes = 256,
		                                         .ns = 5,
		                                         .moved = 2,
		                                         .passed = 1,
		                                         .beyond = 3 });
	}
}

static tma_client *start(struct server *s)
{
	int fd = memfd_create("region", MFD_CLOEXEC);
	tma_client *client;
	tma_region *region;

	server_start(s, script);
	client = server_client(s, 5000);
	cr_assert_eq(ftruncate(fd, 4096), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &region), 0);
	close(fd);
	dst.region = src.region = region;
	return client;
}

Test(blocks, a_list_inline)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_blocks b = {
		.transform = &transform, .count = 3, .index_dtype = TMA_INT32, .index = list, .dst_step = 128
	};
	const struct tma_result *result;

	cr_assert_eq(tma_gather(client, &b), 0, "%s", tma_last_error(client));
	cr_assert_eq(method, METHOD_gather);
	cr_assert_eq(asked.has, F(blocks, dst) | F(blocks, src) | F(blocks, perm) | F(blocks, index_dtype) |
	                            F(blocks, index) | F(blocks, dst_step));
	cr_assert(asked.src.region == 7 && asked.src.offset == 64 && asked.perm.v[0] == 1);
	cr_assert_eq(asked.index.len, sizeof list);
	cr_assert_arr_eq(index_bytes, list, sizeof list);
	cr_assert_eq(asked.dst_step, 128);
	result = tma_last_result(client);
	cr_assert_str_eq(result->path, "tile_transpose");
	cr_assert(result->bytes == 256 && result->ns == 5 && result->moved == 2 && result->passed == 1 &&
	          result->beyond == 3);
	tma_free(client);
	server_stop(&s);
}

Test(blocks, a_list_in_a_region_and_layers)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	const int64_t layers[] = { 0, -4096 };
	struct tma_order order = { .signal.region = dst.region };
	struct tma_blocks b = { .transform = &transform,
		                .count = 1000000,
		                .index_dtype = TMA_INT64,
		                .index_at = { .region = dst.region, .offset = 512 },
		                .limit = 99,
		                .src_step = 64,
		                .layers = 2,
		                .dst_layers = layers,
		                .src_layer_step = 2048,
		                .order = &order };
	struct tma_result result;
	tma_ticket ticket;

	cr_assert_eq(tma_submit_scatter(client, &b, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, &result), 0, "%s", tma_last_error(client));
	cr_assert_eq(result.moved, 2);
	cr_assert_eq(method, METHOD_scatter);
	cr_assert_eq(asked.has & (F(blocks, index) | F(blocks, dst_step) | F(blocks, dst_layer_step) |
	                          F(blocks, src_layers) | F(blocks, wait)),
	             0);
	cr_assert(asked.index_at.region == 7 && asked.index_at.offset == 512 && asked.count == 1000000);
	cr_assert(asked.limit == 99 && asked.src_step == 64 && asked.layers == 2 &&
	          asked.src_layer_step == 2048 && asked.index_dtype == DTYPE_INT64);
	cr_assert_eq(asked.dst_layers.len, sizeof layers);
	cr_assert_arr_eq(layer_bytes, layers, sizeof layers);
	cr_assert(asked.has & F(blocks, signal));
	tma_free(client);
	server_stop(&s);
}

Test(blocks, what_is_refused_here)
{
	static const int64_t many[8192];
	struct server s = { 0 };
	tma_client *client = start(&s);
	const struct tma_blocks good = {
		.transform = &transform, .count = 3, .index_dtype = TMA_INT32, .index = list
	};
	struct tma_order order = { .completion = TMA_COMPLETION_SIGNAL };
	struct tma_transform ordered = transform;
	struct {
		const char *words;
		struct tma_blocks blocks;
	} rows[8];
	tma_ticket ticket;

	ordered.order = &order;
	for (int i = 0; i < 8; i++)
		rows[i].blocks = good;
	rows[0].words = "the transform is NULL";
	rows[0].blocks.transform = NULL;
	rows[1].words = "transform.order";
	rows[1].blocks.transform = &ordered;
	rows[2].words = "index_dtype: 99 is neither";
	rows[2].blocks.index_dtype = (enum tma_dtype)99;
	rows[3].words = "both NULL";
	rows[3].blocks.index = NULL;
	rows[4].words = "both given";
	rows[4].blocks.index_at.region = dst.region;
	rows[5].words = "count: 100000";
	rows[5].blocks.count = 100000;
	rows[6].words = "a message has at most 65536: put the list into a region";
	rows[6].blocks.index = many;
	rows[6].blocks.count = 16384;
	rows[7].words = "layers: 8193";
	rows[7].blocks.layers = 8193;
	rows[7].blocks.src_layers = many;
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(tma_gather(client, &rows[i].blocks), TMA_INVALID_ARGUMENT, "%d", i);
		cr_assert(strstr(tma_last_error(client), rows[i].words), "%d: %s", i, tma_last_error(client));
		cr_assert_eq(tma_submit_scatter(client, &rows[i].blocks, &ticket), TMA_INVALID_ARGUMENT);
	}
	rows[5].blocks.count = SIZE_MAX / 2;
	cr_assert_eq(tma_gather(client, &rows[5].blocks), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_scatter(client, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "blocks is NULL");
	cr_assert_eq(tma_gather(NULL, &good), TMA_INVALID_ARGUMENT);
	cr_assert_eq(n_asked, 0);
	cr_assert_eq(tma_gather(client, &good), 0, "the connection goes on");
	tma_free(client);
	server_stop(&s);
}
