/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of what the service reports at one moment, with the rates since the previous snapshot: the
 * contents of tmactl top. */
#ifndef CLIENT_TMACTL_TOP_SNAPSHOT_H
#define CLIENT_TMACTL_TOP_SNAPSHOT_H

#include "sessions.h"
#include "client/tmactl/tmactl.h"

/* The columns by which rows can be sorted, in the order of WORDS(SORT) in commands.def. */
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

/* Rates of a session or of the whole service since the previous snapshot. */
struct usage {
	double requests_per_s;
	double bytes_per_s;
	double device; /* share of time in which the engine moved something, > 1 if several at once */
	double multiprocessors; /* multiprocessors that its transforms could occupy, averaged over the time */
	uint64_t p50_us;        /* upper bound of the median latency; 0: nothing was moved */
	uint64_t p99_us;        /* upper bound of the 99th percentile; 0: nothing was moved */
	const struct session_row *session; /* borrowed from snapshot.sessions; NULL: the whole service */
};

/* Rates of a device since the previous snapshot. */
struct device_usage {
	const tma_document *now; /* the device's entry in snapshot.stats */
	double bytes_per_s;
	double device; /* share of time in which its engine moved something, as in struct usage */
};

struct snapshot {
	double at; /* when it was taken, in seconds of the monotonic clock */
	tma_document *info;
	tma_document *stats;
	struct session_list sessions;
	struct usage all;    /* the whole service */
	struct usage *usage; /* one for each of sessions.n sessions, in the order of snapshot_sort() */
	size_t n_devices;
	struct device_usage *devices; /* in the service's order */
	double *links;                /* links[from * n_devices + to] is in bytes per second */
};

/* Takes a snapshot. was is the previous one. If it is NULL, or the service has been restarted since, the
 * rates of a session count from its beginning and all others from the start of the service. Returns 0, or -1
 * with f set and nothing to deinitialize. */
int snapshot_init(struct snapshot *ret, tma_client *client, const struct snapshot *was, struct failure *f);

/* Frees what the snapshot owns. A zero-initialized snapshot is allowed. */
void snapshot_deinit(struct snapshot *snapshot);

void snapshot_sort(struct snapshot *snapshot, enum sort_key key);

/* Returns whether both snapshots are of one service that was not restarted between them. */
int snapshot_is_same_service(const struct snapshot *a, const struct snapshot *b);

#endif
