/* Memory of another process: by handle and by fd, through the engine, and back. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

#define N     37
#define BYTES (N * N * 4)

struct peer_row {
	char name[16];
	enum region_kind kind;
};

static void send_export(int fd, const struct engine_export *made)
{
	struct iovec iov = { (void *)made->handle, sizeof made->handle };
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (made->fd >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof control;
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &made->fd, sizeof made->fd);
	}
	cr_assert_eq(sendmsg(fd, &message, 0), (ssize_t)sizeof made->handle);
}

static void receive_export(int fd, struct engine_export *ret)
{
	struct iovec iov = { ret->handle, sizeof ret->handle };
	char control[CMSG_SPACE(sizeof(int))];
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	cr_assert_eq(recvmsg(fd, &message, MSG_CMSG_CLOEXEC), (ssize_t)sizeof ret->handle);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	ret->fd = -1;
	if (header)
		memcpy(&ret->fd, CMSG_DATA(header), sizeof ret->fd);
}

static void wait_for(int fd)
{
	char byte;
	cr_assert_eq(read(fd, &byte, 1), 1);
}

static void go_on(int fd)
{
	cr_assert_eq(write(fd, "", 1), 1);
}

/* The client: two memories of its own; it waits until they have been used, and looks. */
static int client(int fd, enum region_kind kind)
{
	struct engine_memory *memory[2];
	struct engine_export made[2];
	struct error err;
	open_engine(NULL);
	for (int i = 0; i < 2; i++) {
		if (engine_create(engine, kind, BYTES, &memory[i], &made[i], &err) < 0)
			return 1;
		send_export(fd, &made[i]);
		if (made[i].fd >= 0)
			close(made[i].fd);
	}
	for (int i = 0; i < N * N; i++)
		((uint32_t *)data(memory[1]))[i] = (uint32_t)i;
	go_on(fd);
	wait_for(fd);
	for (int i = 0; i < N * N; i++)
		if (((uint32_t *)data(memory[0]))[i] != (uint32_t)(i % N * N + i / N))
			return 2;
	for (int i = 0; i < 2; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
	return 0;
}

static void map_all(const struct peer_row *row, const struct engine_export *made, struct engine_memory **ret)
{
	struct error err;
	for (int i = 0; i < 3; i++) { /* the last is part of the second */
		const struct engine_export *from = &made[i > 0];
		struct engine_handle handle = { .kind = row->kind,
			                        .fd = from->fd,
			                        .offset = i == 2 ? 100 : 0,
			                        .size = i == 2 ? 16 : BYTES,
			                        .writable = i == 0,
			                        .handle = { (char *)from->handle, ENGINE_HANDLE_BYTES } };
		cr_assert_eq(engine_map(engine, &handle, &ret[i], &err), 0, "%s: %s", row->name, err.message);
	}
}

ParameterizedTestParameters(cuda_memory, of_another_process)
{
	static struct peer_row rows[] = { { "ipc", REGION_KIND_CUDA_IPC }, { "fd", REGION_KIND_CUDA_FD } };
	return cr_make_param_array(struct peer_row, rows, sizeof rows / sizeof *rows);
}

/* Before there is an engine in this process, the other one is started: a driver does not live through fork.
 */
ParameterizedTest(struct peer_row *row, cuda_memory, of_another_process)
{
	static struct work work;
	struct engine_export made[2];
	struct engine_memory *memory[3];
	int fds[2], status;
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		_exit(client(fds[1], row->kind));
	}
	close(fds[1]);
	open_engine(NULL);
	receive_export(fds[0], &made[0]);
	receive_export(fds[0], &made[1]);
	wait_for(fds[0]);
	map_all(row, made, memory);
	cr_assert(memory[0]->memory[0] != memory[1]->memory[0] ||
	              memory[0]->memory[1] != memory[1]->memory[1],
	          "%s", row->name);
	if (row->kind == REGION_KIND_CUDA_IPC) {
		cr_assert_arr_eq(memory[1]->memory, memory[2]->memory, sizeof memory[1]->memory);
		cr_assert_eq(data(memory[1]) + 100, data(memory[2]), "%s: opened twice", row->name);
	}
	cr_assert_arr_eq(data(memory[1]) + 100, data(memory[2]), 16);

	struct engine_stream *stream = engine_stream_new(engine, &owner);
	work_init(&work, N, true, memory[0], memory[1]);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s", row->name);
	go_on(fds[0]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "%s: the client saw something else: %d", row->name, status);

	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		engine_unmap(engine, memory[i]);
	for (int i = 0; i < 2; i++)
		if (made[i].fd >= 0)
			close(made[i].fd);
	close(fds[0]);
	close_engine();
}
