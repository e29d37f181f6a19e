/* SPDX-License-Identifier: Apache-2.0 */
/* Tests buffers: the order of bytes, growth, and sizes that are refused. */
#include "proto/wire/frame.h"

#include <string.h>

#include <criterion/criterion.h>

#include "proto/status.h"

Test(buffer, keeps_bytes_in_order_through_growth_and_moves)
{
	struct buffer b = { 0 };
	uint32_t written = 0, read = 0;

	for (int round = 0; round < 2000; round++) {
		int in = round * 7919 % 97, out = round * 104729 % 101;

		for (int i = 0; i < in; i++, written++)
			cr_assert_eq(buffer_append(&b, &written, sizeof written), 0);
		for (int i = 0; i < out && buffer_len(&b); i++, read++) {
			uint32_t value;

			memcpy(&value, b.data + b.start, sizeof value);
			cr_assert_eq(value, read, "round %d: %u at the front, not %u", round, value, read);
			buffer_consume(&b, sizeof value, SIZE_MAX);
		}
	}
	cr_assert_eq(buffer_len(&b), (written - read) * sizeof written);
	cr_assert_leq(b.cap, 16 * (buffer_len(&b) + 4096), "cap %zu for %zu bytes", b.cap, buffer_len(&b));
	buffer_deinit(&b);
}

Test(buffer, reserve_without_commit_changes_nothing)
{
	struct buffer b = { 0 };
	uint8_t *room;

	cr_assert_eq(buffer_append(&b, "abc", 3), 0);
	room = buffer_reserve(&b, 100000);
	cr_assert_not_null(room);
	memset(room, 0xff, 100000);
	cr_assert_eq(buffer_len(&b), 3);
	cr_assert_arr_eq(b.data + b.start, "abc", 3);
	room = buffer_reserve(&b, 2);
	room[0] = 'd';
	buffer_commit(&b, 1);
	cr_assert_eq(buffer_len(&b), 4);
	cr_assert_arr_eq(b.data + b.start, "abcd", 4);
	buffer_deinit(&b);
}

Test(buffer, empty_gives_back_what_it_need_not_keep)
{
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, "abc", 3), 0);
	buffer_consume(&b, 3, 1 << 20);
	cr_assert_not_null(b.data, "cap %zu is under keep", b.cap);
	cr_assert_not_null(buffer_reserve(&b, 100000));
	buffer_commit(&b, 1);
	buffer_consume(&b, 1, 4096);
	cr_assert_null(b.data);
	cr_assert_eq(b.cap, 0);
	cr_assert_eq(buffer_append(&b, "abc", 3), 0);
	buffer_deinit(&b);
	buffer_deinit(&b);
	buffer_deinit(NULL);
}

Test(buffer, truncate_forgets_what_was_appended_since)
{
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, "xxabc", 5), 0);
	buffer_consume(&b, 2, 0);
	cr_assert_eq(buffer_append(&b, "def", 3), 0);
	buffer_truncate(&b, 3);
	cr_assert_eq(buffer_len(&b), 3);
	cr_assert_arr_eq(b.data + b.start, "abc", 3);
	buffer_deinit(&b);
}

Test(buffer, appending_nothing_to_nothing_is_fine)
{
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, NULL, 0), 0);
	cr_assert_eq(buffer_len(&b), 0);
	buffer_deinit(&b);
}

Test(buffer, refuses_what_no_machine_has_and_keeps_its_bytes)
{
	volatile size_t too_many = SIZE_MAX / 2; /* volatile, because the compiler would warn of a constant */
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, "abc", 3), 0);
	cr_assert_null(buffer_reserve(&b, SIZE_MAX));
	cr_assert_null(buffer_reserve(&b, SIZE_MAX - 3));
	cr_assert_eq(buffer_append(&b, "", too_many), STATUS_NO_MEMORY);
	cr_assert_eq(buffer_len(&b), 3);
	cr_assert_arr_eq(b.data + b.start, "abc", 3);
	buffer_deinit(&b);
}
