/* SPDX-License-Identifier: Apache-2.0 */
/* A scripted session of libtmaclient, linked with the shim: fault_session SOCKET. Each call either works,
 * with the right result, or fails with a status and a sentence; the client remains usable afterwards. Exit
 * status: 0 if all calls succeeded; 1 if calls failed, each with a line; 3 if a successful call had a wrong
 * result; 4 if descriptors are left open. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/tmaclient.h"

#define ROWS    48
#define COLUMNS 80
#define BYTES   (ROWS * COLUMNS * 4)

enum {
	EXIT_FAILURES = 1,
	EXIT_WRONG = 3,
	EXIT_LEFT = 4,
};

static struct {
	tma_client *client;
	tma_region *src, *dst, *own;
	uint32_t *src_data, *dst_data; /* memory that the session registers itself */
	int src_fd, dst_fd;
	unsigned failures;
} s = { .src_fd = -1, .dst_fd = -1 };

static void wrong(const char *what)
{
	printf("%s: a success that is none\n", what);
	exit(EXIT_WRONG);
}

/* Reports a failed call. Returns whether the call succeeded. */
static bool went_well(const char *what, int r)
{
	if (r >= 0)
		return true;
	s.failures++;
	printf("%s: %s: %s\n", what, tma_status_name(r), tma_last_error(s.client));
	if (!*tma_last_error(s.client) || strcmp(tma_status_name(r), "UNKNOWN") == 0)
		wrong("an error without a reason");
	return false;
}

/* Allocates memory for the session itself, without the library. */
static void *own_memory(int *ret_fd)
{
	void *data = MAP_FAILED;

	*ret_fd = memfd_create("session", MFD_CLOEXEC);
	if (*ret_fd >= 0 && ftruncate(*ret_fd, BYTES) == 0)
		data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
	if (data == MAP_FAILED) {
		printf("the session has no memory\n");
		exit(EXIT_FAILURES);
	}
	return data;
}

static uint32_t element(int row, int column)
{
	return (uint32_t)(row * COLUMNS + column) * 2654435761u;
}

/* ---- The script --------------------------------------------------------------------------------------- */

static void connect_to(const char *path)
{
	for (int i = 0; i < 2; i++)
		if (went_well("connect", tma_connect(s.client, path)))
			return;
	wrong("connect fails twice");
}

static void make_regions(void)
{
	if (!went_well("register",
	               tma_region_register_memfd(s.client, s.src_fd, 0, BYTES, TMA_REGION_READ_ONLY, &s.src)))
		s.src = NULL;
	if (!went_well("register", tma_region_register_memfd(s.client, s.dst_fd, 0, BYTES, 0, &s.dst)))
		s.dst = NULL;
	if (!went_well("create", tma_region_create_kind(s.client, TMA_REGION_MEMFD, BYTES, &s.own)))
		s.own = NULL;
	else if (!tma_region_data(s.own) || tma_region_size(s.own) != BYTES)
		wrong("create");
}

static struct tma_tensor tensor_of(tma_region *region, int rows, int columns)
{
	return (struct tma_tensor){
		.region = region, .dtype = TMA_UINT32, .rank = 2, .shape = { rows, columns }
	};
}

static void check_transposed(const char *what)
{
	for (int row = 0; row < ROWS; row++)
		for (int column = 0; column < COLUMNS; column++)
			if (s.dst_data[column * ROWS + row] != element(row, column))
				wrong(what);
}

static void transforms(void)
{
	const int perm[] = { 1, 0 };
	struct tma_tensor src, dst, own;

	if (!s.src || !s.dst || !s.own)
		return;
	src = tensor_of(s.src, ROWS, COLUMNS);
	dst = tensor_of(s.dst, COLUMNS, ROWS);
	own = tensor_of(s.own, ROWS, COLUMNS);
	memset(s.dst_data, 0x5a, BYTES);
	if (went_well("transpose", tma_transpose(s.client, &dst, &src, perm)))
		check_transposed("transpose");
	memset(tma_region_data(s.own), 0x5a, BYTES);
	if (went_well("copy", tma_copy(s.client, &own, &src)) &&
	    memcmp(tma_region_data(s.own), s.src_data, BYTES) != 0)
		wrong("copy");
}

static void tickets(void)
{
	const int perm[] = { 1, 0 };
	struct tma_tensor src = tensor_of(s.src, ROWS, COLUMNS), dst = tensor_of(s.dst, COLUMNS, ROWS);
	struct tma_transform transform = { .dst = &dst, .src = &src, .perm = perm };
	tma_ticket ticket[40];
	bool is_submitted[40] = { 0 };

	if (!s.src || !s.dst)
		return;
	memset(s.dst_data, 0x5a, BYTES);
	for (int i = 0; i < 40; i++)
		is_submitted[i] = went_well("submit", i % 2 ? tma_submit_ping(s.client, &ticket[i])
		                                            : tma_submit(s.client, &transform, &ticket[i]));
	for (int i = 0; i < 40; i++)
		if (is_submitted[i] && went_well("wait", tma_wait(s.client, ticket[i], NULL)) && i % 2 == 0)
			check_transposed("wait");
}

static void check_copied(const char *what)
{
	if (memcmp(tma_region_data(s.own), s.src_data, BYTES) != 0)
		wrong(what);
	memset(tma_region_data(s.own), 0x5a, BYTES);
}

