/* SPDX-License-Identifier: Apache-2.0 */
/* Implements what jobs.h declares: helpers that describe jobs; the sizes and times of the CUDA engine, each
 * with its reason; and streams, scratch memory, pinned buffers and lists, which jobs share. */
#include "jobs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/host/threads.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"

#define MOST_BYTES (UINT64_C(1) << 62)

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) || product > MOST_BYTES ? MOST_BYTES : product;
}

uint64_t job_bytes(const struct engine_job *job)
{
	uint64_t sum = 0;

	if (!job->moves) {
		const uint64_t bytes = job->move.transform->bytes;

		return job->blocks ? times(times(bytes, job->blocks->n), job->blocks->layers) : bytes;
	}
	for (uint32_t i = 0; i < job->n_moves && sum < MOST_BYTES; i++)
		if (__builtin_add_overflow(sum, job->moves[i].transform->bytes, &sum))
			return MOST_BYTES;
	return sum < MOST_BYTES ? sum : MOST_BYTES;
}

/* ---- Questions ---------------------------------------------------------------------------------------- */

static bool any_move(const struct engine_job *job, bool (*is)(const struct engine_move *move))
{
	if (!job->moves)
		return is(&job->move);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (is(&job->moves[i]))
			return true;
	return false;
}

bool move_is_by_bus(const struct engine_move *move)
{
	return cuda_memory(move->dst)->host || cuda_memory(move->src)->host;
}

bool move_is_exact(const struct engine_move *move)
{
	return move->transform->conversion.is && move->transform->conversion.cast == CAST_EXACT;
}

bool job_is_by_bus(const struct engine_job *job)
{
	return any_move(job, move_is_by_bus);
}

bool job_is_exact(const struct engine_job *job)
{
	return any_move(job, move_is_exact);
}

static bool has_peer(const struct engine_move *move)
{
	return cuda_memory(move->dst)->is_peer || cuda_memory(move->src)->is_peer;
}

static bool side_has_peer(const struct engine_blocks_side *side, struct engine_memory *without_table)
{
	if (!side->table)
		return cuda_memory(without_table)->is_peer;
	for (uint32_t l = 0; l < side->table->n; l++)
		if (cuda_memory(side->table->memories[l])->is_peer)
			return true;
	return false;
}

bool job_has_peers(const struct engine_job *job)
{
	if (job->blocks)
		return side_has_peer(&job->blocks->dst, job->move.dst) ||
		       side_has_peer(&job->blocks->src, job->move.src);
	return any_move(job, has_peer);
}

bool job_is_on_device(const struct engine_job *job)
{
	return !job_is_many(job) && !move_is_by_bus(&job->move) && !has_peer(&job->move);
}

int job_first_failure(const struct engine_job *job)
{
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		if (job->moves[i].status)
			return job->moves[i].status;
	return 0;
}

/* ---- Sizes and times ----------------------------------------------------------------------------------- */

static struct cuda_limits forced;
static bool is_forced;

struct cuda_limits cuda_limits_get(uint64_t memory_bytes)
{
	if (is_forced)
		return forced;
	return (struct cuda_limits){
		/* No more, because jobs that wait on the device can neither be cancelled nor be passed. */
		.jobs = 64,
		/* Enough that the device has the next job queued while the engine's thread is busy
		 * elsewhere. */
		.stream_jobs = 8,
		/* A device that copies terabytes a second moves this in some hundred microseconds. */
		.owner_bytes = 256 << 20,
		/* The device, or the bus for the second value, moves this in some 30 us. */
		.short_bytes = 128 << 20,
		.short_host_bytes = 2 << 20,
		/* One runs while the next one is queued. */
		.long_jobs = 2,
		/* Ten times as long as an owner's jobs that wait on the device take, because owners are
		 * charged for jobs only when these have ended. */
		.ahead_ns = 5000000,
		/* The arguments of this many moves are written in some microseconds. */
		.quick_moves = 512,
		/* One comes in while another goes out; more jobs would only share the same link. */
		.staged_jobs = 4,
		/* A kernel moves this in the time that a copy takes to begin. */
		.direct_bytes = 32 << 10,
		/* Large enough for the full speed of the link, and small compared with a large job. */
		.round_bytes = 16 << 20,
		/* Copies of rows of 1 KiB reach 27 GB/s, of 4 KiB 33, of 8 KiB 47 and of 32 KiB 51. A kernel
		 * that reads host memory reaches 47 GB/s but, while others use the device, less than copies
		 * of any of these rows. */
		.row_bytes = 8 << 10,
		.shared_row_bytes = 1 << 10,
		/* Measured with both directions busy: rows of 4 KiB reach 29 to 33 GB/s, and rows of 8 KiB 37
		 * to 40. Rows of 8 KiB in and 16 KiB out, which tiles of this size have, reach 45 to 47, and
		 * rows of 32 KiB 50. */
		.tile_bytes = 32 << 20,
		.tile_row_bytes = 8 << 10,
		.scratch_bytes = min_u64(memory_bytes / 8, UINT64_C(1) << 30),
		.scratch_idle_ns = UINT64_C(10000000000),
		/* Time slices last milliseconds, and the host is seldom late by half a millisecond. */
		.sharing_slack_ns = 500000,
		/* Four threads pack faster than the bus transfers. There are more because threads also wait
		 * for other memory accesses. */
		.pack_threads = packers_default_threads(),
		/* This many slots fit into the last-level cache, and those of one direction hold more than
		 * the bus transfers while the engine's thread is busy elsewhere. */
		.pack_slots = 16,
		.pack_slot_bytes = 2 << 20,
		/* For fewer bytes, a kernel would have done a tenth of its work before the first copy
		 * begins. */
		.pack_least_bytes = 1 << 20,
		/* Threads take longer to copy shorter runs than the bus takes to transfer them. */
		.pack_run_bytes = 1 << 10,
		/* A copy takes a microsecond or two to begin. */
		.pack_piece_bytes = 512 << 10,
		/* The bus has something to do after some 20 us; later stretches are so large that there is
		 * one launch for each half millisecond. */
		.pack_stretch_bytes = 4 << 20,
		/* The smallest jobs take about this long. */
		.spin_ns = 50000,
		.most_sleep_ns = 1000000,
	};
}

