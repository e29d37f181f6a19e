/* SPDX-License-Identifier: Apache-2.0 */
/* Vector clocks, with two optimizations. What all threads of a block learned when they last synchronized is
 * kept once, as the block's base; a thread has separate news only from the first barrier wait after that.
 * Threads that synchronized have the same news until one of them learns more, so they share one view of it.
 *
 * One cluster runs at a time, so there is one order, whose memory is kept from one cluster to the next.
 */
#include "order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_MASK ((UINT32_C(1) << ORDER_CLOCK_BITS) - 1)
#define MAX_ACTORS (UINT32_C(1) << (32 - ORDER_CLOCK_BITS))
#define NO_NEWS    UINT32_MAX

/* Clocks compared at once. */
#define LANES 8
typedef uint32_t clocks __attribute__((vector_size(LANES * sizeof(uint32_t)), aligned(4), may_alias));

/* Two vectors with the clocks of all actors: events seen, and events known to be fenced. */
struct order_view {
	uint32_t *seen;
	uint32_t *fenced;
};

static struct {
	uint32_t blocks;
	uint32_t block_threads;
	uint32_t threads;
	uint32_t actors; /* number of threads plus barriers */
	uint32_t width;  /* length of each vector: most actors, rounded up to LANES */
	uint32_t *memory;
	size_t words;
	uint32_t *clock;
	uint32_t *fenced; /* per thread: its own events before this clock are fenced */
	uint32_t *news;   /* per thread: the number of its view, or NO_NEWS */
	uint32_t *users;  /* per view: number of threads that share it */
	uint32_t *free;   /* views that are not in use */
	uint32_t n_free;
	bool worn;
} order;

/* Returns a view by its position in memory: first the blocks' bases, then threads' news, then each barrier's
 * views of the current phase's arrivals and of the ended phases. */
static struct order_view view_at(uint32_t index)
{
	uint32_t *first = order.memory + (size_t)index * 2 * order.width;

	return (struct order_view){ first, first + order.width };
}

static struct order_view base_of(uint32_t thread)
{
	return view_at(thread / order.block_threads);
}

static struct order_view news_at(uint32_t number)
{
	return view_at(order.blocks + number);
}

static struct order_view arriving_of(uint32_t number)
{
	return view_at(order.blocks + order.threads + 1 + 2 * number);
}

static struct order_view ended_of(uint32_t number)
{
	return view_at(order.blocks + order.threads + 1 + 2 * number + 1);
}

static void clear(struct order_view view)
{
	memset(view.seen, 0, 2 * (size_t)order.width * sizeof(*view.seen));
}

static void copy(struct order_view to, struct order_view from)
{
	memcpy(to.seen, from.seen, 2 * (size_t)order.width * sizeof(*to.seen));
}

static void raise(uint32_t *to, const uint32_t *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += LANES) {
		const clocks a = *(const clocks *)(to + i), b = *(const clocks *)(from + i);
		const clocks is_later = (clocks)(a > b);

		*(clocks *)(to + i) = (a & is_later) | (b & ~is_later);
	}
}

static void join(struct order_view to, struct order_view from)
{
	raise(to.seen, from.seen, order.actors);
	raise(to.fenced, from.fenced, order.actors);
}

bool order_reset(uint32_t blocks, uint32_t block_threads)
{
	uint32_t threads = blocks * block_threads, actors = threads + ORDER_MAX_BARRIERS;
	uint32_t width = (actors + LANES - 1) / LANES * LANES;
	/* One view of news more than threads, because a thread's new view is written before its old one is
	 * released. */
	size_t views = (size_t)blocks + threads + 1 + 2 * ORDER_MAX_BARRIERS;
	size_t words = views * 2 * width + 2 * (size_t)width + 3 * ((size_t)threads + 1);

	if (actors > MAX_ACTORS)
		return false;
	if (words > order.words) {
		uint32_t *memory = realloc(order.memory, words * sizeof(*memory));

		if (!memory)
			return false;
		order.memory = memory;
		order.words = words;
	}
	order.blocks = blocks;
	order.block_threads = block_threads;
	order.threads = order.actors = threads;
	order.width = width;
	order.clock = order.memory + views * 2 * width;
	order.fenced = order.clock + width;
	order.news = order.fenced + width;
	order.users = order.news + threads + 1;
	order.free = order.users + threads + 1;
	order.n_free = 0;
	order.worn = false;
	for (uint32_t i = 0; i < width; i++)
		order.clock[i] = 1;
	memset(order.fenced, 0, width * sizeof(*order.fenced));
	for (uint32_t v = 0; v <= threads; v++) {
		order.users[v] = 0;
		order.free[order.n_free++] = v;
	}
	for (uint32_t t = 0; t < threads; t++)
		order.news[t] = NO_NEWS;
	for (uint32_t b = 0; b < blocks; b++)
		clear(view_at(b));
	return true;
}

void order_free(void)
{
	free(order.memory);
	order.memory = NULL;
	order.words = 0;
}

/* ---- Events ---------------------------------------------------------------------------------------- */

static void tick(uint32_t actor)
{
	if (++order.clock[actor] == CLOCK_MASK)
		order.worn = true;
}

