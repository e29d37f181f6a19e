/* SPDX-License-Identifier: Apache-2.0 */
/* Tests descriptors that are sent over a socket pair, and socket files in a directory of the test's own. */
#include "proto/wire/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

static char directory[64];
static char path[96];

static void setup(void)
{
	snprintf(directory, sizeof directory, "/tmp/tmad-socket-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/tmad.sock", directory);
}

static void teardown(void)
{
	unlink(path);
	rmdir(directory);
}

TestSuite(socket, .init = setup, .fini = teardown);

static int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	cr_assert_not_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void close_all(const int *fds, size_t n)
{
	while (n)
		close(fds[--n]);
}

static void open_many(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		cr_assert_geq(fds[i], 0, "fd %zu: %s", i, strerror(errno));
	}
}

/* ---- fds ---- */

struct fds_row {
	char name[16];
	size_t n;
};

ParameterizedTestParameters(socket, fds_arrive)
{
	static struct fds_row rows[] = {
		{ .name = "none", .n = 0 },
		{ .name = "one", .n = 1 },
		{ .name = "four", .n = 4 },
		{ .name = "all", .n = SOCKET_MAX_FDS },
	};

	return cr_make_param_array(struct fds_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct fds_row *row, socket, fds_arrive)
{
	int pair[2], sent[SOCKET_MAX_FDS], got[SOCKET_MAX_FDS];
	int before = open_fds();
	size_t n = 12345;
	char data[8];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	open_many(sent, row->n);
	cr_assert_eq(socket_send(pair[0], "hello", 5, sent, row->n), 5, "%s", row->name);
	cr_assert_eq(socket_receive(pair[1], data, sizeof data, got, &n), 5, "%s", row->name);
	cr_assert_arr_eq(data, "hello", 5);
	cr_assert_eq(n, row->n, "%s: %zu fds", row->name, n);
	for (size_t i = 0; i < n; i++) {
		struct stat one, two;

		cr_assert(fcntl(got[i], F_GETFD) & FD_CLOEXEC, "%s: fd %zu outlives exec", row->name, i);
		cr_assert(!fstat(sent[i], &one) && !fstat(got[i], &two));
		cr_assert(one.st_dev == two.st_dev && one.st_ino == two.st_ino, "%s: fd %zu", row->name, i);
	}
	close_all(sent, row->n);
	close_all(got, n);
	close_all(pair, 2);
	cr_assert_eq(open_fds(), before, "%s: fds leaked", row->name);
}

Test(socket, more_fds_than_the_kernel_takes_are_refused)
{
	int pair[2], fds[SOCKET_MAX_FDS + 1] = { 0 };

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	cr_assert_eq(socket_send(pair[0], "x", 1, fds, SOCKET_MAX_FDS + 1), -EINVAL);
	close_all(pair, 2);
}

/* If the process has no room for all descriptors, the kernel hands over some and cuts the rest. */
Test(socket, cut_control_data_hands_over_what_came)
{
	struct rlimit old, low;
	int pair[2], sent[8], got[SOCKET_MAX_FDS];
	int before = open_fds();
	size_t n = 12345;
	char data[8];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	open_many(sent, 8);
	cr_assert_eq(socket_send(pair[0], "hello", 5, sent, 8), 5);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)sent[7] + 4;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	cr_assert_eq(socket_receive(pair[1], data, sizeof data, got, &n), -EMSGSIZE);
	cr_assert(n > 0 && n < 8, "%zu fds", n);
	close_all(got, n);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	close_all(sent, 8);
	close_all(pair, 2);
	cr_assert_eq(open_fds(), before, "fds leaked");
}

Test(socket, errors_are_errnos)
{
	int pair[2], fds[SOCKET_MAX_FDS];
	size_t n;
	char data[8];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	cr_assert_eq(socket_receive(pair[0], data, sizeof data, fds, &n), -EAGAIN);
	close(pair[1]);
	cr_assert_eq(socket_receive(pair[0], data, sizeof data, fds, &n), 0);
	cr_assert_eq(n, 0);
	signal(SIGPIPE, SIG_DFL);
	cr_assert_eq(socket_send(pair[0], "x", 1, NULL, 0), -EPIPE);
	close(pair[0]);
	cr_assert_eq(socket_receive(-1, data, sizeof data, fds, &n), -EBADF);
	cr_assert_eq(socket_send(-1, "x", 1, NULL, 0), -EBADF);
}

/* ---- Addresses ---- */

