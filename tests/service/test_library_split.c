/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real tmad: the header's example of splits, 50 channels in blocks of 16 and back, by
 * each kind of request. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

enum { N = 2, C = 50, HW = 12, BLOCKS = 4, BLOCK = 16 };

#define PLAIN_BYTES   ((size_t)N * C * HW * 2)
#define BLOCKED_BYTES ((size_t)N * BLOCKS * HW * BLOCK * 2)

static struct process service;
static tma_client *client;
static tma_region *source, *blocks, *back;

static const int64_t channels[] = { 1, BLOCK };
static struct tma_tensor plain = {
	.dtype = TMA_UINT16, .rank = 3, .shape = { N, C, HW }, .split = channels, .n_split = 1
};
static struct tma_tensor blocked = { .dtype = TMA_UINT16, .rank = 4, .shape = { N, BLOCKS, HW, BLOCK } };
static const struct tma_transform there = { .dst = &blocked, .src = &plain, .perm = (int[]){ 0, 1, 3, 2 } };
static const struct tma_transform here = { .dst = &plain, .src = &blocked, .perm = (int[]){ 0, 1, 3, 2 } };

static void setup(void)
{
	uint8_t *bytes;

	client = rig_start(&service, NULL);
	source = rig_region(client, PLAIN_BYTES);
	blocks = rig_region(client, BLOCKED_BYTES);
	back = rig_region(client, PLAIN_BYTES);
	bytes = rig_data(source);
	for (size_t i = 0; i < PLAIN_BYTES; i++)
		bytes[i] = (uint8_t)((i * 2654435761u + 3) >> 7);
	memset(rig_data(blocks), 0xff, BLOCKED_BYTES);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_split, .init = setup, .fini = teardown, .timeout = 60);

static void assert_blocked(void)
{
	const uint16_t *from = rig_data(source), *to = rig_data(blocks);

	for (int n = 0; n < N; n++)
		for (int c = 0; c < BLOCKS * BLOCK; c++)
			for (int i = 0; i < HW; i++)
				cr_assert_eq(to[((n * BLOCKS + c / BLOCK) * HW + i) * BLOCK + c % BLOCK],
				             c < C ? from[(n * C + c) * HW + i] : 0, "at %d, %d, %d", n, c,
				             i);
}

Test(library_split, transforms)
{
	plain.region = source;
	blocked.region = blocks;
	cr_assert_eq(tma_transform(client, &there), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->bytes, PLAIN_BYTES + BLOCKED_BYTES);
	assert_blocked();
	plain.region = back;
	cr_assert_eq(tma_transform(client, &here), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->bytes, 2 * PLAIN_BYTES);
	cr_assert(!memcmp(rig_data(back), rig_data(source), PLAIN_BYTES));
}

Test(library_split, plans)
{
	const struct tma_place from = { .region = source }, to = { .region = blocks };
	tma_plan *plan = NULL;

	cr_assert_eq(tma_plan_prepare(client, &there, &plan), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_plan_run(client, plan, to, from, NULL), TMA_OK, "%s", tma_last_error(client));
	assert_blocked();
	cr_assert_eq(tma_plan_release(plan), TMA_OK);
}

Test(library_split, rings)
{
	const struct tma_place from = { .region = source }, to = { .region = blocks };
	struct tma_ring_end end;
	tma_plan *plan = NULL;
	tma_ring *ring = NULL;

	cr_assert_eq(tma_plan_prepare(client, &there, &plan), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ring_open(client, 4, 0, &ring), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ring_push(ring, plan, to, from, 7), TMA_OK);
	cr_assert_eq(tma_ring_push(ring, plan, to, (struct tma_place){ .region = source, .offset = 2 }, 8),
	             TMA_OK);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_OK, "%s", tma_last_error(client));
		cr_assert_eq(end.status, end.tag == 7 ? TMA_OK : TMA_OUT_OF_RANGE, "tag %d", (int)end.tag);
		cr_assert(end.status || end.bytes == PLAIN_BYTES + BLOCKED_BYTES);
	}
	assert_blocked();
	cr_assert_eq(tma_ring_close(ring), TMA_OK);
	cr_assert_eq(tma_plan_release(plan), TMA_OK);
}

Test(library_split, items)
{
	struct tma_item items[2] = { { .transform = &there }, { .transform = &here } };

	plain.region = source;
	blocked.region = blocks;
	cr_assert_eq(tma_run_items(client, items, 1, NULL), TMA_OK, "%s", tma_last_error(client));
	assert_blocked();
	plain.region = back;
	plain.n_split = -1;
	cr_assert_eq(tma_run_items(client, &items[1], 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(items[1].status, TMA_INVALID_ARGUMENT);
	plain.n_split = 1;
	cr_assert_eq(tma_run_items(client, &items[1], 1, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert(!memcmp(rig_data(back), rig_data(source), PLAIN_BYTES));
}

Test(library_split, explain)
{
	tma_document *plan = NULL;

	cr_assert_eq(tma_explain(client, &there, &plan), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_document_int(tma_document_find(plan, "parts")), 2);
	cr_assert_eq(tma_document_int(tma_document_find(plan, "bytes")), PLAIN_BYTES + BLOCKED_BYTES);
	tma_document_free(plan);
}
