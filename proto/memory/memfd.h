/* SPDX-License-Identifier: Apache-2.0 */
/* Memfds, and files of tmpfs and hugetlbfs, which are the same to the kernel: how they are made and mapped,
 * and how their pages come to be. Both sides of a region map it so that huge pages of the file can be mapped
 * as such.
 *
 * A page of such a file is charged to the cgroup of the process that touches it first, for as long as the
 * file has it: whoever is to pay for it fills it.
 */
#ifndef PROTO_MEMORY_MEMFD_H
#define PROTO_MEMORY_MEMFD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct headroom;

/* This is a shared mapping of a memfd, or of part of one, and says what to do about its pages. */
struct memfd_fill {
	int fd;
	uint64_t offset; /* of start in the file */
	void *start;     /* both of whole pages */
	size_t size;
	uint64_t missing; /* bytes that the file may not have yet, at most */
	bool writable;    /* the mapping */
	bool huge;        /* on huge pages where the kernel gives them: of a file that has nothing yet */
	const struct headroom *headroom; /* of this process */
	bool spares;                     /* a quarter of each cgroup's limit stays untouched */
	const atomic_bool *unwanted;     /* set: give up; NULL: never */
};

/* Returns a memfd of so many zero bytes that keeps this size, or a negative errno. It takes no further seals.
 */
int memfd_new(uint64_t size);

/* Returns such a memfd that takes further seals. */
int memfd_new_sealable(uint64_t size);

/* Makes the pages present, in the file and in the mapping, and leaves what they hold as it is. Blocks for as
 * long as it takes to zero them. Returns 0 or a negative errno. -ENOSPC says that the machine or a cgroup has
 * not that much memory left, and no process was ended to find it; -ECANCELED that it is unwanted; -EOPNOTSUPP
 * that nothing is missing, and the kernel cannot map pages ahead of their use. */
int memfd_fill(const struct memfd_fill *fill);

/* Tells if the file may have holes. false is certain. */
bool memfd_is_sparse(int fd);

/* Returns the first byte from start on that the file does not have, which is its size if there is no other,
 * or a negative number if there is none. The descriptor's position stays as it is. To a hugetlb file, nothing
 * is a hole. */
int64_t memfd_seek_hole(int fd, uint64_t start);

/* ---- Mappings ------------------------------------------------------------------------------------------ */

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Kernels 5.14, 5.14 and 6.1 have these, which may be newer than the headers. Others answer EINVAL. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Maps as mmap(NULL, size, prot, MAP_SHARED, fd, offset) does, and fails with MAP_FAILED and errno;
 * munmap(map, size) ends it. The size of a hugetlb file's mapping is a multiple of its pages, of which none
 * is reserved. */
void *mapping_new(size_t size, int prot, int fd, uint64_t offset);

/* Maps privately and for reading alone. It shows the file's own pages all the same, and userfaultfd takes it
 * where the descriptor is open for reading only. */
void *mapping_new_private(size_t size, int fd, uint64_t offset);

#endif
