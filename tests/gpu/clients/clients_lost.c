/* SPDX-License-Identifier: Apache-2.0 */
/* Cases in which clients lose the device because of an access to an address without memory, and go on
 * afterwards.
 *
 * No request of a client can cause that, so this service misdirects a job of FATAL bytes itself
 * (tests/support/astray.c). The engine, its kernels and the driver are the real ones.
 */
#include <stdio.h>
#include <string.h>

#include "clients.h"
#include "clients_move.h"
#include "clients_store.h"
#include "tests/support/astray.h"
#include "tests/support/tap.h"

#define BEFORE 3 /* transforms under way before the fatal one */
#define AFTER  4

struct user {
	tma_client *client;
	struct store dst;
	struct store src;
	tma_ticket tickets[BEFORE + 1 + AFTER];
};

/* Returns a move that takes long enough for later requests to arrive while it runs. */
static struct move slow(const struct service *service)
{
	struct move move = { "slow", TMA_FLOAT16, { 64, 96 }, 0, 2, { 1, 0 }, { 0, 0 }, { 0, 0 } };

	return move_scaled(&move, service->is_stand_in ? 3 : 48);
}

/* A transform that needs a kernel. */
static const struct move fatal = { "fatal",  TMA_UINT8, { 60, ASTRAY_BYTES / 60 }, 0, 0, { 1, 0 },
	                           { 0, 0 }, { 0, 0 } };

static void user_init(struct user *user, const struct service *service,
                      void (*make)(struct store *ret, size_t size))
{
	struct move move = slow(service);
	size_t room = move_room(&move);

	user->client = client_connect(service);
	make(&user->dst, room + 256);
	make(&user->src, room + 256);
	store_share(&user->dst, user->client, STORE_BY_POINTER, 128, room);
	store_share(&user->src, user->client, STORE_BY_POINTER, 128, room);
}

static void user_free(struct user *user)
{
	store_free(&user->dst);
	store_free(&user->src);
	tma_free(user->client);
}

static void submit(struct user *user, int i, const struct move *move)
{
	struct move_request request;

	move_request(&request, &user->dst, &user->src, move);
	must(user->client, tma_submit(user->client, &request.transform, &user->tickets[i]));
}

/* Transforms submitted before the fatal one may have succeeded, and so may one that was sent on a new
 * connection because the old one was found lost. */
static void check_ends(struct user *user, int n, int fatal_one)
{
	for (int i = 0; i < n; i++) {
		struct tma_result result;
		int status = tma_wait(user->client, user->tickets[i], &result);
		bool may_be_well = i < fatal_one || (i > fatal_one && result.reconnects > 0);

		require(status == TMA_DEVICE_LOST || (status == 0 && may_be_well),
		        "transform %d of %d: %s: %s", i, n, status ? tma_status_name(status) : "OK",
		        status ? tma_last_error(user->client) : "");
	}
}

static void boot_id(tma_client *client, char ret[64])
{
	tma_document *info;

	must(client, tma_info(client, &info));
	snprintf(ret, 64, "%s", tma_document_text(tma_document_find(info, "boot_id")));
	tma_document_free(info);
}

static void lose_device(const struct service *service, uint64_t seed)
{
	struct move move = slow(service);
	char before[64], after[64];
	struct user one, other;
	uint64_t state = seed;

	store_open_device();
	user_init(&one, service, store_allocate);
	user_init(&other, service, store_create);
	move_check(one.client, &one.dst, &one.src, &moves[1], &state);
	move_check(other.client, &other.dst, &other.src, &moves[2], &state);
	boot_id(one.client, before);

	for (int i = 0; i < BEFORE; i++) {
		submit(&one, i, &move);
		submit(&other, i, &move);
	}
	submit(&one, BEFORE, &fatal);
	for (int i = BEFORE + 1; i < BEFORE + 1 + AFTER; i++)
		submit(&one, i, &moves[1]);
	check_ends(&one, BEFORE + 1 + AFTER, BEFORE);
	check_ends(&other, BEFORE, BEFORE); /* this client has no fatal transform */

	for (size_t i = 0; i < n_moves; i++) {
		move_check(one.client, &one.dst, &one.src, &moves[i], &state);
		move_check(other.client, &other.dst, &other.src, &moves[i], &state);
	}
	require(tma_reconnects(one.client) == 1 && tma_reconnects(other.client) == 1,
	        "the library connected %u and %u times again, not once", tma_reconnects(one.client),
	        tma_reconnects(other.client));
	require(client_stat(one.client, "recoveries") == 1, "it has not recovered once");
	boot_id(one.client, after);
	require(strcmp(before, after) != 0, "it has not started anew");
	user_free(&one);
	user_free(&other);
}

void loss_cases(const char *program)
{
	struct service service;
	char why[512];
	bool good;

	if (!service_start(&service, program, why, sizeof why)) {
		tap_note("%s", why);
		tap_case(false, "a service whose device can be lost");
		return;
	}
	good = client_wait(client_start(lose_device, &service, 5));
	tap_case(good && service_lives(&service),
	         "an illegal address ends what is under way, and the same process serves on");
	tap_case(service_stop(&service), "it ends as it is asked to");
}
