/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what can be mapped, and the message for what cannot. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "tests/emulated/emulated.h"
#include "tests/support/tsan.h"

#define SIZE 20000

enum source {
	MEMFD,
	PLAIN_FILE,
	TMPFS_FILE,
	TMPFS_DIRECTORY,
	PIPE,
	SOCKET,
	DIRECTORY,
	PATH_ONLY,
	READ_ONLY,
	WRITE_ONLY,
	CLOSED
};

struct map_row {
	char name[32];
	enum source source;
	int seals;
	uint64_t offset, size;
	bool read_only;
	int status;
	char says[48]; /* part of the message */
};

static int reopen(int fd, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int other = open(path, flags);
	cr_assert_geq(other, 0);
	close(fd);
	return other;
}

static int new_memfd(int seals)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, SIZE), 0);
	cr_assert_eq(posix_fallocate(fd, 0, SIZE), 0);
	if (seals)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int open_source(const struct map_row *row)
{
	int fds[2];
	FILE *file;
	switch (row->source) {
	case MEMFD:
		return new_memfd(row->seals);
	case PATH_ONLY:
		return reopen(new_memfd(row->seals), O_PATH);
	case READ_ONLY:
		return reopen(new_memfd(row->seals), O_RDONLY);
	case WRITE_ONLY:
		return reopen(new_memfd(row->seals), O_WRONLY);
	case PLAIN_FILE:
		file = tmpfile();
		fds[0] = dup(fileno(file));
		fclose(file);
		cr_assert_eq(ftruncate(fds[0], SIZE), 0);
		return fds[0];
	case TMPFS_FILE:
		fds[0] = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
		if (fds[0] < 0)
			cr_skip("no tmpfs at /dev/shm");
		cr_assert_eq(ftruncate(fds[0], SIZE), 0);
		cr_assert_eq(posix_fallocate(fds[0], 0, SIZE), 0);
		return fds[0];
	case TMPFS_DIRECTORY:
		return open("/dev/shm", O_RDONLY | O_DIRECTORY);
	case PIPE:
		cr_assert_eq(pipe(fds), 0);
		return fds[0];
	case SOCKET:
		cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		return fds[0];
	case DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY);
	default:
		return 1000;
	}
}

