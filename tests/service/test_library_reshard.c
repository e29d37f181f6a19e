/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real tmad: slices of a tensor whose number of shards changes, with and without a
 * ticket, and arguments that cannot be sent. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

enum { ROWS = 24, COLS = 40, COUNT = ROWS * COLS, HALF = 16384, REGION_BYTES = 4 * HALF };

static struct process service;
static tma_client *client;
static tma_region *region;
static uint16_t *values; /* the region's memory */

static void setup(void)
{
	client = rig_start(&service, NULL);
	region = rig_region(client, REGION_BYTES);
	values = rig_data(region);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_reshard, .init = setup, .fini = teardown, .timeout = 60);

/* One side: shards along an axis, one after the other in the region. */
struct shards {
	int n;
	int axis;
	uint64_t offset;
	struct tma_slice slice[8];
	int64_t start[8][2];
};

static void shards_init(struct shards *shards, int n, int axis, uint64_t offset)
{
	uint64_t at = offset;

	*shards = (struct shards){ .n = n, .axis = axis, .offset = offset };
	for (int i = 0; i < n; i++) {
		struct tma_tensor *tensor = &shards->slice[i].tensor;

		*tensor = (struct tma_tensor){ .region = region,
			                       .offset = at,
			                       .dtype = TMA_BFLOAT16,
			                       .rank = 2,
			                       .shape = { ROWS, COLS } };
		tensor->shape[axis] /= n;
		shards->start[i][axis] = i * tensor->shape[axis];
		shards->slice[i].start = shards->start[i];
		at += (uint64_t)(tensor->shape[0] * tensor->shape[1]) * sizeof *values;
	}
}

/* Returns the address of an element in a shard, given its indexes in the tensor. */
static uint16_t *element(const struct shards *shards, int shard, int64_t row, int64_t col)
{
	const struct tma_tensor *tensor = &shards->slice[shard].tensor;

	return values + tensor->offset / sizeof *values + (row - shards->start[shard][0]) * tensor->shape[1] +
	       col - shards->start[shard][1];
}

static int shard_of(const struct shards *shards, int64_t row, int64_t col)
{
	return (int)((shards->axis == 0 ? row : col) / shards->slice[0].tensor.shape[shards->axis]);
}

static struct tma_reshard reshard_of(const struct shards *to, const struct shards *from,
                                     const struct tma_order *order)
{
	static const int64_t shape[] = { ROWS, COLS };

	memset(values, 0xee, REGION_BYTES);
	for (int row = 0; row < ROWS; row++)
		for (int col = 0; col < COLS; col++)
			*element(from, shard_of(from, row, col), row, col) = (uint16_t)(row * COLS + col);
	return (struct tma_reshard){ .destinations = to->slice,
		                     .n_destinations = (size_t)to->n,
		                     .sources = from->slice,
		                     .n_sources = (size_t)from->n,
		                     .shape = shape,
		                     .order = order };
}

static void check(const struct shards *to, const struct tma_result *result, uint64_t pieces)
{
	for (int row = 0; row < ROWS; row++)
		for (int col = 0; col < COLS; col++)
			cr_assert_eq(*element(to, shard_of(to, row, col), row, col), row * COLS + col,
			             "%d shards, row %d, column %d", to->n, row, col);
	cr_assert_eq(values[to->offset / sizeof *values + COUNT], 0xeeee, "what is behind them");
	cr_assert_eq(result->bytes, 2 * COUNT * sizeof *values);
	cr_assert_eq(result->pieces, pieces, "%d shards: %d pieces", to->n, (int)result->pieces);
	cr_assert_eq(result->status, 0);
}

Test(library_reshard, between_numbers_of_shards)
{
	static const int numbers[][2] = { { 2, 4 }, { 4, 8 }, { 8, 1 }, { 1, 8 }, { 8, 2 }, { 1, 1 } };
	struct shards to, from;

	for (int axes = 0; axes < 4; axes++) {
		for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
			const int before = numbers[i][0], after = numbers[i][1];
			const bool same = axes / 2 == axes % 2;
			struct tma_reshard reshard;

			shards_init(&from, before, axes / 2, 0);
			shards_init(&to, after, axes % 2, HALF);
			reshard = reshard_of(&to, &from, NULL);
			cr_assert_eq(tma_reshard(client, &reshard), TMA_OK, "%s", tma_last_error(client));
			check(&to, tma_last_result(client),
			      (uint64_t)(same ? (before > after ? before : after) : before * after));
		}
	}
}

