/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a job into rounds, and decides which of their parts go through scratch memory. */
#include "staging.h"

#include <stdlib.h>

#include "kernels/nest/narrow.h"
#include "proto/arithmetic.h"

/* Rows that the copy engine copies should have ROW_GOOD times the least number of bytes. Rounds are enlarged
 * until rows are that long, but only while at least ROUNDS_GOOD rounds remain, because nothing runs beside
 * the first one coming in or the last one going out. A round takes at most MOST_ROW_COPIES commands that copy
 * rows. */
#define ROW_GOOD        4
#define ROUNDS_GOOD     16
#define MOST_ROW_COPIES 64
#define MOST_PITCH      INT32_MAX /* largest pitch that the driver takes */

static void choose_ways(struct staging *s, enum staging_place dst, enum staging_place src, uint64_t direct);
static void divide(struct staging *s, const struct staging_limits *limits);
static void cut(struct staging *s, uint64_t round_bytes);
static void measure(struct staging *s);
static uint64_t src_row(const struct staging *s, uint64_t *ret_bytes);
static uint64_t dst_row(const struct staging *s, uint64_t *ret_bytes);
static void try_tiles(struct staging *s, const struct staging_limits *limits);
static void narrow_to_round(const struct staging *s, uint64_t i, struct staging_round *ret);
static void fit(struct staging *s, const struct staging_limits *limits);
static void set_direct(struct staging *s);
static bool init_run(struct staging *s, enum staging_place dst, enum staging_place src,
                     const struct staging_limits *limits);

static uint64_t extent_bytes(struct tensor_extent extent)
{
	return (uint64_t)(extent.high - extent.low);
}

