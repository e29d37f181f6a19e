/* SPDX-License-Identifier: Apache-2.0 */
/* Tests kernels that other tests seldom reach. The planner starts from some strategies but seldom keeps them,
 * because it predicts another to be faster; the plan for a list's blocks is not compared with others, so it
 * keeps them. Runs are copied by the driver or by threads, depending on their addresses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/strategy/strategy.h"
#include "kernels/cuda/strategy/tuning.h"
#include "rig.h"
#include "tests/support/oracle.h"

struct route_row {
	char name[32];
	int64_t shape[2]; /* float32 */
	int64_t strides[2];
	int64_t around; /* elements of border before dimension 0, and after it */
	enum pad_mode mode;
	enum strategy_id strategy;
	bool patched;
};

enum { BYTES = 512 << 10 };

ParameterizedTestParameters(routes, first)
{
	static struct route_row rows[] = {
		{ .name = "long runs",
		  .shape = { 64, 1024 },
		  .strides = { 1056, 1 },
		  .strategy = STRATEGY_bulk },
		{ .name = "a run again and again",
		  .shape = { 9, 4096 },
		  .strides = { 0, 1 },
		  .strategy = STRATEGY_bulk },
		{ .name = "a border in the tiles",
		  .shape = { 64, 64 },
		  .strides = { 64, 1 },
		  .around = 1,
		  .mode = PAD_MODE_REFLECT,
		  .strategy = STRATEGY_copy,
		  .patched = true },
	};
	return cr_make_param_array(struct route_row, rows, sizeof rows / sizeof *rows);
}

/* Returns the facts from which the engine would make this plan. */
static struct plan_facts facts_of(const struct engine_plan *plan)
{
	const struct cuda_plans *plans = plan->cache->arg;

	return plan_facts_at(&plans->facts, plan->places);
}

/* Replaces a plan by one that the engine would not choose. */
static void set_plan(struct engine_plan *plan, const struct plan *to)
{
	cuda_plan(plan);
	((struct cuda_plan *)plan->own)->plan = *to;
}

ParameterizedTest(struct route_row *row, routes, first)
{
	static struct work work;
	static unsigned char expected[BYTES];
	struct transform_spec spec = { .n_perm = -1,
		                       .n_before = 2,
		                       .before = { row->around },
		                       .n_after = 2,
		                       .after = { row->around },
		                       .mode = row->mode };
	const int64_t shape[2] = { row->shape[0] + 2 * row->around, row->shape[1] };
	struct error err;

	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, row->shape, row->strides, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err);
	open_engine(NULL);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(i * 7 + i / 256);
	memset(data(dst), 0xa5, BYTES);
	memset(expected, 0xa5, BYTES);
	oracle_run(&spec, expected, data(src));

	work_init_spec(&work, &spec, dst, 0, src, 0);
	struct plan_facts facts = facts_of(work.job.move.plan);
	struct plan plan;

	facts.listed = true;
	plan_init(&plan, &work.transform, &facts);
	cr_assert_eq(plan.tma.strategy, row->strategy, "%s: strategy %d", row->name, plan.tma.strategy);
	cr_assert_eq(plan.tma.patched, row->patched, "%s", row->name);
	set_plan(work.job.move.plan, &plan);
	n_done = 0;
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: %d", row->name, work.job.status);
	for (size_t i = 0; i < BYTES; i++)
		cr_assert_eq(data(dst)[i], expected[i], "%s: byte %zu", row->name, i);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}

/* The most thread blocks that round.c and tuning.h give a kernel that uses host memory. */
#define BUS_BLOCKS (32 * BOUNDED_BLOCKS)

/* Returns how many kernels in the trace ran with at most `most` thread blocks. Sets *ret_wrong to the number
 * of kernels that kept no bytes or more than `slot` bytes out of L2 or, if slot is 0, any. */
