/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of a submission ring: pushes entries, takes completions, and wakes the service when it
 * sleeps (proto/submission.h). A ring belongs to one connection. Its memory is a region that is created for
 * it. */
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/submission.h"

/* Longest sleep, in nanoseconds, after which the connection is checked. After NAPS sleeps, or when a signal
 * has ended one, the program is asked whether the wait is interrupted. */
#define NAP_NS 20000000
#define NAPS   5

/* polls between two readings of the clock */
#define LOOKS 16

struct tma_ring {
	tma_client *client;
	struct tma_ring *next;
	tma_region *region;
	uint32_t connection;
	uint32_t entries;
	uint32_t submitted;
	uint32_t reaped;
	struct submission_ring *shared;
};

/* ---- Opening and closing ------------------------------------------------------------------------------ */

static int on_ring_opened(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                          void *arg, struct error *err)
{
	struct msg_ring_opened done;

	(void)client;
	(void)arg;
	return rpc_decode_result(reply, method, &done, err);
}

/* Tells the service of the ring. The region's id belongs to this connection, so the request must not go to
 * another one. */
static int open_at(tma_ring *ring, uint32_t spin_us)
{
	tma_client *client = ring->client;
	struct msg_ring_open params = { .has = F(ring_open, spin_us),
		                        .entries = ring->entries,
		                        .spin_us = spin_us };
	bool was_bound = client->is_bound;
	int rc = region_param(client, ring->region, "at", &params.at.region);

	if (rc < 0)
		return rc;
	client->is_bound = true;
	rc = client_call(client, &(struct call){ .method = METHOD_ring_open,
	                                         .params = &params,
	                                         .fd = -1,
	                                         .on_reply = on_ring_opened,
	                                         .arg = ring });
	client->is_bound = was_bound;
	return rc;
}

int tma_ring_open(tma_client *client, uint32_t entries, uint32_t spin_us, tma_ring **ret)
{
	int rc = client_check_ret(client, ret, "the ring goes");
	tma_ring *ring;

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc < 0)
		return rc;
	if (entries < SUBMISSION_LEAST_ENTRIES || entries > SUBMISSION_MOST_ENTRIES ||
	    (entries & (entries - 1)))
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "entries: %" PRIu32 ", but it must be a power of two from %d to %d",
		                   entries, SUBMISSION_LEAST_ENTRIES, SUBMISSION_MOST_ENTRIES);
	ring = calloc(1, sizeof *ring);
	if (!ring)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a ring");
	ring->client = client;
	ring->entries = entries;
	rc = tma_region_create_kind(client, TMA_REGION_MEMFD, submission_bytes(entries), &ring->region);
	if (rc == 0) {
		ring->shared = tma_region_data(ring->region);
		ring->connection = client->connection;
		rc = open_at(ring, spin_us);
	}
	if (rc < 0) {
		struct error why = client->error;

		tma_region_release(ring->region);
		client->error = why;
		free(ring);
		return rc;
	}
	ring->next = client->rings;
	client->rings = ring;
	*ret = ring;
	return 0;
}

static void ring_free(tma_ring *ring)
{
	tma_ring **at = &ring->client->rings;

	while (*at != ring)
		at = &(*at)->next;
	*at = ring->next;
	free(ring);
}

bool client_has_ring(const tma_client *client)
{
	for (const tma_ring *ring = client->rings; ring; ring = ring->next)
		if (ring->connection == client->connection)
			return true;
	return false;
}

void client_free_rings(tma_client *client)
{
	while (client->rings)
		ring_free(client->rings);
}

/* Returns 0 while the ring's connection exists, otherwise DISCONNECTED. */
static int check(tma_ring *ring)
{
	tma_client *client = ring->client;

	if (client->sock >= 0 && client->connection == ring->connection)
		return 0;
	return client_fail(client, STATUS_DISCONNECTED,
	                   "the ring was lost with its connection, and it is unknown which of its %" PRIu32
	                   " runs under way have ended: open another one",
	                   ring->submitted - ring->reaped);
}

int tma_ring_close(tma_ring *ring)
{
	int rc = 0, released;

	if (!ring)
		return 0;
	if (ring->submitted != ring->reaped && check(ring) == 0)
		return client_fail(ring->client, STATUS_BUSY,
		                   "%" PRIu32 " ends of the ring have not been taken; the ring stays open",
		                   ring->submitted - ring->reaped);
	if (ring->client->sock >= 0 && ring->client->connection == ring->connection) {
		ring->client->is_bound = true;
		rc =
		    client_call(ring->client,
		                &(struct call){ .method = METHOD_ring_close, .fd = -1, .on_reply = on_true });
		ring->client->is_bound = false;
	}
	released = tma_region_release(ring->region);
	ring_free(ring);
	return rc < 0 ? rc : released;
}

/* ---- In ----------------------------------------------------------------------------------------------- */

/* Refuses plans that need more than the two places of an entry. The service would end such a run without a
 * message. */
static int check_operands(tma_client *client, const tma_plan *plan)
{
	const struct msg_transform *t = &plan->params;
	const char *name = NULL;

	if (t->has & F(transform, scale) && !(t->scale.has & F(operand, number)))
		name = "scale is a tensor";
	else if (t->has & F(transform, bias) && !(t->bias.has & F(operand, number)))
		name = "bias is a tensor";
	else if (t->has & F(transform, amax))
		name = "amax writes tensors";
	return name ? client_fail(client, STATUS_INVALID_ARGUMENT,
	                          "plan: its %s, but an entry of a ring has places for dst and src only; run "
	                          "the plan as an item",
	                          name)
	            : 0;
}

