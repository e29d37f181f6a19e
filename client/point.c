/* SPDX-License-Identifier: Apache-2.0 */
/* Points of timelines in memory that is mapped here. A waiter sleeps on the futex of the word's low half,
 * which processes share, as the service's CPU engine does. A device that writes the word wakes nobody, so
 * no sleep is longer than a nap. */
#include "client.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"

#define LOOKS        200 /* before the first sleep: the other side may be as quick */
#define NAP_LEAST_NS 20000
#define NAP_MOST_NS  1000000

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half of a word is where the word is");

static bool is_word(const void *word)
{
	return word && (uintptr_t)word % sizeof(uint64_t) == 0;
}

int tma_point_signal(void *word, uint64_t value)
{
	int saved_errno;

	if (!is_word(word))
		return STATUS_INVALID_ARGUMENT;
	saved_errno = errno; /* a signal handler may call this */
	__atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved_errno;
	return 0;
}

static bool has_come(const void *word, uint64_t value, uint32_t *ret_low)
{
	uint64_t now = __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);

	*ret_low = (uint32_t)now;
	return (int64_t)(now - value) >= 0;
}

int tma_point_wait(const void *word, uint64_t value, int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? -1 : clock_ms() + timeout_ms;
	struct timespec nap = { .tv_nsec = NAP_LEAST_NS };
	uint32_t low;

	if (!is_word(word))
		return STATUS_INVALID_ARGUMENT;
	for (int i = 0; i < LOOKS; i++)
		if (has_come(word, value, &low))
			return 0;
	while (!has_come(word, value, &low)) {
		if (deadline >= 0 && clock_ms() >= deadline)
			return STATUS_PENDING;
		syscall(SYS_futex, word, FUTEX_WAIT, low, &nap, NULL, 0);
		if (nap.tv_nsec < NAP_MOST_NS)
			nap.tv_nsec *= 2;
	}
	return 0;
}
