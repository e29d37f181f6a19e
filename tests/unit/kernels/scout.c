/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the scout takes a file for busy only if it is the file that delays a mapping. */
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/host/scout.h"
#include "proto/memory/memfd.h"

#define SIZE    65536
#define SLOW_NS 10000000 /* longer than it takes to map a file that is free */

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);

/* The next `slow` shared mappings of files take SLOW_NS each. */
static int slow;

/* The linker redirects every call of mmap in this program to this function (--wrap). */
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	if ((flags & MAP_SHARED) && fd >= 0 && slow-- > 0)
		nanosleep(&(struct timespec){ .tv_nsec = SLOW_NS }, NULL);
	return __real_mmap(address, size, protection, flags, fd, offset);
}

static bool finds_free(int slow_mappings)
{
	const int fd = memfd_new(SIZE);
	bool is_free;

	cr_assert_geq(fd, 0);
	slow = slow_mappings;
	scout_start();
	is_free = scout_finds_free(&(struct scout_part){ fd, getuid(), 0, SIZE }, NULL);
	scout_stop();
	close(fd);
	return is_free;
}

/* A single slow mapping may be due to cold code or to a thread that lost its processor, and not to the
 * file. */
Test(scout, a_slow_first_mapping_is_not_the_file)
{
	cr_expect(finds_free(1));
}

Test(scout, slow_mappings_are_the_file)
{
	cr_expect_not(finds_free(1000));
}
