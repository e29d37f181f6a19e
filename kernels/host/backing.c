/* SPDX-License-Identifier: Apache-2.0 */
/* Checks files, and which of their pages are still mapped.
 *
 * A file that was cut and has grown again is recognized by a page that is no longer mapped: cutting the file
 * removes the region's last page from every mapping, and only an access maps the page again. Whether the page
 * is mapped is looked up only if the file's ctime has changed; writing to the file and unlinking it change
 * the ctime too.
 *
 * One userfaultfd watches all mappings of the process for holes. Nobody reads from it: with
 * UFFD_FEATURE_SIGBUS it has no events. Whether a page is mapped is read from /proc/self/pagemap.
 */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernels/transform/layer_table.h"
#include "proto/memory/memfd.h"

#define NS_A_SECOND INT64_C(1000000000)

/* More than a tick of the clock from which kernels before 6.13 take a file's times. */
#define TICK_NS INT64_C(20000000)

int backing_new(int fd, uint64_t end, struct backing **ret, struct error *err)
{
	struct backing *backing = calloc(1, sizeof(*backing));
	if (!backing)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	backing->end = end;
	backing->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0 && backing->fd < 0) {
		error_set(err, STATUS_NO_MEMORY, "fd: it cannot be kept open: %s", strerror(errno));
		free(backing);
		return STATUS_NO_MEMORY;
	}
	*ret = backing;
	return 0;
}

void backing_free(struct backing *backing)
{
	if (!backing)
		return;
	backing_unpin(backing);
	if (backing->fd >= 0)
		close(backing->fd);
	free(backing);
}

/* ---- Pinned memory ---------------------------------------------------------------------------------- */

/* Maps the region's last page once more, and returns whether that succeeded. The page is watched before it is
 * populated, so that this allocates no page in the file, and locked, so that nothing else unmaps it. If it
 * cannot be locked (RLIMIT_MEMLOCK) and there is swap space, the kernel may unmap it to reclaim memory,
 * although a device has pinned it. If the file's ctime changes as well, the file then counts as cut although
 * it was not: its client has to register it again, but no byte is lost. A file that was cut is always
 * recognized. */
static bool is_mapped_once_more(struct backing *backing, size_t page)
{
	char *last = mapping_new(page, PROT_READ, backing->fd, (backing->end - 1) & ~(uint64_t)(page - 1));
	if (last == MAP_FAILED)
		return false;
	if (holes_can_watch())
		holes_watch(last, page);
	if (madvise(last, page, MADV_POPULATE_READ) < 0 || !holes_is_mapped(last)) {
		munmap(last, page);
		return false;
	}
	mlock(last, page);
	backing->last = (struct fault_range){ last, page };
	return true;
}

/* If the last page cannot be mapped, either the file has just been cut, which the next check finds, or the
 * kernel is too old, and a file that is cut and grows again goes unnoticed. */
void backing_pin(struct backing *backing, struct fault_range mapped, size_t page)
{
	fault_cover_add(&backing->cover, mapped, page);
	backing->is_pinned = true;
	if (backing->fd >= 0)
		is_mapped_once_more(backing, page);
}

void backing_unpin(struct backing *backing)
{
	if (!backing->is_pinned)
		return;
	fault_cover_remove(&backing->cover);
	backing->is_pinned = false;
	if (backing->last.size > 0)
		munmap((void *)backing->last.start, backing->last.size);
	backing->last.size = 0;
}

static int64_t ns_between(const struct timespec *from, const struct timespec *to)
{
	return (to->tv_sec - from->tv_sec) * NS_A_SECOND + (to->tv_nsec - from->tv_nsec);
}

/* Returns whether the file may have changed since the last check. `now` was read before `st`. */
static bool has_changed(struct backing *backing, const struct stat *st, const struct timespec *now)
{
	bool same = backing->is_settled && ns_between(&backing->changed, &st->st_ctim) == 0;
	backing->changed = st->st_ctim;
	backing->is_settled = ns_between(&st->st_ctim, now) > TICK_NS;
	return !same;
}

