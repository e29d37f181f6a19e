/* SPDX-License-Identifier: Apache-2.0 */
/* Implements memory of the host, for tests that also run with memory of a device. It is kept until the test
 * ends. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "client/local/door.h"

tma_client *client;

/* Each piece of memory starts with a link to the one that was made before it. */
enum { ALIGN = 256 };
static void *last;

void memory_open(void)
{
	client = tma_new();
	/* The program has the engine linked in, and no library is loaded. */
	cr_assert_not_null(tma_local_door());
	cr_assert_eq(tma_connect(client, "local:"), 0, "%s", tma_last_error(client));
}

void memory_close(void)
{
	tma_free(client);
	while (last) {
		void *before = *(void **)last;

		free(last);
		last = before;
	}
}

void memory_enter(void)
{
}

uint64_t memory_new(size_t size)
{
	char *ret = aligned_alloc(ALIGN, ALIGN + (size + ALIGN) / ALIGN * ALIGN);

	cr_assert_not_null(ret);
	*(void **)(void *)ret = last;
	last = ret;
	memset(ret + ALIGN, 0xee, size);
	return (uintptr_t)ret + ALIGN;
}

void memory_put(uint64_t to, const void *from, size_t size)
{
	memcpy((void *)(uintptr_t)to, from, size);
}

void memory_get(void *to, uint64_t from, size_t size)
{
	memcpy(to, (const void *)(uintptr_t)from, size);
}

void memory_signal(uint64_t word, uint64_t value)
{
	cr_assert_eq(tma_point_signal((void *)(uintptr_t)word, value), 0);
}

tma_region *memory_region(uint64_t address, size_t size, unsigned flags)
{
	tma_region *ret;

	cr_assert_eq(tma_region_from_host_ptr(client, (void *)(uintptr_t)address, size, flags, &ret), 0, "%s",
	             tma_last_error(client));
	return ret;
}
