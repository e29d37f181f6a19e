/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real tmad: plans, items and blocks, and requests that wait for points of timelines
 * and signal them. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define BLOCK 64 /* bytes of a block */

static struct process service;
static tma_client *client;

static void setup(void)
{
	client = rig_start(&service, NULL);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_order, .init = setup, .fini = teardown, .timeout = 120);

static void fill(tma_region *region, unsigned seed)
{
	uint8_t *bytes = rig_data(region);

	for (size_t i = 0; i < tma_region_size(region); i++)
		bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* A block of 4 x 8 elements of two bytes, and its transpose. */
static struct tma_tensor src_block = { .dtype = TMA_UINT16, .rank = 2, .shape = { 4, 8 } };
static struct tma_tensor dst_block = { .dtype = TMA_UINT16, .rank = 2, .shape = { 8, 4 } };
static struct tma_transform transposed = { .dst = &dst_block, .src = &src_block, .perm = (int[]){ 1, 0 } };

static void assert_transposed(const tma_region *dst, size_t to, const tma_region *src, size_t from,
                              const char *what)
{
	const uint16_t *d = (const uint16_t *)((const char *)rig_data(dst) + to);
	const uint16_t *s = (const uint16_t *)((const char *)rig_data(src) + from);

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 8; j++)
			cr_assert_eq(d[j * 4 + i], s[i * 8 + j], "%s: block at %zu, %d, %d", what, to, i, j);
}

static struct tma_place at(tma_region *region, uint64_t block)
{
	return (struct tma_place){ .region = region, .offset = block * BLOCK };
}

/* ---- Plans and items -------------------------------------------------------------------------------- */

Test(library_order, plans)
{
	tma_region *src = rig_region(client, 100 * BLOCK), *dst = rig_region(client, 100 * BLOCK);
	tma_plan *plan = NULL;
	tma_ticket tickets[100];

	fill(src, 1);
	cr_assert_eq(tma_plan_prepare(client, &transposed, &plan), TMA_OK, "%s", tma_last_error(client));
	for (uint64_t i = 0; i < 100; i++)
		cr_assert_eq(tma_submit_run(client, plan, at(dst, i), at(src, 99 - i), NULL, &tickets[i]),
		             TMA_OK, "%s", tma_last_error(client));
	for (size_t i = 0; i < 100; i++) {
		cr_assert_eq(tma_wait(client, tickets[i], NULL), TMA_OK, "%s", tma_last_error(client));
		assert_transposed(dst, i * BLOCK, src, (99 - i) * BLOCK, "run");
	}
	cr_assert_eq(tma_last_result(client)->bytes, 2 * BLOCK);
	cr_assert_eq(tma_plan_run(client, plan, at(dst, 100), at(src, 0), NULL), TMA_OUT_OF_RANGE);
	cr_assert_eq(tma_plan_run(client, plan, at(dst, 0), at(dst, 0), NULL), TMA_OVERLAP);
	src_block.shape[0] = 5;
	cr_assert_lt(tma_plan_prepare(client, &transposed, &(tma_plan *){ NULL }), 0, "shapes do not fit");
	cr_assert_eq(tma_plan_run(client, plan, at(dst, 0), at(src, 0), NULL), TMA_OK);
	cr_assert_eq(tma_plan_release(plan), TMA_OK, "%s", tma_last_error(client));
}

Test(library_order, a_plan_outlives_the_service)
{
	tma_region *src = rig_region(client, BLOCK), *dst = rig_region(client, BLOCK);
	tma_plan *plan = NULL;

	fill(src, 2);
	cr_assert_eq(tma_plan_prepare(client, &transposed, &plan), TMA_OK, "%s", tma_last_error(client));
	process_kill(&service);
	process_start_again(&service, NULL);
	cr_assert_eq(tma_plan_run(client, plan, at(dst, 0), at(src, 0), NULL), TMA_OK, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1);
	assert_transposed(dst, 0, src, 0, "run");
}

