/* Mapping memfds. Every size is checked against what the kernel says of the file; a seal against shrinking
 * keeps it true. Pages are made present before the mapping is handed out, so that a copy does not meet holes
 * or an empty pool of memory. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/mapping.h"

#define POPULATE_BYTES (8u << 20) /* at a time, between two looks at who waits and what memory is left */

/* Of kernels newer than the headers may be: 5.14, 5.14, 6.1. Others answer EINVAL. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* The half-open range of the file that a mapping covers. */
struct span {
	uint64_t start;
	uint64_t end;
};

static int check_file(const struct engine_handle *handle, struct stat *ret, struct error *err);
static int map_file(const struct engine_handle *handle, const struct stat *st, struct engine_memory **ret,
                    struct error *err);
static int populate(const struct cpu_memory *memory, const struct stat *st, const atomic_bool *unwanted,
                    struct error *err);
static int make_file(uint64_t size, struct stat *ret, struct error *err);

int cpu_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err)
{
	struct stat st;
	if (handle->kind != REGION_KIND_MEMFD)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "kind %s: the cpu engine maps memfd regions; %s needs --engine=cuda",
		                 region_kind_names[handle->kind], region_kind_names[handle->kind]);
	int r = check_file(handle, &st, err);
	if (r < 0)
		return r;
	return map_file(handle, &st, ret, err);
}

int cpu_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                      struct engine_export *ret_export, struct error *err)
{
	struct engine_handle handle = *wanted;
	if (wanted->kind != REGION_KIND_MEMFD)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "kind %s: the cpu engine makes memfd regions; %s needs --engine=cuda",
		                 region_kind_names[wanted->kind], region_kind_names[wanted->kind]);
	struct stat st;
	handle.writable = true;
	handle.fd = make_file(wanted->size, &st, err);
	if (handle.fd < 0)
		return handle.fd;
	int r = map_file(&handle, &st, ret, err);
	if (r < 0)
		close(handle.fd);
	else
		*ret_export = (struct engine_export){ .fd = handle.fd };
	return r;
}

void cpu_memory_unmap(struct engine_memory *memory)
{
	struct fault_range mapped = cpu_memory(memory)->mapped;
	munmap((void *)mapped.start, mapped.size);
	free(memory);
}

void cpu_memory_leave(struct engine_memory *memory)
{
	free(memory);
}

/* ---- Checks ----------------------------------------------------------------------------------------- */

