/* SPDX-License-Identifier: Apache-2.0 */
/* The two processes tell each other to go on with single bytes, and pass the descriptors of memory by
 * SCM_RIGHTS. */
#include "holder.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rig.h"
#include "tests/support/tsan.h"

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

static int hold(int fd, enum region_kind kind, uint64_t size, void (*work)(unsigned char *const *bytes),
                int (*check)(unsigned char *const *bytes))
{
	struct engine_memory *memory[HOLDER_MEMORIES];
	unsigned char *bytes[HOLDER_MEMORIES];
	struct engine_export made;
	struct error err;
	int r = 0;
	char byte;
	open_engine(NULL);
	for (int i = 0; i < HOLDER_MEMORIES; i++) {
		if (engine_create(engine, kind, size, &memory[i], &made, &err) < 0)
			return 255;
		bytes[i] = data(memory[i]);
		send_export(fd, &made);
		if (made.fd >= 0)
			close(made.fd);
	}
	if (work)
		work(bytes);
	/* A test that has failed does not say that it is done. */
	if (write(fd, "", 1) != 1 || read(fd, &byte, 1) != 1)
		return 254;
	if (check)
		r = check(bytes);
	for (int i = 0; i < HOLDER_MEMORIES; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
	return r;
}

void holder_start(struct holder *holder, enum region_kind kind, uint64_t size,
                  void (*work)(unsigned char *const *bytes), int (*check)(unsigned char *const *bytes))
{
	int fds[2];
	char byte;
	if (tsan_watches())
		cr_skip("ThreadSanitizer does not follow a child that starts threads after a fork");
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	holder->pid = fork();
	cr_assert_geq(holder->pid, 0);
	if (holder->pid == 0) {
		close(fds[0]);
		_exit(hold(fds[1], kind, size, work, check));
	}
	close(fds[1]);
	holder->fd = fds[0];
	for (int i = 0; i < HOLDER_MEMORIES; i++)
		receive_export(holder->fd, &holder->made[i]);
	cr_assert_eq(read(holder->fd, &byte, 1), 1);
}

int holder_stop(struct holder *holder)
{
	int status;
	cr_assert_eq(write(holder->fd, "", 1), 1);
	cr_assert_eq(waitpid(holder->pid, &status, 0), holder->pid);
	close(holder->fd);
	for (int i = 0; i < HOLDER_MEMORIES; i++)
		if (holder->made[i].fd >= 0)
			close(holder->made[i].fd);
	cr_assert(WIFEXITED(status), "the other process was ended by %d", status);
	return WEXITSTATUS(status);
}
