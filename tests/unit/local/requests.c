/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests without a service: by ticket, in batches, and those that only a service accepts. */
#include <poll.h>
#include <string.h>

#include "client.h"

Test(local_requests, tell_of_themselves)
{
	tma_client *client = local_client();
	tma_document *info = NULL;

	cr_assert_eq(tma_ping(client), 0);
	cr_assert_str_eq(tma_socket_path(client), "local:");
	cr_assert_eq(tma_info(client, &info), 0, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_document_text(tma_document_find(info, "engine")), "cpu");
	cr_assert_str_eq(tma_document_text(tma_document_find(info, "version")), tma_version());
	tma_document_free(info);
	cr_assert_eq(tma_connect(client, "local:"), TMA_ALREADY_EXISTS);
	tma_free(client);
}

Test(local_requests, by_ticket)
{
	tma_client *client = local_client();
	uint32_t *src = numbers(12), dst[12] = { 0 };
	const struct tma_tensor from = matrix(src, 3, 4), to = matrix(dst, 3, 4), wrong = matrix(dst, 4, 4);
	struct tma_completed completed;
	tma_ticket tickets[2];

	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &to, .src = &from }, &tickets[0]), 0);
	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &wrong, .src = &from }, &tickets[1]),
	             0);
	cr_assert_eq(tma_next(client, -1, &completed), 0);
	cr_assert(completed.ticket == tickets[0] && completed.result.status == 0);
	cr_assert_eq(memcmp(dst, src, sizeof dst), 0);
	cr_assert_eq(tma_wait(client, tickets[1], NULL), TMA_INVALID_ARGUMENT);
	tma_set_batching(client, true);
	dst[0]++;
	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &to, .src = &from }, &tickets[0]), 0);
	cr_assert_neq(dst[0], src[0]);
	cr_assert_eq(tma_flush(client), 0);
	cr_assert_eq(dst[0], src[0]);
	cr_assert_eq(tma_poll(client, tickets[0], NULL), 0);
	free(src);
	tma_free(client);
}

/* A blocking call first sends the requests that are kept for a batch. */
Test(local_requests, keep_their_order)
{
	tma_client *client = local_client();
	uint32_t first[2] = { 1, 2 }, second[2] = { 0 }, third[2] = { 0 };
	const struct tma_tensor a = matrix(first, 1, 2), b = matrix(second, 1, 2), c = matrix(third, 1, 2);
	tma_ticket ticket;

	tma_set_batching(client, true);
	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &b, .src = &a }, &ticket), 0);
	cr_assert_eq(tma_transform(client, &(struct tma_transform){ .dst = &c, .src = &b }), 0);
	cr_assert(third[0] == 1 && third[1] == 2);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0);
	tma_free(client);
}

/* The memory of a region stays until the requests that name it have run. */
Test(local_requests, before_a_release)
{
	tma_client *client = local_client();
	uint32_t src[2] = { 1, 2 };
	const struct tma_tensor from = matrix(src, 1, 2);
	struct tma_tensor to = { .dtype = TMA_UINT32, .rank = 2, .shape = { 1, 2 } };
	tma_region *region;
	tma_ticket ticket;

	cr_assert_eq(tma_region_create(client, 4096, &region), 0);
	to.region = region;
	tma_set_batching(client, true);
	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &to, .src = &from }, &ticket), 0);
	cr_assert_eq(tma_region_release(region), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0);
	tma_free(client);
}

/* The request is answered only if it fails. */
Test(local_requests, that_fail_in_silence)
{
	tma_client *client = local_client();
	uint32_t src[4] = { 0 }, dst[4] = { 0 };
	const struct tma_tensor from = matrix(src, 2, 2), to = matrix(dst, 2, 2), wrong = matrix(dst, 4, 1);
	const struct tma_order order = { .completion = TMA_COMPLETION_SIGNAL };
	struct tma_transform transform = { .dst = &to, .src = &from, .order = &order };

	cr_assert_eq(tma_submit(client, &transform, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_take_error(client), 0);
	transform.dst = &wrong;
	cr_assert_eq(tma_submit(client, &transform, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(poll(&(struct pollfd){ .fd = tma_fd(client), .events = POLLIN }, 1, 0), 1);
	cr_assert_eq(tma_take_error(client), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_take_error(client), 0);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	tma_free(client);
}

/* The program waits for the client's descriptor and then dispatches, as with a service. */
Test(local_requests, in_an_event_loop)
{
	tma_client *client = local_client();
	uint32_t *src = numbers(12), dst[12] = { 0 };
	const struct tma_tensor from = matrix(src, 3, 4), to = matrix(dst, 3, 4);
	struct pollfd fd = { .fd = tma_fd(client), .events = tma_events(client) };
	struct tma_completed completed;
	tma_ticket ticket;

	cr_assert_eq(poll(&fd, 1, 0), 0);
	cr_assert_eq(tma_submit(client, &(struct tma_transform){ .dst = &to, .src = &from }, &ticket), 0);
	cr_assert_eq(poll(&fd, 1, 0), 1);
	cr_assert_eq(tma_dispatch(client), 1);
	cr_assert_eq(tma_cancel(client, ticket), 0);
	cr_assert_eq(poll(&fd, 1, 0), 0);
	cr_assert_eq(tma_next(client, 0, &completed), 0);
	cr_assert_eq(tma_next(client, 0, &completed), TMA_NOT_FOUND);
	cr_assert_eq(tma_dispatch(client), 0);
	cr_assert_eq(memcmp(dst, src, sizeof dst), 0);
	free(src);
	tma_free(client);
}

Test(local_requests, are_explained)
{
	tma_client *client = local_client();
	const struct tma_tensor from = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { 512, 256 } };
	const struct tma_tensor to = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { 256, 512 } };
	const struct tma_transform transform = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };
	tma_document *plan = NULL;

	cr_assert_eq(tma_explain(client, &transform, &plan), 0, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_document_text(tma_document_find(plan, "family")), "tile_transpose");
	tma_document_free(plan);
	cr_assert_eq(tma_explain_for(client, &transform, "cuda", &plan), 0, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_document_text(tma_document_find(plan, "engine")), "cuda");
	cr_assert_gt(tma_document_int(tma_document_find(plan, "predicted_ns")), 0);
	tma_document_free(plan);
	cr_assert_eq(tma_explain_for(client, &transform, "none", &plan), TMA_INVALID_ARGUMENT);
	tma_free(client);
}

