/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the guard. A mapping whose file has lost its end stands for memory that fails. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/host/fault.h"
#include "tests/emulated/emulated.h"

#define PAGE 4096

/* Maps two pages of a file that has only the first. */
static char *half_mapping(void)
{
	FILE *file = tmpfile();
	cr_assert_not_null(file);
	cr_assert_eq(ftruncate(fileno(file), 2 * PAGE), 0);
	char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert_eq(ftruncate(fileno(file), PAGE), 0);
	fclose(file);
	return map;
}

struct touch {
	volatile char *at;
	int done;
};

static void touch(void *arg)
{
	struct touch *t = arg;
	*t->at = 1;
	t->done = 1;
}

Test(fault, ends_the_work_alone)
{
	char *map = half_mapping();
	struct fault_range ranges[2] = { { map, 2 * PAGE }, { NULL, 0 } };
	cr_assert_eq(fault_init(), 0);
	for (int i = 0; i < 3; i++) {
		struct touch good = { .at = map + 17 }, bad = { .at = map + PAGE + 17 };
		cr_assert(fault_guard(ranges, touch, &good), "round %d", i);
		cr_assert_eq(good.done, 1);
		cr_assert_not(fault_guard(ranges, touch, &bad), "round %d", i);
		cr_assert_eq(bad.done, 0);
	}
	fault_deinit();
	munmap(map, 2 * PAGE);
}

Test(fault, second_range)
{
	char *map = half_mapping();
	struct fault_range ranges[2] = { { map, 1 }, { map + PAGE, PAGE } };
	struct touch bad = { .at = map + PAGE };
	cr_assert_eq(fault_init(), 0);
	cr_assert_not(fault_guard(ranges, touch, &bad));
	fault_deinit();
	munmap(map, 2 * PAGE);
}

/* Restores the default action of SIGBUS in place of a sanitizer's. */
static void default_action(void)
{
	signal(SIGBUS, SIG_DFL);
}

Test(fault, elsewhere_is_fatal, .init = default_action, .signal = SIGBUS)
{
	char *map = half_mapping();
	struct fault_range ranges[2] = { { map, PAGE }, { map, PAGE } };
	struct touch bad = { .at = map + PAGE };
	cr_assert_eq(fault_init(), 0);
	fault_guard(ranges, touch, &bad);
}

Test(fault, outside_a_guard_is_fatal, .init = default_action, .signal = SIGBUS)
{
	char *map = half_mapping();
	struct touch bad = { .at = map + PAGE };
	cr_assert_eq(fault_init(), 0);
	touch(&bad);
}

Test(fault, a_sent_signal_is_fatal, .init = default_action, .signal = SIGBUS)
{
	cr_assert_eq(fault_init(), 0);
	raise(SIGBUS);
}

/* The lost page is replaced by other memory, and the page before it still belongs to the file. */
Test(fault, a_cover_puts_memory_in_its_place)
{
	char *map = half_mapping();
	struct fault_range ranges[2] = { { map, 2 * PAGE }, { NULL, 0 } };
	struct touch good = { .at = map + 17 }, bad = { .at = map + PAGE + 17 }, worse = bad;
	struct fault_cover cover, other;
	cr_assert_eq(fault_init(), 0);
	fault_cover_add(&cover, (struct fault_range){ map, 2 * PAGE }, PAGE);
	fault_cover_add(&other, (struct fault_range){ map + 2 * PAGE, PAGE }, PAGE);
	cr_assert_not(fault_guard(ranges, touch, &bad), "a guard goes first");
	cr_assert_not(cover.has_failed);
	touch(&worse);
	touch(&good);
	cr_assert_eq(map[17] + map[PAGE + 17], 2);
	cr_assert(fault_guard(ranges, touch, &bad), "it is memory now");
	cr_assert(cover.has_failed && !other.has_failed);
	fault_cover_remove(&cover);
	fault_cover_remove(&other);
	fault_deinit();
	munmap(map, 2 * PAGE);
}

