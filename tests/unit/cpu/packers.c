/* SPDX-License-Identifier: Apache-2.0 */
/* Tests packers: every part of every task runs once, no group has more threads than it may, parts of a
 * dropped task that have not started never run, and memory that fails ends one task. */
#include "kernels/host/threads.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#define TASKS   40
#define PARTS   25
#define THREADS 4
#define PAGE    4096

TestSuite(packers, .timeout = 60);

static struct packers packers;

/* A task, and what its parts record. */
struct noted {
	struct pack_task task;
	atomic_uint runs[PARTS];
	atomic_uint *running, *most; /* threads in its group, now and at most */
	atomic_bool *gate;           /* parts wait until it is open; NULL: they do not wait */
};

static void note(void *arg, uint32_t part)
{
	struct noted *noted = arg;
	const unsigned running = atomic_fetch_add(noted->running, 1) + 1;
	unsigned most = atomic_load(noted->most);

	while (running > most && !atomic_compare_exchange_weak(noted->most, &most, running))
		continue;
	while (noted->gate && !atomic_load(noted->gate))
		sched_yield();
	atomic_fetch_add(&noted->runs[part], 1);
	sched_yield();
	atomic_fetch_sub(noted->running, 1);
}

static void wait_for(const struct pack_task *task)
{
	while (!pack_task_is_over(task))
		sched_yield();
}

static void open_packers(void)
{
	packers_init(&packers, THREADS);
	cr_assert_eq(packers.threads, 0);
	cr_assert(packers_start(&packers));
	cr_assert_eq(packers.threads, THREADS);
}

static void noted_init(struct noted *noted, struct pack_group *group, atomic_uint *counts)
{
	memset(noted, 0, sizeof *noted);
	noted->task = (struct pack_task){ .group = group, .run = note, .arg = noted, .parts = PARTS };
	noted->running = &counts[0];
	noted->most = &counts[1];
}

Test(packers, each_part_once)
{
	static struct noted noted[TASKS];
	static atomic_uint counts[2][2];
	struct pack_group group[2] = { { .most = THREADS }, { .most = 2 } };

	open_packers();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < TASKS; i++) {
			noted_init(&noted[i], &group[i % 2], counts[i % 2]);
			packers_add(&packers, &noted[i].task);
		}
		for (int i = 0; i < TASKS; i++) {
			wait_for(&noted[i].task);
			cr_assert_not(pack_task_has_failed(&noted[i].task), "task %d", i);
			for (int part = 0; part < PARTS; part++)
				cr_assert_eq(noted[i].runs[part], 1, "round %d, task %d, part %d: %u", round,
				             i, part, noted[i].runs[part]);
		}
		/* This is long enough for some threads to fall asleep. */
		if (round % 5 == 0)
			usleep(1000);
	}
	cr_assert_leq(counts[0][1], THREADS, "%u", counts[0][1]);
	cr_assert_leq(counts[1][1], 2, "%u", counts[1][1]);
	cr_assert_eq(group[0].running + group[1].running, 0);
	packers_deinit(&packers);
}

/* Parts that have started when the task is dropped succeed. */
Test(packers, dropped)
{
	static struct noted noted;
	static atomic_uint counts[2];
	static atomic_bool gate;
	struct pack_group group = { .most = THREADS };
	unsigned runs = 0;

	open_packers();
	noted_init(&noted, &group, counts);
	noted.gate = &gate;
	packers_add(&packers, &noted.task);
	while (atomic_load(&counts[0]) < THREADS)
		sched_yield();
	packers_drop(&packers, &noted.task);
	packers_drop(&packers, &noted.task);
	cr_assert_not(pack_task_is_over(&noted.task));
	atomic_store(&gate, true);
	wait_for(&noted.task);
	for (int part = 0; part < PARTS; part++)
		runs += noted.runs[part];
	cr_assert_eq(runs, THREADS, "%u", runs);
	packers_deinit(&packers);
}

/* ---- Memory that fails -----------------------------------------------------------------------------------
 */

struct read {
	struct pack_task task;
	const volatile char *bytes;
	atomic_uint pages;
};

static void read_page(void *arg, uint32_t part)
{
	struct read *read = arg;

	(void)read->bytes[part * PAGE];
	atomic_fetch_add(&read->pages, 1);
}

/* The file ends after half of the pages. */
Test(packers, memory_that_fails)
{
	enum { PAGES = 16 };
	struct pack_group group = { .most = THREADS };
	const int fd = memfd_create("packers", MFD_CLOEXEC);
	struct read read = { .task = { .group = &group, .run = read_page, .arg = &read, .parts = PAGES } };
	struct read good = read;

	cr_assert_eq(ftruncate(fd, PAGES / 2 * PAGE), 0);
	void *bytes = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq(bytes, MAP_FAILED);
	read.bytes = good.bytes = bytes;
	read.task.ranges = &(struct fault_range){ bytes, PAGES * PAGE };
	read.task.n_ranges = 1;
	good.task.ranges = read.task.ranges;
	good.task.n_ranges = 1;
	good.task.parts = PAGES / 2;
	good.task.arg = &good;
	open_packers();
	packers_add(&packers, &read.task);
	packers_add(&packers, &good.task);
	wait_for(&read.task);
	wait_for(&good.task);
	cr_assert(pack_task_has_failed(&read.task));
	cr_assert_leq(read.pages, PAGES / 2);
	cr_assert_not(pack_task_has_failed(&good.task));
	cr_assert_eq(good.pages, PAGES / 2);
	packers_deinit(&packers);
	munmap(bytes, PAGES * PAGE);
	close(fd);
}

Test(packers, half_of_what_the_process_can_keep_busy)
{
	const uint32_t cpus = threads_default(), n = packers_default_threads();
	cpu_set_t one;

	cr_assert_eq(n, cpus < 2 ? 1 : cpus < 16 ? cpus / 2 : 8, "%u of %u", n, cpus);
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
	cr_assert_eq(packers_default_threads(), 1);
}

Test(packers, as_many_as_there_is_room_for)
{
	packers_init(&packers, 10 * PACKERS_MOST_THREADS);
	cr_assert_eq(packers.most, PACKERS_MOST_THREADS);
	packers_deinit(&packers);
}
