/* SPDX-License-Identifier: Apache-2.0 */
/* The server's start, an iteration of its loop, and the closing of its handles.
 *
 * In each iteration libuv calls back for timers, sockets and finished work; on_settle, a prepare handle, then
 * does what is left to do before the loop sleeps. shutdown.c decides when the server stops.
 */
#include "server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/resource/batch.h"
#include "shutdown.h"
#include "daemon/resource/job.h"
#include "daemon/resource/sequence.h"
#include "daemon/observe/log.h"
#include "daemon/net/deadline.h"
#include "daemon/net/session.h"
#include "daemon/net/watch.h"

/* The descriptors that the process may need beyond its connections, at most: half of them for regions, of
 * which the kernel lets a process map 65530. */
#define DESCRIPTORS 131072

/* How long an iteration may work for the engine: about what it takes to wake a thread and to be woken. */
#define DRIVE_NS 20000

static void on_engine_done(uv_async_t *async);
static void on_settle(uv_prepare_t *prepare);
static void reap(struct server *server);
static void on_reload_signal(uv_signal_t *signal, int number);

/* ---- Start ------------------------------------------------------------------------------------------- */

/* Raises the limit on descriptors as far as is allowed and useful: each connection takes one, each region in
 * a file that can shrink, and so do descriptors in transit. Returns the limit. */
static uint64_t raise_fd_limit(uint64_t connections)
{
	struct rlimit limit;
	uint64_t most = connections < INT32_MAX - DESCRIPTORS ? connections + DESCRIPTORS : INT32_MAX;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (most > limit.rlim_max)
		most = limit.rlim_max;
	limit.rlim_cur = most;
	setrlimit(RLIMIT_NOFILE, &limit);
	return most;
}

/* Warns if one user may hold all descriptors. */
static void check_fd_limit(const struct server *server)
{
	const struct limits *limits = &server->limits;
	uint64_t connections = limits->connections < limits->connections_per_uid
	                           ? limits->connections
	                           : limits->connections_per_uid;
	const bool is_one = server->devices.n == 1;
	const uint64_t regions = is_one ? limits->regions_per_uid : limits->region_fds_per_uid;

	if (connections < server->descriptors && limits->pending_fds_per_uid < server->descriptors &&
	    limits->outgoing_fds_per_uid < server->descriptors && regions < server->descriptors &&
	    connections + limits->pending_fds_per_uid + limits->outgoing_fds_per_uid + regions <
	        server->descriptors)
		return;
	log_line(LOG_LEVEL_WARNING,
	         "one user may take all of the %" PRIu64
	         " descriptors (LimitNOFILE=): lower connections_per_uid, pending_fds_per_uid, "
	         "outgoing_fds_per_uid and %s, or allow more",
	         server->descriptors, is_one ? "regions_per_uid" : "region_fds_per_uid");
}

/* From any thread. The loop's own thread is awake, and reaps before it sleeps. */
static void wake(void *arg)
{
	struct server *server = arg;

	if (pthread_equal(pthread_self(), server->thread))
		server->is_job_done = true;
	else
		uv_async_send(&server->engine_done);
}

static void on_doorbell(void *arg)
{
	reap(arg);
}

static int open_engines(struct server *server, const struct server_setup *setup, struct error *err)
{
	const struct options *options = setup->options;
	struct engine_options engine = { .threads = options->threads,
		                         .device = options->device,
		                         .tensor_maps = server->limits.tensor_map_entries,
		                         .plans = server->limits.plan_cache_entries,
		                         .tunes = options->tune,
		                         .restart_pause_ms = server->limits.restart_pause_ms,
		                         .wake = wake,
		                         .wake_arg = server,
		                         .drives = true };
	struct chosen_engines chosen;
	int r = doorbell_open(&server->doorbell, &server->loop, on_doorbell, server, err);

	if (r < 0)
		return r;
	engine.wake_fd = server->doorbell.fd;
	r = engines_open(&chosen, setup->openers, options->engine, &engine, err);
	if (r < 0)
		return r;
	if (!chosen.engine[0]->returns)
		doorbell_close(&server->doorbell);
	devices_init(&server->devices, &chosen);
	server->accounts.devices = server->devices.n;
	server->chores.may_be_apart = chosen.engine[0]->returns || chosen.engine[0]->multiprocessors == 0;
	memcpy(server->engine_note, chosen.note, sizeof chosen.note);
	if (*chosen.note)
		log_line(LOG_LEVEL_INFO, "engine %s: %s", server_engine_name(server), chosen.note);
	return 0;
}

