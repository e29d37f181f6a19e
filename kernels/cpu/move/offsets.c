/* SPDX-License-Identifier: Apache-2.0 */
/* Plans tiles of many short dimensions, and moves them. */
#include "offsets.h"

#include <string.h>

#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

/* Maximum number of bytes of a row of a transpose by tables, on either side. A tile then has 32 KiB or less
 * (16 KiB or less unless elements have 2 bytes), so that it mostly fits the first-level cache. */
#define SIDE_BYTES 256

/* The microkernels (microkernel.h) are faster from these sizes on: if both dimensions of a transpose fill
 * lines (LONG_BYTES), if both fill vectors and the box is large enough to be worth a call (BOX_BYTES), or if
 * enough pixels of a few channels follow each other (MANY_PIXELS).
 *
 * Speed in the cache for float16 [196,12] transposed: 13.8 GB/s by the microkernel, 8.9 GB/s by tables.
 */
#define LONG_BYTES  CPU_LINE
#define BOX_BYTES   2048
#define MANY_PIXELS CPU_LINE /* bytes of a channel */

/* This is the bound for rows that run backwards. The microkernel reverses this many bytes at a time: uint8
 * rows of 16 bytes have 0.70 of memcpy's speed by the microkernel, and 0.28 by tables. */
#define REVERSED_BYTES 16

/* A transpose by squares of 16 bytes a side pays off if at least one in WORTH_SQUARES of a square's elements
 * is used, and the rows that it writes fill at least three quarters of a vector. Writing less of a vector
 * takes several stores. Speed in the cache for rows of 6 bytes: 1.05 GB/s by squares, 1.35 GB/s or more by
 * elements. Other shares were not measured. */
#define WORTH_SQUARES 3

/* State of choosing a tile. */
struct planning {
	const struct loop_nest *nest;
	struct offsets *offsets;
	/* Number of indices of each dimension that a tile has; 0: the dimension is in no tile yet. */
	int64_t taken[TENSOR_MAX_RANK];
	int64_t span; /* upper bound of the bytes between two offsets of a table */
};

static int64_t per_vector(uint32_t unit)
{
	return 16 / unit;
}

/* ---- Which loop nests ------------------------------------------------------------------------------- */

static bool is_short_transpose(const struct loop_nest *nest, int src_inner)
{
	const struct loop_nest_dim *r = &nest->dim[src_inner], *c = &nest->dim[nest->rank - 1];
	int64_t unit = nest->element, n = per_vector(nest->element);
	if (r->n * unit >= LONG_BYTES && c->n * unit >= LONG_BYTES)
		return false;
	if (r->n >= n && c->n >= n && r->n * c->n * unit >= BOX_BYTES)
		return false;
	if (r->n < n && c->src == r->n * unit && c->n * unit >= MANY_PIXELS)
		return false;
	return c->n > n || r->dst != c->n * unit || r->n * unit < MANY_PIXELS;
}

