/* SPDX-License-Identifier: Apache-2.0 */
/* The library's submission rings against a real tmad. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define BLOCK   64 /* bytes of a block */
#define ENTRIES 8

static struct process service;
static tma_client *client;
static tma_plan *plan;
static tma_region *src, *dst;

static void setup(void)
{
	struct tma_tensor block = { .dtype = TMA_UINT8, .rank = 1, .shape = { BLOCK } };

	client = rig_start(&service, NULL);
	cr_assert_eq(tma_plan_prepare(client, &(struct tma_transform){ .dst = &block, .src = &block }, &plan),
	             TMA_OK, "%s", tma_last_error(client));
	src = rig_region(client, BLOCK * 256);
	dst = rig_region(client, BLOCK * ENTRIES);
	for (size_t i = 0; i < BLOCK * 256; i++)
		((uint8_t *)rig_data(src))[i] = (uint8_t)(i * 2654435761u >> 7);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_ring, .init = setup, .fini = teardown, .timeout = 120);

static tma_ring *open_ring(uint32_t spin_us)
{
	tma_ring *ring = NULL;

	cr_assert_eq(tma_ring_open(client, ENTRIES, spin_us, &ring), TMA_OK, "%s", tma_last_error(client));
	return ring;
}

static int push(tma_ring *ring, uint64_t to, uint64_t from, uint64_t tag)
{
	return tma_ring_push(ring, plan, (struct tma_place){ .region = dst, .offset = to * BLOCK },
	                     (struct tma_place){ .region = src, .offset = from * BLOCK }, tag);
}

Test(library_ring, runs_one_by_one_and_many)
{
	static const uint32_t spins[] = { 0, 100 };

	for (int s = 0; s < 2; s++) {
		tma_ring *ring = open_ring(spins[s]);
		struct tma_ring_end end;

		for (uint64_t i = 0; i < 600; i++) {
			uint64_t n = i % ENTRIES + 1;

			for (uint64_t k = 0; k < n; k++)
				cr_assert_eq(push(ring, k, (i + k) % 256, i << 8 | k), TMA_OK, "%s",
				             tma_last_error(client));
			for (uint64_t k = 0; k < n; k++) {
				cr_assert_eq(tma_ring_wait(ring, spins[s], &end), TMA_OK, "%s",
				             tma_last_error(client));
				cr_assert_eq(end.status, TMA_OK);
				cr_assert_eq(end.tag, i << 8 | k);
				cr_assert_eq(end.bytes, 2 * BLOCK);
				cr_assert_arr_eq((char *)rig_data(dst) + k * BLOCK,
				                 (char *)rig_data(src) + (i + k) % 256 * BLOCK, BLOCK,
				                 "run %u", (unsigned)i);
			}
		}
		cr_assert_eq(tma_ring_poll(ring, &end), TMA_PENDING);
		cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_NOT_FOUND);
		cr_assert_eq(tma_ring_close(ring), TMA_OK, "%s", tma_last_error(client));
	}
}

Test(library_ring, a_full_one_is_busy)
{
	tma_ring *ring = open_ring(0), *other = NULL;
	struct tma_ring_end end;

	for (uint64_t i = 0; i < ENTRIES; i++)
		cr_assert_eq(push(ring, i, i, i), TMA_OK);
	cr_assert_eq(push(ring, 0, 0, 0), TMA_BUSY);
	cr_assert_eq(tma_ring_close(ring), TMA_BUSY);
	cr_assert_eq(tma_ring_open(client, ENTRIES, 0, &other), TMA_ALREADY_EXISTS);
	cr_assert_eq(tma_ring_flush(ring), TMA_OK);
	for (uint64_t i = 0; i < ENTRIES; i++)
		cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_OK);
	cr_assert_eq(tma_ring_close(ring), TMA_OK);
}

