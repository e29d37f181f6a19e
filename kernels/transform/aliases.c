/* SPDX-License-Identifier: Apache-2.0 */
/* Compares memories by the allocations that they have in common. The allocations that a range touches are
 * looked up by id in the other memory. If they are many, the allocations of all memories are merged in the
 * order of their ids instead. */
#include "aliases.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "layer_table.h"
#include "proto/overlap.h"

/* Maximum number of steps for looking up one allocation in a memory that has up to 65536 of them. */
#define LOOK_UP_STEPS 16

/* ---- Allocations --------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	const struct memory_chunk *x = a, *y = b;

	return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->at > y->at) - (x->at < y->at);
}

bool memory_chunks_sort(struct memory_chunks *chunks, uint64_t *ret)
{
	memcpy(chunks->by_id, chunks->by_place, chunks->n * sizeof *chunks->by_id);
	qsort(chunks->by_id, chunks->n, sizeof *chunks->by_id, by_id);
	for (uint32_t i = 1; i < chunks->n; i++) {
		if (chunks->by_id[i].id != chunks->by_id[i - 1].id)
			continue;
		*ret = chunks->by_id[i].at;
		return false;
	}
	return true;
}

/* Returns the index of the first allocation that ends after byte `at` of the memory. */
static uint32_t first_after(const struct memory_chunks *chunks, uint64_t at)
{
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (chunks->by_place[middle].at + chunks->by_place[middle].size > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

uint32_t memory_range_touched(const struct memory_range *range, uint32_t *ret_first)
{
	uint32_t last;

	*ret_first = first_after(range->chunks, range->low);
	if (range->high <= range->low)
		return 0;
	last = first_after(range->chunks, range->high - 1);
	return last - *ret_first + (last < range->chunks->n);
}

const struct memory_chunk *memory_chunks_find(const struct memory_chunks *chunks, uintptr_t id)
{
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (chunks->by_id[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < chunks->n && chunks->by_id[low].id == id ? &chunks->by_id[low] : NULL;
}

/* ---- Two ranges ------------------------------------------------------------------------------------------
 */

/* The bytes [low, high) of an allocation. */
struct piece {
	uint64_t low, high;
};

/* Returns the bytes of an allocation that belong to [low, high) of the memory. If there are none, the result
 * is an empty piece, which meets no other. */
static struct piece clip(uint64_t low, uint64_t high, const struct memory_chunk *chunk)
{
	const uint64_t end = high > chunk->at ? high - chunk->at : 0;

	return (struct piece){ low > chunk->at ? low - chunk->at : 0, end < chunk->size ? end : chunk->size };
}

static bool pieces_meet(struct piece a, struct piece b)
{
	return a.low < b.high && b.low < a.high;
}

static uint64_t count_common(struct piece a, struct piece b)
{
	const uint64_t low = a.low > b.low ? a.low : b.low, high = a.high < b.high ? a.high : b.high;

	return low < high ? high - low : 0;
}

/* The state of comparing two ranges. */
struct finding {
	enum alias alias;
	int128 shift;
	uint64_t bytes;
};

/* Takes into account an allocation that both memories have: x in that of a, and y in that of b. Returns true
 * if the outcome cannot change any more. */
static bool take(struct finding *finding, const struct memory_chunk *x, const struct memory_range *a,
                 const struct memory_chunk *y, const struct memory_range *b)
{
	const int128 shift = (int128)y->at - x->at;
	const uint64_t bytes = count_common(clip(a->low, a->high, x), clip(b->low, b->high, y));

	if (!bytes)
		return false;
	if (finding->alias == ALIAS_ONE && shift != finding->shift) {
		finding->alias = ALIAS_MANY;
		return true;
	}
	*finding = (struct finding){ ALIAS_ONE, shift, finding->bytes + bytes };
	return false;
}

/* Looks up n of the allocations that a touches, from index `first` of by_place on. */
static void look_up_range(struct finding *finding, const struct memory_range *a, uint32_t first, uint32_t n,
                          const struct memory_range *b)
{
	for (uint32_t i = first; i < first + n; i++) {
		const struct memory_chunk *x = &a->chunks->by_place[i],
					  *y = memory_chunks_find(b->chunks, x->id);

		if (y && take(finding, x, a, y, b))
			return;
	}
}

static void walk(struct finding *finding, const struct memory_range *a, const struct memory_range *b)
{
	for (uint32_t i = 0, j = 0; i < a->chunks->n && j < b->chunks->n;) {
		const struct memory_chunk *x = &a->chunks->by_id[i], *y = &b->chunks->by_id[j];

		i += x->id <= y->id;
		j += y->id <= x->id;
		if (x->id == y->id && take(finding, x, a, y, b))
			return;
	}
}

/* Returns whether the ranges overlap, once shifted onto each other, in more bytes than those of the
 * allocations that they have in common. */
static bool is_partial(const struct finding *finding, const struct memory_range *a,
                       const struct memory_range *b)
{
	const int128 low = (int128)a->low + finding->shift, high = (int128)a->high + finding->shift;

	return (high < b->high ? high : b->high) - (low > b->low ? low : b->low) > finding->bytes;
}

enum alias alias_between(const struct memory_range *a, const struct memory_range *b, int128 *ret_shift)
{
	struct finding finding = { ALIAS_NONE, 0, 0 };
	uint32_t in_a, in_b, first_a, first_b;
	uint64_t most;

	if (!a->chunks || !b->chunks || !atomic_load(&a->chunks->shared) || !atomic_load(&b->chunks->shared))
		return ALIAS_NONE;
	in_a = memory_range_touched(a, &first_a);
	in_b = memory_range_touched(b, &first_b);
	most = (uint64_t)a->chunks->n + b->chunks->n;
	if ((uint64_t)LOOK_UP_STEPS * (in_a < in_b ? in_a : in_b) > most) {
		walk(&finding, a, b);
		overlap_count_steps(most);
	} else if (in_a <= in_b) {
		look_up_range(&finding, a, first_a, in_a, b);
		overlap_count_steps((uint64_t)LOOK_UP_STEPS * in_a);
	} else {
		look_up_range(&finding, b, first_b, in_b, a);
		overlap_count_steps((uint64_t)LOOK_UP_STEPS * in_b);
		finding.shift = -finding.shift;
	}
	if (finding.alias != ALIAS_ONE)
		return finding.alias;
	*ret_shift = finding.shift;
	return is_partial(&finding, a, b) ? ALIAS_SOME : ALIAS_ONE;
}

/* ---- Tables and places in many memories ---------------------------------------------------------------- */

#define MOST_MEMORIES (2 * LAYER_TABLE_MOST)
#define STEP_PARTS    4 /* number of steps here that make up one step of overlap_steps */

/* A memory of one side that shares allocations with other memories, and the entries in it. */
struct sharer {
	const struct memory_chunks *chunks;
	const struct memory_chunk *next; /* position of the merge in by_id */
	/* From the start of the first entry's stretch to the end of the last one's. */
	struct memory_range stretches;
	struct memory_range regions;
	uint32_t first, end; /* range of indices of the table's order */
	bool is_b;
};

/* An element of the heap: a sharer and the id of its next allocation. */
struct waiting {
	uintptr_t id;
	uint32_t sharer;
};

struct comparison {
	const struct layer_side *side[2];
	uint32_t *ret[2]; /* where to store the entries that share bytes, by side */
	uint64_t steps_left;
	bool is_far;  /* no two regions have been found to share anything */
	uint32_t n_a; /* number of sharers of side a, which come first */
	uint32_t n;
	struct sharer sharer[MOST_MEMORIES];
	/* Start of each entry's stretch in its memory, in the table's order. */
	uint64_t low[2][LAYER_TABLE_MOST];
	struct waiting heap[MOST_MEMORIES]; /* min-heap by id */
	uint16_t group[MOST_MEMORIES];      /* indices of the sharers that have the current allocation */
};

bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b)
{
	const struct memory_range x = { a->chunks, (uint64_t)of_a.low, (uint64_t)of_a.high };
	const struct memory_range y = { b->chunks, (uint64_t)of_b.low, (uint64_t)of_b.high };
	int128 shift;

	if (places_in_one_memory(a, b))
		return stretches_meet(of_a, of_b);
	return alias_between(&x, &y, &shift) != ALIAS_NONE;
}

static void spend(struct comparison *c, uint64_t steps)
{
	c->steps_left = steps < c->steps_left ? c->steps_left - steps : 0;
}

/* ---- The memories of a side --------------------------------------------------------------------------- */

static uint32_t entry_of(const struct layer_side *side, uint32_t i)
{
	return side->table ? side->table->order[i] : 0;
}

static const struct tensor_place *place_of(const struct layer_side *side, uint32_t i)
{
	return side->table ? &side->table->places[entry_of(side, i)].at : side->place;
}

static uint64_t length_of(const struct comparison *c, bool is_b)
{
	return (uint64_t)(c->side[is_b]->stretch.high - c->side[is_b]->stretch.low);
}

/* Sets the ranges of a sharer's stretches and regions, and the start of each entry's stretch. */
static void set_reach(struct comparison *c, struct sharer *x)
{
	const struct layer_side *side = c->side[x->is_b];
	uint64_t *low = c->low[x->is_b];

	x->regions = (struct memory_range){ x->chunks, UINT64_MAX, 0 };
	for (uint32_t i = x->first; i < x->end; i++) {
		const struct tensor_place *place = place_of(side, i);
		const uint64_t end = place->base + place->size;

		low[i] = (uint64_t)side->stretch.low + (side->table ? place->base + place->offset : 0);
		x->regions.low = place->base < x->regions.low ? place->base : x->regions.low;
		x->regions.high = end > x->regions.high ? end : x->regions.high;
	}
	x->stretches =
	    (struct memory_range){ x->chunks, low[x->first], low[x->end - 1] + length_of(c, x->is_b) };
}

/* Adds the memories of a side that may have allocations in common with other memories. */
static void add_side(struct comparison *c, bool is_b)
{
	const struct layer_side *side = c->side[is_b];
	const uint32_t n = side->table ? side->table->n : 1;

	for (uint32_t i = 0, end; i < n; i = end) {
		const struct tensor_place *place = place_of(side, i);
		struct sharer *sharer = &c->sharer[c->n];

		for (end = i + 1; end < n && places_in_one_memory(place, place_of(side, end)); end++)
			;
		if (!place->chunks || !atomic_load(&place->chunks->shared))
			continue;
		*sharer = (struct sharer){ .chunks = place->chunks, .first = i, .end = end, .is_b = is_b };
		set_reach(c, sharer);
		c->n++;
	}
}

/* ---- In an allocation --------------------------------------------------------------------------------- */

static bool ranges_meet(const struct memory_range *a, const struct memory_chunk *u,
                        const struct memory_range *b, const struct memory_chunk *v)
{
	return pieces_meet(clip(a->low, a->high, u), clip(b->low, b->high, v));
}

static struct piece entry_in(const struct comparison *c, const struct sharer *x, uint32_t i,
                             const struct memory_chunk *chunk)
{
	const uint64_t low = c->low[x->is_b][i];

	return clip(low, low + length_of(c, x->is_b), chunk);
}

/* Returns the index, in the table's order, of the first entry whose stretch ends after the start of the
 * allocation. */
static uint32_t first_in(struct comparison *c, const struct sharer *x, const struct memory_chunk *chunk)
{
	const uint64_t length = length_of(c, x->is_b);
	uint32_t low = x->first, high = x->end;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		spend(c, 1);
		if (c->low[x->is_b][middle] + length > chunk->at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool found(struct comparison *c, const struct sharer *x, uint32_t i, const struct sharer *y,
                  uint32_t j)
{
	*c->ret[x->is_b] = entry_of(c->side[x->is_b], i);
	*c->ret[!x->is_b] = entry_of(c->side[y->is_b], j);
	return true;
}

/* Returns whether entries of two memories share bytes of an allocation, which is u in the memory of x and v
 * in that of y. */
static bool meet_in(struct comparison *c, const struct sharer *x, const struct memory_chunk *u,
                    const struct sharer *y, const struct memory_chunk *v)
{
	uint32_t i, j;

	spend(c, 2);
	if (!ranges_meet(&x->regions, u, &y->regions, v))
		return false;
	c->is_far = false;
	if (!ranges_meet(&x->stretches, u, &y->stretches, v))
		return false;
	i = first_in(c, x, u);
	j = first_in(c, y, v);
	while (i < x->end && j < y->end && c->steps_left > 0) {
		const struct piece own = entry_in(c, x, i, u), other = entry_in(c, y, j, v);

		spend(c, 1);
		if (pieces_meet(own, other))
			return found(c, x, i, y, j);
		if (own.low >= u->size || other.low >= v->size)
			return false;
		if (own.high <= other.low)
			i++;
		else
			j++;
	}
	return false;
}

/* ---- One after the other ------------------------------------------------------------------------------ */

/* Returns the sum of the numbers of allocations that the stretches of the sharers [first, end) touch. */
static uint64_t count_touched(struct comparison *c, uint32_t first, uint32_t end)
{
	uint64_t n = 0;
	uint32_t ignored;

	spend(c, (uint64_t)LOOK_UP_STEPS * (end - first));
	for (uint32_t s = first; s < end; s++)
		n += memory_range_touched(&c->sharer[s].stretches, &ignored);
	return n;
}

static bool is_beside(const struct comparison *c, const struct sharer *x, const struct sharer *y)
{
	return !places_in_one_memory(place_of(c->side[x->is_b], x->first),
	                             place_of(c->side[y->is_b], y->first));
}

/* Looks up an allocation of x in the sharers [first, end) of the other side. Returns whether entries share
 * bytes of it. */
static bool look_up(struct comparison *c, const struct sharer *x, const struct memory_chunk *u,
                    uint32_t first, uint32_t end)
{
	for (uint32_t s = first; s < end && c->steps_left > 0; s++) {
		const struct sharer *y = &c->sharer[s];
		const struct memory_chunk *v =
		    is_beside(c, x, y) ? memory_chunks_find(y->chunks, u->id) : NULL;

		spend(c, LOOK_UP_STEPS);
		if (v && meet_in(c, x, u, y, v))
			return true;
	}
	return false;
}

static bool look_up_all(struct comparison *c, bool of_b)
{
	const uint32_t first = of_b ? c->n_a : 0, end = of_b ? c->n : c->n_a;

	c->is_far = false; /* only allocations that the stretches touch are compared */
	for (uint32_t s = first; s < end; s++) {
		const struct sharer *x = &c->sharer[s];
		uint32_t at;
		const uint32_t n = memory_range_touched(&x->stretches, &at);

		for (uint32_t i = at; i < at + n && c->steps_left > 0; i++)
			if (look_up(c, x, &x->chunks->by_place[i], of_b ? 0 : c->n_a, of_b ? c->n_a : c->n))
				return true;
	}
	return false;
}

/* ---- All at once -------------------------------------------------------------------------------------- */

/* Moves a hole at i down the heap of n elements to where `waiting` belongs, and stores it there. */
static void sift(struct comparison *c, struct waiting waiting, uint32_t i, uint32_t n)
{
	for (;;) {
		uint32_t child = 2 * i + 1;

		spend(c, 1);
		child += child + 1 < n && c->heap[child + 1].id < c->heap[child].id;
		if (child >= n || c->heap[child].id >= waiting.id)
			break;
		c->heap[i] = c->heap[child];
		i = child;
	}
	c->heap[i] = waiting;
}

/* Removes the sharers with the smallest id from the heap of *n, advances each beyond that allocation, and
 * stores them in c->group. Returns their number. */
static uint32_t take_group(struct comparison *c, uint32_t *n)
{
	const uintptr_t id = c->heap[0].id;
	uint32_t taken = 0;

	while (*n > 0 && c->heap[0].id == id) {
		const uint32_t s = c->heap[0].sharer;
		struct sharer *x = &c->sharer[s];

		spend(c, 1);
		c->group[taken++] = (uint16_t)s;
		if (++x->next < x->chunks->by_id + x->chunks->n)
			sift(c, (struct waiting){ x->next->id, s }, 0, *n);
		else if (--*n > 0)
			sift(c, c->heap[*n], 0, *n);
	}
	return taken;
}

static bool group_meets(struct comparison *c, uint32_t n)
{
	const bool is_self = c->side[0] == c->side[1];

	for (uint32_t i = 0; i < n; i++) {
		const struct sharer *x = &c->sharer[c->group[i]];

		for (uint32_t j = i + 1; j < n && c->steps_left > 0; j++) {
			const struct sharer *y = &c->sharer[c->group[j]];

			spend(c, 1);
			if ((is_self || (x->is_b != y->is_b && is_beside(c, x, y))) &&
			    meet_in(c, x, x->next - 1, y, y->next - 1))
				return true;
		}
	}
	return false;
}

static bool go_along(struct comparison *c)
{
	uint32_t n = c->n;

	for (uint32_t s = 0; s < n; s++) {
		c->sharer[s].next = c->sharer[s].chunks->by_id;
		c->heap[s] = (struct waiting){ c->sharer[s].next->id, s };
	}
	for (uint32_t i = n / 2; i-- > 0;)
		sift(c, c->heap[i], i, n);
	while (n > 1 && c->steps_left > 0)
		if (group_meets(c, take_group(c, &n)))
			return true;
	return false;
}

static bool compare(struct comparison *c, bool is_self)
{
	const uint64_t in_a = is_self ? UINT64_MAX : count_touched(c, 0, c->n_a) * (c->n - c->n_a);
	const uint64_t in_b = is_self ? UINT64_MAX : count_touched(c, c->n_a, c->n) * c->n_a;
	uint64_t all = 0;

	for (uint32_t s = 0; s < c->n; s++)
		all += c->sharer[s].chunks->n;
	if ((in_a < in_b ? in_a : in_b) < all / LOOK_UP_STEPS)
		return look_up_all(c, in_b < in_a);
	return go_along(c);
}

enum layer_sharing layers_share(const struct layer_side *a, const struct layer_side *b, uint32_t *ret_a,
                                uint32_t *ret_b)
{
	struct comparison c; /* large; only the used parts are initialized */
	bool shares;

	c.side[0] = a;
	c.side[1] = b;
	c.ret[0] = ret_a;
	c.ret[1] = ret_b;
	c.steps_left = (uint64_t)LAYERS_MOST_STEPS * STEP_PARTS;
	c.is_far = true;
	c.n = 0;
	add_side(&c, false);
	c.n_a = c.n;
	if (a != b && c.n > 0)
		add_side(&c, true);
	if (a == b ? c.n < 2 : c.n == c.n_a)
		return LAYERS_FAR;
	shares = compare(&c, a == b);
	overlap_count_steps(LAYERS_MOST_STEPS - c.steps_left / STEP_PARTS);
	if (shares)
		return LAYERS_SHARE;
	if (c.steps_left == 0)
		return LAYERS_UNKNOWN;
	return c.is_far ? LAYERS_FAR : LAYERS_APART;
}
