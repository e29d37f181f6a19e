/* SPDX-License-Identifier: Apache-2.0 */
/* What the service reported at one moment, and the rates between two such moments: the rows of tmactl top. */
#ifndef CLIENT_TMACTL_TOP_SNAPSHOT_H
#define CLIENT_TMACTL_TOP_SNAPSHOT_H

#include "sessions.h"
#include "client/tmactl/tmactl.h"

/* In the order of commands.def's words. */
enum sort_key {
	SORT_RATE,
	SORT_BYTES,
	SORT_P50,
	SORT_P99,
	SORT_ERRORS,
	SORT_MAPPED,
	SORT_UID,
	SORT_PID,
	SORT_COUNT
};

/* A connection, or all of the service, since the previous snapshot. */
struct usage {
	double requests_per_s;
	double bytes_per_s;
	double device;          /* engines at work on average: several transforms may run at once */
	double multiprocessors; /* that transforms could occupy, on average */
	uint64_t p50_us;        /* upper bounds; 0: nothing was moved */
	uint64_t p99_us;
	const struct session_row *session; /* NULL: of the service */
};

/* A device since the previous snapshot. */
struct device_usage {
	const tma_document *now; /* its entry of stats */
	double bytes_per_s;
	double device; /* as in struct usage */
};

struct snapshot {
	double at; /* seconds, by the monotonic clock */
	tma_document *info;
	tma_document *stats;
	struct session_list sessions;
	struct usage all;
	struct usage *usage; /* sessions.n of them, sorted */
	size_t n_devices;
	struct device_usage *devices; /* in their order */
	double *links;                /* bytes per second from one to another, n_devices for each */
};

/* Asks the service. was is the previous snapshot; without one (NULL), rates count from when each connection
 * was made. Returns 0, or -1 with nothing to deinitialise. */
int snapshot_init(struct snapshot *ret, tma_client *client, const struct snapshot *was, struct failure *f);

/* A zero-initialised snapshot is allowed. */
void snapshot_deinit(struct snapshot *snapshot);

void snapshot_sort(struct snapshot *snapshot, enum sort_key key);

/* Whether the service has not been restarted between the two. */
int snapshot_is_same_service(const struct snapshot *a, const struct snapshot *b);

#endif
