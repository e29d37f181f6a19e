/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the whole service since its start. Only the loop's thread writes them. */
#ifndef DAEMON_MEMORY_METRICS_H
#define DAEMON_MEMORY_METRICS_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/explanation.h"
#include "proto/clock.h"
#include "proto/schema.h"
#include "proto/status.h"

/* This much a user, or a connection, has used. */
struct usage {
	uint64_t requests;
	uint64_t errors[STATUS_COUNT]; /* counted at -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t ns[FAMILY_COUNT];  /* engine's time, by family */
	uint64_t multiprocessor_ns; /* the same, times the multiprocessors that transforms could occupy */
	uint64_t latency[LATENCY_BARS];
	uint64_t latency_ns; /* sum of all latencies */
};

#define USAGE_UIDS 256

struct usages {
	uint32_t n;
	uid_t uid[USAGE_UIDS];    /* in the order of arrival */
	char *cgroup[USAGE_UIDS]; /* "": the user is no cgroup */
	struct usage *of[USAGE_UIDS];
	struct usage others;
};

/* This is counted of a transform that has been answered. */
struct transform_count {
	enum family family;
	uint64_t bytes;           /* read plus written */
	uint64_t ns;              /* the engine's own time */
	uint64_t multiprocessors; /* multiprocessors that it could occupy; 0: it did not run on a device */
	uint64_t latency_ns;      /* time from reading the request to queuing the reply */
	int bar;                  /* latency_bar of latency_ns */
};

/* A zero-initialised struct usages is empty. */
void usages_deinit(struct usages *usages);

/* Returns the row of the uid, or of the cgroup if that is not "", created if it is new; NULL if out of
 * memory. It is valid until usages_deinit. */
struct usage *usages_of(struct usages *usages, uid_t uid, const char *cgroup);

void usage_count_error(struct usage *usage, int status);
void usage_count_transform(struct usage *usage, const struct transform_count *done);

uint64_t usage_sum(const uint64_t *counters, int n);

struct metrics {
	uint64_t start_ns;
	uint64_t requests;
	uint64_t requests_by_method[METHOD_COUNT];
	uint64_t errors[STATUS_COUNT]; /* counted at -status - 1 */
	uint64_t bytes[FAMILY_COUNT];
	uint64_t ns[FAMILY_COUNT]; /* engine's time, by family */
	uint64_t connections_accepted;
	uint64_t connections_refused;
	uint64_t sessions_ended;
	uint64_t latency[FAMILY_COUNT][LATENCY_BARS];
	uint64_t latency_ns[FAMILY_COUNT];
};

#endif
