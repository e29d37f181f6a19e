/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the entries once; the checks then look at the extremes, and at pairs only of two tables that are new
 * to each other. */
#include "layer_table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "layer_aliases.h"
#include "overlap.h"

static void sort_entries(struct layer_table *table);
static void measure_memories(struct layer_table *table);

static uint64_t position(const struct layer_table *table, uint32_t entry)
{
	return table->places[entry].at.base + table->places[entry].at.offset;
}

static int compare_memories(const uint64_t *a, const uint64_t *b)
{
	if (a[0] != b[0])
		return a[0] < b[0] ? -1 : 1;
	return (a[1] > b[1]) - (a[1] < b[1]);
}

static bool is_one_memory(const struct layer_place *a, const struct layer_place *b)
{
	return compare_memories(a->at.memory, b->at.memory) == 0;
}

/* ---- Making ------------------------------------------------------------------------------------------- */

int layer_table_init(struct layer_table *table, const char *name, struct error *err)
{
	const struct layer_place *places = table->places;

	table->bits = 0;
	table->lowest = table->tightest = 0;
	table->room = UINT64_MAX;
	for (uint32_t i = 0; i < table->n; i++) {
		const struct tensor_place *at = &places[i].at;

		if (at->offset >= at->size)
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "%s: entry %" PRIu32 ": byte %" PRIu64 ", but region %" PRIu64
			                 " has %" PRIu64 " bytes",
			                 name, i, at->offset, places[i].region, at->size);
		table->layers[i] = (int64_t)(places[i].address - places[0].address);
		table->bits |= (uint64_t)table->layers[i];
		if (at->offset < places[table->lowest].at.offset)
			table->lowest = i;
		if (at->size - at->offset < table->room) {
			table->room = at->size - at->offset;
			table->tightest = i;
		}
	}
	table->step = table->n > 1 ? (uint64_t)table->layers[1] : 0;
	table->is_even = table->n == 1 || table->layers[1] > 0;
	for (uint32_t i = 2; i < table->n; i++)
		table->is_even &= (uint64_t)table->layers[i] - (uint64_t)table->layers[i - 1] == table->step;
	table->beside = 0;
	sort_entries(table);
	measure_memories(table);
	table->is_tangled = layer_tables_share(table, table, &table->tangle[0], &table->tangle[1]);
	return 0;
}

static int compare_entries(const void *a, const void *b, void *arg)
{
	const struct layer_table *table = arg;
	const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	const int memories = compare_memories(table->places[left].at.memory, table->places[right].at.memory);
	const uint64_t left_at = position(table, left), right_at = position(table, right);

	if (memories)
		return memories;
	return left_at != right_at ? left_at < right_at ? -1 : 1 : (left > right) - (left < right);
}

static void sort_entries(struct layer_table *table)
{
	for (uint32_t i = 0; i < table->n; i++)
		table->order[i] = i;
	qsort_r(table->order, table->n, sizeof *table->order, compare_entries, table);
}

static void measure_memories(struct layer_table *table)
{
	uint32_t first = 0; /* of the memory, in order */

	table->most = 1;
	table->least = UINT64_MAX;
	table->is_regular = true;
	table->span = 0;
	for (uint32_t i = 1; i < table->n; i++) {
		const uint32_t a = table->order[i - 1], b = table->order[i];
		uint64_t distance, span;

		if (!is_one_memory(&table->places[a], &table->places[b])) {
			first = i;
			continue;
		}
		distance = position(table, b) - position(table, a);
		span = position(table, b) - position(table, table->order[first]);
		table->is_regular &= table->most == 1 || distance == table->least;
		if (distance < table->least) {
			table->least = distance;
			table->near[0] = a;
			table->near[1] = b;
		}
		table->span = span > table->span ? span : table->span;
		table->most = i - first + 1 > table->most ? i - first + 1 : table->most;
	}
}

/* ---- In their regions --------------------------------------------------------------------------------- */

int layer_table_check_range(const struct layer_table *table, const char *side, uint64_t n, uint64_t step,
                            struct tensor_extent extent, uint64_t added, struct error *err)
{
	const struct layer_place *lowest = &table->places[table->lowest];
	const struct layer_place *tightest = &table->places[table->tightest];
	const int128 low = (int128)lowest->at.offset + added + extent.low;
	const int128 high = (int128)tightest->at.offset + added + int128_product(n - 1, step) + extent.high;

