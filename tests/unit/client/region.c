/* SPDX-License-Identifier: Apache-2.0 */
/* Tests regions: whether a reply brings a descriptor, and handles that outlive their connection. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "server.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int memory_of(size_t size)
{
	int fd = memfd_create("region", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

/* The service is asked for its engine once, and creates nothing. */
static void script_create(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	server_answer_info(s, &request, "cpu");
	for (uint64_t id = 9; id < 12; id++) {
		server_request(s, &request);
		cr_assert_eq(request.method->id, METHOD_region_register);
		cr_assert_eq(request.params.region_register.kind, REGION_KIND_MEMFD);
		cr_assert_eq(request.params.region_register.size, 8192);
		cr_assert_eq(request.params.region_register.offset, 0);
		cr_assert_eq(request.params.region_register.writable, true);
		server_answer_registered(s, &request, id);
	}
	server_polite(s);
}

static void check_created(tma_region *region)
{
	static const char zeros[8192];
	int fd = tma_region_fd(region);
	char byte = 0;
	struct stat st;

	cr_assert_eq(tma_region_size(region), 8192);
	cr_assert_eq(tma_region_kind(region), TMA_REGION_MEMFD);
	cr_assert_eq(memcmp(tma_region_data(region), zeros, 8192), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_blocks * 512, 8192, "its pages are the caller's to make");
	cr_assert_eq(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
	             F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	memset(tma_region_data(region), 1, 8192);
	cr_assert_eq(pread(fd, &byte, 1, 8191), 1);
	cr_assert_eq(byte, 1);
}

Test(region, created_memory_is_made_here)
{
	int fds = count_fds();
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;

	server_start(&s, script_create);
	client = server_client(&s, 5000);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(i == 2 ? tma_region_create_kind(client, TMA_REGION_MEMFD, 8192, &region)
		                    : tma_region_create(client, 8192, &region),
		             0, "%s", tma_last_error(client));
		check_created(region);
	}
	cr_assert_eq(tma_region_release(region), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_release(NULL), 0);
	cr_assert_eq(tma_region_create(client, 0, &region), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_region_create(client, (size_t)1 << 60, &region), TMA_NO_MEMORY);
	cr_assert_not_null(strstr(tma_last_error(client), "1152921504606846976 bytes"), "%s",
	                   tma_last_error(client));
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(count_fds(), fds);
}

/* Replies of a service that asks for seals, of one that does not, and of one that knows nothing of them. */
static void script_seals(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	server_answer_info(s, &request, "cpu");
	for (uint64_t id = 0; id < 3; id++) {
		struct msg_region_registered done = {
			.has = F(region_registered, seal), .region = id, .size = 8192, .seal = true
		};

		server_request(s, &request);
		if (id < 2)
			server_answer(s, &request, &done);
		else
			server_answer_registered(s, &request, id);
	}
	server_polite(s);
}

Test(region, is_sealed_if_it_was_made_here_for_a_service_that_asks)
{
	struct server s = { 0 };
	tma_region *regions[3];
	tma_client *client;
	int fd = memory_of(8192);

	server_start(&s, script_seals);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_create(client, 8192, &regions[0]), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 8192, 0, &regions[1]), 0);
	cr_assert_eq(tma_region_create(client, 8192, &regions[2]), 0);
	for (int i = 0; i < 3; i++) {
		struct tma_tensor t = { .region = regions[i], .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };

		cr_assert_not(region_is_sealed(regions[i]), "%d: not before it is used", i);
		cr_assert_eq(tma_transform(client, &(struct tma_transform){ .dst = &t, .src = &t }), 0,
		             "%d: %s", i, tma_last_error(client));
		cr_assert_eq(region_is_sealed(regions[i]), i == 0 && client->can_move == ANSWER_YES, "%d", i);
	}
	close(fd);
	tma_free(client);
	server_stop(&s);
}

/* Replies of a service that adds the seals itself. */
static void script_must_seal(struct server *s)
{
	struct rpc_request request;

	for (uint64_t id = 0; id < 4; id++) {
		struct msg_region_registered done = { .has = F(region_registered, seal) |
			                                     F(region_registered, must_seal),
			                              .region = id,
			                              .size = 8192,
			                              .seal = true,
			                              .must_seal = true };

		server_request(s, &request);
		cr_assert_eq(request.method->id, METHOD_region_register);
		server_answer(s, &request, &done);
	}
	server_polite(s);
}

