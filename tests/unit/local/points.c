/* SPDX-License-Identifier: Apache-2.0 */
/* Tests timelines: what requests wait for, and what they signal. */
#include "memory.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

enum { N = 64, BYTES = 4 * N };

TestSuite(local_points, .init = memory_open, .fini = memory_close);

/* A word in a region of its own, and the tensors that a test moves. */
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

/* The bytes that are moved include what the other thread wrote before it set the word. */
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

/* A request whose point is not reached in time moves nothing and signals nothing. */
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
	put_word(s.word, 5); /* larger than the value that is waited for */
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert_eq(get_word(s.word), 2);
}

/* Requests that fail, and lists of items of which one fails, signal nothing. */
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

/* ---- Late requests ------------------------------------------------------------------------------------ */

static bool is_readable(void)
{
	return poll(&(struct pollfd){ .fd = tma_fd(client), .events = POLLIN }, 1, 0) == 1;
}

/* Submits a copy that waits for the word to be 1. */
static tma_ticket submit(const struct scene *s, struct tma_order *order)
{
	const struct tma_transform t = { .dst = &s->to, .src = &s->from, .order = order };
	tma_ticket ret;

	cr_assert_eq(tma_submit(client, &t, &ret), 0, "%s", tma_last_error(client));
	return ret;
}

/* Requests that move nothing are answered while others wait, and later moves wait, too. */
Test(local_points, hold_no_call_up)
{
	struct scene s = scene_new();
	const uint64_t last = memory_new(BYTES);
	const struct tma_tensor further = row(last);
	struct tma_order order = order_of(&s, 1, 2);
	const struct tma_transform next = { .dst = &further, .src = &s.to };
	struct tma_completed completed;
	tma_document *info;
	tma_ticket first, second;

	order.completion = TMA_COMPLETION_QUEUED;
	order.user = &s;
	first = submit(&s, &order);
	cr_assert_eq(tma_submit(client, &next, &second), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_is_queued(client, first), 1);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_info(client, &info), 0);
	tma_document_free(info);
	cr_assert_eq(tma_poll(client, first, NULL), TMA_PENDING);
	cr_assert_eq(tma_next(client, 20, &completed), TMA_PENDING);
	cr_assert_not(is_readable());
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	cr_assert(is_filled(last, 0xeeeeeeee));
	memory_signal(s.word, 1);
	while (!is_readable())
		continue;
	cr_assert_eq(tma_wait(client, second, NULL), 0, "%s", tma_last_error(client));
	cr_assert(is_filled(last, 1));
	cr_assert_eq(get_word(s.word), 2);
	cr_assert_eq(tma_dispatch(client), 2);
	cr_assert_not(is_readable());
	cr_assert_eq(tma_next(client, 0, &completed), 0);
	cr_assert(completed.ticket == first && completed.user == &s && completed.result.bytes == 2 * BYTES);
	cr_assert_eq(tma_dispatch(client), 0);
}

static int count_down(void *arg)
{
	int *left = arg;

	return --*left <= 0;
}

/* A call that stops waiting takes its request back, and nothing else. */
Test(local_points, waits_that_end)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);
	const struct tma_transform t = { .dst = &s.to, .src = &s.from, .order = &order };
	const int connection = tma_fd(client);
	int left = 3;
	tma_ticket ticket = submit(&s, &order);

	tma_set_interrupt(client, count_down, &left);
	cr_assert_eq(tma_transform(client, &t), TMA_NO_REPLY);
	cr_assert_str_eq(tma_last_error(client),
	                 "transform was interrupted by a signal before it started; it is canceled");
	cr_assert_leq(left, 0);
	tma_set_interrupt(client, NULL, NULL);
	tma_set_timeout(client, 20);
	cr_assert_eq(tma_transform(client, &t), TMA_NO_REPLY);
	cr_assert_str_eq(tma_last_error(client), "transform had not started after 20 ms; it is canceled");
	cr_assert_not(is_readable());
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_NO_REPLY);
	tma_set_timeout(client, -1);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_NOT_FOUND);
	cr_assert_eq(tma_fd(client), connection);
	memory_signal(s.word, 1);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	cr_assert_eq(get_word(s.word), 1);
	cr_assert_eq(tma_transform(client, &t), 0, "%s", tma_last_error(client));
	cr_assert(is_filled(s.dst, 1));
}

