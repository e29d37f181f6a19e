/* SPDX-License-Identifier: Apache-2.0 */
/* Memfds and files of tmpfs and hugetlbfs, which the kernel treats alike: how they are created and mapped,
 * and how their pages become present. Both sides of a region map it so that the kernel can map huge pages of
 * the file.
 *
 * A page of such a file is charged to the cgroup of the process that first touches it, for as long as the
 * file has the page. Whoever is to pay for the pages therefore fills the file.
 */
#ifndef PROTO_MEMORY_MEMFD_H
#define PROTO_MEMORY_MEMFD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct headroom;

/* Arguments of memfd_fill: a shared mapping of a memfd, or of a part of one. */
struct memfd_fill {
	int fd;
	uint64_t offset; /* position of start in the file */
	void *start;     /* start of the mapping; start and size are multiples of the page size */
	size_t size;
	uint64_t missing; /* maximum number of bytes that the file may still lack */
	bool writable;    /* The mapping is writable. */
	bool huge; /* Huge pages are used if the kernel provides them; only for a file that is still empty. */
	const struct headroom *headroom; /* headroom of this process */
	bool spares;                     /* A quarter of each cgroup's limit has to stay free. */
	const atomic_bool *unwanted;     /* memfd_fill gives up once this is true; NULL: never */
};

/* Returns a memfd of size zero bytes that cannot be resized and takes no further seals, or a negative
 * errno. */
int memfd_new(uint64_t size);

/* Returns a memfd like memfd_new, which takes further seals. */
int memfd_new_sealable(uint64_t size);

/* Makes the pages present in the file and in the mapping, without changing their contents. Blocks for as long
 * as it takes to zero new pages. Returns 0 or a negative errno. -ENOSPC: the machine or a cgroup does not
 * have enough memory left, and no process was killed to get it. -ECANCELED: *unwanted is true. -EOPNOTSUPP:
 * nothing is missing in the file, but the kernel cannot map pages in advance. */
int memfd_fill(const struct memfd_fill *fill);

/* Returns whether the file may have holes. false is certain. */
bool memfd_is_sparse(int fd);

/* Returns the position of the first hole at or after start, where the end of the file counts as a hole, too.
 * Returns a negative number if start is not before the end. The descriptor's position is unchanged. hugetlbfs
 * reports no holes. */
int64_t memfd_seek_hole(int fd, uint64_t start);

/* ---- Mappings ------------------------------------------------------------------------------------------ */

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* For headers that are older than the kernel: MADV_POPULATE_* came with Linux 5.14, MADV_COLLAPSE with 6.1.
 * Older kernels return EINVAL. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Like mmap(NULL, size, prot, MAP_SHARED, fd, offset), also in how it fails; munmap(map, size) unmaps. The
 * size of a mapping of hugetlbfs must be a multiple of its page size; no huge pages are reserved. */
void *mapping_new(size_t size, int prot, int fd, uint64_t offset);

/* Maps the file privately, for reading only. The mapping still shows the file's own pages, and userfaultfd
 * accepts it even if the descriptor is open for reading only. */
void *mapping_new_private(size_t size, int fd, uint64_t offset);

#endif
