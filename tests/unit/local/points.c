/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: what requests wait for, and what they signal. */
#include "memory.h"

#include <pthread.h>
#include <string.h>

enum { N = 64, BYTES = 4 * N };

TestSuite(local_points, .init = memory_open, .fini = memory_close);

/* A word in a region of its own, and what a test moves. */
struct scene {
	uint64_t word, src, dst;
	tma_region *region;
	struct tma_tensor to, from;
};

static struct tma_tensor row(uint64_t address)
{
	return (struct tma_tensor){ .offset = address, .dtype = TMA_UINT32, .rank = 1, .shape = { N } };
}

static void put_word(uint64_t address, uint64_t value)
{
	memory_put(address, &value, sizeof value);
}

static uint64_t get_word(uint64_t address)
{
	uint64_t value;

	memory_get(&value, address, sizeof value);
	return value;
}

static void fill(uint64_t address, uint32_t number)
{
	uint32_t numbers[N];

	for (int i = 0; i < N; i++)
		numbers[i] = number;
	memory_put(address, numbers, sizeof numbers);
}

static bool is_filled(uint64_t address, uint32_t number)
{
	uint32_t numbers[N];
	bool is = true;

	memory_get(numbers, address, sizeof numbers);
	for (int i = 0; i < N; i++)
		is &= numbers[i] == number;
	return is;
}

static struct scene scene_new(void)
{
	struct scene ret = { .word = memory_new(64), .src = memory_new(BYTES), .dst = memory_new(BYTES) };

	ret.region = memory_region(ret.word, 16, 0);
	ret.to = row(ret.dst);
	ret.from = row(ret.src);
	put_word(ret.word, 0);
	put_word(ret.word + 8, 0);
	fill(ret.src, 1);
	return ret;
}

static struct tma_order order_of(const struct scene *scene, uint64_t wait, uint64_t signal)
{
	return (struct tma_order){ .wait = { .region = scene->region, .value = wait },
		                   .signal = { .region = scene->region, .value = signal } };
}

/* Each request waits for the signal of the one before. */
Test(local_points, of_every_request)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 0, 1);
	const struct tma_transform t = { .dst = &s.to, .src = &s.from };
	struct tma_transform ordered = { .dst = &s.to, .src = &s.from, .order = &order };
	const int32_t index = 0;
	const struct tma_blocks blocks = { .transform = &t,
		                           .count = 1,
		                           .index_dtype = TMA_INT32,
		                           .index = &index,
		                           .limit = 1,
		                           .order = &order };
	const struct tma_slice to = { .tensor = s.to }, from = { .tensor = s.from };
	const struct tma_reshard reshard = {
		.destinations = &to, .n_destinations = 1, .sources = &from, .n_sources = 1, .order = &order
	};
	struct tma_item item = { .transform = &t };
	tma_ticket ticket;
	tma_plan *plan;

	cr_assert_eq(tma_transform(client, &ordered), 0, "%s", tma_last_error(client));
	cr_assert(is_filled(s.dst, 1));
	cr_assert_eq(get_word(s.word), 1);
	cr_assert_eq(tma_plan_prepare(client, &t, &plan), 0);
	order = order_of(&s, 1, 2);
	cr_assert_eq(tma_plan_run(client, plan, (struct tma_place){ .offset = s.dst },
	                          (struct tma_place){ .offset = s.src }, &order),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 2);
	order = order_of(&s, 2, 3);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 3);
	order = order_of(&s, 3, 4);
	cr_assert_eq(tma_reshard(client, &reshard), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 4);
	order = order_of(&s, 4, 5);
	cr_assert_eq(tma_run_items(client, &item, 1, &order), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 5);
	order = order_of(&s, 5, 6);
	cr_assert_eq(tma_submit(client, &ordered, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 6);
	order = order_of(&s, 6, 7);
	order.completion = TMA_COMPLETION_SIGNAL;
	cr_assert_eq(tma_submit(client, &ordered, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_take_error(client), 0);
	cr_assert_eq(get_word(s.word), 7);
}

static void *set_off(void *arg)
{
	const struct scene *scene = arg;

	memory_enter();
	fill(scene->src, 2);
	memory_signal(scene->word, 1);
	return NULL;
}

/* What the other thread wrote before it set the word is what is moved. */
Test(local_points, of_another_thread)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);
	pthread_t other;

	cr_assert_eq(pthread_create(&other, NULL, set_off, &s), 0);
	cr_assert_eq(
	    tma_transform(client, &(struct tma_transform){ .dst = &s.to, .src = &s.from, .order = &order }),
	    0, "%s", tma_last_error(client));
	cr_assert(is_filled(s.dst, 2));
	cr_assert_eq(get_word(s.word), 2);
	cr_assert_eq(pthread_join(other, NULL), 0);
}

/* A request whose point does not come in time moves nothing and signals nothing. */
Test(local_points, that_do_not_come)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);
	struct tma_transform t = { .dst = &s.to, .src = &s.from, .order = &order };

	order.wait_ms = 1;
	cr_assert_eq(tma_transform(client, &t), TMA_TIMEOUT);
	cr_assert_str_eq(tma_last_error(client),
	                 "wait: the word at byte 0 of the region had not reached 1 after 1 ms");
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	cr_assert_eq(get_word(s.word), 0);
	put_word(s.word, 5); /* beyond the value */
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 2);
}

/* Requests that fail, and items of which one does, signal nothing. */
Test(local_points, of_what_fails)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 0, 9);
	const struct tma_transform good = { .dst = &s.to, .src = &s.from };
	const struct tma_transform bad = { .dst = &s.to, .src = &s.to };
	const struct tma_transform ordered = { .dst = &s.to, .src = &s.to, .order = &order };
	struct tma_item items[2] = { { .transform = &good }, { .transform = &bad } };

	cr_assert_eq(tma_transform(client, &ordered), TMA_OVERLAP);
	cr_assert_eq(get_word(s.word), 0);
	cr_assert_eq(tma_run_items(client, items, 2, &order), TMA_OVERLAP);
	cr_assert(items[0].status == 0 && items[1].status == TMA_OVERLAP);
	cr_assert(is_filled(s.dst, 1));
	cr_assert_eq(get_word(s.word), 0);
}

Test(local_points, are_checked)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 0, 1);
	struct tma_transform t = { .dst = &s.to, .src = &s.from, .order = &order };

	order.signal.offset = 12;
	cr_assert_eq(tma_transform(client, &t), TMA_OUT_OF_RANGE);
	order.signal.offset = 4;
	cr_assert_eq(tma_transform(client, &t), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client),
	                 "signal.offset: byte 4 of region 1 is not aligned to 8 bytes");
	order.signal.offset = 8;
	order.wait.region = memory_region(s.word, 8, TMA_REGION_READ_ONLY);
	cr_assert_eq(tma_transform(client, &t), TMA_PERMISSION);
	cr_assert_not_null(strstr(tma_last_error(client), "wait.region: "), "%s", tma_last_error(client));
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	order.wait.region = s.region;
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert(get_word(s.word) == 0 && get_word(s.word + 8) == 1);
}
