/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_slots.h"

#include "kernels/cuda/driver/driver.h"

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
