/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a whole server in this process, on a real socket, with up to four clients. The input says step by step
 * what they send with which descriptors, what they close, and when work and jobs are done (steps.h). Each
 * input gets a server of its own. Whatever was sent, replies are valid, a client that comes afterwards is
 * answered, and when all clients are gone nothing of theirs is left: no charges in accounts and no
 * descriptors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/loop/log.h"
#include "daemon/server.h"
#include "daemon/net/connection.h"
#include "descriptors.h"
#include "doubles.h"
#include "fuzz.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "steps.h"

/* The socket's directory, which is removed when the process ends. */
static char directory[64], path[80];
static int descriptors[DESCRIPTOR_COUNT];
static struct options options;
static struct server *server;
static struct rpc_decoder *decoder;

struct client {
	int fd; /* -1: not connected */
	bool ended;
	struct buffer in;
	struct frame_scan scan;
	uint64_t replies;
};

static struct client clients[STEP_CONNECTIONS];

/* ---- Once --------------------------------------------------------------------------------------------- */

static void clean_up(void)
{
	unlink(path);
	rmdir(directory);
}

/* Sets small limits, which a few steps can reach. */
static void set_limits(struct limits *limits)
{
	limits_init(limits);
	limits->connections = 4;
	limits->connections_per_uid = 3;
	limits->regions_per_uid = 6;
	limits->mapped_bytes_per_uid = 6 << 16;
	limits->jobs_per_uid = 3;
	limits->queued_bytes_per_uid = 24 << 10;
	limits->pending_fds_per_uid = 6;
	limits->plans_per_uid = 4;
	limits->jobs_behind_wait = 2;
	limits->behind_waits_per_uid = 2;
	limits->table_bytes_per_uid = 2048;
	limits->list_bytes_per_uid = 1024;
	limits->wait_deadline_ms = 1000;
	limits->reply_pause_bytes = 2048;
	limits->reply_limit_bytes = 16 << 10;
	limits->plan_cache_entries = 4;
	limits->tensor_map_entries = 4;
}

static void prepare(void)
{
	snprintf(directory, sizeof directory, "/tmp/tmad-fuzz-XXXXXX");
	if (!mkdtemp(directory))
		abort();
	snprintf(path, sizeof path, "%s/s", directory);
	atexit(clean_up);
	descriptors_open(descriptors);
	log_init(LOG_LEVEL_ERROR);
	options = (struct options){ .socket = path, .engine = ENGINE_CHOICE_CPU, .threads = 1 };
	set_limits(&options.limits);
	decoder = rpc_decoder_new();
	doubles_pass(1);
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* ---- The loop ----------------------------------------------------------------------------------------- */

static bool is_closing(void)
{
	const struct account *account;

	LIST_FOREACH(account, &server->service.accounts.list, entry)
		if (account->closing > 0)
			return true;
	return false;
}

/* Runs the event loop until it would block. Descriptors that the service closes on a thread are closed
 * then. */
static void iterate(void)
{
	for (int i = 0; i < 3; i++)
		uv_run(&server->service.loop, UV_RUN_NOWAIT);
	while (is_closing())
		uv_run(&server->service.loop, UV_RUN_ONCE);
	uv_run(&server->service.loop, UV_RUN_NOWAIT);
}

/* Carries out the work and jobs that the input does not hold back. */
static void go_on(uint8_t held)
{
	bool more;

	do {
		iterate();
		more = !(held & 1) && doubles_work();
		more |= !(held & 2) && doubles_job();
	} while (more);
}

/* ---- Clients ------------------------------------------------------------------------------------------ */

/* The kernel buffers little on the service's side, so that a few unread replies already wait in the
 * service. */
static void client_open(struct client *client)
{
	struct session *session;

	*client = (struct client){ .fd = socket_connect(path, -1) };
	if (client->fd < 0) {
		client->ended = true;
		return;
	}
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	iterate();
	TAILQ_FOREACH(session, &server->service.sessions, entry)
		setsockopt(connection_of(session)->fd, SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));
}

static void client_close(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	buffer_deinit(&client->in);
	*client = (struct client){ .fd = -1 };
}

/* Checks that every whole message received is a reply. */
static void check_replies(struct client *client)
{
	struct rpc_reply reply;
	struct error err = { 0 };
	size_t len;

	while (buffer_len(&client->in) > 0) {
		const uint8_t *data = client->in.data + client->in.start;
		enum frame_result r =
		    frame_scan(&client->scan, data, buffer_len(&client->in), &frame_reply_limits, &len, &err);

		fuzz_check(r != FRAME_BROKEN, "%s", err.message);
		if (r == FRAME_PARTIAL)
			return;
		fuzz_check(rpc_decode_reply(decoder, data, len, &reply, &err) == 0, "%s", err.message);
		if (reply.error.status)
			fuzz_check_error(&reply.error);
		client->replies++;
		buffer_consume(&client->in, len, 0);
	}
}

