/* SPDX-License-Identifier: Apache-2.0 */
/* The regions of a table that share allocations are taken apart into pieces of those, which are sorted: what
 * two regions share lies side by side then. Regions of one memory count as one. */
#include "layer_aliases.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "aliases.h"
#include "layer_table.h"
#include "overlap.h"

#define MOST_PIECES 16384
#define PIECE_STEPS 16 /* to find one, and to sort it */

static struct memory_range range_of(const struct tensor_place *place, struct stretch stretch)
{
	return (struct memory_range){ place->chunks, (uint64_t)stretch.low, (uint64_t)stretch.high };
}

static bool is_one_memory(const struct tensor_place *a, const struct tensor_place *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b)
{
	const struct memory_range x = range_of(a, of_a), y = range_of(b, of_b);
	int128 shift;

	if (is_one_memory(a, b))
		return stretches_meet(of_a, of_b);
	return alias_between(&x, &y, &shift) != ALIAS_NONE;
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

/* What a region has of an allocation. */
struct piece {
	struct memory_piece of;
	const struct tensor_place *place;
	uint32_t entry;
	bool is_a;
};

struct pieces {
	struct piece *list;
	uint32_t n;
	uint32_t room;
};

static bool has_shared(const struct tensor_place *place)
{
	return place->chunks && atomic_load(&place->chunks->shared);
}

static bool add_range(struct pieces *pieces, const struct memory_range *range, const struct piece *like)
{
	const uint32_t n = memory_range_pieces(range, NULL);
	struct memory_piece *found;

	if (n > MOST_PIECES - pieces->n)
		return false;
	if (pieces->n + n > pieces->room) {
		const uint32_t room = 2 * (pieces->n + n);
		struct piece *list = realloc(pieces->list, room * sizeof *list);

		if (!list)
			return false;
		pieces->list = list;
		pieces->room = room;
	}
	found = malloc((n ?: 1) * sizeof *found);
	if (!found)
		return false;
	memory_range_pieces(range, found);
	for (uint32_t i = 0; i < n; i++) {
		pieces->list[pieces->n] = *like;
		pieces->list[pieces->n++].of = found[i];
	}
	free(found);
	return true;
}

/* Of the memories of a table, each once: from the first region in it to the last one's end. *ret_entry: the
 * last entry that was looked at. */
static bool add_table(struct pieces *pieces, const struct layer_table *table, bool is_a, uint32_t *ret_entry)
{
	for (uint32_t i = 0, next; i < table->n; i = next) {
		const uint32_t entry = table->order[i];
		const struct tensor_place *place = &table->places[entry].at;
		struct memory_range range = { place->chunks, place->base, 0 };

		for (next = i; next < table->n; next++) {
			const struct tensor_place *other = &table->places[table->order[next]].at;

			if (!is_one_memory(place, other))
				break;
			range.low = other->base < range.low ? other->base : range.low;
			range.high =
			    other->base + other->size > range.high ? other->base + other->size : range.high;
		}
		*ret_entry = entry;
		if (has_shared(place) &&
		    !add_range(pieces, &range,
		               &(struct piece){ .place = place, .entry = entry, .is_a = is_a }))
			return false;
	}
	return true;
}

static int compare_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->of.id != y->of.id)
		return x->of.id < y->of.id ? -1 : 1;
	return (x->of.low > y->of.low) - (x->of.low < y->of.low);
}

/* Of the pieces of an allocation so far, the one that reaches farthest, and the one of another memory that
 * does. */
struct farthest {
	const struct piece *piece[2];
};

static void farthest_add(struct farthest *farthest, const struct piece *x)
{
	const struct piece **of = farthest->piece;
	const bool is_other = of[0] && !is_one_memory(of[0]->place, x->place);

	if (!of[0] || x->of.high > of[0]->of.high) {
		if (is_other)
			of[1] = of[0];
		of[0] = x;
	} else if (is_other && (!of[1] || x->of.high > of[1]->of.high)) {
		of[1] = x;
	}
}

static const struct piece *find_before(const struct farthest *farthest, const struct piece *x)
{
	for (int i = 0; i < 2; i++) {
		const struct piece *y = farthest->piece[i];

		if (y && y->of.high > x->of.low && !is_one_memory(x->place, y->place))
			return y;
	}
	return NULL;
}

/* Two pieces of one allocation that meet, of different memories and, if the tables are two, one of each. */
static bool find_pair(const struct pieces *pieces, bool are_two, uint32_t *ret_a, uint32_t *ret_b)
{
	struct farthest farthest[2] = { 0 }; /* of b, of a; of a alone the first */

	for (uint32_t i = 0; i < pieces->n; i++) {
		const struct piece *x = &pieces->list[i], *y;

		if (i > 0 && x->of.id != x[-1].of.id)
			farthest[0] = farthest[1] = (struct farthest){ 0 };
		y = find_before(&farthest[are_two ? !x->is_a : 0], x);
		if (y) {
			*ret_a = x->is_a ? x->entry : y->entry;
			*ret_b = x->is_a ? y->entry : x->entry;
			return true;
		}
		farthest_add(&farthest[are_two ? x->is_a : 0], x);
	}
	return false;
}

/* The memories of a table that may have allocations in common with others, up to two. */
static uint32_t count_shared(const struct layer_table *table)
{
	const struct tensor_place *last = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < table->n && n < 2; i++) {
		const struct tensor_place *place = &table->places[table->order[i]].at;

		if (!has_shared(place) || (last && is_one_memory(last, place)))
			continue;
		last = place;
		n++;
	}
	return n;
}

bool layer_tables_share(const struct layer_table *a, const struct layer_table *b, uint32_t *ret_a,
                        uint32_t *ret_b)
{
	struct pieces pieces = { 0 };
	bool shares = true;

	*ret_a = *ret_b = 0;
	if (a == b ? count_shared(a) < 2 : !count_shared(a) || !count_shared(b))
		return false;
	if (add_table(&pieces, a, true, ret_a) && (a == b || add_table(&pieces, b, false, ret_b))) {
		if (pieces.n > 1)
			qsort(pieces.list, pieces.n, sizeof *pieces.list, compare_pieces);
		shares = find_pair(&pieces, a != b, ret_a, ret_b);
	}
	overlap_count_steps((uint64_t)PIECE_STEPS * pieces.n);
	free(pieces.list);
	return shares;
}
