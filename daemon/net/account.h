/* SPDX-License-Identifier: Apache-2.0 */
/* What each user holds of the service, and the limits on it.
 *
 * Everything that a client can make the service hold is charged to the uid of its connection before it is
 * taken. The charge is a field of the object that holds the thing, and the object's destructor releases it.
 * An account lives while anything is charged to it or a session refers to it. All of this belongs to the
 * loop's thread.
 */
#ifndef DAEMON_NET_ACCOUNT_H
#define DAEMON_NET_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "kernels/engine.h"
#include "daemon/config/limits.h"
#include "daemon/config/overrides.h"
#include "proto/status.h"
#include "daemon/observe/usage.h"

enum charge_kind {
	CHARGE_CONNECTIONS,
	CHARGE_REGIONS,
	CHARGE_POOL_REGIONS,
	CHARGE_REGION_FDS,
	CHARGE_MAPPED_BYTES,
	CHARGE_CREATED_BYTES,
	CHARGE_JOBS,
	CHARGE_BEHIND_WAITS,
	CHARGE_LIST_BYTES,
	CHARGE_INPUT_BYTES,
	CHARGE_QUEUED_BYTES,
	CHARGE_PENDING_FDS,
	CHARGE_OUTGOING_FDS,
	CHARGE_PLANS,
	CHARGE_TABLE_BYTES,
	CHARGE_KIND_COUNT
};

struct async_close_queue;
struct lingering;
struct session;
TAILQ_HEAD(session_queue, session);
struct chore;
TAILQ_HEAD(chore_queue, chore);

struct account {
	LIST_ENTRY(account) entry;
	uid_t uid;
	uint32_t refs;
	uint64_t used[CHARGE_KIND_COUNT];
	TAILQ_ENTRY(account) ready_entry; /* in time_slices->ready */
	struct session_queue ready;       /* sessions that go on in its next time slice, oldest first */
	uint64_t slice_iteration;         /* of the loop, in which the slice began */
	uint64_t slice_end_ns;            /* clock->now_ns */
	uint32_t slice_acts;              /* of the slice */
	bool slice_is_long;
	struct chore_queue chores;         /* not under way, in the order in which they begin or go on */
	TAILQ_ENTRY(account) chores_entry; /* in chores->waiting, while it has some of those */
	uint32_t chores_under_way;
	struct async_close_queue *async_close; /* NULL: no descriptor of the account is being closed */
	struct session_queue waiting; /* sessions whose next request waits for CHARGE_JOBS, oldest first */
	LIST_HEAD(, session) unread;  /* sessions whose peers have descriptors to receive; outgoing.c */
	LIST_HEAD(, lingering) lingering; /* sockets of such sessions that have ended */
	uint64_t checked_ms;              /* when a check last found nothing received (server_now_ms) */
	struct usage *usage;              /* of the uid; stays when the account goes */
	uint64_t overrides;               /* that apply to it (overrides.h) */
	struct limits own;                /* its limits if overrides apply; otherwise accounts->limits hold */
	uint32_t n_owners;                /* one for each device */
	struct engine_owner
	    owners[]; /* of the sessions' streams: a uid has one share of each engine's time */
};

struct accounts {
	LIST_HEAD(, account) list;
	const struct limits *limits;
	const struct overrides *overrides; /* NULL: none */
	uint64_t total[CHARGE_KIND_COUNT];
	uint32_t devices; /* whose engines have owners; set before there are accounts */
	struct usages usages;
};

/* Zero-initialised: nothing is charged. */
struct charge {
	struct accounts *accounts;
	struct account *account;
	enum charge_kind kind;
	uint64_t amount;
};

void accounts_init(struct accounts *accounts, const struct limits *limits);

/* Asserts that every charge has been released. */
void accounts_deinit(struct accounts *accounts);

/* Applies changed limits and other overrides (NULL: none). Accounts meet the groups of their processes again
 * after it (account_meet). */
void accounts_refresh(struct accounts *accounts, const struct overrides *overrides);

/* A process of this uid and these groups has connected: the groups' overrides apply while the account lives.
 */
void account_meet(struct accounts *accounts, struct account *account, const gid_t *groups, size_t n);

/* The limits that apply to the uid; a limit that is not per uid is the same for all. */
const struct limits *account_limits(const struct accounts *accounts, const struct account *account);

/* Returns the uid's account, creating it if necessary, with a reference for the caller; NULL: out of memory.
 */
struct account *account_ref(struct accounts *accounts, uid_t uid);
void account_unref(struct account *account);

/* Adds amount to a charge, which is empty or already has this account and kind. Returns QUOTA, and takes
 * nothing, if that would exceed the limit of the uid or of all uids together. */
int charge_take(struct charge *charge, struct accounts *accounts, struct account *account,
                enum charge_kind kind, uint64_t amount, struct error *err);

/* Adds amount to a charge that is not empty, also past the limits: what belongs to a request for which there
 * was room, and is bounded. Others have to wait until enough has been released. */
void charge_extend(struct charge *charge, uint64_t amount);

/* Whether charge_take would succeed. */
bool charge_fits(const struct accounts *accounts, const struct account *account, enum charge_kind kind,
                 uint64_t amount);

/* Moves part of a charge to another one, which is empty or has the same account and kind. */
void charge_move(struct charge *from, struct charge *to, uint64_t amount);

/* Releases part of a charge, or all of it. An empty charge is allowed. */
void charge_shrink(struct charge *charge, uint64_t amount);
void charge_release(struct charge *charge);

#endif
