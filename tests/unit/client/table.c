/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tables: what the client sends for them, and that they come along to a later connection with the new
 * ids of their regions. */
#include <endian.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

#define PLACES     3
#define MOST_ITEMS 8

static struct tma_tensor tensor = { .offset = 8, .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_transform transform = { .dst = &tensor, .src = &tensor };
static const int32_t list[] = { 0 };

static int seen[METHOD_COUNT];     /* requests by method, on all connections */
static uint64_t words[2 * PLACES]; /* words of the last table_prepare */
static size_t words_bytes;
static struct msg_blocks asked;              /* last gather */
static struct msg_plan_run run;              /* last plan_run */
static struct submit_item items[MOST_ITEMS]; /* items of the last submit */
static uint32_t n_items;
static uint64_t released; /* table of the last table_release */
static int deaths;        /* connections that still end when a ping comes */
static int refusals;      /* table_prepare requests that later connections still refuse */

/* Connection c numbers its regions from 100 * (c + 1) on, and its tables from 50 above that. */
static void script(struct server *s)
{
	uint64_t region = 100 * (uint64_t)(s->connection + 1), table = region + 50;
	static const int32_t all_well[MOST_ITEMS];
	struct rpc_request request;
	struct error err;

	while (server_request(s, &request)) {
		seen[request.method->id]++;
		switch (request.method->id) {
		case METHOD_region_register:
			server_answer_registered(s, &request, region++);
			break;
		case METHOD_table_prepare:
			words_bytes = request.params.table_prepare.places.len;
			memcpy(words, request.params.table_prepare.places.data,
			       words_bytes < sizeof words ? words_bytes : sizeof words);
			if (s->connection > 0 && refusals-- > 0)
				server_refuse(s, request.msgid, STATUS_QUOTA, "no more of that");
			else
				server_answer(s, &request, &(struct msg_table_prepared){ .table = table++ });
			break;
		case METHOD_table_release:
			released = request.params.table_release.table;
			server_answer_true(s, &request);
			break;
		case METHOD_plan_prepare:
			server_answer(s, &request, &(struct msg_plan_prepared){ .plan = 190 });
			break;
		case METHOD_plan_run:
			run = request.params.plan_run;
			server_answer_transform(s, request.msgid, "memcpy", 8);
			break;
		case METHOD_submit:
			for (n_items = 0; n_items < request.params.submit.items.n; n_items++)
				cr_assert_eq(rpc_decode_item(&request.params.submit.items, n_items,
				                             &items[n_items], &err),
				             0, "%s", err.message);
			server_answer(
			    s, &request,
			    &(struct msg_submit_done){ .statuses = { .codes = all_well, .n = n_items } });
			break;
		case METHOD_gather:
			asked = request.params.blocks;
			if (asked.src_places.len == sizeof words)
				memcpy(words, asked.src_places.data, sizeof words);
			words_bytes = asked.src_places.len;
			server_answer(s, &request, &(struct msg_blocks_done){ .path = bytes_of("memcpy") });
			break;
		case METHOD_region_release:
			server_answer(s, &request,
			              &(struct msg_region_released){ .state = REGION_STATE_DRAINING });
			break;
		default:
			server_answer_true(s, &request);
			if (s->connection < deaths)
				return;
		}
	}
}

static tma_client *start(struct server *s)
{
	tma_client *client;

	s->connections = deaths + 1;
	server_start(s, script);
	client = server_client(s, 5000);
	tma_set_reconnect(client, 1000);
	return client;
}

/* Makes a new region for each place. */
static void places_of(tma_client *client, struct tma_place places[PLACES])
{
	for (int i = 0; i < PLACES; i++) {
		int fd = memfd_create("region", MFD_CLOEXEC);

		places[i] = (struct tma_place){ .offset = 16 * (uint64_t)i };
		cr_assert_eq(ftruncate(fd, 4096), 0);
		cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &places[i].region), 0, "%s",
		             tma_last_error(client));
		close(fd);
	}
}

static tma_table *table_of(tma_client *client, const struct tma_place places[PLACES])
{
	tma_table *table = NULL;

	cr_assert_eq(tma_table_prepare(client, places, PLACES, &table), 0, "%s", tma_last_error(client));
	return table;
}

