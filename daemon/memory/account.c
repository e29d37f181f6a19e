/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts and charges, and the cgroup of a peer. There is one account for each connected user; these are
 * few, so a linked list is enough. */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* For each kind of charge: its noun in error messages, the LIMIT_INDEX_* of the limit for a user, and that of
 * the limit for all users together, or -1 if there is none. */
static const struct {
	const char *noun;
	int limit;
	int total;
} kinds[CHARGE_KIND_COUNT] = {
	[CHARGE_CONNECTIONS] = { "connections", LIMIT_INDEX_connections_per_uid, LIMIT_INDEX_connections },
	[CHARGE_REGIONS] = { "regions", LIMIT_INDEX_regions_per_uid, -1 },
	[CHARGE_POOL_REGIONS] = { "regions in memory of pools", LIMIT_INDEX_pool_regions_per_uid, -1 },
	[CHARGE_REGION_FDS] = { "descriptors kept for regions", LIMIT_INDEX_region_fds_per_uid, -1 },
	[CHARGE_MAPPED_BYTES] = { "mapped bytes", LIMIT_INDEX_mapped_bytes_per_uid, -1 },
	[CHARGE_CREATED_BYTES] = { "bytes made by the service", LIMIT_INDEX_created_bytes_per_uid, -1 },
	[CHARGE_JOBS] = { "transforms", LIMIT_INDEX_jobs_per_uid, -1 },
	[CHARGE_BEHIND_WAITS] = { "transforms that wait for timelines", LIMIT_INDEX_behind_waits_per_uid,
	                          -1 },
	[CHARGE_LIST_BYTES] = { "bytes of lists and of plans being made", LIMIT_INDEX_list_bytes_per_uid,
	                        -1 },
	[CHARGE_INPUT_BYTES] = { "bytes of requests not yet handled", LIMIT_INDEX_input_bytes_per_uid, -1 },
	[CHARGE_QUEUED_BYTES] = { "bytes of unread replies", LIMIT_INDEX_queued_bytes_per_uid, -1 },
	[CHARGE_PENDING_FDS] = { "pending file descriptors", LIMIT_INDEX_pending_fds_per_uid, -1 },
	[CHARGE_OUTGOING_FDS] = { "descriptors made and not yet received", LIMIT_INDEX_outgoing_fds_per_uid,
	                          -1 },
	[CHARGE_PLANS] = { "plans", LIMIT_INDEX_plans_per_uid, -1 },
	[CHARGE_PLAN_BYTES] = { "bytes of plans", LIMIT_INDEX_plan_bytes_per_uid, -1 },
	[CHARGE_TABLE_BYTES] = { "bytes of tables", LIMIT_INDEX_table_bytes_per_uid, -1 },
};

static void apply_overrides(struct accounts *accounts, struct account *account, uint64_t set);

void accounts_init(struct accounts *accounts, const struct limits *limits)
{
	*accounts = (struct accounts){ .limits = limits };
	LIST_INIT(&accounts->list);
}

void accounts_deinit(struct accounts *accounts)
{
	assert(LIST_EMPTY(&accounts->list));
	for (int i = 0; i < CHARGE_KIND_COUNT; i++)
		assert(accounts->total[i] == 0);
	usages_deinit(&accounts->usages);
}

/* Returns the number that identifies a user: its uid, or for a cgroup a hash of its path (FNV-1a) with the
 * top bit set, which makes it greater than every uid. */
static uint64_t user_of(uid_t uid, const char *cgroup)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	if (!*cgroup)
		return uid;
	for (; *cgroup; cgroup++)
		hash = (hash ^ (unsigned char)*cgroup) * UINT64_C(0x100000001b3);
	return hash | UINT64_C(1) << 63;
}

/* Returns the overrides that apply to every process of the user. */
static uint64_t overrides_of(const struct overrides *overrides, const struct account *account)
{
	return *account->cgroup ? overrides_of_cgroup(overrides, account->cgroup)
	                        : overrides_of_uid(overrides, account->uid);
}

