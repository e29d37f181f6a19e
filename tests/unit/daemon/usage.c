/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the number of users with a row of their own is bounded and their rows stay, and the bars of
 * latencies. */
#include <criterion/criterion.h>

#include "daemon/memory/metrics.h"

Test(usage, a_row_for_each_until_they_are_taken)
{
	static struct usages usages;
	struct usage *first = usages_of(&usages, 7, ""), *other;

	cr_assert_not_null(first);
	first->requests = 5;
	for (uid_t uid = 1000; uid < 1000 + USAGE_UIDS - 1; uid++)
		cr_assert_not_null(usages_of(&usages, uid, ""));
	cr_assert_eq(usages.n, USAGE_UIDS);
	other = usages_of(&usages, 5000, "");
	cr_assert_eq(other, &usages.others);
	cr_assert_eq(usages_of(&usages, 5001, ""), other);
	cr_assert_eq(usages_of(&usages, 7, ""), first);
	cr_assert_eq(usages_of(&usages, 7, "")->requests, 5);
	cr_assert_neq(usages_of(&usages, 1000, ""), other);
	usages_deinit(&usages);
}

Test(usage, bars)
{
	cr_assert_eq(latency_bar(0), 0);
	for (int bar = 0; bar < LATENCY_BARS - 1; bar++) {
		cr_assert_eq(latency_bar(latency_bound(bar) - 1), bar, "below the bound of bar %d", bar);
		cr_assert_eq(latency_bar(latency_bound(bar)), bar + 1, "at the bound of bar %d", bar);
	}
	cr_assert_eq(latency_bound(LATENCY_BARS - 1), 0);
	cr_assert_eq(latency_bar(UINT64_MAX), LATENCY_BARS - 1);
}

Test(usage, adds_up)
{
	struct usage usage = { 0 };

	usage_count_transform(&usage,
	                      &(struct transform_count){ FAMILY_FILL, 10, 20, 6, 3000, latency_bar(3000) });
	usage_count_transform(&usage, &(struct transform_count){ FAMILY_FILL, 1, 2, 1, 3, latency_bar(3) });
	usage_count_error(&usage, STATUS_INVALID_ARGUMENT);
	usage_count_error(&usage, STATUS_INTERNAL);
	cr_assert_eq(usage.bytes[FAMILY_FILL], 11);
	cr_assert_eq(usage.ns[FAMILY_FILL], 22);
	cr_assert_eq(usage.multiprocessor_ns, 122);
	cr_assert_eq(usage.latency_ns, 3003);
	cr_assert_eq(usage.latency[0], 1);
	cr_assert_eq(usage.latency[2], 1);
	cr_assert_eq(usage_sum(usage.latency, LATENCY_BARS), 2);
	cr_assert_eq(usage.errors[0], 1);
	cr_assert_eq(usage.errors[STATUS_COUNT - 1], 1);
}