static void client_read(struct client *client)
{
	int fds[SOCKET_MAX_FDS];
	uint8_t data[4096];
	size_t n_fds;
	ssize_t n = -EAGAIN;

	while (client->fd >= 0 && (n = socket_receive(client->fd, data, sizeof data, fds, &n_fds)) > 0) {
		for (size_t i = 0; i < n_fds; i++)
			close(fds[i]);
		if (buffer_append(&client->in, data, (size_t)n) < 0)
			abort();
		check_replies(client);
	}
	if (client->fd >= 0 && (n == 0 || n != -EAGAIN))
		client->ended = true;
}

static void client_send(struct client *client, const struct step *step)
{
	int fds[STEP_MOST_FDS];
	size_t sent = 0;

	if (client->fd < 0)
		client_open(client);
	for (int i = 0; i < step->n_fds; i++)
		fds[i] = descriptors[step->fds[i]];
	while (client->fd >= 0 && sent < step->len) {
		ssize_t n =
		    socket_send(client->fd, step->data + sent, step->len - sent, fds, sent ? 0 : step->n_fds);

		if (n <= 0)
			break; /* The client no longer reads, or the connection has ended. */
		sent += (size_t)n;
	}
}

/* ---- Steps -------------------------------------------------------------------------------------------- */

static void take(const struct step *step)
{
	static const uint16_t times[] = { 1, 100, 1100, 4900, 5100, 10100, 29900, 30100 };
	struct client *client = &clients[step->connection];

	switch ((enum step_kind)step->kind) {
	case STEP_SEND:
		client_send(client, step);
		break;
	case STEP_READ:
		client_read(client);
		break;
	case STEP_SHUT:
		if (client->fd >= 0)
			shutdown(client->fd, step->how % 3);
		break;
	case STEP_CLOSE:
		client_close(client);
		break;
	case STEP_WORK:
		doubles_work();
		break;
	case STEP_JOB:
		doubles_job();
		break;
	case STEP_TIME:
		doubles_pass(times[step->how % 8]);
		break;
	case STEP_DRAIN:
		server_drain(server);
		break;
	case STEP_KIND_COUNT:
		break;
	}
}

/* Checks that a well-behaved client is still served after the others. */
static void check_alive(void)
{
	struct step step = { .kind = STEP_SEND,
		             .len = 8,
		             .data = (const uint8_t *)"\x94\x00\x07\xa4ping\x90" };
	struct client *client = &clients[0];

	step.len = 9;
	client_send(client, &step);
	go_on(0);
	client_read(client);
	fuzz_check(client->replies == 1 && !client->ended, "%d replies to a ping", (int)client->replies);
	client_close(client);
	go_on(0);
}

/* Sockets of ended sessions are kept until the service notices that their peers are gone. */
static void check_nothing_left(void)
{
	go_on(0);
	doubles_pass(1000);
	go_on(0);
	/* Other threads carry out chores, and jobs that are too large to run in the submitting thread. */
	while (server->service.accounts.total[CHARGE_JOBS] > 0 || server->service.chores.n > 0) {
		uv_run(&server->service.loop, UV_RUN_ONCE);
		go_on(0);
	}
	fuzz_check(TAILQ_EMPTY(&server->service.sessions));
	fuzz_check(server->service.n_regions == 0 && server->service.mapped_bytes == 0);
	for (int i = 0; i < CHARGE_KIND_COUNT; i++)
		fuzz_check(server->service.accounts.total[i] == 0, "charge %d: %llu", i,
		           (unsigned long long)server->service.accounts.total[i]);
}

/* ---- The target --------------------------------------------------------------------------------------- */

static void start(void)
{
	static const struct engine_openers openers = { .cpu = doubles_engine_open };
	struct server_setup setup = { .options = &options,
		                      .openers = &openers,
		                      .recovery = { .listener = -1, .metrics = -1 } };
	struct error err;

	server = malloc(sizeof *server);
	if (!server || server_init(server, &setup, &err) < 0)
		abort();
	doubles_work(); /* The server's own work comes first; it has no effect on clients. */
	for (int i = 0; i < STEP_CONNECTIONS; i++)
		clients[i].fd = -1;
}

/* A stuck process is ended without this cleanup. Whatever was held back has been released by now, so the
 * process can end in order. */
static void stop(void)
{
	server_drain(server);
	if (server->service.state == SERVICE_STUCK) {
		server->service.state = SERVICE_DRAINING;
		server->connections.on_freed(server->connections.arg);
	}
	uv_run(&server->service.loop, UV_RUN_DEFAULT);
	server_deinit(server);
	free(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct steps steps;
	int before;

	if (!*directory) {
		prepare();
		start(); /* Descriptors that are opened once for the whole process stay open. */
		stop();
	}
	before = open_descriptors();
	steps_read(&steps, data, size);
	start();
	doubles_hold_jobs(steps.held & 2);
	for (size_t i = 0; i < steps.n; i++) {
		take(&steps.step[i]);
		go_on(steps.held);
	}
	doubles_hold_jobs(false);
	for (int i = 0; i < STEP_CONNECTIONS; i++) {
		client_read(&clients[i]);
		client_close(&clients[i]);
	}
	check_nothing_left();
	if (server->service.state == SERVICE_RUNNING)
		check_alive();
	stop();
	fuzz_check(open_descriptors() == before, "%d descriptors, %d before", open_descriptors(), before);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	return steps_mutate(data, size, max_size, seed);
}
