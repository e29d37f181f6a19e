/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the magnitudes that every instruction set finds, transforms with amax against plain loops, and how
 * their jobs end. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"

/* ---- Magnitudes ------------------------------------------------------------------------------------- */

static const enum dtype floats[] = { DTYPE_FLOAT8_E4M3FN, DTYPE_FLOAT8_E5M2, DTYPE_FLOAT16, DTYPE_BFLOAT16,
	                             DTYPE_FLOAT32 };
#define N_FLOATS (sizeof(floats) / sizeof(floats[0]))

/* Values in the order of their magnitudes, as bits of each type in floats. */
static const struct ordered {
	const char *name;
	uint32_t bits[N_FLOATS]; /* 0: the type has no such value */
} ordered[] = {
	{ "-0", { 0x80, 0x80, 0x8000, 0x8000, 0x80000000 } },
	{ "the smallest", { 0x81, 0x01, 0x0001, 0x8001, 0x80000001 } },
	{ "the largest subnormal", { 0x07, 0x83, 0x83ff, 0x007f, 0x007fffff } },
	{ "one", { 0xb8, 0x3c, 0x3c00, 0xbf80, 0x3f800000 } },
	{ "the largest", { 0xfe, 0x7b, 0xfbff, 0x7f7f, 0xff7fffff } },
	{ "infinity", { 0, 0xfc, 0x7c00, 0xff80, 0x7f800000 } },
	{ "NaN", { 0xff, 0x7d, 0xfc01, 0x7f81, 0xff800001 } },
	{ "another NaN", { 0, 0xff, 0x7fff, 0xffc0, 0x7fc00001 } },
};

/* A row of any length has the value anywhere among smaller ones. Larger values lie right before and after the
 * row. */
Test(amax_cpu, magnitudes, .timeout = 120)
{
	static _Alignas(64) char memory[4096];

	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (size_t f = 0; f < N_FLOATS; f++)
			for (size_t i = 1; i < sizeof(ordered) / sizeof(ordered[0]); i++) {
				const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);
				const int64_t size = dtype_size(floats[f]);
				uint32_t bits = ordered[i].bits[f], below = ordered[i - 1].bits[f];
				const uint32_t sign = UINT32_C(1) << (8 * size - 1);

				if (!isa || !bits)
					continue;
				below = below ? below : ordered[i - 2].bits[f];
				for (int64_t n = 1; n < 300; n = n < 70 ? n + 1 : n + 37) {
					const int64_t at = (n * 7 + (int64_t)i) % n;
					uint32_t got;

					memset(memory, 0xff, sizeof(memory));
					for (int64_t k = 0; k < n; k++)
						memcpy(memory + 65 + k * size, k == at ? &bits : &below,
						       (size_t)size);
					got = isa->converters->magnitude[floats[f]](memory + 65, n);
					cr_expect_eq(got, bits & ~sign, "%s, %s of %s, %lld of %lld: %#x",
					             isa->name, ordered[i].name, dtype_names[floats[f]],
					             (long long)at, (long long)n, got);
				}
			}
}

Test(amax_cpu, products_by_a_number)
{
	uint64_t state = 5;

	for (int level = 0; level < CPU_ISA_LEVELS; level++) {
		const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);

		for (int round = 0; isa && round < 200; round++) {
			_Alignas(CPU_LINE) uint32_t a[96], b[96], one[96] = { 0 }, other[96] = { 0 };
			const uint32_t by = round % 10 ? (uint32_t)oracle_random(&state) : 0x7fc00000;
			const int64_t n = 1 + round % 70;
			float number;

			memcpy(&number, &by, sizeof(number));
			for (int i = 0; i < 96; i++) {
				a[i] = (uint32_t)oracle_random(&state);
				b[i] = by;
			}
			bool is_nan = isa->converters->multiply[CPU_LANE_FLOAT32](one, a, b, n);
			cr_expect_eq(isa->converters->multiply_by(other, a, number, n), is_nan, "%s",
			             isa->name);
			for (int64_t i = 0; i < n; i++)
				cr_expect(one[i] == other[i] || is_nan, "%s, %#x * %#x", isa->name, a[i], by);
		}
	}
}

/* ---- Transforms ------------------------------------------------------------------------------------- */