Test(region, takes_seals_for_a_service_that_seals_whoever_shares_it)
{
	struct server s = { 0 };
	tma_region *regions[3], *mine = NULL, *again = NULL;
	struct tma_mapping mapping;
	tma_client *client;
	char *data;
	int fd = memory_of(8192);

	server_start(&s, script_must_seal);
	client = server_client(&s, 5000);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 8192, &regions[i]), 0, "%s",
		             tma_last_error(client));
	cr_assert_geq(tma_region_fd(regions[0]), 0);
	cr_assert_eq(tma_region_map(regions[1], &mapping), 0);
	data = tma_region_data(regions[2]);
	cr_assert_eq(tma_region_from_host_ptr(client, data, 8192, 0, &again), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(again, regions[2], "it has no other region");
	cr_assert_eq(tma_region_from_host_ptr(client, data + 1, 8191, 0, &again), TMA_PERMISSION);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 8192, 0, &mine), 0);
	for (int i = 0; i < 3; i++) {
		struct tma_tensor t = { .region = regions[i], .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };

		cr_assert_eq(tma_transform(client, &(struct tma_transform){ .dst = &t, .src = &t }), 0,
		             "%d: %s", i, tma_last_error(client));
		cr_assert_eq(fcntl(regions[i]->fd, F_GET_SEALS) & F_SEAL_SEAL, 0, "%d", i);
		cr_assert_eq(!!(fcntl(regions[i]->fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE),
		             i == 2 && client->can_move == ANSWER_YES,
		             "%d: others may have yet to map what was given away", i);
	}
	cr_assert_not(region_is_sealed(mine), "it is not the library's");
	close(fd);
	tma_free(client);
	server_stop(&s);
}

static void script_no_fd(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	server_answer_info(s, &request, "cuda");
	server_request(s, &request);
	server_answer_created(s, &request, 9, -1);
	server_polite(s);
}

Test(region, a_reply_without_its_fd_breaks_the_protocol)
{
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;

	server_start(&s, script_no_fd);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_create(client, 8192, &region), TMA_PROTOCOL);
	cr_assert_not_null(strstr(tma_last_error(client), "no file descriptor"), "%s",
	                   tma_last_error(client));
	cr_assert_null(region);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	tma_free(client);
	server_stop(&s);
}

static void script_short(struct server *s)
{
	struct rpc_request request;
	int fd = memory_of(4096);

	server_request(s, &request);
	server_answer_info(s, &request, "cuda");
	server_request(s, &request);
	server_answer_created(s, &request, 9, fd);
	close(fd);
	server_polite(s);
}

Test(region, memory_shorter_than_it_says_is_refused)
{
	int fds = count_fds();
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;

	server_start(&s, script_short);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_create(client, 8192, &region), TMA_PROTOCOL);
	cr_assert_not_null(strstr(tma_last_error(client), "4096 bytes, but 8192"), "%s",
	                   tma_last_error(client));
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(count_fds(), fds);
}

static void script_many_fds(struct server *s)
{
	struct rpc_request request;
	struct buffer b = { 0 };
	int fds[40];

	for (int i = 0; i < 40; i++)
		fds[i] = memory_of(1);
	server_request(s, &request);
	rpc_encode_result(&b, request.msgid, request.method, NULL);
	server_send_with_fds(s, &b, fds, 40);
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	server_polite(s);
}

Test(region, fds_that_nobody_asked_for_are_closed)
{
	int fds = count_fds();
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_many_fds);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(count_fds(), fds);
}

static int came; /* descriptors that a request brought */

static void script_register(struct server *s)
{
	struct msg_region_registered done = { .has = 3, .region = 5, .size = 4096 };
	struct rpc_request request;
	struct buffer b = { 0 };
	char control[CMSG_SPACE(4 * sizeof(int))];
	char data[512];
	struct iovec iov = { data, sizeof data };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	struct cmsghdr *c;
	ssize_t n;
	int fd;

	server_request(s, &request); /* reads the ping that comes first */
	server_answer_true(s, &request);
	n = recvmsg(s->sock, &message, 0);
	for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		came += (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
		close(fd);
	}
	buffer_append(&s->in, data, (size_t)n);
	server_request(s, &request);
	rpc_encode_result(&b, request.msgid, request.method, &done);
	server_send(s, &b);
	server_polite(s);
}

Test(region, registering_sends_the_fd_once)
{
	int fds = count_fds();
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;
	int fd = memory_of(4096);

	server_start(&s, script_register);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_region_register_memfd(client, -1, 0, 4096, 0, &region), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 2, &region), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &region), 0, "%s",
	             tma_last_error(client));
	cr_assert_null(tma_region_data(region));
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
	close(fd);
	cr_assert_eq(came, 1);
	cr_assert_eq(count_fds(), fds);
}

