/* SPDX-License-Identifier: Apache-2.0 */
/* Checks against a real tmad what the public header promises. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/emulated/emulated.h"
#include "rig.h"

#define ROWS    37
#define COLUMNS 53

/* Descriptors that this process has open, and memfds that it has mapped. */
struct held {
	int fds;
	int mappings;
};

static struct process service;
static struct held before; /* what is held before the first connection */
static tma_client *client;

static struct held held_now(void)
{
	struct held held = { 0 };
	DIR *directory = opendir("/proc/self/fd");
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1000];

	cr_assert(directory && maps);
	while (readdir(directory))
		held.fds++;
	while (fgets(line, sizeof line, maps))
		held.mappings += strstr(line, "/memfd:") != NULL;
	closedir(directory);
	fclose(maps);
	return held;
}

static void setup(void)
{
	before = held_now();
	client = rig_start(&service, NULL);
}

/* Whatever a test leaves open, nothing of it outlives the client. */
static void teardown(void)
{
	struct held after;

	rig_stop(&service, client);
	after = held_now();
	cr_assert_eq(after.fds, before.fds, "%d descriptors, %d before", after.fds, before.fds);
	cr_assert_eq(after.mappings, before.mappings, "%d mappings, %d before", after.mappings,
	             before.mappings);
}

TestSuite(library, .init = setup, .fini = teardown, .timeout = 60);

/* Returns whether the engine is cuda, whose tensor maps need rows of a multiple of 16 bytes. */
static bool is_cuda(void)
{
	return strcmp(process_engine(), "cuda") == 0;
}

static void fill(tma_region *region, unsigned seed)
{
	uint8_t *bytes = rig_data(region);

	for (size_t i = 0; i < tma_region_size(region); i++)
		bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

static struct tma_tensor matrix(tma_region *region, int64_t rows, int64_t columns)
{
	return (struct tma_tensor){
		.region = region, .dtype = TMA_UINT16, .rank = 2, .shape = { rows, columns }
	};
}

static void assert_transposed(const tma_region *dst, const tma_region *src)
{
	const uint16_t *d = rig_data(dst), *s = rig_data(src);

	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			cr_assert_eq(d[j * ROWS + i], s[i * COLUMNS + j], "at %d, %d", i, j);
}

Test(library, ping_and_names)
{
	cr_assert_eq(tma_ping(client), TMA_OK);
	cr_assert_str_eq(tma_socket_path(client), service.socket);
	cr_assert_str_eq(tma_status_name(TMA_QUOTA), "QUOTA");
	cr_assert_str_eq(tma_dtype_name(TMA_BFLOAT16), "bfloat16");
	cr_assert_eq(tma_dtype_parse("float8_e5m2"), TMA_FLOAT8_E5M2);
	cr_assert_eq(tma_dtype_parse("fp8_e5m2"), TMA_FLOAT8_E5M2);
	cr_assert_eq(tma_dtype_parse("FP8"), TMA_FLOAT8_E4M3FN);
	cr_assert_eq(tma_dtype_parse("float7"), TMA_NOT_FOUND);
	cr_assert_eq(tma_dtype_parse(NULL), TMA_NOT_FOUND);
	cr_assert_eq(tma_pad_mode_parse("wrap"), TMA_PAD_WRAP);
	cr_assert_eq(tma_connect(client, service.socket), TMA_ALREADY_EXISTS);
}

Test(library, transpose)
{
	tma_region *src = rig_region(client, ROWS * COLUMNS * 2),
		   *dst = rig_region(client, ROWS * COLUMNS * 2);
	struct tma_tensor s = matrix(src, ROWS, COLUMNS), d = matrix(dst, COLUMNS, ROWS);

	fill(src, 1);
	cr_assert_eq(tma_transpose(client, &d, &s, (int[]){ 1, 0 }), TMA_OK, "%s", tma_last_error(client));
	assert_transposed(dst, src);
	cr_assert_str_eq(tma_last_result(client)->path, "tile_transpose");
	cr_assert_eq(tma_last_result(client)->bytes, 2 * ROWS * COLUMNS * 2);
	cr_assert_eq(tma_region_release(src), TMA_OK);
	cr_assert_eq(tma_region_release(dst), TMA_OK);
	cr_assert_eq(tma_region_release(NULL), TMA_OK);
}

Test(library, memory_of_the_engines_own)
{
	tma_region *region;

	cr_assert_eq(tma_region_create(client, 1000, &region), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_kind(region), is_cuda() ? TMA_REGION_CUDA_FD : TMA_REGION_MEMFD);
	cr_assert_eq(!tma_region_data(region), is_cuda());
	cr_assert_eq(tma_region_size(region), 1000);
	cr_assert_geq(tma_region_fd(region), 0);
}

Test(library, copy_of_a_reversed_view)
{
	tma_region *src = rig_region(client, 8), *dst = rig_region(client, 8);
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 1, .shape = { 8 } };
	struct tma_tensor s = { .region = src,
		                .offset = 7,
		                .dtype = TMA_UINT8,
		                .rank = 1,
		                .shape = { 8 },
		                .strides = (int64_t[]){ -1 } };

	memcpy(rig_data(src), "abcdefgh", 8);
	cr_assert_eq(tma_copy(client, &d, &s), TMA_OK, "%s", tma_last_error(client));
	cr_assert_arr_eq(rig_data(dst), "hgfedcba", 8);
}

