/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and maps memfds. memfd_fill makes pages present a few at a time; between two steps it checks whether
 * it is still wanted, and how much memory is left. */
#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headroom.h"

#define STEP_BYTES (8u << 20)

static bool make_huge(uintptr_t start, uintptr_t end, size_t page);
static int fill_slowly(const struct memfd_fill *fill);

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

static int new_sealed(uint64_t size, int seals)
{
	struct rlimit limit;
	int fd, r;

	/* A file larger than RLIMIT_FSIZE would raise SIGXFSZ. */
	if (size > INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur))
		return -EFBIG;
	fd = new_memfd();
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

int memfd_new(uint64_t size)
{
	return new_sealed(size, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

int memfd_new_sealable(uint64_t size)
{
	return new_sealed(size, F_SEAL_SHRINK | F_SEAL_GROW);
}

static uint64_t held_bytes(int fd, uint64_t *ret_size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return 0;
	*ret_size = (uint64_t)st.st_size;
	return (uint64_t)st.st_blocks * 512;
}

/* If a huge page at the end extends beyond the file, the file holds more bytes than its size, but may still
 * have a hole before that page: any difference counts as sparse. */
bool memfd_is_sparse(int fd)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = 0, held = held_bytes(fd, &size);

	return held != (size + page - 1) / page * page;
}

/* The position of fd is shared with whoever sent the descriptor, so this opens the file again if it can;
 * O_NONBLOCK keeps a lease on the file from delaying that. */
int64_t memfd_seek_hole(int fd, uint64_t start)
{
	char path[32];
	int own;
	off_t before, hole;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (own >= 0) {
		hole = lseek(own, (off_t)start, SEEK_HOLE);
		close(own);
		return hole;
	}
	before = lseek(fd, 0, SEEK_CUR);
	hole = lseek(fd, (off_t)start, SEEK_HOLE);
	lseek(fd, before, SEEK_SET);
	return hole;
}

/* ---- Filling ---------------------------------------------------------------------------------------- */

/* Returns whether there is memory for the pages that may be missing in the remaining `rest` bytes. Less than
 * a huge page is not checked, unless fill->spares is true. */
static bool is_left(const struct memfd_fill *fill, size_t rest)
{
	uint64_t needed = fill->missing < rest ? fill->missing : rest;
	struct headroom_figures figures;

	if (needed == 0 || (needed < HUGE_PAGE_BYTES && !fill->spares))
		return true;
	headroom_read(fill->headroom, &figures);
	return needed <= (fill->spares ? figures.spare : figures.available);
}

/* Returns whether pages are still missing. A file of large pages may hold more bytes than its size, and does
 * not report holes, so it counts as lacking pages whenever the two differ. */
static bool lacks_pages(const struct memfd_fill *fill)
{
	uint64_t end = fill->offset + fill->size;
	struct stat st;
	int64_t hole;

	if (!memfd_is_sparse(fill->fd) || fstat(fill->fd, &st) < 0)
		return false;
	if (st.st_blksize > sysconf(_SC_PAGESIZE))
		return true;
	if (end > (uint64_t)st.st_size)
		end = (uint64_t)st.st_size;
	hole = memfd_seek_hole(fill->fd, fill->offset);
	return hole >= 0 && (uint64_t)hole < end;
}

int memfd_fill(const struct memfd_fill *fill)
{
	uintptr_t at = (uintptr_t)fill->start, end = at + fill->size;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool huge = fill->huge;

	if (huge && fill->size >= HUGE_PAGE_BYTES)
		madvise(fill->start, fill->size, MADV_HUGEPAGE);
	while (at < end) {
		size_t step = STEP_BYTES - at % STEP_BYTES; /* A step never divides a huge page. */

		step = end - at < step ? end - at : step;
		if (fill->unwanted && atomic_load(fill->unwanted))
			return -ECANCELED;
		if (!is_left(fill, end - at))
			return -ENOSPC;
		huge = huge && make_huge(at, at + step, page);
		if (madvise((void *)at, step, fill->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
			at += step;
		else if (errno == EINVAL)
			break; /* The kernel is older than 5.14. */
		else if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	if (fill->missing && (at < end || lacks_pages(fill)))
		return fill_slowly(fill);
	return at < end ? -EOPNOTSUPP : 0;
}

/* Makes a huge page of each aligned range of HUGE_PAGE_BYTES within [start, end). None of their pages may be
 * present yet. MADV_COLLAPSE works even if shmem_enabled is "never", but only around a page that is present.
 * Returns false if the kernel provides no more huge pages. */
static bool make_huge(uintptr_t start, uintptr_t end, size_t page)
{
	uintptr_t at = (start + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);

	for (; at < end && end - at >= HUGE_PAGE_BYTES; at += HUGE_PAGE_BYTES)
		if (madvise((void *)at, page, MADV_POPULATE_WRITE) < 0 ||
		    madvise((void *)at, HUGE_PAGE_BYTES, MADV_COLLAPSE) < 0)
			return false;
	return true;
}

/* Fills pages where madvise is not supported, or has no effect, as in emulators. fallocate comes first, so
 * that lack of memory is an error and not a signal; a page counts as data only once it has been touched as
 * well. */
static int fill_slowly(const struct memfd_fill *fill)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = fill->start, *end = at + fill->size;
	uint64_t size = fill->size, file = 0;

	held_bytes(fill->fd, &file);
	if (file > fill->offset && size > file - fill->offset)
		size = file - fill->offset; /* F_SEAL_GROW forbids allocating beyond the end. */
	while (fill->writable &&
	       fallocate(fill->fd, FALLOC_FL_KEEP_SIZE, (off_t)fill->offset, (off_t)size) < 0)
		if (errno != EINTR)
			return -errno;
	for (; at < end; at += page)
		if (fill->unwanted && atomic_load(fill->unwanted))
			return -ECANCELED;
		else if (fill->writable)
			__atomic_fetch_or(at, 0, __ATOMIC_RELAXED);
		else
			(void)*(volatile char *)at;
	return 0;
}

/* ---- Mappings ------------------------------------------------------------------------------------------ */

/* Maps the file so that address and offset have the same remainder modulo a huge page, without which the
 * kernel does not map huge pages; not every kernel picks such an address by itself. Reserves a larger range
 * of addresses and maps the file within it. Returns MAP_FAILED if that fails. */
static void *map_aligned(size_t size, int prot, int flags, int fd, uint64_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t skew = (size_t)(offset % HUGE_PAGE_BYTES);
	size_t whole = (size + page - 1) / page * page;
	char *room = mmap(NULL, whole + HUGE_PAGE_BYTES, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;
	void *map;

	if (room == MAP_FAILED)
		return MAP_FAILED;
	before = (HUGE_PAGE_BYTES + skew - (uintptr_t)room % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
	map = mmap(room + before, size, prot, flags | MAP_FIXED, fd, (off_t)offset);
	if (map == MAP_FAILED) {
		munmap(room, whole + HUGE_PAGE_BYTES);
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	munmap(room + before + whole, HUGE_PAGE_BYTES - before);
	return map;
}

static void *map_anywhere(size_t size, int prot, int flags, int fd, uint64_t offset)
{
	void *map = MAP_FAILED;

	if (size >= HUGE_PAGE_BYTES && size <= SIZE_MAX / 2)
		map = map_aligned(size, prot, flags, fd, offset);
	return map != MAP_FAILED ? map : mmap(NULL, size, prot, flags, fd, (off_t)offset);
}

void *mapping_new(size_t size, int prot, int fd, uint64_t offset)
{
	return map_anywhere(size, prot, MAP_SHARED | MAP_NORESERVE, fd, offset);
}

void *mapping_new_private(size_t size, int fd, uint64_t offset)
{
	return map_anywhere(size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, offset);
}
