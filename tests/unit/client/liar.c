/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a service that answers wrongly: every call ends in time with a status that says so, and no descriptor
 * that came along stays open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "proto/clock.h"
#include "proto/wire/codec.h"
#include "proto/wire/socket.h"
#include "server.h"

#define TIMEOUT_MS 300

static int count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

/* ---- One lie a row ---------------------------------------------------------------------------------- */

static void send_reply(struct server *s, uint32_t msgid, size_t len, const int *fds, size_t n_fds)
{
	struct buffer b = { 0 };

	rpc_encode_result(&b, msgid, &methods[METHOD_ping], NULL);
	if (len && len < buffer_len(&b))
		buffer_truncate(&b, len);
	server_send_with_fds(s, &b, fds, n_fds);
}

static void lie_another_msgid(struct server *s, const struct rpc_request *request)
{
	send_reply(s, request->msgid + 1, 0, NULL, 0);
}

/* The msgid names the right slot, but an earlier request in it. */
static void lie_an_old_msgid(struct server *s, const struct rpc_request *request)
{
	send_reply(s, request->msgid - 0x10000, 0, NULL, 0);
}

static void lie_garbage(struct server *s, const struct rpc_request *request)
{
	uint8_t bytes[300];
	struct buffer b = { 0 };

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(request->msgid * 77 + i * i * 31 + 0xc1);
	bytes[0] = 0xc1;
	buffer_append(&b, bytes, sizeof bytes);
	server_send(s, &b);
}

static void lie_half(struct server *s, const struct rpc_request *request)
{
	send_reply(s, request->msgid, 3, NULL, 0);
}

static void lie_silence(struct server *s, const struct rpc_request *request)
{
	(void)s;
	(void)request;
}

static void lie_twice(struct server *s, const struct rpc_request *request)
{
	struct buffer b = { 0 };

	rpc_encode_result(&b, request->msgid, &methods[METHOD_ping], NULL);
	rpc_encode_result(&b, request->msgid, &methods[METHOD_ping], NULL);
	server_send(s, &b);
}

static void lie_twice_later(struct server *s, const struct rpc_request *request)
{
	struct rpc_request next;

	send_reply(s, request->msgid, 0, NULL, 0);
	server_request(s, &next);
	send_reply(s, request->msgid, 0, NULL, 0);
	send_reply(s, next.msgid, 0, NULL, 0);
}

static void lie_descriptors(struct server *s, const struct rpc_request *request)
{
	int fds[200];

	for (size_t i = 0; i < 200; i++)
		fds[i] = s->listener;
	send_reply(s, request->msgid, 0, fds, 200);
}

/* Writes the start of a reply whose result is a string of len bytes, without the string. */
static void begin_text(struct server *s, uint32_t msgid, uint32_t len)
{
	struct buffer b = { 0 };

	pack_array(&b, 4);
	pack_uint(&b, 1);
	pack_uint(&b, msgid);
	pack_nil(&b);
	buffer_append(&b, (uint8_t[]){ 0xdb, (uint8_t)(len >> 24), (uint8_t)(len >> 16), 0, 0 }, 5);
	server_send(s, &b);
}

static void lie_too_large(struct server *s, const struct rpc_request *request)
{
	static const char text[65536];

	begin_text(s, request->msgid, 1u << 30);
	while (send(s->sock, text, sizeof text, MSG_NOSIGNAL) > 0)
		;
}

static void lie_drops(struct server *s, const struct rpc_request *request)
{
	begin_text(s, request->msgid, 0xf0000);
	while (send(s->sock, "a", 1, MSG_NOSIGNAL) > 0)
		usleep(200);
}

