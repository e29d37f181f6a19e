/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a list of blocks is packed, divides it into stretches, and computes where the bytes of each
 * stretch lie. */
#include "packing.h"

#include <endian.h>
#include <string.h>

#include "kernels/nest/loop_nest.h"
#include "kernels/nest/narrow.h"
#include "proto/arithmetic.h"

#define ALIGN      16
#define ROOM_ALIGN 256 /* alignment of a side's scratch memory */
#define COPY_SLOTS 2   /* A chunk that is copied directly is about as large as this many pinned buffers. */
#define SHORTER    4   /* Where no thread may pack, the copy engine takes pieces this many times shorter. */

/* One command copies evenly spaced pieces of at least LEAST_ROW bytes, or LEAST_ROW_BUSY where another
 * process may use the device. An H200 copies rows of 64 KiB at 52 GB/s, and rows of 4 and 16 KiB at 30 GB/s.
 * A kernel reached 49 GB/s for rows of 64 KiB, but a matrix product that ran at the same time kept only 0.08
 * of its rate. Beside the copies, the product kept 0.95 of its rate. 32 KiB was not measured. */
#define LEAST_ROW      (32u << 10)
#define LEAST_ROW_BUSY 4096u
#define DOUBLINGS      3 /* how often stretches double, to 32 MiB, while launches do not wait */

static bool set_ways(struct packing *p, const struct packing_places *places,
                     const struct packing_limits *limits);
static bool divide(struct packing *p, const struct packing_limits *limits);

/* ---- Which -----------------------------------------------------------------------------------------------
 */

static uint64_t extent_bytes(struct tensor_extent extent)
{
	return (uint64_t)(extent.high - extent.low);
}

static void set_side(struct packing_side *side, const struct engine_blocks_side *blocks,
                     struct tensor_extent extent)
{
	*side = (struct packing_side){ .blocks = blocks, .low = extent.low, .bytes = extent_bytes(extent) };
}

/* Returns whether blocks with consecutive numbers lie without a gap between them. */
static bool follows(const struct packing_side *side)
{
	return side->blocks->step == side->bytes;
}

static bool is_indexed(const struct packing *p, const struct packing_side *side)
{
	return side == &p->dst ? blocks_dst_is_indexed(p->blocks) : blocks_src_is_indexed(p->blocks);
}

/* Returns whether one command can copy blocks with consecutive numbers, whether or not there are gaps between
 * them. Their distance must be less than 2 GiB (CU_DEVICE_ATTRIBUTE_MAX_PITCH). */
static bool has_rows(const struct packing *p, const struct packing_side *side)
{
	const uint64_t least = p->is_busy || p->has_threads ? LEAST_ROW_BUSY : LEAST_ROW;

	return side->bytes >= least && side->blocks->step >= side->bytes && side->blocks->step <= INT32_MAX;
}

/* Returns whether the side is likely to have long pieces for the copy engine. The list, once it has been
 * read, decides (packing_judge). */
static bool is_in_pieces(const struct packing *p, const struct packing_side *side)
{
	return side->bytes >= p->piece_bytes || (!is_indexed(p, side) && follows(side));
}

bool packing_init(struct packing *ret, const struct engine_job *job, const struct packing_places *places,
                  const struct packing_limits *limits)
{
	struct engine_blocks *blocks = job->blocks;
	const struct transform *t = job->move.transform;
	const struct tensor_extent reads = transform_reads(t), writes = transform_writes(t);
	const uint64_t items = blocks->n * blocks->layers;
	const uint64_t least = limits->has_threads || limits->least_bytes > limits->stretch_bytes
	                           ? limits->least_bytes
	                           : limits->stretch_bytes;

	*ret = (struct packing){ .transform = t,
		                 .blocks = blocks,
		                 .has_threads = limits->has_threads,
		                 .is_busy = limits->is_busy,
		                 .run_bytes = limits->run_bytes,
		                 .stretch_bytes = limits->stretch_bytes,
		                 .piece_bytes = limits->piece_bytes };
	ret->list_is_kept = places->list_is_kept;
	if (limits->slot_bytes == 0 || blocks->n > PACKING_MOST_ENTRIES || blocks->limit > INT32_MAX ||
	    blocks_dst_count(blocks) > INT32_MAX || t->count == 0 || extent_bytes(reads) == 0)
		return false;
	if ((places->dst_is_host && extent_bytes(writes) != (uint64_t)t->count * t->element) ||
	    (places->src_is_host && transform_read_bytes(t) < extent_bytes(reads) / 2))
		return false;
	set_side(&ret->dst, &blocks->dst, writes);
	set_side(&ret->src, &blocks->src, reads);
	if (places->list_is_kept && ((places->dst_is_host && is_indexed(ret, &ret->dst)) ||
	                             (places->src_is_host && is_indexed(ret, &ret->src))))
		return false;
	if (items * (places->src_is_host ? ret->src.bytes : ret->dst.bytes) < least)
		return false;
	return set_ways(ret, places, limits) && divide(ret, limits);
}

