/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a job into rounds, and decides what of them fits into scratch memory. */
#include "staging.h"

#include <stdlib.h>

#include "kernels/plan/narrow.h"
#include "proto/arithmetic.h"

/* Parts of rows that the copy engine takes: better so many times the least bytes. A round that is larger for
 * that is still at most one of so many: the first comes in, and the last goes out, by itself. And copies of a
 * round, of so many rows as there are. */
#define ROW_GOOD        4
#define ROUNDS_GOOD     16
#define MOST_ROW_COPIES 64
#define MOST_PITCH      INT32_MAX /* that the driver takes */

static void choose_ways(struct staging *s, enum staging_place dst, enum staging_place src, uint64_t direct);
static void divide(struct staging *s, const struct staging_limits *limits);
static void cut(struct staging *s, uint64_t round_bytes);
static void measure(struct staging *s);
static uint64_t stripe_row(const struct staging *s, uint64_t *ret_bytes);
static void narrow_to_round(const struct staging *s, uint64_t i, struct staging_round *ret);
static void fit(struct staging *s, const struct staging_limits *limits);
static void set_direct(struct staging *s);
static bool init_run(struct staging *s, enum staging_place dst, enum staging_place src,
                     const struct staging_limits *limits);

static uint64_t extent_bytes(struct tensor_extent extent)
{
	return (uint64_t)(extent.high - extent.low);
}

/* Bytes that a part takes whatever its phase. */
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
	if (dst == STAGING_ON_HOST && is_large(writes, direct) &&
	    extent_bytes(writes) == (uint64_t)t->count * t->element)
		s->dst = STAGING_ROUND;
}

/* ---- Rounds ------------------------------------------------------------------------------------------ */

/* Rounds of a destination that is taken out are stretches of it, else those of the source. */
static int64_t reach(const struct staging *s, int d)
{
	const struct transform_axis *axis = &s->transform->axis[d];
	return llabs(s->dst == STAGING_DIRECT ? axis->src_stride : axis->dst_stride);
}

/* The axes that have more than one index, farthest first. */
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

static void cut(struct staging *s, uint64_t round_bytes)
{
	const struct transform *t = s->transform;
	uint64_t bytes = (uint64_t)t->count * t->element;
	int8_t order[TENSOR_MAX_RANK];
	int n = sort_axes(s, order);

	for (int i = 0; i < n && bytes > round_bytes && transform_can_narrow(t, order[i]); i++) {
		int64_t extent = t->axis[order[i]].extent;

		bytes /= (uint64_t)extent;
		s->axis[s->n_axes++] = order[i];
		s->step = bytes < round_bytes ? (int64_t)(round_bytes / bytes) : 1;
		s->step = divide_up_i64(extent, divide_up_i64(extent, s->step)); /* of about the same size */
		s->rounds *= (uint64_t)divide_up_i64(extent, s->step);
		bytes *= (uint64_t)s->step;
	}
}

static void divide_into(struct staging *s, enum staging_way src, uint64_t round_bytes)
{
	s->src = src;
	s->rounds = 1;
	s->n_axes = 0;
	cut(s, round_bytes);
	measure(s);
}

/* In rounds of round_bytes, or of more if that makes rows long enough. */
static void divide(struct staging *s, const struct staging_limits *limits)
{
	const uint64_t bytes = (uint64_t)s->transform->count * s->transform->element;
	const enum staging_way src = s->src;
	uint64_t round = limits->round_bytes, row, ignored;

	divide_into(s, src, round);
	while ((s->src == STAGING_STRIPE || s->src == STAGING_WHOLE) && s->row_bytes > 0 &&
	       (row = stripe_row(s, &ignored)) > 0 && row < ROW_GOOD * limits->row_bytes &&
	       2 * round <= bytes / ROUNDS_GOOD && STAGING_MOST_SLOTS * 4 * round <= limits->scratch_bytes)
		divide_into(s, src, round *= 2);
	if (s->src == STAGING_WHOLE)
		divide_into(s, src, limits->round_bytes);
}

/* How many indices of axis d a round has at most. */
static int64_t round_extent(const struct staging *s, int d)
{
	for (int i = 0; i < s->n_axes; i++)
		if (s->axis[i] == d)
			return i < s->n_axes - 1 ? 1 : s->step;
	return s->transform->axis[d].extent;
}

/* The rows of the first round, which is the largest where no axis that is cut has a border; 0: there are none
 * that the copy engine could bring. */