/* Returns the scratch bytes for a part of `bytes` bytes, whatever its offset modulo STAGING_ALIGN. */
static uint64_t place_bytes(uint64_t bytes)
{
	return (bytes + 2 * STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
}

void staging_init(struct staging *ret, const struct transform *transform, const struct plan *plan,
                  enum staging_place dst, enum staging_place src, const struct staging_limits *limits)
{
	*ret = (struct staging){ .transform = transform, .plan = plan, .row_bytes = limits->row_bytes };
	if (transform->count > 0)
		set_direct(ret);
	if (transform->count == 0 || (dst == STAGING_ON_DEVICE && src == STAGING_ON_DEVICE) ||
	    init_run(ret, dst, src, limits))
		return;
	choose_ways(ret, dst, src, limits->direct_bytes);
	if (ret->src == STAGING_DIRECT && ret->dst == STAGING_DIRECT)
		return;
	divide(ret, limits);
	fit(ret, limits);
}

static void set_direct(struct staging *s)
{
	s->src = s->dst = STAGING_DIRECT;
	s->rounds = s->slots = 1;
	s->n_axes = 0;
	s->src_bytes = s->dst_bytes = s->scratch_bytes = 0;
}

void staging_init_direct(struct staging *ret, bool any)
{
	*ret = (struct staging){ .src = STAGING_DIRECT };
	if (any)
		set_direct(ret);
}

void staging_init_packed(struct staging *ret, const struct packing *packing)
{
	staging_init_direct(ret, true);
	ret->is_packed = true;
	ret->packing = *packing;
	ret->scratch_bytes = packing->scratch_bytes;
}

static bool is_large(struct tensor_extent extent, uint64_t direct)
{
	return extent_bytes(extent) > direct;
}

static void choose_ways(struct staging *s, enum staging_place dst, enum staging_place src, uint64_t direct)
{
	const struct transform *t = s->transform;
	struct tensor_extent reads = transform_reads(t), writes = transform_writes(t);

	if (src == STAGING_ON_HOST && is_large(reads, direct))
		s->src = transform_read_bytes(t) >= extent_bytes(reads) / 2 ? STAGING_ROUND : STAGING_STRIPE;
	if (dst == STAGING_ON_HOST && is_large(writes, direct))
		s->dst =
		    extent_bytes(writes) == (uint64_t)t->count * t->element ? STAGING_ROUND : STAGING_STRIPE;
}

/* ---- Rounds ------------------------------------------------------------------------------------------ */

/* Returns how many bytes apart the indices of axis d lie on the side that is divided into contiguous parts:
 * the destination if it is taken out, otherwise the source. */
static int64_t reach(const struct staging *s, int d)
{
	const struct transform_axis *axis = &s->transform->axis[d];
	return llabs(s->dst == STAGING_DIRECT ? axis->src_stride : axis->dst_stride);
}

/* Lists the axes that have more than one index, the one with the largest stride first. Returns their
 * number. */
static int sort_axes(const struct staging *s, int8_t *ret)
{
	int n = 0;

	for (int d = 0; d < s->transform->rank; d++) {
		int i = n;

		if (s->transform->axis[d].extent == 1)
			continue;
		for (n++; i > 0 && reach(s, ret[i - 1]) < reach(s, d); i--)
			ret[i] = ret[i - 1];
		ret[i] = (int8_t)d;
	}
	return n;
}

/* Divides an axis into parts of about the same size, each of no more than `most` indices. Returns how many
 * indices the largest part has. */
static uint64_t cut_axis(struct staging *s, int8_t d, int64_t most)
{
	const int64_t extent = s->transform->axis[d].extent;
	const int64_t step = divide_up_i64(extent, divide_up_i64(extent, most));

	s->axis[s->n_axes] = d;
	s->step[s->n_axes++] = step;
	s->rounds *= (uint64_t)divide_up_i64(extent, step);
	return (uint64_t)step;
}

static void cut(struct staging *s, uint64_t round_bytes)
{
	const struct transform *t = s->transform;
	uint64_t bytes = (uint64_t)t->count * t->element;
	int8_t order[TENSOR_MAX_RANK];
	int n = sort_axes(s, order);

	for (int i = 0; i < n && bytes > round_bytes && transform_can_narrow(t, order[i]); i++) {
		int64_t extent = t->axis[order[i]].extent;

		bytes /= (uint64_t)extent;
		bytes *= cut_axis(s, order[i], bytes < round_bytes ? (int64_t)(round_bytes / bytes) : 1);
	}
}

static void divide_into(struct staging *s, enum staging_way dst, enum staging_way src, uint64_t round_bytes)
{
	s->dst = dst;
	s->src = src;
	s->rounds = 1;
	s->n_axes = 0;
	cut(s, round_bytes);
	measure(s);
}

/* Divides the job into rounds of round_bytes, or of more bytes if that makes rows long enough. */
static void divide(struct staging *s, const struct staging_limits *limits)
{
	const uint64_t bytes = (uint64_t)s->transform->count * s->transform->element;
	const enum staging_way dst = s->dst, src = s->src;
	uint64_t round = limits->round_bytes, row = 0, ignored;

	divide_into(s, dst, src, round);
	while ((s->src == STAGING_STRIPE || s->src == STAGING_WHOLE) && s->row_bytes > 0 &&
	       (row = src_row(s, &ignored)) > 0 && row < ROW_GOOD * limits->row_bytes &&
	       2 * round <= bytes / ROUNDS_GOOD && STAGING_MOST_SLOTS * 4 * round <= limits->scratch_bytes)
		divide_into(s, dst, src, round *= 2);
	if (s->src == STAGING_WHOLE)
		divide_into(s, dst, src, limits->round_bytes);
	if (s->dst == STAGING_ROUND && (s->src == STAGING_WHOLE || s->src == STAGING_STRIPE) &&
	    (s->src == STAGING_WHOLE || src_row(s, &ignored) < limits->tile_row_bytes))
		try_tiles(s, limits);
}

/* Returns the maximum number of indices of axis d that a round has. */
static int64_t round_extent(const struct staging *s, int d)
{
	for (int i = 0; i < s->n_axes; i++)
		if (s->axis[i] == d)
			return s->step[i];
	return s->transform->axis[d].extent;
}

static bool is_for_copies(const struct row_box *box)
{
	uint64_t copies = 1;

	for (int d = 1; d < box->rank; d++)
		copies *= box->axis[d].n;
	return copies <= MOST_ROW_COPIES && (box->rank == 0 || box->axis[0].stride <= MOST_PITCH);
}

/* Returns the length of the source's rows in the first round, which is the largest, and sets *ret_bytes to
 * the bytes of all of them. Returns 0 if the copy engine cannot copy them, or if an axis that is divided has
 * a border. */
static uint64_t src_row(const struct staging *s, uint64_t *ret_bytes)
{
	struct staging_round first = { .transform = *s->transform };
	struct row_box box;

	for (int a = 0; a < s->n_axes; a++)
		if (s->transform->axis[s->axis[a]].source != s->transform->axis[s->axis[a]].extent)
			return 0;
	narrow_to_round(s, 0, &first);
	if (!row_box_init_src(&box, &first.transform) || !is_for_copies(&box))
		return 0;
	*ret_bytes = row_box_bytes(&box);
	return box.row_bytes;
}

static uint64_t dst_row(const struct staging *s, uint64_t *ret_bytes)
{
	struct staging_round first = { .transform = *s->transform };
	struct row_box box;

	narrow_to_round(s, 0, &first);
	if (!row_box_init_dst(&box, &first.transform) || !is_for_copies(&box))
		return 0;
	*ret_bytes = row_box_bytes(&box);
	return box.row_bytes;
}

/* Decides how the source is brought in if it is to come by rows, or if the byte ranges that rounds read
 * overlap a lot. It comes by rows if these are long enough. Otherwise it is used in place in the first case,
 * and comes as a whole in the second. Sets src_bytes. bytes is the size of the largest round's byte range. */
static void measure_src(struct staging *s, uint64_t bytes)
{
	const uint64_t whole = extent_bytes(transform_reads(s->transform));
	uint64_t rows = 0;

	if (s->src == STAGING_STRIPE ||
	    (s->src == STAGING_ROUND &&
	     bytes > whole / s->rounds + whole / s->rounds / 2 + s->transform->element)) {
		const bool has_rows = s->row_bytes > 0 && src_row(s, &rows) >= s->row_bytes;

		bytes = has_rows ? rows : whole;
		s->src = has_rows                   ? STAGING_STRIPE
		         : s->src == STAGING_STRIPE ? STAGING_DIRECT
		                                    : STAGING_WHOLE;
	}
	s->src_bytes = s->src == STAGING_DIRECT ? 0 : place_bytes(bytes);
}

static void measure_dst(struct staging *s, uint64_t bytes)
{
	if (s->dst == STAGING_STRIPE && (s->row_bytes == 0 || dst_row(s, &bytes) < s->row_bytes))
		s->dst = STAGING_DIRECT;
	s->dst_bytes = s->dst == STAGING_DIRECT ? 0 : place_bytes(bytes);
}

/* Computes the scratch bytes of the largest round's parts, and the number of slots. */
static void measure(struct staging *s)
{
	const struct transform *t = s->transform;
	uint64_t src = t->element, dst = t->element;

	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		int64_t n = round_extent(s, d), source = min_i64(n, axis->source);

		dst += (uint64_t)((n - 1) * llabs(axis->dst_stride));
		if (source > 0)
			src += (uint64_t)((source - 1) * llabs(axis->src_stride));
	}
	measure_src(s, src);
	measure_dst(s, dst);
	s->slots = s->rounds < STAGING_MOST_SLOTS ? (uint32_t)s->rounds : STAGING_MOST_SLOTS;
}

