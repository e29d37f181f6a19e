/* SPDX-License-Identifier: Apache-2.0 */
/* An account records how much of the service's resources one user holds, and which limits apply to that user.
 *
 * Whatever a client makes the service hold is charged to the user of its connection before it is allocated. A
 * user is a uid together with its subordinate uids (overrides.h), or a cgroup that has a section of limits in
 * tmad.conf (overrides.h), regardless of the uids of its processes. The charge is a field of the object that
 * holds the resource, and the object's destructor releases it. An account is freed when nothing is charged to
 * it and no session refers to it. Only the loop's thread may use accounts.
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

/* Each kind of resource has a counter in every account and a limit (the table `kinds` in account.c). */
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
	/* The user's uid, or NO_UID if the user is a cgroup. Its processes may also run as subordinate uids,
	 * which are trusted with less. */
	uid_t uid;
	char cgroup[OVERRIDE_CGROUP_BYTES]; /* path of the cgroup if the user is one; otherwise "" */
	uint64_t user;                      /* number that identifies the user, also across restarts */
	uint32_t refs;                      /* number of references; the account is freed at 0 */
	uint64_t used[CHARGE_KIND_COUNT];   /* sum of the user's charges of each kind */
	TAILQ_ENTRY(account) ready_entry;   /* in time_slices->ready */
	struct session_queue ready; /* sessions that continue in the user's next time slice, oldest first */
	uint64_t slice_iteration;   /* number of the loop iteration in which the slice began */
	uint64_t slice_end_ns;      /* time at which the slice ends (clock->now_ns) */
	uint32_t slice_acts;        /* calls of time_slice_is_over in a long slice since it began */
	bool slice_is_long;         /* no other user has sent requests lately */
	struct chore_queue chores[CHORE_KIND_COUNT]; /* chores that wait for a thread, in FIFO order */
	/* A thread of the account had not returned from the user's memory when the watch last looked (struct
	 * stalls). */
	bool is_stuck;
	struct chore_thread *chore_threads[CHORE_THREADS]; /* NULL: not running */
	LIST_HEAD(, relay) relays;                         /* relay threads of the user's rings; relay.c */
	uint64_t closing;                                  /* descriptors that wait to be closed; chore.c */
	struct session_queue waiting;     /* sessions that wait for CHARGE_JOBS, oldest first */
	LIST_HEAD(, connection) unread;   /* connections whose peers have descriptors to receive; reply.c */
	LIST_HEAD(, lingering) lingering; /* sockets of ended sessions with unreceived descriptors; reply.c */
	uint64_t checked_ms; /* time at which a check last found nothing received (service_now_ms) */
	struct usage *usage; /* counters of the user; they outlive the account */
	uint64_t overrides;  /* set of the overrides that apply, one bit each (overrides.h) */
	struct limits own;   /* limits of the user; used only if overrides apply */
	uint32_t n_owners;   /* number of owners, one for each device */
	/* Each device's streams of all sessions of the user belong to one owner, so that the user gets one
	 * share of that engine's time. */
	struct engine_owner owners[];
};

/* No process has this uid. */
#define NO_UID ((uid_t)-1)

struct accounts {
	LIST_HEAD(, account) list;
	const struct limits *limits;       /* limits of users without overrides; borrowed */
	const struct overrides *overrides; /* NULL: there are none; borrowed */
	const struct subuids *subuids;     /* NULL: there are none; borrowed */
	uint64_t total[CHARGE_KIND_COUNT]; /* sums of `used` over all accounts */
	uint32_t devices;                  /* number of devices; set before the first account is made */
	/* Root and the service's own uid are trusted; set before the first account is made. */
	bool trusts_own_uid;
	struct usages usages;
};

/* An amount of one kind that is counted in an account and in the totals. A charge that is not empty holds a
 * reference to its account. A zeroed charge is empty. */
struct charge {
	struct accounts *accounts;
	struct account *account;
	enum charge_kind kind;
	uint64_t amount;
};

/* The charge for the transforms of one request. All of them count towards jobs_per_uid. If the request waits
 * for a timeline, or is queued behind a job that does (is_behind), they count towards behind_waits_per_uid as
 * well. */
struct transforms_charge {
	struct charge jobs;
	struct charge behind;
	bool is_behind;
};

/* limits is borrowed and must outlive accounts. */
void accounts_init(struct accounts *accounts, const struct limits *limits);

/* Every reference must have been dropped and every charge released. */
void accounts_deinit(struct accounts *accounts);

/* Applies new values of *accounts->limits and replaces the overrides (NULL: there are none). This forgets the
 * overrides of groups, so the caller must call account_meet again for every connection. */
