/* SPDX-License-Identifier: Apache-2.0 */
/* Calls every function of the public header without each pointer that it needs. Pointers that a function
 * writes through are checked before anything else, so that a client without a connection serves for most of
 * them. */
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "proto/submission.h"
#include "server.h"

static tma_client *client;
static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor };
static const struct tma_place place;
static const uint8_t handle[64];
static struct tma_layout_cache cache;
static int64_t strides[TMA_MAX_RANK];
static struct tma_layout_move move;

static void setup(void)
{
	client = tma_new();
	cr_assert_not_null(client);
	cache = (struct tma_layout_cache){
		.layout = tma_layout_find("nhd"), .dtype = TMA_UINT8, .tokens = 2, .heads = 2, .head_size = 2
	};
}

static void teardown(void)
{
	tma_free(client);
}

TestSuite(pointers, .init = setup, .fini = teardown);

#define REFUSED(call, words)                                                  \
	do {                                                                  \
		cr_expect_eq(call, TMA_INVALID_ARGUMENT, "%s", #call);        \
		cr_expect_str_eq(tma_last_error(client), words, "%s", #call); \
	} while (0)

Test(pointers, of_results)
{
	static const char region[] = "ret is NULL; it is where the region goes";
	static const char document[] = "ret is NULL; it is where the document goes";

	REFUSED(tma_region_create(client, 100, NULL), region);
	REFUSED(tma_region_create_kind(client, TMA_REGION_MEMFD, 100, NULL), region);
	REFUSED(tma_region_create_kind(client, TMA_REGION_CUDA_FD, 100, NULL), region);
	REFUSED(tma_region_create_on(client, "0", TMA_REGION_ANY, 100, NULL), region);
	REFUSED(tma_region_register_memfd(client, 0, 0, 100, 0, NULL), region);
	REFUSED(tma_region_register_cuda_fd(client, 0, 0, 0, 100, 0, NULL), region);
	REFUSED(tma_region_register_cuda_ipc(client, handle, 0, 100, 0, NULL), region);
	REFUSED(tma_region_register_cuda_pool(client, 0, handle, 100, 0, 100, 0, NULL), region);
	REFUSED(tma_region_register_parts(client, &(struct tma_region_part){ .size = 1 }, 1, 0, 1, 0, NULL),
	        region);
	REFUSED(tma_region_from_device_ptr(client, handle, 1, 0, NULL), region);
	REFUSED(tma_region_from_host_ptr(client, handle, 1, 0, NULL), region);
	REFUSED(tma_region_find(client, handle, 1, NULL), "ret is NULL; it is where the place goes");
	REFUSED(tma_region_find_current(client, handle, 1, NULL), "ret is NULL; it is where the place goes");
	REFUSED(tma_plan_prepare(client, &transform, NULL), "ret is NULL; it is where the plan goes");
	REFUSED(tma_table_prepare(client, &place, 1, NULL), "ret is NULL; it is where the table goes");
	REFUSED(tma_ring_open(client, 4, 0, NULL), "ret is NULL; it is where the ring goes");
	REFUSED(tma_next(client, 0, NULL), "ret is NULL; it is where the ticket goes");
	REFUSED(tma_info(client, NULL), document);
	REFUSED(tma_stats(client, NULL), document);
	REFUSED(tma_regions(client, NULL), document);
	REFUSED(tma_sessions(client, 0, NULL), document);
	REFUSED(tma_session_regions(client, 1, NULL), document);
	REFUSED(tma_explain(client, &transform, NULL), document);
	REFUSED(tma_explain_for(client, &transform, "cpu", NULL), document);
	REFUSED(tma_layout_bytes(client, &cache, NULL), "ret is NULL; it is where the number of bytes goes");
	REFUSED(tma_layout_tensor(client, &cache, NULL, strides, NULL),
	        "ret is NULL; it is where the tensor goes");
	REFUSED(tma_layout_tensor(client, &cache, NULL, NULL, &(struct tma_tensor){ 0 }),
	        "strides is NULL; it is where the strides of the tensor go");
	REFUSED(tma_layout_convert(client, &cache, NULL, &cache, NULL, NULL),
	        "ret is NULL; it is where the transform goes");
	REFUSED(tma_layout_blocks(client, &cache, NULL, &cache, NULL, false, &move, NULL),
	        "ret is NULL; it is where the request goes");
	REFUSED(tma_layout_blocks(client, &cache, NULL, &cache, NULL, true, NULL, &(struct tma_blocks){ 0 }),
	        "move is NULL; it is where the transform goes");
	REFUSED(tma_layout_layer_offsets(client, &cache, NULL, NULL),
	        "ret is NULL; it is where the offsets go");
	REFUSED(tma_layout_split(client, tma_layout_find("nchw16c"), 4, (int64_t[]){ 1, 16, 2, 2 }, NULL),
	        "ret is NULL; it is where the blocking goes");
	cr_expect_eq(tma_number_encode(TMA_UINT8, &(struct tma_number){ 0 }, NULL), TMA_INVALID_ARGUMENT);
}

Test(pointers, of_arguments)
{
	tma_region *region;
	tma_document *document;
	tma_plan *plan;
	struct tma_layout_blocking blocking;
	uint64_t bytes;

	REFUSED(tma_region_register_cuda_ipc(client, NULL, 0, 100, 0, &region),
	        "handle: it is NULL; it has 64 bytes");
	REFUSED(tma_region_register_cuda_pool(client, 0, NULL, 100, 0, 100, 0, &region),
	        "pointer: it is NULL; it has 64 bytes");
	REFUSED(tma_region_from_device_ptr(client, NULL, 1, 0, &region),
	        "device_ptr is NULL; it is an address of device memory");
	REFUSED(tma_explain(client, NULL, &document), "the transform is NULL");
	REFUSED(tma_explain_for(client, NULL, "cpu", &document), "the transform is NULL");
	REFUSED(tma_layout_bytes(client, NULL, &bytes), "cache: NULL; it must be a struct tma_layout_cache");
	REFUSED(tma_layout_split(client, NULL, 4, (int64_t[]){ 1, 16, 2, 2 }, &blocking),
	        "layout: NULL, which names no layout");
	REFUSED(tma_layout_split(client, tma_layout_find("nchw16c"), 4, NULL, &blocking),
	        "shape is NULL, but rank is 4");
	cr_expect_eq(tma_number_encode(TMA_UINT8, NULL, (uint8_t[16]){ 0 }), TMA_INVALID_ARGUMENT);
	cr_expect_eq(tma_dtype_parse(NULL), TMA_NOT_FOUND);
	cr_expect_eq(tma_pad_mode_parse(NULL), TMA_NOT_FOUND);
	cr_expect_null(tma_layout_find(NULL));
	cr_expect_eq(tma_plan_prepare(NULL, &transform, &plan), TMA_INVALID_ARGUMENT);
}

/* These functions check for a connection first, so they need one. */
Test(pointers, of_requests)
{
	struct server s = { 0 };
	tma_plan *plan;
	tma_region *region;
	tma_table *table;
	tma_ticket ticket;

	server_start(&s, server_polite);
	tma_free(client);
	client = server_client(&s, 5000);
	REFUSED(tma_transform(client, NULL), "the transform is NULL; a transform has a dst and a src");
	REFUSED(tma_submit(client, NULL, &ticket), "the transform is NULL; a transform has a dst and a src");
	REFUSED(tma_submit(client, &transform, NULL),
	        "ret is NULL; only a request of TMA_COMPLETION_SIGNAL has no ticket");
	REFUSED(tma_submit_ping(client, NULL),
	        "ret is NULL; only a request of TMA_COMPLETION_SIGNAL has no ticket");
	REFUSED(tma_copy(client, NULL, &tensor), "dst is NULL; a transform has a dst and a src");
	REFUSED(tma_transpose(client, &tensor, NULL, NULL), "src is NULL; a transform has a dst and a src");
	REFUSED(tma_pad(client, NULL, NULL, NULL, NULL, TMA_PAD_EDGE, (struct tma_number){ 0 }),
	        "dst is NULL; a transform has a dst and a src");
	REFUSED(tma_plan_prepare(client, NULL, &plan),
	        "the transform is NULL; a transform has a dst and a src");
	REFUSED(tma_plan_run(client, NULL, place, place, NULL), "plan is NULL; tma_plan_prepare makes one");
	REFUSED(tma_plan_run_tables(client, NULL, NULL, NULL, NULL),
	        "plan is NULL; tma_plan_prepare makes one");
	REFUSED(tma_submit_run(client, NULL, place, place, NULL, &ticket),
	        "plan is NULL; tma_plan_prepare makes one");
	REFUSED(tma_submit_run_tables(client, NULL, NULL, NULL, NULL, &ticket),
	        "plan is NULL; tma_plan_prepare makes one");
	REFUSED(tma_table_prepare(client, NULL, 1, &table), "places is NULL; a table has at least one place");
	REFUSED(tma_run_items(client, NULL, 1, NULL), "items is NULL");
	REFUSED(tma_submit_items(client, NULL, 1, NULL, &ticket), "items is NULL");
	REFUSED(tma_gather(client, NULL), "blocks is NULL");
	REFUSED(tma_scatter(client, NULL), "blocks is NULL");
	REFUSED(tma_submit_gather(client, NULL, &ticket), "blocks is NULL");
	REFUSED(tma_submit_scatter(client, NULL, &ticket), "blocks is NULL");
	REFUSED(tma_reshard(client, NULL), "reshard is NULL");
	REFUSED(tma_submit_reshard(client, NULL, &ticket), "reshard is NULL");
	REFUSED(tma_region_register_parts(client, NULL, 1, 0, 1, 0, &region), "parts is NULL, but n is 1");
	tma_free(client);
	client = NULL;
	server_stop(&s);
}

Test(pointers, of_the_client)
{
	tma_client *none = NULL;
	tma_region *region;
	tma_document *document;
	tma_table *table;
	tma_ring *ring;
	tma_ticket ticket;
	struct tma_place found;
	struct tma_item item = { .transform = &transform };
	const struct tma_blocks blocks = { .transform = &transform };
	const struct tma_reshard reshard = { 0 };
	const int statuses[] = {
		tma_connect(none, NULL),
		tma_restore(none),
		tma_ping(none),
		tma_region_create(none, 1, &region),
		tma_region_create_kind(none, TMA_REGION_MEMFD, 1, &region),
		tma_region_create_on(none, NULL, TMA_REGION_ANY, 1, &region),
		tma_region_register_memfd(none, 0, 0, 1, 0, &region),
		tma_region_register_cuda_fd(none, 0, 0, 0, 1, 0, &region),
		tma_region_register_cuda_ipc(none, handle, 0, 1, 0, &region),
		tma_region_register_cuda_pool(none, 0, handle, 1, 0, 1, 0, &region),
		tma_region_register_parts(none, NULL, 0, 0, 1, 0, &region),
		tma_region_from_device_ptr(none, handle, 1, 0, &region),
		tma_region_from_host_ptr(none, handle, 1, 0, &region),
		tma_region_map(NULL, &(struct tma_mapping){ 0 }),
		tma_region_find(none, handle, 1, &found),
		tma_region_find_current(none, handle, 1, &found),
		tma_copy(none, &tensor, &tensor),
		tma_transpose(none, &tensor, &tensor, NULL),
		tma_pad(none, &tensor, &tensor, NULL, NULL, TMA_PAD_EDGE, (struct tma_number){ 0 }),
		tma_transform(none, &transform),
		tma_stream_signal(none, NULL, 8, 1),
		tma_stream_wait(none, NULL, 8, 1),
		tma_plan_run(none, NULL, place, place, NULL),
		tma_table_prepare(none, &place, 1, &table),
		tma_plan_run_tables(none, NULL, NULL, NULL, NULL),
		tma_run_items(none, &item, 1, NULL),
		tma_gather(none, &blocks),
		tma_scatter(none, &blocks),
		tma_reshard(none, &reshard),
		tma_submit(none, &transform, &ticket),
		tma_submit_ping(none, &ticket),
		tma_submit_run(none, NULL, place, place, NULL, &ticket),
		tma_submit_run_tables(none, NULL, NULL, NULL, NULL, &ticket),
		tma_submit_items(none, &item, 1, NULL, &ticket),
		tma_submit_gather(none, &blocks, &ticket),
		tma_submit_scatter(none, &blocks, &ticket),
		tma_submit_reshard(none, &reshard, &ticket),
		tma_take_error(none),
		tma_is_queued(none, 1),
		tma_cancel(none, 1),
		tma_flush(none),
		tma_wait(none, 1, NULL),
		tma_poll(none, 1, NULL),
		tma_next(none, 0, &(struct tma_completed){ 0 }),
		tma_dispatch(none),
		tma_ring_open(none, 4, 0, &ring),
		tma_ring_push(NULL, NULL, place, place, 0),
		tma_ring_flush(NULL),
		tma_ring_poll(NULL, &(struct tma_ring_end){ 0 }),
		tma_ring_wait(NULL, 0, &(struct tma_ring_end){ 0 }),
		tma_info(none, &document),
		tma_stats(none, &document),
		tma_regions(none, &document),
		tma_sessions(none, 0, &document),
		tma_session_regions(none, 1, &document),
		tma_explain(none, &transform, &document),
		tma_explain_for(none, &transform, "cpu", &document),
		tma_point_signal(NULL, 1),
		tma_point_wait(NULL, 1, 0),
	};

	for (size_t i = 0; i < COUNT(statuses); i++)
		cr_expect_eq(statuses[i], TMA_INVALID_ARGUMENT, "call %zu: %d", i, statuses[i]);
	tma_set_timeout(none, 1);
	tma_set_server_uid(none, 1);
	tma_set_reconnect(none, 1);
	tma_set_interrupt(none, NULL, NULL);
	tma_set_batching(none, true);
	tma_free(none);
	cr_expect_eq(tma_reconnects(none), 0);
	cr_expect_str_eq(tma_last_error(none), "");
	cr_expect_str_eq(tma_socket_path(none), "");
	cr_expect_null(tma_last_result(none));
	cr_expect_eq(tma_fd(none), -1);
	cr_expect_eq(tma_events(none), 0);
}

Test(pointers, of_handles)
{
	char *json = tma_document_json(NULL, 0);

	cr_expect_null(tma_region_data(NULL));
	cr_expect_eq(tma_region_size(NULL), 0);
	cr_expect_eq(tma_region_kind(NULL), TMA_REGION_ANY);
	cr_expect_eq(tma_region_fd(NULL), -1);
	cr_expect_null(tma_region_handle(NULL));
	cr_expect_str_eq(tma_region_device(NULL), "");
	cr_expect_eq(tma_region_release(NULL), 0);
	cr_expect_eq(tma_plan_release(NULL), 0);
	cr_expect_eq(tma_table_release(NULL), 0);
	cr_expect_eq(tma_ring_close(NULL), 0);
	cr_expect_null(tma_layout_name(NULL));
	cr_expect_null(tma_layout_doc(NULL));
	cr_expect_null(tma_layout_order(NULL));
	cr_expect(!tma_layout_is_blocked(NULL));
	tma_document_free(NULL);
	cr_expect_eq(tma_document_kind(NULL), TMA_DOCUMENT_NULL);
	cr_expect_eq(tma_document_count(NULL), 0);
	cr_expect_null(tma_document_at(NULL, 0, NULL));
	cr_expect_null(tma_document_find(NULL, "key"));
	cr_expect_null(tma_document_text(NULL));
	cr_expect_eq(tma_document_int(NULL), 0);
	cr_expect_eq(tma_document_real(NULL), 0);
	cr_expect_str_eq(json, "null");
	free(json);
}