Test(library_order, items)
{
	enum { N = 1000, BAD = 700 };
	static struct tma_tensor dsts[N], srcs[N];
	static struct tma_transform transforms[N];
	static struct tma_item items[N];
	tma_region *src = rig_region(client, N * BLOCK), *dst = rig_region(client, N * BLOCK);
	tma_plan *plan = NULL;
	int rc;

	fill(src, 3);
	cr_assert_eq(tma_plan_prepare(client, &transposed, &plan), TMA_OK);
	for (uint64_t i = 0; i < N; i++) {
		items[i] = (struct tma_item){ .plan = plan, .dst = at(dst, i), .src = at(src, N - 1 - i) };
		if (i % 3)
			continue;
		dsts[i] = dst_block;
		srcs[i] = src_block;
		dsts[i].region = dst;
		srcs[i].region = src;
		dsts[i].offset = i * BLOCK;
		srcs[i].offset = (N - 1 - i) * BLOCK;
		transforms[i] = transposed;
		transforms[i].dst = &dsts[i];
		transforms[i].src = &srcs[i];
		items[i] = (struct tma_item){ .transform = &transforms[i] };
	}
	items[BAD].src.offset = N * BLOCK;
	rc = tma_run_items(client, items, N, NULL);
	cr_assert_eq(rc, TMA_OUT_OF_RANGE, "%s: %s", tma_status_name(rc), tma_last_error(client));
	cr_assert(strstr(tma_last_error(client), "items[700]"), "%s", tma_last_error(client));
	for (size_t i = 0; i < N; i++) {
		cr_assert_eq(items[i].status, i == BAD ? TMA_OUT_OF_RANGE : TMA_OK, "%zu", i);
		if (i != BAD)
			assert_transposed(dst, i * BLOCK, src, (N - 1 - i) * BLOCK, "item");
	}
	cr_assert_eq(tma_last_result(client)->bytes, (uint64_t)(N - 1) * 2 * BLOCK);
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

static const int64_t list[] = { 7, -1, 0, 3, 19, 7 };
#define ENTRIES (sizeof list / sizeof list[0])

static void assert_gathered(const tma_region *dst, const tma_region *src, const int64_t *index)
{
	for (size_t i = 0; i < ENTRIES; i++)
		if (index[i] >= 0 && index[i] < 20)
			assert_transposed(dst, i * BLOCK, src, (size_t)index[i] * BLOCK, "gather");
}

Test(library_order, gather_and_scatter)
{
	tma_region *src = rig_region(client, 20 * BLOCK), *dst = rig_region(client, ENTRIES * BLOCK),
		   *table = rig_region(client, 4096);
	struct tma_blocks blocks = {
		.transform = &transposed, .count = ENTRIES, .index_dtype = TMA_INT64, .index = list
	};
	const struct tma_result *result = tma_last_result(client);
	int64_t *entries = rig_data(table);
	int32_t once[] = { 4, 2, -1, 11 };

	fill(src, 4);
	src_block.region = src;
	dst_block.region = dst;
	cr_assert_eq(tma_gather(client, &blocks), TMA_OK, "%s", tma_last_error(client));
	cr_assert(result->moved == ENTRIES - 1 && result->passed == 1 && result->beyond == 0);
	assert_gathered(dst, src, list);

	memcpy(entries, list, sizeof list);
	entries[2] = 20; /* out of range, which is detected when the entry is used */
	fill(dst, 5);
	blocks.index = NULL;
	blocks.index_at.region = table;
	cr_assert_eq(tma_gather(client, &blocks), TMA_OK, "%s", tma_last_error(client));
	cr_assert(result->moved == ENTRIES - 2 && result->passed == 1 && result->beyond == 1);
	assert_gathered(dst, src, entries);
	blocks.index = entries;
	blocks.index_at.region = NULL;
	cr_assert_lt(tma_gather(client, &blocks), 0, "out of range, inline");

	src_block.region = dst;
	dst_block.region = src;
	blocks = (struct tma_blocks){
		.transform = &transposed, .count = 4, .index_dtype = TMA_INT32, .index = once
	};
	cr_assert_eq(tma_scatter(client, &blocks), TMA_OK, "%s", tma_last_error(client));
	for (size_t i = 0; i < 4; i++)
		if (once[i] >= 0)
			assert_transposed(src, (size_t)once[i] * BLOCK, dst, i * BLOCK, "scatter");
}

/* ---- Order ------------------------------------------------------------------------------------------ */

/* Each request is sent before its source is written. Only the words of the timelines tell when the source is
 * written and when it has been copied. */
Test(library_order, back_and_forth_by_points_alone)
{
	enum { ROUNDS = 2000 };
	tma_region *words = rig_region(client, 4096), *src = rig_region(client, BLOCK),
		   *dst = rig_region(client, BLOCK);
	uint64_t *word = rig_data(words);
	uint32_t *in = rig_data(src), *out = rig_data(dst);
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT32, .rank = 1, .shape = { 16 } }, s = d;
	struct tma_order order = { .wait.region = words,
		                   .signal = { .region = words, .offset = 8 },
		                   .completion = TMA_COMPLETION_SIGNAL };
	struct tma_transform copy = { .dst = &d, .src = &s, .order = &order };

	s.region = src;
	for (uint32_t i = 1; i <= ROUNDS; i++) {
		order.wait.value = order.signal.value = i;
		cr_assert_eq(tma_submit(client, &copy, NULL), TMA_OK, "%s", tma_last_error(client));
		for (uint32_t k = 0; k < 16; k++)
			in[k] = i * 31 + k;
		cr_assert_eq(tma_point_signal(&word[0], i), TMA_OK);
		cr_assert_eq(tma_point_wait(&word[1], i, 20000), TMA_OK, "round %u", i);
		for (uint32_t k = 0; k < 16; k++)
			cr_assert_eq(out[k], i * 31 + k, "round %u", i);
	}
	cr_assert_eq(tma_take_error(client), TMA_OK);
	cr_assert_eq(tma_ping(client), TMA_OK);
}

