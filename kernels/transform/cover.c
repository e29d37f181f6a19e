/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes are subtracted dimension by dimension, the outermost first, so that what is left keeps its runs of
 * contiguous elements for as long as possible. */
#include "cover.h"

#include <stdbool.h>

int64_t box_count(const struct box *box, int rank)
{
	int64_t count = 1;

	for (int d = 0; d < rank; d++)
		if (box->high[d] <= box->low[d])
			return 0;
	for (int d = 0; d < rank; d++)
		count *= box->high[d] - box->low[d];
	return count;
}

/* Of 32 dimensions a few are in use. */
static void box_copy(struct box *to, const struct box *from, int rank)
{
	for (int d = 0; d < rank; d++) {
		to->low[d] = from->low[d];
		to->high[d] = from->high[d];
	}
}

/* Whether any element is in both; *ret is what is. */
static bool box_intersect(const struct box *a, const struct box *b, int rank, struct box *ret)
{
	for (int d = 0; d < rank; d++) {
		ret->low[d] = a->low[d] > b->low[d] ? a->low[d] : b->low[d];
		ret->high[d] = a->high[d] < b->high[d] ? a->high[d] : b->high[d];
		if (ret->high[d] <= ret->low[d])
			return false;
	}
	return true;
}

static bool take_steps(struct cover *cover, uint64_t n)
{
	cover->steps += n;
	return cover->steps <= cover->most_steps;
}

static bool step_box(struct cover *cover)
{
	return take_steps(cover, (uint64_t)cover->rank + 1);
}

/* The sources that have elements of the box. */
static bool find_candidates(struct cover *cover, const struct box *box, uint32_t *ret)
{
	struct box common;

	*ret = 0;
	for (uint32_t s = 0; s < cover->n_sources; s++) {
		if (!step_box(cover))
			return false;
		if (box_intersect(&cover->source[s], box, cover->rank, &common))
			cover->candidate[(*ret)++] = s;
	}
	return true;
}

/* Whether a is to be taken before b. */
static bool is_before(const struct cover *cover, uint32_t a, uint32_t b)
{
	const uint64_t a_given = cover->given[cover->giver[a]], b_given = cover->given[cover->giver[b]];

	if (cover->distance[a] != cover->distance[b])
		return cover->distance[a] < cover->distance[b];
	return a_given != b_given ? a_given < b_given : a < b;
}

/* Takes the next of n candidates out of them. */
static uint32_t take_candidate(struct cover *cover, uint32_t n)
{
	uint32_t first = 0, source;

	for (uint32_t i = 1; i < n; i++)
		if (is_before(cover, cover->candidate[i], cover->candidate[first]))
			first = i;
	source = cover->candidate[first];
	cover->candidate[first] = cover->candidate[n - 1];
	return source;
}

static bool add_piece(struct cover *cover, uint32_t source, const struct box *box)
{
	struct cover_piece *piece = &cover->piece[cover->n_pieces];

	if (cover->n_pieces == cover->most_pieces)
		return false;
	piece->source = source;
	box_copy(&piece->box, box, cover->rank);
	cover->n_pieces++;
	if (cover->distance[source] > 0)
		cover->given[cover->giver[source]] += (uint64_t)box_count(box, cover->rank);
	return true;
}

/* NULL: there is no room. */
static struct box *append_rest(struct cover *cover, const struct box *box, uint32_t *n)
{
	if (*n == cover->most_rests)
		return NULL;
	box_copy(&cover->rest[*n], box, cover->rank);
	return &cover->rest[(*n)++];
}

/* Appends what whole has beyond `taken`, a box in it, to the *n rests; whole becomes that box. */
static bool append_rests(struct cover *cover, struct box *whole, const struct box *taken, uint32_t *n)
{
	struct box *rest;

	for (int d = 0; d < cover->rank; d++) {
		if (whole->low[d] < taken->low[d]) {
			rest = append_rest(cover, whole, n);
			if (!rest)
				return false;
			rest->high[d] = taken->low[d];
		}
		if (taken->high[d] < whole->high[d]) {
			rest = append_rest(cover, whole, n);
			if (!rest)
				return false;
			rest->low[d] = taken->high[d];
		}
		whole->low[d] = taken->low[d];
		whole->high[d] = taken->high[d];
	}
	return true;
}

/* Backwards: the last of them, and those that are appended, have been looked at, or have nothing of the
 * source. */
static enum cover_outcome subtract(struct cover *cover, uint32_t source, uint32_t *n_rests)
{
	for (uint32_t i = *n_rests; i-- > 0;) {
		struct box whole, common;

		if (!step_box(cover))
			return COVER_MANY_STEPS;
		if (!box_intersect(&cover->rest[i], &cover->source[source], cover->rank, &common))
			continue;
		if (!add_piece(cover, source, &common))
			return COVER_MANY_PIECES;
		box_copy(&whole, &cover->rest[i], cover->rank);
		--*n_rests;
		box_copy(&cover->rest[i], &cover->rest[*n_rests], cover->rank);
		if (!append_rests(cover, &whole, &common, n_rests))
			return COVER_MANY_RESTS;
	}
	return COVER_WHOLE;
}

/* The first element, in C order, of n boxes is the first of one of them. */
static void find_gap(struct cover *cover, uint32_t n)
{
	const struct box *first = &cover->rest[0];

	for (uint32_t i = 1; i < n; i++) {
		int d = 0;

		while (d < cover->rank - 1 && cover->rest[i].low[d] == first->low[d])
			d++;
		if (cover->rest[i].low[d] < first->low[d])
			first = &cover->rest[i];
	}
	for (int d = 0; d < cover->rank; d++)
		cover->gap[d] = first->low[d];
}

enum cover_outcome cover_box(struct cover *cover, const struct box *box)
{
	enum cover_outcome outcome = COVER_WHOLE;
	uint32_t n_rests = 1, n;

	if (box_count(box, cover->rank) == 0)
		return COVER_WHOLE;
	if (!find_candidates(cover, box, &n))
		return COVER_MANY_STEPS;
	box_copy(&cover->rest[0], box, cover->rank);
	for (; outcome == COVER_WHOLE && n_rests > 0 && n > 0; n--) {
		if (!take_steps(cover, n))
			return COVER_MANY_STEPS;
		outcome = subtract(cover, take_candidate(cover, n), &n_rests);
	}
	if (outcome != COVER_WHOLE || n_rests == 0)
		return outcome;
	find_gap(cover, n_rests);
	return COVER_GAP;
}
