/* SPDX-License-Identifier: Apache-2.0 */
/* Tests packed lists of blocks that do not just run to their end: the client's memory fails under a packer, a
 * call of the driver fails, the list is cancelled, or the device is lost. Nothing is left behind. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/backing.h"
#include "rig.h"

#define BLOCK  4096
#define BLOCKS 64
#define BYTES  (BLOCK * BLOCKS)

static struct engine_stream *stream, *other;
static int32_t backwards[BLOCKS];

/* Returns limits under which a buffer has room for a block and a half, and there are fewer buffers than
 * blocks. */
static struct cuda_limits pack_limits(void)
{
	struct cuda_limits limits = small_limits();

	limits.owner_bytes = 8 << 20;
	limits.scratch_bytes = 1 << 20;
	limits.pack_threads = 2;
	limits.pack_slots = 4;
	limits.pack_slot_bytes = BLOCK * 3 / 2;
	limits.pack_piece_bytes = 1 << 20;
	limits.pack_stretch_bytes = 8 * BLOCK;
	return limits;
}

static void open_all(void)
{
	const struct cuda_limits limits = pack_limits();

	open_engine(&limits);
	stream = engine_stream_new(engine, &owner);
	other = engine_stream_new(engine, &owner);
	for (int32_t i = 0; i < BLOCKS; i++)
		backwards[i] = BLOCKS - 1 - i;
}

static void close_all(void)
{
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	close_engine();
}

struct list {
	struct work work;
	struct engine_blocks blocks;
};

/* Makes a list that transposes each block, the last one first. */
static void list_init(struct list *list, struct engine_memory *dst, struct engine_memory *src)
{
	work_init(&list->work, 32, true, dst, src);
	list->blocks = (struct engine_blocks){ .n = BLOCKS,
		                               .layers = 1,
		                               .index_bytes = 4,
		                               .limit = BLOCKS,
		                               .index = backwards,
		                               .dst.step = BLOCK,
		                               .src.step = BLOCK };
	list->blocks.scatter = dst->kind == REGION_KIND_MEMFD;
	list->work.job.blocks = &list->blocks;
}

static void fill(struct engine_memory *memory, unsigned char value)
{
	memset(data(memory), value, BYTES);
}

static bool is_filled(struct engine_memory *memory, unsigned char value)
{
	for (size_t i = 0; i < BYTES; i++)
		if (data(memory)[i] != value)
			return false;
	return true;
}

/* Expects that the engine still runs a list between memories of its own. */
static void expect_good(const char *name)
{
	static struct list list;
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES),
			     *src = new_memory(REGION_KIND_MEMFD, BYTES);
	const size_t n = n_done;

	fill(src, 3);
	list_init(&list, dst, src);
	engine_submit(engine, other, &list.work.job);
	wait_done(n + 1);
	cr_assert_eq(list.work.job.status, 0, "%s: %d", name, list.work.job.status);
	cr_assert(is_filled(dst, 3), "%s", name);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
}

/* ---- Memory that fails -----------------------------------------------------------------------------------
 */

struct hole_row {
	char name[24];
	bool out;
};

ParameterizedTestParameters(pack_end, hole)
{
	static struct hole_row rows[] = { { "packed", false }, { "unpacked", true } };
	return cr_make_param_array(struct hole_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct hole_row *row, pack_end, hole)
{
	static struct list list, beside;
	struct engine_memory *host, *device, *memory, *device_too;
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = BYTES, .writable = true };
	struct error err;

	open_all();
	if (!holes_can_watch())
		cr_skip("there is no userfaultfd here");
	handle.fd = memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_eq(posix_fallocate(handle.fd, 0, BYTES), 0);
	for (size_t i = 0; i < BYTES; i++)
		cr_assert_eq(pwrite(handle.fd, "\5", 1, (off_t)i), 1);
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(engine_map(engine, &handle, &host, &err), 0, "%s", err.message);
	device = new_memory(REGION_KIND_CUDA_FD, BYTES);
	device_too = new_memory(REGION_KIND_CUDA_FD, BYTES);
	memory = new_memory(REGION_KIND_MEMFD, BYTES);
	fill(device, 6);
	fill(device_too, 7);
	cr_assert_eq(fallocate(handle.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40 * BLOCK, BLOCK), 0);
	list_init(&list, row->out ? host : device, row->out ? device : host);
	list_init(&beside, memory, device_too);
	engine_submit(engine, stream, &list.work.job);
	engine_submit(engine, other, &beside.work.job);
	wait_done(2);
	cr_assert_eq(list.work.job.status, STATUS_DEVICE, "%s: %d", row->name, list.work.job.status);
	cr_assert_eq(beside.work.job.status, 0, "%s: %d", row->name, beside.work.job.status);
	cr_assert(is_filled(memory, 7), "%s", row->name);
	cr_assert_not(engine->lost, "%s", row->name);
	expect_good(row->name);
	engine_unmap(engine, host);
	engine_unmap(engine, device);
	engine_unmap(engine, device_too);
	engine_unmap(engine, memory);
	close(handle.fd);
	close_all();
}