Test(socket, listens_with_the_mode_asked_for)
{
	static const mode_t modes[] = { 0600, 0660, 0666 };

	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		struct socket_peer peer;
		struct stat st;
		int sock, client, server;

		umask(i ? 0777 : 0);
		sock = socket_listen(path, 4, modes[i]);
		cr_assert_geq(sock, 0, "mode %o: %s", modes[i], strerror(-sock));
		cr_assert_eq(stat(path, &st), 0);
		cr_assert_eq(st.st_mode & 07777, modes[i], "mode %o, not %o", st.st_mode & 07777, modes[i]);
		cr_assert(fcntl(sock, F_GETFD) & FD_CLOEXEC);
		cr_assert(fcntl(sock, F_GETFL) & O_NONBLOCK);
		client = socket_connect(path, -1);
		cr_assert_geq(client, 0, "%s", strerror(-client));
		cr_assert(fcntl(client, F_GETFD) & FD_CLOEXEC);
		cr_assert_not(fcntl(client, F_GETFL) & O_NONBLOCK);
		server = accept(sock, NULL, NULL);
		cr_assert_geq(server, 0);
		cr_assert_eq(socket_peer(server, &peer), 0);
		cr_assert_eq(peer.uid, getuid());
		cr_assert_eq(peer.gid, getgid());
		cr_assert_eq(peer.pid, getpid());
		close(client);
		close(server);
		close(sock); /* leaves a stale file, which the next round replaces */
	}
}

Test(socket, a_socket_in_use_is_left_alone)
{
	int before = open_fds();
	int sock = socket_listen(path, 1, 0600), client;

	cr_assert_geq(sock, 0);
	cr_assert_eq(socket_listen(path, 1, 0600), -EADDRINUSE);
	/* A full backlog does not change this. */
	for (int i = 0; i < 4; i++)
		cr_assert_eq(socket_listen(path, 1, 0600), -EADDRINUSE, "probe %d", i);
	while ((client = accept(sock, NULL, NULL)) >= 0)
		close(client);
	client = socket_connect(path, -1);
	cr_assert_geq(client, 0, "%s", strerror(-client));
	close(client);
	close(sock);
	cr_assert_eq(open_fds(), before, "fds leaked");
}

/* Listens in a process that leaves its socket to another process when it ends. */
static void listen_and_leave(int told)
{
	const int sock = socket_listen(path, 1, 0600);
	const pid_t keeper = sock < 0 ? -1 : fork();

	if (keeper == 0)
		for (;;)
			pause();
	_exit(keeper > 0 && write(told, &keeper, sizeof keeper) == sizeof keeper ? 0 : 1);
}

Test(socket, a_socket_of_a_process_that_has_ended_is_replaced)
{
	int told[2], status, sock;
	pid_t child, keeper;

	cr_assert_eq(pipe(told), 0);
	child = fork();
	if (child == 0)
		listen_and_leave(told[1]);
	cr_assert_eq(read(told[0], &keeper, sizeof keeper), sizeof keeper);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	sock = socket_listen(path, 1, 0600);
	kill(keeper, SIGKILL);
	cr_assert_geq(sock, 0, "%s", strerror(-sock));
	close(sock);
	close(told[0]);
	close(told[1]);
}

Test(socket, a_datagram_socket_is_somebodys)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, path, strlen(path) + 1);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
	cr_assert_eq(socket_listen(path, 1, 0600), -EADDRINUSE);
	close(sock);
}

Test(socket, a_file_of_another_type_is_left_alone)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st;

	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(socket_listen(path, 1, 0600), -EEXIST);
	cr_assert_eq(socket_connect(path, -1), -ECONNREFUSED);
	cr_assert_eq(stat(path, &st), 0);
	unlink(path);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_assert_eq(socket_listen(path, 1, 0600), -EEXIST);
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(symlink("/nowhere", path), 0);
	cr_assert_eq(socket_listen(path, 1, 0600), -EEXIST);
}

Test(socket, paths_that_cannot_be)
{
	char text[300];
	int before = open_fds();

	memset(text, 'a', sizeof text);
	memcpy(text, "/tmp/", 5);
	text[sizeof((struct sockaddr_un *)0)->sun_path] = '\0';
	cr_assert_eq(socket_listen(text, 1, 0600), -ENAMETOOLONG);
	cr_assert_eq(socket_connect(text, -1), -ENAMETOOLONG);
	cr_assert_eq(socket_listen("", 1, 0600), -ENOENT);
	cr_assert_eq(socket_connect("", -1), -ENOENT);
	cr_assert_eq(socket_connect(path, -1), -ENOENT);
	snprintf(text, sizeof text, "%s/none/tmad.sock", directory);
	cr_assert_eq(socket_listen(text, 1, 0600), -ENOENT);
	cr_assert_eq(open_fds(), before, "fds leaked");
}

