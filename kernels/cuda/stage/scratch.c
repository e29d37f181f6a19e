/* SPDX-License-Identifier: Apache-2.0 */
/* First-fit allocation between ranges that are kept in order of their addresses. */
#include "scratch.h"

#include <assert.h>
#include <inttypes.h>

#include "kernels/cuda/driver/driver.h"
#include "proto/arithmetic.h"

#define LEAST_BYTES UINT64_C(4096)

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

/* The first gap of that size: where it starts, and the range after it, NULL when it is the last. 0: none. */
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
