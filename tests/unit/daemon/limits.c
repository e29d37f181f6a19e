/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the default limits of memory for the amounts that the service may use. */
#include "daemon/config/limits.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "proto/memory/headroom.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct row {
	char name[24];
	uint64_t machine, group;
	uint64_t mapped, created, queued, input, list;
};

ParameterizedTestParameters(limits, fit)
{
	static struct row rows[] = {
		{ "a machine", 64 * GIB, UINT64_MAX, 64 * GIB, 16 * GIB, 256 * MIB, 64 * MIB, 64 * MIB },
		{ "a small machine", GIB, UINT64_MAX, GIB, 256 * MIB, 64 * MIB, 64 * MIB, 32 * MIB },
		{ "a small cgroup", 64 * GIB, 512 * MIB, 16 * GIB, 128 * MIB, 32 * MIB, 32 * MIB, 16 * MIB },
		{ "a large cgroup", 64 * GIB, 32 * GIB, 64 * GIB, 8 * GIB, 256 * MIB, 64 * MIB, 64 * MIB },
		{ "a tiny cgroup", 64 * GIB, 3, 96, 1, 1, 1, 1 },
		{ "nobody knows", UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX / 4, 256 * MIB, 64 * MIB,
		  64 * MIB },
	};
	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, limits, fit)
{
	struct headroom_figures figures = { .machine = row->machine, .group = row->group };
	struct limits limits = { 0 };

	limits.queued_bytes_per_uid = limit_infos[LIMIT_INDEX_queued_bytes_per_uid].dflt;
	limits.input_bytes_per_uid = limit_infos[LIMIT_INDEX_input_bytes_per_uid].dflt;
	limits.list_bytes_per_uid = limit_infos[LIMIT_INDEX_list_bytes_per_uid].dflt;
	limits_fit_memory(&limits, &figures);
	cr_assert_eq(limits.mapped_bytes_per_uid, row->mapped, "%s: %lu", row->name,
	             limits.mapped_bytes_per_uid);
	cr_assert_eq(limits.created_bytes_per_uid, row->created, "%s: %lu", row->name,
	             limits.created_bytes_per_uid);
	cr_assert_eq(limits.queued_bytes_per_uid, row->queued, "%s: %lu", row->name,
	             limits.queued_bytes_per_uid);
	cr_assert_eq(limits.input_bytes_per_uid, row->input, "%s: %lu", row->name,
	             limits.input_bytes_per_uid);
	cr_assert_eq(limits.list_bytes_per_uid, row->list, "%s: %lu", row->name, limits.list_bytes_per_uid);
}

Test(limits, one_user_has_half_of_the_descriptors_for_regions)
{
	const uint64_t most[] = { 524288, 20000, 1 };
	const uint64_t expected[] = { 65536, 10000, 1 };
	struct limits limits = { .region_fds_per_uid = 65536 };

	for (int i = 0; i < 3; i++) {
		limits_fit_descriptors(&limits, most[i]);
		cr_expect_eq(limits.region_fds_per_uid, expected[i], "%lu: %lu", (unsigned long)most[i],
		             (unsigned long)limits.region_fds_per_uid);
	}
}

/* Adds up what one user at its limits holds of the service's memory, including page tables for mapped
 * bytes. */
Test(limits, one_user_has_less_than_half)
{
	for (uint64_t group = 64 * MIB; group < 64 * GIB; group *= 2) {
		struct headroom_figures figures = { .machine = 64 * GIB, .group = group };
		struct limits limits;

		limits_init(&limits);
		limits_fit_memory(&limits, &figures);
		cr_assert_lt(limits.mapped_bytes_per_uid / 4096 * 8 + limits.created_bytes_per_uid +
		                 limits.queued_bytes_per_uid + limits.input_bytes_per_uid +
		                 limits.list_bytes_per_uid,
		             group / 2, "%lu", group);
	}
}
