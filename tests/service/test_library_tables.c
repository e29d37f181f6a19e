/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the library against a real tmad: layers in separate regions are moved there and back by lists,
 * plans and items, also after the service was killed and started again. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define LAYERS 20 /* layers for K, and as many for V */
#define BLOCKS 8
#define BLOCK  96 /* bytes of a block */
#define BYTES  (BLOCKS * BLOCK + 256)

static struct process service;
static tma_client *client;
static tma_region *flat;
static struct tma_place places[2 * LAYERS];
static int32_t index_of[BLOCKS];

static char *layer(int l)
{
	return (char *)rig_data(places[l].region) + places[l].offset;
}

static void setup(void)
{
	client = rig_start(&service, NULL);
	flat = rig_region(client, 2 * LAYERS * BLOCKS * BLOCK);
	for (int l = 0; l < 2 * LAYERS; l++) {
		places[l].offset = 16 * (uint64_t)(l * 5 % 16);
		places[l].region = rig_region(client, BYTES);
		for (int i = 0; i < BLOCKS * BLOCK; i++)
			layer(l)[i] = (char)(l * 31 + i * 7 + i / 256);
	}
	for (int i = 0; i < BLOCKS; i++)
		index_of[i] = (i * 3 + 1) % BLOCKS;
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_tables, .init = setup, .fini = teardown, .timeout = 60);

static tma_table *table_of(size_t first, size_t n)
{
	tma_table *table = NULL;

	cr_assert_eq(tma_table_prepare(client, places + first, n, &table), 0, "%s", tma_last_error(client));
	return table;
}

static struct tma_tensor block_at(tma_region *region)
{
	return (struct tma_tensor){ .region = region, .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK } };
}

/* Moves all layers into flat, or back with the same list. */
static int move(tma_table *table, bool back)
{
	const struct tma_tensor pool = block_at(NULL), run = block_at(flat);
	const struct tma_transform transform = { .dst = back ? &pool : &run, .src = back ? &run : &pool };
	struct tma_blocks blocks = { .transform = &transform,
		                     .count = BLOCKS,
		                     .index_dtype = TMA_INT32,
		                     .index = index_of,
		                     .limit = BLOCKS };

	*(back ? &blocks.dst_table : &blocks.src_table) = table;
	*(back ? &blocks.src_layer_step : &blocks.dst_layer_step) = BLOCKS * BLOCK;
	return back ? tma_scatter(client, &blocks) : tma_gather(client, &blocks);
}

static void expect_gathered(const char *what)
{
	for (int l = 0; l < 2 * LAYERS; l++)
		for (int i = 0; i < BLOCKS; i++)
			cr_assert_eq(memcmp((char *)rig_data(flat) + (l * BLOCKS + i) * BLOCK,
			                    layer(l) + index_of[i] * BLOCK, BLOCK),
			             0, "%s: layer %d, block %d", what, l, i);
}

Test(library_tables, there_and_back)
{
	tma_table *table = table_of(0, 2 * LAYERS);
	char kept[2 * LAYERS][BLOCKS * BLOCK];

	cr_assert_eq(move(table, false), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->moved, BLOCKS);
	cr_assert_eq(tma_last_result(client)->bytes, 2 * 2 * LAYERS * BLOCKS * BLOCK);
	expect_gathered("gathered");
	for (int l = 0; l < 2 * LAYERS; l++) {
		memcpy(kept[l], layer(l), sizeof kept[l]);
		memset(layer(l), 0, sizeof kept[l]);
	}
	cr_assert_eq(move(table, true), 0, "%s", tma_last_error(client));
	for (int l = 0; l < 2 * LAYERS; l++)
		cr_assert_eq(memcmp(layer(l), kept[l], sizeof kept[l]), 0, "layer %d", l);
	cr_assert_eq(tma_table_release(table), 0, "%s", tma_last_error(client));
}

/* Moves from the first half of the places, which are sent with the request, to the second half. */
static int gather_places(const struct tma_place *dst)
{
	const struct tma_tensor block = block_at(NULL);
	const struct tma_transform transform = { .dst = &block, .src = &block };
	const struct tma_blocks blocks = { .transform = &transform,
		                           .count = BLOCKS,
		                           .index_dtype = TMA_INT32,
		                           .index = index_of,
		                           .limit = BLOCKS,
		                           .layers = LAYERS,
		                           .dst_places = dst,
		                           .src_places = places };

	return tma_gather(client, &blocks);
}

