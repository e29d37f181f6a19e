/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a launch: cluster after cluster, every thread a fiber. The scheduler resumes the threads that can go
 * on, in random order, and lets the TMA unit make progress now and then, or when no thread can go on. If the
 * unit cannot either, the kernel hangs, and the report says which threads wait for what.
 *
 * The machine, its stacks and its memory are kept from one launch to the next. Launches of several host
 * threads run one after the other.
 */
#include "machine.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_machine machine;
const struct model_here *model_here;

static pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;
static uint32_t eagerness; /* the unit gets a turn once in so many turns; 0: only when no thread can go on */

static bool check_launch(void);
static bool run_cluster(uint32_t first_block);
static bool finish_unit(void);
static void thread_main(void *argument);
static void report_hang(void);

/* ---- What the driver calls ------------------------------------------------------------------------- */

const struct model_kernel *model_find(const char *name)
{
	const struct model_kernel *const tables[] = { model_own_kernels,         model_seed_kernels,
		                                      model_broken_kernels,      model_counted_kernels,
		                                      model_conformance_kernels, model_compute_kernels };

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct model_kernel *kernel = tables[i]; kernel->name; kernel++)
			if (!strcmp(kernel->name, name))
				return kernel;
	return NULL;
}

const char *model_name(const struct model_kernel *kernel)
{
	return kernel->name;
}

size_t model_args_size(const struct model_kernel *kernel)
{
	return kernel->args_size;
}

uint32_t model_launch_bound(const struct model_kernel *kernel)
{
	return kernel->threads;
}

/* Seeds the random numbers of a launch: each launch has a sequence of its own, which is the same in each run
 * of a program. SOFTGPU_SEED chooses other sequences. */
static void seed(void)
{
	static uint64_t launches;
	const char *text = getenv("SOFTGPU_SEED");
	const uint32_t paces[] = { 1, 4, 16, 0 };

	machine.random = (text ? strtoull(text, NULL, 0) : 0) * UINT64_C(0x9e3779b97f4a7c15) +
	                 ++launches * UINT64_C(0xd1342543de82ef95) + 1;
	eagerness = paces[model_random(4)];
	if (model_counts)
		eagerness = 0; /* keeps as much under way as the kernel allows */
}

static bool run_launch(void)
{
	uint64_t blocks =
	    (uint64_t)machine.launch->grid[0] * machine.launch->grid[1] * machine.launch->grid[2];

	if (!check_launch())
		return false;
	global_forget();
	for (uint64_t b = 0; b < blocks; b += machine.n_blocks) {
		count_cluster_begins();
		if (!run_cluster((uint32_t)b))
			return false;
		count_cluster_ends();
	}
	if (model_counts)
		model_counts->launches++;
	return true;
}

bool model_run(const struct model_kernel *kernel, const struct model_launch *launch, char *report,
               size_t size)
{
	bool done;

	pthread_mutex_lock(&one_launch);
	machine.kernel = kernel;
	machine.launch = launch;
	machine.args = launch->params[0];
	machine.failed = false;
	seed();
	done = run_launch();
	unit_reset();
	if (!done)
		snprintf(report, size, "%s", machine.report);
	pthread_mutex_unlock(&one_launch);
	return done;
}

/* Frees the machine when the stand-in driver is unloaded or the process ends. The driver's own destructor,
 * which has no priority and so runs earlier, waits for running kernels. */
__attribute__((destructor(101))) static void model_free(void)
{
	fiber_set_free(machine.fibers);
	free(machine.threads);
	unit_free();
	cluster_free();
	order_free();
	shared_free();
	count_free();
}

/* ---- Failures -------------------------------------------------------------------------------------- */

uint32_t model_random(uint32_t below)
{
	machine.random ^= machine.random << 13;
	machine.random ^= machine.random >> 7;
	machine.random ^= machine.random << 17;
	return (uint32_t)((machine.random >> 32) * below >> 32);
}