/* Returns whether threads may copy the blocks of a side on the host. */
static bool is_for_threads(const struct packing *p, const struct packing_side *side)
{
	return p->has_threads && side->bytes >= p->run_bytes;
}

/* Returns whether the job may travel packed. From host memory to host memory, the copy engine is faster than
 * a kernel only while others use the device. */
static bool may_go(const struct packing *p)
{
	const struct packing_side *sides[] = { &p->dst, &p->src };
	uint32_t on_host = 0;

	for (int i = 0; i < 2; i++) {
		on_host += sides[i]->way != PACKING_IN_PLACE;
		if (sides[i]->way == PACKING_BY_THREADS && !is_for_threads(p, sides[i]))
			return false;
	}
	return on_host == 1 || (on_host == 2 && p->has_threads);
}

static enum packing_way host_way(const struct packing *p, const struct packing_side *side)
{
	const bool packs_so = side->bytes % ALIGN == 0 || side->bytes >= p->piece_bytes;
	const bool is_long = is_in_pieces(p, side) || (!is_indexed(p, side) && has_rows(p, side));

	return packs_so && is_long ? PACKING_BY_COPIES : PACKING_BY_THREADS;
}

static void set_pitch(struct packing_side *side, bool is_plain, const struct packing_limits *limits)
{
	const uint64_t copied = COPY_SLOTS * limits->slot_bytes;

	side->pitch = is_plain ? side->bytes : divide_up_u64(side->bytes, ALIGN) * ALIGN;
	if (side->way == PACKING_BY_THREADS)
		side->chunk_bytes = limits->slot_bytes;
	else
		side->chunk_bytes = side->pitch < copied ? copied / side->pitch * side->pitch : side->pitch;
}

static bool set_ways(struct packing *p, const struct packing_places *places,
                     const struct packing_limits *limits)
{
	if (places->dst_is_host)
		p->dst.way = host_way(p, &p->dst);
	if (places->src_is_host)
		p->src.way = host_way(p, &p->src);
	p->is_plain = !p->list_is_kept && (p->dst.way != PACKING_IN_PLACE || is_in_pieces(p, &p->dst)) &&
	              (p->src.way != PACKING_IN_PLACE || is_in_pieces(p, &p->src)) &&
	              loop_nest_is_run(p->transform);
	set_pitch(&p->dst, p->is_plain, limits);
	set_pitch(&p->src, p->is_plain, limits);
	return may_go(p);
}

/* ---- Scratch memory ------------------------------------------------------------------------------------ */

