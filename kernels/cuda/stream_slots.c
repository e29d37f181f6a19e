/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_slots.h"

#include "driver.h"

int stream_slots_init(struct stream_slots *slots, struct error *err)
{
	int r = 0;

	for (int i = 0; i < STREAM_SLOTS_SHORT + STREAM_SLOTS_LONG && r == 0; i++) {
		struct stream_slot *slot = &slots->slot[i];

		slot->is_long = i >= STREAM_SLOTS_SHORT;
		r = driver_stream(&slot->stream, slot->is_long ? STREAM_LOWEST : STREAM_HIGHEST, err);
	}
	return r;
}

void stream_slots_deinit(struct stream_slots *slots)
{
	for (int i = 0; i < STREAM_SLOTS_SHORT + STREAM_SLOTS_LONG; i++)
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
	if (weight == JOB_LONG && owner->long_jobs > 0)
		return owner->long_slot;
	if (weight != JOB_LONG && last && last->is_long == (weight == JOB_BESIDE))
		return last;
	return weight == JOB_SHORT ? least_used(slots->slot, STREAM_SLOTS_SHORT)
	                           : least_used(&slots->slot[STREAM_SLOTS_SHORT], STREAM_SLOTS_LONG);
}

struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first)
{
	struct stream_slot *slot = find(slots, owner, last, weight);

	if (weight == JOB_LONG) {
		owner->long_slot = slot;
		owner->long_jobs++;
	}
	*ret_is_first = slot->jobs++ == 0;
	return slot;
}

bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight)
{
	owner->long_jobs -= weight == JOB_LONG;
	return --slot->jobs == 0;
}