static const struct moved {
	const char *name;
	enum dtype from, to;
	int64_t shape[3], block[3]; /* of the destination */
	int perm[3];
	bool power_of_two;
} moved[] = {
	{ "rows of 128",
	  DTYPE_BFLOAT16,
	  DTYPE_FLOAT8_E4M3FN,
	  { 3, 5, 384 },
	  { 1, 1, 128 },
	  { 0, 1, 2 },
	  false },
	{ "squares", DTYPE_FLOAT32, DTYPE_FLOAT8_E5M2, { 2, 300, 200 }, { 1, 128, 128 }, { 0, 1, 2 }, true },
	{ "transposed squares",
	  DTYPE_FLOAT32,
	  DTYPE_FLOAT16,
	  { 2, 300, 200 },
	  { 1, 128, 128 },
	  { 0, 2, 1 },
	  false },
	{ "columns", DTYPE_FLOAT16, DTYPE_FLOAT8_E4M3FN, { 2, 130, 70 }, { 1, 128, 1 }, { 1, 0, 2 }, true },
	{ "all of it", DTYPE_FLOAT32, DTYPE_BFLOAT16, { 30, 80, 90 }, { 99, 99, 99 }, { 0, 1, 2 }, false },
	{ "all of it, permuted",
	  DTYPE_BFLOAT16,
	  DTYPE_FLOAT8_E4M3FN,
	  { 70, 60, 90 },
	  { 70, 60, 90 },
	  { 2, 1, 0 },
	  true },
	{ "two passes of ragged blocks",
	  DTYPE_FLOAT32,
	  DTYPE_FLOAT32,
	  { 3, 500, 200 },
	  { 2, 400, 199 },
	  { 2, 0, 1 },
	  false },
	{ "short rows, side by side",
	  DTYPE_BFLOAT16,
	  DTYPE_FLOAT8_E4M3FN,
	  { 5, 40, 1001 },
	  { 2, 7, 3 },
	  { 0, 1, 2 },
	  true },
	{ "and transposed",
	  DTYPE_FLOAT8_E4M3FN,
	  DTYPE_FLOAT16,
	  { 5, 40, 301 },
	  { 2, 7, 16 },
	  { 0, 2, 1 },
	  false },
	{ "an edge that has more runs than a tile",
	  DTYPE_BFLOAT16,
	  DTYPE_FLOAT32,
	  { 27, 165, 39 },
	  { 16, 165, 39 },
	  { 2, 1, 0 },
	  false },
	{ "one element", DTYPE_FLOAT8_E5M2, DTYPE_FLOAT16, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 1, 2 }, false },
};

#define MOST (1 << 20)

static struct amax_buffers {
	char dst[MOST * 4], scale[MOST], inverse[MOST];
} plain_result, result;
static char source[MOST * 4];

static void transform_of(const struct moved *row, struct transform *ret)
{
	struct transform_spec spec = { .n_perm = 3, .n_before = -1, .n_after = -1 };
	struct amax_spec *amax = &spec.conversion.amax;
	int64_t shape[3], blocks[3];
	enum dtype dtype = row->power_of_two ? DTYPE_UINT8 : DTYPE_FLOAT32;
	struct error err;

	spec.conversion.is_given = amax->is_given = amax->scale.is_given = amax->inverse.is_given = true;
	amax->power_of_two = row->power_of_two;
	amax->n_block = 3;
	for (int d = 0; d < 3; d++) {
		spec.perm[d] = row->perm[d];
		shape[row->perm[d]] = row->shape[d];
		amax->block[d] = row->block[d];
		blocks[d] = (row->shape[d] + row->block[d] - 1) / row->block[d];
	}
	tensor_layout_init(&spec.dst, row->to, 3, row->shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, row->from, 3, shape, NULL, "src", &err);
	tensor_layout_init(&amax->scale.layout, dtype, 3, blocks, NULL, "scale", &err);
	tensor_layout_init(&amax->inverse.layout, DTYPE_FLOAT32, 3, blocks, NULL, "inverse", &err);
	cr_assert_eq(transform_init(ret, &spec, &err), 0, "%s: %s", row->name, err.message);
}

/* Fills the source with numbers of all magnitudes, of which few are NaN. */
static void fill_source(enum dtype dtype)
{
	uint64_t state = 3;
	const uint32_t size = dtype_size(dtype);

	for (int64_t i = 0; i < MOST; i++) {
		uint64_t bits = oracle_random(&state);

		if (bits >> 48) /* leaves one in 65536 with any bits */
			bits &= size == 4 ? 0xbfffffff : size == 2 ? 0xbfff : 0xbf;
		memcpy(source + i * size, &bits, size);
	}
}

