/* SPDX-License-Identifier: Apache-2.0 */
/* Tests files that change under a region: which changes make the region lose its memory, and which do not. */
#include "kernels/host/backing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "kernels/transform/layer_table.h"
#include "tests/emulated/emulated.h"

#define PAGE 4096
#define SIZE (4 * PAGE)
#define END  (SIZE - 100) /* size of the region */

static void set_up(void)
{
	holes_init();
	cr_assert_eq(fault_init(), 0);
}

static void tear_down(void)
{
	fault_deinit();
	holes_deinit();
}

TestSuite(backing, .init = set_up, .fini = tear_down);

/* Replaces libc's fstat to count how often files are checked. */
static atomic_uint looks;

int fstat(int fd, struct stat *ret)
{
	looks++;
	return fstatat(fd, "", ret, AT_EMPTY_PATH);
}

/* Replaces libc's mlock, which fails here as it does at the limit on locked memory if is_at_limit is set. */
static bool is_at_limit;
static size_t locked;

int mlock(const void *start, size_t size)
{
	locked += size;
	if (!is_at_limit)
		return (int)syscall(SYS_mlock, start, size);
	errno = ENOMEM;
	return -1;
}

static int new_file(void)
{
	char page[PAGE];
	int fd = memfd_create("backing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	memset(page, 'w', sizeof(page));
	for (int i = 0; i < SIZE / PAGE; i++)
		cr_assert_eq(pwrite(fd, page, PAGE, (off_t)i * PAGE), PAGE);
	return fd;
}

enum change {
	NOTHING,
	CUT,
	CUT_AND_GROW,
	CUT_GROW_AND_WRITE,
	GROW,
	WRITE,
	CHMOD,
	SEAL,
	PUNCH_FIRST,
	PUNCH_LAST
};

struct row {
	char name[40];
	enum change change;
	off_t to;        /* size to which the file is cut */
	bool is_sealed;  /* sealed against shrinking */
	bool is_kept;    /* memory that is not pinned is still whole */
	bool is_touched; /* the driver that has pinned it touches its first page */
	bool is_lost;    /* pinned memory is lost */
};

ParameterizedTestParameters(backing, change)
{
	static struct row rows[] = {
		{ .name = "nothing", .change = NOTHING, .is_kept = true },
		{ .name = "cut to nothing", .change = CUT, .to = 0, .is_lost = true },
		{ .name = "cut to the middle", .change = CUT, .to = SIZE / 2, .is_lost = true },
		{ .name = "cut by a byte", .change = CUT, .to = END - 1, .is_lost = true },
		{ .name = "cut behind it", .change = CUT, .to = END, .is_kept = true },
		{ .name = "cut and grown",
		  .change = CUT_AND_GROW,
		  .to = 0,
		  .is_kept = true,
		  .is_lost = true },
		{ .name = "cut to the middle and grown",
		  .change = CUT_AND_GROW,
		  .to = PAGE,
		  .is_kept = true,
		  .is_lost = true },
		{ .name = "cut, grown and written",
		  .change = CUT_GROW_AND_WRITE,
		  .to = 0,
		  .is_kept = true,
		  .is_lost = true },
		{ .name = "cut in its last page and grown",
		  .change = CUT_AND_GROW,
		  .to = END - 1,
		  .is_kept = true },
		{ .name = "grown", .change = GROW, .is_kept = true },
		{ .name = "written", .change = WRITE, .is_kept = true },
		{ .name = "of another mode", .change = CHMOD, .is_kept = true },
		{ .name = "sealed", .change = SEAL, .is_kept = true },
		{ .name = "last page punched", .change = PUNCH_LAST, .is_kept = true, .is_lost = true },
		{ .name = "first page punched", .change = PUNCH_FIRST, .is_kept = true },
		{ .name = "first page punched and touched",
		  .change = PUNCH_FIRST,
		  .is_touched = true,
		  .is_kept = true,
		  .is_lost = true },
		{ .name = "sealed and punched", .change = PUNCH_LAST, .is_sealed = true, .is_kept = true },
		{ .name = "sealed, punched and touched",
		  .change = PUNCH_FIRST,
		  .is_sealed = true,
		  .is_touched = true,
		  .is_kept = true,
		  .is_lost = true },
	};
	return cr_make_param_array(struct row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void change(const struct row *row, int fd)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	switch (row->change) {
	case CUT:
	case CUT_AND_GROW:
	case CUT_GROW_AND_WRITE:
		cr_assert_eq(ftruncate(fd, row->to), 0);
		if (row->change != CUT)
			cr_assert_eq(ftruncate(fd, SIZE), 0);
		if (row->change == CUT_GROW_AND_WRITE)
			cr_assert_eq(posix_fallocate(fd, 0, SIZE), 0);
		break;
	case GROW:
		cr_assert_eq(ftruncate(fd, 2 * SIZE), 0);
		break;
	case WRITE:
		cr_assert_eq(pwrite(fd, "now", 3, SIZE - 3), 3);
		break;
	case CHMOD:
		cr_assert_eq(fchmod(fd, 0600), 0);
		break;
	case SEAL:
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
		break;
	case PUNCH_FIRST:
		cr_assert_eq(fallocate(fd, punch, 0, PAGE), 0);
		break;
	case PUNCH_LAST:
		cr_assert_eq(fallocate(fd, punch, SIZE - PAGE, PAGE), 0);
		break;
	default:
		break;
	}
}

static struct engine_memory *map(const struct row *row, int fd, bool pins)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .fd = fd, .size = END, .writable = true };
	struct engine_memory *memory;
	struct error err;
	if (row->is_sealed)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(pins ? host_memory_map_to_pin(&handle, &memory, &err)
	                  : host_memory_map(&handle, &memory, &err),
	             0, "%s: %s", row->name, err.message);
	return memory;
}

