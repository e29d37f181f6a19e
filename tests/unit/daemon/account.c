/* SPDX-License-Identifier: Apache-2.0 */
/* Tests charges: one that fits is made, one that does not fit changes nothing, and releasing charges leaves
 * nothing charged. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>

#include "daemon/memory/account.h"

struct row {
	char name[32];
	enum charge_kind kind;
	uint64_t limit;
	uint64_t held;
	uint64_t amount;
	bool fits;
};

ParameterizedTestParameters(account, take)
{
	static struct row rows[] = {
		{ .name = "first", .kind = CHARGE_REGIONS, .limit = 3, .held = 0, .amount = 1, .fits = true },
		{ .name = "exactly the limit",
		  .kind = CHARGE_REGIONS,
		  .limit = 3,
		  .held = 2,
		  .amount = 1,
		  .fits = true },
		{ .name = "one too many", .kind = CHARGE_REGIONS, .limit = 3, .held = 3, .amount = 1 },
		{ .name = "far too many",
		  .kind = CHARGE_MAPPED_BYTES,
		  .limit = 100,
		  .held = 1,
		  .amount = 100 },
		{ .name = "sum overflows",
		  .kind = CHARGE_MAPPED_BYTES,
		  .limit = 100,
		  .held = 1,
		  .amount = UINT64_MAX },
		{ .name = "nothing", .kind = CHARGE_JOBS, .limit = 1, .held = 1, .amount = 0, .fits = true },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, account, take)
{
	struct limits limits;
	struct accounts accounts;
	struct account *account;
	struct charge held = { 0 }, charge = { 0 };
	struct error err = { 0 };
	int r;

	limits_init(&limits);
	limits.regions_per_uid = limits.mapped_bytes_per_uid = limits.jobs_per_uid = row->limit;
	accounts_init(&accounts, &limits);
	account = account_ref(&accounts, 7);
	cr_assert_eq(charge_take(&held, &accounts, account, row->kind, row->held, &err), 0, "%s", row->name);

	cr_assert_eq(charge_fits(&accounts, account, row->kind, row->amount), row->fits, "%s", row->name);
	r = charge_take(&charge, &accounts, account, row->kind, row->amount, &err);
	cr_assert_eq(r, row->fits ? 0 : STATUS_QUOTA, "%s: %d", row->name, r);
	cr_assert_eq(account->used[row->kind], row->held + (row->fits ? row->amount : 0), "%s", row->name);
	if (!row->fits)
		cr_assert(strstr(err.message, "_per_uid"), "%s: %s", row->name, err.message);

	charge_release(&charge);
	charge_release(&charge);
	charge_release(&held);
	cr_assert_eq(account->used[row->kind], 0, "%s", row->name);
	account_unref(account);
	accounts_deinit(&accounts);
}

Test(account, total_counts_all_uids)
{
	struct limits limits;
	struct accounts accounts;
	struct account *a, *b;
	struct charge first = { 0 }, second = { 0 };
	struct error err = { 0 };

	limits_init(&limits);
	limits.connections = 1;
	accounts_init(&accounts, &limits);
	a = account_ref(&accounts, 1);
	b = account_ref(&accounts, 2);
	cr_assert_neq(a, b);
	cr_assert_eq(account_ref(&accounts, 1), a);
	account_unref(a);

	cr_assert_eq(charge_take(&first, &accounts, a, CHARGE_CONNECTIONS, 1, &err), 0);
	cr_assert_eq(charge_take(&second, &accounts, b, CHARGE_CONNECTIONS, 1, &err), STATUS_QUOTA);
	cr_assert(strstr(err.message, "connections: the limit on connections for all uids together is 1"),
	          "%s", err.message);
	charge_release(&first);
	cr_assert_eq(charge_take(&second, &accounts, b, CHARGE_CONNECTIONS, 1, &err), 0);
	charge_release(&second);
	account_unref(a);
	account_unref(b);
	accounts_deinit(&accounts);
}

Test(account, a_charge_grows_and_shrinks)
{
	struct limits limits;
	struct accounts accounts;
	struct account *account;
	struct charge charge = { 0 };
	struct error err = { 0 };

	limits_init(&limits);
	accounts_init(&accounts, &limits);
	account = account_ref(&accounts, 1);
	charge_take(&charge, &accounts, account, CHARGE_QUEUED_BYTES, 100, &err);
	charge_take(&charge, &accounts, account, CHARGE_QUEUED_BYTES, 50, &err);
	charge_shrink(&charge, 30);
	cr_assert_eq(account->used[CHARGE_QUEUED_BYTES], 120);
	account_unref(account); /* the charge keeps the account */
	cr_assert_eq(accounts.total[CHARGE_QUEUED_BYTES], 120);
	charge_release(&charge);
	accounts_deinit(&accounts);
}

