/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, makes and checks memfds and similar files. Every size is checked against the size that the kernel
 * reports for the file. A seal against shrinking keeps that size valid; without one the file is kept open to
 * be checked again (backing.h). Pages are populated before a mapping is handed out, so that a copy does not
 * fault on each of them. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/memory/headroom.h"
#include "proto/memory/memfd.h"
#include "backing.h"
#include "scout.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* This says what becomes of the mapping of a client's file. UNPINNED: no device pins it. TO_PIN: a device is
 * about to pin it. VIEWED: another process of the service has populated the file. LOOSE: a device pins it
 * later, once the file is sealed. */
enum sharing { UNPINNED, TO_PIN, VIEWED, LOOSE };

/* The half-open range of the file that a mapping covers, in bytes. */
struct span {
	uint64_t start;
	uint64_t end;
};

static int check_file(const struct engine_handle *handle, struct stat *ret, struct error *err);
static int check_pages(const struct engine_handle *handle, enum sharing sharing, struct error *err);
static int await_lock(const struct engine_handle *handle, struct error *err);
static int map_file(const struct engine_handle *handle, const struct stat *st, bool is_private,
                    struct host_memory **ret, struct error *err);
static int keep(const struct engine_handle *handle, struct host_memory *memory, struct error *err);
static int note_stalls(const struct engine_handle *handle, struct host_memory *memory, struct error *err);
static int watch(const struct engine_handle *handle, const struct host_memory *memory, enum sharing sharing,
                 struct error *err);
static int populate(const struct engine_handle *handle, const struct host_memory *memory, struct error *err);
static int check_sealable(const struct engine_handle *handle, struct error *err);
static int fill(const struct engine_handle *handle, const struct host_memory *memory, struct error *err);

void host_memory_init_own(struct host_memory *ret)
{
	char *first = (char *)HOST_MEMORY_FIRST;

	*ret = (struct host_memory){
		.base = { .kind = REGION_KIND_MEMFD,
		          .writable = true,
		          .size = (UINT64_C(1) << 56) - HOST_MEMORY_FIRST,
		          .base = HOST_MEMORY_FIRST,
		          .address = HOST_MEMORY_FIRST,
		          .host = first,
		          .seals = -1 },
		.data = first,
		.own_seals = -1,
	};
}

static int map_client(const struct engine_handle *handle, enum sharing sharing, struct engine_memory **ret,
                      struct error *err)
{
	struct host_memory *memory;
	struct stat st;
	if (handle->kind != REGION_KIND_MEMFD)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "kind %s: the cpu engine maps only memfd regions; %s needs --engine=cuda",
		                 region_kind_names[handle->kind], region_kind_names[handle->kind]);
	int r = check_file(handle, &st, err);
	if (r == 0)
		r = check_pages(handle, sharing, err);
	if (r == 0 && handle->is_untrusted)
		r = await_lock(handle, err);
	if (r == 0)
		r = map_file(handle, &st, !handle->writable && sharing != TO_PIN, &memory, err);
	if (r < 0)
		return r;
	r = keep(handle, memory, err);
	if (r == 0)
		r = note_stalls(handle, memory, err);
	const bool is_loose = r == 0 && sharing == TO_PIN && atomic_load(&memory->base.may_stall);
	if (is_loose)
		r = check_sealable(handle, err);
	if (r == 0)
		r = watch(handle, memory, is_loose ? LOOSE : sharing, err);
	if (r == 0 && sharing != VIEWED && !is_loose)
		r = populate(handle, memory, err);
	atomic_store(&memory->base.is_loose, is_loose);
	if (r < 0)
		host_memory_unmap(&memory->base);
	else
		*ret = &memory->base;
	return r;
}

int host_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err)
{
	return map_client(handle, UNPINNED, ret, err);
}

int host_memory_map_to_pin(const struct engine_handle *handle, struct engine_memory **ret, struct error *err)
{
	return map_client(handle, TO_PIN, ret, err);
}

int host_memory_view(const struct engine_handle *handle, struct engine_memory **ret, struct error *err)
{
	return map_client(handle, VIEWED, ret, err);
}

/* Maps memory that the service has made. It is filled before it is watched, because this one time the service
 * has to allocate its pages. */
