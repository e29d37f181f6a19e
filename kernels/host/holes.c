/* SPDX-License-Identifier: Apache-2.0 */
/* Watches for holes by one userfaultfd for all mappings of the process. Nobody reads it: with
 * UFFD_FEATURE_SIGBUS it has no events. What is mapped is read from pagemap. */
#include "holes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/memory/memfd.h"

/* Of kernels newer than the headers may be: 5.11. Older ones answer EINVAL. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static int watcher = -1;
static int pagemap = -1;
static bool collapses; /* the kernel makes huge pages of small ones unasked, in the account of whose mapping
                          it scans */

/* Faults inside system calls end with EFAULT either way; the flag is what lets an unprivileged process have
 * it. */
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

/* Of 64 bits for each page, two say that it is mapped, or is swapped or on the way from one place to another.
 */
static bool is_in_pagemap(int fd, const void *address)
{
	uint64_t entry, page = (uint64_t)sysconf(_SC_PAGESIZE);
	off_t at = (off_t)((uintptr_t)address / page * sizeof(entry));
	return pread(fd, &entry, sizeof(entry), at) == sizeof(entry) && entry >> 62 != 0;
}

/* -1 also where it is another address space's: an emulator's own. */
static int open_pagemap(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !is_in_pagemap(fd, &fd)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The setting that stands in brackets is in force. */
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

/* Mappings live between the first holes_init and the last holes_deinit. */
bool holes_is_mapped(const void *address)
{
	return pagemap < 0 || is_in_pagemap(pagemap, address);
}

/* ---- Looking ---------------------------------------------------------------------------------------- */

/* Pages that were allocated and not yet written look like holes to SEEK_HOLE, and not to st_blocks. A hugetlb
 * file has st_blocks alone: to SEEK_HOLE it is always full. */
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
