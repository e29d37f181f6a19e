/* SPDX-License-Identifier: Apache-2.0 */
/* Requests without a service: by ticket, together, and those that only a service takes. */
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
	cr_assert_eq(tma_explain_for(client, &transform, "cuda", &plan), TMA_UNSUPPORTED);
	tma_free(client);
}

Test(local_requests, that_only_a_service_takes)
{
	tma_client *client = local_client();
	uint32_t src[4] = { 1, 2, 3, 4 }, dst[4] = { 0 };
	uint64_t word[8] = { 0 };
	const struct tma_tensor from = matrix(src, 2, 2), to = matrix(dst, 2, 2);
	tma_region *region;
	tma_document *stats = NULL;

	cr_assert_eq(tma_stats(client, &stats), TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "stats: only a service does this"));
	cr_assert_eq(tma_region_from_host_ptr(client, word, sizeof word, 0, &region), 0);
	const struct tma_order order = { .signal = { .region = region, .value = 1 } };
	cr_assert_eq(
	    tma_transform(client, &(struct tma_transform){ .dst = &to, .src = &from, .order = &order }),
	    TMA_UNSUPPORTED);
	cr_assert_not_null(strstr(tma_last_error(client), "signal: "));
	cr_assert_eq(tma_transform(client,
	                           &(struct tma_transform){
				       .dst = &to, .src = &from, .further_dst = &to, .n_further_dst = 1 }),
	             TMA_UNSUPPORTED);
	cr_assert_eq(dst[0], 0);
	tma_free(client);
}
