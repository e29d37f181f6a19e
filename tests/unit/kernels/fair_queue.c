/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which stream is served next, without threads and with made-up times. */
#include "kernels/queue/fair_queue.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define MOST_STREAMS 8

struct party {
	struct engine_owner owner;
	struct fair_stream stream[MOST_STREAMS];
};

static struct fair_queue fair_queue;

static void party_init(struct party *party, int streams)
{
	engine_owner_init(&party->owner);
	for (int i = 0; i < streams; i++) {
		party->stream[i] = (struct fair_stream){ .owner = &party->owner };
		fair_queue_add(&fair_queue, &party->stream[i]);
	}
}

/* Serves one time slice and charges it to the owner of its stream. */
static struct fair_stream *slice(uint64_t ns)
{
	struct fair_stream *stream = fair_queue_next(&fair_queue);
	fair_queue_charge(&fair_queue, stream->owner, ns);
	return stream;
}

TestSuite(fair_queue);

Test(fair_queue, empty)
{
	static struct party a;
	fair_queue_init(&fair_queue);
	cr_assert_null(fair_queue_next(&fair_queue));
	party_init(&a, 1);
	cr_assert_eq(fair_queue_next(&fair_queue), &a.stream[0]);
	fair_queue_remove(&fair_queue, &a.stream[0]);
	fair_queue_remove(&fair_queue, &a.stream[0]);
	cr_assert_null(fair_queue_next(&fair_queue));
	fair_queue_charge(&fair_queue, &a.owner, 5); /* The stream's last claim ends after it was removed. */
	cr_assert_null(fair_queue_next(&fair_queue));
}

Test(fair_queue, streams_of_one_owner_take_turns)
{
	static struct party a;
	fair_queue_init(&fair_queue);
	party_init(&a, 3);
	for (int i = 0; i < 6; i++)
		cr_assert_eq(slice(10), &a.stream[i % 3], "slice %d", i);
	fair_queue_remove(&fair_queue, &a.stream[1]);
	cr_assert_eq(slice(10), &a.stream[0]);
	cr_assert_eq(slice(10), &a.stream[2]);
	fair_queue_add(&fair_queue, &a.stream[1]);
	cr_assert_eq(slice(10), &a.stream[0]);
	cr_assert_eq(slice(10), &a.stream[2]);
	cr_assert_eq(slice(10), &a.stream[1]);
}

/* Several threads claim streams before any claim has ended. */
Test(fair_queue, threads_at_once_go_to_different_owners)
{
	static struct party a, b, c;
	fair_queue_init(&fair_queue);
	party_init(&a, 8);
	party_init(&b, 1);
	party_init(&c, 2);
	cr_assert_eq(fair_queue_next(&fair_queue)->owner, &a.owner);
	cr_assert_eq(fair_queue_next(&fair_queue)->owner, &b.owner);
	cr_assert_eq(fair_queue_next(&fair_queue)->owner, &c.owner);
	cr_assert_eq(fair_queue_next(&fair_queue)->owner, &a.owner);
}

static bool is_not(struct fair_stream *stream, void *arg)
{
	return stream != arg && stream->owner != arg;
}

/* A stream that cannot run is passed over and keeps its place. */
Test(fair_queue, passes_those_that_cannot_run)
{
	static struct party a, b;
	fair_queue_init(&fair_queue);
	cr_assert_null(fair_queue_next_if(&fair_queue, is_not, NULL));
	party_init(&a, 2);
	party_init(&b, 1);
	cr_assert_eq(fair_queue_next_if(&fair_queue, is_not, &a.stream[0]), &a.stream[1]);
	cr_assert_eq(fair_queue_next_if(&fair_queue, is_not, &a.owner), &b.stream[0]);
	cr_assert_eq(fair_queue_next(&fair_queue), &a.stream[0]);
	fair_queue_charge(&fair_queue, &a.owner, 100);
	cr_assert_eq(fair_queue_next_if(&fair_queue, is_not, &b.owner), &a.stream[1]);
	cr_assert_eq(fair_queue_next(&fair_queue), &b.stream[0]);
	fair_queue_remove(&fair_queue, &b.stream[0]);
	cr_assert_null(fair_queue_next_if(&fair_queue, is_not, &a.owner));
}

struct share_row {
	char name[32];
	int streams[2];
	uint64_t ns[2]; /* of a claim */
};

/* Returns what ns are charged as to an owner with this many streams. */
static uint64_t cost(uint64_t ns, int streams)
{
	return streams > 1 ? ns + ns / 4 : ns;
}

