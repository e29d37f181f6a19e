/* SPDX-License-Identifier: Apache-2.0 */
/* The server starts, iterates its loop, ends, and closes its handles.
 *
 * In each iteration libuv calls back for timers, sockets and finished work; on_settle, the callback of a
 * prepare handle, then does what is left to do before the loop sleeps.
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
#include <unistd.h>

#include "daemon/jobs/batch.h"
#include "daemon/jobs/job.h"
#include "daemon/loop/log.h"
#include "daemon/loop/loop.h"
#include "daemon/memory/region.h"
#include "proto/status.h"

/* Maximum number of descriptors that the process may need besides those of its connections. Half of them are
 * for regions; the kernel lets a process map 65530 of them. */
#define DESCRIPTORS 131072

/* Maximum time in ns that an iteration of the loop spends on work of the engine (devices_drive). Waking a
 * thread and being woken by it takes about as long. */
#define DRIVE_NS 20000

static void server_note_losses(struct server *server);
static void server_lose(struct server *server, const struct served_device *device);
static void on_engine_done(uv_async_t *async);
static void on_settle(uv_prepare_t *prepare);
static void drain_on_signal(uv_signal_t *signal, int number);
static void drain_check(void *arg);
static void reap(struct server *server);
static void on_reload_signal(uv_signal_t *signal, int number);

/* ---- Start ------------------------------------------------------------------------------------------- */

/* Raises the limit on descriptors as far as is allowed and useful: each connection takes one, so does each
 * region in a file that can shrink, and so do descriptors in transit. Returns the limit. */
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

/* Logs a warning if one user may hold all descriptors. */
static void check_fd_limit(const struct server *server)
{
	const struct limits *limits = &server->service.limits;
	uint64_t connections = limits->connections < limits->connections_per_uid
	                           ? limits->connections
	                           : limits->connections_per_uid;
	const bool is_one = server->service.devices.n == 1;
	const uint64_t regions = is_one ? limits->regions_per_uid : limits->region_fds_per_uid;

	if (connections < server->connections.descriptors &&
	    limits->pending_fds_per_uid < server->connections.descriptors &&
	    limits->outgoing_fds_per_uid < server->connections.descriptors &&
	    regions < server->connections.descriptors &&
	    connections + limits->pending_fds_per_uid + limits->outgoing_fds_per_uid + regions <
	        server->connections.descriptors)
		return;
	log_line(LOG_LEVEL_WARNING,
	         "one user may take all of the %" PRIu64
	         " descriptors (LimitNOFILE=): lower connections_per_uid, pending_fds_per_uid, "
	         "outgoing_fds_per_uid and %s, or allow more",
	         server->connections.descriptors, is_one ? "regions_per_uid" : "region_fds_per_uid");
}

/* Engines call this from any thread. If it is the loop's own thread, the loop is awake and reaps before it
 * sleeps. */
static void wake(void *arg)
{
	struct server *server = arg;

	if (pthread_equal(pthread_self(), server->thread))
		server->service.is_job_done = true;
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
		                         .tensor_maps = server->service.limits.tensor_map_entries,
		                         .plans = server->service.limits.plan_cache_entries,
		                         .tunes = options->tune,
		                         .restart_pause_ms = server->service.limits.restart_pause_ms,
		                         .wake = wake,
		                         .wake_arg = server,
		                         .drives = true };
	struct chosen_engines chosen;
	int r = doorbell_open(&server->doorbell, &server->service.loop, on_doorbell, server, err);

	if (r < 0)
		return r;
	engine.wake_fd = server->doorbell.fd;
	r = engines_open(&chosen, setup->openers, options->engine, &engine, err);
	if (r < 0)
		return r;
	if (!chosen.engine[0]->returns)
		doorbell_close(&server->doorbell);
	devices_init(&server->service.devices, &chosen);
	server->service.accounts.devices = server->service.devices.n;
	server->service.chores.may_be_apart =
	    chosen.engine[0]->returns || chosen.engine[0]->multiprocessors == 0;
	memcpy(server->service.engine_note, chosen.note, sizeof chosen.note);
	if (*chosen.note)
		log_line(LOG_LEVEL_INFO, "engine %s: %s", service_engine_name(&server->service), chosen.note);
	return 0;
}