/* ---- Cancelled -------------------------------------------------------------------------------------------
 */

/* The list may be anywhere on its way when it is cancelled. */
Test(pack_end, cancelled)
{
	static struct list list[2];
	size_t cancelled = 0, begun = 0;
	struct engine_memory *device, *host;

	setenv("SOFTGPU_SLOW_US", "200", 1);
	open_all();
	device = new_memory(REGION_KIND_CUDA_FD, BYTES);
	host = new_memory(REGION_KIND_MEMFD, BYTES);
	for (int i = 0; i < 40; i++) {
		struct engine_memory *dst = i % 2 ? host : device, *src = i % 2 ? device : host;

		fill(src, 9);
		fill(dst, 0);
		n_done = 0;
		list_init(&list[0], dst, src);
		list_init(&list[1], dst, src);
		engine_submit(engine, stream, &list[0].work.job);
		usleep((useconds_t)i * 150);
		engine_stream_cancel(engine, stream);
		engine_submit(engine, stream, &list[1].work.job);
		wait_done(2);
		const int status = list[0].work.job.status;
		cr_assert(status == 0 || status == STATUS_CANCELED, "%d: %d", i, status);
		cancelled += status == STATUS_CANCELED;
		begun += status == STATUS_CANCELED && list[0].work.job.begun;
		cr_assert_eq(list[1].work.job.status, 0, "%d", i);
		cr_assert(is_filled(dst, 9), "%d", i);
	}
	cr_assert_gt(cancelled, 0);
	cr_assert_gt(begun, 0);
	engine_unmap(engine, device);
	engine_unmap(engine, host);
	close_all();
}

/* ---- Calls that fail, and devices that are lost
 * ------------------------------------------------------------ */

struct fail_row {
	char name[32];
	bool out;
	char variable[64];
	char with[32];
	int status;
};

ParameterizedTestParameters(pack_end, fails)
{
	static struct fail_row rows[] = {
		{ "a copy in", false, "SOFTGPU_FAIL_CALL=cuMemcpyHtoDAsync:9", "SOFTGPU_FAIL_WITH=400",
		  STATUS_DEVICE },
		{ "a copy out", true, "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync:9", "SOFTGPU_FAIL_WITH=400",
		  STATUS_DEVICE },
		{ "a launch", false, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:3", "SOFTGPU_FAIL_WITH=2",
		  STATUS_NO_MEMORY },
		{ "a launch, out", true, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:3", "SOFTGPU_FAIL_WITH=1",
		  STATUS_DEVICE },
		{ "a copy in, lost", false, "SOFTGPU_FAIL_CALL=cuMemcpyHtoDAsync:9", "SOFTGPU_FAIL_WITH=700",
		  STATUS_DEVICE_LOST },
		{ "a copy out, lost", true, "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync:9", "SOFTGPU_FAIL_WITH=700",
		  STATUS_DEVICE_LOST },
		{ "a kernel, lost", false, "SOFTGPU_FAULT=3", "", STATUS_DEVICE_LOST },
		{ "a look, lost", true, "SOFTGPU_FAIL_CALL=cuEventQuery:11", "SOFTGPU_FAIL_WITH=716",
		  STATUS_DEVICE_LOST },
		{ "not to be waited for", true, "SOFTGPU_FAIL_CALL=cuEventRecord:10", "SOFTGPU_FAIL_WITH=400",
		  STATUS_DEVICE_LOST },
	};
	return cr_make_param_array(struct fail_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct fail_row *row, pack_end, fails)
{
	static struct list list, next;
	struct engine_memory *device, *host;

	putenv(row->variable);
	if (*row->with)
		putenv(row->with);
	open_all();
	device = new_memory(REGION_KIND_CUDA_FD, BYTES);
	host = new_memory(REGION_KIND_MEMFD, BYTES);
	list_init(&list, row->out ? host : device, row->out ? device : host);
	list_init(&next, row->out ? host : device, row->out ? device : host);
	engine_submit(engine, stream, &list.work.job);
	engine_submit(engine, other, &next.work.job);
	wait_done(2);
	const int first = list.work.job.status, second = next.work.job.status;
	cr_assert(first == row->status || second == row->status, "%s: %d, %d", row->name, first, second);
	cr_assert_eq(engine->lost, row->status == STATUS_DEVICE_LOST, "%s", row->name);
	if (!engine->lost) {
		cr_assert(first == 0 || second == 0, "%s: %d, %d", row->name, first, second);
		expect_good(row->name);
	}
	engine_unmap(engine, device);
	engine_unmap(engine, host);
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	if (!engine->lost) {
		close_engine();
		return;
	}
	engine_owner_deinit(&owner);
	engine_close(engine);
}
