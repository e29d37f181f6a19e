/* SPDX-License-Identifier: Apache-2.0 */
/* Entries are sorted once, when the table is made. The checks then look only at the extremes; entries are
 * compared pairwise only when two tables are used together for the first time. */
#include "layer_table.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/overlap.h"
#include "proto/schema.h"

static void sort_entries(struct layer_table *table);
static void measure_memories(struct layer_table *table);

static int compare_memories(const uint64_t *a, const uint64_t *b)
{
	if (a[0] != b[0])
		return a[0] < b[0] ? -1 : 1;
	return (a[1] > b[1]) - (a[1] < b[1]);
}

/* ---- Entries as they travel --------------------------------------------------------------------------- */

int layer_entries_check(const struct bytes *entries, const char *name, struct error *err)
{
	const size_t n = entries->len / LAYER_ENTRY_BYTES;

	if (entries->len % LAYER_ENTRY_BYTES)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "%s: %zu bytes is not a multiple of the %d bytes of an entry (region, offset)", name,
		    entries->len, LAYER_ENTRY_BYTES);
	if (n == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: no entries, but a table has at least one",
		                 name);
	if (n > LAYER_TABLE_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %zu entries, at most %d", name, n,
		                 LAYER_TABLE_MOST);
	return 0;
}

void layer_entry_get(const struct bytes *entries, uint32_t i, uint64_t *ret_region, uint64_t *ret_offset)
{
	uint64_t words[2];

	memcpy(words, entries->data + (size_t)i * sizeof words, sizeof words);
	*ret_region = le64toh(words[0]);
	*ret_offset = le64toh(words[1]);
}

/* ---- Making ------------------------------------------------------------------------------------------- */

void layer_table_take_addresses(struct layer_table *table)
{
	const struct layer_place *places = table->places;

	table->bits = 0;
	for (uint32_t i = 0; i < table->n; i++) {
		table->layers[i] = (int64_t)(places[i].address - places[0].address);
		table->bits |= (uint64_t)table->layers[i];
	}
	table->step = table->n > 1 ? (uint64_t)table->layers[1] : 0;
	table->is_even = table->n == 1 || table->layers[1] > 0;
	for (uint32_t i = 2; i < table->n; i++)
		table->is_even &= (uint64_t)table->layers[i] - (uint64_t)table->layers[i - 1] == table->step;
}

int layer_table_init(struct layer_table *table, const char *name, struct error *err)
{
	const struct layer_place *places = table->places;

	table->lowest = table->tightest = 0;
	table->room = UINT64_MAX;
	for (uint32_t i = 0; i < table->n; i++) {
		const struct tensor_place *at = &places[i].at;

		if (at->offset >= at->size)
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "%s: entry %" PRIu32 ": byte %" PRIu64 ", but region %" PRIu64
			                 " has %" PRIu64 " bytes",
			                 name, i, at->offset, places[i].region, at->size);
		if (at->offset < places[table->lowest].at.offset)
			table->lowest = i;
		if (at->size - at->offset < table->room) {
			table->room = at->size - at->offset;
			table->tightest = i;
		}
	}
	layer_table_take_addresses(table);
	table->beside = 0;
	sort_entries(table);
	measure_memories(table);
	table->apart = (struct stretch){ 0, 0 };
	table->between.reach = 0;
	return 0;
}

