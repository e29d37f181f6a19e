/* SPDX-License-Identifier: Apache-2.0 */
/* Points of timelines in memory that is mapped in this process. */
#include "client.h"

#include "proto/clock.h"
#include "proto/memory/word.h"

static bool is_word(const void *word)
{
	return word && (uintptr_t)word % sizeof(uint64_t) == 0;
}

int tma_point_signal(void *word, uint64_t value)
{
	if (!is_word(word))
		return STATUS_INVALID_ARGUMENT;
	word_signal(word, value);
	return 0;
}

int tma_point_wait(const void *word, uint64_t value, int timeout_ms)
{
	if (!is_word(word))
		return STATUS_INVALID_ARGUMENT;
	return word_wait(word, value, timeout_ms < 0 ? -1 : clock_ms() + timeout_ms) ? 0 : STATUS_PENDING;
}