Test(socket, the_longest_path_works)
{
	char text[sizeof((struct sockaddr_un *)0)->sun_path];
	int sock, client;

	memset(text, 'a', sizeof text);
	memcpy(text, directory, strlen(directory));
	text[strlen(directory)] = '/';
	text[sizeof text - 1] = '\0';
	sock = socket_listen(text, 1, 0600);
	cr_assert_geq(sock, 0, "%s", strerror(-sock));
	client = socket_connect(text, -1);
	cr_assert_geq(client, 0, "%s", strerror(-client));
	close(client);
	close(sock);
	unlink(text);
}

Test(socket, abstract_sockets)
{
	static const char *const names[] = { "@", "@tmad", "@a/b" };
	char text[SOCKET_PATH_BYTES], found[SOCKET_PATH_BYTES], cwd[PATH_MAX];
	int before = open_fds();

	cr_assert_not_null(getcwd(cwd, sizeof cwd));
	cr_assert_eq(chdir(directory), 0);
	cr_assert_eq(socket_listen("@", 1, 0600), -ENOENT);
	cr_assert_eq(socket_connect("@", -1), -ENOENT);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };
		int sock, client, other;

		snprintf(text, sizeof text, "%s-%d", names[i], (int)getpid());
		cr_assert_eq(socket_connect(text, -1), -ECONNREFUSED, "%s", text);
		sock = socket_listen(text, 4, 0600);
		cr_assert_geq(sock, 0, "%s: %s", text, strerror(-sock));
		cr_assert_str_eq(socket_path(sock, found), text);
		cr_assert_eq(socket_listen(text, 1, 0600), -EADDRINUSE, "%s", text);
		client = socket_connect(text, -1);
		cr_assert_geq(client, 0, "%s: %s", text, strerror(-client));
		socket_unlink(text); /* has no effect, as the socket has no file */
		/* This address has no terminator, as other programs write it. */
		memcpy(address.sun_path + 1, text + 1, strlen(text) - 1);
		other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		cr_assert_eq(connect(other, (struct sockaddr *)&address,
		                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text))),
		             0, "%s: %s", text, strerror(errno));
		cr_assert_neq(access(text, F_OK), 0, "%s is a file", text);
		close(sock);
		close(client);
		close(other);
		cr_assert_eq(socket_connect(text, -1), -ECONNREFUSED, "%s", text);
	}
	cr_assert_eq(chdir(cwd), 0);
	cr_assert_eq(open_fds(), before, "fds leaked");
}

Test(socket, the_path_of_a_socket)
{
	char found[SOCKET_PATH_BYTES];
	int sock = socket_listen(path, 1, 0600), client;

	cr_assert_str_eq(socket_path(sock, found), path);
	client = socket_connect(path, -1);
	cr_assert_str_eq(socket_path(client, found), "", "it is not bound");
	cr_assert_str_eq(socket_path(-1, found), "");
	socket_unlink(path);
	cr_assert_neq(access(path, F_OK), 0);
	close(client);
	close(sock);
}

/* ---- The default path ---- */

Test(socket, the_search_for_a_path)
{
	char text[PATH_MAX];

	setenv("TMAD_SOCKET", "/tmp/env.sock", 1);
	setenv("XDG_RUNTIME_DIR", directory, 1);
	cr_assert_str_eq(socket_default_path("given.sock", text, sizeof text), "given.sock");
	cr_assert_str_eq(socket_default_path(NULL, text, sizeof text), "/tmp/env.sock");
	cr_assert_null(socket_default_path("12345678", text, 8));
	cr_assert_not_null(socket_default_path("1234567", text, 8));
	unsetenv("TMAD_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	cr_assert_str_eq(socket_default_path(NULL, text, sizeof text), "/run/tmad/tmad.sock");
	setenv("TMAD_SOCKET", "", 1);
	setenv("XDG_RUNTIME_DIR", directory, 1);
	if (access("/run/tmad", F_OK) < 0) {
		char expected[128];

		snprintf(expected, sizeof expected, "%s/tmad/tmad.sock", directory);
		cr_assert_str_eq(socket_default_path(NULL, text, sizeof text), expected);
	}
}
