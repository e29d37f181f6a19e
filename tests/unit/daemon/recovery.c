/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the state that the service passes on when it restarts within its process after a device was lost, and
 * when it does not restart. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/loop/recovery.h"

Test(recovery, is_read_as_it_was_written)
{
	struct recovery written = { .listener = 3,
		                    .metrics = 5,
		                    .count = UINT64_MAX,
		                    .at_ms = { UINT64_MAX, UINT64_MAX, 7, 1, UINT64_MAX } };
	struct recovery read = { 0 };
	char text[RECOVERY_TEXT];

	recovery_write(&written, INT32_MAX, text);
	cr_assert(recovery_read(&read, INT32_MAX, text), "%s", text);
	cr_assert_eq(read.listener, 3, "%s", text);
	cr_assert_eq(read.metrics, 5, "%s", text);
	cr_assert_eq(read.count, written.count, "%s", text);
	cr_assert_arr_eq(read.at_ms, written.at_ms, sizeof read.at_ms, "%s", text);

	written = (struct recovery){ .listener = -1, .metrics = -1 };
	recovery_write(&written, 1, text);
	cr_assert_str_eq(text, "1 -1 -1 0 0 0 0 0 0");
	cr_assert(recovery_read(&read, 1, text));
	cr_assert_eq(read.listener, -1);
}

struct text_row {
	char text[64];
};

ParameterizedTestParameters(recovery, of_nobody)
{
	static struct text_row rows[] = {
		{ "" },
		{ "12" },
		{ "another 4 -1 1 0 0 0 0 0" },
		{ "13 4 -1 1 0 0 0 0 0" }, /* written by another process */
		{ "12 4 -1 1 0 0 0 0" },
		{ "12 4 -1 1 0 0 0 0 0 0" },
		{ "12 4 -1 1 0 0 0 0 0x" },
		{ "12 -2 -1 1 0 0 0 0 0" },
		{ "12 4 -2 1 0 0 0 0 0" },
		{ "12 99999999999 -1 1 0 0 0 0 0" },
		{ "12 4 -1 many 0 0 0 0 0" },
	};

	return cr_make_param_array(struct text_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct text_row *row, recovery, of_nobody)
{
	struct recovery recovery = { .listener = 77 };

	cr_assert_not(recovery_read(&recovery, 12, row->text), "%s", row->text);
	cr_assert_eq(recovery.listener, 77, "%s: *ret has been touched", row->text);
}

Test(recovery, is_taken_once)
{
	struct recovery recovery = { .listener = dup(0), .metrics = -1, .count = 4 };
	int fd = recovery.listener;
	char text[RECOVERY_TEXT];

	recovery_write(&recovery, getpid(), text);
	setenv(RECOVERY_VARIABLE, text, 1);
	setenv(RECOVERY_SETTINGS, "[tmad]\n", 1);
	recovery_take(&recovery);
	cr_assert_eq(recovery.listener, fd);
	cr_assert_str_eq(recovery.settings, "[tmad]\n");
	cr_assert_null(getenv(RECOVERY_SETTINGS));
	cr_assert_eq(recovery.count, 4);
	cr_assert_null(getenv(RECOVERY_VARIABLE));
	recovery_take(&recovery);
	cr_assert_eq(recovery.listener, -1);
	cr_assert_eq(recovery.count, 0);
	setenv(RECOVERY_VARIABLE, "1 3 -1 1 0 0 0 0 0", 1);
	setenv(RECOVERY_SETTINGS, "[tmad]\n", 1);
	recovery_take(&recovery);
	cr_assert_null(recovery.settings, "of another process");
	cr_assert_eq(recovery.listener, -1);
	cr_assert_null(getenv(RECOVERY_VARIABLE));
	close(fd);
}

Test(recovery, a_few_a_minute)
{
	struct recovery recovery = { 0 };
	uint64_t now = 1000;

	for (int i = 0; i < RECOVERY_MOST; i++, now += 100)
		cr_assert(recovery_count(&recovery, now), "%d", i);
	cr_assert_not(recovery_count(&recovery, now));
	cr_assert_not(recovery_count(&recovery, 1000 + RECOVERY_WITHIN_MS - 1));
	cr_assert_eq(recovery.count, RECOVERY_MOST);
	cr_assert(recovery_count(&recovery, 1000 + RECOVERY_WITHIN_MS));
	cr_assert_not(recovery_count(&recovery, 1000 + RECOVERY_WITHIN_MS), "the next is 100 ms younger");
	cr_assert(recovery_count(&recovery, 1100 + RECOVERY_WITHIN_MS));
	cr_assert_eq(recovery.count, RECOVERY_MOST + 2);
}