ParameterizedTestParameters(memory, map)
{
	static struct map_row rows[] = {
		{ .name = "whole", .seals = F_SEAL_SHRINK, .size = SIZE },
		{ .name = "odd offset", .seals = F_SEAL_SHRINK, .offset = 4097, .size = SIZE - 4097 },
		{ .name = "last byte", .seals = F_SEAL_SHRINK, .offset = SIZE - 1, .size = 1 },
		{ .name = "all seals", .seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, .size = 1 },
		{ .name = "read-only fd, read-only",
		  .source = READ_ONLY,
		  .seals = F_SEAL_SHRINK,
		  .size = SIZE,
		  .read_only = true },
		{ .name = "sealed for writes, read-only",
		  .seals = F_SEAL_SHRINK | F_SEAL_WRITE,
		  .size = SIZE,
		  .read_only = true },
		{ .name = "unsealed", .size = SIZE },
		{ .name = "unsealed, odd offset", .offset = 4097, .size = SIZE - 4097 },
		{ .name = "unsealed, read-only fd", .source = READ_ONLY, .size = SIZE, .read_only = true },
		{ .name = "sealed for growth alone", .seals = F_SEAL_GROW, .size = SIZE },
		{ .name = "nothing",
		  .seals = F_SEAL_SHRINK,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not 0" },
		{ .name = "too long",
		  .seals = F_SEAL_SHRINK,
		  .size = SIZE + 1,
		  .status = STATUS_OUT_OF_RANGE,
		  .says = "which has 20000 bytes" },
		{ .name = "past the end",
		  .seals = F_SEAL_SHRINK,
		  .offset = SIZE,
		  .size = 1,
		  .status = STATUS_OUT_OF_RANGE,
		  .says = "offset 20000 + size 1" },
		{ .name = "overflow",
		  .seals = F_SEAL_SHRINK,
		  .offset = UINT64_MAX,
		  .size = 2,
		  .status = STATUS_OUT_OF_RANGE,
		  .says = "exceeds the file" },
		{ .name = "huge",
		  .seals = F_SEAL_SHRINK,
		  .size = UINT64_MAX,
		  .status = STATUS_OUT_OF_RANGE,
		  .says = "exceeds the file" },
		{ .name = "sealed for writes",
		  .seals = F_SEAL_SHRINK | F_SEAL_WRITE,
		  .size = SIZE,
		  .status = STATUS_PERMISSION,
		  .says = "sealed against writing" },
		{ .name = "read-only fd",
		  .source = READ_ONLY,
		  .seals = F_SEAL_SHRINK,
		  .size = SIZE,
		  .status = STATUS_PERMISSION,
		  .says = "writable false" },
		{ .name = "write-only fd",
		  .source = WRITE_ONLY,
		  .seals = F_SEAL_SHRINK,
		  .size = SIZE,
		  .status = STATUS_PERMISSION,
		  .says = "not open for reading" },
		{ .name = "path-only fd",
		  .source = PATH_ONLY,
		  .seals = F_SEAL_SHRINK,
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not open for reading" },
		{ .name = "plain file",
		  .source = PLAIN_FILE,
		  .size = SIZE,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "memfd" },
		{ .name = "tmpfs file", .source = TMPFS_FILE, .size = SIZE },
		{ .name = "tmpfs file, read-only", .source = TMPFS_FILE, .size = 1, .read_only = true },
		{ .name = "tmpfs file, too long",
		  .source = TMPFS_FILE,
		  .size = SIZE + 1,
		  .status = STATUS_OUT_OF_RANGE,
		  .says = "which has 20000 bytes" },
		{ .name = "tmpfs directory",
		  .source = TMPFS_DIRECTORY,
		  .size = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not a memfd or a file of tmpfs" },
		{ .name = "pipe",
		  .source = PIPE,
		  .size = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not a memfd" },
		{ .name = "socket",
		  .source = SOCKET,
		  .size = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not a memfd" },
		{ .name = "directory",
		  .source = DIRECTORY,
		  .size = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "not a memfd" },
		{ .name = "closed fd",
		  .source = CLOSED,
		  .size = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = "fd: " },
	};
	return cr_make_param_array(struct map_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct map_row *row, memory, map)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                        .fd = open_source(row),
		                        .offset = row->offset,
		                        .size = row->size,
		                        .writable = !row->read_only };
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	int r = host_memory_map(&handle, &memory, &err);
	cr_assert_eq(r, row->status, "%s: %d %s", row->name, r, err.message);
	if (r < 0) {
		cr_assert_eq(err.status, r, "%s", row->name);
		cr_assert_not_null(strstr(err.message, row->says), "%s: '%s'", row->name, err.message);
		cr_assert_null(memory, "%s", row->name);
		return;
	}
	struct stat st;
	fstat(handle.fd, &st);
	cr_assert_eq(memory->size, row->size, "%s", row->name);
	cr_assert_eq(memory->base, row->offset, "%s", row->name);
	cr_assert_eq(memory->writable, !row->read_only, "%s", row->name);
	cr_assert_eq(memory->memory[1], st.st_ino, "%s", row->name);
	char *data = host_memory(memory)->data, byte = 0;
	if (memory->writable) {
		data[0] = 'a';
		data[row->size - 1] = 'z';
		cr_assert_eq(pread(handle.fd, &byte, 1, (off_t)(row->offset + row->size - 1)), 1);
		cr_assert_eq(byte, 'z', "%s", row->name);
	} else {
		cr_assert_eq(data[0], 0, "%s", row->name);
	}
	host_memory_unmap(memory);
	close(handle.fd);
}

Test(memory, other_kinds_are_the_other_engines)
{
	struct engine_handle handle = { .kind = REGION_KIND_CUDA_IPC, .fd = -1, .size = 1 };
	struct engine_memory *memory;
	struct error err;
	cr_assert_eq(host_memory_map(&handle, &memory, &err), STATUS_UNSUPPORTED);
	cr_assert_not_null(strstr(err.message, "--engine=cuda"), "%s", err.message);
	cr_assert_not_null(strstr(err.message, "cuda_ipc"), "%s", err.message);
}

Test(memory, a_read_only_region_cannot_be_written, .signal = SIGSEGV)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                        .fd = new_memfd(F_SEAL_SHRINK),
		                        .size = SIZE };
	struct engine_memory *memory;
	struct error err;
	signal(SIGSEGV, SIG_DFL);
	if (host_memory_map(&handle, &memory, &err) == 0)
		*(volatile char *)host_memory(memory)->data = 1;
}

/* Two mappings of one memfd count as one memory, and mappings of two memfds as two. */
Test(memory, identity)
{
	struct engine_handle a = {
		.kind = REGION_KIND_MEMFD, .fd = new_memfd(F_SEAL_SHRINK), .size = 100, .writable = true
	};
	struct engine_handle b = a, c = a;
	struct engine_memory *ma, *mb, *mc;
	struct error err;
	b.fd = dup(a.fd);
	b.offset = 50;
	c.fd = new_memfd(F_SEAL_SHRINK);
	cr_assert_eq(host_memory_map(&a, &ma, &err), 0);
	cr_assert_eq(host_memory_map(&b, &mb, &err), 0);
	cr_assert_eq(host_memory_map(&c, &mc, &err), 0);
	cr_assert_arr_eq(ma->memory, mb->memory, sizeof(ma->memory));
	cr_assert_neq(ma->memory[1], mc->memory[1]);
	cr_assert_eq(mb->base - ma->base, 50);
	host_memory(mb)->data[0] = 'x';
	cr_assert_eq(host_memory(ma)->data[50], 'x');
	host_memory_unmap(ma);
	host_memory_unmap(mb);
	host_memory_unmap(mc);
}

Test(memory, create)
{
	struct engine_memory *memory;
	struct error err;
	struct engine_export made;
	cr_assert_eq(host_memory_create(&(struct engine_handle){ .kind = REGION_KIND_MEMFD, .size = SIZE },
	                                &memory, &made, &err),
	             0, "%s", err.message);
	int fd = made.fd;
	cr_assert_eq(made.handle_len, 0);
	cr_assert_eq(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
	             F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_assert_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	cr_assert_lt(ftruncate(fd, 10), 0);
	cr_assert_lt(ftruncate(fd, 2 * SIZE), 0);
	for (int i = 0; i < SIZE; i++)
		cr_assert_eq(host_memory(memory)->data[i], 0);
	cr_assert(memory->writable);
	cr_assert_eq(memory->size, SIZE);
	cr_assert_eq(memory->kind, REGION_KIND_MEMFD);
	host_memory_unmap(memory);
	close(fd);
}

/* The client that asked for the memory does not wait for it any more. */
Test(memory, unwanted)
{
	atomic_bool unwanted = true;
	struct engine_handle wanted = { .kind = REGION_KIND_MEMFD, .size = SIZE, .unwanted = &unwanted };
	struct engine_memory *memory = NULL;
	struct engine_export made;
	struct error err;

	cr_assert_eq(host_memory_create(&wanted, &memory, &made, &err), STATUS_CANCELED);
	cr_assert_null(memory);
	unwanted = false;
	cr_assert_eq(host_memory_create(&wanted, &memory, &made, &err), 0, "%s", err.message);
	host_memory_unmap(memory);
	close(made.fd);
}

struct create_row {
	char name[24];
	enum region_kind kind;
	uint64_t size;
	int status;
};

ParameterizedTestParameters(memory, create_refuses)
{
	static struct create_row rows[] = {
		{ "nothing", REGION_KIND_MEMFD, 0, STATUS_INVALID_ARGUMENT },
		{ "more than a file", REGION_KIND_MEMFD, UINT64_MAX, STATUS_NO_MEMORY },
		{ "an exabyte", REGION_KIND_MEMFD, 1ull << 60, STATUS_NO_MEMORY },
		{ "a petabyte", REGION_KIND_MEMFD, 1ull << 50, STATUS_NO_MEMORY },
		{ "an allocation", REGION_KIND_CUDA_FD, 4096, STATUS_UNSUPPORTED },
		{ "an IPC handle", REGION_KIND_CUDA_IPC, 4096, STATUS_UNSUPPORTED },
	};
	return cr_make_param_array(struct create_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct create_row *row, memory, create_refuses)
{
	struct engine_memory *memory = NULL;
	struct error err = { 0 };
	struct engine_export made = { .fd = -1 };
	int before = dup(0);
	close(before);
	cr_assert_eq(host_memory_create(&(struct engine_handle){ .kind = row->kind, .size = row->size },
	                                &memory, &made, &err),
	             row->status, "%s: %s", row->name, err.message);
	cr_assert_eq(err.status, row->status, "%s", row->name);
	cr_assert_null(memory, "%s", row->name);
	cr_assert_eq(made.fd, -1, "%s", row->name);
	int after = dup(0);
	cr_assert_eq(after, before, "%s: an fd was left open", row->name);
}

/* A terabyte of holes is refused before the service allocates it, which would use up the machine's memory. */
Test(memory, sparse)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = 1ull << 40, .writable = true };
	struct engine_memory *memory;
	struct error err;
	struct stat st;
	if (emulated())
		cr_skip("an emulator keeps a record of each page that is mapped");
	if (tsan_watches())
		cr_skip("ThreadSanitizer has no room for a mapping of 1 TiB");
	handle.fd = memfd_create("sparse", MFD_ALLOW_SEALING);
	cr_assert_eq(ftruncate(handle.fd, 1ll << 40), 0);
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(host_memory_map(&handle, &memory, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(err.message, "hole at byte 0"), "%s", err.message);
	fstat(handle.fd, &st);
	cr_assert_eq(st.st_blocks, 0);
}

/* Mounts a file system with huge pages in a mount namespace that ends with the process, and returns a file in
 * it, or -1. */
static int open_where_pages_are_huge(void)
{
	char folder[] = "/tmp/tmad-huge-XXXXXX";
	int fd = -1;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    !mkdtemp(folder))
		return -1;
	if (mount("none", folder, "tmpfs", 0, "size=8M,huge=always") == 0) {
		fd = open(folder, O_TMPFILE | O_RDWR, 0600);
		umount2(folder, MNT_DETACH);
	}
	rmdir(folder);
	return fd;
}

/* Pinned memory ends with the file and not with its last huge page, because a device could not pin what is
 * past the file's end. */
Test(memory, ends_with_the_file)
{
	struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .offset = 4096, .size = 5000, .writable = true
	};
	const char bytes[9096] = { 1 };
	struct engine_memory *memory;
	struct error err;
	struct stat st;
	handle.fd = open_where_pages_are_huge();
	if (handle.fd < 0)
		cr_skip("a tmpfs with huge pages cannot be mounted here");
	cr_assert_eq(write(handle.fd, bytes, sizeof bytes), sizeof bytes);
	cr_assert_eq(fstat(handle.fd, &st), 0);
	cr_expect_gt(st.st_blksize, 4096);
	cr_assert_eq(host_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	cr_expect_eq(host_memory(memory)->mapped.size, 8192);
	cr_expect_eq((const char *)host_memory(memory)->mapped.start, host_memory(memory)->data);
	host_memory_unmap(memory);
}

static bool is_mapped(const char *page)
{
	unsigned char in_core;
	return mincore((void *)page, 1, &in_core) == 0;
}

/* Returns how many pages of the mapping the process still has. */
static size_t count_pages(const char *start, size_t size)
{
	size_t n = 0, page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t entry;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	for (size_t at = 0; at < size; at += page) {
		off_t offset = (off_t)(((uintptr_t)start + at) / page * sizeof(entry));
		cr_assert_eq(pread(fd, &entry, sizeof(entry), offset), (ssize_t)sizeof(entry));
		n += entry >> 63;
	}
	close(fd);
	return n;
}

/* Each step unmaps a few pages, and the last one the mapping. The file keeps what was written. */
Test(memory, goes_in_steps)
{
	enum { STEPS_BYTES = 33 << 20, STEP_PAGES = 512 };
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = STEPS_BYTES, .writable = true };
	struct engine_memory *memory;
	struct error err;
	int steps = 1;
	if (emulated())
		cr_skip("an emulator's page tables are not the test's");
	handle.fd = memfd_create("steps", MFD_ALLOW_SEALING);
	cr_assert_eq(posix_fallocate(handle.fd, 0, STEPS_BYTES), 0);
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(host_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	char *start = host_memory(memory)->data;
	memset(start, 'x', STEPS_BYTES);
	for (size_t before = count_pages(start, STEPS_BYTES); !host_memory_unmap_step(memory); steps++) {
		size_t after = is_mapped(start) ? count_pages(start, STEPS_BYTES) : 0;
		cr_assert_leq(before - after, STEP_PAGES, "step %d: from %zu pages to %zu", steps, before,
		              after);
		before = after;
	}
	cr_assert_eq(steps, (STEPS_BYTES >> 21) + 1);
	cr_assert_not(is_mapped(start));
	char byte = 0;
	cr_assert_eq(pread(handle.fd, &byte, 1, STEPS_BYTES - 1), 1);
	cr_assert_eq(byte, 'x');
	close(handle.fd);
}