static void check_mapped(const struct row *row)
{
	int fd = new_file();
	struct engine_memory *memory = map(row, fd, false);
	uint64_t bytes = 0;
	cr_assert_eq(memory->backing == NULL, row->is_sealed, "%s", row->name);
	change(row, fd);
	if (memory->backing)
		for (int i = 0; i < 2; i++)
			cr_assert_eq(backing_is_whole(memory->backing), row->is_kept, "%s", row->name);
	cr_assert_eq(engine_memory_loss(memory, &bytes), row->is_kept ? ENGINE_LOSS_NONE : ENGINE_LOSS_SHRUNK,
	             "%s", row->name);
	cr_assert_eq(bytes, row->is_kept ? 0 : (uint64_t)row->to, "%s", row->name);
	host_memory_unmap(memory);
	close(fd);
}

/* The memory is as if a device had pinned it, and the device's driver touches it outside of a guard. Memory
 * that is lost stays lost. */
static void check_pinned(const struct row *row)
{
	int fd = new_file();
	struct engine_memory *memory = map(row, fd, true);
	volatile char *first = host_memory(memory)->data;
	struct error err;
	locked = 0;
	cr_assert_eq(host_memory_pin(memory, &err), 0, "%s", row->name);
	cr_assert_eq(locked, row->is_sealed ? 0 : PAGE, "%s: its last page stays mapped", row->name);
	cr_assert_eq(host_memory_pinned(memory, &err), 0, "%s: %s", row->name, err.message);
	change(row, fd);
	if (row->is_touched) {
		cr_assert_eq(*first, 0, "%s", row->name);
		*first = 1;
	}
	for (int i = 0; i < 2; i++)
		cr_assert_eq(backing_is_whole(memory->backing), !row->is_lost, "%s", row->name);
	if (row->change == CUT && row->is_lost) {
		cr_assert_eq(ftruncate(fd, SIZE), 0);
		cr_assert_not(backing_is_whole(memory->backing), "%s", row->name);
	}
	host_memory_unpin(memory);
	host_memory_unmap(memory);
	close(fd);
}

ParameterizedTest(struct row *row, backing, change)
{
	check_mapped(row);
	if (emulated() || !holes_can_watch())
		return;
	check_pinned(row);
	is_at_limit = true; /* a file that is cut is noticed without locked pages, too */
	check_pinned(row);
}