static void *notify_for_ever(void *arg)
{
	struct server *s = arg;
	char many[16000];

	for (size_t i = 0; i + 4 <= sizeof many; i += 4)
		memcpy(many + i, "\x93\x02\xa0\x90", 4);
	while (send(s->sock, many, sizeof many, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

/* The client always has something to read, and never the reply. Each send of these threads arrives in one
 * piece. */
static void lie_notifications(struct server *s, const struct rpc_request *request)
{
	pthread_t others[4];

	(void)request;
	for (int i = 0; i < 4; i++)
		pthread_create(&others[i], NULL, notify_for_ever, s);
	for (int i = 0; i < 4; i++)
		pthread_join(others[i], NULL);
}

struct lie {
	const char *name;
	void (*tell)(struct server *s, const struct rpc_request *request);
	int status;        /* of the first call */
	int then;          /* of the second call */
	const char *words; /* part of the message of the call that fails first */
};

#define UNASKED "which is not under way"
#define NONE    "that is not a reply"
#define LATE    "was not answered within 300 ms"

static const struct lie lies[] = {
	{ "another msgid", lie_another_msgid, TMA_PROTOCOL, TMA_DISCONNECTED, UNASKED },
	{ "an old msgid", lie_an_old_msgid, TMA_PROTOCOL, TMA_DISCONNECTED, UNASKED },
	{ "garbage", lie_garbage, TMA_PROTOCOL, TMA_DISCONNECTED, NONE },
	{ "half a reply, then silence", lie_half, TMA_NO_REPLY, TMA_DISCONNECTED, LATE },
	{ "silence", lie_silence, TMA_NO_REPLY, TMA_DISCONNECTED, LATE },
	{ "a reply twice", lie_twice, TMA_OK, TMA_DISCONNECTED, UNASKED },
	{ "a reply again, later", lie_twice_later, TMA_OK, TMA_PROTOCOL, UNASKED },
	{ "200 descriptors", lie_descriptors, TMA_OK, TMA_OK, "" },
	{ "a reply that is too large", lie_too_large, TMA_PROTOCOL, TMA_DISCONNECTED, NONE },
	{ "a byte now and then", lie_drops, TMA_NO_REPLY, TMA_DISCONNECTED, LATE },
	{ "notifications without end", lie_notifications, TMA_NO_REPLY, TMA_DISCONNECTED, LATE },
};

static size_t chosen; /* index into lies */

ParameterizedTestParameters(liar, tells)
{
	static size_t rows[sizeof lies / sizeof lies[0]];

	for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
		rows[i] = i;
	return cr_make_param_array(size_t, rows, sizeof lies / sizeof lies[0]);
}

/* Answers the first request with a lie, and all others as it should. */
static void script_lie(struct server *s)
{
	struct rpc_request request;

	if (server_request(s, &request))
		lies[chosen].tell(s, &request);
	server_polite(s);
}

ParameterizedTest(size_t *row, liar, tells, .timeout = 30)
{
	const struct lie *lie = &lies[*row];
	struct server s = { 0 };
	tma_client *client;
	int64_t start;
	int before, status;

	chosen = *row;
	server_start(&s, script_lie);
	client = server_client(&s, TIMEOUT_MS);
	tma_set_reconnect(client, 1000);
	before = count_fds(); /* The service may open its side of the connection after this. */
	start = clock_ms();
	status = tma_ping(client);
	cr_assert_eq(status, lie->status, "%s: %s: %s", lie->name, tma_status_name(status),
	             tma_last_error(client));
	if (status)
		cr_assert(strstr(tma_last_error(client), lie->words), "%s: %s", lie->name,
		          tma_last_error(client));
	status = tma_ping(client);
	cr_assert_eq(status, lie->then, "%s: then %s: %s", lie->name, tma_status_name(status),
	             tma_last_error(client));
	if (!lie->status && status)
		cr_assert(strstr(tma_last_error(client), lie->words), "%s: %s", lie->name,
		          tma_last_error(client));
	cr_assert_lt(clock_ms() - start, 5000, "%s: it took %d ms", lie->name, (int)(clock_ms() - start));
	cr_assert_eq(tma_reconnects(client), 0, "%s: it is not asked again", lie->name);
	if (status == TMA_OK)
		cr_assert_leq(count_fds(), before + 1, "%s: descriptors stay", lie->name);
	tma_free(client);
	server_stop(&s);
}

/* ---- Descriptors with replies that take one --------------------------------------------------------- */

static size_t n_sent;

static void script_created(struct server *s)
{
	struct msg_region_created done = { .region = 1, .size = 4096, .kind = REGION_KIND_MEMFD };
	int fd = memfd_create("region", MFD_CLOEXEC), fds[8];
	struct rpc_request request;
	struct buffer b = { 0 };

	cr_assert_eq(ftruncate(fd, 4096), 0);
	for (int i = 0; i < 8; i++)
		fds[i] = fd;
	while (server_request(s, &request)) {
		if (request.method->id != METHOD_region_create) {
			server_answer_true(s, &request);
			continue;
		}
		rpc_encode_result(&b, request.msgid, request.method, &done);
		server_send_with_fds(s, &b, fds, n_sent);
	}
	close(fd);
}

Test(liar, a_descriptor_too_many)
{
	struct server s = { 0 };
	tma_region *region;
	tma_client *client;
	int before;

	n_sent = 8;
	server_start(&s, script_created);
	client = server_client(&s, TIMEOUT_MS);
	cr_assert_eq(tma_ping(client), 0);
	before = count_fds();
	for (int i = 0; i < 20; i++)
		cr_assert_eq(tma_region_create(client, 4096, &region), 0, "%s", tma_last_error(client));
	cr_assert_eq(count_fds(), before + 20, "one a region");
	tma_free(client);
	server_stop(&s);
}

Test(liar, no_descriptor_at_all)
{
	struct server s = { 0 };
	tma_region *region;
	tma_client *client;

	n_sent = 0;
	server_start(&s, script_created);
	client = server_client(&s, TIMEOUT_MS);
	cr_assert_eq(tma_region_create(client, 4096, &region), TMA_PROTOCOL);
	cr_assert(strstr(tma_last_error(client), "no file descriptor came"), "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* ---- A service that does not even accept ------------------------------------------------------------ */

static void on_alarm(int number)
{
	(void)number;
}

/* Signals that interrupt the wait do not extend it. */
Test(liar, a_full_queue_is_waited_for_no_longer_than_the_timeout, .timeout = 30)
{
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	struct sigaction action = { .sa_handler = on_alarm };
	char directory[] = "/tmp/tma-client-XXXXXX", path[64];
	tma_client *client = tma_new();
	int listener, queued[2];
	int64_t start;

	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/sock", directory);
	listener = socket_listen(path, 0, 0600);
	for (int i = 0; i < 2; i++)
		queued[i] = socket_connect(path, 0);
	cr_assert_eq(queued[1], -EAGAIN);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	tma_set_timeout(client, TIMEOUT_MS);
	start = clock_ms();
	cr_assert_eq(tma_connect(client, path), TMA_NO_REPLY, "%s", tma_last_error(client));
	cr_assert_geq(clock_ms() - start, TIMEOUT_MS - 50);
	cr_assert_lt(clock_ms() - start, 5000);
	tma_set_timeout(client, 0);
	cr_assert_eq(tma_connect(client, path), TMA_NO_REPLY);
	tma_free(client);
	close(queued[0]);
	close(listener);
	unlink(path);
	rmdir(directory);
}