Test(account, root_and_the_own_uid_are_trusted_unless_told_otherwise)
{
	struct limits limits;
	struct accounts accounts;
	struct account *users[3];

	limits_init(&limits);
	accounts_init(&accounts, &limits);
	users[0] = account_ref(&accounts, 0);
	users[1] = account_ref(&accounts, geteuid());
	users[2] = account_ref(&accounts, geteuid() + 1);
	for (int is_on = 0; is_on < 2; is_on++) {
		accounts.trusts_own_uid = is_on;
		for (int i = 0; i < 3; i++)
			cr_assert_eq(account_is_trusted(&accounts, users[i]), is_on && i < 2, "%d, %d", is_on,
			             i);
	}
	for (int i = 0; i < 3; i++)
		account_unref(users[i]);
	accounts_deinit(&accounts);
}

Test(account, a_charge_moves)
{
	struct limits limits;
	struct accounts accounts;
	struct account *account;
	struct charge from = { 0 }, to = { 0 };
	struct error err;

	limits_init(&limits);
	accounts_init(&accounts, &limits);
	account = account_ref(&accounts, 7);
	cr_assert_eq(charge_take(&from, &accounts, account, CHARGE_PENDING_FDS, 3, &err), 0);
	account_unref(account);

	charge_move(&from, &to, 1);
	charge_move(&from, &to, 1);
	cr_assert(from.amount == 1 && to.amount == 2);
	cr_assert_eq(account->used[CHARGE_PENDING_FDS], 3);
	charge_release(&from);
	cr_assert_eq(account->used[CHARGE_PENDING_FDS], 2);
	charge_release(&to);
	accounts_deinit(&accounts);
}

/* ---- Cgroups ------------------------------------------------------------------------------------------ */

Test(account, a_cgroup_is_one_user_and_trusted_with_nothing)
{
	struct override section = { .kind = OVERRIDE_CGROUP, .cgroup = "/a" };
	struct overrides overrides = { .n = 2, .of[1] = { .kind = OVERRIDE_GID, .id = 5 } };
	struct account *a, *b, *nobody;
	struct accounts accounts;
	struct charge charge = { 0 };
	struct error err = { 0 };
	struct limits limits;

	section.value[LIMIT_INDEX_regions_per_uid] = 3;
	overrides.of[0] = section;
	overrides.of[1].value[LIMIT_INDEX_regions_per_uid] = 9;
	limits_init(&limits);
	accounts_init(&accounts, &limits);
	accounts.overrides = &overrides;
	accounts.trusts_own_uid = true;
	accounts.devices = 1;
	a = account_ref_cgroup(&accounts, "/a");
	b = account_ref_cgroup(&accounts, "/b");
	nobody = account_ref(&accounts, NO_UID);
	cr_assert_eq(account_ref_cgroup(&accounts, "/a"), a);
	account_unref(a);
	cr_assert(a != b && b != nobody && a->usage != b->usage && b->usage != nobody->usage);
	cr_assert(a->user != b->user && a->user > UINT32_MAX && b->user > UINT32_MAX);
	cr_assert(!account_is_trusted(&accounts, a) && a->owners[0].is_untrusted);

	account_meet(&accounts, a, &(gid_t){ 5 }, 1);
	cr_assert_eq(account_limits(&accounts, a)->regions_per_uid, 3, "a group's section is not its own");
	cr_assert_eq(charge_take(&charge, &accounts, a, CHARGE_REGIONS, 4, &err), STATUS_QUOTA);
	cr_assert_str_eq(err.message,
	                 "regions_per_uid: this cgroup's limit on regions is 3; 0 in use, 4 more requested");
	overrides.of[0].value[LIMIT_INDEX_regions_per_uid] = 4;
	accounts_refresh(&accounts, &overrides);
	cr_assert_eq(charge_take(&charge, &accounts, a, CHARGE_REGIONS, 4, &err), 0);
	charge_release(&charge);
	account_unref(a);
	account_unref(b);
	account_unref(nobody);
	accounts_deinit(&accounts);
}

struct cgroup_row {
	char path[200], section[32]; /* "": there is none */
};

ParameterizedTestParameters(account, the_longest_section_covers_a_path)
{
	static struct cgroup_row rows[] = {
		{ "/", "" },
		{ "/a", "/a" },
		{ "/ab", "" },
		{ "/a/b", "/a" },
		{ "/a/b/c", "/a/b/c" },
		{ "/a/b/cd", "/a" },
		{ "/a/b/c/d", "/a/b/c" },
		{ "/b/a", "" },
		{ "/../a", "" },
	};

	return cr_make_param_array(struct cgroup_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct cgroup_row *row, account, the_longest_section_covers_a_path)
{
	struct overrides overrides = { .n = 3,
		                       .of = { { .kind = OVERRIDE_CGROUP, .cgroup = "/a/b/c" },
		                               { .kind = OVERRIDE_CGROUP, .cgroup = "/a" },
		                               { .kind = OVERRIDE_UID, .id = 0 } } };
	const char *found = overrides_find_cgroup(&overrides, row->path);

	cr_assert_str_eq(found ? found : "", row->section, "%s", row->path);
	overrides.of[2] = (struct override){ .kind = OVERRIDE_CGROUP, .cgroup = "/" };
	found = overrides_find_cgroup(&overrides, row->path);
	cr_assert_str_eq(found, *row->section ? row->section : "/", "%s", row->path);
}