static int random_seed(struct server *server, uint64_t *ret, struct error *err)
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes ||
	    getrandom(ret, sizeof *ret, 0) != sizeof *ret)
		return error_set(err, STATUS_INTERNAL, "getrandom: %s", strerror(errno));
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(server->boot_id + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

static void mask_stop_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(how, &set, NULL);
}

static void do_nothing(uv_work_t *work)
{
	(void)work;
}

/* The threads of libuv's pool start with the first work, and inherit the blocked signals. */
static void start_pool(struct server *server)
{
	mask_stop_signals(SIG_BLOCK);
	uv_queue_work(&server->loop, &server->first_work, do_nothing, NULL);
}

static void start_handles(struct server *server)
{
	uv_loop_t *loop = &server->loop;

	start_pool(server);
	stalls_open(&server->stalls, server);
	chores_start(&server->chores, loop, &server->accounts, &server->stalls, drain_check, server);
	uv_async_init(loop, &server->engine_done, on_engine_done);
	uv_prepare_init(loop, &server->settle);
	time_slices_open(&server->time_slices, loop, server->clock);
	submissions_open(&server->submissions, server, loop);
	uv_signal_init(loop, &server->sigterm);
	uv_signal_init(loop, &server->sigint);
	uv_signal_init(loop, &server->sighup);
	uv_timer_init(loop, &server->drain_timer);
	uv_timer_init(loop, &server->resend);
	uv_timer_init(loop, &server->idle);
	watchdog_open(&server->watchdog, server);
	server->resend.data = server->idle.data = server;
	outgoing_open(&server->outgoing, server, loop);
	refusals_open(&server->refusals, server, loop);
	trim_open(&server->trim, server, loop);
	inputs_open(&server->inputs, loop, server->limits.connections);
	server->engine_done.data = server->settle.data = server->sigterm.data = server->sigint.data =
	    server->sighup.data = server->drain_timer.data = server;
	uv_prepare_start(&server->settle, on_settle);
	uv_signal_start(&server->sigterm, drain_on_signal, SIGTERM);
	uv_signal_start(&server->sigint, drain_on_signal, SIGINT);
	uv_signal_start(&server->sighup, on_reload_signal, SIGHUP);
}

