/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a change to a request that makes it fast. Rows that begin and end at multiples of 16 bytes are
 * faster, and a tensor map accepts no others. Either the rows are put further apart or the array is made
 * larger; each such change is explained by the service, and the first that is fast becomes the hint. */
#include "hint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "timing.h"
#include "words.h"

#define MOST_GROWTH 4  /* a row may grow by at most 1/4 of its length */
#define ROW_ALIGN   16 /* bytes to which a tensor map's address and strides, and a store's end, are aligned */

enum change {
	CHANGE_SRC_PITCH = 1,
	CHANGE_DST_PITCH = 2,
	CHANGE_EXTENTS = 4,
};

/* A copy of the transform request with a change applied. q points into it, so it must not be moved. */
struct trial {
	struct transform_request q;
	int64_t src_strides[TMA_MAX_RANK];
	int64_t dst_strides[TMA_MAX_RANK];
	int src_inner; /* dimension of the source whose elements are contiguous: its rows */
	int dst_inner; /* the same for the destination */
};

static int64_t round_up(int64_t n, int64_t unit)
{
	return n > INT64_MAX - unit ? n : (n + unit - 1) / unit * unit;
}

/* Returns the number of elements that make up ROW_ALIGN bytes, at least 1. */
static int64_t unit_of(enum tma_dtype dtype)
{
	int64_t size = (int64_t)tma_dtype_size(dtype);

	return size < ROW_ALIGN ? ROW_ALIGN / size : 1;
}

/* Sets contiguous strides, except that rows are `row` elements apart. Returns false if the size becomes too
 * large. */
static bool set_strides(int64_t *strides, const struct tma_tensor *t, int inner, int64_t row)
{
	int64_t run = 1;
	int step = inner ? -1 : 1;

	for (int i = inner; i >= 0 && i < t->rank; i += step) {
		strides[i] = run;
		if (__builtin_mul_overflow(run, i == inner ? row : t->shape[i], &run) || run > INT64_MAX / 32)
			return false;
	}
	return true;
}

/* Copies a transform request and makes it point to its own members. src.strides still points to the original
 * until a change replaces it. */
static void trial_init(struct trial *ret, const struct transform_request *request)
{
	struct transform_request *q = &ret->q;
	const struct tma_transform *from = &request->transform;

	*ret = (struct trial){ .q = *request };
	q->transform.src = &q->src;
	q->transform.dst = &q->dst;
	q->transform.perm = from->perm ? q->perm : NULL;
	q->transform.before = from->before ? q->before : NULL;
	q->transform.after = from->after ? q->after : NULL;
	ret->dst_inner = q->dst.rank - 1;
	ret->src_inner = q->src.strides && q->src.rank > 1 ? 0 : q->src.rank - 1;
}

/* Makes rows longer, to multiples of `unit` elements. Rows of the source get a larger extent. Rows of the
 * destination grow with the source dimension that they come from or, if the request pads, by larger pads.
 * Returns false if the size becomes too large. */
static bool grow(struct trial *t, int64_t unit)
{
	struct transform_request *q = &t->q;
	int fed = q->perm[t->dst_inner];

	q->src.shape[t->src_inner] = round_up(q->src.shape[t->src_inner], unit);
	if (!q->transform.after)
		q->src.shape[fed] = round_up(q->src.shape[fed], unit);
	else
		q->before[t->dst_inner] = round_up(q->before[t->dst_inner], unit);
	for (int d = 0; d < q->dst.rank; d++)
		q->dst.shape[d] = q->src.shape[q->perm[d]] + q->before[d] + q->after[d];
	if (q->transform.after) {
		q->after[t->dst_inner] +=
		    round_up(q->dst.shape[t->dst_inner], unit) - q->dst.shape[t->dst_inner];
		q->dst.shape[t->dst_inner] = round_up(q->dst.shape[t->dst_inner], unit);
	}
	if (!q->src.strides)
		return true;
	q->src.strides = t->src_strides;
	return set_strides(t->src_strides, &q->src, t->src_inner, q->src.shape[t->src_inner]);
}

static bool set_pitch(struct tma_tensor *tensor, int64_t *strides, int inner, int64_t unit)
{
	tensor->strides = strides;
	return set_strides(strides, tensor, inner, round_up(tensor->shape[inner], unit));
}

/* Returns whether a row that is rounded up to a multiple of `unit` grows little enough (MOST_GROWTH). */
static bool is_worth_it(const struct tma_tensor *tensor, int inner, int64_t unit)
{
	return round_up(tensor->shape[inner], unit) - tensor->shape[inner] <=
	       tensor->shape[inner] / MOST_GROWTH;
}

/* Applies changes, of enum change. Returns false if one of them has no effect, makes rows grow too much, or
 * is not possible. */