static int random_seed(struct server *server, uint64_t *ret, struct error *err)
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes ||
	    getrandom(ret, sizeof *ret, 0) != sizeof *ret)
		return error_set(err, STATUS_INTERNAL, "getrandom: %s", strerror(errno));
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(server->service.boot_id + 2 * i, 3, "%02x", bytes[i]);
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

/* Blocks the signals, and starts the threads of libuv's pool by giving them work. The threads inherit the
 * blocked signals. */
static void start_pool(struct server *server)
{
	mask_stop_signals(SIG_BLOCK);
	uv_queue_work(&server->service.loop, &server->first_work, do_nothing, NULL);
}

static void init_timer(struct server *server, uv_timer_t *timer)
{
	uv_timer_init(&server->service.loop, timer);
	timer->data = server;
}

static void start_signal(struct server *server, uv_signal_t *signal, uv_signal_cb on_signal, int number)
{
	uv_signal_init(&server->service.loop, signal);
	signal->data = server;
	uv_signal_start(signal, on_signal, number);
}

static void start_handles(struct server *server)
{
	uv_loop_t *loop = &server->service.loop;

	start_pool(server);
	init_timer(server, &server->drain_timer);
	service_start_stalls(&server->service);
	connections_start(&server->connections, &server->service, drain_check, server);
	notify_init(&server->notify, &server->service, server->connections.listener.path);
	chores_start(&server->service.chores, loop, &server->service.accounts, &server->service.stalls,
	             drain_check, server);
	uv_idle_init(loop, &server->service.submissions.spin);
	uv_async_init(loop, &server->engine_done, on_engine_done);
	uv_prepare_init(loop, &server->settle);
	server->service.submissions.spin.data = &server->service;
	server->engine_done.data = server->settle.data = server;
	uv_prepare_start(&server->settle, on_settle);
	start_signal(server, &server->sigterm, drain_on_signal, SIGTERM);
	start_signal(server, &server->sigint, drain_on_signal, SIGINT);
	start_signal(server, &server->sighup, on_reload_signal, SIGHUP);
}

int server_init(struct server *server, const struct server_setup *setup, struct error *err)
{
	const struct options *options = setup->options;
	int kept = setup->recovery.listener, kept_metrics = setup->recovery.metrics;
	uint64_t seed;
	int r;

	memset(server, 0, sizeof *server);
	server->thread = pthread_self();
	service_init(&server->service, &options->limits, setup->clock);
	server->service.recovery = setup->recovery;
	server->service.recovery.listener = server->service.recovery.metrics = -1;
	server->exporter.fd = -1;
	server->reload.started = setup->config;
	server->reload.argc = setup->argc;
	server->reload.argv = setup->argv;
	server->service.penalties = setup->penalties;
	server->service.accounts.overrides = options->overrides;
	server->service.accounts.trusts_own_uid = options->trust_own_uid;
	server->service.accounts.subuids = options->subuids;

	r = random_seed(server, &seed, err);
	if (r < 0)
		goto err_kept;
	server->service.seen.seed = seed;
	r = uv_loop_init(&server->service.loop);
	if (r < 0) {
		error_set(err, STATUS_INTERNAL, "no event loop: %s", uv_strerror(r));
		goto err_kept;
	}
	server->service.decoder = rpc_decoder_new();
	if (!server->service.decoder) {
		r = error_set(err, STATUS_NO_MEMORY, "no memory to start");
		goto err_memory;
	}
	server->connections.descriptors = raise_fd_limit(server->service.limits.connections);
	r = watch_reserve(&server->service.loop, server->connections.descriptors);
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
	r = listener_open(&server->connections.listener, &server->connections, kept, options, err);
	kept = -1;
	if (r < 0)
		goto err_handles;
	r = exporter_open(&server->exporter, &server->service, kept_metrics, options->metrics, err);
	kept_metrics = -1;
	if (r < 0)
		goto err_listener;
	return 0;

err_listener:
	listener_close(&server->connections.listener);
err_handles:
	server_stop(server);
	uv_run(&server->service.loop, UV_RUN_DEFAULT);
	inputs_deinit(&server->connections.inputs);
	devices_deinit(&server->service.devices);
err_memory:
	rpc_decoder_free(server->service.decoder);
	uv_loop_close(&server->service.loop);
err_kept:
	listener_drop(kept);
	exporter_drop(kept_metrics);
	return err->status;
}