static void assert_gathers_places(void)
{
	for (int l = LAYERS; l < 2 * LAYERS; l++)
		memset(layer(l), 0xee, BLOCKS * BLOCK);
	cr_assert_eq(gather_places(places + LAYERS), 0, "%s", tma_last_error(client));
	for (int l = 0; l < LAYERS; l++)
		for (int i = 0; i < BLOCKS; i++)
			cr_assert_eq(
			    memcmp(layer(LAYERS + l) + i * BLOCK, layer(l) + index_of[i] * BLOCK, BLOCK), 0,
			    "layer %d, block %d", l, i);
}

Test(library_tables, places_of_a_request)
{
	assert_gathers_places();
	cr_assert_eq(gather_places(places), TMA_OVERLAP);
	cr_assert(strstr(tma_last_error(client), "dst_places: the blocks of entry "), "%s",
	          tma_last_error(client));
}

Test(library_tables, places_of_a_request_after_a_restart)
{
	assert_gathers_places();
	process_kill(&service);
	process_start_again(&service, NULL);
	assert_gathers_places();
}

/* Moves from the first half of the tables to the second, by a plan and by items. */
Test(library_tables, plans_and_items)
{
	const struct tma_tensor all = { .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCKS * BLOCK } };
	const struct tma_transform transform = { .dst = &all, .src = &all };
	tma_table *k = table_of(0, LAYERS), *v = table_of(LAYERS, LAYERS);
	struct tma_item items[2] = { 0 };
	tma_ticket ticket;
	tma_plan *plan;

	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_plan_run_tables(client, plan, v, k, NULL), 0, "%s", tma_last_error(client));
	for (int l = 0; l < LAYERS; l++) {
		cr_assert_eq(memcmp(layer(LAYERS + l), layer(l), BLOCKS * BLOCK), 0, "layer %d", l);
		memset(layer(l), l, BLOCKS * BLOCK);
	}
	cr_assert_eq(tma_submit_run_tables(client, plan, v, k, NULL, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0);
	for (int l = 0; l < LAYERS; l++)
		cr_assert_eq(memcmp(layer(LAYERS + l), layer(l), BLOCKS * BLOCK), 0, "layer %d", l);
	items[0] = (struct tma_item){ .plan = plan, .dst_table = k, .src = { .region = flat } };
	items[1] = (struct tma_item){ .plan = plan, .dst_table = v, .src_table = k };
	memset(rig_data(flat), 77, BLOCKS * BLOCK);
	cr_assert_eq(tma_run_items(client, &items[0], 1, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_run_items(client, &items[1], 1, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(layer(LAYERS)[5], 77);
	cr_assert_eq(layer(2 * LAYERS - 1)[BLOCKS * BLOCK - 1], 77);
	cr_assert_eq(tma_plan_run_tables(client, plan, k, k, NULL), TMA_OVERLAP);
	cr_assert(strstr(tma_last_error(client), "dst_table: the blocks of entry "), "%s",
	          tma_last_error(client));
}

Test(library_tables, an_entry_outside_its_region)
{
	tma_table *table = NULL;

	places[17].offset = BYTES;
	cr_assert_eq(tma_table_prepare(client, places, 2 * LAYERS, &table), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "places: entry 17: byte 1024, but region"), "%s",
	          tma_last_error(client));
	cr_assert_null(table);
}

/* The tables are restored together with their regions, whose ids change. */
Test(library_tables, after_the_service_was_killed)
{
	tma_region *gone;
	tma_table *table, *lost;

	gone = rig_region(client, BYTES);
	table = table_of(0, 2 * LAYERS);
	cr_assert_eq(tma_table_prepare(client, &(struct tma_place){ .region = gone }, 1, &lost), 0);
	cr_assert_eq(tma_region_release(places[3].region), 0);
	places[3].region = rig_region(client, BYTES);
	cr_assert_eq(tma_table_release(table), 0, "%s", tma_last_error(client));
	table = table_of(0, 2 * LAYERS);
	cr_assert_eq(tma_region_release(gone), 0);
	process_kill(&service);
	process_start_again(&service, NULL);
	cr_assert_eq(move(table, false), TMA_NOT_FOUND, "the one whose region was released");
	cr_assert(strstr(tma_last_error(client), "a table of 1 places could not be prepared again"), "%s",
	          tma_last_error(client));
	cr_assert_eq(move(table, false), 0, "%s", tma_last_error(client));
	expect_gathered("afterwards");
	cr_assert_eq(tma_reconnects(client), 1);
	cr_assert_eq(tma_table_release(lost), 0);
	cr_assert_eq(tma_table_release(table), 0, "%s", tma_last_error(client));
}