/* Removes the sanitizers' handler of SIGBUS first, so that the default action is left. */
static void set_up_by_default(void)
{
	signal(SIGBUS, SIG_DFL);
	set_up();
}

/* Memory that is being unmapped has no cover any more, because other memory may come to lie at its
 * addresses. */
Test(backing_unmapped, has_no_cover, .init = set_up_by_default, .signal = SIGBUS)
{
	enum { LARGE = 8 << 20 };
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = LARGE, .writable = true };
	struct engine_memory *memory;
	struct error err;
	handle.fd = memfd_create("large", MFD_CLOEXEC);
	cr_assert_eq(posix_fallocate(handle.fd, 0, LARGE), 0);
	cr_assert_eq(host_memory_map_to_pin(&handle, &memory, &err), 0, "%s", err.message);
	cr_assert_eq(host_memory_pin(memory, &err), 0);
	cr_assert_not(host_memory_unmap_step(memory), "there are more");
	cr_assert_eq(ftruncate(handle.fd, 0), 0);
	*(volatile char *)host_memory(memory)->data = 1;
}

/* Several threads of a driver touch all of the memory, each another part. */
Test(backing, a_large_file_is_cut_under_a_driver)
{
	enum { LARGE = 64 << 20 };
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = LARGE, .writable = true };
	struct engine_memory *memory;
	struct error err;
	handle.fd = memfd_create("large", MFD_CLOEXEC);
	cr_assert_eq(posix_fallocate(handle.fd, 0, LARGE), 0);
	cr_assert_eq(host_memory_map_to_pin(&handle, &memory, &err), 0, "%s", err.message);
	cr_assert_eq(host_memory_pin(memory, &err), 0);
	cr_assert_eq(ftruncate(handle.fd, PAGE), 0);
	volatile char *data = host_memory(memory)->data;
	for (size_t at = LARGE; at >= LARGE / 8; at -= LARGE / 8)
		data[at - 1] = 'x';
	for (size_t at = 0; at < LARGE; at += PAGE)
		data[at] = 'y';
	char byte = 0;
	cr_assert_eq(pread(handle.fd, &byte, 1, 0), 1);
	cr_assert_eq(byte, 'y', "what the file still has is the file's");
	cr_assert_not(backing_is_whole(memory->backing));
	host_memory_unpin(memory);
	host_memory_unmap(memory);
	close(handle.fd);
}

/* Unmapping memory that the service made removes all of its pages, also those behind a page that a client has
 * removed. */
