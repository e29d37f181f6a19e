/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real tmad: scales that the service computes while it converts, by each kind of
 * request. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { ROWS = 6, COLS = 8, BLOCK_ROWS = 4, BLOCK_COLS = 3, SCALES = 2 * 3 };

/* Offsets of the tensors in the region. */
enum { SRC_AT = 0, DST_AT = 1024, SCALE_AT = 2048, INVERSE_AT = 3072, REGION_BYTES = 4096 };

static struct process service;
static tma_client *client;
static tma_region *region;

static const int64_t block[] = { BLOCK_ROWS, BLOCK_COLS };
static struct tma_tensor src = { .offset = SRC_AT, .dtype = TMA_FLOAT32, .rank = 2, .shape = { ROWS, COLS } };
static struct tma_tensor dst = {
	.offset = DST_AT, .dtype = TMA_FLOAT8_E4M3FN, .rank = 2, .shape = { ROWS, COLS }
};
static struct tma_tensor scale = { .offset = SCALE_AT, .dtype = TMA_UINT8, .rank = 2, .shape = { 2, 3 } };
static struct tma_tensor inverse = {
	.offset = INVERSE_AT, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 2, 3 }
};
static struct tma_amax amax = { .block = block, .scale = &scale, .inverse = &inverse, .power_of_two = 1 };
static struct tma_conversion conversion = { .amax = &amax };
static struct tma_transform transform = { .dst = &dst, .src = &src, .conversion = &conversion };

static void setup(void)
{
	float *values;

	client = rig_start(&service, NULL);
	region = rig_region(client, REGION_BYTES);
	src.region = dst.region = scale.region = inverse.region = region;
	amax.least = 0;
	amax.reserved[3] = 0;
	values = rig_data(region);
	for (int i = 0; i < ROWS * COLS; i++)
		values[i] = (float)(i < ROWS * COLS / 2 ? 448 : 896 * 4);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_amax, .init = setup, .fini = teardown, .timeout = 60);

/* Rows 0 to 2 hold 448, the other rows 3584 = 8 * 448. Each block of rows has some of the latter, so that its
 * scale is 8. */
static void assert_scaled(void)
{
	uint8_t *bytes = rig_data(region);
	const float *inverses = (const float *)(const void *)(bytes + INVERSE_AT);

	for (int i = 0; i < SCALES; i++) {
		cr_assert_eq(bytes[SCALE_AT + i], 127 + 3, "scale %d is 2^%d", i, bytes[SCALE_AT + i] - 127);
		cr_assert_eq(inverses[i], 0.125f, "inverse %d", i);
	}
	cr_assert_eq(bytes[DST_AT], 0x66, "448 / 8 is %#x", bytes[DST_AT]);
	cr_assert_eq(bytes[DST_AT + ROWS * COLS - 1], 0x7e, "448 is %#x", bytes[DST_AT + ROWS * COLS - 1]);
	memset(bytes + DST_AT, 0xee, REGION_BYTES - DST_AT);
}

static struct tma_place at(uint64_t offset)
{
	return (struct tma_place){ .region = region, .offset = offset };
}

Test(library_amax, transforms)
{
	cr_assert_eq(tma_transform(client, &transform), TMA_OK, "%s", tma_last_error(client));
	assert_scaled();
	amax.least = 896 * 4; /* each largest magnitude is as much anyway */
	cr_assert_eq(tma_transform(client, &transform), TMA_OK, "%s", tma_last_error(client));
	assert_scaled();
}

Test(library_amax, items)
{
	struct tma_operands operands = { .amax_scale = at(SCALE_AT), .amax_inverse = at(INVERSE_AT) };
	struct tma_item items[2] = { { .transform = &transform } };
	tma_plan *plan = NULL;

	cr_assert_eq(tma_run_items(client, items, 1, NULL), TMA_OK, "%s", tma_last_error(client));
	assert_scaled();
	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), TMA_OK, "%s", tma_last_error(client));
	items[1] =
	    (struct tma_item){ .plan = plan, .dst = at(DST_AT), .src = at(SRC_AT), .operands = &operands };
	cr_assert_eq(tma_run_items(client, &items[1], 1, NULL), TMA_OK, "%s", tma_last_error(client));
	assert_scaled();

	operands.amax_inverse = (struct tma_place){ 0 };
	cr_assert_eq(tma_run_items(client, &items[1], 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "amax_inverse: missing"), "%s",
	                   tma_last_error(client));
	cr_assert_eq(tma_plan_run(client, plan, at(DST_AT), at(SRC_AT), NULL), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "amax_scale: missing"), "%s",
	                   tma_last_error(client));
	cr_assert_eq(tma_plan_release(plan), TMA_OK);
}

Test(library_amax, refusals)
{
	static const int32_t index[] = { 0 };
	struct tma_tensor split = scale;
	const struct tma_blocks blocks = {
		.transform = &transform, .count = 1, .index_dtype = TMA_INT32, .index = index
	};
	const struct {
		struct tma_amax amax;
		int status;
		const char *message;
	} rows[] = {
		{ { .scale = &scale }, TMA_INVALID_ARGUMENT, "amax.block is NULL" },
		{ { .block = block }, TMA_INVALID_ARGUMENT, "amax: scale and inverse are missing" },
		{ { .block = block, .scale = &scale }, TMA_INVALID_ARGUMENT, "only with power_of_two" },
		{ { .block = block, .scale = &split, .power_of_two = 1 },
		  TMA_INVALID_ARGUMENT,
		  "amax.scale.split: it is not split" },
		{ { .block = block, .inverse = &inverse, .least = -1 },
		  TMA_INVALID_ARGUMENT,
		  "amax.least: -1" },
		{ { .block = block, .inverse = &inverse, .reserved = { [3] = 9 } },
		  TMA_INVALID_ARGUMENT,
		  "amax.reserved[3]" },
	};

	split.split = (const int64_t[]){ 0, 1 };
	split.n_split = 1;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		conversion.amax = &rows[i].amax;
		cr_expect_eq(tma_transform(client, &transform), rows[i].status, "%s", rows[i].message);
		cr_expect_not_null(strstr(tma_last_error(client), rows[i].message), "%s: %s", rows[i].message,
		                   tma_last_error(client));
	}
	conversion.amax = &amax;
	cr_expect_eq(tma_gather(client, &blocks), TMA_UNSUPPORTED);
	cr_expect_not_null(strstr(tma_last_error(client), "amax: lists of blocks compute no scales"), "%s",
	                   tma_last_error(client));
}
