/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which users are refused after which losses of the engine, and that a restarted service still refuses
 * them. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "daemon/loop/recovery.h"

#define LOSSES 4

/* The users are uids 1 and 2. A loss is a mask of those that had a transform under way. */
struct row {
	char name[40];
	unsigned losses[LOSSES];
	uint64_t apart_ms;
	bool refused[2];
};

ParameterizedTestParameters(penalty, refused)
{
	static struct row rows[] = {
		{ .name = "never", .losses = { 0 } },
		{ .name = "alone twice", .losses = { 1, 1 }, .apart_ms = 10 },
		{ .name = "alone three times",
		  .losses = { 1, 1, 1 },
		  .apart_ms = 10,
		  .refused = { true, false } },
		{ .name = "each twice", .losses = { 1, 2, 1, 2 }, .apart_ms = 10 },
		{ .name = "both three times", .losses = { 3, 3, 3 }, .apart_ms = 10 },
		{ .name = "both four times",
		  .losses = { 3, 3, 3, 3 },
		  .apart_ms = 10,
		  .refused = { true, true } },
		{ .name = "one there each time",
		  .losses = { 3, 1, 1, 3 },
		  .apart_ms = 10,
		  .refused = { true, false } },
		{ .name = "nobody there", .losses = { 0, 0, 0, 0 }, .apart_ms = 10 },
		{ .name = "long ago", .losses = { 1, 1, 1, 1 }, .apart_ms = PENALTY_FORGET_MS + 1 },
		{ .name = "not long enough ago",
		  .losses = { 1, 1, 1, 1 },
		  .apart_ms = PENALTY_FORGET_MS,
		  .refused = { true, false } },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, penalty, refused)
{
	struct penalties penalties = { 0 };
	struct error err;
	uint64_t now = 5;

	for (int i = 0; i < LOSSES && row->apart_ms; i++) {
		now += row->apart_ms;
		for (uid_t uid = 1; uid <= 2; uid++)
			if (row->losses[i] & uid) {
				penalties_suspect(&penalties, uid, now);
				/* A user is suspected once for each of its transforms. */
				penalties_suspect(&penalties, uid, now);
			}
		penalties_count(&penalties, now);
	}
	for (uid_t uid = 1; uid <= 2; uid++) {
		cr_assert_eq(penalties_check(&penalties, uid, now, &err) < 0, row->refused[uid - 1],
		             "%s: uid %u", row->name, uid);
		cr_assert_eq(penalties_check(&penalties, uid, now + PENALTY_REFUSE_MS, &err), 0,
		             "%s: uid %u is let in again", row->name, uid);
	}
}

Test(penalty, it_says_how_long)
{
	struct penalties penalties = { 0 };
	struct error err;

	for (int i = 0; i < 3; i++) {
		penalties_suspect(&penalties, 7, 1000);
		penalties_count(&penalties, 1000);
	}
	cr_assert_eq(penalties_check(&penalties, 7, 1000 + PENALTY_REFUSE_MS - 1500, &err), STATUS_BUSY);
	cr_assert(strstr(err.message, "uid 7") && strstr(err.message, "in 2 s"), "%s", err.message);
}

Test(penalty, the_one_seen_longest_ago_makes_room)
{
	struct penalties penalties = { 0 };
	struct error err;

	for (uid_t uid = 0; uid <= PENALTY_MOST; uid++)
		for (int i = 0; i < 3; i++) {
			penalties_suspect(&penalties, uid, 10 + uid);
			penalties_count(&penalties, 10 + uid);
		}
	cr_assert_eq(penalties_check(&penalties, 0, 100, &err), 0);
	cr_assert_eq(penalties_check(&penalties, 1, 100, &err), STATUS_BUSY);
	cr_assert_eq(penalties_check(&penalties, PENALTY_MOST, 100, &err), STATUS_BUSY);
}

Test(penalty, goes_from_life_to_life)
{
	struct penalties penalties = { 0 }, next = { 0 };
	struct error err;
	char text[PENALTY_TEXT];

	for (uid_t uid = 0; uid < PENALTY_MOST; uid++)
		for (int i = 0; i < 3; i++) {
			penalties_suspect(&penalties, UINT64_MAX - uid, UINT64_MAX / 2 + uid);
			penalties_count(&penalties, UINT64_MAX / 2 + uid);
		}
	penalties_write(&penalties, 42, text);
	cr_assert_lt(strlen(text), PENALTY_TEXT - 1);
	cr_assert(penalties_read(&next, 42, text));
	cr_assert_eq(next.n, PENALTY_MOST);
	cr_assert_eq(penalties_check(&next, UINT64_MAX, UINT64_MAX / 2, &err), STATUS_BUSY);
	cr_assert(strstr(err.message, "transforms of this cgroup were under way"), "%s", err.message);
	cr_assert_not(penalties_read(&next, 43, text), "it is another process's");
	text[strlen(text) - 1] = 'x';
	cr_assert_not(penalties_read(&next, 42, text));
	cr_assert_not(penalties_read(&next, 42, "42 1 7"));
	cr_assert_not(penalties_read(&next, 42, "42 1000000"));
	cr_assert_not(penalties_read(&next, 42, ""));
}
