/* SPDX-License-Identifier: Apache-2.0 */
/* The running service: one loop, the engines of its devices, and what its sessions share.
 *
 * Everything here belongs to the loop's thread. Results of other threads reach it in three ways: engine_done
 * (jobs of the engines), chores (memory that was mapped or unmapped, descriptors that were closed), and
 * libuv's work queue (settings that were read, memory that was returned to the kernel). The thread that
 * writes the log needs no answer (observe/sink.h).
 *
 * server_init, then server_run, which returns when the service stops or the device is lost; server_deinit
 * only after an orderly stop.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "clock.h"
#include "daemon/config/limits.h"
#include "daemon/config/options.h"
#include "daemon/config/reload.h"
#include "daemon/net/account.h"
#include "daemon/net/async_close.h"
#include "daemon/net/input.h"
#include "daemon/net/listener.h"
#include "daemon/net/outgoing.h"
#include "daemon/net/refusal.h"
#include "daemon/net/time_slice.h"
#include "daemon/net/trim.h"
#include "daemon/observe/exporter.h"
#include "daemon/observe/metrics.h"
#include "daemon/observe/notify.h"
#include "daemon/observe/stalls.h"
#include "daemon/observe/watchdog.h"
#include "daemon/resource/chore.h"
#include "daemon/resource/job.h"
#include "daemon/resource/submission.h"
#include "devices.h"
#include "doorbell.h"
#include "engines.h"
#include "kernels/engine.h"
#include "kernels/transform/blocks.h"
#include "penalty.h"
#include "proto/wire/rpc.h"
#include "recovery.h"

enum server_state {
	SERVER_RUNNING,
	SERVER_DRAINING, /* asked to stop: no new requests; work under way is finished and answered */
	SERVER_STOPPED,  /* no session is left; handles are closing */
	SERVER_STUCK,    /* something that was canceled does not end: a close, a mapping, a transform */
	SERVER_LOST, /* the device is lost: no new requests; work under way is answered with DEVICE_LOST */
};

/* How server_run ended. */
enum server_end {
	SERVER_END_STOPPED, /* as asked: call server_deinit */
	SERVER_END_STUCK,   /* as asked, but a thread still works: leave the server as it is */
	SERVER_END_LOST,    /* the device is lost and clients know: leave the server as it is, and restart */
};

/* What a server is started with. */
struct server_setup {
	const struct options *options;
	const struct engine_openers *openers;
	const struct clock *clock;   /* NULL: clock_uv */
	const struct config *config; /* holds options, and came from this command line; NULL: no reload */
	int argc;
	char **argv;
	struct recovery recovery;
	struct penalties penalties;
};

struct batch;
struct job;

struct server {
	uv_loop_t loop;
	const struct clock *clock;
	pthread_t thread; /* the loop's */
	uv_async_t engine_done;
	struct doorbell doorbell; /* for engines in processes of their own: the same */
	uv_prepare_t settle;      /* before the loop sleeps: finished jobs, waiting requests, replies */
	uv_signal_t sigterm;
	uv_signal_t sigint;
	uv_signal_t sighup;
	uv_timer_t drain_timer;
	uv_timer_t resend; /* runs while sessions wait to send descriptors (reply.c) */
	uv_timer_t idle;   /* ends sessions that do nothing (deadline.c) */
	uv_work_t first_work;
	struct listener listener;
	struct watchdog watchdog;
	struct notify notify;
	struct exporter exporter;
	enum server_state state;

	struct limits limits;
	struct accounts accounts;
	bool misses_cgroups; /* the log has said that cgroups of peers are not known */
	struct outgoing outgoing;
	struct refusals refusals;
	struct inputs inputs;
	struct trim trim;
	struct chores chores;
	struct stalls stalls;
	struct metrics metrics;
	struct devices devices;
	uint64_t taken_ns;     /* when handling of the current requests began (uv_hrtime) */
	uint64_t planned_ns;   /* time that preparing plans on the loop has taken for the current request */
	uint64_t reaped_ns;    /* when the jobs being answered were found to have ended */
	bool is_job_done;      /* set on the loop's thread; not yet reaped */
	char engine_note[256]; /* why this engine was chosen; "": as was asked for */
	struct recovery recovery;
	struct penalties penalties;
	struct reload reload;
	uint64_t descriptors;        /* that the process may open, and the loop has room for */
	bool stop_asked;             /* while the device was lost */
	struct rpc_decoder *decoder; /* requests are decoded and handled one at a time */
	struct rpc_request request;
	struct session_queue sessions;
	struct session_queue unsent; /* sessions with replies to send */
	struct time_slices time_slices;
	struct submissions submissions;
	struct job *free_jobs;
	struct job_queue ended; /* without an engine's help; to be reaped as well */
	struct batch *kept_batch;
	uint64_t n_regions; /* mapped, and their bytes */
	uint64_t mapped_bytes;
	uint64_t n_tables; /* prepared */
	uint64_t last_session;
	char boot_id[33];
	uint64_t start_ns;       /* since the epoch */
	struct blocks_seen seen; /* by one list at a time */
	uint64_t tables_made;
	uint8_t receive[INPUT_BYTES]; /* input, until it is known that it must be kept */
};

/* Opens the engines and the listener; server_run serves. On failure err says why, and nothing is left open.
 * The server is too large for a stack. */
int server_init(struct server *server, const struct server_setup *setup, struct error *err);

/* Serves until the server was asked to stop and everything has ended, or until the device was lost. */
enum server_end server_run(struct server *server);

/* Only after SERVER_END_STOPPED. */
void server_deinit(struct server *server);

/* After SERVER_END_LOST, if there is no restart: removes the socket files. */
void server_abandon(struct server *server);

/* Stops accepting and reading. Sessions end when they have been answered, or after drain_deadline_ms. */
void server_drain(struct server *server);

/* An engine is lost: work under way ends as DEVICE_LOST and is answered; then server_run returns. */
void server_lose(struct server *server, const struct served_device *device);

/* Tells of devices that were lost since the last call and return by themselves, and of those that are back.
 */
void server_note_losses(struct server *server);

/* "cpu" or "cuda". */
const char *server_engine_name(const struct server *server);

/* What moves the bytes, in words. */
void server_describe(const struct server *server, char *text, size_t size);

/* When the current iteration of the loop began, by the server's clock. */
uint64_t server_now_ms(const struct server *server);

/* Calls act for each session, which it may end. */
void server_each_session(struct server *server, void (*act)(struct session *session));

/* The number of sessions whose next request waits: for jobs, for replies to be read, for a time slice. */
uint64_t server_count_waiting(const struct server *server);

/* Closes the loop's handles; then server_run returns. */
void server_stop(struct server *server);

/* A session has been freed. */
void server_on_session_freed(struct server *server);

#endif