Test(library_reshard, by_ticket)
{
	const uint64_t word = 3 * HALF;
	struct tma_order order = { .wait = { .region = region, .offset = word, .value = 1 },
		                   .signal = { .region = region, .offset = word + 8, .value = 1 } };
	struct shards to, from;
	struct tma_result result;
	struct tma_reshard reshard;
	uint64_t *words = (uint64_t *)(void *)((uint8_t *)values + word);
	tma_ticket ticket;

	shards_init(&from, 2, 0, 0);
	shards_init(&to, 4, 0, HALF);
	reshard = reshard_of(&to, &from, &order);
	words[0] = words[1] = 0;
	cr_assert_eq(tma_submit_reshard(client, &reshard, &ticket), TMA_OK, "%s", tma_last_error(client));
	memset(to.slice, 0, sizeof to.slice); /* arguments are not used after the call returns */
	tma_point_signal(&words[0], 1);
	cr_assert_eq(tma_wait(client, ticket, &result), TMA_OK, "%s", tma_last_error(client));
	shards_init(&to, 4, 0, HALF);
	check(&to, &result, 4);
	cr_assert_eq(words[1], 1);

	order.completion = TMA_COMPLETION_SIGNAL;
	reshard = reshard_of(&to, &from, &order);
	words[0] = 1;
	words[1] = 0;
	cr_assert_eq(tma_submit_reshard(client, &reshard, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_point_wait(&words[1], 1, 10000), TMA_OK);
	cr_assert_eq(tma_take_error(client), TMA_OK);
	reshard.n_sources = 1;
	cr_assert_eq(tma_submit_reshard(client, &reshard, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_OK);
	cr_assert_eq(tma_take_error(client), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "destinations[2]: no source has element [12, 0]"), "%s",
	          tma_last_error(client));
}

/* A slice without a start begins where the tensor does; there may be no slices at all. */
Test(library_reshard, what_is_left_out)
{
	struct tma_slice slices[] = { { .tensor = { .region = region, .rank = 1, .shape = { 5 } } },
		                      { .tensor = { .region = region, .rank = 1, .shape = { 7 } } } };
	uint8_t *bytes = (uint8_t *)values;

	slices[0].tensor.dtype = slices[1].tensor.dtype = TMA_UINT8;
	slices[1].tensor.offset = 64;
	memcpy(bytes + 64, "reshard", 7);
	cr_assert_eq(tma_reshard(client, &(struct tma_reshard){ .destinations = &slices[0],
	                                                        .n_destinations = 1,
	                                                        .sources = &slices[1],
	                                                        .n_sources = 1 }),
	             TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(bytes, "resha\0", 6), 0);
	cr_assert_eq(tma_reshard(client, &(struct tma_reshard){ 0 }), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->pieces, 0);
}

/* As many slices as a message can hold, and more. */
Test(library_reshard, fills_a_message)
{
	static struct tma_slice slices[1024];
	static int64_t starts[1024][TMA_MAX_RANK];
	struct tma_reshard reshard = { .destinations = slices, .sources = &slices[512], .n_sources = 1 };
	size_t most[2] = { 0 };

	for (int rank = 1; rank < 3; rank++) {
		for (int i = 0; i < 1024; i++) {
			starts[i][0] = i;
			slices[i] = (struct tma_slice){ .tensor = { .region = region,
				                                    .offset = (uint64_t)i,
				                                    .dtype = TMA_UINT8,
				                                    .rank = rank,
				                                    .shape = { 1, 1 } },
				                        .start = starts[i] };
		}
		slices[512].tensor.offset = HALF;
		slices[512].tensor.shape[0] = 512;
		slices[512].start = NULL;
		for (size_t n = 1; n < 512; n++) {
			reshard.n_destinations = n;
			if (tma_reshard(client, &reshard) == TMA_OK) {
				most[rank - 1] = n;
				continue;
			}
			cr_assert_eq(tma_last_result(client)->status, TMA_INVALID_ARGUMENT);
			cr_assert(strstr(tma_last_error(client), "fit into a message"), "%s",
			          tma_last_error(client));
			break;
		}
	}
	cr_assert_eq(tma_reconnects(client), 0);
	cr_assert(most[0] > 150 && most[1] > 100 && most[1] < most[0], "%zu, %zu", most[0], most[1]);
	reshard.n_destinations = SIZE_MAX;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "a message holds"), "%s", tma_last_error(client));
}

Test(library_reshard, what_is_refused)
{
	struct shards to, from;
	struct tma_reshard reshard, bad;

	shards_init(&from, 2, 0, 0);
	shards_init(&to, 4, 0, HALF);
	reshard = reshard_of(&to, &from, NULL);
	cr_assert_eq(tma_reshard(client, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "reshard is NULL");
	bad = reshard;
	bad.destinations = NULL;
	cr_assert_eq(tma_reshard(client, &bad), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "destinations is NULL, but n_destinations is 4");
	bad = reshard;
	bad.sources = NULL;
	cr_assert_eq(tma_reshard(client, &bad), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "sources is NULL, but n_sources is 2");
	bad = reshard;
	bad.n_sources = 1;
	cr_assert_eq(tma_reshard(client, &bad), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "destinations[2]: no source has element [12, 0]"), "%s",
	          tma_last_error(client));
	from.slice[1].tensor.rank = 40;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "sources[1].tensor.rank: 40"), "%s", tma_last_error(client));
	from.slice[1].tensor.rank = 2;
	cr_assert_eq(tma_reshard(client, &reshard), TMA_OK, "%s", tma_last_error(client));
}