Test(library_ring, what_is_wrong)
{
	tma_ring *ring = NULL;
	struct tma_ring_end end;

	cr_assert_eq(tma_ring_open(client, 3, 0, &ring), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "entries: 3"), "%s", tma_last_error(client));
	cr_assert_eq(tma_ring_push(NULL, plan, (struct tma_place){ 0 }, (struct tma_place){ 0 }, 0),
	             TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_ring_wait(NULL, 0, &end), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_ring_close(NULL), TMA_OK);

	ring = open_ring(0);
	cr_assert_eq(tma_ring_push(ring, NULL, (struct tma_place){ .region = dst, .offset = 0 },
	                           (struct tma_place){ .region = src, .offset = 0 }, 0),
	             TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_ring_push(ring, plan, (struct tma_place){ 0 },
	                           (struct tma_place){ .region = src, .offset = 0 }, 0),
	             TMA_INVALID_ARGUMENT);
	cr_assert_eq(push(ring, ENTRIES, 0, 5), TMA_OK, "the service says the rest");
	cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_OK);
	cr_assert_eq(end.status, TMA_OUT_OF_RANGE);
	cr_assert_eq(end.tag, 5);
}

static tma_plan *plan_of(const struct tma_tensor *to, const struct tma_conversion *conversion)
{
	const struct tma_tensor from = { .dtype = TMA_FLOAT32, .rank = 1, .shape = { BLOCK / 4 } };
	tma_plan *made = NULL;

	cr_assert_eq(
	    tma_plan_prepare(
		client, &(struct tma_transform){ .dst = to, .src = &from, .conversion = conversion }, &made),
	    TMA_OK, "%s", tma_last_error(client));
	return made;
}

/* Its runs need places, which an entry of the ring does not have. */
Test(library_ring, a_plan_with_tensors_of_its_own)
{
	const struct tma_tensor to = { .dtype = TMA_FLOAT32, .rank = 1, .shape = { BLOCK / 4 } };
	const struct tma_tensor small = { .dtype = TMA_FLOAT8_E4M3FN, .rank = 1, .shape = { BLOCK / 4 } };
	const struct tma_tensor one = { .dtype = TMA_FLOAT32, .rank = 1, .shape = { 1 } };
	const struct tma_number two = { .kind = TMA_NUMBER_REAL, .re = 2 };
	const struct tma_amax amax = { .block = (int64_t[]){ BLOCK }, .scale = &one };
	const struct {
		const char *words; /* text of the error; NULL: the entry runs */
		const struct tma_tensor *to;
		struct tma_conversion conversion;
	} rows[] = {
		{ "plan: its scale is a tensor", &to, { .scale_tensor = &one } },
		{ "plan: its scale is a tensor", &to, { .scale_tensor = &one, .bias = &two } },
		{ "plan: its bias is a tensor", &to, { .scale = &two, .bias_tensor = &one } },
		{ "plan: its amax writes tensors", &small, { .amax = &amax } },
		{ NULL, &to, { .scale = &two, .bias = &two } },
	};
	tma_ring *ring = open_ring(0);
	struct tma_ring_end end;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		tma_plan *made = plan_of(rows[i].to, &rows[i].conversion);
		int rc = tma_ring_push(ring, made, (struct tma_place){ .region = dst },
		                       (struct tma_place){ .region = src }, i);

		if (rows[i].words) {
			cr_assert_eq(rc, TMA_INVALID_ARGUMENT, "row %zu: %d", i, rc);
			cr_assert_not_null(strstr(tma_last_error(client), rows[i].words), "row %zu: %s", i,
			                   tma_last_error(client));
			continue;
		}
		cr_assert_eq(rc, TMA_OK, "row %zu: %s", i, tma_last_error(client));
		cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_OK, "row %zu: %s", i, tma_last_error(client));
		cr_assert_eq(end.tag, i);
		cr_assert_eq(end.status, TMA_OK, "row %zu", i);
	}
}

/* The ring of a lost connection reports that; its regions and plans exist again on the next connection. */
Test(library_ring, goes_with_its_connection)
{
	tma_ring *ring = open_ring(0);
	struct tma_ring_end end;

	process_kill(&service);
	cr_assert_eq(push(ring, 0, 1, 1), TMA_OK, "nothing has been sent yet");
	cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_DISCONNECTED);
	process_start_again(&service, NULL);
	cr_assert_eq(tma_ping(client), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(push(ring, 0, 1, 1), TMA_DISCONNECTED);
	cr_assert_eq(tma_ring_close(ring), TMA_OK, "%s", tma_last_error(client));
	ring = open_ring(0);
	cr_assert_eq(push(ring, 0, 9, 2), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(end.status, TMA_OK);
	cr_assert_arr_eq(rig_data(dst), (char *)rig_data(src) + 9 * BLOCK, BLOCK);
}
