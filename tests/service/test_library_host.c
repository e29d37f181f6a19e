/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory given by its pointer, against a real tmad: which mappings lead to a file, by each of the ways
 * to find it, and which do not. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/emulated/emulated.h"
#include "rig.h"

#define PAGE  4096
#define PAGES 16
#define BYTES (PAGES * PAGE)

static struct process service;
static tma_client *client;

static void setup(void)
{
	client = rig_start(&service, NULL);
}

static void teardown(void)
{
	rig_stop(&service, client);
}

TestSuite(library_host, .init = setup, .fini = teardown, .timeout = 60);

/* Afterwards this process cannot open /proc/self/map_files. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	cr_assert_eq(syscall(SYS_capset, &header, data), 0);
}

static uint8_t *map_at(void *at, int fd, int protection, int first_page, int pages)
{
	uint8_t *data = mmap(at, (size_t)pages * PAGE, protection, MAP_SHARED | (at ? MAP_FIXED : 0), fd,
	                     (off_t)first_page * PAGE);

	cr_assert_neq(data, MAP_FAILED);
	return data;
}

static int new_memfd(void)
{
	int fd = memfd_create("host", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(fd, BYTES), 0);
	return fd;
}

static tma_region *registered(const void *ptr, size_t size, unsigned flags, const char *name)
{
	tma_region *region = NULL;

	cr_assert_eq(tma_region_from_host_ptr(client, ptr, size, flags, &region), 0, "%s: %s", name,
	             tma_last_error(client));
	cr_assert_eq(tma_region_size(region), size, "%s", name);
	cr_assert_eq(tma_region_kind(region), TMA_REGION_MEMFD, "%s", name);
	cr_assert_null(tma_region_data(region), "%s", name);
	return region;
}

/* Copies 100 bytes between memory that the library has to find by itself. */
static int copy_of(const uint8_t *dst, const uint8_t *src)
{
	struct tma_tensor d = { .dtype = TMA_UINT8, .rank = 1, .shape = { 100 } }, s = d;
	struct tma_place to, from;

	cr_assert_eq(tma_region_find(client, dst, 100, &to), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_find_current(client, src, 100, &from), 0, "%s", tma_last_error(client));
	d.region = to.region;
	d.offset = to.offset;
	s.region = from.region;
	s.offset = from.offset;
	return tma_copy(client, &d, &s);
}

static void assert_moves(uint8_t *dst, uint8_t *src, unsigned seed, const char *name)
{
	for (unsigned i = 0; i < 100; i++)
		src[i] = (uint8_t)(i * 7 + seed);
	cr_assert_eq(copy_of(dst, src), 0, "%s: %s", name, tma_last_error(client));
	cr_assert_eq(memcmp(dst, src, 100), 0, "%s", name);
}

/* ---- Memory that can be registered ------------------------------------------------------------------ */

enum way {
	WITH_MEMFD,
	WITHOUT_DESCRIPTOR,
	UNLINKED,
	BY_PATH,
};

struct way_row {
	char name[40];
	enum way way;
	bool is_capable;
	int status;
};

ParameterizedTestParameters(library_host, ways_to_the_file)
{
	static struct way_row rows[] = {
		{ "a memfd", WITH_MEMFD, true, 0 },
		{ "a memfd, without capabilities", WITH_MEMFD, false, 0 },
		{ "a memfd that is closed", WITHOUT_DESCRIPTOR, true, 0 },
		{ "a memfd that is closed, without", WITHOUT_DESCRIPTOR, false, TMA_UNSUPPORTED },
		{ "an unlinked file", UNLINKED, true, 0 },
		{ "an unlinked file, without", UNLINKED, false, 0 },
		{ "a file that is closed", BY_PATH, true, 0 },
		{ "a file that is closed, without", BY_PATH, false, 0 },
	};

	return cr_make_param_array(struct way_row, rows, sizeof rows / sizeof *rows);
}

