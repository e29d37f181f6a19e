/* SPDX-License-Identifier: Apache-2.0 */
/* struct service is the state that all sessions share: the loop, the devices with their engines, the accounts
 * of users, and counters. The layers above it accept connections (daemon/net) and start and stop the service
 * (daemon/server.h).
 *
 * Only the loop's thread may use it.
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
	SERVICE_DRAINING, /* asked to stop: what has arrived is finished and answered, nothing more is read */
	SERVICE_STOPPED,  /* no session is left, and the loop's handles are closing */
	SERVICE_STUCK, /* canceled work does not end: the close of a descriptor, a mapping or a transform */
	SERVICE_LOST,  /* the device is lost: all requests are answered with DEVICE_LOST */
};

struct batch;
struct job;
struct session;
struct submission;

TAILQ_HEAD(job_queue, job);

/* The submission rings that are awake, and therefore polled in each iteration of the loop (submission.h). */
struct submissions {
	LIST_HEAD(, submission) awake;
	uv_idle_t spin; /* runs while a ring is awake, and keeps the loop from sleeping */
};

struct service {
	uv_loop_t loop;
	const struct clock *clock; /* clock of deadlines and time slices; borrowed */
	enum service_state state;
	struct limits limits; /* limits for everybody; accounts may have overrides of them */
	struct accounts accounts;
	struct session_queue sessions; /* all sessions, including ended ones that are not freed yet */
	struct chores chores;
	struct stalls stalls;
	struct devices devices;
	char engine_note[256]; /* why this engine was chosen; "": it was requested, or is the first choice */
	bool is_watched;       /* the watchdog's timer probes the engines (daemon/observe/watchdog.h) */
	uint64_t probed_ms;    /* time of the last probe by service_is_up (uv_now); unused if is_watched */
	struct recovery recovery;
	struct penalties penalties;
	struct submissions submissions;
	struct job_queue ended;   /* jobs that ended without an engine and wait for sequence_reap (job.h) */
	struct job *free_jobs;    /* structs kept for reuse, linked by next_free; NULL: none */
	struct batch *kept_batch; /* one batch kept for reuse; NULL: none */
	struct blocks_seen seen;  /* scratch memory for the check of one list of blocks at a time */
	struct rpc_decoder *decoder; /* shared by all sessions: requests are handled one at a time */
	struct rpc_request request;  /* the request being handled */
	bool is_job_done;    /* some job has ended and is not reaped yet; set on the loop's thread only */
	uint64_t taken_ns;   /* time at which handling of the current input began (uv_hrtime) */
	uint64_t planned_ns; /* ns that making plans on the loop has taken for the current request */
	uint64_t reaped_ns;  /* time at which the jobs being answered were reaped (uv_hrtime) */
	struct metrics metrics;
	uint64_t n_regions;    /* regions whose memory has not been unmapped completely */
	uint64_t mapped_bytes; /* bytes of the regions that have not been closed */
	uint64_t n_tables;     /* tables that exist */
	uint64_t tables_made;  /* tables made so far; the source of their serial numbers */
	char boot_id[33];      /* random hexadecimal digits that identify this run of the service */
	uint64_t start_ns;     /* start of the service in ns since the epoch */
};

/* Initializes the fields that need neither the loop nor an engine. *service must be zeroed. A clock of NULL
 * stands for clock_uv. */
void service_init(struct service *service, const struct limits *limits, const struct clock *clock);

/* Prepares the watch for threads that do not return from users' memory (struct stalls). The loop must have
 * been initialized. */
void service_start_stalls(struct service *service);

/* Returns "cpu" or "cuda". */
const char *service_engine_name(const struct service *service);

/* Writes a description of the devices, such as "2 devices, the first: NAME", to text[size]. */
void service_describe(const struct service *service, char *text, size_t size);

/* Returns the time at which the current iteration of the loop began, in ms of service->clock. */
uint64_t service_now_ms(const struct service *service);

/* Returns the number of sessions whose next request waits (enum session_wait). */
uint64_t service_count_waiting(const struct service *service);

/* Asks all engines for a sign of life, and logs those that have given none since the last probe, and those
 * that give one again. Does not wait. */
void service_probe(struct service *service);

/* Returns whether no device is lost and every engine had given a sign of life at the last probe. If no
 * watchdog probes the engines (is_watched), this call does so, at most once in two seconds; engines then have
 * until the next such call to answer. */
bool service_is_up(struct service *service);

#endif
