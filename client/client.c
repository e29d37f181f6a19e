/* SPDX-License-Identifier: Apache-2.0 */
/* A client from tma_new to tma_free: its settings, connecting to a trusted service, and its errors. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/wire/socket.h"

static int client_check_peer(tma_client *client, int sock);

tma_client *tma_new(void)
{
	tma_client *client = calloc(1, sizeof *client);

	if (!client)
		return NULL;
	client->sock = -1;
	client->maps_fd = -1;
	client->timeout_ms = -1;
	client->retry_ms = CLIENT_RETRY_MS;
	client->first_done = client->last_done = NO_SLOT;
	client->decoder = rpc_decoder_new();
	if (!client->decoder) {
		free(client);
		return NULL;
	}
	return client;
}

void tma_set_timeout(tma_client *client, int timeout_ms)
{
	if (client)
		client->timeout_ms = timeout_ms < 0 ? -1 : timeout_ms;
}

void tma_set_server_uid(tma_client *client, unsigned uid)
{
	if (!client)
		return;
	client->has_server_uid = true;
	client->server_uid = uid;
}

void tma_set_reconnect(tma_client *client, int ms)
{
	if (client)
		client->retry_ms = ms < 0 ? -1 : ms;
}

void tma_set_interrupt(tma_client *client, int (*interrupted)(void *arg), void *arg)
{
	if (!client)
		return;
	client->interrupted = interrupted;
	client->interrupted_arg = arg;
}

uint32_t tma_reconnects(const tma_client *client)
{
	return client ? client->reconnects : 0;
}

int tma_connect(tma_client *client, const char *path)
{
	int64_t deadline;
	int rc;

	if (!client)
		return TMA_INVALID_ARGUMENT;
	if (client->is_device_lost)
		client_break(client, STATUS_DEVICE_LOST, "the device of tmad at %s was lost", client->path);
	if (client->sock >= 0)
		return client_fail(client, STATUS_ALREADY_EXISTS, "the client is already connected to %s",
		                   client->path);
	if (!socket_default_path(path, client->path, sizeof client->path)) {
		client->path[0] = '\0';
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "the socket's path is too long: that of a Unix socket has at most %zu bytes",
		    sizeof client->path - 1);
	}
	deadline = client_deadline(client);
	rc = client_open(client, deadline);
	if (rc < 0)
		return rc;
	client->reconnects = 0;
	return client_rejoin(client, deadline, PATIENCE_FULL);
}

/* Connects to the service's socket. Returns the connected socket or a negative errno: one of socket_connect,
 * or -EINTR if the wait was interrupted. */
static int connect_until(tma_client *client, int64_t deadline)
{
	int left_ms, slice_ms, sock;

	do {
		left_ms = client_left_ms(deadline);
		slice_ms = client_slice_ms(client, left_ms);
		sock = socket_connect(client->path, slice_ms);
		if (sock != -EAGAIN || slice_ms == left_ms)
			return sock;
	} while (!client_ask_interrupted(client));
	return -EINTR;
}

/* Connects to a service, which must run as a user that the client trusts, and sets client->sock. Returns 0 or
 * the last error. */
static int open_socket(tma_client *client, int64_t deadline)
{
	int sock = connect_until(client, deadline);
	int rc;

	if (sock == -EACCES || sock == -EPERM)
		return client_fail(client, STATUS_PERMISSION, "not allowed to connect to tmad at %s (%s)",
		                   client->path, strerror(-sock));
	if (sock == -EAGAIN)
		return client_fail(client, STATUS_NO_REPLY,
		                   "tmad at %s did not accept the connection in time", client->path);
	if (sock == -EINTR)
		return client_fail(
		    client, STATUS_NO_REPLY,
		    "a signal interrupted the call before tmad at %s had accepted the connection",
		    client->path);
	if (sock == -EMFILE || sock == -ENFILE)
		return client_fail_descriptor(client, "a connection to tmad", -sock);
	if (sock < 0)
		return client_fail(client, STATUS_DISCONNECTED, "no tmad at %s (%s)", client->path,
		                   strerror(-sock));
	rc = client_check_peer(client, sock);
	if (rc < 0) {
		close(sock);
		return rc;
	}
	if (fcntl(sock, F_SETFL, O_NONBLOCK) < 0) {
		rc = client_fail(client, STATUS_INTERNAL, "the socket cannot be made non-blocking (%s)",
		                 strerror(errno));
		close(sock);
		return rc;
	}
	client->sock = sock;
	return 0;
}

int client_open(tma_client *client, int64_t deadline)
{
	int rc = local_is_path(client->path) ? local_open(client) : open_socket(client, deadline);

	if (rc < 0)
		return rc;
	client_reset(client);
	client->n_silent = 0;
	client->connection++;
	client->is_given_up = false;
	client->is_incomplete = true;
	client_seek_lost(client);
	client->is_device_lost = false;
	return 0;
}

