/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, pins and hands out the buffers. */
#include "pack_slots.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "driver.h"

void pack_slots_init(struct pack_slots *slots, uint32_t most, uint64_t bytes)
{
	*slots = (struct pack_slots){ .most = most, .bytes = bytes };
	TAILQ_INIT(&slots->free);
}

static int pin(struct pack_slots *slots, struct error *err)
{
	const size_t size = slots->most * slots->bytes;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (memory == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	madvise(memory, size, MADV_HUGEPAGE);
	r = driver_call(err, cuMemHostRegister, (memory, size, CU_MEMHOSTREGISTER_PORTABLE));
	if (r < 0)
		munmap(memory, size);
	else
		slots->memory = memory;
	return r;
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
	int r;

	if (slots->slots)
		return 0;
	if (slots->most == 0)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = pin(slots, err);
	if (r == 0)
		r = make(slots, err);
	if (r < 0)
		pack_slots_close(slots);
	return r;
}

void pack_slots_close(struct pack_slots *slots)
{
	assert(slots->jobs == 0);
	for (uint32_t i = 0; i < slots->events; i++)
		driver.cuEventDestroy(slots->slots[i].copied);
	if (slots->memory) {
		CUresult result = driver.cuMemHostUnregister(slots->memory);

		if (result == CUDA_SUCCESS) /* else the device may still use it */
			munmap(slots->memory, slots->most * slots->bytes);
	}
	pack_slots_leave(slots);
}

void pack_slots_leave(struct pack_slots *slots)
{
	free(slots->slots);
	pack_slots_init(slots, slots->most, slots->bytes);
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
