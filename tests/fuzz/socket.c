/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes a real tmad over its socket with valid requests and their descriptors, each with one change, most
 * often of a single byte. After each message, a ping on another connection has to be answered. At the end
 * tmad has to be the same process and hold no more descriptors and memory than before.
 *
 * Messages are sent in rounds over several connections, and the pings of a round are one write and one read,
 * so that most of the time is spent in the service.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "descriptors.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "spoil.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"
#include "traffic.h"

#define MESSAGES 1000000 /* at full length */
/* Fewest messages before the service's caches, above all that of plans, count as filled. */
#define WARM        5000
#define CONNECTIONS 64
#define A_ROUND     1 /* messages on each connection before the pings */
#define PATIENCE_MS 60000
#define MOST_KIB    8192 /* most KiB that the process may have grown by since it was warm */

struct client {
	int fd;
	struct buffer in;
	struct frame_scan scan;
	int silent; /* rounds without an answer */
};

static char directory[64], path[96];
static pid_t daemon_pid;
static int descriptors[DESCRIPTOR_COUNT];
static struct rpc_decoder *decoder;
static struct client clients[CONNECTIONS], pinger;
static uint64_t random_state = 1;
static long sent, replies, refusals, endings;

static uint64_t below(uint64_t n)
{
	return oracle_random(&random_state) % n;
}

/* ---- The daemon --------------------------------------------------------------------------------------- */

static void daemon_start(void)
{
	const char *program = getenv("TEST_TMAD");
	int fd = -1;

	snprintf(directory, sizeof directory, "/tmp/tmad-test-XXXXXX");
	if (!mkdtemp(directory))
		tap_bail_out("mkdtemp: %s", strerror(errno));
	snprintf(path, sizeof path, "%s/s", directory);
	daemon_pid = fork();
	if (daemon_pid == 0) {
		execl(program ? program : "./tmad", "tmad", "--engine=cpu", "--log-level=error",
		      "--mapped-bytes-per-uid=16777216", "--wait-deadline-ms=100", "--socket", path,
		      (char *)NULL);
		_exit(127);
	}
	for (int i = 0; fd < 0 && i < 3000; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		fd = socket_connect(path, 1000);
	}
	if (fd < 0)
		tap_bail_out("tmad does not accept on %s", path);
	close(fd);
}

