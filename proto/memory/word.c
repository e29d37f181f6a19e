/* SPDX-License-Identifier: Apache-2.0 */
/* A waiter first polls the word, because the other side may be about to write it, and then sleeps for periods
 * of increasing length. */
#include "word.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/clock.h"

#define LOOKS        200
#define NAP_LEAST_NS 20000
#define NAP_MOST_NS  1000000

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half of a word is where the word is");

void word_signal(uint64_t *word, uint64_t value)
{
	const int saved_errno = errno;

	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = saved_errno;
}

static bool look(const uint64_t *word, uint64_t value, uint32_t *ret_low)
{
	const uint64_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	*ret_low = (uint32_t)now;
	return word_has_come(now, value);
}

bool word_wait(const uint64_t *word, uint64_t value, int64_t deadline_ms)
{
	static const atomic_bool never;

	return word_wait_unless(&never, word, value, deadline_ms);
}

bool word_wait_unless(const atomic_bool *stops, const uint64_t *word, uint64_t value, int64_t deadline_ms)
{
	struct timespec nap = { .tv_nsec = NAP_LEAST_NS };
	uint32_t low;

	for (int i = 0; i < LOOKS; i++)
		if (look(word, value, &low))
			return true;
	while (!look(word, value, &low)) {
		if (atomic_load(stops) || (deadline_ms >= 0 && clock_ms() >= deadline_ms))
			return false;
		syscall(SYS_futex, word, FUTEX_WAIT, low, &nap, NULL, 0);
		if (nap.tv_nsec < NAP_MOST_NS)
			nap.tv_nsec *= 2;
	}
	return true;
}
