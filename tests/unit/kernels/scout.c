/* SPDX-License-Identifier: Apache-2.0 */
/* The scout takes a file for busy only if it is the file that keeps a mapping waiting. */
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/host/scout.h"
#include "proto/memory/memfd.h"

#define SIZE    65536
#define SLOW_NS 10000000 /* longer than a mapping of a free file takes */

void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);

/* So many mappings of files that are shared take SLOW_NS in each process from now on. */
static int slow;

/* The linker has every call of mmap in this program come here (--wrap). */
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

/* A processor that is new to the code, or is taken away in the middle, is no fault of the file. */
Test(scout, a_slow_first_mapping_is_not_the_file)
{
	cr_expect(finds_free(1));
}

Test(scout, slow_mappings_are_the_file)
{
	cr_expect_not(finds_free(1000));
}
