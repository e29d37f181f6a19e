/* SPDX-License-Identifier: Apache-2.0 */
/* Takes snapshots of all counters, and formats them as text: OpenMetrics 1.0, or the text format 0.0.4 of
 * Prometheus. The text is written piece by piece into a buffer of the caller. Only the loop's thread may take
 * a snapshot. */
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

/* The counters of one user, or of all users without a row of their own (struct usages). */
struct snapshot_uid {
	char name[OVERRIDE_CGROUP_BYTES + 8]; /* the uid, "cgroup:" and the cgroup's path, or "other" */
	struct usage usage;
	uint64_t levels[CHARGE_KIND_COUNT]; /* what the user holds; for "other" the maximum over its users */
	uint64_t limits[LIMIT_COUNT];       /* limits that differ from those for everybody; 0: the same */
};

/* The counters of one device. exposition.def refers to the fields, which are therefore uint64_t except for
 * uuid. */
struct snapshot_device {
	char uuid[48];
	uint64_t up; /* 1: the engine is not lost and gave a sign of life at the last probe; otherwise 0 */
	uint64_t transforms;   /* number of transforms that have ended */
	uint64_t bytes;        /* bytes read plus written by them */
	uint64_t ns;           /* engine's time in ns */
	uint64_t jobs;         /* number of jobs that the engine has */
	uint64_t regions;      /* regions whose own device this is */
	uint64_t mapped_bytes; /* bytes of these regions */
};

/* All counters at one time, in a single allocation. exposition.def refers to the fields; help texts there say
 * what they count. */
struct snapshot {
	const char *version; /* constant string of the program */
	const char *engine;  /* constant string of the program */
	char device[160];    /* service_describe */
	uint64_t start_ns;   /* start of the service in ns since the epoch */
	uint64_t engine_up;  /* service_is_up: 1 or 0 */
	uint64_t recoveries;
	uint64_t waiting; /* service_count_waiting */
	uint64_t stalled_users;
	uint64_t tables;
	uint64_t rings;
	uint64_t log_lost;
	uint64_t regions;
	uint64_t mapped_bytes;
	uint64_t levels[CHARGE_KIND_COUNT]; /* what all users hold together */
	struct metrics metrics;
	struct engine_cache_stats plans; /* sums over the plan caches of all engines */
	struct engine_cache_stats maps;  /* sums over the tensor map caches of all engines */
	struct limits limits;
	uint32_t n_devices;              /* 0 with the cpu engine */
	struct snapshot_device *devices; /* n_devices elements behind uid[] */
	/* Matrix behind the devices: element i * n_devices + j is the number of bytes in memory of device i
	 * that were read for destinations on device j. NULL: there are fewer than two devices. */
	uint64_t *links;
	uint32_t n_uids;
	struct snapshot_uid uid[];
};

/* Returns a snapshot, which the caller frees with free, or NULL if out of memory. It takes about 1 KB for
 * each user, at most 272 KB for all of them, and up to 40 KB more for devices. */
struct snapshot *snapshot_new(struct service *service);

/* Least size of a buffer for exposition_write, in which there is always room for a line. */
#define EXPOSITION_ROOM 2048

/* The position in a text being written. The caller sets the first two fields and zeroes the others. */
struct exposition {
	const struct snapshot *snapshot;
	bool openmetrics; /* true: OpenMetrics; false: the text format of Prometheus */
	uint32_t family;  /* index of the next metric family */
	uint32_t sample;  /* next line of the family: 0 is its header, i + 1 is sample i */
};

/* Writes the next whole lines to text[size] and returns the number of bytes, or 0 at the end of the text.
 * size must be at least EXPOSITION_ROOM. */
size_t exposition_write(struct exposition *exposition, char *text, size_t size);

/* Returns the value of the HTTP header Content-Type for the format. */
const char *exposition_type(bool openmetrics);

#endif
