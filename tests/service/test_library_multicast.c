/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real tmad: transforms with further destinations. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { ROWS = 30, COLUMNS = 50, FURTHER = 4 };

#define BYTES ((size_t)ROWS * COLUMNS * 4)

static struct process service;
static tma_client *client;
static tma_region *regions[2 + FURTHER];
static const int64_t by_columns[] = { 1, ROWS };

static struct tma_tensor src = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { COLUMNS, ROWS } };
static struct tma_tensor dst = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { ROWS, COLUMNS } };
static struct tma_tensor further[FURTHER];

static void setup(void)
{
	float *values;

	client = rig_start(&service, NULL);
	for (int i = 0; i < 2 + FURTHER; i++)
		regions[i] = rig_region(client, BYTES);
	values = rig_data(regions[0]);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		values[i] = (float)i;
	src.region = regions[0];
	dst.region = regions[1];
	for (int i = 0; i < FURTHER; i++) {
		further[i] = dst;
		further[i].region = regions[2 + i];
	}
	further[1].strides = by_columns;
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_multicast, .init = setup, .fini = teardown, .timeout = 60);

static struct tma_transform transform(void)
{
	static const int perm[] = { 1, 0 };

	return (struct tma_transform){
		.dst = &dst, .src = &src, .perm = perm, .further_dst = further, .n_further_dst = FURTHER
	};
}

static void assert_made(void)
{
	for (int i = 1; i < 2 + FURTHER; i++) {
		float *values = rig_data(regions[i]);

		for (int r = 0; r < ROWS; r++)
			for (int c = 0; c < COLUMNS; c++)
				cr_assert_eq(values[i == 3 ? c * ROWS + r : r * COLUMNS + c],
				             (float)(c * ROWS + r), "destination %d at %d, %d", i, r, c);
		memset(values, 0xff, BYTES);
	}
}

Test(library_multicast, a_transform)
{
	const struct tma_transform t = transform();

	cr_assert_eq(tma_transform(client, &t), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->bytes, (1 + FURTHER) * 2 * BYTES);
	assert_made();
}

Test(library_multicast, a_ticket)
{
	const struct tma_transform t = transform();
	tma_ticket tickets[3];

	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_submit(client, &t, &tickets[i]), TMA_OK, "%s", tma_last_error(client));
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_wait(client, tickets[i], NULL), TMA_OK, "%s", tma_last_error(client));
	assert_made();
}

static void assert_refused(int status, const char *words)
{
	cr_assert_eq(status, TMA_INVALID_ARGUMENT, "%s: %d", words, status);
	cr_assert(strstr(tma_last_error(client), words), "%s", tma_last_error(client));
}

Test(library_multicast, refused_before_it_is_sent)
{
	struct tma_transform t = transform();
	struct tma_tensor *many = calloc(4096, sizeof *many);
	struct tma_item item = { .transform = &t };
	tma_plan *plan;

	assert_refused(tma_plan_prepare(client, &t, &plan), "transform.n_further_dst: 4; only");
	assert_refused(tma_run_items(client, &item, 1, NULL), "transform.n_further_dst: 4; only");
	further[2].reserved[0] = 1;
	assert_refused(tma_transform(client, &t), "further_dst[2].reserved[0]");
	further[2].reserved[0] = 0;
	further[3].rank = 40;
	assert_refused(tma_transform(client, &t), "further_dst[3].rank: 40");
	further[3].rank = 2;
	t.further_dst = NULL;
	assert_refused(tma_transform(client, &t), "transform.further_dst is NULL, but n_further_dst is 4");
	for (int i = 0; i < 4096; i++)
		many[i] = further[0];
	t.further_dst = many;
	for (t.n_further_dst = 500; t.n_further_dst <= 4096; t.n_further_dst += 3596)
		assert_refused(tma_transform(client, &t), "tensors do not fit into a message");
	t.n_further_dst = SIZE_MAX;
	assert_refused(tma_transform(client, &t), "tensors do not fit into a message");
	t.n_further_dst = 65;
	assert_refused(tma_transform(client, &t), "further_dst: 65 tensors, at most 64");
	free(many);
	t = transform();
	cr_assert_eq(tma_transform(client, &t), TMA_OK, "%s", tma_last_error(client));
	assert_made();
}

/* The request has as many destinations as the service accepts, each of as many dimensions as a tensor may
 * have. */
Test(library_multicast, tensors_of_many_dimensions)
{
	struct tma_tensor *many = calloc(64, sizeof *many);
	struct tma_tensor from = { .region = regions[0], .dtype = TMA_UINT8, .rank = 20 };
	struct tma_tensor to = { .region = regions[1], .dtype = TMA_UINT8, .rank = 20 };
	const struct tma_transform t = { .dst = &to, .src = &from, .further_dst = many, .n_further_dst = 64 };
	int64_t strides[20];

	for (int d = 0; d < 20; d++) {
		from.shape[d] = to.shape[d] = 1;
		strides[d] = 1;
	}
	for (int i = 0; i < 64; i++) {
		many[i] = to;
		many[i].offset = (uint64_t)i + 1;
		many[i].strides = strides;
	}
	*(uint8_t *)rig_data(regions[0]) = 5;
	cr_assert_eq(tma_transform(client, &t), TMA_OK, "%s", tma_last_error(client));
	for (int i = 0; i < 65; i++)
		cr_assert_eq(((uint8_t *)rig_data(regions[1]))[i], 5, "destination %d", i);
	from.rank = to.rank = 32;
	for (int i = 0; i < 64; i++)
		many[i].rank = 32;
	for (int d = 0; d < 32; d++)
		for (int i = 0; i < 64; i++)
			from.shape[d] = to.shape[d] = many[i].shape[d] = 1;
	for (int i = 0; i < 64; i++)
		many[i].strides = to.shape;
	assert_refused(tma_transform(client, &t), "64 tensors do not fit into a message");
	free(many);
}
