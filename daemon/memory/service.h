/* SPDX-License-Identifier: Apache-2.0 */
/* The service is what all sessions share: the loop, the engines and their devices, the accounts of users, and
 * counts. What accepts connections and what starts and stops the service lies above it (daemon/net,
 * daemon/server.h).
 *
 * Everything here belongs to the loop's thread.
 */
#ifndef DAEMON_MEMORY_SERVICE_H
#define DAEMON_MEMORY_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "daemon/config/limits.h"
#include "daemon/loop/loop.h"
#include "daemon/loop/recovery.h"
#include "kernels/transform/blocks.h"
#include "proto/wire/rpc.h"
#include "account.h"
#include "chore.h"
#include "devices.h"
#include "metrics.h"

enum service_state {
	SERVICE_RUNNING,
	SERVICE_DRAINING, /* asked to stop: no new requests; work under way is finished and answered */
	SERVICE_STOPPED,  /* no session is left; handles are closing */
	SERVICE_STUCK,    /* something that was canceled does not end: a close, a mapping, a transform */
	SERVICE_LOST, /* the device is lost: no new requests; work under way is answered with DEVICE_LOST */
};

struct batch;
struct job;
struct session;
struct submission;

TAILQ_HEAD(job_queue, job);

/* These are the rings that are awake. They are polled in each iteration of the loop (submission.h). */
struct submissions {
	LIST_HEAD(, submission) awake;
	uv_idle_t spin;
};

struct service {
	uv_loop_t loop;
	const struct clock *clock;
	enum service_state state;
	struct limits limits;
	struct accounts accounts;
	struct session_queue sessions;
	struct chores chores;
	struct stalls stalls;
	struct devices devices;
	char engine_note[256]; /* why this engine was chosen; "": as was asked for */
	bool is_watched;       /* the engines are probed at intervals (daemon/observe/watchdog.h) */
	uint64_t probed_ms; /* when service_is_up last probed them, because they are not watched (uv_now) */
	struct recovery recovery;
	struct penalties penalties;
	struct submissions submissions;
	/* Jobs that have ended without an engine stay here until they are reaped. */
	struct job_queue ended;
	struct job *free_jobs;
	struct batch *kept_batch;
	struct blocks_seen seen;     /* used by one list of blocks at a time */
	struct rpc_decoder *decoder; /* requests are decoded and handled one at a time */
	struct rpc_request request;
	bool is_job_done;    /* set on the loop's thread; not yet reaped */
	uint64_t taken_ns;   /* when handling of the current requests began (uv_hrtime) */
	uint64_t planned_ns; /* time that preparing plans on the loop has taken for the current request */
	uint64_t reaped_ns;  /* when the jobs being answered were found to have ended */
	struct metrics metrics;
	uint64_t n_regions; /* regions that are mapped, and their bytes */
	uint64_t mapped_bytes;
	uint64_t n_tables; /* prepared tables */
	uint64_t tables_made;
	char boot_id[33];
	uint64_t start_ns; /* nanoseconds since the epoch */
};

/* Sets what needs neither the loop nor an engine. clock is NULL for clock_uv. service is all zeros. */
void service_init(struct service *service, const struct limits *limits, const struct clock *clock);

/* Prepares the watch of users' threads (struct stalls). To be called when the loop is there. */
void service_start_stalls(struct service *service);

/* Returns "cpu" or "cuda". */
const char *service_engine_name(const struct service *service);

/* Says in words what moves the bytes. */
void service_describe(const struct service *service, char *text, size_t size);

/* Returns when the current iteration of the loop began, in milliseconds of the service's clock. */
uint64_t service_now_ms(const struct service *service);

/* Returns the number of sessions whose next request waits: for jobs, for replies to be read, for a time
 * slice. */
uint64_t service_count_waiting(const struct service *service);

/* Asks all engines for a sign of life by the next probe, and logs those that have given none since the last.
 */
void service_probe(struct service *service);

/* Returns whether all engines are there, and have given a sign of life since the last probe. Unless they are
 * watched, this call probes, and they have until the next call. */
bool service_is_up(struct service *service);

#endif