static int compare_entries(const void *a, const void *b, void *arg)
{
	const struct layer_table *table = arg;
	const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	const int memories = compare_memories(table->places[left].at.memory, table->places[right].at.memory);
	const uint64_t left_at = layer_position(table, left), right_at = layer_position(table, right);

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
	uint32_t first = 0; /* first entry of the current memory, as an index of order */

	table->most = 1;
	table->least = UINT64_MAX;
	table->is_regular = true;
	table->span = 0;
	for (uint32_t i = 1; i < table->n; i++) {
		const uint32_t a = table->order[i - 1], b = table->order[i];
		uint64_t distance, span;

		if (!places_in_one_memory(&table->places[a].at, &table->places[b].at)) {
			first = i;
			continue;
		}
		distance = layer_position(table, b) - layer_position(table, a);
		span = layer_position(table, b) - layer_position(table, table->order[first]);
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

int layer_table_check_writable(const struct layer_table *table, const char *name, struct error *err)
{
	if (table->read_only == table->n)
		return 0;
	return error_set(err, STATUS_PERMISSION,
	                 "%s: entry %" PRIu32 ": region %" PRIu64
	                 " is read-only (registered with writable=false)",
	                 name, table->read_only, table->places[table->read_only].region);
}

/* ---- Between each other ------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

void layers_sort(int64_t *layers, uint32_t n)
{
	qsort(layers, n, sizeof *layers, compare_numbers);
}

/* Returns whether the remainders of all layers modulo step are at least a block apart, including the last and
 * the first remainder across the end of a step. Overwrites the layers. */
static bool remainders_are_apart(int64_t *layers, uint32_t n, uint64_t step, uint64_t block)
{
	const int64_t first = layers[0];

	for (uint32_t i = 0; i < n; i++)
		layers[i] = (int64_t)(((uint64_t)layers[i] - (uint64_t)first) % step);
	layers_sort(layers, n);
	for (uint32_t i = 1; i < n; i++)
		if ((uint64_t)layers[i] - (uint64_t)layers[i - 1] < block)
			return false;
	return step - (uint64_t)layers[n - 1] >= block;
}

bool layers_are_interleaved(int64_t *layers, uint32_t n, uint64_t step, uint64_t block, int128 reach)
{
	uint32_t end;

	if (step == 0 || step < block)
		return false;
	for (uint32_t first = 0; first < n; first = end) {
		for (end = first + 1; end < n && (int128)layers[end] - layers[end - 1] < reach; end++)
			continue;
		if (!remainders_are_apart(layers + first, end - first, step, block))
			return false;
	}
	return true;
}

/* Layers that have been proven to be interleaved are also interleaved if blocks are smaller, or if layers
 * have fewer blocks. */
static bool are_between(const struct layers_between *known, uint64_t step, uint64_t block, int128 reach)
{
	return known->step == step && known->block >= block && known->reach >= reach;
}

static bool are_interleaved(struct layer_table *table, uint64_t step, uint64_t block, int128 reach)
{
	int64_t layers[LAYER_TABLE_MOST];
	uint32_t end;

	if (are_between(&table->between, step, block, reach))
		return true;
	overlap_count_steps(table->n);
	for (uint32_t first = 0; first < table->n; first = end) {
		const struct tensor_place *memory = &table->places[table->order[first]].at;
		const uint64_t start = layer_position(table, table->order[first]);

		for (end = first; end < table->n; end++) {
			if (!places_in_one_memory(&table->places[table->order[end]].at, memory))
				break;
			layers[end - first] = (int64_t)(layer_position(table, table->order[end]) - start);
		}
		if (!layers_are_interleaved(layers, end - first, step, block, reach))
			return false;
	}
	table->between = (struct layers_between){ step, block, reach };
	return true;
}

/* ---- Apart from each other ---------------------------------------------------------------------------- */

static struct layer_side side_of(const struct layer_table *table, struct stretch of_layer)
{
	return (struct layer_side){ .table = table, .stretch = of_layer };
}

/* Returns the stretch within which entries have been proven to share no bytes. If not even the regions share
 * anything, which is the usual case, this is the largest possible stretch. */
static struct stretch proven_by(enum layer_sharing sharing, struct stretch stretch)
{
	return sharing == LAYERS_FAR ? stretch_farthest() : stretch;
}

/* Compares the table's entries in different memories with each other. If two share bytes, sets ret to
 * them. */
static enum layer_sharing compare_own(struct layer_table *table, struct stretch of_layer, uint32_t ret[2])
{
	const struct layer_side side = side_of(table, of_layer);
	enum layer_sharing sharing;

	if (stretch_is_within(of_layer, table->apart))
		return LAYERS_APART;
	sharing = layers_share(&side, &side, &ret[0], &ret[1]);
	if (layers_are_apart(sharing))
		table->apart = proven_by(sharing, of_layer);
	return sharing;
}

static int check_memories(struct layer_table *table, struct stretch of_layer, struct error *err)
{
	uint32_t entries[2] = { 0 };
	const enum layer_sharing sharing = compare_own(table, of_layer, entries);
	const bool in_order = entries[0] < entries[1];

	switch (sharing) {
	case LAYERS_APART:
	case LAYERS_FAR:
		return 0;
	case LAYERS_SHARE:
		return error_set(
		    err, STATUS_OVERLAP,
		    "dst_%s: the blocks of entries %" PRIu32 " and %" PRIu32
		    " share bytes of an allocation that both regions have; they must not overlap as "
		    "a whole, even if no two blocks do",
		    table->noun, entries[!in_order], entries[in_order]);
	default:
		return error_set(
		    err, STATUS_OVERLAP,
		    "dst_%s: too many allocations to prove that no two blocks of the destination share bytes",
		    table->noun);
	}
}

int layer_table_check_apart(struct layer_table *table, const struct transform *t, struct stretch of_layer,
                            uint64_t n, uint64_t step, struct error *err)
{
	const uint64_t block = (uint64_t)t->dst_extent.high - (uint64_t)t->dst_extent.low;
	const int128 reach = int128_product(n - 1, step) + block;
	const struct overlap_repeat repeat[] = { { n, step }, { table->most, table->least } };

	if (table->most == 1 || table->least >= reach ||
	    (table->least >= block && (int128)table->span + block <= step))
		return check_memories(table, of_layer, err);
	if (table->is_regular && overlap_self_repeated(&t->dst_layout, repeat, 2) == OVERLAP_NONE)
		return check_memories(table, of_layer, err);
	if (are_interleaved(table, step, block, reach))
		return check_memories(table, of_layer, err);
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

enum layer_sharing layer_table_meets(const struct layer_table *table, struct stretch of_layer,
                                     const struct tensor_place *other, struct stretch of_other,
                                     uint32_t *ret_entry)
{
	const struct layer_side layers = side_of(table, of_layer);
	const struct layer_side place = { .place = other, .stretch = of_other };
	uint32_t ignored;

	overlap_count_steps(table->n);
	for (uint32_t i = 0; i < table->n; i++)
		if (places_in_one_memory(&table->places[i].at, other) &&
		    stretches_meet(stretch_shift(of_layer, layer_position(table, i)), of_other)) {
			*ret_entry = i;
			return LAYERS_SHARE;
		}
	return layers_share(&layers, &place, ret_entry, &ignored);
}

/* Returns the range, with both ends excluded, of the distances from a place of dst to one of src at which
 * their stretches meet. */
static struct stretch ways_to_meet(struct stretch of_dst, struct stretch of_src)
{
	return (struct stretch){ .low = of_dst.low - of_src.high, .high = of_dst.high - of_src.low };
}

/* Two-pointer sweep in address order: the first source entry that can meet entry d never precedes the one
 * found for d - 1. Returns whether two entries meet, and sets *ret_dst and *ret_src to them. Sets *ret_shares
 * to whether the tables were found to have a memory in common. */
static bool search(const struct layer_table *dst, const struct layer_table *src, struct stretch ways,
                   uint32_t *ret_dst, uint32_t *ret_src, bool *ret_shares)
{
	uint32_t s = 0;

	*ret_shares = false;
	for (uint32_t d = 0; d < dst->n; d++) {
		const uint32_t to = dst->order[d];
		const uint64_t *memory = dst->places[to].at.memory;
		const int128 at = layer_position(dst, to);
		int order = 1;

		for (; s < src->n; s++) {
			order = compare_memories(src->places[src->order[s]].at.memory, memory);
			*ret_shares |= order == 0;
			if (order > 0 || (order == 0 && layer_position(src, src->order[s]) - at > ways.low))
				break;
		}
		if (s == src->n)
			return false;
		if (order == 0 && layer_position(src, src->order[s]) - at < ways.high) {
			*ret_dst = to;
			*ret_src = src->order[s];
			return true;
		}
	}
	return false;
}

static bool is_proven(const struct layer_table *dst, const struct layer_table *src,
                      const struct stretch of[2])
{
	return src->serial && dst->beside == src->serial && stretch_is_within(of[0], dst->proven[0]) &&
	       stretch_is_within(of[1], dst->proven[1]);
}

/* Does what search does, for entries in different memories that may share allocations. If the tables share
 * nothing, dst records the stretches for which this has been proven. */
static enum layer_sharing search_beside(struct layer_table *dst, const struct layer_table *src,
                                        const struct stretch of[2], uint32_t *ret_dst, uint32_t *ret_src)
{
	const struct layer_side sides[] = { side_of(dst, of[0]), side_of(src, of[1]) };
	enum layer_sharing sharing;

	if (is_proven(dst, src, of))
		return LAYERS_APART;
	sharing = layers_share(&sides[0], &sides[1], ret_dst, ret_src);
	for (int i = 0; i < 2 && layers_are_apart(sharing); i++)
		dst->proven[i] = proven_by(sharing, of[i]);
	return sharing;
}

enum layer_sharing layer_tables_meet(struct layer_table *dst, struct stretch of_dst,
                                     const struct layer_table *src, struct stretch of_src, uint32_t *ret_dst,
                                     uint32_t *ret_src)
{
	const struct stretch ways = ways_to_meet(of_dst, of_src), of[] = { of_dst, of_src };
	enum layer_sharing sharing;
	bool shares;

	if (is_proven(dst, src, of) && stretch_is_within(ways, dst->clear))
		return LAYERS_APART;
	overlap_count_steps((uint64_t)dst->n + src->n);
	if (search(dst, src, ways, ret_dst, ret_src, &shares))
		return LAYERS_SHARE;
	sharing = search_beside(dst, src, of, ret_dst, ret_src);
	if (!layers_are_apart(sharing))
		return sharing;
	dst->beside = src->serial;
	dst->clear = shares ? ways : stretch_farthest();
	return sharing;
}