/* Blocks the signals, so that those that arrive from now on stay pending for the program that the process
 * executes next: no other thread takes them. Those that have arrived are handled now. */
static void keep_stop_signals(struct server *server)
{
	mask_stop_signals(SIG_BLOCK);
	uv_run(&server->service.loop, UV_RUN_NOWAIT);
}

enum server_end server_run(struct server *server)
{
	char device[sizeof((struct engine){ 0 }).device + 32];

	service_describe(&server->service, device, sizeof device);
	log_line(LOG_LEVEL_INFO, "ready on %s, engine %s (%s)", server->connections.listener.path,
	         service_engine_name(&server->service), device);
	check_fd_limit(server);
	if (!device_engine(&server->service.devices, 0)->watches_holes)
		log_line(LOG_LEVEL_WARNING,
		         "no userfaultfd: where clients punch holes in regions, new memory may be charged to "
		         "the service");
	notify_ready(&server->notify, "");
	connections_watch_idle(&server->connections);
	watchdog_start(&server->notify);
	time_slices_ask_for_cpu();
	uv_run(&server->service.loop, UV_RUN_DEFAULT);
	if (server->service.state == SERVICE_STUCK)
		return SERVER_END_STUCK;
	if (server->service.state != SERVICE_LOST)
		return SERVER_END_STOPPED;
	keep_stop_signals(server);
	return SERVER_END_LOST;
}

void server_deinit(struct server *server)
{
	int r;

	jobs_free_kept(&server->service);
	batch_free_kept(&server->service);
	devices_deinit(&server->service.devices);
	rpc_decoder_free(server->service.decoder);
	reload_deinit(&server->reload);
	r = uv_loop_close(&server->service.loop);
	assert(r == 0);
	(void)r;
	assert(TAILQ_EMPTY(&server->service.sessions) && TAILQ_EMPTY(&server->connections.unsent));
	assert(TAILQ_EMPTY(&server->connections.time_slices.ready));
	inputs_deinit(&server->connections.inputs);
	assert(server->service.n_regions == 0 && server->service.mapped_bytes == 0 &&
	       server->service.n_tables == 0);
	accounts_deinit(&server->service.accounts);
}

/* ---- An iteration ------------------------------------------------------------------------------------ */

static void reap(struct server *server)
{
	const struct served_device *lost;

	server->service.is_job_done = false;
	server->service.reaped_ns = uv_hrtime();
	lost = devices_reap(&server->service.devices);
	sequence_reap(&server->service);
	server_note_losses(server);
	if (lost && server->service.state == SERVICE_RUNNING)
		server_lose(server, lost);
}

static void on_engine_done(uv_async_t *async)
{
	reap(async->data);
}

static void flush_all(struct server *server)
{
	struct connection *connection;

	reap(server);
	while ((connection = TAILQ_FIRST(&server->connections.unsent)))
		connection_flush(&connection->session);
}

/* Called before the loop sleeps. First answers small jobs that ran at once, and has every session send its
 * replies with one call. Then lets ready sessions go on, and sends their replies in the same way. Finally
 * does work of the engine (devices_drive). */
static void on_settle(uv_prepare_t *prepare)
{
	struct server *server = prepare->data;

	if (server->service.devices.n == 0)
		return;
	flush_all(server);
	time_slices_resume_ready(&server->connections.time_slices);
	flush_all(server);
	if (devices_drive(&server->service.devices, DRIVE_NS)) {
		flush_all(server);
		devices_drive(&server->service.devices, 0);
	}
	trim_check(&server->connections);
	if (server->service.is_job_done) /* jobs of a session that has just ended */
		uv_async_send(&server->engine_done);
}

