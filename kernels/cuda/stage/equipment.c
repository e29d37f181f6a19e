/* SPDX-License-Identifier: Apache-2.0 */
#include "equipment.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "kernels/cuda/driver/driver.h"
#include "proto/clock.h"

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

/* The memory stays, and the driver is not asked. */
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

static int pin(size_t size, void **ret, struct error *err)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (memory == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	madvise(memory, size, MADV_HUGEPAGE);
	r = driver_call(err, cuMemHostRegister, (memory, size, CU_MEMHOSTREGISTER_PORTABLE));
	if (r < 0)
		munmap(memory, size);
	else
		*ret = memory;
	return r;
}

static void unpin(void *memory, size_t size)
{
	if (memory &&
	    driver.cuMemHostUnregister(memory) == CUDA_SUCCESS) /* else the device may still use it */
		munmap(memory, size);
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
	r = pin(slots->most * slots->bytes, &memory, err);
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
	unpin(slots->memory, slots->most * slots->bytes);
	SLIST_FOREACH(list, &slots->lists, entry)
		unpin(list->memory, list->bytes);
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
	unpin(list->memory, list->bytes);
	list->memory = NULL;
	list->bytes = 0;
	if (pin(size, &list->memory, err) < 0)
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
