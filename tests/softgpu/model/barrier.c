/* SPDX-License-Identifier: Apache-2.0 */
/* mbarriers. Their state is kept outside shared memory; the 8 bytes in shared memory hold a mark, by which a
 * kernel that overwrites them is detected. */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

#define MAX_COUNT ((UINT32_C(1) << 20) - 1) /* most arrivals expected, and most bytes pending */
#define MARK      UINT64_C(0x6d62617272696572)

static void end_phase(struct model_barrier *barrier);

/* ---- Life ------------------------------------------------------------------------------------------ */

void model_barrier_init(void *p, uint32_t arrivals)
{
	struct model_thread *self = machine.self;
	uint32_t offset = shared_offset(p, 8, 8, "barrier_init");
	struct model_block *block = self->block;
	struct model_barrier *barrier = &machine.barriers[machine.n_barriers];
	uint64_t mark = MARK + machine.n_barriers;

	if (block->barrier_at[offset / 8])
		model_fail("barrier_init at shared + %u, where a barrier lives (barrier_inval comes first)",
		           offset);
	if (arrivals < 1 || arrivals > MAX_COUNT)
		model_fail("barrier_init at shared + %u for %u arrivals; it takes 1 to %u", offset, arrivals,
		           MAX_COUNT);
	if (machine.n_barriers == ORDER_MAX_BARRIERS)
		model_fail("barrier_init at shared + %u: the model has room for %d barriers a cluster",
		           offset, ORDER_MAX_BARRIERS);
	*barrier = (struct model_barrier){
		.block = block,
		.number = machine.n_barriers,
		.actor = order_barrier_new(machine.n_barriers),
		.offset = offset,
		.live = true,
		.arrivals = arrivals,
		.pending = arrivals,
		.init_thread = self->number,
		.init = order_now(self->number),
	};
	block->barrier_at[offset / 8] = (uint8_t)++machine.n_barriers;
	memcpy(p, &mark, sizeof(mark));
}

void model_barrier_init_fence(void)
{
	for (uint32_t b = 0; b < machine.n_barriers; b++)
		if (machine.barriers[b].init_thread == machine.self->number)
			machine.barriers[b].fenced = true;
	order_fence(machine.self->number);
}

struct model_barrier *barrier_at(const void *p, const char *what)
{
	return barrier_in(machine.self->block, shared_offset(p, 8, 8, what), what);
}

struct model_barrier *barrier_in(const struct model_block *block, uint32_t offset, const char *what)
{
	uint32_t number = block->barrier_at[offset / 8];
	const char *whose = shared_whose(block);
	struct model_barrier *barrier;
	uint64_t mark;

	if (!block->n_alive)
		model_fail("%s of the barrier at shared + %u%s, which has ended", what, offset, whose);
	if (!number)
		model_fail(
		    "%s at shared + %u%s, where no barrier lives (barrier_init, and none after barrier_inval)",
		    what, offset, whose);
	barrier = &machine.barriers[number - 1];
	memcpy(&mark, block->shared + offset, sizeof(mark));
	if (mark != MARK + barrier->number)
		model_fail("%s of the barrier at shared + %u%s, which was written over", what, offset, whose);
	if (!order_knows(machine.self->number, barrier->init))
		model_fail(
		    "%s of the barrier at shared + %u%s, with nothing to order it after barrier_init by "
		    "thread %u",
		    what, offset, whose, barrier->init_thread % machine.block_threads);
	return barrier;
}

void model_barrier_inval(void *p)
{
	struct model_barrier *barrier = barrier_at(p, "barrier_inval");

	if (barrier->loaded_phase > barrier->waited_phase)
		model_fail(
		    "barrier_inval of the barrier at shared + %u, whose load in phase %u nobody has waited for",
		    barrier->offset, barrier->loaded_phase - 1);
	for (uint32_t t = 0; t < machine.n_threads; t++)
		if (machine.threads[t].state == THREAD_AT_BARRIER && machine.threads[t].barrier == barrier)
			model_fail("barrier_inval of the barrier at shared + %u, for which thread %u waits",
			           barrier->offset, t % machine.block_threads);
	barrier->live = false;
	barrier->block->barrier_at[barrier->offset / 8] = 0;
}