Test(library, pad_with_a_value)
{
	tma_region *src = rig_region(client, 3 * 4), *dst = rig_region(client, 6 * 4);
	struct tma_tensor d = { .region = dst, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 6 } };
	struct tma_tensor s = { .region = src, .dtype = TMA_FLOAT32, .rank = 1, .shape = { 3 } };
	const float in[] = { 1, 2, 3 }, padded[] = { 0.5, 1, 2, 3, 0.5, 0.5 }, edge[] = { 1, 1, 2, 3, 3, 3 };
	struct tma_number half = { .kind = TMA_NUMBER_REAL, .re = 0.5 };

	memcpy(rig_data(src), in, sizeof in);
	cr_assert_eq(tma_pad(client, &d, &s, (int64_t[]){ 1 }, (int64_t[]){ 2 }, TMA_PAD_CONSTANT, half),
	             TMA_OK, "%s", tma_last_error(client));
	cr_assert_arr_eq(rig_data(dst), padded, sizeof padded);
	cr_assert_eq(tma_pad(client, &d, &s, (int64_t[]){ 1 }, (int64_t[]){ 2 }, TMA_PAD_EDGE,
	                     (struct tma_number){ 0 }),
	             TMA_OK, "%s", tma_last_error(client));
	cr_assert_arr_eq(rig_data(dst), edge, sizeof edge);
}

Test(library, memfd_of_the_clients)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tma_region *region, *dst = rig_region(client, 100);
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 1, .shape = { 100 } }, s = d;

	cr_assert_eq(ftruncate(fd, 5000), 0);
	cr_assert_eq(pwrite(fd, "here", 4, 4097), 4);
	cr_assert_eq(tma_region_register_memfd(client, fd, 4097, 4096, 0, &region), TMA_OUT_OF_RANGE);
	cr_assert_eq(tma_region_register_memfd(client, fd, 4097, 200, TMA_REGION_READ_ONLY, &region), TMA_OK,
	             "%s", tma_last_error(client));
	close(fd);
	cr_assert_null(tma_region_data(region));

	s.region = region;
	cr_assert_eq(tma_copy(client, &d, &s), TMA_OK, "%s", tma_last_error(client));
	cr_assert_arr_eq(rig_data(dst), "here", 5);
	cr_assert_eq(tma_copy(client, &s, &d), TMA_PERMISSION);
	cr_assert(strstr(tma_last_error(client), "read-only"), "%s", tma_last_error(client));
}

