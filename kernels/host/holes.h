/* SPDX-License-Identifier: Apache-2.0 */
/* Holes in clients' files are not ours to fill.
 *
 * Whoever touches a page that a file lacks makes it, and pays for it with its cgroup for as long as the file
 * lives: longer than a region. In a watched mapping such an access gets SIGBUS instead (userfaultfd), by
 * which the guard of fault.h ends one job; and no page, however large, is zeroed under a copy. Where the
 * kernel refuses userfaultfd, a file is checked only once, and a hole punched later is not noticed.
 */
#ifndef KERNELS_HOST_HOLES_H
#define KERNELS_HOST_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the page at the address of a mapping is in it. Where the kernel does not tell, each is. */
bool holes_is_mapped(const void *address);

/* Counted: the first opens what the kernel has for it, the last closes it. */
void holes_init(void);
void holes_deinit(void);

/* Whether mappings can be watched. */
bool holes_can_watch(void);

/* A mapping of whole pages of its file, of which nothing may be present yet that the file lacks. 0, or a
 * negative errno. */
int holes_watch(void *start, size_t size);

/* Access makes pages again. */
void holes_unwatch(void *start, size_t size);

/* The first byte of [start, end) that the file does not have, in *ret: of a hugetlb file, which tells only
 * that it has some, start. false: there is none. The descriptor's position stays as it is. */
bool holes_find(int fd, uint64_t start, uint64_t end, uint64_t *ret);

/* Bytes of a page of a hugetlb file; 0: it is none. */
uint64_t holes_page_bytes(int fd);

#endif