/* ---- Arrivals and bytes ---------------------------------------------------------------------------- */

static void arrive(struct model_barrier *barrier, const char *what)
{
	if (!barrier->pending)
		model_fail(
		    "%s on the barrier at shared + %u, whose phase has had its %u arrivals and waits for %" PRId64
		    " bytes",
		    what, barrier->offset, barrier->arrivals, barrier->pending_bytes);
	order_arrive(machine.self->number, barrier->number);
	barrier->pending--;
	if (!barrier->pending && barrier->announced > barrier->expected)
		model_fail("%s ends the arrivals on the barrier at shared + %u, whose phase expects %" PRIu64
		           " bytes, but loads of %" PRIu64 " were issued",
		           what, barrier->offset, barrier->expected, barrier->announced);
	if (!barrier->pending && barrier->pending_bytes < 0)
		model_fail("%s ends the arrivals on the barrier at shared + %u, but %" PRId64
		           " bytes more have come than it was to expect",
		           what, barrier->offset, -barrier->pending_bytes);
	end_phase(barrier);
	model_breathe();
}

void model_barrier_arrive(void *p, uint32_t line)
{
	if (model_is_counting)
		count_instruction(SOFTGPU_BARRIER_ARRIVE, 0, 0, line);
	arrive(barrier_at(p, "barrier_arrive"), "barrier_arrive");
}

void model_barrier_arrive_block(void *p, uint32_t rank, uint32_t line)
{
	const char *what = "barrier_arrive_block";
	uint32_t offset = shared_offset(p, 8, 8, what);
	struct model_barrier *barrier;

	if (rank >= machine.n_blocks)
		model_fail("%s on block %u of a cluster of %u", what, rank, machine.n_blocks);
	barrier = barrier_in(&machine.blocks[rank], offset, what);
	if (barrier->block != machine.self->block) {
		barrier->has_peers = true;
		if (!cluster_touched(barrier->block, order_now(machine.self->number),
		                     "another block has arrived on a barrier"))
			model_fail("no memory for what blocks have to know");
	}
	if (model_is_counting)
		count_instruction(SOFTGPU_BARRIER_ARRIVE, 0, 0, line);
	arrive(barrier, what);
}

void model_barrier_arrive_expect(void *p, uint32_t bytes, uint32_t line)
{
	struct model_barrier *barrier = barrier_at(p, "barrier_arrive_expect");

	if (model_is_counting)
		count_instruction(SOFTGPU_BARRIER_ARRIVE, 0, 0, line);
	if (barrier->pending_bytes + (int64_t)bytes > MAX_COUNT)
		model_fail("barrier_arrive_expect of %u bytes on the barrier at shared + %u makes %" PRId64
		           " bytes pending; it counts to %u",
		           bytes, barrier->offset, barrier->pending_bytes + (int64_t)bytes, MAX_COUNT);
	barrier->pending_bytes += bytes;
	barrier->expected += bytes;
	arrive(barrier, "barrier_arrive_expect");
}

void barrier_announce(struct model_barrier *barrier, uint32_t bytes)
{
	bool own = barrier->block == machine.self->block;

	if ((barrier->init_thread == machine.self->number || !own) && !barrier->fenced)
		model_fail(
		    "load on the barrier at shared + %u%s, which has not been fenced for the unit since its "
		    "init (barrier_init_fence)",
		    barrier->offset, shared_whose(barrier->block));
	/* A load's bytes may be expected after its issue, provided that the phase cannot end before: arrivals
	 * are still pending, or a peer block has arrived. */
	if (own && !barrier->pending && barrier->announced + bytes > barrier->expected)
		model_fail("load of %u bytes on the barrier at shared + %u, whose phase is to expect %" PRIu64
		           " bytes, of which %" PRIu64 " are taken by other loads, and has had its arrivals",
		           bytes, barrier->offset, barrier->expected, barrier->announced);
	barrier->announced += bytes;
	barrier->loaded_phase = barrier->phase + 1;
}