Test(backing, what_was_made_loses_its_pages)
{
	struct engine_handle wanted = { .kind = REGION_KIND_MEMFD, .size = 3 << 20 };
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;
	struct stat st;
	if (emulated() || !holes_can_watch())
		cr_skip("holes are not noticed here");
	cr_assert_eq(host_memory_create(&wanted, &memory, &made, &err), 0, "%s", err.message);
	cr_assert_eq(host_memory_pin(memory, &err), 0);
	cr_assert_eq(fallocate(made.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), 0);
	*(volatile char *)host_memory(memory)->data = 1;
	cr_assert_not(backing_is_whole(memory->backing));
	cr_assert_eq(fstat(made.fd, &st), 0);
	cr_assert_eq(st.st_blocks, (3 << 20) / 512 - 8, "no page was made");
	host_memory_unpin(memory);
	host_memory_unmap(memory);
	cr_assert_eq(fstat(made.fd, &st), 0);
	cr_assert_eq(st.st_blocks, 0);
	close(made.fd);
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

#define FILES 3
#define MOST  64 /* layers, or moves, of a job */

/* Returns a table whose layers lie in the files in turn. */
static struct layer_table table_of(struct engine_memory *const files[FILES], struct engine_memory **memories)
{
	for (int i = 0; i < MOST; i++)
		memories[i] = files[i % FILES];
	return (struct layer_table){ .n = MOST, .memories = memories };
}

/* However many layers or moves of a job lie in a file, a check looks at the file once; the next check looks
 * again. */
Test(backing, each_file_is_looked_at_once)
{
	const struct row row = { .name = "looks" };
	struct engine_memory *files[FILES], *memories[MOST];
	struct layer_table table;
	struct engine_blocks blocks = { .dst.table = &table, .src.table = &table };
	static struct engine_move moves[MOST];
	struct engine_job list = { .blocks = &blocks }, batch = { .moves = moves, .n_moves = MOST };
	int fds[FILES];
	for (int i = 0; i < FILES; i++)
		files[i] = map(&row, fds[i] = new_file(), false);
	table = table_of(files, memories);
	list.move = (struct engine_move){ .dst = files[0], .src = files[1] };
	list.signal.memory = files[2];
	for (int i = 0; i < MOST; i++)
		moves[i] = (struct engine_move){ .dst = files[i % FILES], .src = files[(i + 1) % FILES] };
	looks = 0;
	for (unsigned round = 1; round <= 3; round++) {
		backing_check(&list);
		cr_assert_eq(looks, (2 * round - 1) * FILES, "%u looks, round %u", looks, round);
		backing_check(&batch);
		cr_assert_eq(looks, 2 * round * FILES, "%u looks, round %u", looks, round);
		cr_assert(list.status == 0 && batch.status == 0);
	}
	cr_assert_eq(ftruncate(fds[2], 0), 0);
	backing_check(&batch);
	cr_assert_eq(looks, 7 * FILES);
	cr_assert_eq(batch.status, STATUS_DEVICE);
	for (int i = 0; i < MOST; i++)
		cr_assert_eq(moves[i].status, i % FILES == 0 ? 0 : STATUS_DEVICE, "%d", i);
	backing_check(&list);
	cr_assert_eq(list.status, STATUS_DEVICE);
	for (int i = 0; i < FILES; i++) {
		host_memory_unmap(files[i]);
		close(fds[i]);
	}
}

/* A check covers every memory that a move reads or writes. */
Test(backing, all_memory_of_a_move_counts)
{
	static const char *const names[] = { "dst", "src", "scale", "bias", "amax_scale", "amax_inverse" };
	const struct row row = { .name = "places" };
	int fds[] = { new_file(), new_file() };
	struct engine_memory *whole = map(&row, fds[0], false), *cut = map(&row, fds[1], false);

	cr_assert_eq(ftruncate(fds[1], 0), 0);
	for (int i = 0; i < 6; i++) {
		struct engine_memory *at[6] = { whole, whole, NULL, NULL, NULL, NULL };
		struct engine_job job = { 0 };
		struct engine_move moves[1];
		struct engine_job batch = { .moves = moves, .n_moves = 1 };

		at[i] = cut;
		job.move = (struct engine_move){ .dst = at[0],
			                         .src = at[1],
			                         .operand[ROLE_SCALE].memory = at[2],
			                         .operand[ROLE_BIAS].memory = at[3],
			                         .operand[ROLE_AMAX_SCALE].memory = at[4],
			                         .operand[ROLE_AMAX_INVERSE].memory = at[5] };
		moves[0] = job.move;
		cr_expect(backing_concerns(&job) && backing_concerns(&batch), "%s", names[i]);
		backing_check(&job);
		cr_expect_eq(job.status, STATUS_DEVICE, "%s: %d", names[i], job.status);
		backing_check(&batch);
		cr_expect_eq(moves[0].status, STATUS_DEVICE, "%s in a batch: %d", names[i], moves[0].status);
	}
	host_memory_unmap(whole);
	host_memory_unmap(cut);
	close(fds[0]);
	close(fds[1]);
}

Test(backing, descriptors_come_back)
{
	struct backing *backing;
	struct error err;
	int fd = new_file();
	cr_assert_eq(backing_new(fd, SIZE, &backing, &err), 0);
	int own = backing->fd;
	cr_assert_neq(own, fd);
	cr_assert_eq(fcntl(own, F_GETFD), FD_CLOEXEC);
	backing_free(backing);
	cr_assert_lt(fcntl(own, F_GETFD), 0);
	cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	cr_assert_eq(backing_new(1 << 20, SIZE, &backing, &err), STATUS_NO_MEMORY);
	cr_assert_not_null(strstr(err.message, "cannot be kept open"), "%s", err.message);
	backing_free(NULL);
}