/* The file is made as shm_open makes it; the library fills its holes. Then the file is truncated. */
Test(library, file_of_a_tmpfs)
{
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	tma_region *region, *dst = rig_region(client, 100);
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 1, .shape = { 100 } }, s = d;

	if (fd < 0)
		cr_skip("no tmpfs at /dev/shm");
	cr_assert_eq(ftruncate(fd, 5000), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 100, 4900, 0, &region), TMA_OK, "%s",
	             tma_last_error(client));
	cr_assert_eq(pwrite(fd, "here", 4, 4896), 4);
	s.region = region;
	s.offset = 4796;
	cr_assert_eq(tma_copy(client, &d, &s), TMA_OK, "%s", tma_last_error(client));
	cr_assert_arr_eq(rig_data(dst), "here", 5);
	cr_assert_eq(ftruncate(fd, 4999), 0);
	cr_assert_eq(tma_copy(client, &d, &s), TMA_DEVICE);
	cr_assert(strstr(tma_last_error(client), "shrank to 4999 bytes, but the region ends at byte 5000"),
	          "%s", tma_last_error(client));
	tma_region_release(region);
	close(fd);
}

/* The holes of the file cannot be filled; the library reports that, and no signal is raised. */
Test(library, file_of_a_full_tmpfs)
{
	char directory[] = "/tmp/tmad-full-XXXXXX", path[64];
	tma_region *region = NULL;
	int fd, status;

	cr_assert_not_null(mkdtemp(directory));
	if (mount("none", directory, "tmpfs", 0, "size=64k") < 0) {
		rmdir(directory);
		cr_skip("only root can mount a small tmpfs");
	}
	snprintf(path, sizeof path, "%s/file", directory);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_expect_eq(ftruncate(fd, 1 << 20), 0);
	status = tma_region_register_memfd(client, fd, 0, 1 << 20, 0, &region);
	cr_expect_eq(status, TMA_NO_MEMORY, "%d %s", status, tma_last_error(client));
	cr_expect(emulated() || strstr(tma_last_error(client), "its file system is full"), "%s",
	          tma_last_error(client));
	close(fd);
	cr_assert_eq(umount2(directory, MNT_DETACH), 0);
	cr_assert_eq(rmdir(directory), 0);
}

Test(library, errors_name_what_is_wrong)
{
	tma_region *r = rig_region(client, 1000);
	struct tma_tensor s = matrix(r, 4, 5), d = matrix(r, 5, 4);
	const int twice[] = { 1, 1 }, swap[] = { 1, 0 };

	d.offset = 500;
	cr_assert_eq(tma_transpose(client, &d, &s, twice), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "twice"), "%s", tma_last_error(client));
	d.offset = 20;
	cr_assert_eq(tma_transpose(client, &d, &s, swap), TMA_OVERLAP);
	d.offset = 990;
	cr_assert_eq(tma_transpose(client, &d, &s, swap), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "1000"), "%s", tma_last_error(client));
	d.offset = 500;
	cr_assert_eq(tma_transpose(client, &d, &s, swap), TMA_OK, "the connection lives on");
}

Test(library, tickets_run_in_order)
{
	enum { N = 200 };
	tma_region *r = rig_region(client, (N + 1) * 64);
	tma_ticket tickets[N];
	struct tma_result result;

	/* Each copy reads what the previous one wrote. */
	memset(rig_data(r), 0, (N + 1) * 64);
	memset(rig_data(r), 'x', 64);
	for (int i = 0; i < N; i++) {
		struct tma_tensor s = { .region = r,
			                .offset = (uint64_t)i * 64,
			                .dtype = TMA_UINT8,
			                .rank = 1,
			                .shape = { 64 } };
		struct tma_tensor d = s;
		struct tma_transform t = { .dst = &d, .src = &s };

		d.offset += 64;
		cr_assert_eq(tma_submit(client, &t, &tickets[i]), TMA_OK, "%s", tma_last_error(client));
	}
	cr_assert_eq(tma_ping(client), TMA_OK); /* a call while tickets are pending */
	for (int i = N - 1; i >= 0; i--) {
		cr_assert_eq(tma_wait(client, tickets[i], &result), TMA_OK);
		cr_assert_eq(result.bytes, 128);
	}
	cr_assert_eq(((char *)rig_data(r))[N * 64 + 63], 'x');
	cr_assert_eq(tma_wait(client, tickets[0], NULL), TMA_NOT_FOUND);
}