int tma_ring_push(tma_ring *ring, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                  uint64_t tag)
{
	struct msg_plan_run run;
	struct submission_entry *entry;
	int rc;

	if (!ring)
		return STATUS_INVALID_ARGUMENT;
	rc = check(ring);
	if (rc == 0)
		rc = run_params(ring->client, plan, dst, src, &run);
	if (rc == 0)
		rc = check_operands(ring->client, plan);
	if (rc < 0)
		return rc;
	if (ring->submitted - ring->reaped >= ring->entries)
		return client_fail(ring->client, STATUS_BUSY,
		                   "the ring is full: %" PRIu32 " runs are under way or not yet taken",
		                   ring->entries);
	entry = &ring->shared->entry[ring->submitted % ring->entries];
	*entry = (struct submission_entry){ .plan = run.plan,
		                            .dst_region = run.dst.region,
		                            .dst_offset = run.dst.offset,
		                            .src_region = run.src.region,
		                            .src_offset = run.src.offset,
		                            .tag = tag };
	__atomic_store_n(&ring->shared->submitted, ++ring->submitted, __ATOMIC_RELEASE);
	return 0;
}

int tma_ring_flush(tma_ring *ring)
{
	tma_client *client;
	int rc;

	if (!ring)
		return STATUS_INVALID_ARGUMENT;
	client = ring->client;
	/* Stores the same value again, as a fence before the load of `awake`, because ThreadSanitizer does
	 * not know fences. */
	__atomic_store_n(&ring->shared->submitted, ring->submitted, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->shared->awake, __ATOMIC_SEQ_CST))
		return 0;
	rc = check(ring);
	if (rc == 0 && rpc_encode_ring(&client->out) < 0)
		rc = client_fail(client, STATUS_NO_MEMORY, "out of memory for a request");
	if (rc < 0)
		return rc;
	client_flush(client);
	return check(ring);
}

/* ---- Out ---------------------------------------------------------------------------------------------- */

static bool take(tma_ring *ring, struct tma_ring_end *ret)
{
	struct submission_ring *shared = ring->shared;
	const struct submission_end *end;

	if (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) == ring->reaped)
		return false;
	end = &submission_ends(shared, ring->entries)[ring->reaped % ring->entries];
	*ret = (struct tma_ring_end){
		.tag = end->tag, .status = (int)end->status, .bytes = end->bytes, .ns = end->ns
	};
	__atomic_store_n(&shared->reaped, ++ring->reaped, __ATOMIC_RELEASE);
	return true;
}

static int check_end(tma_ring *ring, const struct tma_ring_end *ret)
{
	return ring ? client_check_ret(ring->client, ret, "the end of a run goes") : STATUS_INVALID_ARGUMENT;
}

int tma_ring_poll(tma_ring *ring, struct tma_ring_end *ret)
{
	int rc = check_end(ring, ret);

	if (rc < 0)
		return rc;
	if (take(ring, ret))
		return 0;
	rc = check(ring);
	return rc < 0 ? rc : STATUS_PENDING;
}

static bool spin(tma_ring *ring, uint64_t ns, struct tma_ring_end *ret)
{
	uint64_t end = clock_ns() + ns;

	do {
		for (int i = 0; i < LOOKS; i++) {
			if (take(ring, ret))
				return true;
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		}
	} while (clock_ns() < end);
	return false;
}

/* Sleeps until a run has ended, for NAP_NS at most. Returns whether a signal has ended the sleep. */
static bool nap(tma_ring *ring)
{
	static const struct timespec most = { .tv_nsec = NAP_NS };
	struct submission_ring *shared = ring->shared;
	bool is_signal = false;

	__atomic_store_n(&shared->sleeps, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) == ring->reaped)
		is_signal = syscall(SYS_futex, &shared->done, FUTEX_WAIT, ring->reaped, &most, NULL, 0) < 0 &&
		            errno == EINTR;
	__atomic_store_n(&shared->sleeps, 0, __ATOMIC_RELAXED);
	return is_signal;
}

int tma_ring_wait(tma_ring *ring, uint32_t spin_us, struct tma_ring_end *ret)
{
	int64_t deadline;
	int n_naps = 0, rc = check_end(ring, ret);

	if (rc < 0)
		return rc;
	if (take(ring, ret))
		return 0;
	if (ring->submitted == ring->reaped)
		return client_fail(ring->client, STATUS_NOT_FOUND, "no run of the ring is under way");
	rc = tma_ring_flush(ring);
	if (rc < 0)
		return rc;
	if (spin_us && spin(ring, (uint64_t)spin_us * 1000, ret))
		return 0;
	deadline = client_deadline(ring->client);
	while (!take(ring, ret)) {
		client_pump(ring->client); /* This notices the end of the connection. */
		rc = check(ring);
		if (rc == 0 && client_left_ms(deadline) == 0)
			rc = STATUS_PENDING;
		if (rc != 0)
			return take(ring, ret) ? 0 : rc;
		if ((nap(ring) || ++n_naps % NAPS == 0) && client_ask_interrupted(ring->client))
			return take(ring, ret) ? 0 : STATUS_PENDING;
	}
	return 0;
}