static struct account *find_or_new(struct accounts *accounts, uid_t uid, const char *cgroup)
{
	struct account *account;

	LIST_FOREACH(account, &accounts->list, entry)
		if (account->uid == uid && !strcmp(account->cgroup, cgroup)) {
			account->refs++;
			return account;
		}

	account = calloc(1, sizeof *account + accounts->devices * sizeof account->owners[0]);
	if (!account)
		return NULL;
	account->usage = usages_of(&accounts->usages, uid, cgroup);
	if (!account->usage) {
		free(account);
		return NULL;
	}
	account->uid = uid;
	snprintf(account->cgroup, sizeof account->cgroup, "%s", cgroup);
	account->user = user_of(uid, cgroup);
	account->refs = 1;
	account->n_owners = accounts->devices;
	for (uint32_t i = 0; i < account->n_owners; i++) {
		engine_owner_init(&account->owners[i]);
		account->owners[i].is_untrusted = !account_is_trusted(accounts, account);
	}
	TAILQ_INIT(&account->ready);
	TAILQ_INIT(&account->waiting);
	for (int i = 0; i < CHORE_KIND_COUNT; i++)
		TAILQ_INIT(&account->chores[i]);
	LIST_INIT(&account->relays);
	LIST_INIT(&account->unread);
	LIST_INIT(&account->lingering);
	apply_overrides(accounts, account, overrides_of(accounts->overrides, account));
	LIST_INSERT_HEAD(&accounts->list, account, entry);
	return account;
}

struct account *account_ref(struct accounts *accounts, uid_t uid)
{
	return find_or_new(accounts, uid, "");
}

struct account *account_ref_cgroup(struct accounts *accounts, const char *cgroup)
{
	return find_or_new(accounts, NO_UID, cgroup);
}

static bool is_trusted_uid(const struct accounts *accounts, uid_t uid)
{
	return accounts->trusts_own_uid && (uid == 0 || uid == geteuid());
}

bool account_is_trusted(const struct accounts *accounts, const struct account *account)
{
	return is_trusted_uid(accounts, account->uid);
}

/* Subordinate uids of a trusted user are not trusted themselves: they share the account of the first uid of
 * their range, or if that uid is trusted as well, each has an account of its own. */
struct account *account_of_peer(struct accounts *accounts, uid_t uid)
{
	uid_t user = uid;

	if (!overrides_of_uid(accounts->overrides, uid))
		user = subuids_user(accounts->subuids, uid);
	if (user != uid && is_trusted_uid(accounts, user))
		user = subuids_first(accounts->subuids, uid);
	if (user != uid && is_trusted_uid(accounts, user))
		user = uid;
	return account_ref(accounts, user);
}

struct log_about account_about(const struct account *account)
{
	const bool is_cgroup = *account->cgroup != '\0';

	return (struct log_about){ .has_uid = !is_cgroup, .uid = account->uid, .cgroup = account->cgroup };
}

void account_unref(struct account *account)
{
	if (!account || --account->refs > 0)
		return;

	for (int i = 0; i < CHARGE_KIND_COUNT; i++)
		assert(account->used[i] == 0);
	for (uint32_t i = 0; i < account->n_owners; i++)
		engine_owner_deinit(&account->owners[i]);
	LIST_REMOVE(account, entry);
	free(account);
}

/* ---- Limits ------------------------------------------------------------------------------------------- */

static void apply_overrides(struct accounts *accounts, struct account *account, uint64_t set)
{
	account->overrides = set;
	account->own = *accounts->limits;
	if (set)
		overrides_apply(accounts->overrides, set, &account->own);
}

void accounts_refresh(struct accounts *accounts, const struct overrides *overrides)
{
	struct account *account;

	accounts->overrides = overrides;
	LIST_FOREACH(account, &accounts->list, entry)
		apply_overrides(accounts, account, overrides_of(overrides, account));
}

