/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the public header promises of all structs and functions: structs grow into their reserved
 * members, and a call that fails leaves *ret as it was. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <criterion/criterion.h>

#include "server.h"

/* ---- Structs ---------------------------------------------------------------------------------------- */

/* A struct that grows takes its new member from the reserved ones, so that its size stays and programs need
 * not be built again. */
#define GROWS(type, bytes, left)                                                                   \
	_Static_assert(sizeof(((type *)0)->reserved) == (left) * sizeof(uint64_t), #type " grew"); \
	_Static_assert(offsetof(type, reserved) + sizeof(((type *)0)->reserved) == sizeof(type),   \
	               #type " ends with what is reserved");                                       \
	_Static_assert(UINTPTR_MAX != UINT64_MAX || sizeof(type) == (bytes), #type " has another size");

GROWS(struct tma_tensor, 320, 2)
GROWS(struct tma_number, 56, 2)
GROWS(struct tma_transform, 176, 5)
GROWS(struct tma_result, 144, 7)
GROWS(struct tma_point, 40, 2)
GROWS(struct tma_order, 152, 5)
GROWS(struct tma_place, 32, 2)
GROWS(struct tma_region_part, 48, 2)
GROWS(struct tma_item, 120, 1)
GROWS(struct tma_operands, 144, 2)
GROWS(struct tma_conversion, 104, 7)
GROWS(struct tma_amax, 104, 8)
GROWS(struct tma_blocks, 200, 2)
GROWS(struct tma_slice, 344, 2)
GROWS(struct tma_reshard, 96, 6)
GROWS(struct tma_completed, 192, 4)
GROWS(struct tma_ring_end, 64, 4)
GROWS(struct tma_layout_cache, 176, 8)
GROWS(struct tma_layout_part, 144, 8)
GROWS(struct tma_layout_move, 1392, 8)
GROWS(struct tma_layout_blocking, 1104, 8)

static struct tma_tensor dst = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_tensor src = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_order order;
static struct tma_transform transform = { .dst = &dst, .src = &src, .order = &order };
static struct tma_transform plain = { .dst = &dst, .src = &src };
static const int32_t list[] = { 0 };
static struct tma_blocks blocks = {
	.transform = &plain, .count = 1, .index_dtype = TMA_INT32, .index = list
};
static struct tma_slice slice = { .tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } } };
static struct tma_reshard reshard = { .sources = &slice, .n_sources = 1 };
static struct tma_item item = { .transform = &plain };

static int call_transform(tma_client *client)
{
	return tma_transform(client, &transform);
}

static int call_submit(tma_client *client)
{
	tma_ticket ticket = 7;
	int rc = tma_submit(client, &transform, &ticket);

	cr_assert_eq(ticket, 7);
	return rc;
}

static int call_gather(tma_client *client)
{
	return tma_gather(client, &blocks);
}

static int call_reshard(tma_client *client)
{
	return tma_reshard(client, &reshard);
}

static int call_items(tma_client *client)
{
	return tma_run_items(client, &item, 1, NULL);
}

static int call_explain(tma_client *client)
{
	tma_document *document = (tma_document *)&item;
	int rc = tma_explain(client, &plain, &document);

	cr_assert_eq((void *)document, (void *)&item);
	return rc;
}

static int call_prepare(tma_client *client)
{
	tma_plan *plan = (tma_plan *)&item;
	int rc = tma_plan_prepare(client, &plain, &plan);

	cr_assert_eq((void *)plan, (void *)&item);
	return rc;
}

/* A member of a later version is refused by its name before anything is sent. */
Test(growth, what_is_reserved_has_to_be_zero)
{
	const struct {
		uint64_t *reserved;
		int (*call)(tma_client *client);
		const char *words;
	} rows[] = {
		{ &dst.reserved[1], call_transform, "dst.reserved[1]: 0x5, which libtmaclient " },
		{ &src.reserved[0], call_submit, "src.reserved[0]" },
		{ &transform.reserved[4], call_transform, "transform.reserved[4]" },
		{ &transform.value.reserved[1], call_transform, "value.reserved[1]" },
		{ &order.reserved[4], call_transform, "order.reserved[4]" },
		{ &order.wait.reserved[0], call_submit, "order.wait.reserved[0]" },
		{ &order.signal.reserved[1], call_transform, "order.signal.reserved[1]" },
		{ &blocks.reserved[1], call_gather, "blocks.reserved[1]" },
		{ &blocks.index_at.reserved[1], call_gather, "index_at.reserved[1]" },
		{ &plain.reserved[0], call_gather, "transform.reserved[0]" },
		{ &reshard.reserved[5], call_reshard, "reshard.reserved[5]" },
		{ &slice.reserved[1], call_reshard, "sources[0].reserved[1]" },
		{ &slice.tensor.reserved[0], call_reshard, "sources[0].tensor.reserved[0]" },
		{ &item.reserved[0], call_items, "items[0]: reserved[0]" },
		{ &item.dst.reserved[0], call_items, "items[0]: dst.reserved[0]" },
		{ &item.src.reserved[1], call_items, "items[0]: src.reserved[1]" },
		{ &plain.reserved[4], call_prepare, "transform.reserved[4]" },
		{ &dst.reserved[1], call_explain, "dst.reserved[1]" },
	};
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	for (size_t i = 0; i < COUNT(rows); i++) {
		*rows[i].reserved = 5;
		cr_assert_eq(rows[i].call(client), TMA_INVALID_ARGUMENT, "%s", rows[i].words);
		cr_assert_eq(strncmp(tma_last_error(client), rows[i].words, strlen(rows[i].words)), 0,
		             "%s: %s", rows[i].words, tma_last_error(client));
		*rows[i].reserved = 0;
	}
	cr_assert_eq(call_transform(client), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

Test(growth, places_and_numbers)
{
	const struct tma_number number = { .reserved = { 0, 1 } };
	struct tma_place place = { .region = (tma_region *)&item, .reserved = { 0, 9 } };
	struct region_place at;
	tma_client *client = tma_new();
	uint8_t bytes[16];

	cr_assert_eq(tma_number_encode(TMA_INT32, &number, bytes), TMA_INVALID_ARGUMENT);
	cr_assert_eq(place_param(client, place, "dst", &at), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "dst.reserved[1]: 0x9"), "%s", tma_last_error(client));
	tma_free(client);
}

Test(growth, what_is_reserved_is_written_as_zero)
{
	struct server s = { 0 };
	struct tma_completed completed;
	struct tma_result result;
	tma_client *client;
	tma_ticket ticket;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	memset(&completed, 0x5a, sizeof completed);
	memset(&result, 0x5a, sizeof result);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, &result), 0);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_next(client, -1, &completed), 0);
	for (size_t i = 0; i < COUNT(result.reserved); i++)
		cr_assert(result.reserved[i] == 0 && completed.result.reserved[i] == 0);
	for (size_t i = 0; i < COUNT(completed.reserved); i++)
		cr_assert_eq(completed.reserved[i], 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- *ret ------------------------------------------------------------------------------------------- */

static void script_refuses(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request))
		server_refuse(s, request.msgid, STATUS_QUOTA, "no more of that");
}