struct waiting {
	tma_region *words, *memory;
	struct tma_tensor dst, src;
	struct tma_order order;
	struct tma_transform copy;
};

/* A copy that waits until the first word is 1, and then sets the second. */
static void waiting_init(struct waiting *w, enum tma_completion completion)
{
	*w = (struct waiting){ .words = rig_region(client, 4096), .memory = rig_region(client, 2 * BLOCK) };
	w->dst =
	    (struct tma_tensor){ .region = w->memory, .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK } };
	w->src = w->dst;
	w->src.offset = BLOCK;
	w->order = (struct tma_order){ .wait = { .region = w->words, .offset = 0, .value = 1 },
		                       .signal = { .region = w->words, .offset = 8, .value = 1 },
		                       .completion = completion };
	w->copy = (struct tma_transform){ .dst = &w->dst, .src = &w->src, .order = &w->order };
	strcpy((char *)rig_data(w->memory) + BLOCK, "moved");
}

Test(library_order, queued)
{
	struct waiting w;
	tma_ticket ticket;

	waiting_init(&w, TMA_COMPLETION_QUEUED);
	cr_assert_eq(tma_submit(client, &w.copy, &ticket), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_OK);
	cr_assert_eq(tma_is_queued(client, ticket), 1);
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_PENDING);
	cr_assert_eq(*(char *)rig_data(w.memory), '\0');
	cr_assert_eq(tma_point_signal(rig_data(w.words), 1), TMA_OK);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert_str_eq(rig_data(w.memory), "moved");
	cr_assert_eq(((uint64_t *)rig_data(w.words))[1], 1);
}

Test(library_order, a_point_that_never_comes)
{
	struct waiting w;

	waiting_init(&w, TMA_COMPLETION_DONE);
	w.order.wait_ms = 20;
	cr_assert_eq(tma_transform(client, &w.copy), TMA_TIMEOUT);
	cr_assert_geq(tma_fd(client), 0, "it is the request's end alone");
	cr_assert_eq(*(char *)rig_data(w.memory), '\0');
	cr_assert_eq(((uint64_t *)rig_data(w.words))[1], 0, "and signals nothing");
	cr_assert_eq(tma_point_signal(rig_data(w.words), 1), TMA_OK);
	cr_assert_eq(tma_transform(client, &w.copy), TMA_OK, "%s", tma_last_error(client));
}

/* If the engine's process is kept from running for longer than the service waits for its answer, the waiting
 * request continues and can be cancelled again. */
static void cancel_waiting(tma_ticket ticket)
{
	int r;

	while ((r = tma_cancel(client, ticket)) == 0)
		cr_assert_eq(tma_poll(client, ticket, NULL), TMA_PENDING, "it did not wait");
	cr_assert_eq(r, 1, "%s", tma_last_error(client));
}

Test(library_order, cancel)
{
	struct waiting w;
	tma_ticket ticket;

	waiting_init(&w, TMA_COMPLETION_DONE);
	cr_assert_eq(tma_submit(client, &w.copy, &ticket), TMA_OK);
	cancel_waiting(ticket);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_CANCELED);
	cr_assert_eq(*(char *)rig_data(w.memory), '\0');
	w.copy.order = NULL;
	cr_assert_eq(tma_submit(client, &w.copy, &ticket), TMA_OK);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_OK, "the next one goes on: %s",
	             tma_last_error(client));
	cr_assert_eq(tma_cancel(client, ticket), TMA_NOT_FOUND);
	cr_assert_str_eq(rig_data(w.memory), "moved");
}

Test(library_order, an_error_without_a_ticket)
{
	struct waiting w;

	waiting_init(&w, TMA_COMPLETION_SIGNAL);
	w.src.offset = 2 * BLOCK;
	cr_assert_eq(tma_submit(client, &w.copy, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_OK);
	cr_assert_eq(tma_take_error(client), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "src"), "%s", tma_last_error(client));
	cr_assert_eq(tma_take_error(client), TMA_OK);
}
