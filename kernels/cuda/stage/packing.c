/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what of a list of blocks is packed, divides it into stretches, and says where the bytes of each
 * lie.
 */
#include "packing.h"

#include <endian.h>

#include "kernels/nest/loop_nest.h"
#include "kernels/nest/narrow.h"
#include "proto/arithmetic.h"

#define ALIGN        16
#define ROOM_ALIGN   256       /* of scratch memory for a side */
#define MOST_ENTRIES 4096      /* of a stretch: as many as go with a launch */
#define COPY_BYTES   (4 << 20) /* of a chunk that the copy engine takes as it is */

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

/* Whether blocks of a side follow each other without a gap where its entries do. */
static bool follows(const struct packing_side *side)
{
	return side->blocks->step == side->bytes;
}

static bool is_indexed(const struct packing *p, const struct packing_side *side)
{
	return (side == &p->dst) == p->blocks->scatter;
}

/* Whether the copy engine is likely to find long pieces; the list decides. */
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

	*ret = (struct packing){ .transform = t, .blocks = blocks, .piece_bytes = limits->piece_bytes };
	if (limits->slot_bytes == 0 || !places->list_is_host || blocks->n > PACKING_MOST_ENTRIES ||
	    blocks->limit > INT32_MAX || t->count == 0 || extent_bytes(reads) == 0)
		return false;
	if ((places->dst_is_host && (extent_bytes(writes) != (uint64_t)t->count * t->element ||
	                             extent_bytes(writes) < limits->run_bytes)) ||
	    (places->src_is_host &&
	     (transform_read_bytes(t) < extent_bytes(reads) / 2 || extent_bytes(reads) < limits->run_bytes)))
		return false;
	set_side(&ret->dst, &blocks->dst, writes);
	set_side(&ret->src, &blocks->src, reads);
	if (items * (places->src_is_host ? ret->src.bytes : ret->dst.bytes) < limits->least_bytes)
		return false;
	return set_ways(ret, places, limits) && divide(ret, limits);
}

static enum packing_way host_way(const struct packing *p, const struct packing_side *side)
{
	const bool packs_so = side->bytes % ALIGN == 0 || side->bytes >= p->piece_bytes;

	return packs_so && is_in_pieces(p, side) ? PACKING_BY_COPIES : PACKING_BY_THREADS;
}

static void set_pitch(struct packing_side *side, bool is_plain, const struct packing_limits *limits)
{
	side->pitch = is_plain ? side->bytes : divide_up_u64(side->bytes, ALIGN) * ALIGN;
	side->chunk_bytes = side->way == PACKING_BY_THREADS ? limits->slot_bytes : COPY_BYTES;
}

static bool set_ways(struct packing *p, const struct packing_places *places,
                     const struct packing_limits *limits)
{
	if (places->dst_is_host)
		p->dst.way = host_way(p, &p->dst);
	if (places->src_is_host)
		p->src.way = host_way(p, &p->src);
	p->is_plain = (p->dst.way != PACKING_IN_PLACE || is_in_pieces(p, &p->dst)) &&
	              (p->src.way != PACKING_IN_PLACE || is_in_pieces(p, &p->src)) &&
	              loop_nest_is_run(p->transform);
	set_pitch(&p->dst, p->is_plain, limits);
	set_pitch(&p->src, p->is_plain, limits);
	return p->dst.way != PACKING_IN_PLACE || p->src.way != PACKING_IN_PLACE;
}

/* ---- Stretches
 * --------------------------------------------------------------------------------------------- */