ParameterizedTestParameters(fair_queue, owners_have_equal_time)
{
	static struct share_row rows[] = {
		{ .name = "one stream each", .streams = { 1, 1 }, .ns = { 10, 10 } },
		{ .name = "many streams", .streams = { 8, 1 }, .ns = { 10, 10 } },
		{ .name = "dear slices", .streams = { 1, 1 }, .ns = { 1000, 10 } },
		{ .name = "many streams, dear slices", .streams = { 8, 1 }, .ns = { 777, 10 } },
		{ .name = "cheap slices", .streams = { 8, 2 }, .ns = { 1, 500 } },
	};
	return cr_make_param_array(struct share_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct share_row *row, fair_queue, owners_have_equal_time)
{
	static struct party party[2];
	uint64_t had[2] = { 0 };
	fair_queue_init(&fair_queue);
	party_init(&party[0], row->streams[0]);
	party_init(&party[1], row->streams[1]);
	for (int i = 0; i < 10000; i++) {
		int p = fair_queue_next(&fair_queue)->owner == &party[1].owner;
		fair_queue_charge(&fair_queue, &party[p].owner, row->ns[p]);
		had[p] += cost(row->ns[p], row->streams[p]);
		uint64_t more = had[0] > had[1] ? had[0] - had[1] : had[1] - had[0];
		uint64_t dearest = row->ns[0] > row->ns[1] ? row->ns[0] : row->ns[1];
		cr_assert_leq(more, cost(dearest, 2), "%s: slice %d: %lu and %lu ns", row->name, i,
		              (unsigned long)had[0], (unsigned long)had[1]);
	}
}

/* An owner that returns does not wait for the others to catch up, nor they for it. */
Test(fair_queue, time_away_is_not_saved)
{
	static struct party a, b;
	fair_queue_init(&fair_queue);
	party_init(&b, 1);
	fair_queue_remove(&fair_queue, &b.stream[0]);
	party_init(&a, 8);
	for (int i = 0; i < 1000; i++)
		slice(10);
	fair_queue_add(&fair_queue, &b.stream[0]);
	int slices[2] = { 0 };
	for (int i = 0; i < 100; i++)
		slices[slice(10)->owner == &b.owner]++;
	cr_assert_geq(slices[0], 45, "%d and %d slices", slices[0], slices[1]);
	cr_assert_geq(slices[1], 53, "%d and %d slices", slices[0], slices[1]);
}

/* An owner gains nothing by leaving after each claim. */
Test(fair_queue, coming_back_wins_nothing)
{
	static struct party a, b;
	fair_queue_init(&fair_queue);
	party_init(&a, 1);
	party_init(&b, 1);
	int slices[2] = { 0 };
	for (int i = 0; i < 1000; i++) {
		struct fair_stream *stream = fair_queue_next(&fair_queue);
		bool leaves = stream == &a.stream[0];
		slices[!leaves]++;
		if (leaves)
			fair_queue_remove(&fair_queue, stream);
		fair_queue_charge(&fair_queue, stream->owner, 10);
		if (leaves)
			fair_queue_add(&fair_queue, stream);
	}
	cr_assert_leq(slices[0], 501, "%d and %d slices", slices[0], slices[1]);
	cr_assert_geq(slices[0], 499, "%d and %d slices", slices[0], slices[1]);
}

/* ---- Priorities --------------------------------------------------------------------------------------- */

static void add_as(struct fair_stream *stream, enum job_priority priority)
{
	fair_queue_remove(&fair_queue, stream);
	stream->priority = priority;
	fair_queue_add(&fair_queue, stream);
}

Test(fair_queue, urgent_streams_of_an_owner_come_first_and_background_ones_last)
{
	static struct party a;
	fair_queue_init(&fair_queue);
	party_init(&a, 5);
	add_as(&a.stream[0], JOB_PRIORITY_BACKGROUND);
	add_as(&a.stream[2], JOB_PRIORITY_URGENT);
	add_as(&a.stream[4], JOB_PRIORITY_URGENT);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(slice(10), &a.stream[i % 2 ? 4 : 2], "slice %d", i);
	fair_queue_remove(&fair_queue, &a.stream[2]);
	fair_queue_remove(&fair_queue, &a.stream[4]);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(slice(10), &a.stream[i % 2 ? 3 : 1], "slice %d", i);
	fair_queue_remove(&fair_queue, &a.stream[1]);
	fair_queue_remove(&fair_queue, &a.stream[3]);
	cr_assert_eq(slice(10), &a.stream[0]);
}

Test(fair_queue, urgent_streams_take_nothing_from_another_owner)
{
	static struct party a, b;
	int slices = 0;
	fair_queue_init(&fair_queue);
	party_init(&a, 1);
	party_init(&b, 1);
	add_as(&a.stream[0], JOB_PRIORITY_URGENT);
	for (int i = 0; i < 100; i++)
		slices += slice(10) == &a.stream[0];
	cr_assert_eq(slices, 50);
}

Test(fair_queue, background_streams_run_while_nobody_else_waits_and_save_nothing_up)
{
	static struct party a, b;
	int slices = 0;
	fair_queue_init(&fair_queue);
	party_init(&a, 2);
	party_init(&b, 1);
	fair_queue_remove(&fair_queue, &a.stream[1]);
	add_as(&a.stream[0], JOB_PRIORITY_BACKGROUND);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(slice(10), &b.stream[0], "slice %d", i);
	fair_queue_add(&fair_queue, &a.stream[1]);
	for (int i = 0; i < 100; i++)
		slices += slice(10) == &a.stream[1];
	/* The owner with two streams pays a surcharge. */
	cr_assert(slices > 35 && slices <= 51, "%d of 100", slices);
	fair_queue_remove(&fair_queue, &a.stream[1]);
	fair_queue_remove(&fair_queue, &b.stream[0]);
	cr_assert_eq(slice(10), &a.stream[0]);
}

static bool can_run_background(struct fair_stream *stream, void *arg)
{
	(void)arg;
	return stream->priority == JOB_PRIORITY_BACKGROUND;
}

Test(fair_queue, background_streams_run_where_no_other_can)
{
	static struct party a, b;
	fair_queue_init(&fair_queue);
	party_init(&a, 1);
	party_init(&b, 1);
	add_as(&b.stream[0], JOB_PRIORITY_BACKGROUND);
	cr_assert_eq(fair_queue_next_if(&fair_queue, can_run_background, NULL), &b.stream[0]);
	fair_queue_remove(&fair_queue, &b.stream[0]);
	cr_assert_null(fair_queue_next_if(&fair_queue, can_run_background, NULL));
}