/* Only the first failure is kept. */
__attribute__((format(printf, 2, 0))) static void fail_v(const struct model_thread *thread,
                                                         const char *format, va_list args)
{
	size_t n = 0;

	if (machine.failed)
		return;
	machine.failed = true;
	n += (size_t)snprintf(machine.report, sizeof(machine.report), "%s", machine.kernel->name);
	if (thread)
		n += (size_t)snprintf(machine.report + n, sizeof(machine.report) - n,
		                      ", block (%u, %u, %u), thread (%u, %u, %u)", thread->here.block.x,
		                      thread->here.block.y, thread->here.block.z, thread->here.thread.x,
		                      thread->here.thread.y, thread->here.thread.z);
	n += (size_t)snprintf(machine.report + n, sizeof(machine.report) - n, ": ");
	vsnprintf(machine.report + n, sizeof(machine.report) - n, format, args);
}

void model_fail_for(const struct model_thread *thread, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_v(thread, format, args);
	va_end(args);
}

void model_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fail_v(machine.self, format, args);
	va_end(args);
	for (;;)
		fiber_yield(machine.fibers);
}

/* ---- A cluster ------------------------------------------------------------------------------------- */

static bool check_launch(void)
{
	const struct model_launch *launch = machine.launch;
	uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

	machine.n_blocks = launch->cluster ? launch->cluster : 1;
	if (!launch->grid[0] || !launch->grid[1] || !launch->grid[2] || !threads)
		model_fail_for(NULL, "a grid of %u x %u x %u blocks of %" PRIu64 " threads", launch->grid[0],
		               launch->grid[1], launch->grid[2], threads);
	else if (threads > MODEL_MAX_THREADS)
		model_fail_for(NULL, "%" PRIu64 " threads a block; it has at most %d", threads,
		               MODEL_MAX_THREADS);
	else if (threads > machine.kernel->threads)
		model_fail_for(NULL, "%" PRIu64 " threads a block; its launch bound is %u", threads,
		               machine.kernel->threads);
	else if (launch->shared_bytes > MODEL_MAX_SHARED)
		model_fail_for(NULL, "%u bytes of shared memory a block; it has at most %d",
		               launch->shared_bytes, MODEL_MAX_SHARED);
	else if (machine.n_blocks > MODEL_MAX_CLUSTER || launch->grid[0] % machine.n_blocks)
		model_fail_for(NULL, "a grid %u blocks wide in clusters of %u", launch->grid[0],
		               machine.n_blocks);
	machine.block_threads = (uint32_t)threads;
	machine.n_threads = machine.n_blocks * machine.block_threads;
	return !machine.failed;
}

static bool reserve(void)
{
	static uint32_t room;

	if (!machine.fibers)
		machine.fibers = fiber_set_new();
	if (machine.n_threads > room) {
		struct model_thread *threads = realloc(machine.threads, machine.n_threads * sizeof(*threads));

		if (threads)
			machine.threads = threads;
		if (!threads || !machine.fibers || !fiber_set_reserve(machine.fibers, machine.n_threads)) {
			model_fail_for(NULL, "no memory for %u threads", machine.n_threads);
			return false;
		}
		room = machine.n_threads;
	}
	if (!order_reset(machine.n_blocks, machine.block_threads)) {
		model_fail_for(NULL, "no memory for the order of %u threads", machine.n_threads);
		return false;
	}
	return true;
}

static struct model_dim3 split(uint32_t number, const uint32_t *by)
{
	return (struct model_dim3){ number % by[0], number / by[0] % by[1], number / by[0] / by[1] };
}

static bool start_block(uint32_t rank, uint32_t number)
{
	const struct model_launch *launch = machine.launch;
	struct model_block *block = &machine.blocks[rank];

	*block = (struct model_block){ .rank = rank, .index = split(number, launch->grid) };
	block->threads = &machine.threads[rank * machine.block_threads];
	block->n_alive = machine.block_threads;
	if (!shared_prepare(block, launch->shared_bytes)) {
		model_fail_for(NULL, "no memory for a block's shared memory");
		return false;
	}
	for (uint32_t t = 0; t < machine.block_threads; t++) {
		struct model_thread *thread = &block->threads[t];

		*thread = (struct model_thread){
			.here = { .thread = split(t, launch->block),
			          .block = block->index,
			          .block_dim = { launch->block[0], launch->block[1], launch->block[2] },
			          .grid_dim = { launch->grid[0], launch->grid[1], launch->grid[2] } },
			.block = block,
			.number = rank * machine.block_threads + t,
		};
		fiber_start(machine.fibers, thread->number, thread_main, thread);
	}
	return true;
}

