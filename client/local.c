/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of "local:" have no service: libtma-local answers their requests in this process, within the call
 * that sends them, except for late requests, which wait for points (door.h). An eventfd takes the place of
 * the socket. It is readable once a ticket or late request has ended, or a request without a reply has
 * failed, until tma_dispatch is called. */
#include "client.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LIBRARY    "libtma-local.so"
#define FOLDER     "tmad/" /* folder of the library, beside libtmaclient */
#define KEEP_BYTES (256 * 1024)

/* NULL unless libtma-local is linked into the program, as in the Python package; no file is loaded then. */
extern const struct local_door *tma_local_door(void) __attribute__((weak));

/* ---- The library -------------------------------------------------------------------------------------- */

/* Sets path to the file `name` beside the library or program that contains this code. Returns whether the
 * file exists. Also returns false if the path of that library or program is not absolute, as that of a
 * program may be. */
static bool find_beside(const char *name, char path[PATH_MAX])
{
	const struct link_map *library = NULL;
	const char *slash;
	Dl_info ignored;

	if (!dladdr1((const void *)(uintptr_t)tma_version, &ignored, (void **)&library, RTLD_DL_LINKMAP) ||
	    !library || library->l_name[0] != '/')
		return false;
	slash = strrchr(library->l_name, '/');
	return snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - library->l_name), library->l_name, name) <
	           PATH_MAX &&
	       access(path, F_OK) == 0;
}

/* Loads the library permanently, because its threads may run at any time. Returns NULL if that fails; dlerror
 * then says why. */
static void *load(void)
{
	char path[PATH_MAX];
	const bool is_beside = find_beside(FOLDER LIBRARY, path) || find_beside(LIBRARY, path);

	return dlopen(is_beside ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

int local_find_door(tma_client *client, struct error *err)
{
	const struct local_door *(*door)(void) = tma_local_door, *found;
	void *library = door ? NULL : load();

	if (!door && !library)
		return error_set(err, STATUS_UNSUPPORTED, "local: %s cannot be loaded (%s)", LIBRARY,
		                 dlerror());
	if (!door)
		*(void **)&door = dlsym(library, "tma_local_door");
	if (!door)
		return error_set(err, STATUS_UNSUPPORTED, "local: %s has no door (%s)", LIBRARY, dlerror());
	found = door();
	if (strcmp(found->version, PACKAGE_VERSION) != 0)
		return error_set(err, STATUS_UNSUPPORTED, "local: %s has version %s; this is libtmaclient %s",
		                 LIBRARY, found->version, PACKAGE_VERSION);
	client->door = found;
	return 0;
}

/* ---- The connection ----------------------------------------------------------------------------------- */

bool local_is_path(const char *path)
{
	return path && strcmp(path, LOCAL_PATH) == 0;
}

int local_open(tma_client *client)
{
	struct local_session *session;
	struct error err;
	int r = local_find_door(client, &err), fd;

	if (r < 0)
		return client_fail(client, r, "%s", err.message);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return client_fail_descriptor(client, "local", errno);
	r = client->door->open(&session, fd, &err);
	if (r < 0) {
		close(fd);
		return client_fail(client, r, "%s", err.message);
	}
	client->local = session;
	client->local_pid = getpid();
	client->sock = fd;
	return 0;
}

void local_close(tma_client *client)
{
	if (client->local)
		client->door->close(client->local);
	client->local = NULL;
	client->has_late = false;
}

int local_register(tma_region *region, const void *address)
{
	tma_client *client = region->client;
	int r = client->door->map(client->local, address, region->size, region->writable, &region->id,
	                          &client->error);

	if (r < 0)
		return r;
	region->connection = client->connection;
	region->life = REGION_KNOWN;
	return 0;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

bool local_is_idle(const tma_client *client)
{
	return client->local && !client->is_incomplete && !client->has_late && buffer_len(&client->out) == 0;
}

int local_transform(tma_client *client, const struct tma_transform *t)
{
	union params params;
	union local_result result;
	struct error err;
	int r = order_check_waiting(client, t ? t->order : NULL);

	if (r == 0) {
		params.transform = (struct msg_transform){ 0 }; /* Absent fields read as 0. */
		r = transform_params(client, t, &params.transform);
	}
	if (r == 0)
		r = order_fill(transform, client, t->order, &params.transform);
	if (r < 0)
		return move_unsent(client, r);
	r = client->door->run(client->local, METHOD_transform, &params, &result, &err);
	client->last_result = (struct tma_result){ .status = r, .reconnects = client->reconnects };
	if (r < 0) {
		client->error = err;
		return r;
	}
	result_of_transform(&client->last_result, &result.transform_done);
	return 0;
}

bool local_exchange(tma_client *client)
{
	struct buffer *out = &client->out;
	const size_t len = buffer_len(out);
	struct frame_scan scan = { 0 };
	struct error err;
	size_t at = 0, message;

	while (at < len && frame_scan(&scan, out->data + out->start + at, len - at, &frame_request_limits,
	                              &message, &err) == FRAME_COMPLETE) {
		bool is_late;

		if (client->door->serve(client->local, out->data + out->start + at, message, &client->in,
		                        &is_late, &err) < 0) {
			client_break(client, err.status, "%s", err.message);
			return false;
		}
		client->has_late |= is_late;
		at += message;
	}
	if (at < len) {
		client_break(client, STATUS_INTERNAL, "%s", err.message);
		return false;
	}
	client->sent += len;
	buffer_consume(out, len, KEEP_BYTES);
	return true;
}

bool local_receive(tma_client *client)
{
	struct error err;
	int r = client->has_late ? client->door->take(client->local, &client->in, &err) : 0;

	if (r < 0) {
		client_break(client, r, "%s", err.message);
		return false;
	}
	client->has_late = r > 0;
	return true;
}

bool local_await(tma_client *client, int timeout_ms)
{
	return client->door->await(client->local, timeout_ms);
}

bool local_take_back(tma_client *client, uint32_t slot)
{
	return client->door->cancel(client->local, request_msgid(&client->requests[slot], slot));
}

/* Returns whether this process opened the session. A forked child shares the eventfd with its parent, so it
 * must neither write nor read it. */
static bool is_own(const tma_client *client)
{
	return client->local_pid == getpid();
}

void local_tell(tma_client *client, int n_ended)
{
	if (is_own(client))
		eventfd_write(client->sock, n_ended > 0 ? (eventfd_t)n_ended : 1);
}

void local_untell(tma_client *client)
{
	const int ended = local_take_ended(client);

	if (ended > 1)
		local_tell(client, ended - 1);
}

int local_take_ended(tma_client *client)
{
	eventfd_t ended = 0;

	if (is_own(client))
		eventfd_read(client->sock, &ended);
	return (int)ended;
}