static bool is_pinned_whole(struct backing *backing, const struct stat *st, const struct timespec *now)
{
	return !has_changed(backing, st, now) || backing->last.size == 0 ||
	       holes_is_mapped(backing->last.start);
}

/* ---- Looking ---------------------------------------------------------------------------------------- */

bool backing_is_whole(struct backing *backing)
{
	struct timespec now = { 0 };
	struct stat st;
	bool is = true;
	if (atomic_load(&backing->is_lost))
		return false;
	if (backing->fd >= 0) {
		if (backing->is_pinned)
			clock_gettime(CLOCK_REALTIME, &now);
		is = fstat(backing->fd, &st) == 0 && (uint64_t)st.st_size >= backing->end;
	}
	if (!backing->is_pinned)
		return is;
	if (is && backing->fd >= 0)
		is = is_pinned_whole(backing, &st, &now);
	is = is && !atomic_load(&backing->cover.has_failed);
	if (!is)
		atomic_store(&backing->is_lost, true);
	return is;
}

enum engine_loss engine_memory_loss(const struct engine_memory *memory, uint64_t *ret_bytes)
{
	const struct backing *backing = memory->backing;
	struct stat st;
	if (atomic_load(&memory->is_gone))
		return ENGINE_LOSS_GONE;
	if (!backing)
		return ENGINE_LOSS_NONE;
	if (backing->fd >= 0 && fstat(backing->fd, &st) == 0 && (uint64_t)st.st_size < backing->end) {
		*ret_bytes = (uint64_t)st.st_size;
		return ENGINE_LOSS_SHRUNK;
	}
	return atomic_load(&backing->is_lost) ? ENGINE_LOSS_PINS : ENGINE_LOSS_NONE;
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

static inline bool has_backing(struct engine_memory *memory, void *arg)
{
	(void)arg;
	return memory->backing != NULL;
}

bool backing_concerns(const struct engine_job *job)
{
	return job_any_memory(job, has_backing, NULL);
}

/* Returns the number of a new check. A check looks at each file once, however many moves or layers of the job
 * use it. */
static uint64_t begin_check(void)
{
	static atomic_uint_fast64_t checks;

	return atomic_fetch_add(&checks, 2) + 2;
}

/* Returns whether the memory has a backing that is not whole any more. arg points to the number of the
 * check. */
static bool is_torn(struct engine_memory *memory, void *arg)
{
	const uint64_t check = *(const uint64_t *)arg;
	uint64_t looked;

	if (!memory->backing)
		return false;
	looked = atomic_load(&memory->backing->looked);
	if (looked >> 1 != check >> 1) {
		looked = check | backing_is_whole(memory->backing);
		atomic_store(&memory->backing->looked, looked);
	}
	return !(looked & 1);
}

static void check_batch(struct engine_job *job, uint64_t check)
{
	for (uint32_t i = 0; i < job->n_moves; i++) {
		struct engine_move *move = &job->moves[i];
		if (move->status == 0 && move_any_memory(move, is_torn, &check))
			move->status = STATUS_DEVICE;
		if (job->status == 0)
			job->status = move->status;
	}
}

void backing_check(struct engine_job *job)
{
	uint64_t check = begin_check();
	if (job->status != 0 && !(job->moves && job->status == STATUS_DEVICE))
		return;
	if (job->moves)
		check_batch(job, check);
	else if (move_any_memory(&job->move, is_torn, &check) ||
	         (job->blocks && blocks_any_memory(job->blocks, is_torn, &check)))
		job->status = job->move.status = STATUS_DEVICE;
	if (job->status == 0 && memory_is(job->signal.memory, is_torn, &check))
		job->status = STATUS_DEVICE;
}

/* ---- Holes --------------------------------------------------------------------------------------------- */

/* Linux 5.11 has this flag, which may be newer than the headers. Older kernels answer EINVAL. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static int watcher = -1;
static int pagemap = -1;
/* The kernel combines small pages into huge ones without being asked (khugepaged), and charges the memory to
 * the process whose mapping it scans. */
static bool collapses;

/* Opens a userfaultfd. Faults inside of system calls end with EFAULT either way; UFFD_USER_MODE_ONLY is what
 * allows an unprivileged process to have one. */
static int open_watcher(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) < 0 || !(api.features & UFFD_FEATURE_MISSING_SHMEM))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Returns whether a page is mapped. pagemap has 64 bits for each page; the top two say that it is present,
 * and that it is swapped or being migrated. */
