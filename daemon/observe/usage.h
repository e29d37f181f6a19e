/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: what each user has consumed since the start; counters that never decrease.
 *
 * An account (account.h) says what a user holds now, and goes with its last connection; the user's row here
 * stays. The number of rows is limited: users that come when all rows are taken share one row, "other". Only
 * the loop's thread writes.
 */
#ifndef DAEMON_OBSERVE_USAGE_H
#define DAEMON_OBSERVE_USAGE_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/explanation.h"
#include "proto/latency.h"
#include "proto/status.h"

/* The usage of a user, or of a connection. */
struct usage {
	uint64_t requests;
	uint64_t errors[STATUS_COUNT]; /* by -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t ns[FAMILY_COUNT];  /* the engine's own time */
	uint64_t multiprocessor_ns; /* times the multiprocessors that transforms could occupy */
	uint64_t latency[LATENCY_BARS];
	uint64_t latency_ns; /* sum of all */
};

#define USAGE_UIDS 256

struct usages {
	uint32_t n;
	uid_t uid[USAGE_UIDS];    /* in the order of arrival */
	char *cgroup[USAGE_UIDS]; /* "": the user is no cgroup */
	struct usage *of[USAGE_UIDS];
	struct usage others;
};

/* A transform that has been answered. */
struct transform_count {
	enum family family;
	uint64_t bytes;           /* read plus written */
	uint64_t ns;              /* the engine's own time */
	uint64_t multiprocessors; /* that it could occupy; 0: not of a device */
	uint64_t latency_ns;      /* request read to reply queued */
	int bar;                  /* of latency_ns */
};

/* Zero-initialised, it is empty. */
void usages_deinit(struct usages *usages);

/* Returns the row of the uid, or of the cgroup if that is not "", created if it is new, valid until
 * usages_deinit; NULL: out of memory. */
struct usage *usages_of(struct usages *usages, uid_t uid, const char *cgroup);

void usage_count_error(struct usage *usage, int status);
void usage_count_transform(struct usage *usage, const struct transform_count *done);

uint64_t usage_sum(const uint64_t *counters, int n);

#endif