/* Stops tmad. Returns whether it ends as it should. */
static bool daemon_stop(void)
{
	int status = -1;

	kill(daemon_pid, SIGTERM);
	waitpid(daemon_pid, &status, 0);
	unlink(path);
	rmdir(directory);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int daemon_descriptors(void)
{
	char name[64];
	DIR *dir;
	int n = 0;

	snprintf(name, sizeof name, "/proc/%d/fd", (int)daemon_pid);
	dir = opendir(name);
	if (!dir)
		tap_bail_out("tmad has ended");
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static long daemon_kib(void)
{
	char name[64], line[128];
	long kib = 0;
	FILE *file;

	snprintf(name, sizeof name, "/proc/%d/status", (int)daemon_pid);
	file = fopen(name, "re");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "VmRSS: %ld", &kib);
	if (file)
		fclose(file);
	return kib;
}

/* ---- Clients ------------------------------------------------------------------------------------------ */

static void client_close(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	buffer_deinit(&client->in);
	*client = (struct client){ .fd = -1 };
}

static bool client_send(struct client *client, const uint8_t *data, size_t len, const int *fds, size_t n_fds)
{
	while (len) {
		ssize_t n = socket_send(client->fd, data, len, fds, n_fds);

		if (n == -EAGAIN)
			/* The replies have to be read first: otherwise what is left would be lost, as when
			 * the connection is cut. */
			return true;
		if (n < 0)
			return false;
		data += n;
		len -= (size_t)n;
		n_fds = 0;
	}
	return true;
}

/* Creates two regions and a plan, so that most requests name existing ones. */
static void client_open(struct client *client)
{
	uint8_t message[TRAFFIC_MOST];

	*client = (struct client){ .fd = socket_connect(path, PATIENCE_MS) };
	if (client->fd < 0)
		tap_bail_out("connect: %s", strerror(-client->fd));
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	for (uint32_t i = 0; i < 2; i++)
		client_send(client, message, traffic_register(message, i), &descriptors[DESCRIPTOR_MEMFD], 1);
	client_send(client, message, traffic_request_of(message, 2, &random_state, METHOD_plan_prepare), NULL,
	            0);
}

/* Checks a whole message from the service, which has to be a reply. */
static void take_reply(const uint8_t *data, size_t len)
{
	struct rpc_reply reply;
	struct error err;

	if (rpc_decode_reply(decoder, data, len, &reply, &err) != 0)
		tap_bail_out("not a reply: %s", err.message);
	if (reply.error.status == STATUS_INTERNAL)
		tap_bail_out("a bug in the service: %s", reply.error.message);
	replies++;
	refusals += reply.error.status != 0;
}

/* Reads what has come. Returns false if the service has closed the connection. */
static bool client_read(struct client *client)
{
	static uint8_t data[65536];
	int fds[SOCKET_MAX_FDS];
	size_t n_fds, len;
	struct error err;
	ssize_t n;

	while ((n = socket_receive(client->fd, data, sizeof data, fds, &n_fds)) > 0) {
		while (n_fds > 0)
			close(fds[--n_fds]);
		if (buffer_append(&client->in, data, (size_t)n) < 0)
			tap_bail_out("no memory");
	}
	while (buffer_len(&client->in) > 0) {
		const uint8_t *start = client->in.data + client->in.start;
		enum frame_result r = frame_scan(&client->scan, start, buffer_len(&client->in),
		                                 &frame_reply_limits, &len, &err);

		if (r == FRAME_BROKEN)
			tap_bail_out("not a reply: %s", err.message);
		if (r == FRAME_PARTIAL)
			break;
		take_reply(start, len);
		client->silent = 0;
		buffer_consume(&client->in, len, 4096);
	}
	return n == -EAGAIN;
}

/* ---- Traffic ------------------------------------------------------------------------------------------ */

/* Sends a valid request with its descriptors, after one change. */
static void send_spoilt(struct client *client)
{
	uint8_t message[2 * TRAFFIC_MOST];
	const struct method *method;
	size_t len = traffic_request(message, (uint32_t)below(1000), &random_state, &method),
	       n_fds = method->fds > 0 ? 1 + (below(4) ? 0 : below(4)) : 0;
	int fds[8];

	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		fds[i] = descriptors[below(4) ? DESCRIPTOR_MEMFD : below(DESCRIPTOR_COUNT)];
	switch (below(8)) {
	case 0:
		len = spoil_somehow(message, len, sizeof message, &random_state);
		break;
	case 1: /* sends more, fewer or other descriptors, occasionally more than a message may have */
		n_fds = below(below(16) ? 4 : 8);
		break;
	default:
		len = spoil(message, len, sizeof message, SPOIL_BYTE, &random_state);
	}
	sent++;
	if (!client_read(client) || !client_send(client, message, len, fds, n_fds)) {
		endings++;
		client_close(client);
		client_open(client);
	}
}

static void ping(uint32_t n)
{
	static uint8_t pings[CONNECTIONS * A_ROUND * 16];
	struct buffer b = { .data = pings, .cap = sizeof pings };
	struct pollfd fd = { .fd = pinger.fd, .events = POLLIN };
	long before = replies, refused = refusals;

	for (uint32_t i = 0; i < n; i++)
		rpc_encode_request(&b, i, &methods[METHOD_ping], NULL);
	if (!client_send(&pinger, pings, buffer_len(&b), NULL, 0))
		tap_bail_out("the connection of the pings ended after %ld messages", sent);
	while (replies < before + n) {
		if (poll(&fd, 1, PATIENCE_MS) != 1)
			tap_bail_out("a ping was not answered, after %ld messages", sent);
		if (!client_read(&pinger))
			tap_bail_out("the connection of the pings ended after %ld messages", sent);
	}
	if (refusals != refused)
		tap_bail_out("a ping was refused, after %ld messages", sent);
	replies -= n;
}

/* Closes connections that have gone silent, with whatever is under way: most likely the service waits for the
 * rest of a message there. */
static void round_of_messages(void)
{
	for (int i = 0; i < CONNECTIONS; i++)
		for (int k = 0; k < A_ROUND; k++)
			send_spoilt(&clients[i]);
	ping(CONNECTIONS * A_ROUND);
	for (int i = 0; i < CONNECTIONS; i++) {
		bool open = client_read(&clients[i]);

		endings += !open;
		if (!open || clients[i].silent++ >= 2) {
			client_close(&clients[i]);
			client_open(&clients[i]);
		}
	}
}

static void open_all(void)
{
	for (int i = 0; i < CONNECTIONS; i++)
		client_open(&clients[i]);
}

/* Waits until the service holds as many descriptors as before, because it may release them a little later. */
static int close_all(int expected)
{
	for (int i = 0; i < CONNECTIONS; i++)
		client_close(&clients[i]);
	for (int i = 0; i < 1000 && daemon_descriptors() > expected; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	return daemon_descriptors();
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
	long most = tap_portion(MESSAGES), warm = most / 10 > WARM ? most / 10 : WARM, warm_kib, kib;
	bool native = !getenv("EMULATOR") && strcmp(getenv("TEST_SANITIZED") ?: "no", "no") == 0;
	double start;
	int idle, after;

	signal(SIGPIPE, SIG_IGN);
	descriptors_open(descriptors);
	decoder = rpc_decoder_new();
	daemon_start();
	client_open(&pinger);
	ping(1);
	idle = daemon_descriptors();

	open_all();
	while (sent < warm)
		round_of_messages();
	warm = sent;
	close_all(idle);
	warm_kib = daemon_kib();
	start = seconds();
	open_all();
	while (sent < warm + most)
		round_of_messages();
	after = close_all(idle);
	kib = daemon_kib();
	tap_note("%ld messages, %.0f a second; %ld replies, %ld of them errors; %ld connections ended", sent,
	         (double)(sent - warm) / (seconds() - start), replies, refusals, endings);
	tap_case(waitpid(daemon_pid, NULL, WNOHANG) == 0,
	         "%ld corrupted messages, a ping after each, same pid", sent);
	tap_case(after <= idle, "%d descriptors, %d before", after, idle);
	tap_case(!native || kib - warm_kib <= MOST_KIB, "VmRSS %+ld KiB since the warm-up", kib - warm_kib);
	client_close(&pinger);
	tap_case(daemon_stop(), "it stops on request");
	rpc_decoder_free(decoder);
	return tap_end();
}