/* Returns whether map_files can be opened, which not every root may do. */
static bool opens_map_files(const uint8_t *data)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (unsigned long)data,
	         (unsigned long)data + (PAGES - 2) * PAGE);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

ParameterizedTest(struct way_row *row, library_host, ways_to_the_file)
{
	const bool is_file = row->way == UNLINKED || row->way == BY_PATH;
	char path[64];
	tma_region *region = NULL;
	uint8_t *data, *whole;
	int fd, status;

	snprintf(path, sizeof path, "/dev/shm/tmad test %d", (int)getpid());
	fd = is_file ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : new_memfd();
	if (fd < 0)
		cr_skip("no tmpfs at /dev/shm");
	cr_assert_eq(ftruncate(fd, BYTES), 0);
	data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 2, PAGES - 2);
	whole = map_at(NULL, fd, PROT_READ, 0, PAGES);
	if (row->way == UNLINKED)
		cr_assert_eq(unlink(path), 0);
	if (row->way == WITHOUT_DESCRIPTOR || row->way == BY_PATH)
		close(fd);
	if (!row->is_capable)
		drop_capabilities();
	if (row->is_capable && row->way == WITHOUT_DESCRIPTOR && !opens_map_files(data))
		cr_skip("this process cannot open /proc/self/map_files");
	status = tma_region_from_host_ptr(client, data + 100, 5 * PAGE, 0, &region);
	if (row->way == BY_PATH)
		unlink(path);
	cr_assert_eq(status, rig_is_local() ? 0 : row->status, "%s: %s", row->name, tma_last_error(client));
	if (status < 0) {
		cr_assert(strstr(tma_last_error(client), "has no descriptor of the file"), "%s",
		          tma_last_error(client));
		return;
	}
	assert_moves(data + 1000, data + 4 * PAGE, 1, row->name);
	cr_assert_eq(memcmp(whole + 2 * PAGE + 1000, data + 4 * PAGE, 100), 0, "%s: the file's own bytes",
	             row->name);
	cr_assert_eq(copy_of(data + 1000, data + 1099), TMA_OVERLAP, "%s", row->name);
	cr_assert_eq(tma_region_release(region), 0, "%s", tma_last_error(client));
}

/* mprotect splits one mapping, and a second mapping follows it both in the file and in memory. */
Test(library_host, several_mappings_of_a_range)
{
	int fd = new_memfd();
	uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	tma_region *region, *read_only, *ret = NULL;
	struct tma_place place;

	cr_assert_eq(mprotect(data + 4 * PAGE, PAGE, PROT_READ), 0);
	map_at(data + 8 * PAGE, fd, PROT_READ | PROT_WRITE, 8, 4);
	map_at(data + 12 * PAGE, fd, PROT_READ | PROT_WRITE, 13, 3);
	cr_assert_eq(tma_region_from_host_ptr(client, data, 5 * PAGE, 0, &ret), TMA_PERMISSION);
	cr_assert(strstr(tma_last_error(client), "TMA_REGION_READ_ONLY"), "%s", tma_last_error(client));
	read_only = registered(data, 12 * PAGE, TMA_REGION_READ_ONLY, "all that follows");
	region = registered(data + 5 * PAGE + 1, 7 * PAGE - 1, 0, "two that can be written to");
	cr_assert_eq(tma_region_find(client, data + 5 * PAGE, 100, &place), 0);
	cr_assert(place.region == read_only && place.offset == 5 * PAGE);
	cr_assert_eq(tma_region_find(client, data + 5 * PAGE + 1, 100, &place), 0);
	cr_assert(place.region == region && place.offset == 0);
	assert_moves(data + 9 * PAGE, data + 6 * PAGE, 1, "from one to the other");
	cr_assert_eq(copy_of(data + 4 * PAGE, data + 6 * PAGE), TMA_PERMISSION, "%s", tma_last_error(client));
	cr_assert_eq(tma_region_from_host_ptr(client, data + 8 * PAGE, 4 * PAGE + 1, 0, &ret),
	             TMA_OUT_OF_RANGE, "other bytes of the file follow");
	cr_assert_null(ret);
	close(fd);
}

