/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which jobs count as having had the engine to themselves. */
#include <criterion/criterion.h>

#include "kernels/queue/fair_queue.h"

Test(contention, one_stream_after_the_other)
{
	struct contention contention = { 0 };
	uint64_t a = contention_start(&contention, true), b;

	cr_assert(contention_end(&contention, a, true));
	b = contention_start(&contention, true);
	cr_assert(contention_end(&contention, b, true));
}

Test(contention, one_stream_with_several_jobs)
{
	struct contention contention = { 0 };
	const uint64_t a = contention_start(&contention, true), b = contention_start(&contention, false);

	cr_assert(contention_end(&contention, a, false));
	cr_assert(contention_end(&contention, b, true));
	cr_assert_eq(contention.busy, 0);
}

Test(contention, two_streams)
{
	struct contention contention = { 0 };
	uint64_t a = contention_start(&contention, true), b = contention_start(&contention, true), c;

	cr_assert_not(contention_end(&contention, b, true), "started beside a");
	c = contention_start(&contention, false);
	cr_assert_not(contention_end(&contention, a, false), "b was there for a while");
	cr_assert(contention_end(&contention, c, true), "b had ended before it started");
	b = contention_start(&contention, true);
	a = contention_start(&contention, true);
	cr_assert_not(contention_end(&contention, a, true));
	cr_assert_not(contention_end(&contention, b, true));
	cr_assert_eq(contention.busy, 0);
}