/* The deadline passes while one request waits for its point and another one waits behind it. */
Test(local_points, a_deadline_to_begin)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2), behind = order_of(&s, 0, 3);
	tma_ticket first, second;

	order.deadline_ms = 20;
	behind.deadline_ms = 10;
	first = submit(&s, &order);
	second = submit(&s, &behind);
	cr_assert_eq(tma_wait(client, first, NULL), TMA_TIMEOUT);
	cr_assert_str_eq(tma_last_error(client),
	                 "deadline_ms: the request had not begun 20 ms after it came");
	cr_assert_eq(tma_wait(client, second, NULL), TMA_TIMEOUT);
	cr_assert_str_eq(tma_last_error(client),
	                 "deadline_ms: the request had not begun 10 ms after it came");
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	cr_assert_eq(get_word(s.word), 0);
	behind.deadline_ms = UINT32_MAX;
	cr_assert_eq(tma_wait(client, submit(&s, &behind), NULL), 0, "%s", tma_last_error(client));
	cr_assert(is_filled(s.dst, 1));
	cr_assert_eq(get_word(s.word), 3);
}

/* The request behind a cancelled one goes on. */
Test(local_points, of_what_is_canceled)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2), none = order_of(&s, 0, 3);
	tma_ticket first = submit(&s, &order), second = submit(&s, &order), third = submit(&s, &none);

	cr_assert_eq(tma_cancel(client, second), 1, "%s", tma_last_error(client));
	cr_assert_eq(tma_cancel(client, first), 1, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, first, NULL), TMA_CANCELED);
	cr_assert_str_eq(tma_last_error(client), "the request was canceled before it started");
	cr_assert_eq(tma_wait(client, third, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, second, NULL), TMA_CANCELED);
	cr_assert_eq(get_word(s.word), 3);
	cr_assert(is_filled(s.dst, 1));
}

/* Errors that can be found without waiting are reported at once, and a point that is not reached in time
 * later. */
Test(local_points, of_errors)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);
	struct tma_transform t = { .dst = &s.to, .src = &s.to, .order = &order };
	tma_ticket ticket, last;

	cr_assert_eq(tma_submit(client, &t, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_OVERLAP);
	order.completion = TMA_COMPLETION_SIGNAL;
	cr_assert_eq(tma_submit(client, &t, NULL), 0);
	cr_assert_eq(tma_take_error(client), TMA_OVERLAP);
	t.src = &s.from;
	order.wait_ms = 20;
	cr_assert_eq(tma_submit(client, &t, NULL), 0);
	order.completion = TMA_COMPLETION_DONE;
	last = submit(&s, &order);
	cr_assert_eq(tma_wait(client, last, NULL), TMA_TIMEOUT);
	cr_assert_eq(tma_take_error(client), TMA_TIMEOUT);
	cr_assert_eq(get_word(s.word), 0);
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
}