void cuda_limits_force(const struct cuda_limits *limits)
{
	is_forced = limits;
	if (limits)
		forced = *limits;
}

/* ---- Streams of the device ----------------------------------------------------------------------------- */

enum stream_priority stream_slot_priority(int i)
{
	if (i < STREAM_SLOTS_SHORT)
		return STREAM_HIGHEST;
	return i < STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT ? STREAM_MIDDLE : STREAM_LOWEST;
}

int stream_slots_init(struct stream_slots *slots, struct error *err)
{
	int r = 0;

	for (int i = 0; i < STREAM_SLOTS && r == 0; i++) {
		struct stream_slot *slot = &slots->slot[i];

		slot->priority = stream_slot_priority(i);
		r = driver_stream(&slot->stream, slot->priority, err);
	}
	return r;
}

void stream_slots_deinit(struct stream_slots *slots)
{
	for (int i = 0; i < STREAM_SLOTS; i++)
		if (slots->slot[i].stream)
			driver.cuStreamDestroy(slots->slot[i].stream);
}

static struct stream_slot *least_used(struct stream_slot *slot, int n)
{
	struct stream_slot *best = slot;

	for (int i = 1; i < n && best->jobs > 0; i++)
		if (slot[i].jobs < best->jobs)
			best = &slot[i];
	return best;
}

static struct stream_slot *find(struct stream_slots *slots, struct engine_owner *owner,
                                struct stream_slot *last, enum job_weight weight)
{
	struct stream_slot *slot = slots->slot;
	const enum stream_priority priority = weight == JOB_SHORT    ? STREAM_HIGHEST
	                                      : weight == JOB_URGENT ? STREAM_MIDDLE
	                                                             : STREAM_LOWEST;

	if (weight == JOB_LONG && owner->long_jobs > 0)
		return owner->long_slot;
	if (weight != JOB_LONG && last && last->priority == priority)
		return last;
	switch (priority) {
	case STREAM_HIGHEST:
		return least_used(slot, STREAM_SLOTS_SHORT);
	case STREAM_MIDDLE:
		return least_used(slot + STREAM_SLOTS_SHORT, STREAM_SLOTS_URGENT);
	default:
		return least_used(slot + STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT, STREAM_SLOTS_LONG);
	}
}

struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first)
{
	struct stream_slot *slot = find(slots, owner, last, weight);

	if (weight == JOB_LONG) {
		owner->long_slot = slot;
		owner->long_jobs++;
	}
	owner->urgent_jobs += weight == JOB_URGENT;
	*ret_is_first = slot->jobs++ == 0;
	return slot;
}

bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight)
{
	owner->long_jobs -= weight == JOB_LONG;
	owner->urgent_jobs -= weight == JOB_URGENT;
	return --slot->jobs == 0;
}

/* ---- Scratch memory ------------------------------------------------------------------------------------ */

#define LEAST_BYTES UINT64_C(4096) /* least bytes of scratch memory that are worth having */