/* ---- Signals and the end ----------------------------------------------------------------------------- */

static void on_reload_signal(uv_signal_t *signal, int number)
{
	(void)number;
	reload_start(signal->data);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

void server_stop(struct server *server)
{
	server->service.state = SERVICE_STOPPED;
	mask_stop_signals(SIG_BLOCK); /* the server is stopping, and closes the handles of these signals */
	exporter_close(&server->exporter);
	chores_stop(&server->service.chores);
	doorbell_close(&server->doorbell);
	uv_walk(&server->service.loop, close_handle, NULL);
}

/* ==== The end ======================================================================================== */

/* When the service stops, sessions finish the requests that have arrived. Sessions that are left after
 * drain_deadline_ms are ended. LAST_MS later the process ends, even if some sessions or threads have not
 * ended. A second signal ends the sessions without waiting for the deadline.
 *
 * When the device is lost, clients are told, and have LOST_MS to read that.
 */

/* Time in ms that sessions and jobs have to end after the drain deadline. */
#define LAST_MS 1000

/* Time in ms that clients have to read that the device is lost. */
#define LOST_MS 1000

static void on_drain_deadline(uv_timer_t *timer);
static void on_last_deadline(uv_timer_t *timer);

static void end_for_stop(struct connection *connection)
{
	session_end(&connection->session, LOG_LEVEL_NOTICE, "the service is stopping");
}

void server_drain(struct server *server)
{
	if (server->service.state != SERVICE_RUNNING)
		return;
	server->service.state = SERVICE_DRAINING;
	log_line(LOG_LEVEL_INFO, "stopping: %" PRIu64 " connection%s, %" PRIu64 " transform%s to finish",
	         server->service.accounts.total[CHARGE_CONNECTIONS],
	         text_plural(server->service.accounts.total[CHARGE_CONNECTIONS]),
	         server->service.accounts.total[CHARGE_JOBS],
	         text_plural(server->service.accounts.total[CHARGE_JOBS]));
	notify_stopping(&server->notify);
	listener_close(&server->connections.listener);
	exporter_close(&server->exporter);
	uv_timer_start(&server->drain_timer, on_drain_deadline, server->service.limits.drain_deadline_ms, 0);
	connections_each(&server->connections, connection_finish);
	outgoing_end(&server->connections);
	refusals_end(&server->connections);
	drain_check(server);
}

static void end_now(struct server *server)
{
	connections_each(&server->connections, end_for_stop);
	uv_timer_start(&server->drain_timer, on_last_deadline, LAST_MS, 0);
}

/* Handles SIGTERM and SIGINT. The first signal drains the server, the second one ends at once what is under
 * way. While the device is lost, the signal only keeps the service from starting again. */
static void drain_on_signal(uv_signal_t *signal, int number)
{
	struct server *server = signal->data;

	(void)number;
	if (server->service.state == SERVICE_LOST)
		server->stop_asked = true;
	else if (server->service.state == SERVICE_DRAINING)
		end_now(server); /* a second signal */
	else
		server_drain(server);
}

static void on_drain_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	log_line(LOG_LEVEL_WARNING, "not drained within %" PRIu64 " ms (drain_deadline_ms)",
	         server->service.limits.drain_deadline_ms);
	end_now(server);
}

static void log_stuck(struct connection *connection)
{
	struct session *session = &connection->session;

	session_log(session, LOG_LEVEL_WARNING, -1,
	            "it has not ended: %" PRIu32 " transform%s, %" PRIu32 " mapping%s, %" PRIu32
	            " ring%s under way",
	            session->jobs, text_plural(session->jobs), session->mappings,
	            text_plural(session->mappings), session->relays, text_plural(session->relays));
}

static void on_last_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	connections_each(&server->connections, log_stuck);
	async_close_log_stuck(&server->service.accounts);
	chores_log_stuck(&server->service.chores);
	server->service.state = SERVICE_STUCK;
	uv_stop(&server->service.loop);
}

/* Stops the server (if it drains) or the loop (if the device is lost) once there is nothing left to wait for.
 * arg is the server. */