/* Objects that are released live as long as waiting requests name them, and no release blocks. */
Test(local_points, of_objects_that_are_released)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);
	tma_region *to = memory_region(s.dst, BYTES, 0), *from = memory_region(s.src, BYTES, 0);
	const struct tma_transform t = { .dst = &s.to, .src = &s.from };
	const struct tma_place dst = { .region = to }, src = { .region = from };
	tma_table *table;
	tma_plan *plan;
	tma_ticket first, second;
	const int32_t index = 0;

	cr_assert_eq(tma_plan_prepare(client, &t, &plan), 0);
	cr_assert_eq(tma_table_prepare(client, &src, 1, &table), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_submit_run(client, plan, dst, src, &order, &first), 0, "%s", tma_last_error(client));
	s.from.offset = 0;
	cr_assert_eq(tma_submit_gather(client,
	                               &(struct tma_blocks){ .transform = &t,
	                                                     .count = 1,
	                                                     .index_dtype = TMA_INT32,
	                                                     .index = &index,
	                                                     .limit = 1,
	                                                     .src_table = table },
	                               &second),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(tma_plan_release(plan), 0);
	cr_assert_eq(tma_table_release(table), 0);
	cr_assert_eq(tma_region_release(from), 0);
	cr_assert_eq(tma_region_release(to), 0);
	cr_assert_eq(tma_region_release(s.region), 0);
	memory_signal(s.word, 1);
	cr_assert_eq(tma_wait(client, first, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, second, NULL), 0, "%s", tma_last_error(client));
	/* The second request may already have run while the test waited for the first. */
	cr_assert(is_filled(s.dst, 1));
	cr_assert_eq(get_word(s.word), 2);
}

/* Freeing a client drops requests that have not started. */
Test(local_points, of_a_client_that_is_freed)
{
	struct scene s = scene_new();
	struct tma_order order = order_of(&s, 1, 2);

	submit(&s, &order);
	tma_free(client);
	memory_signal(s.word, 1);
	cr_assert(is_filled(s.dst, 0xeeeeeeee));
	cr_assert_eq(get_word(s.word), 1);
	client = NULL;
}

/* Requests of several clients copy what earlier ones, of any client, have copied; only points determine the
 * order. */
Test(local_points, of_requests_that_need_each_other)
{
	enum { CLIENTS = 3, REQUESTS = 150 };
	uint64_t state = 7;
	const uint64_t words = memory_new(8 * (REQUESTS + 1)), rows = memory_new(BYTES * (REQUESTS + 1));
	tma_client *clients[CLIENTS], *first = client;
	tma_region *regions[CLIENTS];
	tma_ticket tickets[REQUESTS + 1];
	int by[REQUESTS + 1];

	for (int i = 0; i <= REQUESTS; i++)
		put_word(words + 8 * (uint64_t)i, 0);
	fill(rows, 1);
	for (int c = 0; c < CLIENTS; c++) {
		clients[c] = tma_new();
		cr_assert_eq(tma_connect(clients[c], "local:"), 0, "%s", tma_last_error(clients[c]));
		client = clients[c];
		regions[c] = memory_region(words, 8 * (REQUESTS + 1), 0);
	}
	for (int i = 1; i <= REQUESTS; i++) {
		const uint64_t from = (uint64_t)draw(&state, 0, i - 1);
		const int c = by[i] = (int)draw(&state, 0, CLIENTS - 1);
		const struct tma_tensor dst = row(rows + BYTES * (uint64_t)i), src = row(rows + BYTES * from);
		const struct tma_order order = {
			.wait = { .region = regions[c], .offset = 8 * from, .value = 1 },
			.signal = { .region = regions[c], .offset = 8 * (uint64_t)i, .value = 1 },
		};

		cr_assert_eq(tma_submit(clients[c],
		                        &(struct tma_transform){ .dst = &dst, .src = &src, .order = &order },
		                        &tickets[i]),
		             0, "%s", tma_last_error(clients[c]));
	}
	cr_assert(is_filled(rows + BYTES, 0xeeeeeeee));
	memory_signal(words, 1);
	for (int i = 1; i <= REQUESTS; i++) {
		cr_assert_eq(tma_wait(clients[by[i]], tickets[i], NULL), 0, "%d: %s", i,
		             tma_last_error(clients[by[i]]));
		cr_assert(is_filled(rows + BYTES * (uint64_t)i, 1), "%d", i);
	}
	for (int c = 0; c < CLIENTS; c++)
		tma_free(clients[c]);
	client = first;
}