void accounts_refresh(struct accounts *accounts, const struct overrides *overrides);

/* Applies the overrides of the groups of a process that has connected; they last until the account is freed
 * or accounts_refresh is called. Does nothing for the account of a cgroup: only its own section applies to
 * it. */
void account_meet(struct accounts *accounts, struct account *account, const gid_t *groups, size_t n);

/* Returns whether the user is root or the service's own user, unless trusts_own_uid is off. Such a user can
 * end the service anyway, so it is exempt from the measures against malicious clients. A cgroup is never
 * trusted, because processes of any uid may be in it. */
bool account_is_trusted(const struct accounts *accounts, const struct account *account);

/* Returns the subject of log lines about the user. */
struct log_about account_about(const struct account *account);

/* Returns the limits that apply to the user. Limits that are not per user are the same for all. */
const struct limits *account_limits(const struct accounts *accounts, const struct account *account);

/* Returns the account to which a process with this uid is charged, with a reference for the caller; makes the
 * account if there is none. Returns NULL if out of memory. A subordinate uid belongs to the user who owns its
 * range, unless it has a section of limits of its own. */
struct account *account_of_peer(struct accounts *accounts, uid_t uid);

/* Return the account of a user given by its uid, or by a cgroup that has a section of limits, as
 * account_of_peer does. */
struct account *account_ref(struct accounts *accounts, uid_t uid);
struct account *account_ref_cgroup(struct accounts *accounts, const char *cgroup);

/* Drops a reference. account may be NULL. */
void account_unref(struct account *account);

/* Adds amount to a charge, which must be empty or already have this account and kind. Returns 0, or QUOTA
 * with nothing added if the sum would exceed the limit for the user or the limit for all users together. */
int charge_take(struct charge *charge, struct accounts *accounts, struct account *account,
                enum charge_kind kind, uint64_t amount, struct error *err);

/* Adds amount to a charge, which must not be empty, even beyond the limits. It is meant for bounded amounts
 * that become known only after a request has been admitted; later requests wait until enough has been
 * released. */
void charge_extend(struct charge *charge, uint64_t amount);

/* Returns whether charge_take would succeed. */
bool charge_fits(const struct accounts *accounts, const struct account *account, enum charge_kind kind,
                 uint64_t amount);

/* Moves amount from one charge to another, which must be empty or have the same account and kind. */
void charge_move(struct charge *from, struct charge *to, uint64_t amount);

/* charge_shrink releases part of a charge, and charge_release all of it. The charge may be empty. */
void charge_shrink(struct charge *charge, uint64_t amount);
void charge_release(struct charge *charge);

/* Charges for the first transform of a request. Returns 0, or QUOTA with nothing charged. */
int transforms_charge_take(struct transforms_charge *charge, struct accounts *accounts,
                           struct account *account, bool is_behind, struct error *err);

/* transforms_charge_add charges for more transforms, and returns 0, or QUOTA with nothing added.
 * transforms_charge_extend does so even beyond the limits, as charge_extend does. */
int transforms_charge_add(struct transforms_charge *charge, uint64_t more, struct error *err);
void transforms_charge_extend(struct transforms_charge *charge, uint64_t more);

/* transforms_charge_shrink releases the charge for some transforms, transforms_charge_release for all. */
void transforms_charge_shrink(struct transforms_charge *charge, uint64_t less);
void transforms_charge_release(struct transforms_charge *charge);

/* Limits by cgroup (overrides.h) require the cgroup of the process at the other end of a connection.
 *
 * /proc/PID/cgroup contains its path. Because the pid may have been reused by the time the file is read, the
 * peer's pidfd (SO_PEERPIDFD) is polled afterwards to check that the process still exists. If it does not,
 * the connection is refused: otherwise a process could escape the account of its cgroup by letting a
 * short-lived child connect for it.
 */

struct peer_cgroup {
	char path[OVERRIDE_CGROUP_BYTES + 1]; /* truncated if it is longer than the path of any section */
	/* Reason why this machine does not reveal the cgroup, for reasons that no client can bring about.
	 * NULL: path is valid. */
	const char *unknown;
};

/* Sets *ret to the cgroup of the peer of sock. pid is the peer's pid as the socket reports it, or 0 if the
 * peer is in another PID namespace. Does not block. Returns 0, PERMISSION if the peer has ended or the kernel
 * cannot report a path that long, or NO_MEMORY if descriptors or memory are short. */
int peer_cgroup_find(int sock, pid_t pid, struct peer_cgroup *ret, struct error *err);

#endif