/* Returns how many of the process's mappings overlap the range. */
static int count_mappings(const char *start, size_t size)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long low, high;
	char line[512];
	int n = 0;
	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx", &low, &high) == 2)
			n += low < (uintptr_t)start + size && high > (uintptr_t)start;
	fclose(file);
	return n;
}

/* Every other page is lost. A process can have only so many mappings, so not each of these pages becomes
 * one. */
Test(fault, a_cover_makes_few_mappings)
{
	enum { PAGES = 400, BOUND = 64 };
	struct fault_cover cover;
	FILE *file = tmpfile();
	if (emulated())
		cr_skip("the mappings are the emulator's");
	cr_assert_not_null(file);
	cr_assert_eq(ftruncate(fileno(file), PAGES * PAGE), 0);
	char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert_eq(ftruncate(fileno(file), 0), 0);
	cr_assert_eq(fault_init(), 0);
	fault_cover_add(&cover, (struct fault_range){ map, PAGES * PAGE }, PAGE);
	for (int i = 0; i < PAGES; i += 2) {
		*(volatile char *)&map[i * PAGE] = 1;
		int n = count_mappings(map, PAGES * PAGE);
		cr_assert_leq(n, 2 * BOUND + 1, "%d mappings after %d pages", n, i / 2 + 1);
	}
	cr_assert_eq(count_mappings(map, PAGES * PAGE), 1, "all of it is other memory in the end");
	fault_cover_remove(&cover);
	fault_deinit();
	munmap(map, PAGES * PAGE);
	fclose(file);
}

/* One page of each of many mappings is lost, and not each of these pages becomes another mapping. */
Test(fault, covers_make_few_mappings_together)
{
	enum { COVERS = 5000, SIZE = 3 * PAGE };
	static struct fault_cover cover[COVERS];
	FILE *file = tmpfile();
	if (emulated())
		cr_skip("the mappings are the emulator's");
	cr_assert_not_null(file);
	cr_assert_eq(ftruncate(fileno(file), (off_t)COVERS * SIZE), 0);
	char *map = mmap(NULL, (size_t)COVERS * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert_eq(ftruncate(fileno(file), 0), 0);
	cr_assert_eq(fault_init(), 0);
	for (int i = 0; i < COVERS; i++) {
		fault_cover_add(&cover[i], (struct fault_range){ map + i * SIZE, SIZE }, PAGE);
		*(volatile char *)&map[i * SIZE + PAGE] = 1;
	}
	cr_assert_eq(count_mappings(map, SIZE), 3, "the first ones lose a page");
	cr_assert_leq(count_mappings(map, (size_t)COVERS * SIZE), 2 * 4096 + 2);
	for (int i = 0; i < COVERS; i++)
		fault_cover_remove(&cover[i]);
	fault_deinit();
	munmap(map, (size_t)COVERS * SIZE);
	fclose(file);
}

Test(fault, beside_a_cover_is_fatal, .init = default_action, .signal = SIGBUS)
{
	char *map = half_mapping();
	struct touch bad = { .at = map + PAGE };
	struct fault_cover cover;
	cr_assert_eq(fault_init(), 0);
	fault_cover_add(&cover, (struct fault_range){ map, PAGE }, PAGE);
	touch(&bad);
}

static volatile sig_atomic_t seen;

static void on_signal(int number)
{
	(void)number;
	seen++;
}

Test(fault, last_deinit_restores_what_was_there)
{
	struct sigaction now;
	signal(SIGBUS, on_signal);
	cr_assert_eq(fault_init(), 0);
	cr_assert_eq(fault_init(), 0);
	fault_deinit();
	sigaction(SIGBUS, NULL, &now);
	cr_assert(now.sa_flags & SA_SIGINFO);
	fault_deinit();
	raise(SIGBUS);
	cr_assert_eq(seen, 1);
}
