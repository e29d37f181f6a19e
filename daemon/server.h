/* The running service: one loop, one engine, and what its sessions share.
 *
 * Everything here is the loop thread's. Work of other threads enters by three doors: engine_done (jobs),
 * libuv's work queue (chores: mapping and unmapping memory) and async_close (closed descriptors).
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "clock.h"
#include "daemon/net/account.h"
#include "daemon/resource/chore.h"
#include "daemon/net/async_close.h"
#include "engines.h"
#include "daemon/observe/exporter.h"
#include "kernels/plan/blocks.h"
#include "kernels/engine.h"
#include "daemon/net/input.h"
#include "daemon/config/limits.h"
#include "daemon/net/listener.h"
#include "daemon/observe/metrics.h"
#include "daemon/observe/notify.h"
#include "daemon/config/options.h"
#include "daemon/net/outgoing.h"
#include "penalty.h"
#include "daemon/resource/plan_cache.h"
#include "proto/wire/rpc.h"
#include "recovery.h"
#include "daemon/net/refusal.h"
#include "daemon/config/reload.h"
#include "daemon/resource/submission.h"
#include "daemon/net/trim.h"
#include "daemon/net/time_slice.h"
#include "daemon/observe/watchdog.h"

enum server_state {
	SERVER_RUNNING,
	SERVER_DRAINING, /* asked to stop: no new requests, what is under way is finished and answered */
	SERVER_STOPPED,  /* no session is left, handles are closing */
	SERVER_STUCK,    /* something that was ended does not go: a descriptor, memory, a transform */
	SERVER_LOST,     /* the device is lost: no new requests, what is under way is answered so */
};

/* How a run ended. */
enum server_end {
	SERVER_END_STOPPED, /* as asked: deinit it */
	SERVER_END_STUCK,   /* as asked, but a thread is not done: leave it as it is */
	SERVER_END_LOST,    /* the device is lost and clients know: leave it as it is, and start again */
};

/* What a service is started with. */
struct server_setup {
	const struct options *options;
	const struct engine_openers *openers;
	const struct clock *clock; /* NULL: clock_uv */
	const struct config
	    *config; /* options are its own, and it came of this command line; NULL: no reload */
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
	uv_prepare_t settle; /* before the loop sleeps: finished jobs, waiting requests, replies */
	uv_signal_t sigterm;
	uv_signal_t sigint;
	uv_signal_t sighup;
	uv_timer_t drain_timer;
	uv_timer_t resend; /* runs while sessions wait to send descriptors (reply.c) */
	uv_timer_t idle;   /* checks for sessions that do nothing (deadline.c) */
	uv_work_t first_work;
	struct listener listener;
	struct watchdog watchdog;
	struct notify notify;
	struct exporter exporter;
	enum server_state state;

	struct limits limits;
	struct accounts accounts;
	struct async_close async_close;
	struct outgoing outgoing;
	struct refusals refusals;
	struct inputs inputs;
	struct trim trim;
	struct chores chores;
	struct metrics metrics;
	struct plan_cache plans;
	struct engine *engine;
	uint64_t taken_ns;     /* when the requests that are being handled were taken up (uv_hrtime) */
	uint64_t reaped_ns;    /* when the jobs that are being answered were found to have ended */
	bool is_job_done;      /* on the loop's thread, and not yet reaped */
	char engine_note[256]; /* why it is this one; "": nobody needs to be told */
	struct recovery recovery;
	struct penalties penalties;
	struct reload reload;
	uint64_t descriptors;        /* that the process may have, and the loop has room for */
	bool stop_asked;             /* while the device was lost */
	struct rpc_decoder *decoder; /* requests are decoded and handled one at a time */
	struct rpc_request request;
	struct session_queue sessions;
	struct session_queue unsent; /* sessions with replies to send */
	struct time_slices time_slices;
	struct submissions submissions;
	struct job *free_jobs;
	struct batch *kept_batch;
	uint64_t n_regions; /* mapped, and their bytes */
	uint64_t mapped_bytes;
	uint64_t last_session;
	char boot_id[33];
	uint64_t start_ns;            /* since the epoch */
	struct blocks_seen seen;      /* by one list at a time */
	uint8_t receive[INPUT_BYTES]; /* what a session reads before it is known to need keeping */
};

/* Opens the engine and the listener, and starts to serve when server_run is called. On failure err says
 * why, and nothing is left. The server is too large for a stack. */
int server_init(struct server *server, const struct server_setup *setup, struct error *err);

/* Runs until it has been asked to stop and everything has ended, or the device was lost. */
enum server_end server_run(struct server *server);

/* Only after SERVER_END_STOPPED. */
void server_deinit(struct server *server);

/* After SERVER_END_LOST, when it is not started again: takes the socket's file away. */
void server_abandon(struct server *server);

/* Stops accepting and reading; sessions end when they are answered, or when drain_deadline_ms have passed. */
void server_drain(struct server *server);

/* The engine is lost: what is under way ends as DEVICE_LOST and is answered, then server_run ends. */
void server_lose(struct server *server);

/* By its clock: when the current iteration of the loop began. */
uint64_t server_now_ms(const struct server *server);

/* act may end the session. */
void server_each_session(struct server *server, void (*act)(struct session *session));

/* Sessions whose next request waits: for jobs, for replies to be read, for a time slice. */
uint64_t server_count_waiting(const struct server *server);

/* Closes the loop's handles, which ends server_run. */
void server_stop(struct server *server);

/* Called when a session is gone. */
void server_on_session_freed(struct server *server);

#endif