static void drain_check(void *arg)
{
	struct server *server = arg;

	if (server->service.state == SERVICE_LOST && TAILQ_EMPTY(&server->service.sessions))
		uv_stop(&server->service.loop);

	if (server->service.state == SERVICE_DRAINING && TAILQ_EMPTY(&server->service.sessions) &&
	    server->service.chores.n == 0)
		server_stop(server);
}

/* ---- The device is lost ------------------------------------------------------------------------------- */

static void on_lost_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	log_line(LOG_LEVEL_WARNING, "some clients did not read within %d ms that the device was lost",
	         LOST_MS);
	uv_stop(&server->service.loop);
}

static void answer_and_finish(struct connection *connection)
{
	connection_resume(connection);
	connection_finish(connection);
}

/* Ends the service because an engine is lost for good. Work under way ends as DEVICE_LOST, in the engine or
 * in dispatch. The loop stops when all of it is answered, or when clients have had LOST_MS to read. */
static void server_lose(struct server *server, const struct served_device *device)
{
	const struct engine *engine = device->engine;

	server->service.state = SERVICE_LOST;
	if (server->service.devices.n > 1)
		log_line(LOG_LEVEL_ERROR, "engine %s of device %s is lost: %s; starting again", engine->name,
		         engine->uuid, engine->lost_why);
	else
		log_line(LOG_LEVEL_ERROR, "engine %s is lost: %s; starting again", engine->name,
		         engine->lost_why);
	notify_status(&server->notify);
	listener_pause(&server->connections.listener);
	uv_timer_start(&server->drain_timer, on_lost_deadline, LOST_MS, 0);
	connections_each(&server->connections, answer_and_finish);
	drain_check(server);
}

/* ---- A device is lost, and returns ----------------------------------------------------------------------
 */

static void finish_if_to_move(struct connection *connection)
{
	struct region *region;
	uint32_t cursor = 0;

	while ((region = region_table_next(&connection->session.regions, &cursor)))
		if (region_is_to_move(region)) {
			answer_and_finish(connection);
			return;
		}
}

static void tell_back(struct served_device *device)
{
	const struct engine *engine = device->engine;

	if (engine->dropped != device->dropped)
		log_line(LOG_LEVEL_WARNING, "device %s is back, but for %u mappings of regions: %s",
		         engine->uuid, engine->dropped - device->dropped,
		         "requests for them end with DEVICE_LOST until they are registered again");
	else
		log_line(LOG_LEVEL_INFO, "device %s is back", engine->uuid);
	device->dropped = engine->dropped;
}

/* Logs what has become of a device whose engine restarts by itself: it was lost, could not be restarted, or
 * is back. The jobs that were under way on it have ended as DEVICE_LOST; other requests are not affected. */
static void note_loss(struct server *server, struct served_device *device)
{
	const struct engine *engine = device->engine;

	if (engine->losses != device->losses) {
		log_line(LOG_LEVEL_ERROR, "device %s is lost: %s; its engine starts again", engine->uuid,
		         engine->lost_why);
		penalties_count(&server->service.penalties, uv_hrtime() / 1000000);
		device->is_away = true;
		device->is_silent = false;
		device->losses = engine->losses;
	}
	if (engine->failures != device->failures) {
		log_line(LOG_LEVEL_ERROR, "device %s does not come back: %s; its engine starts again",
		         engine->uuid, engine->lost_why);
		device->failures = engine->failures;
	}
	if (device->is_away && !engine->lost) {
		device->is_away = false;
		if (engine->dropped != device->dropped)
			connections_each(&server->connections, finish_if_to_move);
		tell_back(device);
	}
}

/* Logs which of the devices that return by themselves were lost since the last call, and which are back. */
static void server_note_losses(struct server *server)
{
	for (uint32_t i = 0; i < server->service.devices.n; i++)
		note_loss(server, &server->service.devices.of[i]);
}

void server_abandon(struct server *server)
{
	chores_leave(&server->service.chores);
	if (server->connections.listener.owns_path)
		socket_unlink(server->connections.listener.path);
	if (server->exporter.owns)
		socket_unlink(server->exporter.endpoint.path);
}