static int map_made(const struct engine_handle *handle, struct engine_memory **ret, struct error *err)
{
	struct host_memory *memory;
	struct stat st;
	if (fstat(handle->fd, &st) < 0)
		return error_set(err, STATUS_NO_MEMORY, "size: a memfd of %" PRIu64 " bytes: %s",
		                 handle->size, strerror(errno));
	int r = map_file(handle, &st, false, &memory, err);
	if (r < 0)
		return r;
	memory->is_made = true;
	r = fill(handle, memory, err);
	if (r == 0)
		r = note_stalls(handle, memory, err);
	if (r == 0)
		r = watch(handle, memory, UNPINNED, err);
	if (r < 0)
		host_memory_unmap(&memory->base);
	else
		*ret = &memory->base;
	return r;
}

int host_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err)
{
	struct engine_handle handle = *wanted;
	if (wanted->kind != REGION_KIND_MEMFD)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "kind %s: the cpu engine creates only memfd regions; %s needs --engine=cuda",
		                 region_kind_names[wanted->kind], region_kind_names[wanted->kind]);
	if (wanted->size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	handle.writable = true;
	handle.fd = memfd_new(wanted->size);
	if (handle.fd < 0)
		return error_set(err, STATUS_NO_MEMORY, "size: a memfd of %" PRIu64 " bytes: %s",
		                 wanted->size, strerror(-handle.fd));
	int r = map_made(&handle, ret, err);
	if (r < 0)
		close(handle.fd);
	else
		*ret_export = (struct engine_export){ .fd = handle.fd };
	return r;
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

/* Checks that the file is one that can be mapped. Only files with pages of shmem or hugetlb have seals,
 * whatever file system they are in, and the kernel reads the seals from the inode without asking a file
 * system. Files that cannot have seals are refused before fstat, which may take as long as a file system
 * likes. */
static int check_file(const struct engine_handle *handle, struct stat *ret, struct error *err)
{
	uint64_t end;
	if (handle->size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	int seals = fcntl(handle->fd, F_GET_SEALS);
	if (seals < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: it is not %s",
		                 errno == EBADF ? "open for reading (O_PATH)"
		                                : "a memfd or a file of tmpfs or hugetlbfs");
	int r = check_mode(handle, err);
	if (r < 0)
		return r;
	if (fstat(handle->fd, ret) < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: %s", strerror(errno));
	if (__builtin_add_overflow(handle->offset, handle->size, &end) || end > (uint64_t)ret->st_size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64
		                 " exceeds the file, which has %" PRIu64 " bytes",
		                 handle->offset, handle->size, (uint64_t)ret->st_size);
	return 0;
}

static bool is_sealed(int fd, int seals)
{
	int has = fcntl(fd, F_GET_SEALS);
	return has > 0 && (has & seals) != 0;
}

static bool is_sealed_against_writing(int fd)
{
	return is_sealed(fd, F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

/* Returns whether no page of the file can go missing any more. Adding a seal takes the inode's lock, which is
 * held while a hole is punched: once the seals are there, no hole is being punched either. */
static bool is_fixed(int fd)
{
	return is_sealed_against_writing(fd) && is_sealed(fd, F_SEAL_SHRINK);
}

/* Checks that the file can get no hole. Punching holes counts as writing, and a file that shrinks and then
 * grows has a hole as well. */
static int check_unwatched(const struct engine_handle *handle, struct error *err)
{
	if (!is_sealed_against_writing(handle->fd))
		return error_set(
		    err, STATUS_PERMISSION,
		    "fd: it is open for reading only, and the file, which is to be pinned, could still get "
		    "holes; send a descriptor that is open for writing with writable false, or seal the "
		    "memfd (F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE)");
	if (!is_sealed(handle->fd, F_SEAL_SHRINK))
		return error_set(
		    err, STATUS_PERMISSION,
		    "fd: the memfd, which is to be pinned, is sealed against writing and could still "
		    "shrink; seal it with F_SEAL_SHRINK too");
	return 0;
}

/* Checks that a mapping of the file can be watched for holes, or need not be. */
static int check_pages(const struct engine_handle *handle, enum sharing sharing, struct error *err)
{
	uint64_t page = holes_page_bytes(handle->fd);
	int mode = fcntl(handle->fd, F_GETFL) & O_ACCMODE;
	if (sharing == TO_PIN && (mode == O_RDONLY || is_sealed_against_writing(handle->fd))) {
		int r = check_unwatched(handle, err);
		if (r < 0)
			return r;
	}
	if (page > HUGE_PAGE_BYTES && !holes_can_watch())
		return error_set(err, STATUS_UNSUPPORTED,
		                 "fd: its pages have %" PRIu64
		                 " bytes; without userfaultfd the service takes pages of at most %zu",
		                 page, HUGE_PAGE_BYTES);
	return 0;
}

/* ---- Mapping ---------------------------------------------------------------------------------------- */

/* Returns the page size of a mapping of the file. Only hugetlb files have pages of a size of their own.
 * Transparent huge pages do not count, because a mapping of whole huge pages may reach beyond the end of the
 * file, which a device could not pin. */
static uint64_t page_of(int fd)
{
	uint64_t page = holes_page_bytes(fd);
	return page > 0 ? page : (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct span page_span(const struct engine_handle *handle, uint64_t page)
{
	uint64_t start = handle->offset & ~(page - 1);
	uint64_t size = handle->offset - start + handle->size;
	return (struct span){ .start = start, .end = start + (size + page - 1) / page * page };
}

static void *map_span(const struct engine_handle *handle, struct span span, bool is_private)
{
	size_t size = (size_t)(span.end - span.start);
	if (is_private)
		return mapping_new_private(size, handle->fd, span.start);
	return mapping_new(size, handle->writable ? PROT_READ | PROT_WRITE : PROT_READ, handle->fd,
	                   span.start);
}

/* Waits until the file can be mapped without waiting for its lock. Even a sealed file is checked, because its
 * lock may be held while 60000 other mappings of it are removed. */
static int await_lock(const struct engine_handle *handle, struct error *err)
{
	const struct scout_part part = { handle->fd, handle->user, handle->offset, handle->size };
	if (scout_finds_free(&part, handle->unwanted))
		return 0;
	return error_set(
	    err, STATUS_BUSY,
	    "fd: the file is so busy with holes that are being punched, or with mappings, that it could not "
	    "be mapped within 2 s");
}

static int map_file(const struct engine_handle *handle, const struct stat *st, bool is_private,
                    struct host_memory **ret, struct error *err)
{
	uint64_t page = page_of(handle->fd);
	struct span span = page_span(handle, page);
	struct host_memory *memory = malloc(sizeof(*memory));
	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	void *map = map_span(handle, span, is_private);
	if (map == MAP_FAILED) {
		int status = errno == EACCES || errno == EPERM ? STATUS_PERMISSION : STATUS_NO_MEMORY;
		error_set(err, status, "fd: mapping %" PRIu64 " bytes: %s", handle->size,
		          status == STATUS_PERMISSION && handle->writable
		              ? "it is sealed against writing; register the region with writable false"
		              : strerror(errno));
		free(memory);
		return status;
	}
	*memory = (struct host_memory){
		.base = { .kind = REGION_KIND_MEMFD,
		          .writable = handle->writable,
		          .size = handle->size,
		          .base = handle->offset,
		          .address = (uint64_t)(uintptr_t)map + (handle->offset - span.start),
		          .host = (char *)map + (handle->offset - span.start),
		          .memory = { (uint64_t)st->st_dev, (uint64_t)st->st_ino },
		          .seals = -1 },
		.data = (char *)map + (handle->offset - span.start),
		.mapped = { map, (size_t)(span.end - span.start) },
		.page = (size_t)page,
		.own_seals = -1,
	};
	*ret = memory;
	return 0;
}

static int refuse_page(struct error *err)
{
	return error_set(
	    err, STATUS_INVALID_ARGUMENT,
	    "fd: the file has a hole, or a page that the machine has lost, or has just shrunk; fill it first: "
	    "write to it or call posix_fallocate()");
}

/* Sets may_stall, and the fields that are valid with it. If the file can shrink, its backing has a descriptor
 * already; otherwise one is opened here. */
static int note_stalls(const struct engine_handle *handle, struct host_memory *memory, struct error *err)
{
	if (!handle->is_untrusted || is_fixed(handle->fd))
		return 0;
	memory->base.user = handle->user;
	if (memory->base.backing)
		memory->base.seals = memory->base.backing->fd;
	else
		memory->base.seals = memory->own_seals = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
	if (memory->base.seals < 0)
		return error_set(err, STATUS_NO_MEMORY, "fd: it cannot be kept open: %s", strerror(errno));
	atomic_store(&memory->base.may_stall, true);
	return 0;
}

static int refuse_unsealed(struct error *err)
{
	return error_set(
	    err, STATUS_UNSUPPORTED,
	    "fd: a device cannot use the file, because it cannot be sealed with F_SEAL_SHRINK and "
	    "F_SEAL_FUTURE_WRITE; use a memfd that is made with MFD_ALLOW_SEALING and open for writing");
}

/* Checks that the file can be sealed later on. */
static int check_sealable(const struct engine_handle *handle, struct error *err)
{
	const bool may_write = (fcntl(handle->fd, F_GETFL) & O_ACCMODE) == O_RDWR;

	if (may_write && !is_sealed(handle->fd, F_SEAL_SEAL))
		return 0;
	return refuse_unsealed(err);
}

static struct scout_part part_of(const struct engine_memory *base)
{
	return (struct scout_part){ base->seals, base->user, base->base, base->size };
}

/* If userfaultfd is available, populating the pages finds those that are missing, so a hole is no error
 * here. */
int engine_memory_seal(struct engine_memory *base, const atomic_bool *unwanted, struct error *err)
{
	if (!atomic_load(&base->is_loose))
		return 0;
	const struct scout_part part = part_of(base);
	switch (scout_seal(&part, unwanted)) {
	case SCOUT_SEALED:
		break;
	case SCOUT_SEALED_WITH_HOLE:
		if (!holes_can_watch())
			return refuse_page(err);
		break;
	case SCOUT_REFUSED:
		return refuse_unsealed(err);
	default:
		return error_set(err, STATUS_BUSY,
		                 "fd: the file is so busy with writes, or with holes that are being punched, "
		                 "that it could not be sealed within 2 s");
	}
	return engine_memory_may_stall(base) ? refuse_unsealed(err) : 0;
}

bool engine_memory_may_stall(struct engine_memory *base)
{
	if (!atomic_load_explicit(&base->may_stall, memory_order_acquire))
		return false;
	if (!is_fixed(base->seals))
		return true;
	atomic_store(&base->may_stall, false);
	return false;
}

int host_memory_populate(struct engine_memory *base, const atomic_bool *unwanted, struct error *err)
{
	const struct engine_handle handle = { .fd = base->seals,
		                              .offset = base->base,
		                              .size = base->size,
		                              .writable = base->writable,
		                              .unwanted = unwanted,
		                              .is_untrusted = true };

	return populate(&handle, host_memory(base), err);
}

bool host_memory_is_free(struct engine_memory *base)
{
	const struct scout_part part = part_of(base);
	return !engine_memory_may_stall(base) || scout_finds_free(&part, NULL);
}

/* Creates a backing for a file that can shrink. A seal is never removed, so a sealed file needs none. */
static int keep(const struct engine_handle *handle, struct host_memory *memory, struct error *err)
{
	if (is_sealed(handle->fd, F_SEAL_SHRINK))
		return 0;
	return backing_new(handle->fd, handle->offset + handle->size, &memory->base.backing, err);
}

int host_memory_pin(struct engine_memory *base, struct error *err)
{
	struct host_memory *memory = host_memory(base);
	if (!base->backing) {
		int r = backing_new(-1, 0, &base->backing, err);
		if (r < 0)
			return r;
	}
	backing_pin(base->backing, memory->mapped, memory->page);
	return 0;
}

int host_memory_pinned(struct engine_memory *base, struct error *err)
{
	if (backing_is_whole(base->backing))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT, "fd: the file shrank while it was registered");
}

void host_memory_unpin(struct engine_memory *base)
{
	backing_unpin(base->backing);
}

/* ---- Pages ------------------------------------------------------------------------------------------ */

static int refuse_hole(uint64_t at, struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "fd: the file has a hole at byte %" PRIu64
	                 "; fill it first: write to it or call posix_fallocate()",
	                 at);
}

/* Makes accesses to holes fail instead of allocating pages, or, if the mapping cannot be watched, checks once
 * that there is no hole. A single check suffices for a file that is sealed against writing and shrinking,
 * which can get no more holes. The client may have sealed the file since check_pages, so a file that is to be
 * pinned is checked again. */
static int watch(const struct engine_handle *handle, const struct host_memory *memory, enum sharing sharing,
                 struct error *err)
{
	uint64_t hole;
	int r = holes_can_watch() ? holes_watch((void *)memory->mapped.start, memory->mapped.size) : -EINVAL;
	if (r == 0)
		return 0;
	if (r == -EPERM && sharing == TO_PIN && check_unwatched(handle, err) < 0)
		return err->status;
	if (r != -EINVAL && r != -EPERM)
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes: the memory cannot be watched for holes: %s",
		                 handle->size, strerror(-r));
	if (sharing == LOOSE) /* engine_memory_seal will look for holes */
		return 0;
	if (!holes_find(handle->fd, handle->offset, handle->offset + handle->size, &hole))
		return 0;
	return refuse_hole(hole, err);
}

static struct memfd_fill whole_pages(const struct engine_handle *handle, const struct host_memory *memory)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)memory->data & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory->data + handle->size + page - 1) & ~(page - 1);
	return (struct memfd_fill){ .fd = handle->fd,
		                    .offset = handle->offset & ~(uint64_t)(page - 1),
		                    .start = (void *)start,
		                    .size = end - start,
		                    .writable = handle->writable,
		                    .unwanted = handle->unwanted };
}

/* Maps all pages of the range, in which the file must have no holes. */
static int populate(const struct engine_handle *handle, const struct host_memory *memory, struct error *err)
{
	struct memfd_fill pages = whole_pages(handle, memory);
	/* Looking for holes takes the inode's lock, which a client may be holding for loose memory. */
	const bool looks = !atomic_load(&memory->base.is_loose);
	uint64_t hole;
	int r = memfd_fill(&pages);
	switch (r) {
	case 0:
		return 0;
	case -EOPNOTSUPP:
		if (looks && holes_find(handle->fd, handle->offset, handle->offset + handle->size, &hole))
			return refuse_hole(hole, err);
		return 0;
	case -ECANCELED:
		return error_set(err, STATUS_CANCELED, "nobody is waiting for the memory any longer");
	case -EFAULT:
		if (looks && holes_find(handle->fd, handle->offset, handle->offset + handle->size, &hole))
			return refuse_hole(hole, err);
		return refuse_page(err);
	default:
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes: the memory could not be allocated: %s",
		                 handle->size, strerror(-r));
	}
}

