/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of a plan of 4 KiB: pipelined ones compared with pings, and single ones by the socket compared with a
 * submission ring. */
#include <stdlib.h>
#include <string.h>

#include "moves.h"

#define BYTES       4096
#define PLACES      64 /* places on either side that runs use in turn */
#define DEPTH       64 /* entries of the ring, and pipelined requests unless stated otherwise */
#define DEEPEST     512
#define DEEP        65536 /* requests of a turn; a multiple of DEEPEST, as QUICK is */
#define SINGLE      4000
#define QUICK       512
#define SPIN_US     200 /* as the service spins */
#define OWN_SPIN_US 1000

struct work {
	tma_client *client;
	tma_region *dst, *src;
	tma_plan *plan;
	tma_ring *ring;
	size_t deep, single; /* requests of a turn */
	size_t depth;        /* number of pipelined requests under way */
	double *us;          /* times of the single requests of a turn */
};

static void work_init(struct work *work, const struct moves *moves)
{
	const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { BYTES } };
	const struct tma_transform copy = { .dst = &tensor, .src = &tensor };

	*work = (struct work){ .client = moves->client,
		               .deep = moves->quick ? QUICK : DEEP,
		               .single = moves->quick ? QUICK : SINGLE,
		               .depth = DEPTH };
	work->us = calloc(work->single, sizeof(*work->us));
	if (!work->us)
		moves_fatal("no memory");
	work->dst = moves_region(moves, (size_t)PLACES * BYTES, false);
	work->src = moves_region(moves, (size_t)PLACES * BYTES, true);
	moves_must(work->client, tma_plan_prepare(work->client, &copy, &work->plan));
}

static void work_deinit(struct work *work)
{
	moves_must(work->client, tma_plan_release(work->plan));
	moves_must(work->client, tma_region_release(work->dst));
	moves_must(work->client, tma_region_release(work->src));
	free(work->us);
}

static struct tma_place place(tma_region *region, size_t i)
{
	return (struct tma_place){ .region = region, .offset = i % PLACES * BYTES };
}

/* ---- What is timed ---------------------------------------------------------------------------------- */

static void poison(const struct work *work)
{
	memset(tma_region_data(work->dst), MOVES_POISON, tma_region_size(work->dst));
}

static void must_be_right(const struct work *work)
{
	if (memcmp(tma_region_data(work->dst), tma_region_data(work->src), tma_region_size(work->dst)) != 0)
		moves_fatal("wrong bytes");
}

typedef void submit_one(struct work *work, size_t i, tma_ticket *ret);

static void submit_ping(struct work *work, size_t i, tma_ticket *ret)
{
	(void)i;
	moves_must(work->client, tma_submit_ping(work->client, ret));
}

static void submit_run(struct work *work, size_t i, tma_ticket *ret)
{
	moves_must(work->client, tma_submit_run(work->client, work->plan, place(work->dst, i),
	                                        place(work->src, i), NULL, ret));
}

/* Returns the requests per microsecond with so many under way at once. */
static double pipelined(struct work *work, submit_one *submit)
{
	tma_ticket tickets[DEEPEST];
	double start = moves_now_us(), us;

	tma_set_batching(work->client, true);
	for (size_t i = 0; i < work->deep; i += work->depth) {
		for (size_t j = 0; j < work->depth; j++)
			submit(work, i + j, &tickets[j]);
		for (size_t j = 0; j < work->depth; j++)
			moves_must(work->client, tma_wait(work->client, tickets[j], NULL));
	}
	us = moves_now_us() - start;
	tma_set_batching(work->client, false);
	return (double)work->deep / us;
}

static double pipelined_pings(struct work *work)
{
	return pipelined(work, submit_ping);
}

