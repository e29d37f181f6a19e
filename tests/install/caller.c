/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: caller [SOCKET]. Calls the service continuously until SIGTERM, for the test of the packages; built
 * against the installed library. One thread transposes through libtmaclient and checks every result; another
 * connects to the socket and hangs up, counting how often nobody listened. Prints the counts in one line, and
 * exits with 1 if a call failed, a result was wrong or a connection was refused. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <tmaclient.h>

enum { ROWS = 64, COLUMNS = 96, PAUSE_NS = 1000000 };

static atomic_bool stopping;
static struct {
	unsigned long calls, failed, wrong, connects, refused;
	char first_error[256];
} counts;

static void on_term(int number)
{
	(void)number;
	stopping = true;
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

/* ---- The socket ---------------------------------------------------------------------------------------- */

static void knock(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strncpy(name.sun_path, path, sizeof(name.sun_path) - 1);
	counts.connects++;
	if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0 && errno != EINTR) {
		if (counts.refused++ == 0)
			snprintf(counts.first_error, sizeof(counts.first_error), "connect: %s",
			         strerror(errno));
	}
	close(fd);
}

static void *knock_on(void *path)
{
	while (!stopping) {
		knock(path);
		pause_shortly();
	}
	return NULL;
}

/* ---- The library --------------------------------------------------------------------------------------- */

/* Transposes numbers that differ from those of earlier calls. */
static int call(tma_client *client, tma_region *out, tma_region *in)
{
	struct tma_tensor src = { .region = in, .dtype = TMA_UINT32, .rank = 2, .shape = { ROWS, COLUMNS } };
	struct tma_tensor dst = { .region = out, .dtype = TMA_UINT32, .rank = 2, .shape = { COLUMNS, ROWS } };
	uint32_t *source = tma_region_data(in), *result = tma_region_data(out);
	uint32_t first = (uint32_t)counts.calls * ROWS * COLUMNS;
	bool wrong = false;
	int r;

	for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
		source[i] = first + i;
	if ((r = tma_transpose(client, &dst, &src, (const int[]){ 1, 0 })) < 0)
		return r;
	for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
		wrong |= result[i] != first + i % ROWS * COLUMNS + i / ROWS;
	counts.wrong += wrong;
	return 0;
}

static int prepare(tma_client *client, const char *path, tma_region **ret_out, tma_region **ret_in)
{
	const size_t bytes = ROWS * COLUMNS * sizeof(uint32_t);
	int r;

	if ((r = tma_connect(client, path)) < 0 ||
	    (r = tma_region_create_kind(client, TMA_REGION_MEMFD, bytes, ret_in)) < 0)
		return r;
	return tma_region_create_kind(client, TMA_REGION_MEMFD, bytes, ret_out);
}

static void call_on(tma_client *client, tma_region *out, tma_region *in)
{
	while (!stopping) {
		int r = call(client, out, in);

		counts.calls++;
		if (r < 0 && counts.failed++ == 0)
			snprintf(counts.first_error, sizeof(counts.first_error), "%s: %s", tma_status_name(r),
			         tma_last_error(client));
		pause_shortly();
	}
}

int main(int argc, char **argv)
{
	char *path = argc > 1 ? argv[1] : "/run/tmad/tmad.sock";
	tma_client *client = tma_new();
	tma_region *out, *in;
	pthread_t thread;

	signal(SIGTERM, on_term);
	int r = client ? prepare(client, path, &out, &in) : TMA_NO_MEMORY;
	if (r < 0 || pthread_create(&thread, NULL, knock_on, path) != 0) {
		fprintf(stderr, "caller: %s\n", client ? tma_last_error(client) : "no memory");
		return 1;
	}
	call_on(client, out, in);
	pthread_join(thread, NULL);

	printf("%lu calls, %lu failed, %lu wrong, %u reconnects; %lu connections, %lu refused%s%s\n",
	       counts.calls, counts.failed, counts.wrong, tma_reconnects(client), counts.connects,
	       counts.refused, counts.first_error[0] ? "; first: " : "", counts.first_error);
	tma_free(client);
	return counts.failed || counts.wrong || counts.refused;
}