/* Allocates the file's pages, as small rather than huge pages: a client that pins a part of a huge page would
 * keep all of that page charged to the service. */
static int fill(const struct engine_handle *handle, const struct host_memory *memory, struct error *err)
{
	struct memfd_fill pages = whole_pages(handle, memory);
	struct headroom headroom;
	headroom_init(&headroom, "");
	pages.missing = pages.size;
	pages.headroom = &headroom;
	pages.spares = true;
	int r = memfd_fill(&pages);
	if (r == -ENOSPC)
		return error_set(
		    err, STATUS_NO_MEMORY,
		    "size: %" PRIu64
		    " bytes: the machine or the service's cgroup does not have that much memory left",
		    handle->size);
	if (r == -ECANCELED)
		return error_set(err, STATUS_CANCELED, "nobody is waiting for the memory any longer");
	if (r < 0)
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes: the memory could not be allocated: %s",
		                 handle->size, strerror(-r));
	return 0;
}

/* ---- Unmapping ----------------------------------------------------------------------------------------- */

/* Memory is unmapped in steps. The kernel empties a mapping of 4 KiB pages at about 10 GB/s and holds the
 * process's mmap_lock meanwhile, so that a single call would make every other thread that needs the lock
 * wait, 0.3 s for 4 GB. MADV_DONTNEED empties a range with the lock held for reading only: a thread that
 * changes the address space (brk, mmap) waits for one step at most, and page faults do not wait at all.
 * Calling munmap step by step would not do: each call takes the lock for writing, and brk, which competes
 * with them for the lock, was seen to lose for 16 ms (Linux 6.18). A range is unmapped only after it has been
 * emptied; its page tables are then freed at about 3000 GB/s.
 *
 * Memory that the service made loses its pages at the same time, so that a client that keeps the file open
 * keeps none of the service's memory. MADV_REMOVE, which takes them from the file, holds the lock no longer
 * than MADV_DONTNEED does.
 */