void scratch_init(struct scratch *scratch)
{
	*scratch = (struct scratch){ 0 };
	TAILQ_INIT(&scratch->ranges);
}

int scratch_open(struct scratch *scratch, uint64_t most, struct error *err)
{
	CUdeviceptr address;

	assert(!scratch->address);
	for (uint64_t size = most; size >= LEAST_BYTES; size /= 2) {
		int r = driver_call(err, cuMemAlloc, (&address, size));

		if (r == 0) {
			scratch->address = address;
			scratch->size = size;
		}
		if (r != STATUS_NO_MEMORY)
			return r;
	}
	return error_set(err, STATUS_NO_MEMORY,
	                 "the device does not have the %" PRIu64 " bytes needed to stage host memory",
	                 LEAST_BYTES);
}

int scratch_close(struct scratch *scratch, struct error *err)
{
	CUdeviceptr address = scratch->address;

	assert(TAILQ_EMPTY(&scratch->ranges));
	scratch->address = scratch->size = 0;
	return address ? driver_call(err, cuMemFree, (address)) : 0;
}

static uint64_t round_up(uint64_t size)
{
	return divide_up_u64(size, SCRATCH_ALIGN) * SCRATCH_ALIGN;
}

/* Returns where the first gap of at least `size` bytes starts, or 0 if there is none. Sets *ret_next to the
 * range after the gap, NULL if no range follows. */
static uint64_t find_gap(const struct scratch *scratch, uint64_t size, struct scratch_range **ret_next)
{
	uint64_t at = scratch->address, end = scratch->address + scratch->size;
	struct scratch_range *next;

	TAILQ_FOREACH(next, &scratch->ranges, entry) {
		if (next->start - at >= size)
			break;
		at = next->start + next->size;
	}
	*ret_next = next;
	return (next ? next->start : end) - at >= size ? at : 0;
}

bool scratch_has(const struct scratch *scratch, uint64_t size)
{
	struct scratch_range *next;

	return find_gap(scratch, round_up(size), &next) != 0;
}

uint64_t scratch_largest(const struct scratch *scratch)
{
	uint64_t at = scratch->address, largest = 0;
	const struct scratch_range *next;

	TAILQ_FOREACH(next, &scratch->ranges, entry) {
		if (next->start - at > largest)
			largest = next->start - at;
		at = next->start + next->size;
	}
	if (scratch->address + scratch->size - at > largest)
		largest = scratch->address + scratch->size - at;
	return largest / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

void scratch_take(struct scratch *scratch, uint64_t size, struct scratch_range *ret)
{
	struct scratch_range *next;

	ret->size = round_up(size);
	ret->start = find_gap(scratch, ret->size, &next);
	assert(ret->start);
	if (next)
		TAILQ_INSERT_BEFORE(next, ret, entry);
	else
		TAILQ_INSERT_TAIL(&scratch->ranges, ret, entry);
}

void scratch_give(struct scratch *scratch, struct scratch_range *range)
{
	if (range->size > 0)
		TAILQ_REMOVE(&scratch->ranges, range, entry);
	range->size = 0;
}

/* ---- Equipment ----------------------------------------------------------------------------------------- */

static void empty(struct pack_slots *slots, uint32_t most, uint64_t bytes)
{
	*slots = (struct pack_slots){ .most = most, .bytes = bytes };
	TAILQ_INIT(&slots->free);
	SLIST_INIT(&slots->lists);
}

int equipment_init(struct equipment *equipment, const struct device *device, struct cuda_plans *plans,
                   const struct cuda_limits *limits, uint64_t map_entries, struct error *err)
{
	uint64_t seed = 0;
	int r = 0;

	*equipment =
	    (struct equipment){ .plans = plans, .launcher = { .device = device, .maps = &equipment->maps } };
	empty(&equipment->pack_slots, limits->pack_slots, limits->pack_slot_bytes);
	packers_init(&equipment->packers, limits->pack_threads);
	if (getrandom(&seed, sizeof seed, 0) < 0)
		seed = clock_ns();
	r = driver_stream(&equipment->copy_in, STREAM_HIGHEST, err);
	if (r == 0)
		r = driver_stream(&equipment->copy_out, STREAM_HIGHEST, err);
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&equipment->passed, CU_EVENT_DISABLE_TIMING));
	if (r == 0)
		r = map_cache_init(&equipment->maps, map_entries, seed, err);
	return r;
}

/* Frees the descriptions of slots and lists without calling the driver. Their pinned memory stays as it
 * is. */