int server_init(struct server *server, const struct server_setup *setup, struct error *err)
{
	const struct options *options = setup->options;
	int kept = setup->recovery.listener, kept_metrics = setup->recovery.metrics;
	struct timespec now;
	uint64_t seed;
	int r;

	memset(server, 0, sizeof *server);
	server->thread = pthread_self();
	server->clock = setup->clock ? setup->clock : &clock_uv;
	server->limits = options->limits;
	server->recovery = setup->recovery;
	server->recovery.listener = server->recovery.metrics = -1;
	server->exporter.fd = -1;
	server->reload.started = setup->config;
	server->reload.argc = setup->argc;
	server->reload.argv = setup->argv;
	server->penalties = setup->penalties;
	server->metrics.start_ns = uv_hrtime();
	clock_gettime(CLOCK_REALTIME, &now);
	server->start_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	accounts_init(&server->accounts, &server->limits);
	server->accounts.overrides = options->overrides;
	server->accounts.trusts_own_uid = options->trust_own_uid;
	server->accounts.subuids = options->subuids;
	TAILQ_INIT(&server->sessions);
	TAILQ_INIT(&server->unsent);
	TAILQ_INIT(&server->ended);

	r = random_seed(server, &seed, err);
	if (r < 0)
		goto err_kept;
	server->seen.seed = seed;
	r = uv_loop_init(&server->loop);
	if (r < 0) {
		error_set(err, STATUS_INTERNAL, "no event loop: %s", uv_strerror(r));
		goto err_kept;
	}
	server->decoder = rpc_decoder_new();
	if (!server->decoder) {
		r = error_set(err, STATUS_NO_MEMORY, "no memory to start");
		goto err_memory;
	}
	server->descriptors = raise_fd_limit(server->limits.connections);
	r = watch_reserve(&server->loop, server->descriptors);
	if (r < 0) {
		error_set(err, STATUS_INTERNAL, "no descriptors to start: %s", strerror(-r));
		goto err_memory;
	}
	start_handles(server);
	/* A signal that arrived during the start is pending, and is handled once the loop runs. */
	mask_stop_signals(SIG_UNBLOCK);
	r = open_engines(server, setup, err);
	if (r < 0)
		goto err_handles;
	r = listener_open(&server->listener, server, kept, options, err);
	kept = -1;
	if (r < 0)
		goto err_handles;
	r = exporter_open(&server->exporter, server, kept_metrics, options->metrics, err);
	kept_metrics = -1;
	if (r < 0)
		goto err_listener;
	return 0;

err_listener:
	listener_close(&server->listener);
err_handles:
	server_stop(server);
	uv_run(&server->loop, UV_RUN_DEFAULT);
	inputs_deinit(&server->inputs);
	devices_deinit(&server->devices);
err_memory:
	rpc_decoder_free(server->decoder);
	uv_loop_close(&server->loop);
err_kept:
	listener_drop(kept);
	exporter_drop(kept_metrics);
	return err->status;
}

/* Signals that arrive from now on stay pending for the next life: no other thread takes them. Those that
 * arrived before are handled now. */
static void keep_stop_signals(struct server *server)
{
	mask_stop_signals(SIG_BLOCK);
	uv_run(&server->loop, UV_RUN_NOWAIT);
}

enum server_end server_run(struct server *server)
{
	char device[sizeof((struct engine){ 0 }).device + 32];

	server_describe(server, device, sizeof device);
	log_line(LOG_LEVEL_INFO, "ready on %s, engine %s (%s)", server->listener.path,
	         server_engine_name(server), device);
	check_fd_limit(server);
	if (!device_engine(&server->devices, 0)->watches_holes)
		log_line(LOG_LEVEL_WARNING,
		         "no userfaultfd: where clients punch holes in regions, new memory may be charged to "
		         "the service");
	notify_ready(server, "");
	server_watch_idle(server);
	watchdog_start(&server->watchdog);
	time_slices_ask_for_cpu();
	uv_run(&server->loop, UV_RUN_DEFAULT);
	if (server->state == SERVER_STUCK)
		return SERVER_END_STUCK;
	if (server->state != SERVER_LOST)
		return SERVER_END_STOPPED;
	keep_stop_signals(server);
	return SERVER_END_LOST;
}

void server_deinit(struct server *server)
{
	int r;

	jobs_free_kept(server);
	batch_free_kept(server);
	devices_deinit(&server->devices);
	rpc_decoder_free(server->decoder);
	reload_deinit(&server->reload);
	r = uv_loop_close(&server->loop);
	assert(r == 0);
	(void)r;
	assert(TAILQ_EMPTY(&server->sessions) && TAILQ_EMPTY(&server->unsent));
	assert(TAILQ_EMPTY(&server->time_slices.ready));
	inputs_deinit(&server->inputs);
	assert(server->n_regions == 0 && server->mapped_bytes == 0 && server->n_tables == 0);
	accounts_deinit(&server->accounts);
}