#define STEP_BYTES  HUGE_PAGE_BYTES /* takes 0.2 ms with 4 KiB pages; a step splits no huge page */
#define UNMAP_BYTES ((size_t)1 << 30)

/* Empties pages one by one. Needed if a cover (backing.h) has replaced one of them: MADV_REMOVE fails for
 * that page, because no file is behind it. */
static void empty_pages(char *start, size_t size, size_t page)
{
	for (size_t at = 0; at < size; at += page)
		madvise(start + at, page, MADV_REMOVE);
}

/* Empties a range. Returns false if the kernel cannot empty such a mapping (hugetlb pages before Linux
 * 5.18). */
static bool empty(const struct host_memory *memory, char *start, size_t size)
{
	int advice = memory->is_made ? MADV_REMOVE : MADV_DONTNEED;
	int r;
	do
		r = madvise(start, size, advice);
	while (r < 0 && errno == EINTR);
	if (r < 0 && memory->is_made && memory->base.backing &&
	    atomic_load(&memory->base.backing->cover.has_failed)) {
		empty_pages(start, size, memory->page);
		return true;
	}
	return r == 0;
}

/* Unmaps the part that has been emptied, or all of the rest if the mapping cannot be cut there (hugetlb pages
 * of 1 GiB). */
static void unmap_emptied(struct host_memory *memory)
{
	struct fault_range *mapped = &memory->mapped;
	size_t size = memory->emptied;
	if (munmap((void *)mapped->start, size) < 0) {
		size = mapped->size;
		munmap((void *)mapped->start, size);
	}
	mapped->start = (const char *)mapped->start + size;
	mapped->size -= size;
	memory->emptied = 0;
}

