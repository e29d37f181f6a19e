/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a snapshot as text: OpenMetrics 1.0, or the text format 0.0.4 of Prometheus. It writes piece by
 * piece into memory of the caller, and allocates nothing. */
#ifndef DAEMON_OBSERVE_EXPOSITION_H
#define DAEMON_OBSERVE_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/limits.h"
#include "daemon/memory/account.h"
#include "daemon/memory/metrics.h"
#include "kernels/engine.h"

struct service;
struct snapshot;

struct snapshot_uid {
	char name[OVERRIDE_CGROUP_BYTES + 8]; /* the number of the uid, "cgroup:" and its path, or "other" */
	struct usage usage;
	uint64_t levels[CHARGE_KIND_COUNT];
	uint64_t limits[LIMIT_COUNT]; /* limits that differ from everybody's; otherwise 0 */
};

/* exposition.def refers to the fields of this struct, which are 64-bit numbers but for the name. */
struct snapshot_device {
	char uuid[48];
	uint64_t up;
	uint64_t transforms;
	uint64_t bytes;
	uint64_t ns;
	uint64_t jobs;
	uint64_t regions;
	uint64_t mapped_bytes;
};

struct snapshot {
	const char *version; /* these two belong to the program */
	const char *engine;
	char device[160];
	uint64_t start_ns; /* since the epoch */
	uint64_t engine_up;
	uint64_t recoveries;
	uint64_t waiting;
	uint64_t stalled_users;
	uint64_t tables;
	uint64_t rings;
	uint64_t log_lost;
	uint64_t regions;
	uint64_t mapped_bytes;
	uint64_t levels[CHARGE_KIND_COUNT];
	struct metrics metrics;
	struct engine_cache_stats plans;
	struct engine_cache_stats maps;
	struct limits limits;
	uint32_t n_devices;              /* 0 with the cpu engine */
	struct snapshot_device *devices; /* array behind uid[] */
	uint64_t
	    *links; /* behind the devices: bytes sent from one to another, n_devices for each; NULL: none */
	uint32_t n_uids;
	struct snapshot_uid uid[];
};

/* Takes a snapshot of at most 258 KB, which the caller frees. Returns NULL if out of memory. */
struct snapshot *snapshot_new(struct service *service);

/* A piece of this size always has room for a line. */
#define EXPOSITION_ROOM 2048

struct exposition {
	const struct snapshot *snapshot;
	bool openmetrics;
	uint32_t family;
	uint32_t sample; /* sample of the family; 0: its header */
};

/* Writes whole lines and returns their bytes, or 0 when there are no more. size is at least EXPOSITION_ROOM.
 * An exposition that is zeroed except for its first two fields is at the start. */
size_t exposition_write(struct exposition *exposition, char *text, size_t size);

/* Returns the value of Content-Type. */
const char *exposition_type(bool openmetrics);

#endif