void account_meet(struct accounts *accounts, struct account *account, const gid_t *groups, size_t n)
{
	uint64_t set = account->overrides;

	if (!*account->cgroup)
		set |= overrides_of_groups(accounts->overrides, groups, n);
	if (set != account->overrides)
		apply_overrides(accounts, account, set);
}

const struct limits *account_limits(const struct accounts *accounts, const struct account *account)
{
	return account->overrides ? &account->own : accounts->limits;
}

static uint64_t limit_of(const struct limits *limits, int index)
{
	return index < 0 ? UINT64_MAX : *limits_at((struct limits *)limits, index);
}

static bool fits(uint64_t used, uint64_t amount, uint64_t limit)
{
	return used <= limit && amount <= limit - used;
}

bool charge_fits(const struct accounts *accounts, const struct account *account, enum charge_kind kind,
                 uint64_t amount)
{
	return fits(account->used[kind], amount,
	            limit_of(account_limits(accounts, account), kinds[kind].limit)) &&
	       fits(accounts->total[kind], amount, limit_of(accounts->limits, kinds[kind].total));
}

/* Returns 0, or QUOTA with a message that names the limit. If the user's limit is not below the limit for all
 * users, the message names the latter. */
static int check(const struct accounts *accounts, const struct account *account, enum charge_kind kind,
                 uint64_t amount, struct error *err)
{
	uint64_t limit = limit_of(account_limits(accounts, account), kinds[kind].limit);
	uint64_t total = limit_of(accounts->limits, kinds[kind].total);

	if (limit < total && !fits(account->used[kind], amount, limit))
		return error_set(err, STATUS_QUOTA,
		                 "%s: this %s's limit on %s is %" PRIu64 "; %" PRIu64 " in use, %" PRIu64
		                 " more requested",
		                 limit_infos[kinds[kind].limit].name, *account->cgroup ? "cgroup" : "uid",
		                 kinds[kind].noun, limit, account->used[kind], amount);
	if (!fits(accounts->total[kind], amount, total))
		return error_set(err, STATUS_QUOTA, "%s: the limit on %s for all uids together is %" PRIu64,
		                 limit_infos[kinds[kind].total].name, kinds[kind].noun, total);
	return 0;
}

int charge_take(struct charge *charge, struct accounts *accounts, struct account *account,
                enum charge_kind kind, uint64_t amount, struct error *err)
{
	int r = check(accounts, account, kind, amount, err);

	assert(!charge->account || (charge->account == account && charge->kind == kind));

	if (r < 0)
		return r;
	if (!charge->account) {
		*charge = (struct charge){ accounts, account, kind, 0 };
		account->refs++;
	}
	charge_extend(charge, amount);
	return 0;
}

void charge_extend(struct charge *charge, uint64_t amount)
{
	assert(charge->account);

	charge->amount += amount;
	charge->account->used[charge->kind] += amount;
	charge->accounts->total[charge->kind] += amount;
}

void charge_move(struct charge *from, struct charge *to, uint64_t amount)
{
	assert(amount <= from->amount);
	assert(!to->account || (to->account == from->account && to->kind == from->kind));

	if (!to->account) {
		*to = (struct charge){ from->accounts, from->account, from->kind, 0 };
		to->account->refs++;
	}
	from->amount -= amount;
	to->amount += amount;
}

void charge_shrink(struct charge *charge, uint64_t amount)
{
	if (!charge->account)
		return;

	assert(amount <= charge->amount);
	charge->amount -= amount;
	charge->account->used[charge->kind] -= amount;
	charge->accounts->total[charge->kind] -= amount;
}

void charge_release(struct charge *charge)
{
	if (!charge->account)
		return;

	charge_shrink(charge, charge->amount);
	account_unref(charge->account);
	*charge = (struct charge){ 0 };
}

/* ---- Of transforms ------------------------------------------------------------------------------------ */

int transforms_charge_take(struct transforms_charge *charge, struct accounts *accounts,
                           struct account *account, bool is_behind, struct error *err)
{
	int r = charge_take(&charge->jobs, accounts, account, CHARGE_JOBS, 1, err);