/* So many bytes with a phase before them. */
static uint64_t place_bytes(uint64_t bytes)
{
	return (bytes + 2 * ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

static void set_rooms(struct packing *p)
{
	const uint64_t items = p->most_entries * p->most_layers;
	const bool both = p->dst.way != PACKING_IN_PLACE && p->src.way != PACKING_IN_PLACE;

	p->dst.room = p->src.room = 0;
	if (p->src.way != PACKING_IN_PLACE && (!p->is_plain || both))
		p->src.room = place_bytes(items * p->src.pitch);
	if (p->dst.way != PACKING_IN_PLACE && !p->is_plain)
		p->dst.room = place_bytes(items * p->dst.pitch);
}

static uint64_t count_stretches(const struct packing *p, uint64_t n)
{
	return divide_up_u64(n, p->most_entries) * divide_up_u64(p->blocks->layers, p->most_layers);
}

static bool divide_into(struct packing *p, uint64_t bytes)
{
	const uint64_t pitch = p->dst.pitch > p->src.pitch ? p->dst.pitch : p->src.pitch;
	const uint64_t items = bytes / pitch > 1 ? bytes / pitch : 1, n = p->blocks->n;

	p->most_entries = min_u64(min_u64(items, MOST_ENTRIES), n);
	p->most_layers = 1;
	if (p->most_entries == n)
		p->most_layers = (uint32_t)min_u64(items / n, p->blocks->layers);
	set_rooms(p);
	return items > 1;
}

/* Shorter ones, until as many as are to be under way fit into scratch memory; or else fewer of them. */
static bool divide(struct packing *p, const struct packing_limits *limits)
{
	uint64_t bytes = limits->stretch_bytes;
	bool can_shrink = divide_into(p, bytes);
	uint64_t room;

	p->slots = PACKING_MOST_SLOTS;
	while ((room = p->dst.room + p->src.room) * p->slots > limits->scratch_bytes) {
		if (can_shrink)
			can_shrink = divide_into(p, bytes /= 2);
		else if (p->slots > 1)
			p->slots--;
		else
			return false;
	}
	p->slots = (uint32_t)min_u64(p->slots, count_stretches(p, p->blocks->n));
	p->scratch_bytes = room * p->slots;
	return true;
}

void packing_stretch_at(const struct packing *p, uint64_t i, struct packing_stretch *ret)
{
	const uint64_t groups = divide_up_u64(p->blocks->layers, p->most_layers);

	ret->first = i / groups * p->most_entries;
	ret->n = min_u64(p->most_entries, p->n - ret->first);
	ret->layer = (uint32_t)(i % groups) * p->most_layers;
	ret->layers = (uint32_t)min_u64(p->most_layers, p->blocks->layers - ret->layer);
}

/* ---- The list
 * ---------------------------------------------------------------------------------------------- */

/* At any address; volatile, so that what is checked is what is used. */
typedef volatile uint32_t __attribute__((aligned(1), may_alias)) entry4;
typedef volatile uint64_t __attribute__((aligned(1), may_alias)) entry8;

static int64_t read_entry(const char *list, uint8_t bytes, uint64_t i)
{
	const void *at = list + i * bytes;

	return bytes == 4 ? (int32_t)le32toh(*(const entry4 *)at) : (int64_t)le64toh(*(const entry8 *)at);
}

uint64_t packing_list_bytes(const struct packing *p)
{
	return 3 * p->blocks->n * sizeof(uint32_t);
}

/* Three arrays: entries that name a block, the block of each, and the numbers from 0 on for a list between
 * two sides that are packed. */
void packing_read(struct packing *p, const void *list, uint32_t *arrays)
{
	struct engine_blocks *blocks = p->blocks;
	uint32_t *entry = arrays, *named = arrays + blocks->n, *number = named + blocks->n;

	p->n = 0;
	blocks->passed = blocks->beyond = 0;
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t block = read_entry(list, blocks->index_bytes, i);

		number[i] = (uint32_t)i;
		if (block >= 0 && (uint64_t)block < blocks->limit) {
			entry[p->n] = (uint32_t)i;
			named[p->n++] = (uint32_t)block;
		} else {
			blocks->passed += block == -1;
			blocks->beyond += block != -1;
		}
	}
	p->dst.block = blocks->scatter ? named : entry;
	p->src.block = blocks->scatter ? entry : named;
	p->stretches = count_stretches(p, p->n);
}

/* How many pieces the blocks of a layer are. */
static uint64_t count_pieces(const struct packing *p, const struct packing_side *side)
{
	uint64_t pieces = 1;

	if (!follows(side))
		return p->n;
	for (uint32_t k = 1; k < p->n; k++)
		pieces += side->block[k] != side->block[k - 1] + 1;
	return pieces;
}

static bool has_long_pieces(const struct packing *p, const struct packing_side *side)
{
	const uint64_t bytes = p->n * side->bytes, pieces = count_pieces(p, side);

	return pieces == 1 || bytes / pieces >= p->piece_bytes;
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
	return true;
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

/* Modulo 2^64, as steps may be negative. */
static uint64_t layer_place(const struct engine_blocks_side *blocks, uint32_t layer)
{
	return blocks->layers ? (uint64_t)blocks->layers[layer] : layer * blocks->layer_step;
}

static uint64_t item_place(const struct packing_side *side, const struct packing_stretch *stretch,
                           uint64_t item)
{
	return side->block[stretch->first + item % stretch->n] * side->blocks->step +
	       layer_place(side->blocks, stretch->layer + (uint32_t)(item / stretch->n)) +
	       (uint64_t)side->low;
}

struct packing_piece packing_next(const struct packing_side *side, const struct packing_stretch *stretch,
                                  uint64_t *at, uint64_t end)
{
	const uint64_t items = stretch->n * stretch->layers;
	uint64_t item = *at / side->pitch, within = *at % side->pitch, place, stop;

	if (within >= side->bytes) {
		item++;
		within = 0;
	}
	struct packing_piece piece = { .at = item * side->pitch + within };

	*at = end;
	if (piece.at >= end || item >= items)
		return (struct packing_piece){ .at = end };
	place = item_place(side, stretch, item);
	piece.place = (int64_t)(place + within);
	stop = item * side->pitch + side->bytes;
	while (stop < end && side->pitch == side->bytes && ++item < items) {
		const uint64_t next = item_place(side, stretch, item);

		if (next != place + side->bytes || (side->blocks->table && item % stretch->n == 0))
			break;
		place = next;
		stop += side->bytes;
	}
	*at = min_u64(stop, end);
	piece.bytes = *at - piece.at;
	return piece;
}

/* ---- The kernel's list
 * ------------------------------------------------------------------------------------- */

static uint64_t phase(const struct packing_side *side)
{
	return (uint64_t)side->low % ALIGN;
}

uint64_t packing_src_place(const struct packing *p, uint64_t scratch, uint32_t i)
{
	return scratch + i * (p->src.room + p->dst.room) + phase(&p->src);
}

uint64_t packing_dst_place(const struct packing *p, uint64_t scratch, uint32_t i)
{
	if (p->dst.room == 0)
		return packing_src_place(p, scratch, i);
	return scratch + i * (p->src.room + p->dst.room) + p->src.room + phase(&p->dst);
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
	ret->table = NULL; /* it is of all layers */
	if (ret->layers) {
		ret->layers += stretch->layer;
		return 0;
	}
	return (int64_t)(stretch->layer * ret->layer_step);
}

void packing_list(const struct packing *p, const struct packing_stretch *stretch, struct engine_blocks *ret,
                  int64_t *ret_dst, int64_t *ret_src)
{
	const struct engine_blocks *blocks = p->blocks;
	const bool scatter = p->dst.way == PACKING_IN_PLACE;
	const struct packing_side *side = scatter ? &p->dst : &p->src;

	*ret = (struct engine_blocks){ .n = stretch->n,
		                       .layers = stretch->layers,
		                       .scatter = scatter,
		                       .index_bytes = sizeof(uint32_t) };
	*ret_dst = list_side(&p->dst, stretch, &ret->dst);
	*ret_src = list_side(&p->src, stretch, &ret->src);
	if (side->way == PACKING_IN_PLACE) {
		ret->limit = is_indexed(p, side) ? blocks->limit : blocks->n;
		ret->index = side->block + stretch->first;
	} else {
		const uint32_t *arrays = blocks->scatter ? p->src.block : p->dst.block;

		ret->limit = stretch->n;
		ret->index = arrays + 2 * blocks->n; /* numbers */
	}
}
