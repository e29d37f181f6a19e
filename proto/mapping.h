/* A shared mapping of a memfd, placed so that huge pages of the file can be mapped as such. Both sides of a
 * region map it so. */
#ifndef PROTO_MAPPING_H
#define PROTO_MAPPING_H

#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* As mmap(NULL, size, prot, MAP_SHARED, fd, offset): MAP_FAILED with errno; munmap(map, size) ends it. The
 * size of a hugetlb file's mapping is a multiple of its pages. */
void *mapping_new(size_t size, int prot, int fd, uint64_t offset);

#endif