static void script_create_and_go(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	server_answer_registered(s, &request, 9);
	server_request(s, &request);
}

/* A region goes along to another connection by its fd. */
static void script_register_and_copy(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	cr_assert_eq(request.method->id, METHOD_region_register);
	cr_assert_eq(request.params.region_register.kind, REGION_KIND_MEMFD);
	cr_assert_eq(request.params.region_register.size, 8192);
	server_answer_registered(s, &request, 77);
	server_request(s, &request);
	cr_assert_eq(request.params.transform.dst.region, 77);
	server_answer_transform(s, request.msgid, "memcpy", 4);
	server_polite(s);
}

Test(region, a_handle_outlives_its_connection)
{
	struct server s = { 0 };
	struct server other = { 0 };
	struct tma_tensor t = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
	tma_client *client;
	tma_client *stranger;

	server_start(&s, script_create_and_go);
	server_start(&other, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 8192, &t.region), 0, "%s",
	             tma_last_error(client));
	stranger = server_client(&other, 5000);
	cr_assert_eq(tma_copy(stranger, &t, &t), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(stranger), "dst.region: it belongs to another client"));
	tma_free(stranger);
	server_stop(&other);

	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_copy(client, &t, &t), TMA_DISCONNECTED);
	memset(tma_region_data(t.region), 1, 8192);
	other = (struct server){ 0 };
	server_start(&other, script_register_and_copy);
	cr_assert_eq(tma_connect(client, other.path), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_copy(client, &t, &t), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 0, "it was not the library that connected");
	cr_assert_eq(tma_region_release(t.region), 0);
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
	server_stop(&other);
}

/* ---- Holes ------------------------------------------------------------------------------------------ */

static void script_register_all(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request))
		if (request.method->id == METHOD_region_register)
			server_answer_registered(s, &request, 5);
		else
			server_answer_true(s, &request);
}

struct hole_row {
	char name[24];
	bool unsealed;  /* no seal against shrinking, which the service requires */
	bool sealed;    /* sealed against writing */
	bool read_only; /* the descriptor is read-only */
	uint64_t offset, size;
	long pages; /* pages of 64 that have memory afterwards; page 20 has it from the start */
};

ParameterizedTestParameters(region, holes_are_filled)
{
	static struct hole_row rows[] = {
		{ .name = "all of it", .size = 64 * 4096, .pages = 64 },
		{ .name = "a part", .offset = 4095, .size = 4098, .pages = 4 },
		{ .name = "read-only", .read_only = true, .size = 64 * 4096, .pages = 64 },
		{ .name = "sealed", .sealed = true, .size = 64 * 4096, .pages = 64 },
		{ .name = "nothing to fill", .offset = 20 * 4096, .size = 4096, .pages = 1 },
		{ .name = "unsealed", .unsealed = true, .size = 64 * 4096, .pages = 64 },
		{ .name = "a part, unsealed", .unsealed = true, .offset = 4095, .size = 4098, .pages = 4 },
		{ .name = "beyond the end", .offset = 4096, .size = 64 * 4096, .pages = 1 },
	};

	return cr_make_param_array(struct hole_row, rows, sizeof rows / sizeof rows[0]);
}

static int sparse_memory(const struct hole_row *row)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING), other;
	char path[32];

	cr_assert_eq(ftruncate(fd, 64 * 4096), 0);
	cr_assert_eq(pwrite(fd, "here", 4, 20 * 4096), 4);
	if (!row->unsealed)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | (row->sealed ? F_SEAL_WRITE : 0)), 0);
	if (!row->read_only)
		return fd;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(other, 0);
	close(fd);
	return other;
}

ParameterizedTest(struct hole_row *row, region, holes_are_filled)
{
	struct server s = { 0 };
	tma_region *region;
	tma_client *client;
	char text[5] = "";
	struct stat st;
	int fd;

	server_start(&s, script_register_all);
	client = server_client(&s, 5000);
	fd = sparse_memory(row);
	cr_assert_eq(tma_region_register_memfd(client, fd, row->offset, row->size,
	                                       row->read_only || row->sealed ? TMA_REGION_READ_ONLY : 0,
	                                       &region),
	             0, "%s: %s", row->name, tma_last_error(client));
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_blocks * 512 / 4096, row->pages, "%s: %ld pages", row->name,
	             (long)st.st_blocks * 512 / 4096);
	cr_assert_eq(pread(fd, text, 4, 20 * 4096), 4);
	cr_assert_str_eq(text, "here", "%s", row->name);
	close(fd);
	tma_free(client);
	server_stop(&s);
}