static uint64_t scratch_needed(const struct staging *s)
{
	uint64_t src = s->src == STAGING_WHOLE ? s->src_bytes : s->slots * s->src_bytes;
	return src + s->slots * s->dst_bytes;
}

/* Makes the job fit into the scratch memory: with fewer slots or, if that does not suffice, with one side or
 * both used where they lie. */
static void fit(struct staging *s, const struct staging_limits *limits)
{
	while (scratch_needed(s) > limits->scratch_bytes) {
		if (s->slots > 1) {
			s->slots--;
		} else if (s->src != STAGING_DIRECT && s->src_bytes >= s->dst_bytes) {
			s->src = STAGING_DIRECT;
			s->src_bytes = 0;
			s->slots = s->rounds < STAGING_MOST_SLOTS ? (uint32_t)s->rounds : STAGING_MOST_SLOTS;
		} else {
			set_direct(s);
			return;
		}
	}
	s->scratch_bytes = scratch_needed(s);
	if (s->scratch_bytes == 0)
		set_direct(s);
}

static void narrow_to_round(const struct staging *s, uint64_t i, struct staging_round *ret)
{
	for (int a = s->n_axes - 1; a >= 0; a--) {
		int64_t extent = s->transform->axis[s->axis[a]].extent;
		int64_t step = s->step[a];
		uint64_t parts = (uint64_t)divide_up_i64(extent, step);
		int64_t first = (int64_t)(i % parts) * step;

		i /= parts;
		ret->dst_offset +=
		    transform_narrow(&ret->transform, s->axis[a], first, min_i64(step, extent - first));
	}
}

