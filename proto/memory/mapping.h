/* SPDX-License-Identifier: Apache-2.0 */
/* A mapping of a memfd, placed so that huge pages of the file can be mapped as such. Both sides of a region
 * map it so. */
#ifndef PROTO_MEMORY_MAPPING_H
#define PROTO_MEMORY_MAPPING_H

#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Of kernels newer than the headers may be: 5.14, 5.14, 6.1. Others answer EINVAL. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* As mmap(NULL, size, prot, MAP_SHARED, fd, offset): MAP_FAILED with errno; munmap(map, size) ends it. The
 * size of a hugetlb file's mapping is a multiple of its pages, of which none is reserved. */
void *mapping_new(size_t size, int prot, int fd, uint64_t offset);

/* The same, private and for reading alone: it shows the file's own pages all the same, and userfaultfd takes
 * it where the descriptor is open for reading only. */
void *mapping_new_private(size_t size, int fd, uint64_t offset);

#endif
