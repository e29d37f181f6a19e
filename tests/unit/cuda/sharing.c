/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the detection of other processes that compute on the device: what counts as a sign of one, for how
 * long, and what follows. */
#include "kernels/cuda/sched/queue.h"

#include <criterion/criterion.h>

#define MS UINT64_C(1000000)

enum { ONE_WAY = 128 << 20 }; /* bytes one way: 8192 blocks of 16 KiB */

Test(sharing, what_a_device_alone_takes_is_no_sign)
{
	struct sharing sharing = { .slack_ns = MS / 2 };

	cr_expect_not(sharing_is_seen(&sharing, 5));
	sharing_note(&sharing, 10 * MS, 3 * MS, 2 * ONE_WAY, true);
	sharing_note(&sharing, 10 * MS, MS / 20, 2 << 20, false);
	cr_expect_not(sharing_is_seen(&sharing, 10 * MS));
}

Test(sharing, what_takes_longer_counts_for_a_while)
{
	struct sharing sharing = { .slack_ns = MS / 2 };

	sharing_note(&sharing, 10 * MS, 7 * MS, 2 * ONE_WAY, true);
	cr_expect(sharing_is_seen(&sharing, 10 * MS));
	cr_expect(sharing_is_seen(&sharing, 10 * MS + SHARING_HOLDS_NS - 1));
	cr_expect_not(sharing_is_seen(&sharing, 10 * MS + SHARING_HOLDS_NS));
}

Test(sharing, a_short_job_that_waits_for_a_time_slice)
{
	struct sharing sharing = { .slack_ns = MS / 2 };

	sharing_note(&sharing, 10 * MS, 2 * MS, 128 << 10, false);
	cr_expect(sharing_is_seen(&sharing, 10 * MS));
}

Test(sharing, a_launch_that_waits_for_its_turn)
{
	struct sharing sharing = { .slack_ns = MS / 2 };

	cr_expect_not(sharing_is_late(MS / 2, MS / 2, 64 << 20, false));
	cr_expect(sharing_is_late(MS / 2, 2 * MS, 64 << 20, false));
	sharing_see(&sharing, 10 * MS);
	cr_expect(sharing_is_felt(&sharing, 11 * MS));
	cr_expect_not(sharing_is_felt(&sharing, 10 * MS + SHARING_HOLDS_NS));
}

Test(sharing, under_mps_others_are_taken_for_granted)
{
	struct sharing sharing = { .by_mps = true };

	cr_expect(sharing_is_seen(&sharing, 0));
	cr_expect_not(sharing_is_felt(&sharing, 0), "launches run side by side with theirs");
}
