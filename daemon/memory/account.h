/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts say what each user holds of the service, and which limits apply to it.
 *
 * Everything that a client can make the service hold is charged to the user of its connection before it is
 * taken. A user is a uid, together with the uids that are subordinate to it (overrides.h), or a cgroup that
 * has a section of limits (overrides.h), whatever the uids of its processes. The charge is a field of the
 * object that holds the thing, and the object's destructor releases it. An account lives while anything is
 * charged to it or a session refers to it. All of this belongs to the loop's thread.
 */
#ifndef DAEMON_MEMORY_ACCOUNT_H
#define DAEMON_MEMORY_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/config/limits.h"
#include "daemon/config/overrides.h"
#include "daemon/loop/log.h"
#include "kernels/engine.h"
#include "proto/status.h"
#include "chore.h"
#include "metrics.h"

struct chore_thread;
struct connection;
struct lingering;
struct relay;
struct session;

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

TAILQ_HEAD(session_queue, session);

struct account {
	LIST_ENTRY(account) entry;
	uid_t uid; /* the user's; its processes may have subordinate uids, which are trusted with less */
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* the user's, if it is a cgroup: uid is NO_UID; otherwise "" */
	uint64_t user;                      /* tells it from all other users, also after a restart */
	uint32_t refs;
	uint64_t used[CHARGE_KIND_COUNT];
	TAILQ_ENTRY(account) ready_entry; /* in time_slices->ready */
	struct session_queue ready;       /* sessions that go on in its next time slice, oldest first */
	uint64_t slice_iteration;         /* iteration of the loop in which the slice began */
	uint64_t slice_end_ns;            /* end of the slice, by clock->now_ns */
	uint32_t slice_acts;              /* acts since the slice began; counted in long slices only */
	bool slice_is_long;
	struct chore_queue chores[CHORE_KIND_COUNT]; /* chores that wait for a thread, in order */
	bool is_stuck; /* a thread that belongs to the account does not come back (struct stalls) */
	struct chore_thread *chore_threads[CHORE_THREADS]; /* NULL: not started */
	LIST_HEAD(, relay) relays;                         /* relays of its rings; relay.c */
	uint64_t closing;                                  /* descriptors that are not closed yet; chore.c */
	struct session_queue waiting;   /* sessions whose next request waits for CHARGE_JOBS, oldest first */
	LIST_HEAD(, connection) unread; /* connections whose peers have descriptors to receive; reply.c */
	LIST_HEAD(, lingering) lingering; /* sockets of such sessions that have ended */
	uint64_t checked_ms;              /* when a check last found nothing received (service_now_ms) */
	struct usage *usage;              /* the user's usage, which outlives the account */
	uint64_t overrides;               /* the set of overrides that apply to it (overrides.h) */
	struct limits own;                /* its limits if overrides apply; otherwise accounts->limits hold */
	uint32_t n_owners;                /* one for each device */
	struct engine_owner
	    owners[]; /* the sessions' streams belong to these: a user has one share of each engine's time */
};

/* The kernel gives this uid to no process. */
#define NO_UID ((uid_t)-1)

struct accounts {
	LIST_HEAD(, account) list;
	const struct limits *limits;
	const struct overrides *overrides; /* NULL: none */
	const struct subuids *subuids;     /* NULL: none */
	uint64_t total[CHARGE_KIND_COUNT];
	uint32_t devices;    /* number of devices; set before there are accounts */
	bool trusts_own_uid; /* root and the service's own uid are trusted; set before there are accounts */
	struct usages usages;
};

/* A zero-initialised charge is empty. */
struct charge {
	struct accounts *accounts;
	struct account *account;
	enum charge_kind kind;
	uint64_t amount;
};

/* A request is charged this for its transforms: as jobs_per_uid, and as behind_waits_per_uid too if it waits
 * for a timeline, or is queued behind a job that does. */
struct transforms_charge {
	struct charge jobs;
	struct charge behind;
	bool is_behind;
};

void accounts_init(struct accounts *accounts, const struct limits *limits);

/* Asserts that every charge has been released. */
void accounts_deinit(struct accounts *accounts);