/* ---- Kinds ------------------------------------------------------------------------------------------ */

struct kind_row {
	char name[24];
	enum tma_region_kind asked;
	bool was_asked; /* the client asked for a kind */
	enum region_kind kind;
	bool has_fd;
	size_t handle_len;
	int status;
	char error[48];
};

static struct kind_row answer;

ParameterizedTestParameters(region, kinds)
{
	static struct kind_row rows[] = {
		{ .name = "any is a memfd", .kind = REGION_KIND_MEMFD, .has_fd = true },
		{ .name = "any is an allocation", .kind = REGION_KIND_CUDA_FD, .has_fd = true },
		{ .name = "any is a handle", .kind = REGION_KIND_CUDA_IPC, .handle_len = 64 },
		{ .name = "an allocation",
		  .asked = TMA_REGION_CUDA_FD,
		  .was_asked = true,
		  .kind = REGION_KIND_CUDA_FD,
		  .has_fd = true },
		{ .name = "a handle",
		  .asked = TMA_REGION_CUDA_IPC,
		  .was_asked = true,
		  .kind = REGION_KIND_CUDA_IPC,
		  .handle_len = 64 },
		{ .name = "another one",
		  .asked = TMA_REGION_CUDA_IPC,
		  .was_asked = true,
		  .kind = REGION_KIND_CUDA_FD,
		  .has_fd = true,
		  .status = TMA_PROTOCOL,
		  .error = "a cuda_fd, but a cuda_ipc was requested" },
		{ .name = "a short handle",
		  .kind = REGION_KIND_CUDA_IPC,
		  .handle_len = 63,
		  .status = TMA_PROTOCOL,
		  .error = "a handle of 63 bytes" },
		{ .name = "no handle",
		  .kind = REGION_KIND_CUDA_IPC,
		  .status = TMA_PROTOCOL,
		  .error = "a handle of 0 bytes" },
		{ .name = "no fd",
		  .kind = REGION_KIND_CUDA_FD,
		  .status = TMA_PROTOCOL,
		  .error = "no file descriptor" },
	};

	return cr_make_param_array(struct kind_row, rows, sizeof rows / sizeof rows[0]);
}

static void script_kind(struct server *s)
{
	struct rpc_request request;
	int fd = answer.has_fd ? memory_of(8192) : -1;

	server_request(s, &request);
	if (!answer.was_asked) {
		server_answer_info(s, &request, "cuda");
		server_request(s, &request);
	}
	cr_assert_eq((request.params.region_create.has & F(region_create, kind)) != 0, answer.was_asked);
	server_answer_created_kind(s, &request, 9, answer.kind, fd, answer.handle_len);
	if (fd >= 0)
		close(fd);
	server_polite(s);
}

ParameterizedTest(struct kind_row *row, region, kinds)
{
	int fds = count_fds();
	struct server s = { 0 };
	tma_region *region = NULL;
	tma_client *client;

	answer = *row;
	server_start(&s, script_kind);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_create_kind(client, row->asked, 8192, &region), row->status, "%s: %s",
	             row->name, tma_last_error(client));
	if (row->status) {
		cr_assert_not_null(strstr(tma_last_error(client), row->error), "%s: %s", row->name,
		                   tma_last_error(client));
		cr_assert_null(region, "%s", row->name);
	} else {
		cr_assert_eq((int)tma_region_kind(region), (int)row->kind + 1, "%s", row->name);
		cr_assert_eq(tma_region_fd(region) >= 0, row->has_fd, "%s", row->name);
		cr_assert_eq(tma_region_data(region) != NULL, row->kind == REGION_KIND_MEMFD, "%s",
		             row->name);
		cr_assert_eq(tma_region_handle(region) != NULL, row->handle_len > 0, "%s", row->name);
		if (row->handle_len)
			cr_assert_eq(((const char *)tma_region_handle(region))[63], 0x5a, "%s", row->name);
		cr_assert_eq(tma_region_release(region), 0, "%s", row->name);
	}
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(count_fds(), fds, "%s", row->name);
}

Test(region, of_nothing)
{
	cr_assert_eq(tma_region_kind(NULL), TMA_REGION_ANY);
	cr_assert_eq(tma_region_fd(NULL), -1);
	cr_assert_null(tma_region_handle(NULL));
	cr_assert_null(tma_region_data(NULL));
}