Test(library, another_event_loop)
{
	tma_region *src = rig_region(client, ROWS * COLUMNS * 2),
		   *dst = rig_region(client, ROWS * COLUMNS * 2);
	struct tma_tensor s = matrix(src, ROWS, COLUMNS), d = matrix(dst, COLUMNS, ROWS);
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	tma_ticket ticket;
	int ended = 0;

	fill(src, 2);
	cr_assert_eq(tma_submit(client, &t, &ticket), TMA_OK);
	while (ended == 0) {
		struct pollfd p = { .fd = tma_fd(client), .events = tma_events(client) };

		cr_assert_eq(poll(&p, 1, 10000), 1);
		ended = tma_dispatch(client);
		cr_assert_geq(ended, 0);
	}
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_OK);
	assert_transposed(dst, src);
}

Test(library, a_failed_ticket_keeps_its_sentence)
{
	tma_region *r = rig_region(client, 100);
	struct tma_tensor s = matrix(r, 400, 5), d = matrix(r, 5, 400);
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	tma_ticket ticket;

	cr_assert_eq(tma_submit(client, &t, &ticket), TMA_OK);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "4000"), "%s", tma_last_error(client));
}

Test(library, documents)
{
	struct tma_tensor s = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { 100, 200 } };
	struct tma_tensor d = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { 200, 100 } };
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	const char *engine = rig_is_local() ? "cpu" : process_engine();
	tma_document *info, *explanation;
	char *json;

	cr_assert_eq(tma_info(client, &info), TMA_OK);
	cr_assert_str_eq(tma_document_text(tma_document_find(info, "engine")), engine);
	cr_assert_eq(tma_explain(client, &t, &explanation), TMA_OK, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_document_text(tma_document_find(explanation, "family")), "tile_transpose");
	json = tma_document_json(explanation, 0);
	cr_assert(strstr(json, "\"family\":"), "%s", json);

	free(json);
	tma_document_free(info);
	tma_document_free(explanation);
}

Test(library, counters)
{
	tma_region *r = rig_region(client, 4096);
	tma_document *stats;

	cr_assert_eq(tma_stats(client, &stats), TMA_OK);
	cr_assert_eq(tma_document_int(tma_document_find(stats, "regions")), 1);
	cr_assert_eq(tma_document_int(tma_document_find(stats, "mapped_bytes")), 4096);
	tma_document_free(stats);
	tma_region_release(r);
}

Test(library, limits_and_sessions)
{
	tma_region *r = rig_region(client, 4096);
	tma_document *info, *regions, *sessions, *shown;
	const tma_document *session;

	cr_assert_eq(tma_info(client, &info), TMA_OK);
	cr_assert_gt(
	    tma_document_int(tma_document_find(tma_document_find(info, "limits"), "regions_per_uid")), 0);
	cr_assert_eq(tma_regions(client, &regions), TMA_OK);
	cr_assert_eq(tma_document_count(regions), 1);
	cr_assert_eq(tma_sessions(client, 0, &sessions), TMA_OK);
	cr_assert_eq(tma_document_count(sessions), 1);
	session = tma_document_find(tma_document_at(sessions, 0, NULL), "session");
	cr_assert_eq(tma_session_regions(client, (uint64_t)tma_document_int(session), &shown), TMA_OK);
	cr_assert_eq(tma_document_count(shown), 1);
	tma_document_free(shown);
	cr_assert_eq(tma_session_regions(client, UINT64_MAX, &shown), TMA_NOT_FOUND);
	cr_assert_eq(tma_sessions(client, (uint64_t)tma_document_int(session), &shown), TMA_OK);
	cr_assert_eq(tma_document_count(shown), 0);

	tma_document_free(shown);
	tma_document_free(info);
	tma_document_free(regions);
	tma_document_free(sessions);
	tma_region_release(r);
}

