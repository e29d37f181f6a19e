/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses words by atomic loads and stores, and wakes by shared futexes. */
#include "words.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rig.h"

static uint64_t *word_of(struct engine_memory *memory, uint64_t offset)
{
	return (uint64_t *)(void *)(data(memory) + offset);
}

uint64_t word_get(struct engine_memory *memory, uint64_t offset)
{
	return __atomic_load_n(word_of(memory, offset), __ATOMIC_ACQUIRE);
}

void word_set(struct engine_memory *memory, uint64_t offset, uint64_t value)
{
	__atomic_store_n(word_of(memory, offset), value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word_of(memory, offset), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