static int check_mode(const struct engine_handle *handle, struct error *err)
{
	int flags = fcntl(handle->fd, F_GETFL);
	if (flags < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: %s", strerror(errno));
	int mode = flags & O_ACCMODE;
	if (mode == O_WRONLY)
		return error_set(err, STATUS_PERMISSION, "fd: it is not open for reading");
	if (handle->writable && mode != O_RDWR)
		return error_set(err, STATUS_PERMISSION,
		                 "fd: it is open for reading only; open it for writing or register the "
		                 "region with writable false");
	return 0;
}

/* What is not a memfd is refused before fstat: a file system may let that wait for as long as it likes. */
static int check_file(const struct engine_handle *handle, struct stat *ret, struct error *err)
{
	uint64_t end;
	if (handle->size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	int seals = fcntl(handle->fd, F_GET_SEALS);
	if (seals < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: it is not %s",
		                 errno == EBADF ? "open for reading (O_PATH)" : "a memfd");
	int r = check_mode(handle, err);
	if (r < 0)
		return r;
	if (!(seals & F_SEAL_SHRINK))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: the memfd can shrink; seal it: fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "
		                 "made with MFD_ALLOW_SEALING");
	if (fstat(handle->fd, ret) < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: %s", strerror(errno));
	if (__builtin_add_overflow(handle->offset, handle->size, &end) || end > (uint64_t)ret->st_size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64
		                 " passes the end of the memfd, which has %" PRIu64 " bytes",
		                 handle->offset, handle->size, (uint64_t)ret->st_size);
	return 0;
}

/* ---- Mapping ---------------------------------------------------------------------------------------- */

/* Pages of the file: a hugetlb file maps in its own, which st_blksize names. */
static struct span page_span(const struct engine_handle *handle, const struct stat *st)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t block = (uint64_t)st->st_blksize;
	if (block > page && !(block & (block - 1)))
		page = block;
	uint64_t start = handle->offset & ~(page - 1);
	uint64_t size = handle->offset - start + handle->size;
	return (struct span){ .start = start, .end = start + (size + page - 1) / page * page };
}

static int map_file(const struct engine_handle *handle, const struct stat *st, struct engine_memory **ret,
                    struct error *err)
{
	struct span span = page_span(handle, st);
	size_t size = (size_t)(span.end - span.start);
	struct cpu_memory *memory = malloc(sizeof(*memory));
	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	void *map =
	    mapping_new(size, handle->writable ? PROT_READ | PROT_WRITE : PROT_READ, handle->fd, span.start);
	if (map == MAP_FAILED) {
		int status = errno == EACCES || errno == EPERM ? STATUS_PERMISSION : STATUS_NO_MEMORY;
		error_set(err, status, "fd: mapping %" PRIu64 " bytes: %s", handle->size,
		          status == STATUS_PERMISSION && handle->writable
		              ? "it is sealed against writing; register the region with writable false"
		              : strerror(errno));
		free(memory);
		return status;
	}
	*memory = (struct cpu_memory){
		.base = { .kind = REGION_KIND_MEMFD,
		          .writable = handle->writable,
		          .size = handle->size,
		          .base = handle->offset,
		          .host = (char *)map + (handle->offset - span.start),
		          .memory = { (uint64_t)st->st_dev, (uint64_t)st->st_ino } },
		.data = (char *)map + (handle->offset - span.start),
		.mapped = { map, size },
	};
	if (size >= HUGE_PAGE_BYTES)
		madvise(map, size, MADV_HUGEPAGE);
	int r = populate(memory, st, handle->unwanted, err);
	if (r < 0) {
		cpu_memory_unmap(&memory->base);
		return r;
	}
	*ret = &memory->base;
	return 0;
}

/* Bytes that the machine can still give out; UINT64_MAX where it does not say. */
static uint64_t available_bytes(void)
{
	uint64_t kib;
	bool found = false;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");
	if (!file)
		return UINT64_MAX;
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1;
	fclose(file);
	return found ? kib << 10 : UINT64_MAX;
}

/* Huge pages for the whole ones of [start, end), of which nothing is present. MADV_COLLAPSE gives them where
 * shmem_enabled is never too, but only around a page that is there. false: it gives no more. */
static bool make_huge(uintptr_t start, uintptr_t end, size_t page)
{
	uintptr_t at = (start + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
	for (; at < end && end - at >= HUGE_PAGE_BYTES; at += HUGE_PAGE_BYTES)
		if (madvise((void *)at, page, MADV_POPULATE_WRITE) < 0 ||
		    madvise((void *)at, HUGE_PAGE_BYTES, MADV_COLLAPSE) < 0)
			return false;
	return true;
}

/* Makes the region's pages present. Those that the file does not have yet are taken from the machine's free
 * memory: never more of them than there is, or the kernel would end some process to find it. */
static int populate(const struct cpu_memory *memory, const struct stat *st, const atomic_bool *unwanted,
                    struct error *err)
{
	int advice = memory->base.writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	uint64_t held = (uint64_t)st->st_blocks * 512;
	uint64_t holes = held < (uint64_t)st->st_size ? (uint64_t)st->st_size - held : 0;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)memory->data & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory->data + memory->base.size + page - 1) & ~(page - 1);
	bool huge = memory->base.writable && held == 0;
	while (at < end) {
		uint64_t needed = holes < end - at ? holes : end - at;
		size_t step = POPULATE_BYTES - at % POPULATE_BYTES; /* cuts no huge page */
		step = end - at < step ? end - at : step;
		if (unwanted && atomic_load(unwanted))
			return error_set(err, STATUS_CANCELED, "nobody waits for the memory any more");
		if (needed >= HUGE_PAGE_BYTES && needed > available_bytes())
			return error_set(err, STATUS_NO_MEMORY,
			                 "size: %" PRIu64 " bytes: the machine has not that much memory left",
			                 memory->base.size);
		huge = huge && make_huge(at, at + step, page);
		if (madvise((void *)at, step, advice) == 0) {
			at += step;
		} else if (errno == EINVAL) {
			return 0; /* a kernel before 5.14: pages come as they are touched */
		} else if (errno != EINTR && errno != EAGAIN) {
			return error_set(err, STATUS_NO_MEMORY,
			                 "size: %" PRIu64 " bytes: the memory could not be had: %s",
			                 memory->base.size, strerror(errno));
		}
	}
	return 0;
}

/* ---- Making ----------------------------------------------------------------------------------------- */

static int new_memfd(void)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_NOEXEC_SEAL
	int fd = memfd_create("tmad", flags | MFD_NOEXEC_SEAL);
	if (fd >= 0 || errno != EINVAL)
		return fd;
#endif
	return memfd_create("tmad", flags);
}

/* A sealed memfd of size zero bytes, or a negative status. */
static int make_file(uint64_t size, struct stat *ret, struct error *err)
{
	if (size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	int fd = size <= INT64_MAX ? new_memfd() : -1;
	if (size > INT64_MAX)
		errno = EFBIG;
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 || fstat(fd, ret) < 0) {
		error_set(err, STATUS_NO_MEMORY, "size: a memfd of %" PRIu64 " bytes: %s", size,
		          strerror(errno));
		if (fd >= 0)
			close(fd);
		return STATUS_NO_MEMORY;
	}
	return fd;
}