static void run(const struct transform *t, enum cpu_isa_level level, int64_t piece_bytes,
                struct amax_buffers *ret, struct cpu_scratch *scratch)
{
	atomic_bool stopped = false;
	uint64_t changed = 0;
	struct partition partition;
	struct cpu_plan plan;
	struct task task = { .isa = cpu_isa_get(level),
		             .transform = t,
		             .plan = &plan,
		             .place = { .dst = ret->dst,
		                        .src = source,
		                        .fill = t->fill,
		                        .fill_bytes = t->element,
		                        .piece_bytes = piece_bytes,
		                        .conversion = { .conversion = &t->conversion,
		                                        .scale = source,
		                                        .bias = source,
		                                        .changed = &changed,
		                                        .amax_scale = ret->scale,
		                                        .amax_inverse = ret->inverse } } };

	memset(ret, 0xa5, sizeof(*ret));
	cpu_plan_init(&plan, t, CPU_ALIGN);
	partition_whole(&partition, &task);
	cr_assert(partition_run(&partition, &stopped, scratch));
}

/* Compares the scales of all blocks with loops over their elements. */
static void check_scales(const struct moved *row, const struct transform *t)
{
	const struct cpu_converters *c = cpu_isa_get(CPU_ISA_PLAIN)->converters;
	const struct amax *amax = &t->conversion.amax;
	_Alignas(CPU_LINE) char lane[2 * CPU_LINE];
	int64_t at[3], n = 0;

	for (at[0] = 0; at[0] < row->shape[0]; at[0] += row->block[0])
		for (at[1] = 0; at[1] < row->shape[1]; at[1] += row->block[1])
			for (at[2] = 0; at[2] < row->shape[2]; at[2] += row->block[2], n++) {
				uint32_t most = 0;
				uint8_t bytes[4];

				for (int64_t i = 0; i < row->block[0] * row->block[1] * row->block[2]; i++) {
					int64_t k[3] = { at[0] + i / row->block[2] / row->block[1],
						         at[1] + i / row->block[2] % row->block[1],
						         at[2] + i % row->block[2] };
					uint32_t bits;
					const char *from = source;

					if (k[0] >= row->shape[0] || k[1] >= row->shape[1] ||
					    k[2] >= row->shape[2])
						continue;
					for (int d = 0; d < 3; d++)
						from += k[d] * t->axis[d].src_stride;
					c->load[CPU_LANE_FLOAT32][row->from](lane, from, 1);
					memcpy(&bits, lane, sizeof(bits));
					bits &= 0x7fffffff;
					most = bits > most ? bits : most;
				}
				uint32_t size = amax_encode(amax->scale.dtype,
				                            amax_scale_of(&amax->rule, most).scale, bytes);
				cr_assert(!memcmp(plain_result.scale + n * size, bytes, size),
				          "%s: scale %lld", row->name, (long long)n);
			}
}

/* Every instruction set computes the same, in large and in small pieces. */
Test(amax_cpu, all_instruction_sets_agree, .timeout = 120)
{
	struct cpu_scratch *scratch = cpu_scratch_new();

	for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++) {
		const struct moved *row = &moved[i];
		struct transform transform;

		transform_of(row, &transform);
		fill_source(row->from);
		run(&transform, CPU_ISA_PLAIN, 1 << 20, &plain_result, scratch);
		check_scales(row, &transform);
		for (int level = 0; level < CPU_ISA_LEVELS; level++)
			for (int64_t piece = 4096; piece <= 1 << 20 && cpu_isa_get((enum cpu_isa_level)level);
			     piece *= 16) {
				run(&transform, (enum cpu_isa_level)level, piece, &result, scratch);
				cr_expect(!memcmp(&result, &plain_result, sizeof(result)),
				          "%s: %s, pieces of %lld", row->name,
				          cpu_isa_get((enum cpu_isa_level)level)->name, (long long)piece);
			}
	}
	cpu_scratch_free(scratch);
}

/* ---- Jobs ------------------------------------------------------------------------------------------- */

/* Makes a job that scales float32 [n, n] as one block, which takes two passes. */
static void scaled_init(struct work *work, int64_t n, struct engine_memory *dst, struct engine_memory *src,
                        struct engine_memory *scale)
{
	const struct moved row = { "a job",     DTYPE_FLOAT32, DTYPE_FLOAT8_E4M3FN, { 1, n, n }, { 1, n, n },
		                   { 0, 1, 2 }, false };