/* ---- An iteration ------------------------------------------------------------------------------------ */

static void reap(struct server *server)
{
	const struct served_device *lost;

	server->is_job_done = false;
	server->reaped_ns = uv_hrtime();
	lost = devices_reap(&server->devices);
	sequence_reap(server);
	server_note_losses(server);
	if (lost && server->state == SERVER_RUNNING)
		server_lose(server, lost);
}

static void on_engine_done(uv_async_t *async)
{
	reap(async->data);
}

static void flush_all(struct server *server)
{
	struct session *session;

	reap(server);
	while ((session = TAILQ_FIRST(&server->unsent)))
		session_flush(session);
}

/* Before the loop sleeps: answers small jobs that ran at once, and lets every session send its replies with
 * one call; then lets ready sessions go on, and does the same for their replies; then works for the engine.
 */
static void on_settle(uv_prepare_t *prepare)
{
	struct server *server = prepare->data;

	if (server->devices.n == 0)
		return;
	flush_all(server);
	time_slices_resume_ready(server);
	flush_all(server);
	if (devices_drive(&server->devices, DRIVE_NS)) {
		flush_all(server);
		devices_drive(&server->devices, 0);
	}
	trim_check(&server->trim);
	if (server->is_job_done) /* of a session that just ended */
		uv_async_send(&server->engine_done);
}

/* ---- Engines ----------------------------------------------------------------------------------------- */

const char *server_engine_name(const struct server *server)
{
	return device_engine(&server->devices, 0)->name;
}

void server_describe(const struct server *server, char *text, size_t size)
{
	const char *first = device_engine(&server->devices, 0)->device;

	if (server->devices.n == 1)
		snprintf(text, size, "%s", first);
	else
		snprintf(text, size, "%" PRIu32 " devices, the first: %s", server->devices.n, first);
}

/* ---- Sessions ---------------------------------------------------------------------------------------- */

uint64_t server_now_ms(const struct server *server)
{
	return server->clock->now_ms(&server->loop);
}

void server_each_session(struct server *server, void (*act)(struct session *session))
{
	struct session *session, *next;

	for (session = TAILQ_FIRST(&server->sessions); session; session = next) {
		next = TAILQ_NEXT(session, entry);
		act(session);
	}
}

uint64_t server_count_waiting(const struct server *server)
{
	const struct session *session;
	uint64_t n = 0;

	TAILQ_FOREACH(session, &server->sessions, entry)
		n += session->waiting != WAIT_NONE;
	return n;
}

/* ---- Signals and the end ----------------------------------------------------------------------------- */

static void on_reload_signal(uv_signal_t *signal, int number)
{
	(void)number;
	reload_start(signal->data);
}

void server_stop(struct server *server)
{
	server->state = SERVER_STOPPED;
	mask_stop_signals(SIG_BLOCK); /* the server stops already, and closes their handles */
	exporter_close(&server->exporter);
	outgoing_close(&server->outgoing);
	refusals_close(&server->refusals);
	inputs_close(&server->inputs);
	trim_close(&server->trim);
	chores_stop(&server->chores);
	stalls_close(&server->stalls);
	uv_close((uv_handle_t *)&server->engine_done, NULL);
	doorbell_close(&server->doorbell);
	uv_close((uv_handle_t *)&server->settle, NULL);
	time_slices_close(&server->time_slices);
	submissions_close(&server->submissions);
	uv_close((uv_handle_t *)&server->sigterm, NULL);
	uv_close((uv_handle_t *)&server->sigint, NULL);
	uv_close((uv_handle_t *)&server->sighup, NULL);
	uv_close((uv_handle_t *)&server->drain_timer, NULL);
	uv_close((uv_handle_t *)&server->resend, NULL);
	uv_close((uv_handle_t *)&server->idle, NULL);
	watchdog_close(&server->watchdog);
}