static bool trial_change(struct trial *t, unsigned change, int64_t unit)
{
	struct transform_request *q = &t->q;
	bool src_is_ragged = q->src.shape[t->src_inner] % unit != 0;
	bool dst_is_ragged = q->dst.shape[t->dst_inner] % unit != 0;

	if (!is_worth_it(&q->src, t->src_inner, unit) || !is_worth_it(&q->dst, t->dst_inner, unit))
		return false;
	if (change & CHANGE_EXTENTS)
		return (src_is_ragged || dst_is_ragged || q->before[t->dst_inner] % unit) && grow(t, unit);
	if ((change & CHANGE_SRC_PITCH && (!src_is_ragged || q->src.rank < 2)) ||
	    (change & CHANGE_DST_PITCH && (!dst_is_ragged || q->dst.rank < 2)))
		return false;
	return (!(change & CHANGE_SRC_PITCH) || set_pitch(&q->src, t->src_strides, t->src_inner, unit)) &&
	       (!(change & CHANGE_DST_PITCH) || set_pitch(&q->dst, t->dst_strides, t->dst_inner, unit));
}

static void add(struct hint *h, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct hint *h, const char *format, ...)
{
	size_t len = strlen(h->text);
	va_list args;

	va_start(args, format);
	vsnprintf(h->text + len, sizeof h->text - len, format, args);
	va_end(args);
}

static void say_pitch(struct hint *h, const char *whose, const struct tma_tensor *t, int inner, int64_t unit)
{
	int64_t row = round_up(t->shape[inner], unit);

	add(h, "%s rows %" PRId64 " elements (%" PRId64 " bytes) apart instead of %" PRId64, whose, row,
	    row * (int64_t)tma_dtype_size(t->dtype), t->shape[inner]);
}

static void say_extents(struct hint *h, const struct trial *t, const struct transform_request *was)
{
	const struct transform_request *q = &t->q;
	const char *comma = "pad ";

	for (int d = 0; d < q->src.rank; d++) {
		if (q->src.shape[d] == was->src.shape[d])
			continue;
		add(h, "%s%s to %" PRId64 " elements (from %" PRId64 ")", comma,
		    d == t->src_inner ? "rows of the source"
		                      : "columns of the source, which become rows of the destination,",
		    q->src.shape[d], was->src.shape[d]);
		comma = " and ";
	}
	if (q->before[t->dst_inner] != was->before[t->dst_inner] ||
	    q->after[t->dst_inner] != was->after[t->dst_inner])
		add(h,
		    "%srows of the destination by %" PRId64 ":%" PRId64 " elements (instead of %" PRId64
		    ":%" PRId64 ")",
		    comma, q->before[t->dst_inner], q->after[t->dst_inner], was->before[t->dst_inner],
		    was->after[t->dst_inner]);
}

static void hint_say(struct hint *h, unsigned change, const struct trial *t,
                     const struct transform_request *was, const tma_document *plan)
{
	int64_t unit = unit_of(was->src.dtype);

	if (change & CHANGE_EXTENTS)
		say_extents(h, t, was);
	if (change & (CHANGE_SRC_PITCH | CHANGE_DST_PITCH))
		add(h, "put ");
	if (change & CHANGE_SRC_PITCH)
		say_pitch(h, "the source's", &was->src, t->src_inner, unit);
	if (change == (CHANGE_SRC_PITCH | CHANGE_DST_PITCH))
		add(h, " and ");
	if (change & CHANGE_DST_PITCH)
		say_pitch(h, "the destination's", &was->dst, t->dst_inner, unit);
	add(h, ": the predicted time becomes %.2f times a copy's", timing_ratio(plan));
}

int hint_find(struct hint *ret, tma_client *client, const struct transform_request *request,
              const char *engine, const tma_document *plan, bool has_pitch, struct failure *f)
{
	static const unsigned changes[] = { CHANGE_SRC_PITCH, CHANGE_DST_PITCH,
		                            CHANGE_SRC_PITCH | CHANGE_DST_PITCH, CHANGE_EXTENTS };
	struct trial t;

	*ret = (struct hint){ 0 };
	if (timing_ratio(plan) == 0 || words_is_fast(plan) || request->dst.rank < 1)
		return 0;
	for (size_t i = has_pitch ? 0 : 3; i < 4 && !*ret->text; i++) {
		tma_document *better = NULL;

		trial_init(&t, request);
		if (!trial_change(&t, changes[i], unit_of(request->src.dtype)))
			continue;
		if (tma_explain_for(client, &t.q.transform, engine, &better) < 0)
			return tmactl_refused(client, f);
		if (words_is_fast(better))
			hint_say(ret, changes[i], &t, request, better);
		tma_document_free(better);
	}
	return 0;
}