void staging_round(const struct staging *s, uint64_t i, struct staging_round *ret)
{
	const struct tma_route_plan *tma = &s->plan->tma;

	ret->dst_offset = 0;
	if (s->run) {
		int64_t first = (int64_t)i * s->run_step, n = min_i64(s->run_step, tma->dim[0].n - first);

		ret->reads.low = tma->src_offset + first;
		ret->reads.high = ret->reads.low + n;
		ret->writes.low = tma->dst_offset + first;
		ret->writes.high = ret->writes.low + n;
		return;
	}
	ret->transform = *s->transform;
	narrow_to_round(s, i, ret);
	ret->reads = transform_reads(&ret->transform);
	ret->writes = transform_writes(&ret->transform);
	ret->writes.low += ret->dst_offset;
	ret->writes.high += ret->dst_offset;
	if (s->src == STAGING_STRIPE && row_box_init_src(&ret->src_box, &ret->transform))
		row_box_pack_src(&ret->transform);
	if (s->dst == STAGING_STRIPE && row_box_init_dst(&ret->dst_box, &ret->transform))
		row_box_pack_dst(&ret->transform);
}

/* ---- Tiles ------------------------------------------------------------------------------------------- */

/* Returns the axis of a tile that is to be halved: of those that have no border and still have several
 * indices in the tile (n[d] of axis d), the one with the largest stride on the given side. -1: there is
 * none. */
static int farthest(const struct transform *t, const int64_t *n, bool of_src)
{
	int64_t most = -1;
	int ret = -1;

	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		const int64_t stride = llabs(of_src ? axis->src_stride : axis->dst_stride);

		if (n[d] > 1 && axis->source == axis->extent && stride > most) {
			most = stride;
			ret = d;
		}
	}
	return ret;
}

static void set_tile(struct staging *s, const int64_t *n)
{
	s->rounds = 1;
	s->n_axes = 0;
	for (int8_t d = 0; d < s->transform->rank; d++)
		if (n[d] < s->transform->axis[d].extent)
			cut_axis(s, d, n[d]);
}

/* Divides the job into tiles of n[d] indices of each axis d. Returns the length of the source's rows in such
 * a tile or that of the destination's, whichever is shorter. */
static uint64_t tile_row(struct staging *s, const int64_t *n)
{
	uint64_t ignored;

	set_tile(s, n);
	return min_u64(src_row(s, &ignored), dst_row(s, &ignored));
}

/* Halves the tile along one of two axes (farthest), whichever leaves the shorter of the two sides' rows
 * (tile_row) longer. Returns the length of those rows, 0 if the tile cannot be halved. If both choices are
 * equal, shortens the source's rows, because the destination's take more of the bus. */
static uint64_t halve(struct staging *s, int64_t *n)
{
	const int side[] = { farthest(s->transform, n, false), farthest(s->transform, n, true) };
	uint64_t row[2] = { 0, 0 };

	for (int i = 0; i < 2 && side[i] >= 0; i++) {
		const int64_t whole = n[side[i]];

		n[side[i]] = divide_up_i64(whole, 2);
		row[i] = tile_row(s, n);
		n[side[i]] = whole;
	}
	const int best = row[1] > row[0];
	if (row[best] > 0)
		n[side[best]] = divide_up_i64(n[side[best]], 2);
	return row[best];
}

/* Tries to divide the job into tiles, but not if there would be few of them, because nothing runs beside the
 * first tile coming in or the last one going out. */