/* The mapping is read-only, and so is what the service gets. */
Test(library_host, read_only)
{
	int fd = new_memfd(), flags;
	uint8_t *data, *written = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	tma_region *region;

	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
	data = map_at(NULL, fd, PROT_READ, 0, PAGES);
	cr_assert_eq(tma_region_from_host_ptr(client, data, PAGE, 0, &region), TMA_PERMISSION);
	region = registered(data, PAGE, TMA_REGION_READ_ONLY, "read-only");
	flags = fcntl(tma_region_fd(region), F_GETFL);
	cr_assert_eq(flags & O_ACCMODE, O_RDONLY);
	memcpy(written, "here", 5);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, PAGE, &region), 0);
	cr_assert_eq(copy_of(tma_region_data(region), data), 0, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_region_data(region), "here");
	close(fd);
}

/* The file can be opened, but only for reading. */
Test(library_host, a_file_that_cannot_be_written_to)
{
	char path[64];
	tma_region *region = NULL;
	uint8_t *data;
	int fd;

	snprintf(path, sizeof path, "/dev/shm/tmad test %d", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	if (fd < 0)
		cr_skip("no tmpfs at /dev/shm");
	cr_assert_eq(ftruncate(fd, BYTES), 0);
	data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	drop_capabilities();
	region = registered(data, PAGE, 0, "by the descriptor, as it is");
	cr_assert_eq(tma_region_release(region), 0);
	close(fd);
	cr_assert_eq(tma_region_from_host_ptr(client, data, PAGE, 0, &region), TMA_PERMISSION);
	cr_assert(strstr(tma_last_error(client), "cannot be opened for writing"), "%s",
	          tma_last_error(client));
	unlink(path);
}

/* A process at its limit of open descriptors gets an error that names the limit, whatever needs one more
 * descriptor. */
Test(library_host, no_descriptor_is_left)
{
	int fd = new_memfd(), more = dup(fd);
	uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	tma_client *second = tma_new();
	const tma_client *of[4] = { client, client, client, second };
	tma_region *region = NULL;
	struct rlimit old, low;
	char limit[64];
	int rc[4];

	cr_assert(more >= 0 && second);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = (rlim_t)more + 1, .rlim_max = old.rlim_max };
	for (int i = 0; i < more; i++)
		if (fcntl(i, F_GETFD) < 0)
			cr_assert_eq(dup2(fd, i), i);
	snprintf(limit, sizeof limit, "RLIMIT_NOFILE of this process is %d,", more + 1);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
		rc[i] = i == 0   ? tma_region_create_kind(client, TMA_REGION_MEMFD, PAGE, &region)
		        : i == 1 ? tma_region_from_host_ptr(client, data, PAGE, 0, &region)
		        : i == 2 ? tma_region_register_memfd(client, fd, 0, PAGE, 0, &region)
		                 : tma_connect(second, tma_socket_path(client));
		cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
		cr_assert_eq(rc[i], TMA_NO_MEMORY, "%d: %s", i, tma_last_error(of[i]));
		cr_assert(strstr(tma_last_error(of[i]), limit), "%d: %s", i, tma_last_error(of[i]));
	}
	tma_free(second);
}

/* ---- Memory that cannot be -------------------------------------------------------------------------- */

Test(library_host, what_is_no_range)
{
	int fd = new_memfd();
	uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	const struct {
		const char *name;
		const void *ptr;
		size_t size;
		unsigned flags;
	} rows[] = {
		{ "NULL", NULL, 1, 0 },
		{ "no bytes", data, 0, 0 },
		{ "flags", data, 1, 2 },
	};
	tma_region *ret = NULL;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int status = tma_region_from_host_ptr(client, rows[i].ptr, rows[i].size, rows[i].flags, &ret);

		cr_expect_eq(status, TMA_INVALID_ARGUMENT, "%s: %s", rows[i].name, tma_last_error(client));
		cr_expect_null(ret, "%s", rows[i].name);
	}
}