void barrier_complete(struct model_barrier *barrier, uint32_t bytes, const struct model_thread *issuer)
{
	barrier->pending_bytes -= bytes;
	if (!barrier->pending && barrier->pending_bytes < 0) {
		model_fail_for(
		    issuer,
		    "load of %u bytes came on the barrier at shared + %u of block %u, whose phase expected "
		    "%" PRId64 " fewer",
		    bytes, barrier->offset, barrier->block->rank, -barrier->pending_bytes);
		return;
	}
	end_phase(barrier);
}

/* Ends the phase if nothing is pending: starts the next one and makes the waiting threads ready. */
static void end_phase(struct model_barrier *barrier)
{
	if (barrier->pending || barrier->pending_bytes)
		return;
	order_phase_end(barrier->number);
	barrier->phase++;
	barrier->pending = barrier->arrivals;
	barrier->expected = barrier->announced = 0;
	for (uint32_t t = 0; t < machine.n_threads; t++) {
		struct model_thread *thread = &machine.threads[t];

		if (thread->state == THREAD_AT_BARRIER && thread->barrier == barrier &&
		    (barrier->phase & 1) != thread->parity)
			thread->state = THREAD_READY;
	}
}

static struct model_barrier *asked_at(const void *p, uint32_t parity, const char *what)
{
	struct model_barrier *barrier = barrier_at(p, what);

	if (parity > 1)
		model_fail("%s for parity %u of the barrier at shared + %u; it is 0 or 1", what, parity,
		           barrier->offset);
	return barrier;
}

static bool has_ended(const struct model_barrier *barrier, uint32_t parity)
{
	return (barrier->phase & 1) != parity;
}

/* The running thread learns that a phase is over, and with it what the phase's arrivals and loads
 * released. */
static void learn(struct model_barrier *barrier)
{
	order_wait(machine.self->number, barrier->number);
	barrier->waited_phase = barrier->phase;
	cluster_hears();
}

/* A wait with block scope acquires nothing of what other blocks did before they arrived. */
static void learn_in_block(struct model_barrier *barrier, const char *what)
{
	if (barrier->has_peers)
		model_fail("%s for the barrier at shared + %u, on which other blocks arrive "
		           "(barrier_wait_cluster)",
		           what, barrier->offset);
	learn(barrier);
}

/* A test takes time, in which the unit makes progress, so a thread that polls eventually sees the phase
 * end. */
bool model_barrier_test(void *p, uint32_t parity, uint32_t line)
{
	struct model_barrier *barrier = asked_at(p, parity, "barrier_test");

	if (model_is_counting)
		count_instruction(SOFTGPU_BARRIER_WAIT, 0, 0, line);
	if (!has_ended(barrier, parity)) {
		unit_step();
		model_rest(THREAD_READY);
	}
	if (!has_ended(barrier, parity))
		return false;
	learn_in_block(barrier, "barrier_test");
	return true;
}

static struct model_barrier *wait_for(void *p, uint32_t parity, const char *what, uint32_t line)
{
	struct model_barrier *barrier = asked_at(p, parity, what);

	if (model_is_counting)
		count_instruction(SOFTGPU_BARRIER_WAIT, 0, 0, line);
	if (!has_ended(barrier, parity)) {
		machine.self->barrier = barrier;
		machine.self->parity = parity;
		model_rest(THREAD_AT_BARRIER);
	}
	return barrier;
}

void model_barrier_wait(void *p, uint32_t parity, uint32_t line)
{
	learn_in_block(wait_for(p, parity, "barrier_wait", line), "barrier_wait");
}

void model_barrier_wait_cluster(void *p, uint32_t parity, uint32_t line)
{
	learn(wait_for(p, parity, "barrier_wait_cluster", line));
}