static const char handle[64];

/* The call fails and leaves its *ret, for which each call gets an address in `untouched`, as it was. */
#define RETURNS(call)                         \
	cr_assert_lt((call), 0, "%s", #call); \
	cr_assert_eq(memcmp(&ret, &untouched, sizeof ret), 0, "%s wrote to its ret", #call)

static void assert_untouched(tma_client *client)
{
	union {
		tma_region *region;
		tma_plan *plan;
		tma_table *table;
		tma_ring *ring;
		tma_document *document;
		tma_ticket ticket;
		struct tma_result result;
		struct tma_completed completed;
		struct tma_tensor tensor;
		struct tma_layout_move move;
		struct tma_layout_blocking blocking;
		struct tma_blocks blocks;
		uint64_t size;
		int64_t layer;
		struct tma_place place;
		struct tma_mapping mapping;
		uint8_t bytes[16];
	} ret, untouched;
	struct tma_layout_move move;
	int64_t strides[TMA_MAX_RANK];
	const struct tma_number real = { .kind = TMA_NUMBER_REAL, .re = 0.5 };
	const struct tma_region_part part = { .fd = -1, .size = 4096 };
	const struct tma_number imaginary = { .kind = TMA_NUMBER_COMPLEX, .im = 1 };

	memset(&ret, 0x5a, sizeof ret);
	memset(&untouched, 0x5a, sizeof untouched);
	RETURNS(tma_region_create(client, 4096, &ret.region));
	RETURNS(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &ret.region));
	RETURNS(tma_region_register_memfd(client, 0, 0, 4096, 0, &ret.region));
	RETURNS(tma_region_register_cuda_fd(client, 0, 0, 0, 4096, 0, &ret.region));
	RETURNS(tma_region_register_cuda_ipc(client, handle, 0, 4096, 0, &ret.region));
	RETURNS(tma_region_register_cuda_pool(client, 0, handle, 64, 0, 64, 0, &ret.region));
	RETURNS(tma_region_from_device_ptr(client, handle, 64, 0, &ret.region));
	RETURNS(tma_region_from_host_ptr(client, handle, 64, 0, &ret.region));
	RETURNS(tma_region_register_parts(client, &part, 1, 0, 4096, 0, &ret.region));
	RETURNS(tma_region_map(NULL, &ret.mapping));
	RETURNS(tma_region_find(client, handle, 64, &ret.place));
	RETURNS(tma_region_find_current(client, handle, 64, &ret.place));
	RETURNS(tma_number_encode(TMA_INT8, &real, ret.bytes));
	RETURNS(tma_number_encode(TMA_FLOAT32, &imaginary, ret.bytes));
	RETURNS(tma_layout_bytes(client, NULL, &ret.size));
	RETURNS(tma_layout_tensor(client, NULL, NULL, strides, &ret.tensor));
	RETURNS(tma_layout_convert(client, NULL, NULL, NULL, NULL, &ret.move));
	RETURNS(tma_layout_blocks(client, NULL, NULL, NULL, NULL, false, &move, &ret.blocks));
	RETURNS(tma_layout_layer_offsets(client, NULL, NULL, &ret.layer));
	RETURNS(tma_layout_split(client, NULL, 0, NULL, &ret.blocking));
	RETURNS(tma_plan_prepare(client, &plain, &ret.plan));
	RETURNS(tma_table_prepare(client, NULL, 1, &ret.table));
	RETURNS(tma_submit_run(client, NULL, item.dst, item.src, NULL, &ret.ticket));
	RETURNS(tma_submit_run_tables(client, NULL, NULL, NULL, NULL, &ret.ticket));
	RETURNS(tma_submit_items(client, NULL, 1, NULL, &ret.ticket));
	RETURNS(tma_submit_gather(client, NULL, &ret.ticket));
	RETURNS(tma_submit_scatter(client, NULL, &ret.ticket));
	RETURNS(tma_submit_reshard(client, NULL, &ret.ticket));
	RETURNS(tma_submit(client, NULL, &ret.ticket));
	RETURNS(tma_wait(client, 77, &ret.result));
	RETURNS(tma_poll(client, 77, &ret.result));
	RETURNS(tma_next(client, 0, &ret.completed));
	RETURNS(tma_ring_open(client, 8, 0, &ret.ring));
	RETURNS(tma_info(client, &ret.document));
	RETURNS(tma_stats(client, &ret.document));
	RETURNS(tma_regions(client, &ret.document));
	RETURNS(tma_sessions(client, 0, &ret.document));
	RETURNS(tma_session_regions(client, 3, &ret.document));
	RETURNS(tma_explain(client, &plain, &ret.document));
	RETURNS(tma_explain_for(client, &plain, "cpu", &ret.document));
}

Test(growth, what_fails_leaves_ret_as_it_was)
{
	struct server s = { 0 };
	tma_client *client = tma_new();

	assert_untouched(client);
	tma_free(client);
	server_start(&s, script_refuses);
	client = server_client(&s, 5000);
	assert_untouched(client);
	shutdown(s.sock, SHUT_RDWR);
	server_stop(&s);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	assert_untouched(client);
	tma_free(client);
}

/* A ticket that is still pending leaves *ret alone, too; one that has completed sets it. */
Test(growth, pending_leaves_ret_as_it_was)
{
	struct tma_completed completed, untouched;
	struct server s = { 0 };
	struct tma_result result;
	tma_client *client;
	tma_ticket ticket;

	server_start(&s, script_refuses);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	memset(&completed, 0x5a, sizeof completed);
	memset(&untouched, 0x5a, sizeof untouched);
	memset(&result, 0x5a, sizeof result);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_poll(client, ticket, &result), TMA_PENDING);
	cr_assert_eq(memcmp(&result, &untouched, sizeof result), 0);
	cr_assert_eq(tma_wait(client, ticket, &result), TMA_QUOTA);
	cr_assert_eq(result.status, TMA_QUOTA);
	tma_free(client);
	server_stop(&s);
}

/* ---- Versions --------------------------------------------------------------------------------------- */

Test(growth, the_header_and_the_library_have_one_version)
{
	char version[32];

	snprintf(version, sizeof version, "%d.%d.%d", TMA_VERSION_MAJOR, TMA_VERSION_MINOR,
	         TMA_VERSION_PATCH);
	cr_assert_str_eq(tma_version(), version);
}
