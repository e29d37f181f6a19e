/* SPDX-License-Identifier: Apache-2.0 */
/* Tests files of subordinate uids: what their lines mean, which lines are invalid, and to whom a uid is
 * charged. */
#include "daemon/config/overrides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "daemon/memory/account.h"

#define PAIRS 8

struct row {
	char name[48];
	char text[256];
	size_t ranges;
	uint32_t user[PAIRS][2]; /* pairs of a uid and its owner; 0, 0 ends the list */
	char warning[96];        /* part of the warning; "": there is none */
};

ParameterizedTestParameters(subuids, read)
{
	static struct row rows[] = {
		{ .name = "empty", .user = { { 1000, 1000 } } },
		{ .name = "one, by uid",
		  .text = "1000:100000:65536\n",
		  .ranges = 1,
		  .user = { { 1000, 1000 },
		            { 99999, 99999 },
		            { 100000, 1000 },
		            { 165535, 1000 },
		            { 165536, 165536 },
		            { 4294967294, 4294967294 } } },
		{ .name = "by name",
		  .text = "root:100000:10\n",
		  .ranges = 1,
		  .user = { { 100009, 0 }, { 100010, 100010 } } },
		{ .name = "no line break at the end, blanks",
		  .text = "\n  # a comment\n7:10:1 \t\r\n8:20:1",
		  .ranges = 2,
		  .user = { { 10, 7 }, { 20, 8 }, { 15, 15 } } },
		{ .name = "several of one owner",
		  .text = "7:300:10\n7:100:10\n",
		  .ranges = 2,
		  .user = { { 105, 7 }, { 305, 7 }, { 200, 200 } } },
		{ .name = "overlapping: the first in the file",
		  .text = "7:150:100\n8:100:100\n9:190:100\n",
		  .ranges = 3,
		  .user = { { 149, 8 },
		            { 150, 7 },
		            { 199, 7 },
		            { 249, 7 },
		            { 250, 9 },
		            { 289, 9 },
		            { 290, 290 } },
		  .warning = "ranges of several owners overlap" },
		{ .name = "within each other",
		  .text = "7:100:1000\n8:200:10\n",
		  .ranges = 2,
		  .user = { { 205, 7 }, { 1099, 7 }, { 1100, 1100 } },
		  .warning = "ranges of several owners overlap" },
		{ .name = "a short one before a long one",
		  .text = "8:200:10\n7:100:1000\n",
		  .ranges = 2,
		  .user = { { 205, 8 }, { 1099, 7 }, { 199, 7 } },
		  .warning = "ranges of several owners overlap" },
		{ .name = "overlapping, of one owner",
		  .text = "7:100:100\n7:150:100\n",
		  .ranges = 2,
		  .user = { { 249, 7 } } },
		{ .name = "an owner who is subordinate",
		  .text = "7:100:10\n105:1000:10\n1005:5000:10\n",
		  .ranges = 3,
		  .user = { { 5003, 7 }, { 1001, 7 }, { 105, 7 } } },
		{ .name = "an owner within the range",
		  .text = "105:100:10\n",
		  .ranges = 1,
		  .user = { { 101, 105 }, { 105, 105 } } },
		{ .name = "owners of each other",
		  .text = "200:100:10\n100:200:10\n",
		  .ranges = 2,
		  .user = { { 101, 100 }, { 201, 100 }, { 100, 100 }, { 200, 100 } } },
		{ .name = "to the last uid",
		  .text = "7:4294967290:5\n",
		  .ranges = 1,
		  .user = { { 4294967294, 7 }, { 4294967289, 4294967289 } } },
		{ .name = "past the last uid",
		  .text = "7:4294967290:6\n8:10:1\n",
		  .ranges = 1,
		  .user = { { 4294967292, 4294967292 }, { 10, 8 } },
		  .warning = ":1: 6 is not a number of uids from 4294967290 on; the line is ignored" },
		{ .name = "no count",
		  .text = "7:100\n8:10:1\n",
		  .ranges = 1,
		  .user = { { 10, 8 } },
		  .warning = ":1: it is not OWNER:FIRST:COUNT; the line is ignored" },
		{ .name = "too much",
		  .text = "8:10:1\n7:100:1:1\n",
		  .ranges = 1,
		  .user = { { 10, 8 } },
		  .warning = ":2: it is not OWNER:FIRST:COUNT; the line is ignored" },
		{ .name = "no owner",
		  .text = ":100:1\n",
		  .warning = ":1: the owner is missing; the line is ignored" },
		{ .name = "no number", .text = "7:x:1\n", .warning = ":1: x is not a number from 0 to" },
		{ .name = "negative", .text = "7:-1:1\n", .warning = ":1: -1 is not a number" },
		{ .name = "a count of 0",
		  .text = "7:1:0\n",
		  .warning = ":1: 0 is not a number of uids from 1 on" },
		{ .name = "a name that begins with a digit",
		  .text = "7-no-such-user:1:1\n",
		  .warning = ":1: there is no user 7-no-such-user; the line is ignored" },
		{ .name = "nobody",
		  .text = "no-such-user-here:1:1\nnor-this-one:1:1\n7:5:1\n",
		  .ranges = 1,
		  .user = { { 5, 7 } },
		  .warning = ":1: there is no user no-such-user-here; the line is ignored, as are others" },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

static void write_file(char path[32], const char *text)
{
	int fd;

	strcpy(path, "/tmp/tmad-subuid-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

ParameterizedTest(struct row *row, subuids, read)
{
	struct subuids subuids;
	char path[32];

	write_file(path, row->text);
	subuids_read(&subuids, path);
	unlink(path);
	cr_assert_eq(subuids.n, row->ranges, "%s: %zu", row->name, subuids.n);
	for (int i = 0; i < PAIRS && (row->user[i][0] || row->user[i][1]); i++)
		cr_assert_eq(subuids_user(&subuids, row->user[i][0]), row->user[i][1], "%s: %u: %u",
		             row->name, row->user[i][0], subuids_user(&subuids, row->user[i][0]));
	if (*row->warning)
		cr_assert(strstr(subuids.warning, row->warning), "%s: %s", row->name, subuids.warning);
	else
		cr_assert_str_eq(subuids.warning, "", "%s", row->name);
	subuids_deinit(&subuids);
}

Test(subuids, files_that_are_none)
{
	struct subuids subuids;

	cr_assert_eq(subuids_user(NULL, 5), 5);
	subuids_read(&subuids, "");
	cr_assert_str_eq(subuids.warning, "");
	subuids_read(&subuids, "/nowhere/subuid");
	cr_assert_str_eq(subuids.warning,
	                 "/nowhere/subuid: No such file or directory; each uid is a user of its own");
	cr_assert_eq(subuids.n, 0);
	subuids_read(&subuids, "/tmp");
	cr_assert_str_eq(subuids.warning, "/tmp: it is not a regular file; each uid is a user of its own");
	subuids_read(&subuids, "/dev/zero");
	cr_assert_str_eq(subuids.warning,
	                 "/dev/zero: it is not a regular file; each uid is a user of its own");
	subuids_deinit(&subuids);
}

Test(subuids, many)
{
	const uint32_t n = 20000;
	struct subuids subuids, same, other;
	char path[32];
	FILE *file;

	write_file(path, "");
	file = fopen(path, "w");
	for (uint32_t i = 0; i < n; i++) /* writes the ranges in descending order */
		fprintf(file, "%u:%u:100\n", 1000 + i, 1000000 + (n - i) * 100);
	fclose(file);
	subuids_read(&subuids, path);
	subuids_read(&same, path);
	file = fopen(path, "a");
	fputs("7:1:1\n", file);
	fclose(file);
	subuids_read(&other, path);
	unlink(path);
	cr_assert_eq(subuids.n, n);
	cr_assert_str_eq(subuids.warning, "");
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(subuids_user(&subuids, 1000000 + (n - i) * 100 + i % 100), 1000 + i, "%u", i);
	cr_assert(subuids_equal(&subuids, &same));
	cr_assert_not(subuids_equal(&subuids, &other));
	subuids_deinit(&subuids);
	subuids_deinit(&same);
	subuids_deinit(&other);
}

/* All uids of a range share an account, except those that have a section of their own. */
Test(subuids, accounts)
{
	struct subuid_range range = { .first = 100, .last = 199, .owner = 7, .before = 199 };
	struct subuids subuids = { .of = &range, .n = 1 };
	struct overrides overrides = { .n = 1, .of[0] = { .id = 150 } };
	struct account *account[4];
	struct accounts accounts;
	struct limits limits;
	struct charge charge = { 0 };
	struct error err;

	limits_init(&limits);
	limits.connections_per_uid = 2;
	accounts_init(&accounts, &limits);
	accounts.subuids = &subuids;
	accounts.overrides = &overrides;
	overrides.of[0].value[LIMIT_INDEX_connections_per_uid] = 9;
	account[0] = account_of_peer(&accounts, 7);
	account[1] = account_of_peer(&accounts, 100);
	account[2] = account_of_peer(&accounts, 199);
	account[3] = account_of_peer(&accounts, 150);
	cr_assert(account[0] == account[1] && account[1] == account[2]);
	cr_assert_eq(account[1]->uid, 7);
	cr_assert_eq(account[3]->uid, 150);
	cr_assert_eq(account_limits(&accounts, account[3])->connections_per_uid, 9);
	cr_assert_eq(charge_take(&charge, &accounts, account[1], CHARGE_CONNECTIONS, 2, &err), 0);
	cr_assert_not(charge_fits(&accounts, account[0], CHARGE_CONNECTIONS, 1));
	cr_assert_not(charge_fits(&accounts, account[2], CHARGE_CONNECTIONS, 1));
	cr_assert(charge_fits(&accounts, account[3], CHARGE_CONNECTIONS, 1));
	charge_release(&charge);
	for (int i = 0; i < 4; i++)
		account_unref(account[i]);
	accounts_deinit(&accounts);
}