Test(library_host, what_is_wrong)
{
	char path[] = "/var/tmp/tmad-test-XXXXXX";
	int fd = new_memfd(), disk = mkostemp(path, O_CLOEXEC);
	uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES), *on_disk;
	const uint8_t *copied = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	const uint8_t *empty = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const uint8_t *allocated = malloc(PAGE);
	tma_region *ret = NULL;
	struct statfs fs;

	cr_assert_eq(munmap(data + 10 * PAGE, PAGE), 0);
	cr_assert_eq(ftruncate(disk, BYTES), 0);
	on_disk = map_at(NULL, disk, PROT_READ | PROT_WRITE, 0, PAGES);

	const struct {
		const char *name;
		const void *ptr;
		size_t size;
		unsigned flags;
		int status;
		const char *says;
	} rows[] = {
		{ "private", copied, PAGE, 0, TMA_UNSUPPORTED,
		  "private to this process; use tma_region_create_kind" },
		{ "anonymous", empty, PAGE, 0, TMA_UNSUPPORTED, "private to this process" },
		{ "of malloc", allocated, 1, 0, TMA_UNSUPPORTED, "private to this process" },
		{ "of the stack", &ret, 1, TMA_REGION_READ_ONLY, TMA_UNSUPPORTED, "private to this process" },
		{ "too long", data + 9 * PAGE + 1, PAGE, 0, TMA_OUT_OF_RANGE, "4095 more, to address" },
		{ "far too long", data, SIZE_MAX, 0, TMA_OUT_OF_RANGE, "exceed its mapping" },
		{ "in a gap", data + 10 * PAGE, 1, 0, TMA_INVALID_ARGUMENT, "nothing is mapped at" },
		{ "NULL", NULL, 1, 0, TMA_INVALID_ARGUMENT, "nothing is mapped at" },
		{ "no bytes", data, 0, 0, TMA_INVALID_ARGUMENT, "size: a region has at least 1 byte" },
		{ "flags", data, 1, 2, TMA_INVALID_ARGUMENT, "flags: 0x2" },
		{ "on a disk", on_disk, 1, 0, TMA_INVALID_ARGUMENT, "is not a file in memory" },
	};
	size_t n = sizeof rows / sizeof *rows;

	if (fstatfs(disk, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		n--;
	for (size_t i = 0; i < n; i++) {
		int status = tma_region_from_host_ptr(client, rows[i].ptr, rows[i].size, rows[i].flags, &ret);

		cr_expect_eq(status, rows[i].status, "%s: %s", rows[i].name, tma_last_error(client));
		cr_expect(strstr(tma_last_error(client), rows[i].says), "%s: %s", rows[i].name,
		          tma_last_error(client));
		cr_expect_null(ret, "%s", rows[i].name);
	}
	unlink(path);
}

/* ---- Afterwards ------------------------------------------------------------------------------------- */

Test(library_host, is_registered_again_when_the_service_comes_back)
{
	int fd = new_memfd();
	uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 0, PAGES);
	tma_region *region = registered(data + 1, BYTES - 1, 0, "all but a byte"), *same;
	struct tma_place place;

	close(fd);
	assert_moves(data + 1, data + 8 * PAGE, 1, "before");
	process_kill(&service);
	process_start_again(&service, NULL);
	assert_moves(data + 1, data + 8 * PAGE, 2, "afterwards");
	cr_assert_eq(tma_reconnects(client), 1);
	same = registered(data + 1, BYTES - 1, 0, "once more");
	cr_assert_neq(same, region);
	cr_assert_eq(tma_region_release(same), 0);
	cr_assert_eq(tma_region_find(client, data + 1, 1, &place), 0);
	cr_assert_eq(place.region, region);
	cr_assert_eq(tma_region_release(region), 0);
	cr_assert_eq(tma_region_find(client, data + 1, 1, &place), TMA_NOT_FOUND);
}

