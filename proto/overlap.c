/* SPDX-License-Identifier: Apache-2.0 */
/* Both tests for overlap become one question: is target = sum of stride[i] * x[i] with 0 <= x[i] <= max[i]?
 *
 * Terms that together reach every multiple of the smaller stride are merged first, which undoes most
 * layouts entirely; what is left is searched from the largest stride down, each choice bounded by what the
 * rest can still reach and stepped by what the rest's common divisor allows. Two terms need no search.
 * Sums of two spans do not fit 63 bits, so the arithmetic here is in 128. */
#include "overlap.h"

#include <stdbool.h>

#define MAX_TERMS   64 /* two layouts, or one with its bytes and OVERLAP_MAX_REPEATS */
#define LEVEL_TRIES 64 /* what making a level costs, in tries */

typedef __int128 wide;

struct term {
	wide stride; /* > 0 */
	wide max;    /* > 0 */
};

struct equation {
	int n;
	struct term term[MAX_TERMS];
};

/* This says of the terms after i in a search what they reach, their common divisor, and how x[i] steps with
 * it. */
struct level {
	wide reach;
	wide step;
	wide inverse; /* of stride[i] / divisor, modulo step */
	wide divisor; /* of stride[i] and the rest */
};

struct search {
	struct equation e;
	struct level level[MAX_TERMS];
	wide reach;   /* of all terms */
	wide divisor; /* of all terms; 0 when there are none */
	int *tries_left;
};

static void equation_add(struct equation *e, wide stride, wide max);
static bool search_init(struct search *s, struct equation *e, int *tries_left);
static enum overlap search_run(struct search *s, wide target);

static _Thread_local uint64_t steps;

uint64_t overlap_steps(void)
{
	return steps;
}

void overlap_count_steps(uint64_t n)
{
	steps += n;
}

/* Counts the steps of one question. The number of tries that it has left may be below 0. */
static void count_steps(int tries_left)
{
	steps += (uint64_t)(OVERLAP_MOST_STEPS - (tries_left < 0 ? 0 : tries_left));
}

/* ---- The tests ------------------------------------------------------------------------------------ */

static wide magnitude(wide x)
{
	return x < 0 ? -x : x;
}

/* Adds the dimensions of a layout to a sum as terms; returns what they add at x = 0, so that strides that
 * run backwards count from their far end. In bytes; sign -1 subtracts the layout. */
static wide add_layout(struct equation *e, const struct tensor_layout *layout, int sign)
{
	wide origin = 0;

	for (int d = 0; d < layout->rank; d++) {
		wide stride = (wide)layout->stride[d] * dtype_size(layout->dtype) * sign;
		wide max = layout->shape[d] - 1;

		if (!max)
			continue;
		if (stride < 0)
			origin += stride * max;
		equation_add(e, magnitude(stride), max);
	}
	return origin;
}

/* Two elements differ by sum(stride * x) with -max <= x <= max. Take the differences by their largest
 * stride i with x[i] != 0, where x[i] >= 1 without loss: the terms above are gone, those below are shifted
 * by max. */
static enum overlap equation_self(const struct equation *all)
{
	wide below = 0;
	int tries_left = OVERLAP_MOST_STEPS;
	enum overlap found = OVERLAP_NONE;

	for (int i = 0; i < all->n && found == OVERLAP_NONE; i++) {
		wide stride = all->term[i].stride;

		if (stride <= below) {
			struct equation e = { 0 };
			struct search s;

			for (int j = 0; j < i; j++)
				equation_add(&e, all->term[j].stride, 2 * all->term[j].max);
			equation_add(&e, stride, all->term[i].max - 1);
			found = search_init(&s, &e, &tries_left) ? search_run(&s, below - stride)
			                                         : OVERLAP_UNKNOWN;
		}
		below += stride * all->term[i].max;
	}
	count_steps(tries_left);
	return found;
}

enum overlap overlap_self(const struct tensor_layout *layout)
{
	struct equation all = { 0 };

