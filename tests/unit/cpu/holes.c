/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the service never allocates pages of clients' files: a hole is refused, and a page that is
 * removed later makes the access fail that reaches it. */
#include "kernels/host/backing.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "tests/emulated/emulated.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGE  4096
#define PAGES 16
#define SIZE  (PAGES * PAGE)

static void set_up(void)
{
	holes_init();
	cr_assert_eq(fault_init(), 0);
}

static void tear_down(void)
{
	fault_deinit();
	holes_deinit();
}

TestSuite(holes, .init = set_up, .fini = tear_down);

static long pages_of(int fd)
{
	struct stat st;
	cr_assert_eq(fstat(fd, &st), 0);
	return (long)st.st_blocks * 512 / PAGE;
}

/* Makes a file whose first pages are written, and the next ones only allocated. */
static int new_file(int written, int allocated, int seals)
{
	char page[PAGE];
	int fd = memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(fd, SIZE), 0);
	memset(page, 'w', sizeof(page));
	for (int i = 0; i < written; i++)
		cr_assert_eq(pwrite(fd, page, PAGE, (off_t)i * PAGE), PAGE);
	if (allocated > 0)
		cr_assert_eq(posix_fallocate(fd, (off_t)written * PAGE, (off_t)allocated * PAGE), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | seals), 0);
	return fd;
}

static int reopen(int fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int other = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(other, 0);
	return other;
}

static void punch(int fd, int page, int n)
{
	cr_assert_eq(
	    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)page * PAGE, (off_t)n * PAGE),
	    0);
}

struct access {
	volatile char *at;
	bool writes;
	char value;
};

static void touch(void *arg)
{
	struct access *access = arg;
	if (access->writes)
		*access->at = access->value;
	else
		access->value = *access->at;
}

/* Returns whether the access succeeds. */
static bool get(struct engine_memory *memory, size_t at, char *ret)
{
	struct fault_range ranges[2] = { host_memory(memory)->mapped };
	struct access access = { .at = host_memory(memory)->data + at };
	bool good = fault_guard(ranges, touch, &access);
	*ret = access.value;
	return good;
}

static bool put(struct engine_memory *memory, size_t at, char value)
{
	struct fault_range ranges[2] = { host_memory(memory)->mapped };
	struct access access = { .at = host_memory(memory)->data + at, .writes = true, .value = value };
	return fault_guard(ranges, touch, &access);
}

/* ---- At registration -------------------------------------------------------------------------------- */

struct row {
	char name[32];
	bool unwatched; /* as on a kernel without userfaultfd */
	bool read_only; /* the region is read-only */
	bool by_reader; /* the descriptor is open only for reading */
	bool pinned;
	int seals;
	int written, allocated; /* numbers of pages */
	uint64_t offset, size;
	int status;
	char says[48];
};

#define FULL .written = PAGES, .size = SIZE

