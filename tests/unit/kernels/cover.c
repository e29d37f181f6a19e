/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the pieces of boxes cover every element of small tensors, which sources are chosen, and the
 * limits. */
#include "kernels/transform/reshard.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "tests/support/oracle.h"

#define MOST_SOURCES 40
#define MOST_RESTS   256
#define MOST_PIECES  512
#define MOST_GIVERS  4

static struct {
	struct box source[MOST_SOURCES];
	uint32_t giver[MOST_SOURCES];
	uint32_t distance[MOST_SOURCES];
	uint32_t candidate[MOST_SOURCES];
	uint64_t given[MOST_GIVERS];
	struct box rest[MOST_RESTS];
	struct cover_piece piece[MOST_PIECES];
} room;

static struct cover cover_of(int rank, uint32_t n_sources)
{
	memset(room.given, 0, sizeof room.given);
	return (struct cover){ .rank = rank,
		               .n_sources = n_sources,
		               .source = room.source,
		               .giver = room.giver,
		               .distance = room.distance,
		               .given = room.given,
		               .candidate = room.candidate,
		               .most_rests = MOST_RESTS,
		               .rest = room.rest,
		               .most_pieces = MOST_PIECES,
		               .piece = room.piece,
		               .most_steps = UINT64_MAX };
}

/* ---- At random ---------------------------------------------------------------------------------------- */

static struct box draw_box(uint64_t *state, int rank, int64_t extent)
{
	struct box box;

	for (int d = 0; d < rank; d++) {
		int64_t a = oracle_between(state, 0, extent), b = oracle_between(state, 0, extent);

		box.low[d] = a < b ? a : b;
		box.high[d] = a < b ? b : a;
	}
	return box;
}

static bool has(const struct box *box, int rank, const int64_t *at)
{
	for (int d = 0; d < rank; d++)
		if (at[d] < box->low[d] || at[d] >= box->high[d])
			return false;
	return true;
}

/* Advances `at` to the next element, in C order, of a tensor with this extent in each dimension. Returns
 * false after the last. */
static bool next(int64_t *at, int rank, int64_t extent)
{
	int d = rank - 1;

	for (; d >= 0 && ++at[d] == extent; d--)
		at[d] = 0;
	return d >= 0;
}

static uint32_t nearest(int rank, uint32_t n_sources, const int64_t *at)
{
	uint32_t distance = UINT32_MAX;

	for (uint32_t s = 0; s < n_sources; s++)
		if (has(&room.source[s], rank, at) && room.distance[s] < distance)
			distance = room.distance[s];
	return distance;
}

/* An element of the box is in exactly one piece, and no source that has the element is nearer than that of
 * the piece; any other element is in none. */
static void check_element(const struct cover *cover, const struct box *box, const int64_t *at, int round)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < cover->n_pieces; p++) {
		const struct cover_piece *piece = &cover->piece[p];

		if (!has(&piece->box, cover->rank, at))
			continue;
		n++;
		cr_assert(has(&room.source[piece->source], cover->rank, at), "round %d", round);
		cr_assert_eq(room.distance[piece->source], nearest(cover->rank, cover->n_sources, at),
		             "round %d", round);
	}
	cr_assert_eq(n, has(box, cover->rank, at), "round %d: %u pieces", round, n);
}

static int64_t count_given(const struct cover *cover)
{
	int64_t count = 0;

	for (int i = 0; i < MOST_GIVERS; i++)
		count += (int64_t)cover->given[i];
	for (uint32_t p = 0; p < cover->n_pieces; p++)
		if (room.distance[cover->piece[p].source] == 0)
			count += box_count(&cover->piece[p].box, cover->rank);
	return count;
}

Test(cover, of_random_boxes)
{
	int seen[2] = { 0 };
	uint64_t state = 3;

	for (int round = 0; round < 20000; round++) {
		const int rank = (int)oracle_between(&state, 0, 3);
		const int64_t extent = oracle_between(&state, 1, 7);
		const uint32_t n = (uint32_t)oracle_between(&state, 0, 12);
		struct cover cover = cover_of(rank, n);
		const struct box box = draw_box(&state, rank, extent);
		int64_t at[TENSOR_MAX_RANK] = { 0 };
		enum cover_outcome outcome;

		for (uint32_t s = 0; s < n; s++) {
			room.source[s] = draw_box(&state, rank, extent);
			room.distance[s] = (uint32_t)oracle_between(&state, 0, 2);
			room.giver[s] = (uint32_t)oracle_between(&state, 0, MOST_GIVERS - 1);
		}
		if (n > 0 && oracle_between(&state, 0, 1)) {
			memset(room.source[0].low, 0, sizeof room.source[0].low);
			for (int d = 0; d < rank; d++)
				room.source[0].high[d] = extent;
		}
		outcome = cover_box(&cover, &box);
		seen[outcome == COVER_GAP]++;
		if (outcome == COVER_WHOLE) {
			do
				check_element(&cover, &box, at, round);
			while (next(at, rank, extent));
			cr_assert_eq(count_given(&cover), box_count(&box, rank), "round %d", round);
			continue;
		}
		cr_assert_eq(outcome, COVER_GAP, "round %d", round);
		while (!has(&box, rank, at) || nearest(rank, n, at) != UINT32_MAX)
			cr_assert(next(at, rank, extent), "round %d: there is no gap", round);
		cr_assert_arr_eq(cover.gap, at, (size_t)rank * sizeof *at, "round %d", round);
	}
	cr_assert(seen[0] > 5000 && seen[1] > 2000, "%d without, %d with a gap", seen[0], seen[1]);
}

/* ---- What is chosen ----------------------------------------------------------------------------------- */