	if (!tensor_count(layout))
		return OVERLAP_NONE;
	for (int d = 0; d < layout->rank; d++)
		if (layout->shape[d] > 1) {
			if (!layout->stride[d])
				return OVERLAP_SOME;
			equation_add(&all, magnitude(layout->stride[d]), layout->shape[d] - 1);
		}
	return equation_self(&all);
}

/* Counts in bytes, and takes those of an element as one more dimension, because repeats need not step by
 * elements. */
enum overlap overlap_self_repeated(const struct tensor_layout *layout, const struct overlap_repeat *repeat,
                                   int n)
{
	struct equation all = { 0 };
	int64_t size = dtype_size(layout->dtype);

	if (!tensor_count(layout))
		return OVERLAP_NONE;
	for (int i = 0; i < n; i++)
		if (repeat[i].n == 0)
			return OVERLAP_NONE;
	equation_add(&all, 1, size - 1);
	for (int d = 0; d < layout->rank; d++)
		if (layout->shape[d] > 1) {
			if (!layout->stride[d])
				return OVERLAP_SOME;
			equation_add(&all, magnitude(layout->stride[d]) * size, layout->shape[d] - 1);
		}
	for (int i = 0; i < n; i++)
		if (repeat[i].n > 1) {
			if (!repeat[i].step)
				return OVERLAP_SOME;
			equation_add(&all, repeat[i].step, (wide)repeat[i].n - 1);
		}
	return equation_self(&all);
}

/* The dimension with the largest stride, and the bytes of all others together from element [0, ..., 0]. */
struct rows {
	wide stride; /* bytes; 0: there is none */
	wide low;
	wide high;
};

static struct rows rows_of(const struct tensor_layout *layout, const struct tensor_extent *extent)
{
	const wide size = dtype_size(layout->dtype);
	struct rows rows = { .low = extent->low, .high = extent->high };
	wide stride = 0, max = 0;

	for (int d = 0; d < layout->rank; d++)
		if (layout->shape[d] > 1 && magnitude(layout->stride[d]) > magnitude(stride)) {
			stride = layout->stride[d];
			max = layout->shape[d] - 1;
		}
	rows.stride = magnitude(stride) * size;
	if (stride < 0)
		rows.low += rows.stride * max;
	else
		rows.high -= rows.stride * max;
	return rows;
}

/* Returns whether rows of both, which have one stride, certainly lie between each other, so that modulo the
 * stride each side has bytes of its own. Parts of one tensor do. */
static bool are_interleaved(const struct rows *a, const struct rows *b, wide distance)
{
	wide at;

	if (a->stride == 0 || a->stride != b->stride)
		return false;
	at = (distance + b->low - a->low) % a->stride;
	if (at < 0)
		at += a->stride;
	return at >= a->high - a->low && at + b->high - b->low <= a->stride;
}

/* An element of a at p and one of b at q share a byte when p - q lies in (-size_a, size_b), and p - q is the
 * sum over a less the sum over b less the distance. */
enum overlap overlap_between(const struct tensor_layout *a, const struct tensor_layout *b, int64_t distance)
{
	struct tensor_extent ea = tensor_extent(a), eb = tensor_extent(b);
	int size_a = (int)dtype_size(a->dtype), size_b = (int)dtype_size(b->dtype);
	struct equation e = { 0 };
	struct search s;
	enum overlap worst = OVERLAP_NONE;
	int tries_left = OVERLAP_MOST_STEPS;
	struct rows rows_a, rows_b;
	bool is_ready;
	wide origin;

	if (!ea.high || !eb.high || (wide)distance + eb.low >= ea.high || (wide)distance + eb.high <= ea.low)
		return OVERLAP_NONE;
	rows_a = rows_of(a, &ea);
	rows_b = rows_of(b, &eb);
	if (are_interleaved(&rows_a, &rows_b, distance))
		return OVERLAP_NONE;
	origin = add_layout(&e, a, 1) + add_layout(&e, b, -1);
	is_ready = search_init(&s, &e, &tries_left);
	if (!is_ready)
		worst = OVERLAP_UNKNOWN;
	for (int shift = 1 - size_a; is_ready && worst != OVERLAP_SOME && shift < size_b; shift++) {
		enum overlap found = search_run(&s, distance + shift - origin);

		if (found != OVERLAP_NONE)
			worst = found;
	}
	count_steps(tries_left);
	return worst;
}

