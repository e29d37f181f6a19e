/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the service, of its users and of sessions. All of them start at 0 when the service starts, or
 * restarts after a loss of its device. Only the loop's thread uses them. */
#ifndef DAEMON_MEMORY_METRICS_H
#define DAEMON_MEMORY_METRICS_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/explanation.h"
#include "proto/clock.h"
#include "proto/schema.h"
#include "proto/status.h"

/* Counters of one user or one session. */
struct usage {
	uint64_t requests;             /* requests read, including entries of submission rings */
	uint64_t errors[STATUS_COUNT]; /* errors by status, at index -status - 1 */
	uint64_t bytes[FAMILY_COUNT];  /* bytes read plus written, by family of strategies */
	uint64_t ns[FAMILY_COUNT];     /* engine's time in ns, by family of strategies */
	/* Sum over all transforms of the engine's time in ns times the multiprocessors that the transform
	 * could occupy. */
	uint64_t multiprocessor_ns;
	uint64_t latency[LATENCY_BARS]; /* transforms by latency (latency_bar) */
	uint64_t latency_ns;            /* sum of all latencies */
};

#define USAGE_UIDS 256 /* users that have a row of their own */

struct usages {
	uint32_t n;                   /* number of rows; row i is uid[i], cgroup[i] and of[i] */
	uid_t uid[USAGE_UIDS];        /* in the order in which users first connected */
	char *cgroup[USAGE_UIDS];     /* path of the cgroup; "": the user is a uid */
	struct usage *of[USAGE_UIDS]; /* counters of the user; valid until usages_deinit */
	struct usage others;          /* shared by all users who found no free row */
};

/* The values that are counted for a transform that has been answered. */
struct transform_count {
	enum family family;
	uint64_t bytes;           /* bytes read plus bytes written */
	uint64_t ns;              /* engine's time in ns */
	uint64_t multiprocessors; /* multiprocessors that it could occupy; 0: it did not run on a GPU */
	uint64_t latency_ns;      /* time from reading the request to queuing the reply */
	int bar;                  /* latency_bar of latency_ns */
};

/* Frees all rows. A zeroed struct usages is empty. */
void usages_deinit(struct usages *usages);

/* Returns the counters of the user: a uid with a cgroup of "", or a cgroup. Adds a row for a new user, or
 * returns &usages->others if there is no free row. Returns NULL if out of memory. The result is valid until
 * usages_deinit. */
struct usage *usages_of(struct usages *usages, uid_t uid, const char *cgroup);

void usage_count_error(struct usage *usage, int status);
void usage_count_transform(struct usage *usage, const struct transform_count *done);

/* Returns the sum of the first n counters. */
uint64_t usage_sum(const uint64_t *counters, int n);

struct metrics {
	uint64_t start_ns; /* start of the service (uv_hrtime) */
	uint64_t requests; /* requests read, including those that name no known method */
	uint64_t requests_by_method[METHOD_COUNT];
	uint64_t errors[STATUS_COUNT]; /* errors by status, at index -status - 1 */
	uint64_t bytes[FAMILY_COUNT];  /* bytes read plus written, by family of strategies */
	uint64_t ns[FAMILY_COUNT];     /* engine's time in ns, by family of strategies */
	uint64_t connections_accepted;
	uint64_t connections_refused; /* connections refused by a limit */
	uint64_t sessions_ended;      /* sessions ended by a limit, a deadline or a protocol violation */
	uint64_t latency[FAMILY_COUNT][LATENCY_BARS]; /* transforms by latency (latency_bar) */
	uint64_t latency_ns[FAMILY_COUNT];            /* sums of the latencies */
};

#endif
