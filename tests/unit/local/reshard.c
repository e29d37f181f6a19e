/* SPDX-License-Identifier: Apache-2.0 */
/* Tests slices of a tensor that are assembled from other slices. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { RANK = 3, MOST_SLICES = 27 };

TestSuite(local_reshard, .init = memory_open, .fini = memory_close);

/* A box of the global tensor. The value of each element is its index there. */
struct drawn {
	int64_t start[RANK], shape[RANK], strides[RANK];
	size_t n; /* elements of the box's memory, gaps included */
};

/* Returns the value of element i of the box's memory, or -1 if it lies between rows. */
static int64_t number_of(const struct drawn *box, const int64_t global[RANK], size_t i)
{
	int64_t at = 0, left = (int64_t)i;

	for (int d = 0; d < RANK; d++) {
		const int64_t index = left / box->strides[d];

		left %= box->strides[d];
		if (index >= box->shape[d])
			return -1;
		at = at * global[d] + box->start[d] + index;
	}
	return at;
}

static struct tma_slice slice_of(struct drawn *box, uint64_t *state)
{
	struct tma_slice ret = { .tensor = { .dtype = TMA_UINT32, .rank = RANK, .strides = box->strides },
		                 .start = box->start };
	int64_t step = 1;

	for (int d = RANK - 1; d >= 0; d--) {
		box->strides[d] = step;
		step *= box->shape[d] + draw(state, 0, 1);
		ret.tensor.shape[d] = box->shape[d];
	}
	box->n = (size_t)step;
	ret.tensor.offset = memory_new(4 * box->n);
	return ret;
}

/* Cuts each dimension at random into up to three parts, and makes a slice of each box. Returns how many there
 * are. */
static size_t draw_slices(const int64_t global[RANK], uint64_t *state, struct drawn *boxes,
                          struct tma_slice *slices)
{
	int64_t cut[RANK][4];
	size_t n = 0;

	for (int d = 0; d < RANK; d++) {
		cut[d][0] = 0;
		cut[d][1] = draw(state, 0, global[d]);
		cut[d][2] = draw(state, cut[d][1], global[d]);
		cut[d][3] = global[d];
	}
	for (int i = 0; i < 27; i++) {
		const int at[RANK] = { i / 9, i / 3 % 3, i % 3 };
		bool is_empty = false;

		for (int d = 0; d < RANK; d++) {
			boxes[n].start[d] = cut[d][at[d]];
			boxes[n].shape[d] = cut[d][at[d] + 1] - cut[d][at[d]];
			is_empty |= boxes[n].shape[d] == 0;
		}
		if (is_empty)
			continue;
		slices[n] = slice_of(&boxes[n], state);
		n++;
	}
	return n;
}

static void fill(const struct drawn *box, const int64_t global[RANK], uint64_t address)
{
	uint32_t *numbers = malloc(4 * box->n);

	for (size_t i = 0; i < box->n; i++)
		numbers[i] = (uint32_t)number_of(box, global, i);
	memory_put(address, numbers, 4 * box->n);
	free(numbers);
}

static void check(const struct drawn *box, const int64_t global[RANK], uint64_t address)
{
	uint32_t *numbers = malloc(4 * box->n);

	memory_get(numbers, address, 4 * box->n);
	for (size_t i = 0; i < box->n; i++) {
		const int64_t wanted = number_of(box, global, i);

		cr_assert_eq(numbers[i], wanted < 0 ? 0xeeeeeeee : (uint32_t)wanted);
	}
	free(numbers);
}

Test(local_reshard, of_random_slices)
{
	uint64_t state = 11;

	for (int round = 0; round < 30; round++) {
		const int64_t global[RANK] = { draw(&state, 1, 9), draw(&state, 1, 20), draw(&state, 1, 40) };
		struct drawn from[MOST_SLICES], to[MOST_SLICES];
		struct tma_slice sources[MOST_SLICES], destinations[MOST_SLICES];
		const size_t n_from = draw_slices(global, &state, from, sources);
		const size_t n_to = draw_slices(global, &state, to, destinations);
		const struct tma_reshard reshard = { .destinations = destinations,
			                             .n_destinations = n_to,
			                             .sources = sources,
			                             .n_sources = n_from,
			                             .shape = global };

		for (size_t i = 0; i < n_from; i++)
			fill(&from[i], global, sources[i].tensor.offset);
		cr_assert_eq(tma_reshard(client, &reshard), 0, "%s", tma_last_error(client));
		for (size_t i = 0; i < n_to; i++)
			check(&to[i], global, destinations[i].tensor.offset);
		cr_assert_eq(tma_last_result(client)->bytes,
		             8 * (uint64_t)(global[0] * global[1] * global[2]));
		cr_assert_geq(tma_last_result(client)->pieces, n_to);
	}
}

