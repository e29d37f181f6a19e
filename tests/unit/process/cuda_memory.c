/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory of every kind in a CUDA engine that runs in a child process: it is moved, told apart, lost
 * with the device, and mapped again. A life is the time from one start of the child to its end. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "client.h"
#include "rig.h"
#include "tests/support/tap.h"

#define SIZE (1u << 20)

TestSuite(process_cuda, .timeout = 300);

static struct rig rig;
static struct engine_stream *stream;

static void open_all(void)
{
	client_open();
	rig_open(&rig, "cuda", &(struct engine_options){ .tensor_maps = 16 });
	stream = engine_stream_new(rig.engine, &rig.owner);
}

static void close_all(void)
{
	engine_stream_free(rig.engine, stream);
	rig_close(&rig);
	client_close();
}

static struct engine_memory *map(struct rig *on, const struct client_memory *memory)
{
	struct engine_memory *ret;
	struct error err;

	cr_assert_eq(engine_map(on->engine, &memory->handle, &ret, &err), 0, "%s: %s",
	             client_kind_names[memory->kind], err.message);
	return ret;
}

/* Runs a job and returns its status. */
static int run(struct work *work)
{
	rig.n_done = 0;
	engine_submit(rig.engine, stream, &work->job);
	rig_wait(&rig, 1);
	return work->job.status;
}

/* ---- What clients bring ------------------------------------------------------------------------------- */

struct kind_row {
	enum client_kind dst, src;
};

ParameterizedTestParameters(process_cuda, from_life_to_life)
{
	static struct kind_row rows[CLIENT_KINDS * 2];

	for (int i = 0; i < CLIENT_KINDS; i++) {
		rows[2 * i] = (struct kind_row){ (enum client_kind)i, CLIENT_FD };
		rows[2 * i + 1] = (struct kind_row){ CLIENT_IPC, (enum client_kind)i };
	}
	return cr_make_param_array(struct kind_row, rows, CLIENT_KINDS * 2);
}

/* Random transforms run before and after the child has been killed. */
ParameterizedTest(struct kind_row *row, process_cuda, from_life_to_life)
{
	static struct work work;
	static char text[2000];
	struct client_memory memory[2];
	struct engine_memory *mapped[2];
	const uint64_t seeds = (uint64_t)tap_portion(300);
	uint64_t identity[2][2];

	open_all();
	client_new(&memory[0], row->dst, SIZE);
	client_new(&memory[1], row->src, SIZE);
	for (int i = 0; i < 2; i++) {
		mapped[i] = map(&rig, &memory[i]);
		cr_expect_eq(!mapped[i]->host, memory[i].kind != CLIENT_MEMFD);
		memcpy(identity[i], mapped[i]->memory, sizeof identity[i]);
	}
	for (uint64_t seed = 1; seed <= 3 * seeds; seed++) {
		struct oracle_case c;

		if (seed % seeds == 0) {
			const uint32_t losses = rig.engine->losses;

			kill(rig_child(&rig), SIGKILL);
			rig_wait_for_return(&rig, losses + 1);
		}
		oracle_random_case(seed, &c);
		cr_assert(oracle_case_prepare(&c));
		memcpy(memory[0].bytes, c.dst, c.dst_size + 2 * ORACLE_GUARD);
		memcpy(memory[1].bytes, c.src, c.src_size + 2 * ORACLE_GUARD);
		work_init_spec(&work, &rig, &c.spec, mapped[0], ORACLE_GUARD + c.dst_offset, mapped[1],
		               ORACLE_GUARD + c.src_offset);
		oracle_case_text(&c, text, sizeof text);
		cr_assert_eq(run(&work), 0, "%s from %s: seed %lu: %d: %s", client_kind_names[row->dst],
		             client_kind_names[row->src], (unsigned long)seed, work.job.status, text);
		memcpy(c.dst, memory[0].bytes, c.dst_size + 2 * ORACLE_GUARD);
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s from %s: seed %lu: %s",
		          client_kind_names[row->dst], client_kind_names[row->src], (unsigned long)seed,
		          text);
		oracle_case_free(&c);
	}
	cr_expect_eq(rig.engine->losses, 3);
	cr_expect_eq(rig.engine->dropped, 0);
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(memcmp(identity[i], mapped[i]->memory, sizeof identity[i]), 0);
		engine_unmap(rig.engine, mapped[i]);
		client_free(&memory[i]);
	}
	close_all();
}

/* ---- What is told apart ------------------------------------------------------------------------------- */