ParameterizedTestParameters(holes, at_registration)
{
	static struct row rows[] = {
		{ .name = "full", FULL },
		{ .name = "allocated", .allocated = PAGES, .size = SIZE },
		{ .name = "partly allocated", .written = 3, .allocated = 4, .size = 7 * PAGE },
		{ .name = "before a hole", .written = 3, .offset = 5, .size = 3 * PAGE - 5 },
		{ .name = "empty",
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "fd: the file has a hole at byte 0; fill it" },
		{ .name = "one byte into a hole",
		  .written = 3,
		  .offset = 5,
		  .size = 3 * PAGE - 4,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 12288" },
		{ .name = "read-only", .read_only = true, FULL },
		{ .name = "read-only, by a reader", .read_only = true, .by_reader = true, FULL },
		{ .name = "read-only, with a hole",
		  .read_only = true,
		  .by_reader = true,
		  .written = 3,
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 12288" },
		{ .name = "sealed", .read_only = true, .seals = F_SEAL_WRITE, FULL },
		{ .name = "sealed, with a hole",
		  .read_only = true,
		  .seals = F_SEAL_WRITE,
		  .written = 3,
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 12288" },
		{ .name = "to pin", .pinned = true, FULL },
		{ .name = "to pin, read-only", .pinned = true, .read_only = true, FULL },
		{ .name = "to pin, by a reader",
		  .pinned = true,
		  .read_only = true,
		  .by_reader = true,
		  FULL,
		  .status = STATUS_PERMISSION,
		  .says = "F_SEAL_FUTURE_WRITE" },
		{ .name = "to pin, by a reader, sealed",
		  .pinned = true,
		  .read_only = true,
		  .by_reader = true,
		  .seals = F_SEAL_FUTURE_WRITE,
		  FULL },
		{ .name = "to pin, sealed, with a hole",
		  .pinned = true,
		  .read_only = true,
		  .by_reader = true,
		  .seals = F_SEAL_WRITE,
		  .written = 3,
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 12288" },
		{ .name = "unwatched, full", .unwatched = true, FULL },
		{ .name = "unwatched, allocated", .unwatched = true, .allocated = PAGES, .size = SIZE },
		{ .name = "unwatched, before a hole", .unwatched = true, .written = 3, .size = 3 * PAGE },
		{ .name = "unwatched, with a hole",
		  .unwatched = true,
		  .written = 3,
		  .size = 3 * PAGE + 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 12288" },
		{ .name = "unwatched, in a hole",
		  .unwatched = true,
		  .written = 3,
		  .offset = 5 * PAGE + 7,
		  .size = 10,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "hole at byte 20487" },
	};
	return cr_make_param_array(struct row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct row *row, holes, at_registration)
{
	if (row->unwatched)
		holes_deinit();
	else if (row->written && row->allocated && !holes_can_watch())
		cr_skip("pages that were never written look like holes where mappings cannot be watched");
	int fd = new_file(row->written, row->allocated, row->seals), sent = row->by_reader ? reopen(fd) : fd;
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                        .fd = sent,
		                        .offset = row->offset,
		                        .size = row->size,
		                        .writable = !row->read_only };
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	cr_assert_eq(lseek(fd, 77, SEEK_SET), 77);
	int r = row->pinned ? host_memory_map_to_pin(&handle, &memory, &err)
	                    : host_memory_map(&handle, &memory, &err);
	cr_assert_eq(r, row->status, "%s: %d %s", row->name, r, err.message);
	if (r < 0)
		cr_assert_not_null(strstr(err.message, row->says), "%s: %s", row->name, err.message);
	else
		host_memory_unmap(memory);
	cr_assert_eq(pages_of(fd), row->written + row->allocated, "%s: pages were made", row->name);
	cr_assert_eq(lseek(fd, 0, SEEK_CUR), 77, "%s: the descriptor's position is the client's", row->name);
	if (row->unwatched)
		holes_init();
}

/* ---- Later ------------------------------------------------------------------------------------------ */

struct later_row {
	char name[24];
	bool read_only, by_reader, pinned;
};

ParameterizedTestParameters(holes, later)
{
	static struct later_row rows[] = {
		{ "writable", false, false, false },        { "read-only", true, false, false },
		{ "by a reader", true, true, false },       { "pinned", false, false, true },
		{ "pinned, read-only", true, false, true },
	};
	return cr_make_param_array(struct later_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct later_row *row, holes, later)
{
	int fd = new_file(PAGES, 0, 0);
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                        .fd = row->by_reader ? reopen(fd) : fd,
		                        .size = SIZE,
		                        .writable = !row->read_only };
	struct engine_memory *memory;
	struct error err;
	char value;
	if (!holes_can_watch())
		cr_skip("there is no userfaultfd here");
	cr_assert_eq(row->pinned ? host_memory_map_to_pin(&handle, &memory, &err)
	                         : host_memory_map(&handle, &memory, &err),
	             0, "%s: %s", row->name, err.message);
	punch(fd, 2, 5);
	cr_assert_eq(pages_of(fd), PAGES - 5);
	for (int page = 2; page < 7; page++) {
		cr_assert_not(get(memory, (size_t)page * PAGE + 9, &value), "%s: page %d", row->name, page);
		if (!row->read_only)
			cr_assert_not(put(memory, (size_t)page * PAGE, 'p'), "%s: page %d", row->name, page);
	}
	cr_assert_eq(pages_of(fd), PAGES - 5, "%s: pages were made", row->name);
	cr_assert(get(memory, PAGE, &value) && value == 'w', "%s", row->name);

	/* A page that the client allocates again can be accessed again, and both sides see what the other
	 * writes. */
	cr_assert_eq(pwrite(fd, "n", 1, 3 * PAGE + 9), 1);
	cr_assert(get(memory, 3 * PAGE + 9, &value) && value == 'n', "%s: '%c'", row->name, value);
	cr_assert_eq(pwrite(fd, "o", 1, PAGE), 1);
	cr_assert(get(memory, PAGE, &value) && value == 'o', "%s: '%c'", row->name, value);
	if (!row->read_only) {
		cr_assert(put(memory, 3 * PAGE, 'p'));
		cr_assert_eq(pread(fd, &value, 1, 3 * PAGE), 1);
		cr_assert_eq(value, 'p');
	}
	host_memory_unmap(memory);
}

/* Memory that the service made loses its pages with the region, whoever still has the descriptor. */
Test(holes, what_was_made_is_emptied)
{
	struct engine_handle wanted = { .kind = REGION_KIND_MEMFD, .size = SIZE - 100 };
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;
	char value = 1;
	if (emulated())
		cr_skip("an emulator takes MADV_REMOVE without an effect");
	for (int left = 0; left < 2; left++) {
		cr_assert_eq(host_memory_create(&wanted, &memory, &made, &err), 0, "%s", err.message);
		cr_assert_eq(pages_of(made.fd), PAGES);
		cr_assert(put(memory, 5, 'x') && get(memory, 5, &value) && value == 'x');
		if (holes_can_watch()) {
			punch(made.fd, 0, 1);
			cr_assert_not(put(memory, 5, 'x'));
		}
		if (left)
			host_memory_leave(memory);
		else
			host_memory_unmap(memory);
		cr_assert_eq(pages_of(made.fd), 0, "%d", left);
		cr_assert_eq(pread(made.fd, &value, 1, PAGE + 5), 1);
		cr_assert_eq(value, 0);
		close(made.fd);
	}
}