static void free_files(struct host_memory *memory)
{
	if (memory->own_seals >= 0)
		close(memory->own_seals);
	backing_free(memory->base.backing);
	free(memory);
}

/* The cover is removed first, because the addresses may soon belong to another mapping. */
bool host_memory_unmap_step(struct engine_memory *base)
{
	struct host_memory *memory = host_memory(base);
	if (base->backing)
		backing_unpin(base->backing);
	char *at = (char *)memory->mapped.start + memory->emptied;
	size_t left = memory->mapped.size - memory->emptied;
	size_t step = STEP_BYTES - (uintptr_t)at % STEP_BYTES;
	if (step > left)
		step = left;
	bool is_empty = empty(memory, at, step);
	memory->emptied += step;
	if (is_empty && step < left && memory->emptied < UNMAP_BYTES)
		return false;
	if (!host_memory_is_free(base)) {
		memory->emptied -= step; /* tried again by the next step */
		return false;
	}
	unmap_emptied(memory);
	if (memory->mapped.size > 0)
		return false;
	free_files(memory);
	return true;
}

void host_memory_unmap(struct engine_memory *memory)
{
	while (!host_memory_unmap_step(memory))
		continue;
}

/* Pages that a device has pinned are freed when the device releases them, at the latest when the process
 * ends. A late write to the mapping must not fail, and may allocate a page again. Therefore the mapping is no
 * longer watched, and if it is still pinned, its cover stays, and with the cover the backing. */
void host_memory_leave(struct engine_memory *base)
{
	struct host_memory *memory = host_memory(base);
	if (memory->is_made) {
		holes_unwatch((void *)memory->mapped.start, memory->mapped.size);
		for (size_t at = 0, step; at < memory->mapped.size; at += step) {
			step = memory->mapped.size - at < STEP_BYTES ? memory->mapped.size - at : STEP_BYTES;
			empty(memory, (char *)memory->mapped.start + at, step);
		}
	}
	if (memory->own_seals >= 0)
		close(memory->own_seals);
	if (base->backing && !base->backing->is_pinned)
		backing_free(base->backing);
	free(memory);
}