enum { BANDS = 60, BAND = 4, SIDE = BANDS * BAND };

/* Bands of rows become bands of columns, in more pieces than a launch takes from a table. */
Test(local_reshard, of_many_pieces)
{
	const size_t bytes = 4 * BAND * SIDE;
	uint32_t *numbers = malloc(bytes);
	struct tma_slice sources[BANDS], destinations[BANDS];
	int64_t start[2][BANDS][2] = { 0 };

	for (int i = 0; i < BANDS; i++) {
		sources[i] = (struct tma_slice){ .tensor = { .offset = memory_new(bytes),
			                                     .dtype = TMA_UINT32,
			                                     .rank = 2,
			                                     .shape = { BAND, SIDE } },
			                         .start = start[0][i] };
		destinations[i] = (struct tma_slice){ .tensor = { .offset = memory_new(bytes),
			                                          .dtype = TMA_UINT32,
			                                          .rank = 2,
			                                          .shape = { SIDE, BAND } },
			                              .start = start[1][i] };
		start[0][i][0] = start[1][i][1] = BAND * i;
		for (int k = 0; k < BAND * SIDE; k++)
			numbers[k] = (uint32_t)(BAND * SIDE * i + k);
		memory_put(sources[i].tensor.offset, numbers, bytes);
	}
	cr_assert_eq(tma_reshard(client, &(struct tma_reshard){ .destinations = destinations,
	                                                        .n_destinations = BANDS,
	                                                        .sources = sources,
	                                                        .n_sources = BANDS }),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->pieces, BANDS * BANDS);
	for (int i = 0; i < BANDS; i++) {
		memory_get(numbers, destinations[i].tensor.offset, bytes);
		for (int r = 0; r < SIDE; r++)
			for (int c = 0; c < BAND; c++)
				cr_assert_eq(numbers[r * BAND + c], (uint32_t)(r * SIDE + BAND * i + c));
	}
	free(numbers);
}

/* A request is refused as a whole, before any piece is moved. */
Test(local_reshard, refuses)
{
	const uint64_t from = memory_new(64), to = memory_new(64);
	struct tma_slice source = { .tensor = {
					.offset = from, .dtype = TMA_UINT32, .rank = 1, .shape = { 8 } } };
	struct tma_slice halves[2] = { source, source };
	const struct tma_reshard reshard = {
		.destinations = halves, .n_destinations = 2, .sources = &source, .n_sources = 1
	};
	tma_ticket ticket;
	unsigned char got[64];

	halves[0].tensor.offset = to;
	halves[1].tensor.offset = to + 16;
	halves[1].start = (const int64_t[]){ 4 };
	halves[1].tensor.shape[0] = 4;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_OVERLAP);
	cr_assert_not_null(strstr(tma_last_error(client), "destinations[1]"), "%s", tma_last_error(client));
	halves[1].tensor.offset = to + 32;
	halves[1].tensor.shape[0] = 5;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_OUT_OF_RANGE);
	cr_assert_not_null(strstr(tma_last_error(client), "no source has element [8]"), "%s",
	                   tma_last_error(client));
	halves[1].tensor.region = memory_region(to + 32, 16, 0);
	halves[1].tensor.offset = 0;
	halves[1].tensor.shape[0] = 5;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_OUT_OF_RANGE);
	cr_assert_not_null(strstr(tma_last_error(client), "destinations[1].tensor"), "%s",
	                   tma_last_error(client));
	memory_get(got, to, sizeof got);
	for (size_t i = 0; i < sizeof got; i++)
		cr_assert_eq(got[i], 0xee);
	halves[1].tensor.shape[0] = 4;
	cr_assert_eq(tma_submit_reshard(client, &reshard, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_reshard(client, &(struct tma_reshard){ .sources = &source, .n_sources = 1 }), 0);
	cr_assert_eq(tma_last_result(client)->pieces, 0);
}