enum replacement { SAME_FILE, OTHER_FILE, OTHER_OFFSET, PRIVATE_COPY, ANONYMOUS, NOTHING };

struct replacement_row {
	char name[40];
	enum replacement replacement;
	bool is_found;
};

ParameterizedTestParameters(library_host, what_lies_there_now)
{
	static struct replacement_row rows[] = {
		{ "the same bytes", SAME_FILE, true },
		{ "another memfd of the same name", OTHER_FILE, false },
		{ "other bytes of the file", OTHER_OFFSET, false },
		{ "a private mapping of the file", PRIVATE_COPY, false },
		{ "memory of this process alone", ANONYMOUS, false },
		{ "nothing", NOTHING, false },
	};

	return cr_make_param_array(struct replacement_row, rows, sizeof rows / sizeof *rows);
}

/* Replaces a page by something else. */
static void replace(uint8_t *at, enum replacement replacement, int fd, int page)
{
	int other;

	switch (replacement) {
	case SAME_FILE:
		map_at(at, fd, PROT_READ | PROT_WRITE, page, 1);
		break;
	case OTHER_FILE:
		other = new_memfd();
		map_at(at, other, PROT_READ | PROT_WRITE, page, 1);
		close(other);
		break;
	case OTHER_OFFSET:
		map_at(at, fd, PROT_READ | PROT_WRITE, page + 1, 1);
		break;
	case PRIVATE_COPY:
		cr_assert_eq(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, (off_t)page * PAGE), at);
		break;
	case ANONYMOUS:
		cr_assert_eq(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
		break;
	case NOTHING:
		cr_assert_eq(munmap(at, PAGE), 0);
		break;
	}
}

/* Replaces the library's descriptor of /proc/self/maps by one that answers no queries, as with older
 * kernels. */
static void spoil_queries(void)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), n = 0;

	for (int fd = 3; fd < 100; fd++) {
		char path[32], target[32] = "";

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "/maps")) {
			cr_assert_eq(dup2(null, fd), fd);
			n++;
		}
	}
	cr_assert_eq(n, 1, "%d descriptors of /proc/self/maps", n);
	close(null);
}

/* The kernel answers a query, and then its text is read; the query is for the replaced page, and for the
 * whole range. An emulator answers no queries, and shows a file of its own as the text. */
ParameterizedTest(struct replacement_row *row, library_host, what_lies_there_now)
{
	const int ways = emulated() ? 2 : 4;

	for (int way = 0; way < ways; way++) {
		int fd = new_memfd();
		uint8_t *data = map_at(NULL, fd, PROT_READ | PROT_WRITE, 1, 6);
		tma_region *region = registered(data + 1, 6 * PAGE - 1, 0, row->name);
		const uint8_t *asked = way % 2 ? data + 1 : data + 3 * PAGE;
		const size_t size = way % 2 ? 6 * PAGE - 1 : 100;
		const int status = row->is_found ? 0 : TMA_NOT_FOUND;
		struct tma_place place;

		if (way == 2)
			spoil_queries();
		cr_assert_eq(tma_region_find(client, asked, size, &place), 0, "%s: before", row->name);
		replace(data + 3 * PAGE, row->replacement, fd, 4);
		cr_assert_eq(tma_region_find(client, asked, size, &place), status, "%s, way %d", row->name,
		             way);
		cr_assert_eq(tma_region_find_current(client, data, 1, &place), TMA_NOT_FOUND, "%s",
		             row->name);
		cr_assert_eq(tma_region_find_current(client, data + 1, 1, &place), status, "%s", row->name);
		cr_assert_eq(tma_region_release(region), 0, "%s", tma_last_error(client));
		munmap(data, 6 * PAGE);
		close(fd);
	}
}