/* A plan runs between addresses, and between places in regions. */
Test(local_requests, run_plans)
{
	tma_client *client = local_client();
	uint32_t *src = numbers(12), dst[12] = { 0 };
	struct tma_tensor from = { .dtype = TMA_UINT32, .rank = 2, .shape = { 3, 4 } };
	struct tma_tensor to = { .dtype = TMA_UINT32, .rank = 2, .shape = { 4, 3 } };
	const struct tma_transform transform = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };
	struct tma_place dst_at = { .offset = (uintptr_t)dst }, src_at = { .offset = (uintptr_t)src };
	tma_region *region;
	tma_plan *plans[20];

	for (int i = 0; i < 20; i++)
		cr_assert_eq(tma_plan_prepare(client, &transform, &plans[i]), 0, "%s",
		             tma_last_error(client));
	cr_assert_eq(tma_plan_run(client, plans[7], dst_at, src_at, NULL), 0, "%s", tma_last_error(client));
	for (int r = 0; r < 3; r++)
		for (int c = 0; c < 4; c++)
			cr_assert_eq(dst[c * 3 + r], src[r * 4 + c]);
	cr_assert_eq(tma_region_from_host_ptr(client, dst, sizeof dst, 0, &region), 0);
	memset(dst, 0, sizeof dst);
	dst_at = (struct tma_place){ .region = region };
	cr_assert_eq(tma_plan_run(client, plans[19], dst_at, src_at, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(dst[1], src[4]);
	dst_at.offset = 4;
	cr_assert_eq(tma_plan_run(client, plans[19], dst_at, src_at, NULL), TMA_OUT_OF_RANGE);
	for (int i = 0; i < 20; i += 2)
		cr_assert_eq(tma_plan_release(plans[i]), 0);
	cr_assert_eq(tma_plan_prepare(client, &transform, &plans[0]), 0);
	cr_assert_eq(tma_plan_run(client, plans[0], src_at, src_at, NULL), TMA_OVERLAP);
	to.shape[0]++;
	cr_assert_eq(tma_plan_prepare(client, &transform, &plans[2]), TMA_INVALID_ARGUMENT);
	free(src);
	tma_free(client);
}

/* The tensors that a plan converts by get their addresses when the plan runs. */
Test(local_requests, run_plans_that_convert)
{
	tma_client *client = local_client();
	const float src[2] = { 1, 2 }, scales[2] = { 3, 5 };
	float dst[2] = { 0 };
	const struct tma_tensor layout = { .dtype = TMA_FLOAT32, .rank = 1, .shape = { 2 } };
	const struct tma_conversion conversion = { .scale_tensor = &layout };
	const struct tma_transform transform = { .dst = &layout, .src = &layout, .conversion = &conversion };
	const struct tma_place dst_at = { .offset = (uintptr_t)dst }, src_at = { .offset = (uintptr_t)src };
	const struct tma_operands operands = { .scale = { .offset = (uintptr_t)scales } };
	struct tma_item item = { .dst = dst_at, .src = src_at, .operands = &operands };
	tma_plan *plan;

	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	item.plan = plan;
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), 0, "%s", tma_last_error(client));
	cr_assert(dst[0] == 3 && dst[1] == 10);
	cr_assert_eq(tma_plan_run(client, plan, dst_at, src_at, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "scale: missing"));
	tma_free(client);
}