static bool is_same(const struct engine_memory *a, const struct engine_memory *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

/* Regions of one allocation count as one memory, also if one is mapped in a later life. */
Test(process_cuda, regions_of_an_allocation)
{
	for (int kind = 0; kind < CLIENT_KINDS; kind++) {
		struct client_memory memory, other;
		struct engine_memory *a, *b, *c, *late;

		if (kind == CLIENT_FD || kind == CLIENT_PARTS_OF_FD)
			continue; /* the driver does not tell which allocation a descriptor stands for */
		open_all();
		client_new(&memory, (enum client_kind)kind, SIZE);
		client_new(&other, (enum client_kind)kind, SIZE);
		a = map(&rig, &memory);
		c = map(&rig, &other);
		memory.handle.offset = 4096;
		memory.handle.size = 8192;
		b = map(&rig, &memory);
		kill(rig_child(&rig), SIGKILL);
		rig_wait_for_return(&rig, 1);
		late = map(&rig, &memory);
		cr_expect(is_same(a, b), "%s", client_kind_names[kind]);
		cr_expect(is_same(a, late), "%s: mapped in another life", client_kind_names[kind]);
		cr_expect_not(is_same(a, c), "%s", client_kind_names[kind]);
		cr_expect_eq(b->base - a->base, 4096, "%s", client_kind_names[kind]);
		cr_expect_eq(late->base, b->base, "%s", client_kind_names[kind]);
		engine_unmap(rig.engine, a);
		engine_unmap(rig.engine, b);
		engine_unmap(rig.engine, c);
		engine_unmap(rig.engine, late);
		client_free(&memory);
		client_free(&other);
		close_all();
	}
}

static uintptr_t chunk(const struct engine_memory *memory, uint32_t i)
{
	return memory->chunks->by_place[i].id;
}

/* A region that refers to another one has its allocations, whichever lives they were mapped in. */
Test(process_cuda, allocations_of_another_region)
{
	struct client_memory memory, own;
	struct engine_memory *a, *b, *c;
	static struct work work;

	open_all();
	client_new(&memory, CLIENT_PARTS_OF_FD, SIZE);
	client_new(&own, CLIENT_FD, SIZE);
	a = map(&rig, &memory);
	for (int life = 0; life < 2; life++) {
		const uint64_t each = memory.parts[0].size;
		struct engine_part parts[] = { { .fd = own.fd[0], .size = own.size },
			                       { .fd = -1, .memory = a, .offset = each, .size = 2 * each } };
		struct engine_handle handle = { .kind = REGION_KIND_CUDA_FD,
			                        .fd = -1,
			                        .size = own.size + 2 * each,
			                        .writable = true,
			                        .parts = parts,
			                        .n_parts = 2 };
		struct error err;

		cr_assert_eq(engine_map(rig.engine, &handle, &b, &err), 0, "%s", err.message);
		cr_assert_eq(a->chunks->n, 3);
		cr_assert_eq(b->chunks->n, 3);
		cr_expect_neq(chunk(b, 0), chunk(a, 0));
		cr_expect_eq(chunk(b, 1), chunk(a, 1));
		cr_expect_eq(chunk(b, 2), chunk(a, 2));
		cr_expect(atomic_load(&a->chunks->shared) && atomic_load(&b->chunks->shared));
		cr_expect_not(is_same(a, b));
		parts[1].size = each;
		handle.size = own.size + each;
		cr_assert_eq(engine_map(rig.engine, &handle, &c, &err), 0, "%s", err.message);
		cr_expect_eq(c->chunks->n, 2);
		cr_expect_eq(chunk(c, 1), chunk(a, 1));
		engine_unmap(rig.engine, c);
		parts[1].offset = 1;
		cr_expect_eq(engine_map(rig.engine, &handle, &c, &err), STATUS_OUT_OF_RANGE);
		cr_expect(strstr(err.message, "parts[1]"), "%s", err.message);

		memset(memory.bytes, 7 + life, memory.size);
		work_init_copy(&work, &rig, (int64_t)each, b, 0, b, own.size + each);
		cr_assert_eq(run(&work), 0);
		cr_expect_eq(own.bytes[each - 1], 7 + life);
		if (life == 0) {
			kill(rig_child(&rig), SIGKILL);
			rig_wait_for_return(&rig, 1);
			memset(memory.bytes, 9, memory.size);
			cr_assert_eq(run(&work), 0);
			cr_expect_eq(own.bytes[each - 1], 9, "after the return");
		}
		engine_unmap(rig.engine, b);
	}
	engine_unmap(rig.engine, a);
	client_free(&memory);
	client_free(&own);
	close_all();
}

/* The allocations of a region with a single descriptor are used by other regions, in this engine and in
 * another one, after that region was unmapped and the device was lost. */
Test(process_cuda, allocations_outlive_their_region)
{
	static struct work work;
	struct rig other;
	struct engine_stream *others;
	struct client_memory memory;
	struct engine_memory *first, *mapped[2], *dst[2];
	struct error err;

	open_all();
	rig_open(&other, "cuda", &(struct engine_options){ .tensor_maps = 16 });
	others = engine_stream_new(other.engine, &other.owner);
	client_new(&memory, CLIENT_FD, SIZE);
	first = map(&rig, &memory);
	for (int i = 0; i < 2; i++) {
		struct engine_part part = { .fd = -1, .memory = first, .size = memory.size };
		const struct engine_handle handle = { .kind = REGION_KIND_CUDA_FD,
			                              .fd = -1,
			                              .size = memory.size,
			                              .writable = true,
			                              .parts = &part,
			                              .n_parts = 1 };
		struct rig *on = i ? &other : &rig;

		cr_assert_eq(engine_map(on->engine, &handle, &mapped[i], &err), 0, "engine %d: %s", i,
		             err.message);
		cr_expect_eq(chunk(mapped[i], 0), chunk(first, 0), "engine %d", i);
		part.offset = 1;
		cr_expect_eq(engine_map(on->engine, &handle, &dst[i], &err), STATUS_OUT_OF_RANGE, "engine %d",
		             i);
		dst[i] = rig_make(on, REGION_KIND_MEMFD, SIZE);
	}
	engine_unmap(rig.engine, first);
	client_free(&memory);
	for (uint32_t life = 0; life < 2; life++) {
		for (int i = 0; i < 2; i++) {
			struct rig *on = i ? &other : &rig;

			if (life) {
				kill(rig_child(on), SIGKILL);
				rig_wait_for_return(on, life);
			}
			work_init_copy(&work, on, SIZE, dst[i], 0, mapped[i], 0);
			on->n_done = 0;
			engine_submit(on->engine, i ? others : stream, &work.job);
			rig_wait(on, 1);
			cr_expect_eq(work.job.status, 0, "engine %d in life %u: %d", i, life,
			             work.job.status);
		}
	}
	for (int i = 0; i < 2; i++) {
		engine_unmap(i ? other.engine : rig.engine, mapped[i]);
		engine_unmap(i ? other.engine : rig.engine, dst[i]);
	}
	engine_stream_free(other.engine, others);
	rig_close(&other);
	close_all();
}

/* ---- What is made ------------------------------------------------------------------------------------- */

/* Memory with a descriptor is mapped again with its bytes; memory with a handle is gone with the child. */
Test(process_cuda, made_memory_after_a_loss)
{
	static struct work work;
	struct engine_memory *with_fd, *host, *with_handle;
	struct engine_export made[3];
	struct error err;
	uint64_t ignored;
	unsigned char *bytes;

	open_all();
	cr_assert_eq(engine_create(rig.engine, REGION_KIND_CUDA_FD, SIZE, &with_fd, &made[0], &err), 0, "%s",
	             err.message);
	cr_assert_eq(engine_create(rig.engine, REGION_KIND_MEMFD, SIZE, &host, &made[1], &err), 0, "%s",
	             err.message);
	cr_assert_eq(engine_create(rig.engine, REGION_KIND_CUDA_IPC, SIZE, &with_handle, &made[2], &err), 0,
	             "%s", err.message);
	cr_expect_eq(made[2].handle_len, ENGINE_HANDLE_BYTES);
	bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, made[0].fd, 0);
	cr_assert_neq(bytes, MAP_FAILED);
	for (size_t i = 0; i < SIZE; i++)
		cr_assert_eq(bytes[i] | ((unsigned char *)host->host)[i], 0, "byte %zu", i);
	memset(bytes, 5, SIZE);
	kill(rig_child(&rig), SIGKILL);
	rig_wait_for_return(&rig, 1);
	cr_expect_eq(rig.engine->dropped, 1);
	work_init_copy(&work, &rig, SIZE, host, 0, with_fd, 0);
	cr_expect_eq(run(&work), 0);
	cr_expect_eq(((unsigned char *)host->host)[SIZE - 1], 5);
	work_init_copy(&work, &rig, SIZE, host, 0, with_handle, 0);
	cr_expect_eq(run(&work), STATUS_DEVICE_LOST);
	cr_expect_eq(engine_memory_loss(with_handle, &ignored), ENGINE_LOSS_GONE);
	cr_expect_eq(engine_memory_loss(with_fd, &ignored), ENGINE_LOSS_NONE);
	engine_unmap(rig.engine, with_fd);
	engine_unmap(rig.engine, with_handle);

	struct stat st;
	cr_assert_eq(fstat(made[1].fd, &st), 0);
	cr_expect_gt(st.st_blocks, 0);
	engine_unmap(rig.engine, host);
	cr_assert_eq(fstat(made[1].fd, &st), 0);
	cr_expect_eq(st.st_blocks, 0, "its pages go with the region");
	munmap(bytes, SIZE);
	close(made[0].fd);
	close(made[1].fd);
	close_all();
}