	charge->is_behind = is_behind;
	if (r < 0 || !is_behind)
		return r;
	r = charge_take(&charge->behind, accounts, account, CHARGE_BEHIND_WAITS, 1, err);
	if (r < 0)
		charge_release(&charge->jobs);
	return r;
}

int transforms_charge_add(struct transforms_charge *charge, uint64_t more, struct error *err)
{
	struct accounts *accounts = charge->jobs.accounts;
	struct account *account = charge->jobs.account;
	int r = charge_take(&charge->jobs, accounts, account, CHARGE_JOBS, more, err);

	if (r < 0 || !charge->is_behind)
		return r;
	r = charge_take(&charge->behind, accounts, account, CHARGE_BEHIND_WAITS, more, err);
	if (r < 0)
		charge_shrink(&charge->jobs, more);
	return r;
}

void transforms_charge_extend(struct transforms_charge *charge, uint64_t more)
{
	charge_extend(&charge->jobs, more);
	if (charge->is_behind)
		charge_extend(&charge->behind, more);
}

void transforms_charge_shrink(struct transforms_charge *charge, uint64_t less)
{
	charge_shrink(&charge->jobs, less);
	if (charge->is_behind)
		charge_shrink(&charge->behind, less);
}

void transforms_charge_release(struct transforms_charge *charge)
{
	charge_release(&charge->jobs);
	charge_release(&charge->behind);
}

/* ==== The cgroup of a peer =========================================================================== */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define UNIFIED "0::" /* prefix of the line for cgroups of version 2 */

static int refuse_peer(int number, struct error *err)
{
	if (number == EMFILE || number == ENFILE || number == ENOMEM || number == ENOBUFS)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the cgroup of the process that connected cannot be read: %s",
		                 strerror(number));
	return error_set(err, STATUS_PERMISSION, "the cgroup of the process that connected is not known: %s",
	                 strerror(number));
}

static int read_path(FILE *file, struct peer_cgroup *ret, struct error *err)
{
	char *line = NULL;
	size_t room = 0;
	int r = 0;

	ret->unknown = "there are no cgroups of version 2";
	while (ret->unknown && getline(&line, &room, file) > 0)
		if (!strncmp(line, UNIFIED, strlen(UNIFIED))) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(ret->path, sizeof ret->path, "%s", line + strlen(UNIFIED));
			ret->unknown = NULL;
		}
	if (ret->unknown && !feof(file)) /* reading failed, for example with ENAMETOOLONG */
		r = refuse_peer(errno, err);
	free(line);
	return r;
}

static int find_path(pid_t pid, struct peer_cgroup *ret, struct error *err)
{
	char name[32];
	FILE *file;
	int r;

	snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
	file = fopen(name, "re");
	if (!file && (errno == ENOENT || errno == EACCES || errno == EPERM)) {
		ret->unknown = "/proc hides processes of other users (ProtectProc= of the unit)";
		return 0;
	}
	if (!file)
		return refuse_peer(errno, err);
	r = read_path(file, ret, err);
	fclose(file);
	return r;
}

int peer_cgroup_find(int sock, pid_t pid, struct peer_cgroup *ret, struct error *err)
{
	struct pollfd process = { .events = POLLIN };
	socklen_t len = sizeof process.fd;
	int r;

	*ret = (struct peer_cgroup){ 0 };
	if (pid == 0) {
		ret->unknown = "the process is in another PID namespace";
	} else if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &process.fd, &len) < 0) {
		if (errno != ENOPROTOOPT)
			return refuse_peer(errno == EINVAL || errno == ENODATA ? ESRCH : errno, err);
		ret->unknown = "the kernel is older than 6.5 (SO_PEERPIDFD)";
	}
	if (ret->unknown)
		return 0;
	r = find_path(pid, ret, err);
	if (poll(&process, 1, 0) != 0) /* the process has ended */
		r = refuse_peer(ESRCH, err);
	close(process.fd);
	return r;
}
