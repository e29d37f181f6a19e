/* SPDX-License-Identifier: Apache-2.0 */
/* Vector clocks, with a shortcut: what all threads of a block heard at their last meeting is kept once, a
 * block's base; a thread has a view of its own only from the first barrier it passed since. One cluster runs
 * at a time, so there is one order; its memory is kept from one to the next. */
#include "order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CLOCK_MASK ((UINT32_C(1) << ORDER_CLOCK_BITS) - 1)
#define MAX_ACTORS (UINT32_C(1) << (32 - ORDER_CLOCK_BITS))

/* Clocks of all actors, twice: seen, and fenced. */
struct order_view {
	uint32_t *seen;
	uint32_t *fenced;
};

static struct {
	uint32_t blocks;
	uint32_t block_threads;
	uint32_t threads;
	uint32_t actors; /* threads, then the barriers there are */
	uint32_t width;  /* actors at most: the length of a view's halves */
	uint32_t *memory;
	size_t words;
	uint32_t *clock;
	uint32_t *fenced; /* a thread's own: its events before this clock are fenced */
	unsigned char *has_own;
	bool worn;
} order;

/* Views by their place in memory: blocks' bases, threads' own, barriers' arriving and ended, one to work in.
 */
static struct order_view view_at(uint32_t index)
{
	uint32_t *first = order.memory + (size_t)index * 2 * order.width;

	return (struct order_view){ first, first + order.width };
}

static struct order_view base_of(uint32_t thread)
{
	return view_at(thread / order.block_threads);
}

static struct order_view own_of(uint32_t thread)
{
	return view_at(order.blocks + thread);
}

static struct order_view arriving_of(uint32_t number)
{
	return view_at(order.blocks + order.threads + 2 * number);
}

static struct order_view ended_of(uint32_t number)
{
	return view_at(order.blocks + order.threads + 2 * number + 1);
}

static struct order_view scratch(void)
{
	return view_at(order.blocks + order.threads + 2 * ORDER_MAX_BARRIERS);
}

static void clear(struct order_view view)
{
	memset(view.seen, 0, 2 * (size_t)order.width * sizeof(*view.seen));
}

static void copy(struct order_view to, struct order_view from)
{
	memcpy(to.seen, from.seen, 2 * (size_t)order.width * sizeof(*to.seen));
}

static void raise(uint32_t *restrict to, const uint32_t *restrict from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

static void join(struct order_view to, struct order_view from)
{
	raise(to.seen, from.seen, order.actors);
	raise(to.fenced, from.fenced, order.actors);
}

bool order_reset(uint32_t blocks, uint32_t block_threads)
{
	uint32_t threads = blocks * block_threads, width = threads + ORDER_MAX_BARRIERS;
	size_t views = (size_t)blocks + threads + 2 * ORDER_MAX_BARRIERS + 1;
	size_t words = views * 2 * width + 2 * (size_t)width + (threads + 3) / 4;

	if (width > MAX_ACTORS)
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
	order.has_own = (unsigned char *)(order.fenced + width);
	order.worn = false;
	for (uint32_t i = 0; i < width; i++)
		order.clock[i] = 1;
	memset(order.fenced, 0, width * sizeof(*order.fenced));
	memset(order.has_own, 0, threads);
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
	       (order.has_own[thread] && own_of(thread).seen[actor] > clock);
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
	       (order.has_own[thread] && own_of(thread).fenced[actor] > clock);
}

void order_fence(uint32_t thread)
{
	order.fenced[thread] = order.clock[thread] + 1;
	tick(thread);
}

/* ---- News ------------------------------------------------------------------------------------------ */

/* Puts what the thread knows and did into a view; what it does from now on is not in it. */
static void tell(uint32_t thread, struct order_view to)
{
	join(to, base_of(thread));
	if (order.has_own[thread])
		join(to, own_of(thread));
	to.seen[thread] = order.clock[thread] + 1;
	to.fenced[thread] = order.fenced[thread];
	tick(thread);
}

static void hear(uint32_t thread, struct order_view from)
{
	if (!order.has_own[thread]) {
		clear(own_of(thread));
		order.has_own[thread] = 1;
	}
	join(own_of(thread), from);
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

/* Into all, the views of those from first on that are alive. */
static void gather(struct order_view all, uint32_t first, uint32_t n, bool (*alive)(uint32_t thread))
{
	for (uint32_t t = first; t < first + n; t++) {
		if (!alive(t))
			continue;
		if (order.has_own[t])
			join(all, own_of(t));
		order.has_own[t] = 0;
		all.seen[t] = order.clock[t] + 1;
		all.fenced[t] = order.fenced[t];
		tick(t);
	}
}

void order_meet_block(uint32_t block, bool (*alive)(uint32_t thread))
{
	gather(view_at(block), block * order.block_threads, order.block_threads, alive);
}

void order_meet_cluster(bool (*alive)(uint32_t thread))
{
	struct order_view all = scratch();

	clear(all);
	for (uint32_t b = 0; b < order.blocks; b++)
		join(all, view_at(b));
	gather(all, 0, order.threads, alive);
	for (uint32_t b = 0; b < order.blocks; b++)
		copy(view_at(b), all);
}

void order_meet(const uint32_t *threads, uint32_t n)
{
	struct order_view all = scratch();

	clear(all);
	for (uint32_t i = 0; i < n; i++)
		tell(threads[i], all);
	for (uint32_t i = 0; i < n; i++)
		hear(threads[i], all);
}