static uint64_t stripe_row(const struct staging *s, uint64_t *ret_bytes)
{
	struct staging_round first = { .transform = *s->transform };
	struct source_box box;
	uint64_t copies = 1;

	for (int a = 0; a < s->n_axes; a++)
		if (s->transform->axis[s->axis[a]].source != s->transform->axis[s->axis[a]].extent)
			return 0;
	narrow_to_round(s, 0, &first);
	if (!source_box_init(&box, &first.transform))
		return 0;
	for (int d = 1; d < box.rank; d++)
		copies *= box.axis[d].n;
	*ret_bytes = source_box_bytes(&box);
	return copies <= MOST_ROW_COPIES && (box.rank == 0 || box.axis[0].stride <= MOST_PITCH)
	           ? box.row_bytes
	           : 0;
}

/* The largest round's parts. Of a source of which the rounds' parts have much of the same between their first
 * byte and the last, rows are brought, or all of it. */
static void measure(struct staging *s)
{
	const struct transform *t = s->transform;
	uint64_t whole = extent_bytes(transform_reads(t)), src = t->element, dst = t->element, stripe = 0;

	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		int64_t n = round_extent(s, d), source = min_i64(n, axis->source);

		dst += (uint64_t)((n - 1) * llabs(axis->dst_stride));
		if (source > 0)
			src += (uint64_t)((source - 1) * llabs(axis->src_stride));
	}
	if (s->src == STAGING_STRIPE ||
	    (s->src == STAGING_ROUND && src > whole / s->rounds + whole / s->rounds / 2 + t->element)) {
		const bool has_rows = s->row_bytes > 0 && stripe_row(s, &stripe) >= s->row_bytes;

		src = has_rows ? stripe : whole;
		s->src = has_rows                   ? STAGING_STRIPE
		         : s->src == STAGING_STRIPE ? STAGING_DIRECT
		                                    : STAGING_WHOLE;
	}
	s->src_bytes = s->src == STAGING_DIRECT ? 0 : place_bytes(src);
	s->dst_bytes = s->dst == STAGING_DIRECT ? 0 : place_bytes(dst);
	s->slots = s->rounds < STAGING_MOST_SLOTS ? (uint32_t)s->rounds : STAGING_MOST_SLOTS;
}

static uint64_t scratch_needed(const struct staging *s)
{
	uint64_t src = s->src == STAGING_WHOLE ? s->src_bytes : s->slots * s->src_bytes;
	return src + s->slots * s->dst_bytes;
}

/* With fewer slots, or else with a side left where it is. */
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
		int64_t step = a < s->n_axes - 1 ? 1 : s->step;
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
		int64_t first = (int64_t)i * s->step, n = min_i64(s->step, tma->dim[0].n - first);

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
	if (s->src == STAGING_STRIPE && source_box_init(&ret->box, &ret->transform))
		source_box_pack(&ret->transform);
}

/* ---- Runs -------------------------------------------------------------------------------------------- */

/* Between two places on the host a run stops over in a slot; else the copy units take it piece by piece. */
static bool init_run(struct staging *s, enum staging_place dst, enum staging_place src,
                     const struct staging_limits *limits)
{
	const struct tma_route_plan *tma = &s->plan->tma;
	bool over = dst == STAGING_ON_HOST && src == STAGING_ON_HOST;
	uint64_t bytes = (uint64_t)tma->dim[0].n, step = limits->round_bytes;

	if (tma->route != TMA_ROUTE_MEMCPY || tma->border_rank > 0 || bytes <= limits->direct_bytes ||
	    (over && limits->scratch_bytes / STAGING_MOST_SLOTS <= 2 * STAGING_ALIGN))
		return false;
	if (over && STAGING_MOST_SLOTS * place_bytes(step) > limits->scratch_bytes)
		step = limits->scratch_bytes / STAGING_MOST_SLOTS - 2 * STAGING_ALIGN;
	s->run = true;
	s->step = (int64_t)step;
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

uint64_t staging_src_place(const struct staging *s, uint64_t scratch, uint64_t i, uint64_t address)
{
	if (s->src == STAGING_WHOLE)
		return with_phase_of(scratch, address);
	if (s->src == STAGING_STRIPE)
		return scratch + i % s->slots * s->src_bytes;
	return with_phase_of(scratch + i % s->slots * s->src_bytes, address);
}

uint64_t staging_dst_place(const struct staging *s, uint64_t scratch, uint64_t i, uint64_t address)
{
	scratch += s->src == STAGING_WHOLE ? s->src_bytes : s->slots * s->src_bytes;
	return with_phase_of(scratch + i % s->slots * s->dst_bytes, address);
}