/* The child notices that a file has lost pages that the device has pinned, and the owner's side reports
 * it. */
Test(process_cuda, pages_that_a_file_has_lost)
{
	static struct work work;
	struct client_memory memory;
	struct engine_memory *mapped, *dst;
	uint64_t bytes = 0;

	open_all();
	client_new(&memory, CLIENT_MEMFD, SIZE);
	mapped = map(&rig, &memory);
	dst = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	work_init_copy(&work, &rig, SIZE, dst, 0, mapped, 0);
	cr_expect_eq(run(&work), 0);
	cr_assert_eq(ftruncate(memory.fd[0], 4096), 0);
	cr_expect_eq(run(&work), STATUS_DEVICE);
	cr_expect_eq(engine_memory_loss(mapped, &bytes), ENGINE_LOSS_SHRUNK);
	cr_expect_eq(bytes, 4096);
	cr_assert_eq(ftruncate(memory.fd[0], SIZE), 0);
	cr_expect_eq(run(&work), STATUS_DEVICE);
	cr_expect_eq(engine_memory_loss(mapped, &bytes), ENGINE_LOSS_PINS);
	engine_unmap(rig.engine, mapped);
	engine_unmap(rig.engine, dst);
	client_free(&memory);
	close_all();
}

/* ---- A device that is lost ---------------------------------------------------------------------------- */

