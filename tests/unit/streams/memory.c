/* SPDX-License-Identifier: Apache-2.0 */
/* Implements memory of the device, for tests of tests/unit/local/ that also run with it. */
#include "tests/unit/local/memory.h"

#include "rig.h"

void memory_open(void)
{
	rig_open();
}

void memory_close(void)
{
	rig_close();
}

void memory_enter(void)
{
	cuda(cuCtxSetCurrent(context));
}

uint64_t memory_new(size_t size)
{
	return rig_bytes(size ? size : 1, 0xee);
}

void memory_put(uint64_t to, const void *from, size_t size)
{
	if (size > 0)
		rig_put(to, from, size);
}

void memory_get(void *to, uint64_t from, size_t size)
{
	if (size > 0)
		rig_get(to, from, size);
}

void memory_signal(uint64_t word, uint64_t value)
{
	rig_put(word, &value, sizeof value);
}

tma_region *memory_region(uint64_t address, size_t size, unsigned flags)
{
	tma_region *ret;

	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(uintptr_t)address, size, flags, &ret), 0,
	             "%s", tma_last_error(client));
	return ret;
}
