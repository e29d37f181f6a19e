/* SPDX-License-Identifier: Apache-2.0 */
/* Refused connections have no poll handles: they are few, and a timer checks all of them. */
#include "refusal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire/buffer.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "daemon/server.h"

#define CHECK_MS 10
#define WAIT_MS  1000

static void on_check(uv_timer_t *timer);

void refusals_open(struct refusals *refusals, struct server *server, uv_loop_t *loop)
{
	refusals->server = server;
	uv_timer_init(loop, &refusals->timer);
	refusals->timer.data = refusals;
}

void refusals_close(struct refusals *refusals)
{
	uv_close((uv_handle_t *)&refusals->timer, NULL);
}

/* ---- One ---------------------------------------------------------------------------------------------- */

/* Leaves the request, and the descriptors that came with it, in the socket. */
static enum rpc_head peek(int fd, uint32_t *ret_msgid)
{
	uint8_t head[RPC_HEAD_BYTES];
	ssize_t n = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? RPC_HEAD_SHORT : RPC_HEAD_OTHER;
	return n == 0 ? RPC_HEAD_OTHER : rpc_find_msgid(head, (size_t)n, ret_msgid);
}

static void answer(int fd, uint32_t msgid, const struct error *err)
{
	struct buffer reply = { 0 };

	if (rpc_encode_last_error(&reply, msgid, err) == 0)
		send(fd, reply.data + reply.start, buffer_len(&reply), MSG_DONTWAIT | MSG_NOSIGNAL);
	buffer_deinit(&reply);
}

/* Returns whether there is nothing more to wait for. */
static bool try_to_answer(int fd, const struct error *err)
{
	uint32_t msgid = 0;
	enum rpc_head head = peek(fd, &msgid);

	if (head == RPC_HEAD_REQUEST)
		answer(fd, msgid, err);
	return head != RPC_HEAD_SHORT;
}

static void close_one(struct server *server, struct account *account, int fd)
{
	struct charge none = { 0 };

	async_close_socket(&server->chores, account, fd, &none);
	account_unref(account);
}

/* ---- Those that wait ---------------------------------------------------------------------------------- */

static void drop(struct refusals *refusals, uint32_t i)
{
	struct refusal *refusal = &refusals->of[i];

	close_one(refusals->server, refusal->account, refusal->fd);
	refusals->n--;
	memmove(refusal, refusal + 1, (refusals->n - i) * sizeof *refusal);
}

/* Refusals of the same uid make room first. */
static void make_room(struct refusals *refusals, const struct account *account)
{
	uint32_t of_uid = 0, oldest = 0;

	for (uint32_t i = refusals->n; i-- > 0;)
		if (refusals->of[i].account == account) {
			of_uid++;
			oldest = i;
		}
	if (of_uid == REFUSALS_MOST_OF_UID)
		drop(refusals, oldest);
	else if (refusals->n == REFUSALS_MOST)
		drop(refusals, 0);
}

static void add(struct refusals *refusals, struct account *account, int fd, const struct error *err)
{
	make_room(refusals, account);
	refusals->of[refusals->n++] = (struct refusal){
		.account = account, .fd = fd, .since_ms = uv_now(&refusals->server->loop), .error = *err
	};
	if (!uv_is_active((uv_handle_t *)&refusals->timer))
		uv_timer_start(&refusals->timer, on_check, CHECK_MS, CHECK_MS);
}

void refuse_socket(struct server *server, int fd, struct account *account, const struct error *err)
{
	struct socket_peer peer;

	if (!account && socket_peer(fd, &peer) == 0)
		account = account_of_peer(&server->accounts, peer.uid);
	server->metrics.connections_refused++;
	if (!account)
		close(fd);
	else if (!err || server->state != SERVER_RUNNING || try_to_answer(fd, err))
		close_one(server, account, fd);
	else
		add(&server->refusals, account, fd, err);
}

static void on_check(uv_timer_t *timer)
{
	struct refusals *refusals = timer->data;
	uint64_t now = uv_now(timer->loop);

	for (uint32_t i = 0; i < refusals->n;) {
		struct refusal *refusal = &refusals->of[i];

		if (try_to_answer(refusal->fd, &refusal->error) || now - refusal->since_ms >= WAIT_MS)
			drop(refusals, i);
		else
			i++;
	}
	if (refusals->n == 0)
		uv_timer_stop(timer);
}

void refusals_end(struct refusals *refusals)
{
	while (refusals->n > 0)
		drop(refusals, refusals->n - 1);
	uv_timer_stop(&refusals->timer);
}