static bool is_in_pagemap(int fd, const void *address)
{
	uint64_t entry, page = (uint64_t)sysconf(_SC_PAGESIZE);
	off_t at = (off_t)((uintptr_t)address / page * sizeof(entry));
	return pread(fd, &entry, sizeof(entry), at) == sizeof(entry) && entry >> 62 != 0;
}

/* Returns -1 if the file cannot be opened, or describes another address space, such as that of an
 * emulator. */
static int open_pagemap(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !is_in_pagemap(fd, &fd)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Returns whether the kernel does that (see `collapses`). The file lists all settings, with the one in force
 * in brackets. */
static bool read_collapses(void)
{
	char line[128] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		*line = 0;
	fclose(file);
	return strstr(line, "[always]") || strstr(line, "[within_size]") || strstr(line, "[force]");
}

void holes_init(void)
{
	pthread_mutex_lock(&lock);
	if (users++ == 0) {
		watcher = open_watcher();
		pagemap = open_pagemap();
		collapses = read_collapses();
	}
	pthread_mutex_unlock(&lock);
}

void holes_deinit(void)
{
	pthread_mutex_lock(&lock);
	if (--users == 0) {
		if (watcher >= 0)
			close(watcher);
		if (pagemap >= 0)
			close(pagemap);
		watcher = pagemap = -1;
	}
	pthread_mutex_unlock(&lock);
}

bool holes_can_watch(void)
{
	pthread_mutex_lock(&lock);
	bool can = watcher >= 0;
	pthread_mutex_unlock(&lock);
	return can;
}

int holes_watch(void *start, size_t size)
{
	struct uffdio_register range = { .range = { (uintptr_t)start, size },
		                         .mode = UFFDIO_REGISTER_MODE_MISSING };
	if (collapses)
		madvise(start, size, MADV_NOHUGEPAGE);
	return ioctl(watcher, UFFDIO_REGISTER, &range) < 0 ? -errno : 0;
}

void holes_unwatch(void *start, size_t size)
{
	struct uffdio_range range = { (uintptr_t)start, size };
	if (holes_can_watch())
		ioctl(watcher, UFFDIO_UNREGISTER, &range);
}

/* Needs no lock, because mappings exist only between the first holes_init and the last holes_deinit. */
bool holes_is_mapped(const void *address)
{
	return pagemap < 0 || is_in_pagemap(pagemap, address);
}

/* ---- Looking ---------------------------------------------------------------------------------------- */

/* A file whose st_blocks accounts for all of its pages has no holes; SEEK_HOLE alone would also report pages
 * that were allocated but never written. For a hugetlb file only st_blocks helps, because SEEK_HOLE finds no
 * holes in it. */
bool holes_find(int fd, uint64_t start, uint64_t end, uint64_t *ret)
{
	if (!memfd_is_sparse(fd))
		return false;
	if (holes_page_bytes(fd) > 0) {
		*ret = start;
		return true;
	}
	int64_t hole = memfd_seek_hole(fd, start);
	*ret = (uint64_t)hole;
	return hole >= 0 && (uint64_t)hole < end;
}

uint64_t holes_page_bytes(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : 0;
}