static int count_bounded(const char *trace, unsigned long long most, uint64_t slot, int *ret_wrong)
{
	FILE *file = fopen(trace, "r");
	char what[8], unit[16], name[32];
	unsigned long long blocks, passing;
	int priority, n = 0;

	cr_assert(file);
	*ret_wrong = 0;
	while (fscanf(file, "%7s %15s %31s %llu %d %llu", what, unit, name, &blocks, &priority, &passing) ==
	       6) {
		if (strcmp(what, "begin") != 0 || strcmp(unit, "kernels") != 0)
			continue;
		n += blocks <= most;
		*ret_wrong += (passing > 0) != (slot > 0) || passing > slot;
	}
	fclose(file);
	return n;
}

/* Transposes are from host to host, in tiles whose rows are staged in and out, and also to a destination with
 * gaps. */
Test(routes, rows_of_the_host)
{
	char trace[] = "/tmp/routes.XXXXXX";
	int wrong;
	enum { MOST = 128, GAP = 3, ROOM = MOST * (MOST + GAP) * 4 };
	static uint32_t expected[ROOM / 4];
	static struct work work;
	struct cuda_limits limits = small_limits();

	close(mkstemp(trace));
	setenv("SOFTGPU_TRACE", trace, 1);
	setenv("SOFTGPU_MULTIPROCESSORS", "64", 1);
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_MEMFD, ROOM);
	struct engine_memory *src = new_memory(REGION_KIND_MEMFD, ROOM);
	for (uint32_t i = 0; i < ROOM / 4; i++)
		((uint32_t *)data(src))[i] = i * 2654435761;
	for (int64_t n = 40; n < MOST; n += 7) {
		for (int64_t gap = 0; gap <= GAP; gap += GAP) {
			const int64_t shape[2] = { n, MOST }, made[2] = { MOST, n },
				      strides[2] = { n + gap, 1 };
			struct transform_spec spec = {
				.n_perm = 2, .perm = { 1, 0 }, .n_before = -1, .n_after = -1
			};
			struct error err;

			tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err);
			tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, made, strides, "dst", &err);
			memset(data(dst), 0xa5, ROOM);
			memset(expected, 0xa5, ROOM);
			for (int64_t i = 0; i < MOST * n; i++)
				expected[i / n * (n + gap) + i % n] =
				    ((uint32_t *)data(src))[i % n * MOST + i / n];
			work_init_spec(&work, &spec, dst, 0, src, 0);
			n_done = 0;
			engine_submit(engine, stream, &work.job);
			wait_done(1);
			cr_assert_eq(work.job.status, 0, "%ld, gap %ld: %d", n, gap, work.job.status);
			cr_assert_arr_eq(data(dst), expected, ROOM, "%ld, gap %ld", n, gap);
		}
	}
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
	const int bounded = count_bounded(trace, BUS_BLOCKS, 8 << 10, &wrong);

	cr_assert_gt(bounded, 100, "%d", bounded);
	cr_assert_eq(wrong, 0, "%d", wrong);
	unlink(trace);
}

/* A kernel that accesses host memory directly leaves most of the device to others; a kernel that does not
 * takes all of it. */
Test(routes, over_the_bus)
{
	enum { N = 1531 };
	static struct work work[3];
	char trace[] = "/tmp/routes.XXXXXX";
	int wrong;
	struct cuda_limits limits = small_limits();

	close(mkstemp(trace));
	setenv("SOFTGPU_TRACE", trace, 1);
	setenv("SOFTGPU_MULTIPROCESSORS", "64", 1);
	limits.direct_bytes = N * N * 4;
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *host = new_memory(REGION_KIND_MEMFD, N * N * 4);
	struct engine_memory *device = new_memory(REGION_KIND_CUDA_FD, N * N * 4);
	struct engine_memory *other = new_memory(REGION_KIND_CUDA_FD, N * N * 4);

	work_init(&work[0], N, true, device, host);
	work_init(&work[1], N, true, host, device);
	work_init(&work[2], N, true, other, device);
	for (size_t i = 0; i < 3; i++) {
		n_done = 0;
		engine_submit(engine, stream, &work[i].job);
		wait_done(1);
		cr_assert_eq(work[i].job.status, 0);
		cr_assert_eq(count_bounded(trace, BUS_BLOCKS, 0, &wrong), i < 2 ? (int)i + 1 : 2, "%zu", i);
		cr_assert_eq(wrong, 0);
	}
	engine_unmap(engine, host);
	engine_unmap(engine, device);
	engine_unmap(engine, other);
	engine_stream_free(engine, stream);
	close_engine();
	unlink(trace);
}