/* ---- The equation ----------------------------------------------------------------------------------- */

/* Keeps the terms in ascending order of stride. */
static void equation_add(struct equation *e, wide stride, wide max)
{
	int i = e->n;

	if (!stride || !max)
		return;
	for (; i > 0 && e->term[i - 1].stride > stride; i--)
		e->term[i] = e->term[i - 1];
	e->term[i] = (struct term){ stride, max };
	e->n++;
}

static wide gcd(wide a, wide b)
{
	while (b) {
		wide rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* x with a * x = 1 modulo m; a and m have no common divisor. */
static wide inverse(wide a, wide m)
{
	wide r0 = m, r1 = a % m, x0 = 0, x1 = 1;

	while (r1) {
		wide q = r0 / r1, swap;

		swap = r0 - q * r1;
		r0 = r1;
		r1 = swap;
		swap = x0 - q * x1;
		x0 = x1;
		x1 = swap;
	}
	return m == 1 ? 0 : (x0 % m + m) % m;
}

/* A term whose stride is c times a smaller one's that counts to c - 1 or further continues its count. */
static void equation_merge(struct equation *e)
{
	int n = 0;

	for (int i = 0; i < e->n; i++) {
		struct term term = e->term[i];
		int j = 0;

		while (j < n && (term.stride % e->term[j].stride ||
		                 term.stride / e->term[j].stride > e->term[j].max + 1))
			j++;
		if (j < n)
			e->term[j].max += term.stride / e->term[j].stride * term.max;
		else
			e->term[n++] = term;
	}
	e->n = n;
}

static enum overlap search_from(struct search *s, int i, wide target);

/* Prepares a search for any number of targets; false when the bound on tries is passed by that alone. */
static bool search_init(struct search *s, struct equation *e, int *tries_left)
{
	wide reach = 0, divisor = 0;

	equation_merge(e);
	*tries_left -= LEVEL_TRIES * e->n;
	if (*tries_left < 0)
		return false;
	s->tries_left = tries_left;
	s->e.n = e->n;
	for (int i = e->n - 1, j = 0; j < e->n; i--, j++)
		s->e.term[i] = e->term[j];
	for (int i = s->e.n - 1; i >= 0; i--) {
		const struct term *term = &s->e.term[i];
		struct level *level = &s->level[i];

		level->reach = reach;
		level->divisor = gcd(term->stride, divisor);
		level->step = divisor ? divisor / level->divisor : 1;
		level->inverse = inverse(term->stride / level->divisor, level->step);
		reach += term->stride * term->max;
		divisor = level->divisor;
	}
	s->reach = reach;
	s->divisor = divisor;
	return true;
}

static enum overlap search_run(struct search *s, wide target)
{
	if (target < 0 || target > s->reach || (s->divisor ? target % s->divisor : target))
		return OVERLAP_NONE;
	return search_from(s, 0, target);
}

/* The target is a multiple of the common divisor of the terms from i on and within their reach. */
static enum overlap search_from(struct search *s, int i, wide target)
{
	const struct term *term = &s->e.term[i];
	const struct level *level = &s->level[i];
	wide low, high, x;

	if (i >= s->e.n - 1)
		return OVERLAP_SOME;
	low = target > level->reach ? (target - level->reach + term->stride - 1) / term->stride : 0;
	high = target / term->stride < term->max ? target / term->stride : term->max;
	x = (target / level->divisor % level->step) * level->inverse % level->step;
	x += (low - x + level->step - 1) / level->step * level->step;
	for (; x <= high; x += level->step) {
		enum overlap found;

		if (--*s->tries_left < 0)
			return OVERLAP_UNKNOWN;
		found = search_from(s, i + 1, target - term->stride * x);
		if (found != OVERLAP_NONE)
			return found;
	}
	return OVERLAP_NONE;
}
