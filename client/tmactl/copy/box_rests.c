/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes of ragged dimensions, whose last block is incomplete (view_rest). Their axes are cut where the
 * dimension ends, so that each box lies either before the end or past it. */
#include "box.h"

#include <string.h>

#include "proto/arithmetic.h"

/* Cuts an axis into pieces of at most `limit`, with boundaries before and after element `cut`, so that each
 * piece exists either as a whole or not at all. Returns -1 if it runs out of memory. */
static int cut_at(const struct view_axis *axis, int64_t limit, int64_t cut, struct box_pieces *ret)
{
	struct box_piece p = { .step = 1 };

	for (int64_t o = 0; o < axis->extent; o += p.len) {
		p.dst = p.src = o;
		p.len = min_i64(limit, axis->extent - o);
		if (o < cut)
			p.len = min_i64(p.len, cut - o);
		else if (o == cut)
			p.len = 1;
		p.src_len = p.len;
		if (box_piece_add(ret, p) < 0)
			return -1;
	}
	return 0;
}

/* Adds a boundary before element `cut` to an axis that is cut already. Returns -1 if it runs out of
 * memory. */
static int cut_more(struct box_pieces *pieces, int64_t cut)
{
	for (uint64_t i = 0; i < pieces->n; i++) {
		const int64_t at = cut - pieces->v[i].dst;
		struct box_piece rest = pieces->v[i];

		if (at <= 0 || at >= rest.len)
			continue;
		rest.dst = rest.src = cut;
		rest.len = rest.src_len = rest.len - at;
		pieces->v[i].len = pieces->v[i].src_len = at;
		if (box_piece_add(pieces, rest) < 0)
			return -1;
		memmove(&pieces->v[i + 2], &pieces->v[i + 1], (size_t)(pieces->n - i - 2) * sizeof rest);
		pieces->v[i + 1] = rest;
	}
	return 0;
}

int box_cut_rests(struct box_plan *plan)
{
	const struct view *view = plan->view;
	int rc = 0;

	for (int i = 0; i < view->n_rests; i++)
		for (int j = 0; j < view->rest[i].rank && !rc; j++) {
			const int d = view->rest[i].axis[j];
			const int64_t digit = view->rest[i].digit[j];
			struct box_pieces *pieces = &plan->axis[d];

			if (!pieces->n) {
				rc = cut_at(&view->axis[d], plan->limit[d], digit, pieces);
				continue;
			}
			rc = cut_more(pieces, digit);
			if (!rc)
				rc = cut_more(pieces, digit + 1);
		}
	return rc;
}

/* Returns whether the box lies past the end of the ragged dimension: compares its digits, the outermost
 * first. */
static bool is_past(const struct view_rest *rest, const struct box *box)
{
	for (int j = 0; j < rest->rank; j++) {
		const struct box_piece *p = &box->piece[rest->axis[j]];

		if (p->dst != rest->digit[j])
			return p->dst > rest->digit[j];
	}
	return true;
}

void box_leave_out(const struct view *view, struct box *box)
{
	box->is_missing = false;
	for (int i = 0; i < view->n_rests; i++) {
		const struct view_rest *rest = &view->rest[i];
		struct box_piece *p = &box->piece[rest->axis[0]];

		if (!is_past(rest, box))
			continue;
		if (rest->is_src) {
			p->before = p->len;
			p->src_len = 0;
		} else {
			box->is_missing = true;
		}
	}
}