static double pipelined_runs(struct work *work)
{
	double rate;

	poison(work);
	rate = pipelined(work, submit_run);
	must_be_right(work);
	return rate;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void run_by_socket(struct work *work, size_t i)
{
	moves_must(work->client,
	           tma_plan_run(work->client, work->plan, place(work->dst, i), place(work->src, i), NULL));
}

static void ring_push(struct work *work, size_t i)
{
	moves_must(work->client,
	           tma_ring_push(work->ring, work->plan, place(work->dst, i), place(work->src, i), i));
}

static void must_have_ended(const struct tma_ring_end *end, size_t i)
{
	if (end->status != 0 || end->tag != i || end->bytes != 2 * BYTES)
		moves_fatal("a ring's run did not end as it should");
}

static void ring_single(struct work *work, size_t i, uint32_t spin_us)
{
	struct tma_ring_end end;

	ring_push(work, i);
	moves_must(work->client, tma_ring_wait(work->ring, spin_us, &end));
	must_have_ended(&end, i);
}

static void run_by_ring(struct work *work, size_t i)
{
	ring_single(work, i, OWN_SPIN_US);
}

static void run_by_ring_asleep(struct work *work, size_t i)
{
	ring_single(work, i, 0);
}

/* Returns the median time of requests sent one after the other, in microseconds. */
static double single(struct work *work, void (*run)(struct work *work, size_t i))
{
	poison(work);
	for (size_t i = 0; i < work->single; i++) {
		double start = moves_now_us();

		run(work, i);
		work->us[i] = moves_now_us() - start;
	}
	must_be_right(work);
	qsort(work->us, work->single, sizeof(*work->us), by_value);
	return work->us[work->single / 2];
}

static double single_by_socket(struct work *work)
{
	return single(work, run_by_socket);
}

static void ring_open(struct work *work, uint32_t spin_us)
{
	moves_must(work->client, tma_ring_open(work->client, DEPTH, spin_us, &work->ring));
}

static void ring_close(struct work *work)
{
	moves_must(work->client, tma_ring_close(work->ring));
}

static double single_by_ring(struct work *work)
{
	double us;

	ring_open(work, SPIN_US);
	us = single(work, run_by_ring);
	ring_close(work);
	return us;
}

static double single_by_ring_asleep(struct work *work)
{
	double us;

	ring_open(work, 0);
	us = single(work, run_by_ring_asleep);
	ring_close(work);
	return us;
}

static double deep_by_ring(struct work *work)
{
	struct tma_ring_end end;
	size_t pushed = 0, ended = 0;
	double start;

	poison(work);
	ring_open(work, SPIN_US);
	start = moves_now_us();
	while (ended < work->deep) {
		while (pushed < work->deep && pushed - ended < DEPTH)
			ring_push(work, pushed++);
		moves_must(work->client, tma_ring_wait(work->ring, OWN_SPIN_US, &end));
		must_have_ended(&end, ended++);
		while (tma_ring_poll(work->ring, &end) == 0)
			must_have_ended(&end, ended++);
	}
	start = moves_now_us() - start;
	ring_close(work);
	must_be_right(work);
	return (double)work->deep / start;
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

typedef double turn(struct work *work);

/* Each side first has a turn that does not count. */
static void compare(struct work *work, struct moves_row row, turn *ours, turn *base)
{
	base(work);
	ours(work);
	for (int run = 0; run < MOVES_RUNS; run++) {
		row.base[run] = base(work);
		row.ours[run] = ours(work);
	}
	moves_print(&row);
}

void moves_rates(const struct moves *moves)
{
	struct work work;

	work_init(&work, moves);
	compare(&work,
	        (struct moves_row){
		    .what = "plan_run, 64 deep", .against = "ping, 64 deep", .unit = "M/s", .bar = 0.5 },
	        pipelined_runs, pipelined_pings);
	work.depth = DEEPEST;
	compare(
	    &work,
	    (struct moves_row){ .what = "plan_run, 512 deep", .against = "ping, 512 deep", .unit = "M/s" },
	    pipelined_runs, pipelined_pings);
	work_deinit(&work);
}

void moves_ring(const struct moves *moves)
{
	struct work work;

	work_init(&work, moves);
	compare(&work,
	        (struct moves_row){ .what = "ring, spinning, one at a time",
	                            .against = "plan_run, one at a time",
	                            .unit = "us",
	                            .bar = 1.0 / 3,
	                            .at_most = true },
	        single_by_ring, single_by_socket);
	compare(&work,
	        (struct moves_row){ .what = "ring, not spinning, one at a time",
	                            .against = "plan_run, one at a time",
	                            .unit = "us",
	                            .at_most = true },
	        single_by_ring_asleep, single_by_socket);
	compare(&work,
	        (struct moves_row){
		    .what = "ring, spinning, 64 deep", .against = "plan_run, 64 deep", .unit = "M/s" },
	        deep_by_ring, pipelined_runs);
	work_deinit(&work);
}
