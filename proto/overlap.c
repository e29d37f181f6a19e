/* SPDX-License-Identifier: Apache-2.0 */
/* Both tests for overlap reduce to one question: is target equal to the sum of stride[i] * x[i] for some
 * integers 0 <= x[i] <= max[i]?
 *
 * Terms that together reach every multiple of the smaller stride are merged first, which leaves a single term
 * of most layouts. The remaining terms are searched from the largest stride downwards. Each choice of x[i] is
 * limited to what the remaining terms can still reach, and proceeds in the steps that their common divisor
 * allows. Two terms need no search. Sums of two spans exceed 63 bits, so the arithmetic is in 128 bits.
 */
#include "overlap.h"

#include <stdbool.h>

#define MAX_TERMS   64 /* two layouts, or one layout with the bytes of its elements and OVERLAP_MAX_REPEATS */
#define LEVEL_TRIES 64 /* cost of setting up a level, in tries */

typedef __int128 wide;

struct term {
	wide stride; /* > 0 */
	wide max;    /* > 0 */
};

struct equation {
	int n;
	struct term term[MAX_TERMS];
};

/* For term i of a search: what the terms after it can reach, their common divisor, and the steps in which
 * x[i] proceeds. */
struct level {
	wide reach;
	wide step;
	wide inverse; /* inverse of stride[i] / divisor, modulo step */
	wide divisor; /* common divisor of stride[i] and the strides after it */
};

struct search {
	struct equation e;
	struct level level[MAX_TERMS];
	wide reach;   /* greatest sum of all terms */
	wide divisor; /* common divisor of all strides; 0: there are no terms */
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

/* Adds the steps of one test to the thread's count. tries_left may be negative. */
static void count_steps(int tries_left)
{
	steps += (uint64_t)(OVERLAP_MOST_STEPS - (tries_left < 0 ? 0 : tries_left));
}

/* ---- The tests ------------------------------------------------------------------------------------ */

static wide magnitude(wide x)
{
	return x < 0 ? -x : x;
}

/* Adds the dimensions of a layout, in bytes, as terms of a sum; sign -1 subtracts the layout. Terms count up
 * from zero even if strides are negative. Returns the least value of the layout's sum, which the caller must
 * add to the sum of the terms. */
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

/* Finds out whether two different index vectors of the layout have the same sum. Two sums differ by
 * sum(stride * x) with -max <= x <= max. For each i, consider the differences whose largest stride with x[i]
 * != 0 is term i; without loss of generality x[i] >= 1. Terms above i then vanish, and each term below i is
 * shifted by its max, so that it ranges over 0 to 2 * max. */
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

/* Counts in bytes, and treats the bytes of an element as one more dimension, because repeats need not be a
 * multiple of the element's size apart. */
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

/* A layout seen as rows: the dimension with the largest stride, and the range of bytes that all other
 * dimensions cover together, relative to element [0, ..., 0]. */
struct rows {
	wide stride; /* bytes between two rows; 0: there is one row */
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

/* Returns whether the rows of both layouts have the same stride and lie between each other, so that each side
 * has its own range of bytes modulo the stride. Two column ranges of one matrix are an example. Returns false
 * if it cannot tell. */
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

/* An element of a at byte p and one of b at byte q share a byte if p - q lies in (-size_a, size_b). p - q is
 * the sum over a minus the sum over b minus the distance. */
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

/* Inserts a term, keeping the terms in ascending order of stride. Terms that are always 0 are left out. */
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

/* Returns x with a * x = 1 modulo m. a and m must have no common divisor. */
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

/* Merges terms: if a stride is c times a smaller stride whose x counts to c - 1 or further, the larger term
 * continues the count of the smaller one. */
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

/* Prepares a search for any number of targets. Returns false if that alone exceeds the tries that are
 * left. */
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

/* Searches the terms from i on. The target is a multiple of their common divisor and within their reach. */
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