/* Registers one file twice: by a read-only descriptor, and by one for reading and writing. */
static void script_register_twice(struct server *s)
{
	struct rpc_request request;

	for (uint64_t id = 5; id < 7; id++) {
		server_request(s, &request);
		cr_assert_eq(request.params.region_register.kind, REGION_KIND_MEMFD);
		server_answer_registered(s, &request, id);
	}
	server_polite(s);
}

Test(region, a_registered_file_is_mapped)
{
	struct server s = { 0 };
	tma_region *regions[2];
	struct tma_mapping mapping = { 0 }, again;
	struct tma_place place;
	tma_client *client;
	char path[64];
	int fd = memory_of(3 * 4096), reader;

	cr_assert_eq(pwrite(fd, "bytes", 5, 4196), 5);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(reader, 0);
	server_start(&s, script_register_twice);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_register_memfd(client, fd, 4196, 5000, 0, &regions[0]), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_register_memfd(client, reader, 4196, 5000, TMA_REGION_READ_ONLY, &regions[1]),
	             0, "%s", tma_last_error(client));
	for (size_t i = 0; i < 2; i++) {
		cr_assert_eq(tma_region_map(regions[i], &mapping), 0, "%s", tma_last_error(client));
		cr_assert_null(tma_region_data(regions[i]));
		cr_assert_eq(mapping.size, 5000);
		cr_assert_eq(mapping.device, -1);
		cr_assert_arr_eq(mapping.address, i == 0 ? "bytes" : "BYTES", 5, "region %zu", i);
		if (i == 0)
			memcpy(mapping.address, "BYTES", 5);
		cr_assert_eq(tma_region_map(regions[i], &again), 0);
		cr_assert_eq(again.address, mapping.address, "it is mapped once");
		cr_assert_eq(tma_region_find(client, mapping.address, 5000, &place), 0);
		cr_assert_eq(place.region, regions[i]);
		cr_assert_eq(tma_region_release(regions[i]), 0);
		cr_assert_eq(msync((void *)((uintptr_t)mapping.address & ~(uintptr_t)4095), 1, MS_ASYNC), -1,
		             "region %zu is still mapped", i);
		cr_assert_eq(tma_region_find(client, mapping.address, 5000, &place), TMA_NOT_FOUND);
	}
	tma_free(client);
	close(reader);
	close(fd);
	server_stop(&s);
}

static void script_register_cuda(struct server *s)
{
	struct rpc_request request;
	const struct msg_region_register *p = &request.params.region_register;

	server_request(s, &request);
	cr_assert_eq(p->kind, REGION_KIND_CUDA_FD);
	cr_assert_eq(p->offset, 4096);
	cr_assert_eq(p->writable, true);
	server_answer_registered(s, &request, 5);
	server_request(s, &request);
	cr_assert_eq(p->kind, REGION_KIND_CUDA_IPC);
	cr_assert_eq(p->handle.len, 64);
	cr_assert_eq(memcmp(p->handle.data, "sixty-four bytes, of which these are the first", 46), 0);
	cr_assert_eq(p->offset, 100);
	cr_assert_eq(p->writable, false);
	cr_assert_eq(p->has & F(region_register, device), 0);
	server_answer_registered(s, &request, 6);
	server_polite(s);
}

Test(region, device_memory_is_registered)
{
	static const char handle[64] = "sixty-four bytes, of which these are the first";
	struct server s = { 0 };
	tma_region *fd_region = NULL, *ipc_region = NULL;
	tma_client *client;
	int fd = memory_of(8192);

	server_start(&s, script_register_cuda);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_region_register_cuda_fd(client, -1, 0, 0, 4096, 0, &fd_region),
	             TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_region_register_cuda_ipc(client, NULL, 0, 4096, 0, &ipc_region),
	             TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_region_register_cuda_fd(client, fd, 8192, 4096, 4096, 0, &fd_region), 0, "%s",
	             tma_last_error(client));
	close(fd);
	cr_assert_eq(
	    tma_region_register_cuda_ipc(client, handle, 100, 4000, TMA_REGION_READ_ONLY, &ipc_region), 0,
	    "%s", tma_last_error(client));
	cr_assert_eq(tma_region_kind(fd_region), TMA_REGION_CUDA_FD);
	cr_assert_eq(tma_region_kind(ipc_region), TMA_REGION_CUDA_IPC);
	cr_assert_eq(memcmp(tma_region_handle(ipc_region), handle, 64), 0);
	cr_assert_null(tma_region_data(fd_region));
	cr_assert_eq(tma_region_create_kind(client, (enum tma_region_kind)5, 1, &fd_region),
	             TMA_INVALID_ARGUMENT);
	tma_free(client);
	server_stop(&s);
}