/* Resumes each ready thread once, starting from one chosen at random. Returns whether any could go on. */
static bool turn(void)
{
	uint32_t n = machine.n_threads, at = model_random(n);
	bool any = false;

	for (uint32_t i = 0; i < n && !machine.failed; i++) {
		struct model_thread *thread = &machine.threads[(at + i) % n];

		if (thread->state != THREAD_READY)
			continue;
		any = true;
		machine.self = thread;
		model_here = &thread->here;
		fiber_resume(machine.fibers, thread->number);
		machine.self = NULL;
		if (eagerness && !model_random(eagerness))
			unit_step();
	}
	return any;
}

static bool run_cluster(uint32_t first_block)
{
	machine.n_barriers = 0;
	cluster_forget();
	if (!reserve())
		return false;
	for (uint32_t rank = 0; rank < machine.n_blocks; rank++)
		if (!start_block(rank, first_block + rank))
			return false;
	for (;;) {
		bool any = turn();

		if (order_is_worn())
			model_fail_for(NULL, "it runs longer than the model can follow");
		if (machine.failed)
			return false;
		if (any)
			continue;
		if (!unit_is_idle())
			unit_step();
		else
			break;
	}
	for (uint32_t t = 0; t < machine.n_threads; t++) {
		if (machine.threads[t].state != THREAD_DONE) {
			report_hang();
			return false;
		}
	}
	return finish_unit();
}

/* Completes what is under way at the end of a cluster. A load that nobody waited for is a failure: on a GPU,
 * its bytes could come when another block owns the shared memory. */
static bool finish_unit(void)
{
	for (uint32_t b = 0; b < machine.n_barriers; b++) {
		const struct model_barrier *barrier = &machine.barriers[b];

		if (barrier->loaded_phase > barrier->waited_phase) {
			model_fail_for(
			    &barrier->block->threads[0],
			    "the block ended, and nobody has waited for the load in phase %u of the barrier "
			    "at shared + %u",
			    barrier->loaded_phase - 1, barrier->offset);
			return false;
		}
	}
	unit_reset();
	return true;
}

/* ---- A thread -------------------------------------------------------------------------------------- */

static void thread_main(void *argument)
{
	struct model_thread *self = argument;

	machine.kernel->run(machine.args);
	if (unit_has_unread(self))
		model_fail("the thread ends with %s",
		           self->has_open ? "stores that it has not committed (store_commit)"
		                          : "stores that may still have to read their shared memory "
		                            "(store_wait_read<0>)");
	cluster_thread_ends();
	self->state = THREAD_DONE;
	self->block->n_alive--;
	meet_thread_ended(self);
}

void model_rest(enum thread_state state)
{
	machine.self->state = state;
	fiber_yield(machine.fibers);
}

void model_breathe(void)
{
	if (!model_random(4))
		fiber_yield(machine.fibers);
}

unsigned char *model_dynamic_shared(void)
{
	return machine.self->block->shared;
}

/* Reports who waits for what. A thread at a barrier is preferred, since it says most. */
static void report_hang(void)
{
	const struct model_thread *waiting = NULL;
	uint32_t n = 0;

	for (uint32_t t = 0; t < machine.n_threads; t++) {
		const struct model_thread *thread = &machine.threads[t];

		if (thread->state == THREAD_DONE)
			continue;
		n++;
		if (!waiting || (thread->state == THREAD_AT_BARRIER && waiting->state != THREAD_AT_BARRIER))
			waiting = thread;
	}
	if (waiting->state == THREAD_AT_BARRIER)
		model_fail_for(
		    waiting,
		    "no thread can go on (%u wait), this one for parity %u of the barrier at shared + %u, "
		    "which lacks %u arrivals and %" PRId64 " bytes in phase %u",
		    n, waiting->parity, waiting->barrier->offset, waiting->barrier->pending,
		    waiting->barrier->pending_bytes, waiting->barrier->phase);
	else
		model_fail_for(waiting, "no thread can go on (%u wait), this one at %s", n,
		               waiting->state == THREAD_AT_SYNC           ? "__syncthreads"
		               : waiting->state == THREAD_AT_WARP_SYNC    ? "__syncwarp"
		               : waiting->state == THREAD_AT_CLUSTER_SYNC ? "cluster_sync"
		                                                          : "its stores");
}