/* Threads copy a run whose two addresses do not differ by a multiple of 4 bytes; the driver copies all
 * others. */
Test(routes, copies_of_runs)
{
	static struct work work;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[1] = { 40001 };
	struct error err;

	tensor_layout_init(&spec.src, DTYPE_UINT8, 1, shape, NULL, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", &err);
	open_engine(NULL);
	count_launches();
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(i * 7 + i / 256);
	for (uint64_t from = 0; from < 18; from++) {
		const uint64_t to = from * 5 % 7;

		memset(data(dst), 0xa5, BYTES);
		work_init_spec(&work, &spec, dst, to, src, from);
		n_done = n_launches = 0;
		engine_submit(engine, stream, &work.job);
		wait_done(1);
		cr_assert_eq(work.job.status, 0, "%lu to %lu: %d", from, to, work.job.status);
		cr_expect_eq(n_launches, (to - from) % 4 != 0, "%lu to %lu: %u launches", from, to,
		             n_launches);
		cr_assert_arr_eq(data(dst) + to, data(src) + from, (size_t)shape[0]);
		cr_assert_eq(data(dst)[to + (uint64_t)shape[0]], 0xa5);
		cr_assert(to == 0 || data(dst)[to - 1] == 0xa5);
	}
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}

/* At addresses that are only multiples of 4, an element of 8 bytes is moved in halves, each with its own half
 * of the pad value, wherever a cache line of the destination begins. */
Test(routes, halves_of_elements)
{
	static struct work work;
	static unsigned char expected[BYTES];
	struct transform_spec spec = { .n_perm = -1,
		                       .n_before = 2,
		                       .before = { 1, 2 },
		                       .n_after = 2,
		                       .after = { 0, 1 },
		                       .value = { .kind = SCALAR_FLOATING, .re = 1.1 } };
	const int64_t src_shape[2] = { 40, 301 }, dst_shape[2] = { 41, 304 };
	struct error err;

	tensor_layout_init(&spec.src, DTYPE_FLOAT64, 2, src_shape, NULL, "src", &err);
	tensor_layout_init(&spec.dst, DTYPE_FLOAT64, 2, dst_shape, NULL, "dst", &err);
	open_engine(NULL);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(i * 7 + i / 256);
	for (uint64_t to = 4; to < 160; to += 52) {
		struct plan_facts facts;
		struct loop_nest nest;
		struct plan plan;

		memset(data(dst), 0xa5, BYTES);
		memset(expected, 0xa5, BYTES);
		oracle_run(&spec, expected + to, data(src) + 12);
		work_init_spec(&work, &spec, dst, to, src, 12);
		facts = facts_of(work.job.move.plan);
		const struct strategy_case c = { .nest = &nest, .facts = &facts, .mode = spec.mode };

		plan_init(&plan, &work.transform, &facts);
		loop_nest_window(&nest, &work.transform, facts.align);
		loop_nest_narrow(&nest, facts.align, spec.mode);
		memset(&plan.tma, 0, sizeof plan.tma);
		plan.tma.strategy = STRATEGY_elements;
		cr_assert(strategy_of(&plan)->probe(&plan, &c));
		set_plan(work.job.move.plan, &plan);
		n_done = 0;
		engine_submit(engine, stream, &work.job);
		wait_done(1);
		cr_assert_eq(work.job.status, 0, "to %lu: %d", to, work.job.status);
		for (size_t k = 0; k < BYTES; k++)
			cr_assert_eq(data(dst)[k], expected[k], "to %lu: byte %zu", to, k);
	}
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}