static void lose_device(const char *path, int device)
{
	char made[80];
	FILE *file;

	snprintf(made, sizeof made, "%s.new", path);
	file = fopen(made, "w");
	cr_assert(file);
	fprintf(file, "%d 719\n", device);
	fclose(file);
	cr_assert_eq(rename(made, path), 0);
}

/* One of two devices is lost again and again, and the other one goes on. Jobs that had started report it. */
Test(process_cuda, one_of_two_devices)
{
	enum { JOBS = 20 };
	static struct work work[JOBS], one;
	struct rig other;
	struct engine_stream *others;
	struct engine_memory *dst, *src, *others_dst, *others_src;
	const uint32_t rounds = (uint32_t)tap_portion(100);
	char path[] = "/tmp/unit-process-XXXXXX";
	bool any_begun = false;

	setenv("SOFTGPU_DEVICES", "2", 1);
	client_open();
	close(mkstemp(path));
	unlink(path);
	setenv("SOFTGPU_LOSE", path, 1);
	rig_open(&rig, "cuda", &(struct engine_options){ .tensor_maps = 16, .device = "0" });
	setenv("SOFTGPU_LOSE", "/nowhere", 1);
	rig_open(&other, "cuda", &(struct engine_options){ .tensor_maps = 16, .device = "1" });
	setenv("SOFTGPU_LOSE", path, 1); /* for children that start from now on */
	setenv("SOFTGPU_SLOW_US", "500", 1);
	stream = engine_stream_new(rig.engine, &rig.owner);
	others = engine_stream_new(other.engine, &other.owner);
	dst = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	src = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	others_dst = rig_make(&other, REGION_KIND_CUDA_FD, SIZE);
	others_src = rig_make(&other, REGION_KIND_CUDA_FD, SIZE);
	cr_expect_str_neq(rig.engine->uuid, other.engine->uuid);
	for (uint32_t round = 1; round <= rounds; round++) {
		rig.n_done = other.n_done = 0;
		for (int i = 0; i < JOBS; i++) {
			work_init(&work[i], &rig, 300, true, dst, src);
			engine_submit(rig.engine, stream, &work[i].job);
		}
		usleep(round % 5 * 300);
		lose_device(path, 0);
		rig_wait(&rig, JOBS);
		for (int i = 0; i < JOBS; i++) {
			cr_expect(work[i].job.status == 0 || work[i].job.status == STATUS_DEVICE_LOST,
			          "round %u: job %d: %d", round, i, work[i].job.status);
			any_begun |= work[i].job.status == STATUS_DEVICE_LOST && work[i].job.begun;
		}
		work_init(&one, &other, 300, true, others_dst, others_src);
		engine_submit(other.engine, others, &one.job);
		rig_wait(&other, 1);
		cr_expect_eq(one.job.status, 0, "round %u: the other device", round);
		/* If all jobs had ended before, the next call of the driver finds the device lost. */
		for (int i = 0; rig.engine->losses < round && i < 1000; i++) {
			rig.n_done = 0;
			work_init(&work[0], &rig, 300, true, dst, src);
			engine_submit(rig.engine, stream, &work[0].job);
			rig_wait(&rig, 1);
		}
		rig_wait_for_return(&rig, round);
		work_init(&work[0], &rig, 300, true, dst, src);
		cr_expect_eq(run(&work[0]), 0, "round %u: after the return", round);
	}
	cr_expect(any_begun);
	cr_expect(strstr(rig.engine->lost_why, "CUDA_ERROR_LAUNCH_FAILED"), "%s", rig.engine->lost_why);
	cr_expect_eq(rig.engine->dropped, 0);
	cr_expect_eq(other.engine->losses, 0);
	engine_stream_free(other.engine, others);
	engine_unmap(other.engine, others_dst);
	engine_unmap(other.engine, others_src);
	rig_close(&other);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	close_all();
}