/* Each item has its own status, and an invalid item does not stop the others. */
Test(local_requests, of_many_items)
{
	tma_client *client = local_client();
	uint32_t src[8], dst[8] = { 0 };
	struct tma_tensor from[4], to[4];
	struct tma_transform transforms[4];
	struct tma_item items[4] = { 0 };

	for (uint32_t i = 0; i < 8; i++)
		src[i] = i + 1;
	for (int i = 0; i < 4; i++) {
		from[i] = matrix(src + 2 * i, 1, 2);
		to[i] = matrix(dst + 2 * i, 1, i == 2 ? 3 : 2);
		transforms[i] = (struct tma_transform){ .dst = &to[i], .src = &from[i] };
		items[i].transform = &transforms[i];
	}
	cr_assert_eq(tma_run_items(client, items, 4, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "items[2]"), "%s", tma_last_error(client));
	for (uint32_t i = 0; i < 8; i++)
		cr_assert_eq(dst[i], i / 2 == 2 ? 0 : i + 1);
	cr_assert(items[0].status == 0 && items[2].status == TMA_INVALID_ARGUMENT && items[3].status == 0);
	cr_assert_eq(tma_run_items(client, items, 2, NULL), 0, "%s", tma_last_error(client));
	tma_free(client);
}

/* The items take several messages, of which the last one signals. */
Test(local_requests, of_very_many_items)
{
	tma_client *client = local_client();
	const size_t n = 2000;
	uint8_t *src = malloc(n), *dst = calloc(1, n);
	struct tma_tensor *tensors = calloc(2 * n, sizeof *tensors);
	struct tma_transform *transforms = calloc(n, sizeof *transforms);
	struct tma_item *items = calloc(n, sizeof *items);
	uint64_t word = 0;
	tma_region *region;
	struct tma_order order = { .signal = { .value = 1 } };

	memset(src, 'x', n);
	for (size_t i = 0; i < n; i++) {
		tensors[2 * i] = (struct tma_tensor){ .offset = (uintptr_t)(src + i), .dtype = TMA_UINT8 };
		tensors[2 * i + 1] =
		    (struct tma_tensor){ .offset = (uintptr_t)(dst + i), .dtype = TMA_UINT8 };
		transforms[i] = (struct tma_transform){ .dst = &tensors[2 * i + 1], .src = &tensors[2 * i] };
		items[i].transform = &transforms[i];
	}
	cr_assert_eq(tma_region_from_host_ptr(client, &word, sizeof word, 0, &region), 0);
	order.signal.region = region;
	cr_assert_eq(tma_run_items(client, items, n, &order), 0, "%s", tma_last_error(client));
	cr_assert_eq(word, 1);
	cr_assert_eq(memcmp(dst, src, n), 0);
	free(src);
	free(dst);
	free(tensors);
	free(transforms);
	free(items);
	tma_free(client);
}

/* Each block has two numbers. The two layers are 8 numbers apart in src and 4 in dst. */
Test(local_requests, move_blocks)
{
	tma_client *client = local_client();
	const uint32_t wanted[8] = { 6, 7, 2, 3, 14, 15, 10, 11 };
	uint32_t src[16], dst[8] = { 0 };
	const int32_t index[3] = { 3, -1, 1 };
	struct tma_tensor from = { .offset = (uintptr_t)src, .dtype = TMA_UINT32, .rank = 1, .shape = { 2 } };
	struct tma_tensor to = from;
	const struct tma_transform transform = { .dst = &to, .src = &from };
	struct tma_blocks blocks = { .transform = &transform,
		                     .index = index,
		                     .count = 3,
		                     .index_dtype = TMA_INT32,
		                     .limit = 4,
		                     .layers = 2,
		                     .src_layer_step = 32,
		                     .dst_layer_step = 16 };

	for (uint32_t i = 0; i < 16; i++)
		src[i] = i;
	to.offset = (uintptr_t)dst;
	blocks.count = 1;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	blocks.index = &index[2];
	to.offset += 8;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(dst, wanted, sizeof dst), 0);
	cr_assert_eq(tma_last_result(client)->moved, 1);
	blocks.index = &index[1];
	cr_assert_eq(tma_gather(client, &blocks), 0);
	cr_assert_eq(tma_last_result(client)->passed, 1);
	blocks.index = index;
	blocks.limit = 3;
	cr_assert_eq(tma_gather(client, &blocks), TMA_OUT_OF_RANGE);
	blocks.limit = 0;
	cr_assert_eq(tma_gather(client, &blocks), TMA_INVALID_ARGUMENT);
	blocks.count = 0;
	blocks.limit = 2;
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->moved, 0);
	cr_assert_eq(memcmp(dst, wanted, sizeof dst), 0);
	tma_free(client);
}

Test(local_requests, that_only_a_service_takes)
{
	tma_client *client = local_client();
	tma_document *sessions = NULL;
	tma_ring *ring = NULL;

	cr_assert_eq(tma_sessions(client, 0, &sessions), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "session_list: only a service does this"));
	cr_assert_eq(tma_ring_open(client, 16, 0, &ring), TMA_UNSUPPORTED);
	tma_free(client);
}
