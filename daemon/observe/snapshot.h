/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a scraper is told about the service, as it was at one moment. */
#ifndef DAEMON_OBSERVE_SNAPSHOT_H
#define DAEMON_OBSERVE_SNAPSHOT_H

#include <stdint.h>

#include "daemon/net/account.h"
#include "kernels/engine.h"
#include "daemon/config/limits.h"
#include "metrics.h"

struct server;

struct snapshot_uid {
	char name[OVERRIDE_CGROUP_BYTES + 8]; /* the number of the uid, "cgroup:" and its path, or "other" */
	struct usage usage;
	uint64_t levels[CHARGE_KIND_COUNT];
	uint64_t limits[LIMIT_COUNT]; /* limits that differ from those of everybody; otherwise 0 */
};

/* All 64-bit numbers but its name. */
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
	uint32_t n_devices;              /* 0 with cpu */
	struct snapshot_device *devices; /* behind the users */
	uint64_t
	    *links; /* behind those: bytes from one to another, n_devices for each; NULL: there are none */
	uint32_t n_uids;
	struct snapshot_uid uid[];
};

/* Returns NULL if out of memory; the caller frees it. At most 258 KB. */
struct snapshot *snapshot_new(struct server *server);

#endif