	if (low < 0)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s_%s: entry %" PRIu32 ": its first byte would be %" PRIu64
		                 " bytes before region %" PRIu64 " starts",
		                 side, table->noun, table->lowest, (uint64_t)-low, lowest->region);
	if (high > UINT64_MAX)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s_%s: entry %" PRIu32 ": the last byte of %" PRIu64
		                 " blocks overflows 64 bits, but region %" PRIu64 " has %" PRIu64 " bytes",
		                 side, table->noun, table->tightest, n, tightest->region, tightest->at.size);
	if (high > tightest->at.size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s_%s: entry %" PRIu32 ": the last byte of %" PRIu64
		                 " blocks is byte %" PRIu64 ", but region %" PRIu64 " has %" PRIu64 " bytes",
		                 side, table->noun, table->tightest, n, (uint64_t)high - 1, tightest->region,
		                 tightest->at.size);
	return 0;
}

/* ---- Apart from each other ---------------------------------------------------------------------------- */

int layer_table_check_apart(const struct layer_table *table, const struct transform *t, uint64_t n,
                            uint64_t step, struct error *err)
{
	const uint64_t block = (uint64_t)t->dst_extent.high - (uint64_t)t->dst_extent.low;
	const int128 reach = int128_product(n - 1, step) + block;
	const struct overlap_repeat repeat[] = { { n, step }, { table->most, table->least } };

	if (table->is_tangled)
		return error_set(
		    err, STATUS_OVERLAP,
		    "dst_%s: entries %" PRIu32 " and %" PRIu32
		    " lie in regions that share memory; that their blocks share no byte cannot be "
		    "proven",
		    table->noun, table->tangle[0], table->tangle[1]);
	if (table->most == 1 || table->least >= reach ||
	    (table->least >= block && (int128)table->span + block <= step))
		return 0;
	if (table->is_regular && overlap_self_repeated(&t->dst_layout, repeat, 2) == OVERLAP_NONE)
		return 0;
	return error_set(
	    err, STATUS_OVERLAP,
	    "dst_%s: entries %" PRIu32 " and %" PRIu32 " are %" PRIu64
	    " bytes apart in one memory, where they share bytes or are unevenly spaced; they must be at least "
	    "%" PRIu64 " apart (the blocks of a layer), or %" PRIu64
	    " (one block) with all entries of the memory within one dst_step",
	    table->noun, table->near[0], table->near[1], table->least,
	    reach > UINT64_MAX ? UINT64_MAX : (uint64_t)reach, block);
}

/* ---- Apart from the other side ------------------------------------------------------------------------ */

bool layer_table_meets(const struct layer_table *table, struct stretch of_layer,
                       const struct tensor_place *other, struct stretch of_other, uint32_t *ret_entry)
{
	overlap_count_steps(table->n);
	for (uint32_t i = 0; i < table->n; i++)
		if (places_meet(&table->places[i].at, stretch_shift(of_layer, position(table, i)), other,
		                of_other)) {
			*ret_entry = i;
			return true;
		}
	return false;
}

/* A layer of dst and one of src meet if the way from the one's place to the other's lies between these, which
 * do not belong to it. */
static struct stretch ways_to_meet(struct stretch of_dst, struct stretch of_src)
{
	return (struct stretch){ .low = of_dst.low - of_src.high, .high = of_dst.high - of_src.low };
}

/* Both in their order. The first of src that is far enough behind a layer of dst is never before that of the
 * layer before. */
static bool search(const struct layer_table *dst, const struct layer_table *src, struct stretch ways,
                   uint32_t *ret_dst, uint32_t *ret_src, bool *ret_shares)
{
	uint32_t s = 0;

	*ret_shares = false;
	for (uint32_t d = 0; d < dst->n; d++) {
		const uint32_t to = dst->order[d];
		const uint64_t *memory = dst->places[to].at.memory;
		const int128 at = position(dst, to);
		int order = 1;

		for (; s < src->n; s++) {
			order = compare_memories(src->places[src->order[s]].at.memory, memory);
			*ret_shares |= order == 0;
			if (order > 0 || (order == 0 && position(src, src->order[s]) - at > ways.low))
				break;
		}
		if (s == src->n)
			return false;
		if (order == 0 && position(src, src->order[s]) - at < ways.high) {
			*ret_dst = to;
			*ret_src = src->order[s];
			return true;
		}
	}
	return false;
}

bool layer_tables_meet(struct layer_table *dst, struct stretch of_dst, const struct layer_table *src,
                       struct stretch of_src, uint32_t *ret_dst, uint32_t *ret_src)
{
	struct stretch ways = ways_to_meet(of_dst, of_src);
	bool shares;

	if (src->serial && dst->beside == src->serial && dst->clear.low <= ways.low &&
	    ways.high <= dst->clear.high)
		return false;
	overlap_count_steps((uint64_t)dst->n + src->n);
	if (search(dst, src, ways, ret_dst, ret_src, &shares) ||
	    layer_tables_share(dst, src, ret_dst, ret_src))
		return true;
	if (!shares)
		ways = (struct stretch){ .low = -INT128_FARTHEST, .high = INT128_FARTHEST };
	dst->beside = src->serial;
	dst->clear = ways;
	return false;
}