static void leave(struct pack_slots *slots)
{
	struct pack_list *list;

	while ((list = SLIST_FIRST(&slots->lists))) {
		SLIST_REMOVE_HEAD(&slots->lists, entry);
		free(list);
	}
	free(slots->slots);
	empty(slots, slots->most, slots->bytes);
}

void equipment_deinit(struct equipment *equipment, enum cuda_health health)
{
	map_cache_deinit(&equipment->maps);
	packers_deinit(&equipment->packers);
	if (health == CUDA_LOST) {
		leave(&equipment->pack_slots);
		return;
	}
	pack_slots_close(&equipment->pack_slots);
	if (equipment->passed)
		driver.cuEventDestroy(equipment->passed);
	if (equipment->copy_out)
		driver.cuStreamDestroy(equipment->copy_out);
	if (equipment->copy_in)
		driver.cuStreamDestroy(equipment->copy_in);
}

int equipment_pass(struct equipment *equipment, CUstream from, CUstream to, struct error *err)
{
	int r = driver_call(err, cuEventRecord, (equipment->passed, from));

	if (r < 0)
		return r;
	return driver_call(err, cuStreamWaitEvent, (to, equipment->passed, CU_EVENT_WAIT_DEFAULT));
}

/* ---- Pinned buffers ------------------------------------------------------------------------------------ */

static int pin(void **ret, size_t size, struct error *err)
{
	return driver_pin(ret, size, MADV_HUGEPAGE, CU_MEMHOSTREGISTER_PORTABLE, err);
}

static int make(struct pack_slots *slots, struct error *err)
{
	int r = 0;

	slots->slots = calloc(slots->most, sizeof *slots->slots);
	if (!slots->slots)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < slots->most && r == 0; i++) {
		struct pack_slot *slot = &slots->slots[i];

		slot->bytes = slots->memory + i * slots->bytes;
		r = driver_call(err, cuEventCreate, (&slot->copied, CU_EVENT_DISABLE_TIMING));
		slots->events += r == 0;
		TAILQ_INSERT_TAIL(&slots->free, slot, entry);
	}
	return r;
}

int pack_slots_open(struct pack_slots *slots, struct error *err)
{
	void *memory;
	int r;

	if (slots->slots)
		return 0;
	if (slots->most == 0)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = pin(&memory, slots->most * slots->bytes, err);
	if (r == 0) {
		slots->memory = memory;
		r = make(slots, err);
	}
	if (r < 0)
		pack_slots_close(slots);
	return r;
}

void pack_slots_close(struct pack_slots *slots)
{
	struct pack_list *list;

	assert(slots->jobs == 0);
	for (uint32_t i = 0; i < slots->events; i++)
		driver.cuEventDestroy(slots->slots[i].copied);
	driver_unpin(slots->memory, slots->most * slots->bytes);
	SLIST_FOREACH(list, &slots->lists, entry)
		driver_unpin(list->memory, list->bytes);
	leave(slots);
}

uint32_t pack_slots_share(const struct pack_slots *slots)
{
	const uint32_t share = slots->most / 2 / (slots->jobs > 0 ? slots->jobs : 1);

	return share > 0 ? share : 1;
}

struct pack_slot *pack_slots_take(struct pack_slots *slots)
{
	struct pack_slot *slot = TAILQ_FIRST(&slots->free);

	if (slot)
		TAILQ_REMOVE(&slots->free, slot, entry);
	return slot;
}

void pack_slots_give(struct pack_slots *slots, struct pack_slot *slot)
{
	TAILQ_INSERT_HEAD(&slots->free, slot, entry);
}

/* ---- Pinned lists -------------------------------------------------------------------------------------- */

#define LEAST_LIST_BYTES (UINT64_C(64) << 10)

static bool has_room(struct pack_list *list, size_t bytes, struct error *err)
{
	size_t size = LEAST_LIST_BYTES;

	if (bytes <= list->bytes)
		return true;
	while (size < bytes)
		size *= 2;
	driver_unpin(list->memory, list->bytes);
	list->memory = NULL;
	list->bytes = 0;
	if (pin(&list->memory, size, err) < 0)
		return false;
	list->bytes = size;
	return true;
}

struct pack_list *pack_slots_take_list(struct pack_slots *slots, size_t bytes, struct error *err)
{
	struct pack_list *list = SLIST_FIRST(&slots->lists);

	if (list)
		SLIST_REMOVE_HEAD(&slots->lists, entry);
	else
		list = calloc(1, sizeof *list);
	if (!list || has_room(list, bytes, err))
		return list;
	free(list);
	return NULL;
}

void pack_slots_give_list(struct pack_slots *slots, struct pack_list *list)
{
	if (list)
		SLIST_INSERT_HEAD(&slots->lists, list, entry);
}