static void try_tiles(struct staging *s, const struct staging_limits *limits)
{
	const struct transform *t = s->transform;
	const uint64_t bytes = (uint64_t)t->count * t->element;
	struct staging tiles = *s;
	int64_t n[TENSOR_MAX_RANK];
	uint64_t tile = bytes, row = UINT64_MAX;

	if (limits->tile_row_bytes == 0 || limits->tile_bytes > bytes / ROUNDS_GOOD ||
	    STAGING_MOST_SLOTS * 2 * place_bytes(limits->tile_bytes) > limits->scratch_bytes)
		return;
	for (int d = 0; d < t->rank; d++)
		n[d] = t->axis[d].extent;
	while (tile > limits->tile_bytes && row >= limits->tile_row_bytes) {
		row = halve(&tiles, n);
		tile = t->element;
		for (int d = 0; d < t->rank; d++)
			tile *= (uint64_t)n[d];
	}
	if (row < limits->tile_row_bytes)
		return;
	set_tile(&tiles, n);
	tiles.src = tiles.dst = STAGING_STRIPE;
	measure(&tiles);
	*s = tiles;
}

/* ---- Runs -------------------------------------------------------------------------------------------- */

/* Plans a job whose two sides are each one run of bytes. Returns false if they are not, or if the run is too
 * short. From host memory to host memory, the bytes pass through a slot, because otherwise a kernel would
 * copy them, piece by piece. */
static bool init_run(struct staging *s, enum staging_place dst, enum staging_place src,
                     const struct staging_limits *limits)
{
	const struct tma_route_plan *tma = &s->plan->tma;
	bool over = dst == STAGING_ON_HOST && src == STAGING_ON_HOST;
	uint64_t bytes = (uint64_t)tma->dim[0].n, step = limits->round_bytes;

	if (tma->strategy != STRATEGY_memcpy || tma->border_rank > 0 || bytes <= limits->direct_bytes ||
	    (over && limits->scratch_bytes / STAGING_MOST_SLOTS <= 2 * STAGING_ALIGN))
		return false;
	if (over && STAGING_MOST_SLOTS * place_bytes(step) > limits->scratch_bytes)
		step = limits->scratch_bytes / STAGING_MOST_SLOTS - 2 * STAGING_ALIGN;
	s->run = true;
	s->run_step = (int64_t)step;
	s->rounds = (bytes - 1) / step + 1;
	s->slots = s->rounds < STAGING_MOST_SLOTS ? (uint32_t)s->rounds : STAGING_MOST_SLOTS;
	if (over) {
		s->src = s->dst = STAGING_ROUND;
		s->src_bytes = place_bytes(step);
		s->scratch_bytes = s->slots * s->src_bytes;
	}
	return true;
}

/* ---- Places ------------------------------------------------------------------------------------------ */

static uint64_t with_phase_of(uint64_t place, uint64_t address)
{
	return place + address % STAGING_ALIGN;
}

/* A whole source lies before the slots and takes no room in them. */
static uint64_t slot_src_bytes(const struct staging *s)
{
	return s->src == STAGING_WHOLE ? 0 : s->src_bytes;
}

uint64_t staging_slot_bytes(const struct staging *s)
{
	return slot_src_bytes(s) + s->dst_bytes;
}

uint64_t staging_slot_place(const struct staging *s, uint64_t scratch, uint64_t i)
{
	return scratch + (s->src_bytes - slot_src_bytes(s)) + i % s->slots * staging_slot_bytes(s);
}

uint64_t staging_src_place(const struct staging *s, uint64_t scratch, uint64_t i, uint64_t address)
{
	const uint64_t place = s->src == STAGING_WHOLE ? scratch : staging_slot_place(s, scratch, i);

	return s->src == STAGING_STRIPE ? place : with_phase_of(place, address);
}

uint64_t staging_dst_place(const struct staging *s, uint64_t scratch, uint64_t i, uint64_t address)
{
	const uint64_t place = staging_slot_place(s, scratch, i) + slot_src_bytes(s);

	return s->dst == STAGING_STRIPE ? place : with_phase_of(place, address);
}