/* Copies each row to the same row of the region that the service created. */
static void gather_layers(struct tma_blocks blocks, const char *what)
{
	const int32_t block = 0;
	const struct tma_tensor row = { .dtype = TMA_UINT32, .rank = 1, .shape = { COLUMNS } };
	const struct tma_transform transform = { .dst = &row, .src = &row };

	blocks.transform = &transform;
	blocks.count = blocks.limit = 1;
	blocks.index_dtype = TMA_INT32;
	blocks.index = &block;
	memset(tma_region_data(s.own), 0x5a, BYTES);
	if (went_well("gather", tma_gather(s.client, &blocks)))
		check_copied(what);
}

static void run_over_tables(tma_table *to, tma_table *from, tma_plan *plan)
{
	struct tma_item item = { .plan = plan, .dst_table = to, .src_table = from };

	gather_layers((struct tma_blocks){ .dst_table = to, .src_table = from }, "gather of tables");
	if (plan && went_well("plan_run", tma_plan_run_tables(s.client, plan, to, from, NULL)))
		check_copied("plan_run");
	if (plan && went_well("submit", tma_run_items(s.client, &item, 1, NULL)))
		check_copied("submit");
}

static void tables(void)
{
	const struct tma_tensor row = { .dtype = TMA_UINT32, .rank = 1, .shape = { COLUMNS } };
	const struct tma_transform transform = { .dst = &row, .src = &row };
	struct tma_place from[ROWS], to[ROWS];
	tma_table *dst = NULL, *src = NULL;
	tma_plan *plan = NULL;

	if (!s.src || !s.own)
		return;
	for (int i = 0; i < ROWS; i++) {
		from[i] = (struct tma_place){ .region = s.src, .offset = (uint64_t)i * COLUMNS * 4 };
		to[i] = (struct tma_place){ .region = s.own, .offset = (uint64_t)i * COLUMNS * 4 };
	}
	if (!went_well("table_prepare", tma_table_prepare(s.client, to, ROWS, &dst)))
		dst = NULL;
	if (!went_well("table_prepare", tma_table_prepare(s.client, from, ROWS, &src)))
		src = NULL;
	if (!went_well("plan_prepare", tma_plan_prepare(s.client, &transform, &plan)))
		plan = NULL;
	if (dst && src)
		run_over_tables(dst, src, plan);
	gather_layers((struct tma_blocks){ .layers = ROWS, .dst_places = to, .src_places = from },
	              "gather of places");
	went_well("table_release", tma_table_release(dst));
	went_well("table_release", tma_table_release(src));
	went_well("plan_release", tma_plan_release(plan));
}

/* Copies the rows of each half from the region that the service created to the other one. */
static void slices(void)
{
	static const int64_t second[] = { ROWS / 2, 0 };
	struct tma_slice to = { .tensor = { .dtype = TMA_UINT32, .rank = 2, .shape = { ROWS, COLUMNS } } };
	struct tma_slice from[2];
	const struct tma_reshard reshard = {
		.destinations = &to, .n_destinations = 1, .sources = from, .n_sources = 2
	};

	if (!s.src || !s.own)
		return;
	to.tensor.region = s.own;
	for (int i = 0; i < 2; i++) {
		from[i] = to;
		from[i].tensor.region = s.src;
		from[i].tensor.shape[0] = ROWS / 2;
	}
	from[1].tensor.offset = ROWS / 2 * COLUMNS * 4;
	from[1].start = second;
	memset(tma_region_data(s.own), 0x5a, BYTES);
	if (went_well("reshard", tma_reshard(s.client, &reshard)))
		check_copied("reshard");
}

static void documents(void)
{
	int (*const asks[])(tma_client *, tma_document **) = { tma_info, tma_stats, tma_regions };
	tma_document *document;
	char *json;

	for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
		if (!went_well("a document", asks[i](s.client, &document)))
			continue;
		json = tma_document_json(document, 2);
		if (!json)
			s.failures++;
		else if (i == 0 && !strstr(json, "boot_id"))
			wrong("info");
		free(json);
		tma_document_free(document);
	}
}

/* The library does not reopen by itself a connection that ended for lack of memory. */
static void end(const char *path)
{
	if (!went_well("ping", tma_ping(s.client)) && !went_well("ping", tma_ping(s.client)) &&
	    (!went_well("connect", tma_connect(s.client, path)) || !went_well("ping", tma_ping(s.client))))
		wrong("nothing works any more");
	went_well("release", s.own ? tma_region_release(s.own) : 0);
	tma_free(s.client);
	munmap(s.src_data, BYTES);
	munmap(s.dst_data, BYTES);
	close(s.src_fd);
	close(s.dst_fd);
}

static unsigned open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned n = 0;

	while (directory && readdir(directory))
		n++;
	if (directory)
		closedir(directory);
	return n;
}

int main(int argc, char **argv)
{
	unsigned before = open_descriptors(), after;

	if (argc != 2)
		return 2;
	s.src_data = own_memory(&s.src_fd);
	s.dst_data = own_memory(&s.dst_fd);
	for (int i = 0; i < ROWS * COLUMNS; i++)
		s.src_data[i] = element(i / COLUMNS, i % COLUMNS);
	s.client = tma_new();
	if (!s.client) {
		printf("no client\n");
		exit(EXIT_FAILURES);
	}
	tma_set_timeout(s.client, 20000);
	connect_to(argv[1]);
	make_regions();
	transforms();
	tickets();
	tables();
	slices();
	documents();
	transforms();
	end(argv[1]);
	after = open_descriptors();
	if (before && after > before) {
		printf("%u descriptors more\n", after - before);
		return EXIT_LEFT;
	}
	return s.failures ? EXIT_FAILURES : 0;
}
