/* SPDX-License-Identifier: Apache-2.0 */
/* A client whose service is killed repeatedly, and the history of its requests and their results.
 *
 *    history SOCKET SEED    works until standard input ends, and prints a line for each request:
 *        ID WAY STATUS REPEATS RECONNECTS BYTES
 *
 * ID counts the requests. None is missing and none appears twice, because a line is printed when a request
 * has ended, and every ticket is waited for. WAY is "call" or "ticket"; tickets have other requests under
 * way. BYTES compares the destination with the oracle's: "right", "wrong", or "part" if each byte is either
 * unchanged or right.
 *
 * Destinations are poisoned before each request.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tmaclient.h"
#include "tests/support/oracle.h"

#define SLOTS 6
#define TRIES 20
#define ROOM  (256 << 10) /* bytes of a region */

struct slot {
	tma_region *dst_region, *src_region;
	struct oracle_case c;
	struct tma_tensor dst, src;
	int perm[TMA_MAX_RANK];
	struct tma_transform transform;
	tma_ticket ticket;
	uint64_t id;
};

static tma_client *client;
static uint64_t ids, state;
static struct slot slots[SLOTS];

/* Repeats a call that is not part of the history until it is answered, since the connection may be lost
 * several times. */
#define MUST(call)                                                            \
	do {                                                                  \
		int status = TMA_DISCONNECTED;                                \
		for (int i = 0; i < TRIES && status == TMA_DISCONNECTED; i++) \
			status = (call);                                      \
		must(status, #call);                                          \
	} while (0)

static void must(int status, const char *what)
{
	if (status == TMA_OK)
		return;
	printf("%s: %s: %s\n", what, tma_status_name(status), tma_last_error(client));
	fflush(stdout);
	_exit(1);
}

/* ---- Cases ------------------------------------------------------------------------------------------- */

static struct tma_tensor tensor_of(const struct tensor_layout *layout, tma_region *region, uint64_t offset)
{
	struct tma_tensor t = { .region = region,
		                .offset = ORACLE_GUARD + offset,
		                .dtype = (enum tma_dtype)layout->dtype,
		                .rank = layout->rank,
		                .strides = layout->stride };

	memcpy(t.shape, layout->shape, sizeof t.shape);
	return t;
}

static struct tma_number number_of(const struct scalar *value)
{
	switch (value->kind) {
	case SCALAR_UNSIGNED:
		return (struct tma_number){ .kind = TMA_NUMBER_UINT, .u = value->u };
	case SCALAR_SIGNED:
		return (struct tma_number){ .kind = TMA_NUMBER_INT, .i = value->i };
	case SCALAR_FLOATING:
		return (struct tma_number){ .kind = TMA_NUMBER_REAL, .re = value->re };
	case SCALAR_COMPLEX:
		break;
	}
	return (struct tma_number){ .kind = TMA_NUMBER_COMPLEX, .re = value->re, .im = value->im };
}

/* The tensors lie in the slot's regions, guards and poison included. */
static bool slot_draw(struct slot *slot)
{
	struct oracle_case *c = &slot->c;
	const struct transform_spec *spec = &c->spec;

	oracle_random_case(oracle_random(&state), c);
	if (c->dst_size + 2 * ORACLE_GUARD > ROOM || c->src_size + 2 * ORACLE_GUARD > ROOM)
		return false;
	if (!oracle_case_prepare(c))
		must(TMA_NO_MEMORY, "a case");
	slot->id = ++ids;
	memcpy(tma_region_data(slot->dst_region), c->dst, c->dst_size + 2 * ORACLE_GUARD);
	memcpy(tma_region_data(slot->src_region), c->src, c->src_size + 2 * ORACLE_GUARD);
	slot->dst = tensor_of(&spec->dst, slot->dst_region, c->dst_offset);
	slot->src = tensor_of(&spec->src, slot->src_region, c->src_offset);
	for (int d = 0; d < spec->n_perm; d++)
		slot->perm[d] = (int)spec->perm[d];
	slot->transform = (struct tma_transform){
		.dst = &slot->dst,
		.src = &slot->src,
		.perm = spec->n_perm < 0 ? NULL : slot->perm,
		.before = spec->n_before < 0 ? NULL : spec->before,
		.after = spec->n_after < 0 ? NULL : spec->after,
		.mode = (enum tma_pad_mode)spec->mode,
		.value = number_of(&spec->value),
	};
	return true;
}

/* c->dst still holds the poison. */
static const char *bytes_of(const struct slot *slot)
{
	const uint8_t *now = tma_region_data(slot->dst_region);
	const uint8_t *expected = slot->c.expected, *poison = slot->c.dst;
	size_t n = slot->c.dst_size + 2 * ORACLE_GUARD;

	if (!memcmp(now, expected, n))
		return "right";
	for (size_t i = 0; i < n; i++)
		if (now[i] != expected[i] && now[i] != poison[i])
			return "wrong";
	return "part";
}

static void slot_end(struct slot *slot, const char *way, int status)
{
	const struct tma_result *result = tma_last_result(client);

	printf("%llu %s %s %u %u %s\n", (unsigned long long)slot->id, way, tma_status_name(status),
	       result->repeats, tma_reconnects(client), bytes_of(slot));
	if (status)
		printf("# %s\n", tma_last_error(client));
	oracle_case_free(&slot->c);
}

/* ---- Requests ---------------------------------------------------------------------------------------- */

static void call(struct slot *slot)
{
	if (slot_draw(slot))
		slot_end(slot, "call", tma_transform(client, &slot->transform));
}

static void tickets(void)
{
	struct slot *submitted[SLOTS];
	int n = 0, status;

	tma_set_batching(client, oracle_between(&state, 0, 1));
	for (int i = 0; i < SLOTS; i++) {
		if (!slot_draw(&slots[i]))
			continue;
		status = tma_submit(client, &slots[i].transform, &slots[i].ticket);
		if (status)
			slot_end(&slots[i], "ticket", status);
		else
			submitted[n++] = &slots[i];
	}
	for (int i = 0; i < n; i++)
		slot_end(submitted[i], "ticket", tma_wait(client, submitted[i]->ticket, NULL));
	tma_set_batching(client, false);
}

static void regions_make(struct slot *slot)
{
	MUST(tma_region_create_kind(client, TMA_REGION_MEMFD, ROOM, &slot->dst_region));
	MUST(tma_region_create_kind(client, TMA_REGION_MEMFD, ROOM, &slot->src_region));
}

static void regions_renew(struct slot *slot)
{
	must(tma_region_release(slot->dst_region), "region_release");
	must(tma_region_release(slot->src_region), "region_release");
	regions_make(slot);
}

int main(int argc, char **argv)
{
	struct pollfd end = { .fd = STDIN_FILENO, .events = POLLIN };

	if (argc != 3) {
		fprintf(stderr, "usage: history SOCKET SEED\n");
		return 2;
	}
	state = strtoull(argv[2], NULL, 10);
	client = tma_new();
	tma_set_timeout(client, 60000);
	while (tma_connect(client, argv[1]) == TMA_DISCONNECTED) /* the service is being started again */
		poll(&end, 1, 10);
	MUST(tma_ping(client));
	for (int i = 0; i < SLOTS; i++)
		regions_make(&slots[i]);
	while (poll(&end, 1, 0) == 0) {
		int64_t chance = oracle_between(&state, 0, 99);

		if (chance < 65)
			call(&slots[chance % SLOTS]);
		else if (chance < 95)
			tickets();
		else if (chance < 98)
			regions_renew(&slots[chance % SLOTS]);
		else
			MUST(tma_ping(client));
	}
	tma_free(client);
	return 0;
}