static int gather(tma_client *client, const tma_table *dst, const tma_table *src)
{
	struct tma_blocks blocks = { .transform = &transform,
		                     .count = 1,
		                     .index_dtype = TMA_INT32,
		                     .index = list,
		                     .dst_table = dst,
		                     .src_table = src };

	return tma_gather(client, &blocks);
}

static void assert_words(uint64_t first)
{
	cr_assert_eq(words_bytes, sizeof words);
	for (uint64_t i = 0; i < PLACES; i++) {
		cr_assert_eq(le64toh(words[2 * i]), first + i);
		cr_assert_eq(le64toh(words[2 * i + 1]), 16 * i);
	}
}

/* Expects the ids of regions in reverse, because a new connection registers the newest region first. */
static void assert_reversed_words(uint64_t first)
{
	for (uint64_t i = 0; i < PLACES; i++)
		cr_assert_eq(le64toh(words[2 * i]), first + PLACES - 1 - i);
}

Test(table, life)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_place places[PLACES];
	tma_table *dst, *src;

	places_of(client, places);
	dst = table_of(client, places);
	assert_words(100);
	src = table_of(client, places);
	cr_assert_eq(gather(client, dst, src), 0, "%s", tma_last_error(client));
	cr_assert(asked.has & F(blocks, dst_table) && asked.has & F(blocks, src_table));
	cr_assert_not(asked.has & F(blocks, layers), "as many as the table has");
	cr_assert(asked.dst_table == 150 && asked.src_table == 151);
	cr_assert_eq(asked.dst.has, F(tensor, dtype) | F(tensor, shape) | F(tensor, offset), "no region");
	cr_assert_eq(gather(client, NULL, src), 0);
	cr_assert_not(asked.has & F(blocks, dst_table));
	cr_assert_eq(tma_table_release(dst), 0, "%s", tma_last_error(client));
	cr_assert_eq(released, 150);
	cr_assert_eq(tma_table_release(NULL), 0);
	tma_free(client); /* src is freed with the client */
	cr_assert_eq(seen[METHOD_table_release], 1);
	server_stop(&s);
}