/* Everything that uses a released region's memory ends before the release returns. */
Test(library, release_drains)
{
	const int64_t n = 1024;
	tma_region *src = rig_region(client, (size_t)(n * n * 4)),
		   *dst = rig_region(client, (size_t)(n * n * 4));
	struct tma_tensor s = { .region = src, .dtype = TMA_FLOAT32, .rank = 2, .shape = { n, n } };
	struct tma_tensor d = { .region = dst, .dtype = TMA_FLOAT32, .rank = 2, .shape = { n, n } };
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	tma_ticket tickets[8];

	fill(src, 3);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(tma_submit(client, &t, &tickets[i]), TMA_OK);
	cr_assert_eq(tma_region_release(src), TMA_OK);
	for (int i = 0; i < 8; i++)
		cr_assert_eq(tma_wait(client, tickets[i], NULL), TMA_OK, "%s", tma_last_error(client));
}

Test(library, a_service_that_dies)
{
	tma_region *r = rig_region(client, 1 << 20);
	struct tma_tensor s = { .region = r, .dtype = TMA_UINT8, .rank = 1, .shape = { 1000 } }, d = s;
	struct tma_transform t = { .dst = &d, .src = &s };
	tma_ticket ticket;
	int status;

	d.offset = 5000;
	process_stop(&service, SIGKILL);
	tma_set_reconnect(client, 0);
	status = tma_submit(client, &t, &ticket);
	if (status == TMA_OK)
		status = tma_wait(client, ticket, NULL);
	cr_assert_eq(status, TMA_DISCONNECTED, "%s", tma_status_name(status));
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_gt(strlen(tma_last_error(client)), 0);
	((char *)rig_data(r))[0] = 1; /* the mapping outlives the service */
	tma_region_release(r);
	process_start(&service, NULL);
}

/* A client may be used by one thread at a time; one thread may use many clients. */
Test(library, connections_run_side_by_side)
{
	enum { N = 8 };
	tma_client *clients[N];
	tma_region *regions[N];
	tma_ticket tickets[N];

	for (int i = 0; i < N; i++) {
		struct tma_tensor s, d;
		struct tma_transform t = { .dst = &d, .src = &s };

		clients[i] = tma_new();
		cr_assert_eq(tma_connect(clients[i], service.socket), TMA_OK);
		regions[i] = rig_region(clients[i], 2000);
		memset(rig_data(regions[i]), i + 1, 1000);
		s = (struct tma_tensor){
			.region = regions[i], .dtype = TMA_UINT8, .rank = 1, .shape = { 1000 }
		};
		d = s;
		d.offset = 1000;
		cr_assert_eq(tma_submit(clients[i], &t, &tickets[i]), TMA_OK);
	}
	for (int i = 0; i < N; i++) {
		struct tma_tensor stolen = {
			.region = regions[(i + 1) % N], .dtype = TMA_UINT8, .rank = 1, .shape = { 10 }
		};

		cr_assert_eq(tma_wait(clients[i], tickets[i], NULL), TMA_OK);
		cr_assert_eq(((char *)rig_data(regions[i]))[1999], i + 1);
		cr_assert_eq(tma_copy(clients[i], &stolen, &stolen), TMA_INVALID_ARGUMENT,
		             "a region of another client has to be refused");
	}
	for (int i = 0; i < N; i++)
		tma_free(clients[i]);
}

Test(library, nobody_listens, .init = NULL, .fini = NULL)
{
	tma_client *c = tma_new();

	cr_assert_eq(tma_connect(c, "/nonexistent/tmad.sock"), TMA_DISCONNECTED);
	cr_assert(strstr(tma_last_error(c), "/nonexistent/tmad.sock"), "%s", tma_last_error(c));
	cr_assert_eq(tma_ping(c), TMA_DISCONNECTED);
	cr_assert_eq(tma_fd(c), -1);
	tma_free(c);
}