static int client_check_peer(tma_client *client, int sock)
{
	struct socket_peer peer;
	int rc = socket_peer(sock, &peer);

	if (rc < 0)
		return client_fail(client, STATUS_PERMISSION,
		                   "the user of the server at %s cannot be determined (%s)", client->path,
		                   strerror(-rc));
	if (peer.uid == 0 || peer.uid == geteuid() ||
	    (client->has_server_uid && peer.uid == client->server_uid))
		return 0;
	return client_fail(
	    client, STATUS_PERMISSION,
	    "the server at %s runs as uid %u; trusted are root, this user (%u) and the one named "
	    "by tma_set_server_uid (tmactl --server-user)",
	    client->path, (unsigned)peer.uid, (unsigned)geteuid());
}

void tma_free(tma_client *client)
{
	if (!client)
		return;
	stream_order_stop(client);
	if (client->sock >= 0)
		close(client->sock);
	stream_order_free(client);
	local_close(client);
	client_reset(client);
	client_free_rings(client);
	client_free_plans(client);
	client_free_tables(client);
	client_free_regions(client);
	launch_close(client);
	if (client->maps_fd >= 0)
		close(client->maps_fd);
	rpc_decoder_free(client->decoder);
	buffer_deinit(&client->in);
	buffer_deinit(&client->out);
	if (client->driver)
		device_driver_close(client->driver);
	free(client->driver);
	range_set_deinit(&client->writable);
	range_set_deinit(&client->read_only);
	range_set_deinit(&client->chunks);
	free(client->items);
	free(client->further_dst);
	free(client->slices);
	free(client->places);
	free(client->requests);
	free(client);
}

const char *tma_last_error(const tma_client *client)
{
	return client ? client->error.message : "";
}

int tma_last_status(const tma_client *client)
{
	return client ? client->error.status : 0;
}

const char *tma_socket_path(const tma_client *client)
{
	return client ? client->path : "";
}

int tma_fd(const tma_client *client)
{
	return client ? client->sock : -1;
}

int client_find_driver(tma_client *client)
{
	struct device_driver driver;
	struct error err;
	int rc = client->driver ? 0 : device_driver_open(&driver, &err);

	if (rc < 0)
		return client_fail(client, rc, "%s", err.message);
	if (client->driver)
		return 0;
	client->driver = malloc(sizeof driver);
	if (!client->driver) {
		device_driver_close(&driver);
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for the driver's functions");
	}
	*client->driver = driver;
	return 0;
}

int client_fail(tma_client *client, int status, const char *format, ...)
{
	va_list args;

	client->error.status = status;
	va_start(args, format);
	vsnprintf(client->error.message, sizeof client->error.message, format, args);
	va_end(args);
	return status;
}

int client_fail_descriptor(tma_client *client, const char *what, int error)
{
	struct rlimit limit;

	if (error != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return client_fail(client, STATUS_NO_MEMORY, "%s: no descriptor for it (%s)", what,
		                   strerror(error));
	return client_fail(client, STATUS_NO_MEMORY,
	                   "%s: no descriptor for it: RLIMIT_NOFILE of this process is %" PRIu64
	                   ", and as many are open; raise it (ulimit -n), or release regions",
	                   what, (uint64_t)limit.rlim_cur);
}

int reserved_find(const uint64_t *reserved, size_t n, const char *name, struct error *err)
{
	for (size_t i = 0; i < n; i++)
		if (reserved[i])
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s[%zu]: %#" PRIx64 ", which libtmaclient %s does not know; "
			                 "zero-initialize the struct, or use the library of your header",
			                 name, i, reserved[i], tma_version());
	return 0;
}

int reserved_check(tma_client *client, const uint64_t *reserved, size_t n, const char *name)
{
	return reserved_find(reserved, n, name, &client->error);
}

int pointer_check(const void *pointer, const char *name, const char *what, struct error *err)
{
	return pointer ? 0
	               : error_set(err, STATUS_INVALID_ARGUMENT, "%s is NULL; it is where %s", name, what);
}

int client_check_ret(tma_client *client, const void *ret, const char *what)
{
	return client ? pointer_check(ret, "ret", what, &client->error) : STATUS_INVALID_ARGUMENT;
}

int client_check(tma_client *client)
{
	if (!client)
		return STATUS_INVALID_ARGUMENT;
	if (client->sock >= 0)
		return 0;
	if (!client->ended.status)
		return client_fail(client, STATUS_DISCONNECTED, "not connected: call tma_connect first");
	return client_fail(client, STATUS_DISCONNECTED, "the connection is closed: %s",
	                   client->ended.message);
}

/* Reconnecting is not allowed after a timeout or an invalid reply: the service exists, but something is wrong
 * with it. */
int client_check_usable(tma_client *client)
{
	bool is_lost =
	    client && client->sock < 0 &&
	    (client->ended.status == STATUS_DISCONNECTED || client->ended.status == STATUS_DEVICE_LOST);

	return is_lost && client->retry_ms >= 0 ? 0 : client_check(client);
}