/* Sources and boxes of one dimension. */
struct choice_row {
	char name[40];
	int64_t source[6][2]; /* ends with the first empty one */
	uint32_t distance[6];
	uint32_t giver[6];
	int64_t box[4][2];
	uint32_t want[6]; /* sources of all pieces, in order */
	uint32_t n_want;
};

static struct choice_row choice_rows[] = {
	{ .name = "the nearest",
	  .source = { { 0, 8 }, { 0, 8 }, { 0, 8 } },
	  .distance = { 2, 1, 3 },
	  .box = { { 0, 8 } },
	  .want = { 1 },
	  .n_want = 1 },
	{ .name = "the nearest, and what it lacks",
	  .source = { { 0, 8 }, { 2, 6 } },
	  .distance = { 1, 0 },
	  .box = { { 0, 8 } },
	  .want = { 1, 0, 0 },
	  .n_want = 3 },
	{ .name = "replicas take turns",
	  .source = { { 0, 8 }, { 0, 8 } },
	  .distance = { 1, 1 },
	  .giver = { 0, 1 },
	  .box = { { 0, 2 }, { 2, 4 }, { 4, 6 }, { 6, 8 } },
	  .want = { 0, 1, 0, 1 },
	  .n_want = 4 },
	{ .name = "by what they have given",
	  .source = { { 0, 8 }, { 0, 8 } },
	  .distance = { 1, 1 },
	  .giver = { 0, 1 },
	  .box = { { 0, 5 }, { 5, 6 }, { 6, 7 }, { 7, 8 } },
	  .want = { 0, 1, 1, 1 },
	  .n_want = 4 },
	{ .name = "within a box too",
	  .source = { { 0, 4 }, { 4, 8 }, { 0, 4 }, { 4, 8 } },
	  .distance = { 1, 1, 1, 1 },
	  .giver = { 0, 0, 1, 1 },
	  .box = { { 0, 8 } },
	  .want = { 0, 3 },
	  .n_want = 2 },
	{ .name = "what costs nothing is not counted",
	  .source = { { 0, 4 }, { 4, 8 }, { 4, 8 } },
	  .distance = { 0, 1, 1 },
	  .giver = { 0, 0, 1 },
	  .box = { { 0, 8 } },
	  .want = { 0, 1 },
	  .n_want = 2 },
};

ParameterizedTestParameters(cover, chooses)
{
	return cr_make_param_array(struct choice_row, choice_rows, sizeof choice_rows / sizeof *choice_rows);
}

ParameterizedTest(struct choice_row *row, cover, chooses)
{
	struct cover cover;
	uint32_t n = 0;

	for (; n < 6 && row->source[n][1] > 0; n++) {
		room.source[n].low[0] = row->source[n][0];
		room.source[n].high[0] = row->source[n][1];
		room.distance[n] = row->distance[n];
		room.giver[n] = row->giver[n];
	}
	cover = cover_of(1, n);
	for (int i = 0; i < 4 && row->box[i][1] > 0; i++) {
		const struct box box = { { row->box[i][0] }, { row->box[i][1] } };

		cr_assert_eq(cover_box(&cover, &box), COVER_WHOLE, "%s", row->name);
	}
	cr_assert_eq(cover.n_pieces, row->n_want, "%s: %u pieces", row->name, cover.n_pieces);
	for (uint32_t i = 0; i < row->n_want; i++)
		cr_assert_eq(cover.piece[i].source, row->want[i], "%s: piece %u of source %u", row->name, i,
		             cover.piece[i].source);
}

/* ---- Bounds ------------------------------------------------------------------------------------------- */

/* Returns a row of 32 elements, each of which has a source of its own. */
static struct cover row_of_sources(void)
{
	for (int s = 0; s < 32; s++) {
		room.source[s] = (struct box){ { s }, { s + 1 } };
		room.distance[s] = room.giver[s] = 0;
	}
	return cover_of(1, 32);
}

Test(cover, stops_at_its_bounds)
{
	const struct box box = { { 0 }, { 32 } };
	struct cover cover = row_of_sources();
	uint64_t steps;

	cr_assert_eq(cover_box(&cover, &box), COVER_WHOLE);
	cr_assert_eq(cover.n_pieces, 32);
	steps = cover.steps;

	cover = row_of_sources();
	cover.most_steps = steps;
	cover.most_pieces = 32;
	cr_assert_eq(cover_box(&cover, &box), COVER_WHOLE);
	cover = row_of_sources();
	cover.most_steps = steps - 1;
	cr_assert_eq(cover_box(&cover, &box), COVER_MANY_STEPS);
	cover = row_of_sources();
	cover.most_pieces = 31;
	cr_assert_eq(cover_box(&cover, &box), COVER_MANY_PIECES);
	cr_assert_eq(cover.n_pieces, 31);
}

/* A box of r dimensions is left as 2 * r boxes when a point in its middle is covered. */
Test(cover, keeps_within_its_room)
{
	struct box box;

	for (int d = 0; d < TENSOR_MAX_RANK; d++) {
		box.low[d] = 0;
		box.high[d] = 3;
		room.source[0].low[d] = 1;
		room.source[0].high[d] = 2;
		room.source[1] = box;
	}
	for (int rank = 1; rank <= TENSOR_MAX_RANK; rank++) {
		struct cover cover = cover_of(rank, 2);

		room.distance[0] = 0;
		room.distance[1] = 1;
		room.source[1] = box;
		cover.most_rests = 2 * (uint32_t)rank;
		cr_assert_eq(cover_box(&cover, &box), COVER_WHOLE, "rank %d", rank);
		cr_assert_eq(cover.n_pieces, 2 * (uint32_t)rank + 1, "rank %d", rank);
		cover.most_rests--;
		cr_assert_eq(cover_box(&cover, &box), COVER_MANY_RESTS, "rank %d", rank);
	}
}
