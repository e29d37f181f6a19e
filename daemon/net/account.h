/* SPDX-License-Identifier: Apache-2.0 */
/* What each user holds of the service, and the limits on it.
 *
 * Everything that a client can make the service hold is charged to the user of its connection before it is
 * taken. A user is a uid, together with the uids that are subordinate to it (subuids.h), or a cgroup that has
 * a section of limits (overrides.h), whatever the uids of its processes. The charge is a field of the object
 * that holds the thing, and the object's destructor releases it. An account lives while anything is charged
 * to it or a session refers to it. All of this belongs to the loop's thread.
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
#include "daemon/config/subuids.h"
#include "daemon/observe/log.h"
#include "daemon/resource/chore.h"
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
	CHARGE_PLAN_BYTES,
	CHARGE_TABLE_BYTES,
	CHARGE_KIND_COUNT
};

struct lingering;
struct relay;
struct session;
TAILQ_HEAD(session_queue, session);
struct chore_thread;

struct account {
	LIST_ENTRY(account) entry;
	uid_t uid; /* the user's; that of a process may be a subordinate one, which is trusted with less */
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* the user's, if it is a cgroup: uid is NO_UID; otherwise "" */
	uint64_t user;                      /* tells it from all other users, also after a restart */
	uint32_t refs;
	uint64_t used[CHARGE_KIND_COUNT];
	TAILQ_ENTRY(account) ready_entry; /* in time_slices->ready */
	struct session_queue ready;       /* sessions that go on in its next time slice, oldest first */
	uint64_t slice_iteration;         /* of the loop, in which the slice began */
	uint64_t slice_end_ns;            /* clock->now_ns */
	uint32_t slice_acts;              /* of the slice */
	bool slice_is_long;
	struct chore_queue chores[CHORE_KIND_COUNT]; /* that wait for a thread, in the order of their turns */
	bool is_stuck; /* a thread that belongs to the account does not come back (stalls.h) */
	struct chore_thread *chore_threads[CHORE_THREADS]; /* NULL: not started */
	LIST_HEAD(, relay) relays;                         /* of its rings; relay.c */
	uint64_t closing;             /* descriptors that are not closed yet; async_close.c */
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

/* The kernel gives it to no process. */
#define NO_UID ((uid_t)-1)

struct accounts {
	LIST_HEAD(, account) list;
	const struct limits *limits;
	const struct overrides *overrides; /* NULL: none */
	const struct subuids *subuids;     /* NULL: none */
	uint64_t total[CHARGE_KIND_COUNT];
	uint32_t devices;    /* whose engines have owners; set before there are accounts */
	bool trusts_own_uid; /* root and the service's own uid are trusted; set likewise */
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
 * A cgroup has only its own. */
void account_meet(struct accounts *accounts, struct account *account, const gid_t *groups, size_t n);

/* Whether the user can end the service in other ways, and is therefore exempt from what guards against
 * malice: root, and the service's own user. A cgroup may have processes of anybody, so it never is. */
bool account_is_trusted(const struct accounts *accounts, const struct account *account);

/* For log lines about the user. */
struct log_about account_about(const struct account *account);

/* The limits that apply to the user; a limit that is not per uid is the same for all. */
const struct limits *account_limits(const struct accounts *accounts, const struct account *account);

/* Returns the account of the user that a process of this uid is charged to, creating it if necessary, with a
 * reference for the caller; NULL: out of memory. A uid that has limits of its own is a user of its own. */
struct account *account_of_peer(struct accounts *accounts, uid_t uid);

/* The same for a user: a uid, or a cgroup that has a section. */
struct account *account_ref(struct accounts *accounts, uid_t uid);
struct account *account_ref_cgroup(struct accounts *accounts, const char *cgroup);
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