/* Applies changed limits and other overrides (NULL: none). Afterwards the caller
 * has every connection meet the groups of its process again (account_meet). */
void accounts_refresh(struct accounts *accounts, const struct overrides *overrides);

/* Applies the overrides of these groups for as long as the account lives, because a process of theirs has
 * connected. The account of a cgroup has only its own overrides. */
void account_meet(struct accounts *accounts, struct account *account, const gid_t *groups, size_t n);

/* Tells whether the user can end the service in other ways, and is therefore exempt from what guards against
 * malice: root, and the service's own user. A cgroup may have processes of anybody, so it never is. */
bool account_is_trusted(const struct accounts *accounts, const struct account *account);

/* Returns the subject of log lines about the user. */
struct log_about account_about(const struct account *account);

/* Returns the limits that apply to the user. A limit that is not per uid is the same for all. */
const struct limits *account_limits(const struct accounts *accounts, const struct account *account);

/* Returns the account of the user that a process of this uid is charged to, creating it if necessary, with a
 * reference for the caller, or NULL if out of memory. A uid that has limits of its own is a user of its own.
 */
struct account *account_of_peer(struct accounts *accounts, uid_t uid);

/* These do the same for a user: a uid, or a cgroup that has a section of limits. */
struct account *account_ref(struct accounts *accounts, uid_t uid);
struct account *account_ref_cgroup(struct accounts *accounts, const char *cgroup);
void account_unref(struct account *account);

/* Adds amount to a charge, which is empty or already has this account and kind. Returns QUOTA, and takes
 * nothing, if that would exceed the limit of the uid or of all uids together. */
int charge_take(struct charge *charge, struct accounts *accounts, struct account *account,
                enum charge_kind kind, uint64_t amount, struct error *err);

/* Adds amount to a charge that is not empty, even past the limits. For what belongs to a request for which
 * there was room, and is bounded; other requests have to wait until enough has been released. */
void charge_extend(struct charge *charge, uint64_t amount);

/* Tells whether charge_take would succeed. */
bool charge_fits(const struct accounts *accounts, const struct account *account, enum charge_kind kind,
                 uint64_t amount);

/* Moves part of a charge to another one, which is empty or has the same account and kind. */
void charge_move(struct charge *from, struct charge *to, uint64_t amount);

/* Releases part of a charge, or all of it. An empty charge is allowed. */
void charge_shrink(struct charge *charge, uint64_t amount);
void charge_release(struct charge *charge);

/* Charges for the first transform of a request. Returns 0, or QUOTA with nothing charged. */
int transforms_charge_take(struct transforms_charge *charge, struct accounts *accounts,
                           struct account *account, bool is_behind, struct error *err);

/* Charges for more transforms. Returns 0, or QUOTA with nothing more charged; transforms_charge_extend
 * charges even past the limits. */
int transforms_charge_add(struct transforms_charge *charge, uint64_t more, struct error *err);
void transforms_charge_extend(struct transforms_charge *charge, uint64_t more);

/* Gives back what was charged for so many transforms, or for all of them. */
void transforms_charge_shrink(struct transforms_charge *charge, uint64_t less);
void transforms_charge_release(struct transforms_charge *charge);

/* Limits by cgroup (overrides.h) need the cgroup of the process at the other end of a connection.
 *
 * /proc/PID/cgroup names it. A pid may be another process's by the time it is read, so a pidfd that the
 * kernel makes for the peer (SO_PEERPIDFD) has to say afterwards that the process is still there. A peer that
 * has ended is an error: otherwise processes could leave their cgroup's account by having a child connect for
 * them.
 */

struct peer_cgroup {
	char path[OVERRIDE_CGROUP_BYTES + 1]; /* its beginning, if it is longer than any section's */
	const char
	    *unknown; /* why this machine does not say, which no client can bring about; NULL: it does */
};

/* Finds the cgroup of the peer, whose pid is the one that the socket reports. Does not wait. Returns
 * PERMISSION if the peer has ended, or its path is too long for the kernel, and NO_MEMORY if descriptors or
 * memory are short. */
int peer_cgroup_find(int sock, pid_t pid, struct peer_cgroup *ret, struct error *err);

#endif
