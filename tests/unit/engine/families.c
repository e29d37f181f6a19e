/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which kernel family an engine moves a transform by: chosen transforms, lists of blocks of the same
 * transforms, and how often each family occurs among random transforms. Other tests compare the bytes.
 * The tables record what the engines choose at present. A change that teaches an engine a better way also
 * changes its rows. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/prepared.h"

TestSuite(families, .timeout = 120);

enum { BYTES = 1 << 20 };

/* A transform and the families that move it, alone and as each block of a list. The shape of the destination
 * follows from the other fields. */
static const struct named {
	const char *name;
	const char *cpu, *cuda, *cuda_list;
	enum dtype dtype;
	int rank;
	int64_t shape[5];
	int64_t perm[5];
	int64_t before[5], after[5];
	bool is_strided; /* the source has the strides in src_strides; false: it is contiguous */
	int64_t src_strides[5];
	bool has_gaps; /* the destination has the strides in dst_strides; false: it is contiguous */
	int64_t dst_strides[5];
	enum pad_mode mode;
	uint64_t dst_offset, src_offset;
} rows[] = {
#define FAMILY(name, cpu, cuda, cuda_list, dtype, rank, ...) \
	{ name, #cpu, #cuda, #cuda_list, DTYPE_##dtype, rank, __VA_ARGS__ },
#include "families.def"
#undef FAMILY
};

#define ROWS (sizeof rows / sizeof *rows)

static void spec_of(const struct named *named, struct transform_spec *ret)
{
	const bool is_given = named->perm[0] || named->perm[1];
	int64_t made[5];
	struct error err;

	*ret = (struct transform_spec){ .n_perm = is_given ? named->rank : -1,
		                        .n_before = named->rank,
		                        .n_after = named->rank,
		                        .mode = named->mode };
	for (int d = 0; d < named->rank; d++) {
		ret->perm[d] = named->perm[d];
		ret->before[d] = named->before[d];
		ret->after[d] = named->after[d];
		made[d] = named->shape[is_given ? named->perm[d] : d] + named->before[d] + named->after[d];
	}
	tensor_layout_init(&ret->src, named->dtype, named->rank, named->shape,
	                   named->is_strided ? named->src_strides : NULL, "src", &err);
	tensor_layout_init(&ret->dst, named->dtype, named->rank, made,
	                   named->has_gaps ? named->dst_strides : NULL, "dst", &err);
}

static struct engine_stream *stream;
static struct memory dst, src;
static unsigned char *expected;

static void open_all(enum rig_engine which)
{
	uint64_t state = 1;

	rig_open(which, "");
	stream = engine_stream_new(engine, &owner);
	dst = memory_new(memory_kind(), BYTES);
	src = memory_new(memory_kind(), BYTES);
	expected = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i += 8) {
		const uint64_t word = oracle_random(&state);

		memcpy(src.bytes + i, &word, 8);
	}
}

static void close_all(void)
{
	engine_stream_free(engine, stream);
	memory_free(&dst);
	memory_free(&src);
	free(expected);
	rig_close();
}

static const char *path_of(const struct work *work)
{
	const char *path;
	struct error err;

	cr_assert_eq(prepared_path(engine, &work->job.move, &path, &err), 0, "%s: %s", rig_text, err.message);
	return path;
}

/* Explaining a list of blocks would give the family for moving its blocks one by one, so only other jobs are
 * explained. */
static void expect(const struct named *named, struct work *work, const char *what, const char *family)
{
	if (!work->job.blocks)
		cr_expect_str_eq(path_of(work), family, "%s: %s, %s: %s", rig_text, named->name, what,
		                 path_of(work));
	cr_assert_eq(run(stream, work), 0, "%s: %s, %s: %d", rig_text, named->name, what, work->job.status);
	cr_expect_str_eq(job_path(&work->job), family, "%s: %s, %s: %s", rig_text, named->name, what,
	                 job_path(&work->job));
	for (size_t i = 0; memcmp(dst.bytes, expected, BYTES) != 0 && i < BYTES; i++)
		cr_assert_eq(dst.bytes[i], expected[i], "%s: %s, %s: byte %zu", rig_text, named->name, what,
		             i);
}

ParameterizedTestParameters(families, chosen)
{
	return RIG_ROWS(1, NULL);
}

/* The blocks of a list have gaps between them. The list names the last block first and leaves one out. */
ParameterizedTest(struct row *row, families, chosen)
{
	enum { STEP = BYTES / 8 };
	static const int32_t index[] = { 3, 0, -1, 2 };
	const bool is_cuda = rig_is_cuda(row->engine);
	static struct work work;

	open_all(row->engine);
	for (size_t r = 0; r < ROWS; r++) {
		const struct named *named = &rows[r];
		struct engine_blocks blocks = { .n = 4,
			                        .layers = 1,
			                        .index_bytes = 4,
			                        .limit = 4,
			                        .index = index,
			                        .dst.step = STEP,
			                        .src.step = STEP };
		struct transform_spec spec;

		spec_of(named, &spec);
		memset(dst.bytes, 0xa5, BYTES);
		memset(expected, 0xa5, BYTES);
		oracle_run(&spec, expected + named->dst_offset, src.bytes + named->src_offset);
		work_init(&work, &spec, NULL, &dst, named->dst_offset, &src, named->src_offset);
		expect(named, &work, "alone", is_cuda ? named->cuda : named->cpu);
		for (uint64_t i = 0; i < 4; i++)
			if (index[i] >= 0)
				oracle_run(&spec, expected + named->dst_offset + i * STEP,
				           src.bytes + named->src_offset + (uint64_t)index[i] * STEP);
		work_init(&work, &spec, &blocks, &dst, named->dst_offset, &src, named->src_offset);
		expect(named, &work, "in a list", is_cuda ? named->cuda_list : named->cpu);
	}
	close_all();
}

/* ---- At random ---------------------------------------------------------------------------------------- */

enum { SEEDS = 1000, FAMILIES = 5 };

static const struct {
	const char *family;
	int cpu, cuda;
} shares[FAMILIES] = {
	{ "memcpy", 175, 139 },  { "tile_copy", 102, 307 }, { "tile_transpose", 200, 102 },
	{ "strided", 495, 424 }, { "fill", 28, 28 },
};

ParameterizedTestParameters(families, of_random_transforms)
{
	return RIG_ROWS(1, NULL);
}

/* Counts how many transforms of the first seeds each family moves; a row has the expected counts. */
ParameterizedTest(struct row *row, families, of_random_transforms)
{
	int has[FAMILIES] = { 0 };
	struct work work;

	open_all(row->engine);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct oracle_case c;
		int i = 0;

		oracle_random_case(seed, &c);
		work_init(&work, &c.spec, NULL, &dst, c.dst_offset, &src, c.src_offset);
		while (strcmp(path_of(&work), shares[i].family) != 0)
			cr_assert_lt(++i, FAMILIES, "%s", path_of(&work));
		has[i]++;
		works_free();
	}
	for (int i = 0; i < FAMILIES; i++)
		cr_expect_eq(has[i], rig_is_cuda(row->engine) ? shares[i].cuda : shares[i].cpu, "%s: %s: %d",
		             rig_text, shares[i].family, has[i]);
	close_all();
}