/* Returns the scratch bytes for a side of `bytes` bytes, including the alignment offset before it. */
static uint64_t place_bytes(uint64_t bytes)
{
	return (bytes + 2 * ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

/* Sets the scratch bytes of both sides for stretches of this many items. Returns their sum. */
static uint64_t set_rooms(struct packing *p, uint64_t items)
{
	const bool both = p->dst.way != PACKING_IN_PLACE && p->src.way != PACKING_IN_PLACE;

	p->most_items = items;
	p->dst.room = p->src.room = 0;
	if (p->src.way != PACKING_IN_PLACE && (!p->is_plain || both))
		p->src.room = place_bytes(items * p->src.pitch);
	if (p->dst.way != PACKING_IN_PLACE && !p->is_plain)
		p->dst.room = place_bytes(items * p->dst.pitch);
	return p->dst.room + p->src.room;
}

static uint64_t pitch_of(const struct packing *p)
{
	return p->dst.pitch > p->src.pitch ? p->dst.pitch : p->src.pitch;
}

static uint64_t items_in(const struct packing *p, uint64_t bytes)
{
	const uint64_t items = bytes / pitch_of(p);

	return items > 1 ? items : 1;
}

/* Returns how many items fit into `bytes` bytes of scratch memory; 0: not even one. */
static uint64_t items_that_fit(struct packing *p, uint64_t bytes)
{
	const uint64_t one = set_rooms(p, 1), sides = (p->dst.room > 0) + (p->src.room > 0);
	const uint64_t phases = sides * 2 * ROOM_ALIGN;
	const uint64_t pitch = (p->dst.room > 0 ? p->dst.pitch : 0) + (p->src.room > 0 ? p->src.pitch : 0);

	if (bytes < one)
		return 0;
	return bytes < phases + pitch ? 1 : (bytes - phases) / pitch;
}

/* Returns the scratch bytes of the list that kernels read. */
static uint64_t list_room(const struct packing *p)
{
	struct packing_upload last;

	packing_upload(p, PACKING_SRC_LAYERS, &last);
	return p->is_plain ? 0 : place_bytes(last.at + last.size);
}

/* Divides the scratch memory that the job may use among the stretches that are to be under way at once, or
 * among fewer stretches if it is too small. Returns false if there is not enough even for one. */
static bool divide(struct packing *p, const struct packing_limits *limits)
{
	const uint64_t total = p->blocks->n * p->blocks->layers;
	uint64_t items, room;

	p->n = (uint32_t)p->blocks->n;
	p->slots = (uint32_t)min_u64(limits->slots, divide_up_u64(total, items_in(p, p->stretch_bytes)));
	if (set_rooms(p, 1) == 0) {
		p->most_items = items_in(p, p->stretch_bytes << DOUBLINGS);
		return true;
	}
	p->list_room = list_room(p);
	if (p->list_room > limits->scratch_bytes)
		return false;
	room = limits->scratch_bytes - p->list_room;
	while ((items = items_that_fit(p, room / p->slots)) == 0 && p->slots > 1)
		p->slots--;
	p->scratch_bytes = p->list_room + p->slots * set_rooms(p, min_u64(items, total));
	return items > 0;
}

/* ---- Stretches ----------------------------------------------------------------------------------------- */

bool packing_is_at_end(const struct packing *p, const struct packing_cursor *at)
{
	return p->n == 0 || at->layer == p->blocks->layers;
}

static uint64_t stretch_items(const struct packing *p, uint64_t stretches, bool is_busy)
{
	if (is_busy)
		return p->most_items;
	return min_u64(items_in(p, p->stretch_bytes << min_u64(stretches, DOUBLINGS)), p->most_items);
}

/* Returns in *ret all entries of some layers, or some entries of one layer. */
void packing_stretch_next(const struct packing *p, struct packing_cursor *at, bool is_busy,
                          struct packing_stretch *ret)
{
	const uint64_t items = stretch_items(p, at->stretches++, is_busy);

	*ret = (struct packing_stretch){
		.first = at->entry, .n = min_u64(items, p->n - at->entry), .layer = at->layer, .layers = 1
	};
	if (ret->n == p->n)
		ret->layers = (uint32_t)min_u64(items / p->n, p->blocks->layers - at->layer);
	at->entry += ret->n;
	if (at->entry < p->n)
		return;
	at->entry = 0;
	at->layer += ret->layers;
}

/* ---- The list ------------------------------------------------------------------------------------------ */

#define GROUP 64

#define PASSED UINT32_MAX
#define BEYOND (UINT32_C(1) << 31)

/* Entries are read in groups of a constant size, which the compiler can turn into fast code, because hundreds
 * of thousands of entries have to be read before the first launch. A group at the end of the list is filled
 * up with PASSED. */
struct group {
	uint64_t first; /* position in the list of the group's first number */
	uint32_t n;
	/* Numbers of blocks. PASSED, like any other number that is not below the limit, names no block. */
	uint32_t block[GROUP];
};

static void narrow_group(const uint64_t wide[GROUP], uint32_t block[GROUP])
{
	uint64_t beyond = 0;

	for (uint32_t k = 0; k < GROUP; k++) {
		block[k] = (uint32_t)le64toh(wide[k]);
		beyond |= le64toh(wide[k]);
	}
	for (uint32_t k = 0; k < GROUP && beyond >> 31; k++) {
		const uint64_t entry = le64toh(wide[k]);

		if (entry >> 31)
			block[k] = entry == UINT64_MAX ? PASSED : BEYOND;
	}
}

/* Copies the numbers before they are checked, so that the numbers that are checked are the ones that are used
 * even if a client writes to the list meanwhile. */
static void read_group(const char *list, const struct engine_blocks *blocks, struct group *group)
{
	const char *from = list + group->first * blocks->index_bytes;
	uint64_t wide[GROUP];
	void *to = blocks->index_bytes == sizeof *wide ? (void *)wide : group->block;

	group->n = (uint32_t)min_u64(GROUP, (blocks->n << blocks->pairs) - group->first);
	if (group->n == GROUP) {
		memcpy(to, from, GROUP * blocks->index_bytes);
	} else {
		memset(to, 0xff, GROUP * blocks->index_bytes);
		memcpy(to, from, group->n * blocks->index_bytes);
	}
	__asm__ volatile("" : : "r"(to) : "memory");
	if (to == wide) {
		narrow_group(wide, group->block);
		return;
	}
	for (uint32_t k = 0; k < GROUP; k++)
		group->block[k] = le32toh(group->block[k]);
}

static bool is_all_blocks(const struct group *group, uint32_t limit)
{
	uint32_t beyond = 0; /* its highest bit is set if any number is not a block's */

	for (uint32_t k = 0; k < GROUP; k++)
		beyond |= group->block[k] | (limit - 1 - (group->block[k] & INT32_MAX));
	return beyond <= INT32_MAX;
}

static void add_all(const struct group *group, uint32_t *restrict entry, uint32_t *restrict named)
{
	for (uint32_t k = 0; k < GROUP; k++)
		entry[k] = (uint32_t)group->first + k;
	memcpy(named, group->block, sizeof group->block);
}

/* Appends the entries that name a block, and counts the others. */
static void add_some(struct packing *p, const struct group *group, uint32_t *entry, uint32_t *named)
{
	struct engine_blocks *blocks = p->blocks;

	for (uint32_t k = 0; k < group->n; k++) {
		if (group->block[k] < blocks->limit) {
			entry[p->n] = (uint32_t)group->first + k;
			named[p->n++] = group->block[k];
		} else {
			blocks->passed += group->block[k] == PASSED;
			blocks->beyond += group->block[k] != PASSED;
		}
	}
}

/* Like add_some, for entries of two numbers: the block of src and the block of dst. */
static void add_pairs(struct packing *p, const struct group *group, uint32_t *dst, uint32_t *src)
{
	struct engine_blocks *blocks = p->blocks;

	for (uint32_t k = 0; k < group->n; k += 2) {
		const uint32_t from = group->block[k], to = group->block[k + 1];

		if (from < blocks->limit && to < blocks->dst_limit) {
			dst[p->n] = to;
			src[p->n++] = from;
		} else {
			const bool is_passed = from == PASSED || to == PASSED;

			blocks->passed += is_passed;
			blocks->beyond += !is_passed;
		}
	}
}

uint64_t packing_list_bytes(const struct packing *p)
{
	return 3 * p->blocks->n * sizeof(uint32_t);
}

/* Fills three arrays of blocks->n numbers each: the positions of the entries that name a block, the blocks
 * that they name and, for a list whose sides are both packed, the numbers 0, 1, 2 and so on. For pairs, the
 * first array has the blocks of dst and the second those of src. */
void packing_read(struct packing *p, const void *list, uint32_t *arrays)
{
	struct engine_blocks *blocks = p->blocks;
	uint32_t *entry = arrays, *named = arrays + blocks->n, *number = named + blocks->n;
	struct group group;

	p->n = 0;
	blocks->passed = blocks->beyond = 0;
	for (group.first = 0; group.first < blocks->n << blocks->pairs; group.first += GROUP) {
		read_group(list, blocks, &group);
		if (blocks->pairs) {
			add_pairs(p, &group, entry, named);
		} else if (is_all_blocks(&group, (uint32_t)blocks->limit)) {
			add_all(&group, entry + p->n, named + p->n);
			p->n += GROUP;
		} else {
			add_some(p, &group, entry, named);
		}
	}
	p->dst.block = blocks->scatter ? named : entry;
	p->src.block = blocks->scatter ? entry : named;
	p->dst.is_dense = !is_indexed(p, &p->dst) && p->n == blocks->n && follows(&p->dst);
	p->src.is_dense = !is_indexed(p, &p->src) && p->n == blocks->n && follows(&p->src);
	if (p->dst.way == PACKING_IN_PLACE || p->src.way == PACKING_IN_PLACE)
		return;
	for (uint32_t k = 0; k < p->n; k++)
		number[k] = k;
}

void packing_take_all(struct packing *p, uint64_t list_at, uint32_t *array)
{
	p->n = (uint32_t)p->blocks->n;
	p->list_at = list_at;
	for (uint32_t k = 0; k < p->n; k++)
		array[k] = k;
	p->dst.block = p->src.block = array;
	p->dst.is_dense = !is_indexed(p, &p->dst) && follows(&p->dst);
	p->src.is_dense = !is_indexed(p, &p->src) && follows(&p->src);
}

/* Returns the offset of a layer in bytes, modulo 2^64 because steps may be negative. */
static uint64_t layer_place(const struct engine_blocks_side *blocks, uint32_t layer)
{
	return blocks->layers ? (uint64_t)blocks->layers[layer] : layer * blocks->layer_step;
}

/* Returns whether the layers of a side have separate addresses. They may then lie in different allocations,
 * and no copy may cross from one to the next. */
static bool has_own_places(const struct packing_side *side)
{
	return side->blocks->table || side->blocks->layers;
}

/* Returns whether the blocks of all layers form a single run of bytes. */
static bool layers_follow(const struct packing *p, const struct packing_side *side)
{
	const struct engine_blocks_side *blocks = side->blocks;

	if (!side->is_dense || has_own_places(side))
		return false;
	for (uint32_t l = 1; l < p->blocks->layers; l++)
		if (layer_place(blocks, l) != layer_place(blocks, l - 1) + p->n * side->bytes)
			return false;
	return true;
}

/* Returns how many commands it takes to copy the blocks of one layer. */
static uint64_t count_pieces(const struct packing *p, const struct packing_side *side)
{
	const bool by_rows = side->way == PACKING_BY_COPIES && !p->is_plain && has_rows(p, side);
	uint64_t pieces = 1;

	if (side->is_dense)
		return 1;
	if (!follows(side) && !by_rows)
		return p->n;
	for (uint32_t k = 1; k < p->n; k++)
		pieces += side->block[k] != side->block[k - 1] + 1;
	return pieces;
}

/* Returns whether the side's pieces are long enough for the copy engine. Shorter ones suffice where a kernel
 * would otherwise have to wait for the bus, block by block. A single piece for each layer, however short,
 * suffices where that kernel would also have to wait for other processes, or if all of the side is a single
 * piece. */
static bool has_long_pieces(const struct packing *p, const struct packing_side *side)
{
	const uint64_t bytes = p->n * side->bytes, pieces = count_pieces(p, side);
	const uint64_t least = side->way == PACKING_BY_COPIES && !is_for_threads(p, side)
	                           ? p->piece_bytes / SHORTER
	                           : p->piece_bytes;

	return bytes / pieces >= least ||
	       (pieces == 1 && (p->has_threads || p->blocks->layers == 1 || layers_follow(p, side)));
}

bool packing_judge(struct packing *p, uint64_t slot_bytes)
{
	struct packing_side *sides[] = { &p->dst, &p->src };

	for (int i = 0; i < 2 && p->n > 0; i++) {
		if (sides[i]->way == PACKING_BY_COPIES && !has_long_pieces(p, sides[i])) {
			sides[i]->way = PACKING_BY_THREADS;
			sides[i]->chunk_bytes = slot_bytes;
		}
		if (sides[i]->way == PACKING_IN_PLACE && p->is_plain && !has_long_pieces(p, sides[i]))
			return false;
	}
	return may_go(p);
}

/* ---- Bytes
 * ------------------------------------------------------------------------------------------------- */

uint64_t packing_bytes(const struct packing_side *side, const struct packing_stretch *stretch)
{
	return (stretch->n * stretch->layers - 1) * side->pitch + side->bytes;
}

uint64_t packing_chunks(const struct packing_side *side, const struct packing_stretch *stretch)
{
	return divide_up_u64(packing_bytes(side, stretch), side->chunk_bytes);
}

void packing_chunk(const struct packing_side *side, const struct packing_stretch *stretch, uint64_t i,
                   uint64_t *ret_from, uint64_t *ret_to)
{
	*ret_from = i * side->chunk_bytes;
	*ret_to = min_u64(*ret_from + side->chunk_bytes, packing_bytes(side, stretch));
}

static uint64_t item_place(const struct packing_side *side, const struct packing_stretch *stretch,
                           uint64_t item)
{
	return side->block[stretch->first + item % stretch->n] * side->blocks->step +
	       layer_place(side->blocks, stretch->layer + (uint32_t)(item / stretch->n)) +
	       (uint64_t)side->low;
}

/* Returns how many items from `item` on lie one after the other without a gap. Counts no more than `most`,
 * and only items of the same layer. */
static uint64_t items_in_run(const struct packing_side *side, const struct packing_stretch *stretch,
                             uint64_t item, uint64_t most)
{
	const uint64_t first = item % stretch->n;
	const uint32_t *block = side->block + stretch->first + first;
	uint64_t n = 1;

	most = min_u64(most, stretch->n - first);
	if (side->is_dense)
		return most;
	while (n < most && block[n] == block[n - 1] + 1 && follows(side))
		n++;
	return n;
}

/* Returns the number of the first item that is not in the run of bytes that begins with `item`. The run may
 * extend over several layers, but not beyond the item that contains packed byte end - 1. */
static uint64_t piece_end(const struct packing_side *side, const struct packing_stretch *stretch,
                          uint64_t item, uint64_t end)
{
	const uint64_t items = stretch->n * stretch->layers, last = divide_up_u64(end, side->pitch);
	uint64_t place = item_place(side, stretch, item), run;

	if (side->pitch != side->bytes)
		return item + 1;
	do {
		run = items_in_run(side, stretch, item, last - item);
		item += run;
		place += run * side->bytes;
	} while (item < last && item < items && item % stretch->n == 0 && !has_own_places(side) &&
	         item_place(side, stretch, item) == place);
	return item;
}

struct packing_piece packing_next(const struct packing_side *side, const struct packing_stretch *stretch,
                                  uint64_t *at, uint64_t end)
{
	const uint64_t items = stretch->n * stretch->layers;
	uint64_t item = *at / side->pitch, within = *at % side->pitch, stop;

	if (within >= side->bytes) {
		item++;
		within = 0;
	}
	struct packing_piece piece = { .at = item * side->pitch + within };

	*at = end;
	if (piece.at >= end || item >= items)
		return (struct packing_piece){ .at = end };
	piece.place = (int64_t)(item_place(side, stretch, item) + within);
	stop = (piece_end(side, stretch, item, end) - 1) * side->pitch + side->bytes;
	*at = min_u64(stop, end);
	piece.bytes = *at - piece.at;
	return piece;
}

struct packing_rows packing_next_rows(const struct packing *p, const struct packing_side *side,
                                      const struct packing_stretch *stretch, uint64_t *at, uint64_t end)
{
	struct packing_rows ret = { .first = packing_next(side, stretch, at, end), .n = 1 };
	const uint64_t item = ret.first.at / side->pitch, entry = stretch->first + item % stretch->n;
	const uint64_t in_layer = stretch->n - item % stretch->n;

	if (ret.first.bytes != side->bytes || !has_rows(p, side))
		return ret;
	ret.step = side->blocks->step;
	while (ret.n < in_layer && (item + ret.n) * side->pitch + side->bytes <= end &&
	       side->block[entry + ret.n] == side->block[entry + ret.n - 1] + 1)
		ret.n++;
	*at = (item + ret.n - 1) * side->pitch + side->bytes;
	return ret;
}

/* ---- The kernel's list --------------------------------------------------------------------------------- */

static uint64_t phase(const struct packing_side *side)
{
	return (uint64_t)side->low % ALIGN;
}

uint64_t packing_src_place(const struct packing *p, uint64_t scratch, uint32_t i)
{
	return scratch + p->list_room + i * (p->src.room + p->dst.room) + phase(&p->src);
}

uint64_t packing_dst_place(const struct packing *p, uint64_t scratch, uint32_t i)
{
	if (p->dst.room == 0)
		return packing_src_place(p, scratch, i);
	return scratch + p->list_room + i * (p->src.room + p->dst.room) + p->src.room + phase(&p->dst);
}

static int64_t list_side(const struct packing_side *side, const struct packing_stretch *stretch,
                         struct engine_blocks_side *ret)
{
	if (side->way != PACKING_IN_PLACE) {
		*ret = (struct engine_blocks_side){ .step = side->pitch,
			                            .layer_step = stretch->n * side->pitch };
		return -side->low;
	}
	*ret = *side->blocks;
	ret->table = NULL; /* because it covers all layers, and the stretch may have only some */
	if (ret->layers) {
		ret->layers += stretch->layer;
		return 0;
	}
	return (int64_t)(stretch->layer * ret->layer_step);
}

/* Returns the side whose blocks the list for the kernel names; NULL: both sides are packed. */
static const struct packing_side *listed_side(const struct packing *p)
{
	if (p->dst.way == PACKING_IN_PLACE)
		return &p->dst;
	return p->src.way == PACKING_IN_PLACE ? &p->src : NULL;
}

static struct packing_upload index_upload(const struct packing *p)
{
	const struct packing_side *side = listed_side(p);
	const uint32_t *arrays = p->blocks->scatter ? p->src.block : p->dst.block;
	struct packing_upload ret = { .size = p->list_is_kept ? 0 : p->n * sizeof *arrays };

	if (side)
		ret.bytes = side->block;
	else if (arrays)
		ret.bytes = arrays + 2 * p->blocks->n; /* the numbers 0, 1, 2 and so on */
	return ret;
}

static struct packing_upload layers_upload(const struct packing *p, const struct packing_side *side)
{
	const bool has = side->way == PACKING_IN_PLACE && side->blocks->layers;

	return (struct packing_upload){ .bytes = side->blocks->layers,
		                        .size = has ? p->blocks->layers * sizeof *side->blocks->layers : 0 };
}

void packing_upload(const struct packing *p, enum packing_part part, struct packing_upload *ret)
{
	const struct packing_upload parts[PACKING_PARTS] = { index_upload(p), layers_upload(p, &p->dst),
		                                             layers_upload(p, &p->src) };
	uint64_t at = 0;

	for (uint32_t i = 0; i < part; i++)
		at += divide_up_u64(parts[i].size, ALIGN) * ALIGN;
	*ret = parts[part];
	ret->at = at;
}

static uint64_t layers_at(const struct packing *p, const struct packing_stretch *stretch,
                          enum packing_part part, uint64_t scratch)
{
	struct packing_upload upload;

	packing_upload(p, part, &upload);
	return upload.size > 0 ? scratch + upload.at + stretch->layer * sizeof(int64_t) : 0;
}

void packing_launch(const struct packing *p, const struct packing_stretch *stretch, uint64_t scratch,
                    struct packing_launch *ret)
{
	const struct packing_side *side = listed_side(p);

	ret->blocks = (struct engine_blocks){ .n = stretch->n,
		                              .layers = stretch->layers,
		                              .scatter = p->dst.way == PACKING_IN_PLACE,
		                              .index_bytes = sizeof(uint32_t),
		                              .limit = stretch->n };
	ret->dst = list_side(&p->dst, stretch, &ret->blocks.dst);
	ret->src = list_side(&p->src, stretch, &ret->blocks.src);
	if (side)
		ret->blocks.limit =
		    side == &p->dst ? blocks_dst_count(p->blocks) : blocks_src_count(p->blocks);
	ret->index = scratch + (side ? stretch->first : 0) * sizeof(uint32_t);
	if (p->list_is_kept) {
		ret->blocks.index_bytes = p->blocks->index_bytes;
		ret->index = p->list_at + stretch->first * p->blocks->index_bytes;
	}
	ret->dst_layers = layers_at(p, stretch, PACKING_DST_LAYERS, scratch);
	ret->src_layers = layers_at(p, stretch, PACKING_SRC_LAYERS, scratch);
}
