/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the check whether memory is in a cache: its answer for times that the test sets, and which bytes it
 * reads. */
#include "kernels/cpu/move/move.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define READS 4

static uint64_t now_ns, step_ns; /* time that the clock shows, and by how much it advances at each call */
static unsigned asked;

static uint64_t clock_by_hand(void)
{
	asked++;
	now_ns += step_ns;
	return now_ns;
}

static long page_bytes(void)
{
	return sysconf(_SC_PAGESIZE);
}

/* Maps n pages, none of which has memory before it is read. */
static char *new_pages(long n, int protection)
{
	size_t bytes = (size_t)(n * page_bytes());
	int fd = memfd_create("cold", MFD_CLOEXEC);
	cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
	char *pages = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	cr_assert_neq(pages, MAP_FAILED);
	close(fd);
	madvise(pages, bytes, MADV_NOHUGEPAGE); /* fails on kernels that do not support it */
	return pages;
}

struct answer_row {
	char name[40];
	uint64_t took_ns, cold_ns;
	int64_t bytes;
	bool looks, is_cold;
};

ParameterizedTestParameters(cold, answers)
{
	static struct answer_row rows[] = {
		{ "as by a cache", 30, 75, 4096, true, false },
		{ "just less", 74, 75, 4096, true, false },
		{ "as long", 75, 75, 4096, true, true },
		{ "as by memory", 550, 75, 4096, true, true },
		{ "no time at all", 0, 75, 4096, true, false },
		{ "the shortest that is looked at", 75, 75, READS, true, true },
		{ "too short to be looked at", 550, 75, READS - 1, false, false },
		{ "nothing", 550, 75, 0, false, false },
		{ "always", 0, 0, 4096, false, true },
		{ "always, nothing", 0, 0, 0, false, true },
		{ "never", 550, UINT64_MAX, 4096, false, false },
	};
	return cr_make_param_array(struct answer_row, rows, sizeof rows / sizeof rows[0]);
}

/* Rows that do not read the memory pass memory that cannot be read. */
ParameterizedTest(struct answer_row *row, cold, answers)
{
	char *pages = new_pages(1, row->looks ? PROT_READ : PROT_NONE);
	step_ns = row->took_ns;
	cr_assert_eq(cold_is_by(clock_by_hand, pages, row->bytes, row->cold_ns), row->is_cold, "%s",
	             row->name);
	cr_assert_eq(asked, row->looks ? 2 : 0, "%s: the clock was asked %u times", row->name, asked);
}

/* By the real clock, no read takes as long as the first limit. */
Test(cold, by_the_clock)
{
	char *pages = new_pages(1, PROT_READ);
	cr_assert_not(cold_is(pages, 4096, UINT64_MAX - 1));
	cr_assert(cold_is(pages, 4096, 0));
}

/* Returns a bit for each page that has memory by now. */
static uint64_t pages_read(char *pages, long n)
{
	unsigned char resident[64];
	uint64_t bits = 0;
	cr_assert_eq(mincore(pages, (size_t)(n * page_bytes()), resident), 0);
	for (long i = 0; i < n; i++)
		bits |= (uint64_t)(resident[i] & 1) << i;
	return bits;
}

/* The check reads one byte of each quarter, and not always the same ones. */
Test(cold, reads_apart)
{
	enum { PAGES = 64, TIMES = 16, PART = PAGES / READS };
	uint64_t first = 0;
	bool differ = false;
	for (int time = 0; time < TIMES; time++) {
		char *pages = new_pages(PAGES, PROT_READ);
		cold_is_by(clock_by_hand, pages, PAGES * page_bytes(), 75);
		uint64_t bits = pages_read(pages, PAGES);
		for (int part = 0; part < READS; part++)
			cr_assert_eq(__builtin_popcountll(bits >> part * PART & ((UINT64_C(1) << PART) - 1)),
			             1, "time %d, part %d: %lx", time, part, bits);
		differ |= time > 0 && bits != first;
		first = time ? first : bits;
	}
	cr_assert(differ);
}

/* However many bytes there are, none is read before the first or after the last. */
Test(cold, reads_within)
{
	long page = page_bytes();
	char *pages = new_pages(3, PROT_READ);
	cr_assert_eq(mprotect(pages, (size_t)page, PROT_NONE), 0);
	cr_assert_eq(mprotect(pages + 2 * page, (size_t)page, PROT_NONE), 0);
	for (long n = READS; n <= page; n++) {
		cold_is_by(clock_by_hand, pages + page, n, 75);
		cold_is_by(clock_by_hand, pages + 2 * page - n, n, 75);
	}
	cr_assert_eq(asked, 4 * (page - READS + 1));
}