/* A kernel of a batch faults. */
Test(process_cuda, a_fault)
{
	static struct work work[3];
	struct engine_move moves[3];
	struct engine_memory *dst, *src;
	char path[] = "/tmp/unit-process-XXXXXX";

	close(mkstemp(path));
	unlink(path);
	client_open();
	setenv("SOFTGPU_FAULT", "1", 1);
	setenv("SOFTGPU_FAULT_ONCE", path, 1);
	rig_open(&rig, "cuda", &(struct engine_options){ .tensor_maps = 16 });
	stream = engine_stream_new(rig.engine, &rig.owner);
	dst = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	src = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	for (int i = 0; i < 3; i++) {
		work_init(&work[i], &rig, 100, true, dst, src);
		work[i].job.move.dst_offset = (uint64_t)i * 65536;
		moves[i] = work[i].job.move;
	}
	work[0].job.moves = moves;
	work[0].job.n_moves = 3;
	cr_expect_eq(run(&work[0]), STATUS_DEVICE_LOST);
	cr_expect(work[0].job.begun);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(moves[i].status, STATUS_DEVICE_LOST, "move %d: %d", i, moves[i].status);
	rig_wait_for_return(&rig, 1);
	cr_expect(strstr(rig.engine->lost_why, "ILLEGAL_ADDRESS"), "%s", rig.engine->lost_why);
	cr_expect_eq(run(&work[0]), 0);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	unlink(path);
	close_all();
}

/* ---- Figures ------------------------------------------------------------------------------------------ */

/* Tensor maps move these blocks, as their rows have gaps. */
Test(process_cuda, cached_maps_are_counted_from_life_to_life)
{
	static struct work work;
	static const int32_t index[] = { 1, 0 };
	struct engine_blocks blocks = { .n = 2,
		                        .layers = 1,
		                        .index_bytes = 4,
		                        .limit = 2,
		                        .index = index,
		                        .dst.step = 64 << 10,
		                        .src.step = 64 << 10 };
	struct engine_cache_stats stats = { 0 }, later;
	struct engine_memory *dst, *src;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;

	open_all();
	dst = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	src = rig_make(&rig, REGION_KIND_CUDA_FD, SIZE);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, (int64_t[]){ 64, 64 }, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, (int64_t[]){ 64, 64 }, (int64_t[]){ 80, 1 }, "src",
	                   &err);
	work_init_spec(&work, &rig, &spec, dst, 0, src, 0);
	work.job.blocks = &blocks;
	cr_assert_eq(run(&work), 0);
	for (int i = 0; i < 100 && stats.hits + stats.misses == 0; i++) {
		usleep(10000);
		engine_cache_stats(rig.engine, &stats);
	}
	cr_expect_gt(stats.hits + stats.misses, 0);
	kill(rig_child(&rig), SIGKILL);
	rig_wait_for_return(&rig, 1);
	engine_cache_stats(rig.engine, &later);
	cr_expect_eq(later.hits, stats.hits);
	cr_expect_eq(later.misses, stats.misses);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	close_all();
}