order_stamp order_now(uint32_t actor)
{
	return actor << ORDER_CLOCK_BITS | (order.clock[actor] & CLOCK_MASK);
}

bool order_is_worn(void)
{
	return order.worn;
}

bool order_knows(uint32_t thread, order_stamp stamp)
{
	uint32_t actor = order_actor(stamp), clock = stamp & CLOCK_MASK;

	return actor == thread || base_of(thread).seen[actor] > clock ||
	       (order.news[thread] != NO_NEWS && news_at(order.news[thread]).seen[actor] > clock);
}

bool order_has_fenced(order_stamp stamp)
{
	return order.fenced[order_actor(stamp)] > (stamp & CLOCK_MASK);
}

bool order_knows_fenced(uint32_t thread, order_stamp stamp)
{
	uint32_t actor = order_actor(stamp), clock = stamp & CLOCK_MASK;

	if (actor == thread)
		return order_has_fenced(stamp);
	return base_of(thread).fenced[actor] > clock ||
	       (order.news[thread] != NO_NEWS && news_at(order.news[thread]).fenced[actor] > clock);
}

void order_fence(uint32_t thread)
{
	order.fenced[thread] = order.clock[thread] + 1;
	tick(thread);
}

/* ---- News ------------------------------------------------------------------------------------------ */

/* Adds what the thread did so far to the view; later events are not covered. */
static void tell_own(uint32_t thread, struct order_view to)
{
	to.seen[thread] = order.clock[thread] + 1;
	to.fenced[thread] = order.fenced[thread];
	tick(thread);
}

/* Adds what the thread did and what it knows to the view. */
static void tell(uint32_t thread, struct order_view to)
{
	join(to, base_of(thread));
	if (order.news[thread] != NO_NEWS)
		join(to, news_at(order.news[thread]));
	tell_own(thread, to);
}

/* Returns the number of an empty view. */
static uint32_t news_new(void)
{
	const uint32_t number = order.free[--order.n_free];

	clear(news_at(number));
	return number;
}

static void news_drop(uint32_t thread)
{
	const uint32_t number = order.news[thread];

	order.news[thread] = NO_NEWS;
	if (number != NO_NEWS && --order.users[number] == 0)
		order.free[order.n_free++] = number;
}

static void news_set(uint32_t thread, uint32_t number)
{
	order.users[number]++;
	news_drop(thread);
	order.news[thread] = number;
}

static void hear(uint32_t thread, struct order_view from)
{
	const uint32_t known = order.news[thread];

	if (known == NO_NEWS || order.users[known] > 1) {
		const uint32_t number = news_new();

		if (known != NO_NEWS)
			copy(news_at(number), news_at(known));
		news_set(thread, number);
	}
	join(news_at(order.news[thread]), from);
}

uint32_t order_barrier_new(uint32_t number)
{
	assert(number == order.actors - order.threads && number < ORDER_MAX_BARRIERS);
	clear(arriving_of(number));
	clear(ended_of(number));
	return order.actors++;
}

void order_arrive(uint32_t thread, uint32_t number)
{
	tell(thread, arriving_of(number));
}

void order_phase_end(uint32_t number)
{
	uint32_t actor = order.threads + number;

	join(ended_of(number), arriving_of(number));
	tick(actor);
	ended_of(number).seen[actor] = order.clock[actor];
}

void order_wait(uint32_t thread, uint32_t number)
{
	hear(thread, ended_of(number));
}

/* Merges into all what each of the n threads from first on that are alive did and knows. Neighbouring threads
 * often share a view, which is then merged once. */
static void gather(struct order_view all, uint32_t first, uint32_t n, bool (*alive)(uint32_t thread))
{
	uint32_t joined = NO_NEWS;

	for (uint32_t t = first; t < first + n; t++) {
		if (!alive(t))
			continue;
		if (order.news[t] != NO_NEWS && order.news[t] != joined)
			join(all, news_at(order.news[t]));
		joined = order.news[t];
		tell_own(t, all);
	}
	for (uint32_t t = first; t < first + n; t++)
		if (alive(t))
			news_drop(t);
}

void order_meet_block(uint32_t block, bool (*alive)(uint32_t thread))
{
	gather(view_at(block), block * order.block_threads, order.block_threads, alive);
}

void order_meet_cluster(bool (*alive)(uint32_t thread))
{
	struct order_view all = view_at(0);

	for (uint32_t b = 1; b < order.blocks; b++)
		join(all, view_at(b));
	gather(all, 0, order.threads, alive);
	for (uint32_t b = 1; b < order.blocks; b++)
		copy(view_at(b), all);
}

void order_meet(const uint32_t *threads, uint32_t n)
{
	const uint32_t number = news_new();
	const struct order_view all = news_at(number);
	uint32_t joined = NO_NEWS;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t t = threads[i];

		/* All have the same base. */
		assert(t / order.block_threads == threads[0] / order.block_threads);
		if (order.news[t] != NO_NEWS && order.news[t] != joined)
			join(all, news_at(order.news[t]));
		joined = order.news[t];
		tell_own(t, all);
	}
	for (uint32_t i = 0; i < n; i++)
		news_set(threads[i], number);
}