Test(table, that_a_plan_runs_over)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_place places[PLACES];
	tma_table *dst, *src;
	tma_plan *plan;
	tma_ticket ticket;

	places_of(client, places);
	dst = table_of(client, places);
	src = table_of(client, places);
	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_plan_run_tables(client, plan, dst, src, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(run.has, F(plan_run, plan) | F(plan_run, dst_table) | F(plan_run, src_table));
	cr_assert(run.plan == 190 && run.dst_table == 150 && run.src_table == 151);
	cr_assert_eq(tma_last_result(client)->bytes, 8);
	cr_assert_eq(tma_submit_run_tables(client, plan, src, dst, NULL, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0);
	cr_assert(run.dst_table == 151 && run.src_table == 150);
	cr_assert_eq(tma_plan_run_tables(client, NULL, dst, src, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_plan_run_tables(client, plan, NULL, src, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "dst is NULL; tma_table_prepare makes one");
	cr_assert_eq(tma_plan_run_tables(client, plan, dst, NULL, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(seen[METHOD_plan_run], 2);
	tma_free(client);
	server_stop(&s);
}

Test(table, in_items)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_place places[PLACES];
	struct tma_item of[4] = { 0 };
	tma_plan *plan;

	places_of(client, places);
	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	of[0] = (struct tma_item){ .plan = plan, .dst = places[0], .src = places[1] };
	of[1] = (struct tma_item){ .plan = plan,
		                   .dst_table = table_of(client, places),
		                   .src_table = table_of(client, places) };
	of[2] = (struct tma_item){ .plan = plan, .dst_table = of[1].src_table, .src = places[2] };
	of[3] = (struct tma_item){ .transform = &transform };
	cr_assert_eq(tma_run_items(client, of, 4, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(n_items, 4);
	cr_assert_eq(items[0].run.has, F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src));
	cr_assert_eq(items[1].run.has, F(plan_run, plan) | F(plan_run, dst_table) | F(plan_run, src_table));
	cr_assert(items[1].run.dst_table == 150 && items[1].run.src_table == 151);
	cr_assert_eq(items[2].run.has, F(plan_run, plan) | F(plan_run, dst_table) | F(plan_run, src));
	cr_assert(items[2].run.dst_table == 151 && items[2].run.src.region == 102 &&
	          items[2].run.src.offset == 32);
	cr_assert_not(items[3].is_run);

	of[1].dst_table = NULL;
	cr_assert_eq(tma_run_items(client, &of[1], 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "dst_table is NULL"), "%s", tma_last_error(client));
	for (int side = 0; side < 2; side++) {
		of[2] = (struct tma_item){ .plan = plan,
			                   .dst_table = of[1].src_table,
			                   .src_table = of[1].src_table };
		*(side ? &of[2].src : &of[2].dst) = places[0];
		cr_assert_eq(tma_run_items(client, &of[2], 1, NULL), TMA_INVALID_ARGUMENT);
		cr_assert(strstr(tma_last_error(client),
		                 side ? "src: src_table is given too" : "dst: dst_table is given too"),
		          "%s", tma_last_error(client));
	}
	of[3].src_table = of[1].src_table;
	cr_assert_eq(tma_run_items(client, &of[3], 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "src_table: set, but only a plan runs over tables"), "%s",
	          tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* The other side has as many offsets as the table has places. */
Test(table, beside_a_list_of_layers)
{
	const int64_t offsets[PLACES] = { 0, 64, 32 };
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_place places[PLACES];
	struct tma_blocks blocks = { .transform = &transform,
		                     .count = 1,
		                     .index_dtype = TMA_INT32,
		                     .index = list,
		                     .src_layers = offsets };

	places_of(client, places);
	blocks.dst_table = table_of(client, places);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(asked.src_layers.len, sizeof offsets);
	tma_free(client);
	server_stop(&s);
}

Test(table, what_is_refused_here)
{
	struct server s = { 0 };
	tma_client *client = start(&s), *other = tma_new();
	struct tma_place places[PLACES], without[PLACES], later[PLACES];
	tma_table *table, *none = NULL;

	places_of(client, places);
	memcpy(without, places, sizeof without);
	memcpy(later, places, sizeof later);
	without[1].region = NULL;
	later[2].reserved[1] = 5;
	table = table_of(client, places);
	cr_assert_eq(tma_connect(other, s.path), 0);
	const struct {
		tma_client *client;
		const struct tma_place *places;
		size_t n;
		const char *words;
	} rows[] = {
		{ client, NULL, 1, "places is NULL" },
		{ client, places, 0, "places is empty" },
		{ client, places, SIZE_MAX / 2, "do not fit into a message of 65536 bytes" },
		{ client, without, PLACES, "places[1].region is NULL" },
		{ client, later, PLACES, "places[2].reserved[1]: 0x5" },
		{ other, places, PLACES, "places[0].region: it belongs to another client" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		cr_assert_eq(tma_table_prepare(rows[i].client, rows[i].places, rows[i].n, &none),
		             TMA_INVALID_ARGUMENT, "%s", rows[i].words);
		cr_assert(strstr(tma_last_error(rows[i].client), rows[i].words), "%s: %s", rows[i].words,
		          tma_last_error(rows[i].client));
	}
	cr_assert_eq(tma_table_prepare(NULL, places, PLACES, &none), TMA_INVALID_ARGUMENT);
	cr_assert_null(none);
	cr_assert_eq(gather(other, NULL, table), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(other), "src_table: it belongs to another client");
	cr_assert_eq(seen[METHOD_table_prepare], 1);
	cr_assert_eq(seen[METHOD_gather], 0);
	tma_free(other);
	tma_free(client);
	server_stop(&s);
}

Test(table, comes_along)
{
	struct server s = { 0 };
	struct tma_place places[PLACES];
	tma_table *table, *other;
	tma_client *client;

	deaths = 1;
	client = start(&s);
	places_of(client, places);
	table = table_of(client, places);
	other = table_of(client, places);
	cr_assert_eq(tma_table_release(other), 0);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(gather(client, NULL, table), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1);
	assert_reversed_words(200);
	cr_assert_eq(asked.src_table, 250, "the id is the new connection's");
	cr_assert_eq(seen[METHOD_table_prepare], 3, "the released one is not");
	tma_free(client);
	server_stop(&s);
}

static struct tma_blocks blocks_of_places(const struct tma_place places[PLACES])
{
	return (struct tma_blocks){ .transform = &transform,
		                    .count = 1,
		                    .index_dtype = TMA_INT32,
		                    .index = list,
		                    .layers = PLACES,
		                    .dst_layer_step = 64,
		                    .src_places = places };
}

/* Places that a request carries have the ids of the connection on which it is sent. */
Test(table, of_a_request)
{
	struct server s = { 0 };
	struct tma_place places[PLACES];
	struct tma_blocks blocks = blocks_of_places(places);
	tma_client *client;
	tma_ticket ticket;

	deaths = 1;
	client = start(&s);
	places_of(client, places);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert(asked.has & F(blocks, src_places) && !(asked.has & F(blocks, dst_places)));
	cr_assert_eq(asked.layers, PLACES);
	assert_words(100);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(tma_submit_gather(client, &blocks, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1);
	assert_reversed_words(200);
	cr_assert_eq(seen[METHOD_table_prepare], 0);
	blocks.dst_layer_step = 0;
	blocks.dst_places = places;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(asked.dst_places.len, asked.src_places.len);
	tma_free(client);
	server_stop(&s);
}

Test(table, of_a_request_that_is_refused_here)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_place places[PLACES];
	struct tma_blocks blocks = blocks_of_places(places);

	places_of(client, places);
	blocks.layers = 4097;
	cr_assert_eq(tma_gather(client, &blocks), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client),
	                 "layers: 4097 places do not fit into a message of 65536 bytes");
	blocks.layers = PLACES;
	places[1].reserved[1] = 1;
	cr_assert_eq(tma_gather(client, &blocks), TMA_INVALID_ARGUMENT);
	cr_assert_eq(strncmp(tma_last_error(client), "src_places[1].reserved[1]: 0x1, ", 32), 0, "%s",
	             tma_last_error(client));
	places[1] = (struct tma_place){ .offset = 3 };
	cr_assert_eq(tma_gather(client, &blocks), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client),
	                 "src_places[1].region is NULL; a place is a byte of a region");
	cr_assert_eq(seen[METHOD_gather], 0);
	tma_free(client);
	server_stop(&s);
}

Test(table, that_is_refused_for_now_is_asked_for_again)
{
	struct server s = { 0 };
	struct tma_place places[PLACES];
	tma_client *client;
	tma_table *table;

	deaths = 1;
	refusals = 3;
	client = start(&s);
	places_of(client, places);
	table = table_of(client, places);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(gather(client, NULL, table), 0, "%s", tma_last_error(client));
	cr_assert_eq(seen[METHOD_table_prepare], 5);
	tma_free(client);
	server_stop(&s);
}

Test(table, that_is_refused_is_gone_until_it_is_restored)
{
	struct server s = { 0 };
	struct tma_place places[PLACES];
	tma_client *client;
	tma_table *table;

	deaths = refusals = 1;
	client = start(&s);
	places_of(client, places);
	table = table_of(client, places);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	tma_set_reconnect(client, 0);
	cr_assert_eq(gather(client, NULL, table), TMA_QUOTA);
	cr_assert_str_eq(tma_last_error(client),
	                 "connected, but a table of 3 places could not be prepared again: no more of that");
	cr_assert_eq(gather(client, NULL, table), TMA_QUOTA);
	cr_assert_str_eq(tma_last_error(client),
	                 "src_table: it could not be prepared again: no more of that");
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(gather(client, NULL, table), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* A table goes on while its own connection lasts; a later connection cannot prepare it. */
Test(table, whose_region_is_released)
{
	struct server s = { 0 };
	struct tma_place places[PLACES];
	tma_client *client;
	tma_table *table;

	deaths = 1;
	client = start(&s);
	places_of(client, places);
	table = table_of(client, places);
	cr_assert_eq(tma_region_release(places[1].region), 0);
	cr_assert_eq(gather(client, NULL, table), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(gather(client, NULL, table), TMA_NOT_FOUND);
	cr_assert_str_eq(tma_last_error(client), "connected, but a table of 3 places could not be prepared "
	                                         "again: places[1]: its region was released");
	cr_assert_eq(gather(client, NULL, NULL), 0, "all else goes on: %s", tma_last_error(client));
	cr_assert_eq(tma_table_release(table), 0);
	cr_assert_eq(seen[METHOD_table_release], 0, "the service does not have it");
	tma_free(client);
	server_stop(&s);
}