	work_init(work, n, false, dst, src);
	transform_of(&row, &work->transform);
	work->job.move.plan = plan_for(engine, &work->transform, 0, 0);
	work->job.move.operand[ROLE_AMAX_SCALE].memory = work->job.move.operand[ROLE_AMAX_INVERSE].memory =
	    scale;
	work->job.move.operand[ROLE_AMAX_INVERSE].offset = 64;
}

#define N 600

static struct engine_memory *dst, *src, *scale;

static struct engine_stream *open_scaled(void)
{
	open_engine(3, 0);
	dst = new_memory(N * N * 4);
	src = new_memory(N * N * 4);
	scale = new_memory(4096);
	for (int i = 0; i < N * N; i++)
		((float *)(void *)data(src))[i] = (float)(i % 897 - 448);
	return engine_stream_new(engine, &owner);
}

static void close_scaled(struct engine_stream *stream)
{
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, scale);
	close_engine();
}

static void check_scaled(const char *what)
{
	cr_expect_eq(((float *)(void *)data(scale))[0], 1, "%s: scale", what);
	cr_expect_eq(((float *)(void *)data(scale))[16], 1, "%s: inverse", what);
	cr_expect_eq((uint8_t)data(dst)[0], 0xfe, "%s: -448 is %#x", what, (uint8_t)data(dst)[0]);
	cr_expect_eq((uint8_t)data(dst)[896], 0x7e, "%s: 448", what);
}

/* A job may be cancelled between its passes, too; how far it has come is up to the threads. */
Test(amax_cpu, cancel_while_it_runs)
{
	enum { ROUNDS = 40 };
	static struct work work[3];
	struct engine_stream *stream = open_scaled();

	for (int round = 0; round < ROUNDS; round++) {
		n_done = 0;
		for (int i = 0; i < 3; i++) {
			scaled_init(&work[i], N, dst, src, scale);
			engine_submit(engine, stream, &work[i].job);
		}
		usleep((useconds_t)(round * 20));
		engine_stream_cancel(engine, stream);
		wait_done(3);
		for (int i = 0; i < 3; i++) {
			int status = work[i].job.status;

			cr_assert(status == STATUS_CANCELED ||
			              (status == 0 && (i == 0 || !work[i - 1].job.status)),
			          "round %d, job %d: %d", round, i, status);
			cr_assert(status || work[i].job.move.status == 0, "round %d, job %d", round, i);
		}
	}
	n_done = 0;
	scaled_init(&work[0], N, dst, src, scale);
	engine_submit(engine, stream, &work[0].job);
	wait_done(1);
	cr_expect_eq(work[0].job.status, 0);
	check_scaled("after them");
	close_scaled(stream);
}

/* A move of a batch fails in either pass, or at the memory of its scale. The next move is as it would be
 * without it. */
Test(amax_cpu, memory_that_fails)
{
	for (int which = 0; which < 3; which++) {
		static const char *const names[] = { "dst", "src", "scale" };
		static struct work work[2];
		struct engine_stream *stream = open_scaled();
		struct engine_memory *bad = new_memory(N * N * 4);
		struct engine_move moves[2];
		struct engine_job job;

		n_done = 0;
		break_memory(bad, which == 2 ? 0 : N * N / 4096 / 2 * 4096);
		scaled_init(&work[0], N, which == 0 ? bad : new_memory(N * N * 4), which == 1 ? bad : src,
		            which == 2 ? bad : new_memory(4096));
		scaled_init(&work[1], N, dst, src, scale);
		moves[0] = work[0].job.move;
		moves[1] = work[1].job.move;
		job = (struct engine_job){ .moves = moves, .n_moves = 2, .on_done = work[0].job.on_done };
		engine_submit(engine, stream, &job);
		wait_done(1);
		cr_expect_eq(moves[0].status, STATUS_DEVICE, "%s: %d", names[which], moves[0].status);
		cr_expect_eq(moves[1].status, 0, "%s: %d", names[which], moves[1].status);
		check_scaled(names[which]);
		if (moves[0].dst != bad)
			engine_unmap(engine, moves[0].dst);
		if (moves[0].operand[ROLE_AMAX_SCALE].memory != bad)
			engine_unmap(engine, moves[0].operand[ROLE_AMAX_SCALE].memory);
		engine_unmap(engine, bad);
		close_scaled(stream);
	}
}