static bool is_short(const struct loop_nest *nest)
{
	int src_inner;
	uint32_t unit = nest->element;
	if (nest->fill || nest->converted || nest->rank < 2 || nest->rank > TENSOR_MAX_RANK || unit > 16 ||
	    unit & (unit - 1))
		return false;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	if (inner->dst != unit)
		return false;
	switch (loop_nest_family(nest, &src_inner)) {
	case FAMILY_TILE_TRANSPOSE:
		return is_short_transpose(nest, src_inner);
	case FAMILY_STRIDED:
		return inner->n * unit < (inner->src == -(int64_t)unit ? REVERSED_BYTES : LONG_BYTES);
	default:
		return false;
	}
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* Repeats the `have` offsets of a table n times, `stride` bytes apart. */
static void repeat_table(int32_t *at, int64_t have, int64_t n, int64_t stride)
{
	for (int64_t i = 1; i < n; i++)
		for (int64_t j = 0; j < have; j++)
			at[i * have + j] = at[j] + (int32_t)(i * stride);
}

static bool fits(struct planning *p, int64_t n, int64_t stride)
{
	p->span += magnitude_i64(stride) * n;
	return p->span < INT32_MAX;
}

static void step_over(struct planning *p, const struct loop_nest_dim *dim, int64_t taken)
{
	if (taken < dim->n)
		p->offsets->dim[p->offsets->rank++] =
		    (struct offsets_dim){ .steps = divide_up_i64(dim->n, taken),
			                  .step = taken,
			                  .last = dim->n - taken,
			                  .dst = dim->dst,
			                  .src = dim->src };
}

/* Returns the dimension whose stride on one side is `run` bytes and that is in no tile yet, or -1. */
static int find_next(const struct planning *p, bool dst, int64_t run)
{
	for (int d = p->nest->rank - 1; d >= 0; d--)
		if (!p->taken[d] && (dst ? p->nest->dim[d].dst : p->nest->dim[d].src) == run)
			return d;
	return -1;
}

/* Takes dimensions that are contiguous on one side into a table of their offsets on the other side. The table
 * has n offsets already, and is extended until it has `want`, but never beyond `most`. Returns the number of
 * its offsets, or 0 if one does not fit into 32 bits. */
static int64_t take_chain(struct planning *p, bool dst, int32_t *at, int64_t n, int64_t want, int64_t most)
{
	int64_t unit = p->nest->element;
	if (n == 1)
		at[0] = 0;
	while (n > 0 && n < want && 2 * n <= most) {
		int d = find_next(p, dst, n * unit);
		if (d < 0)
			break;
		const struct loop_nest_dim *dim = &p->nest->dim[d];
		int64_t stride = dst ? dim->src : dim->dst;
		int64_t taken = divide_up_i64(dim->n, divide_up_i64(dim->n, most / n));
		if (!fits(p, taken, stride))
			return 0;
		p->taken[d] = taken;
		repeat_table(at, n, taken, stride);
		n *= taken;
		if (taken < dim->n)
			break;
	}
	return n;
}

static void begin(struct planning *p)
{
	memset(p->taken, 0, sizeof(p->taken));
	p->span = 0;
}

/* Plans a transpose. Each side first takes its innermost dimension, then what a vector needs, then more. */
static bool plan_transpose(struct planning *p)
{
	struct offsets *offsets = p->offsets;
	int64_t n = per_vector(offsets->unit), most = min_i64(SIDE_BYTES / offsets->unit, OFFSETS_SIDE);
	const int64_t want[] = { 2, n, most };
	begin(p);
	offsets->cols = offsets->rows = 1;
	for (int i = 0; i < 3; i++) {
		offsets->cols = take_chain(p, true, offsets->src_at, offsets->cols, want[i], most);
		offsets->rows = take_chain(p, false, offsets->dst_at, offsets->rows, want[i], most);
	}
	if (4 * offsets->cols < 3 * n)
		return false;
	return WORTH_SQUARES * min_i64(offsets->cols, n) * min_i64(offsets->rows, n) >= n * n;
}

static bool plan_elements(struct planning *p)
{
	begin(p);
	p->offsets->rows = 1;
	p->offsets->cols = take_chain(p, true, p->offsets->src_at, 1, OFFSETS_MOST, OFFSETS_MOST);
	return p->offsets->cols > 0;
}

static bool plan_tables(struct offsets *ret, const struct loop_nest *nest)
{
	struct planning p = { .nest = nest, .offsets = ret };
	ret->unit = nest->element;
	ret->transposes = nest->element < 16 && plan_transpose(&p);
	if (!ret->transposes && !plan_elements(&p))
		return false;
	ret->rank = 0;
	for (int d = nest->rank - 1; d >= 0; d--)
		step_over(&p, &nest->dim[d], p.taken[d] ? p.taken[d] : 1);
	ret->dst_offset = nest->dst_offset;
	ret->src_offset = nest->src_offset;
	ret->src_end = nest->src_offset + nest->element;
	for (int d = 0; d < nest->rank; d++)
		ret->src_end += max_i64(nest->dim[d].src, 0) * (nest->dim[d].n - 1);
	return true;
}

bool offsets_init(struct offsets *ret, const struct loop_nest *nest)
{
	return is_short(nest) && plan_tables(ret, nest);
}

/* Key under which tables are kept. */
struct offsets_kind {
	enum kept_kind kept;
	uint32_t unit;
	int64_t rank, dst_offset, src_offset;
	struct {
		int64_t n, dst, src;
	} dim[TENSOR_MAX_RANK];
};

static size_t kind_init(struct offsets_kind *kind, const struct loop_nest *nest)
{
	kind->kept = KEPT_OFFSETS;
	kind->unit = nest->element;
	kind->rank = nest->rank;
	kind->dst_offset = nest->dst_offset;
	kind->src_offset = nest->src_offset;
	for (int d = 0; d < nest->rank; d++) {
		kind->dim[d].n = nest->dim[d].n;
		kind->dim[d].dst = nest->dim[d].dst;
		kind->dim[d].src = nest->dim[d].src;
	}
	return offsetof(struct offsets_kind, dim) + (size_t)nest->rank * sizeof(kind->dim[0]);
}

const struct offsets *offsets_find(struct kept_plans *kept, const struct loop_nest *nest,
                                   struct offsets *room)
{
	struct offsets_kind kind;
	if (!is_short(nest))
		return NULL;
	const size_t n = kind_init(&kind, nest);
	const uint64_t hash = kept_hash(&kind, n);
	const struct offsets *offsets = kept_find(kept, &kind, n, hash);
	if (!offsets) {
		kept_count(kept);
		if (!plan_tables(room, nest))
			room->cols = 0;
		kept_add(kept, &kind, n, hash, room, offsets_size(room));
		offsets = room;
	}
	return offsets->cols ? offsets : NULL;
}

/* ---- Moving ----------------------------------------------------------------------------------------- */

#define DEFINE_ELEMENTS(size)                                                                 \
	static void elements_##size(char *dst, const char *src, const int32_t *at, int64_t n) \
	{                                                                                     \
		for (int64_t i = 0; i < n; i++)                                               \
			memcpy(dst + i * (size), src + at[i], size);                          \
	}
DEFINE_ELEMENTS(1)
DEFINE_ELEMENTS(2)
DEFINE_ELEMENTS(4)
DEFINE_ELEMENTS(8)
DEFINE_ELEMENTS(16)

typedef void elements_fn(char *dst, const char *src, const int32_t *at, int64_t n);

static elements_fn *const elements[CPU_SHIFTS] = { elements_1, elements_2, elements_4, elements_8,
	                                           elements_16 };

size_t offsets_size(const struct offsets *offsets)
{
	return offsetof(struct offsets, src_at) + (size_t)offsets->cols * sizeof(offsets->src_at[0]);
}

void offsets_run(const struct offsets *offsets, const struct cpu_isa *isa, char *dst, const char *src)
{
	int shift = __builtin_ctz(offsets->unit);
	int64_t at[2 * TENSOR_MAX_RANK] = { 0 };
	const char *end = src + offsets->src_end;
	dst += offsets->dst_offset;
	src += offsets->src_offset;
	for (;;) {
		if (offsets->transposes)
			isa->tables[shift](dst, offsets->dst_at, offsets->rows, src, offsets->src_at,
			                   offsets->cols, end);
		else
			elements[shift](dst, src, offsets->src_at, offsets->cols);
		int d = 0;
		for (; d < offsets->rank; d++) {
			const struct offsets_dim *dim = &offsets->dim[d];
			int64_t from = min_i64(at[d] * dim->step, dim->last);
			at[d] = at[d] + 1 < dim->steps ? at[d] + 1 : 0;
			int64_t way = min_i64(at[d] * dim->step, dim->last) - from;
			dst += way * dim->dst;
			src += way * dim->src;
			if (at[d])
				break;
		}
		if (d == offsets->rank)
			return;
	}
}
