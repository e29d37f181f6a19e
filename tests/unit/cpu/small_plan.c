/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what is kept with a layout against the oracle: which transforms have a small plan, and what kept
 * plans and partitioners write after others have been kept. */
#include "kernels/cpu/run/small.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle.h"

#define BYTES (1 << 17)
#define ROOM  64

static char *dst, *wanted;
static char *src;
static struct cpu_scratch *scratch;

static void open_all(void)
{
	dst = malloc(BYTES);
	wanted = malloc(BYTES);
	src = malloc(BYTES);
	scratch = cpu_scratch_new();
	cr_assert(dst && wanted && src && scratch);
	for (size_t i = 0; i < BYTES; i++)
		src[i] = (char)(i * 2654435761u >> 13);
}

static void close_all(void)
{
	cpu_scratch_free(scratch);
	free(src);
	free(wanted);
	free(dst);
}

/* A transform whose plan may be kept, with the plan. */
struct small_case {
	struct transform_spec spec;
	struct transform transform;
	struct cpu_plan plan;
	struct small_memo memo;
};

static void plan_case(struct small_case *c)
{
	struct error err;
	cr_assert_eq(transform_init(&c->transform, &c->spec, &err), 0, "%s", err.message);
	cpu_plan_init(&c->plan, &c->transform, CPU_ALIGN);
}

static struct task task_of(const struct small_case *c, const struct cpu_isa *isa)
{
	return (struct task){
		.isa = isa,
		.transform = &c->transform,
		.plan = &c->plan,
		.place = { .dst = dst,
		           .src = src,
		           .fill = c->transform.fill,
		           .piece_bytes = 1 << 20,
		           .tiled_bytes = INT64_MAX },
		.cold_ns = UINT64_MAX,
	};
}

static struct small_plan *find(struct small_case *c, const struct cpu_isa *isa)
{
	const struct task task = task_of(c, isa);
	return small_plan_find(&task, &c->memo, scratch);
}

/* Runs the plan between these places and compares the whole destination. */
static void check(const char *name, const struct small_case *c, struct small_plan *plan, char *to,
                  const char *from)
{
	memset(dst, 0xa5, BYTES);
	memset(wanted, 0xa5, BYTES);
	oracle_run(&c->spec, (uint8_t *)wanted + (to - dst), (const uint8_t *)from);
	small_plan_run(plan, c->plan.n_subregions, to, from, NULL, scratch);
	cr_assert(!memcmp(dst, wanted, BYTES), "%s: other bytes", name);
}

/* ---- Each way ---------------------------------------------------------------------------------------- */

struct small_row {
	const char *name;
	enum dtype dtype;
	int rank;
	int64_t shape[5], perm[5], before[5], after[5];
	enum pad_mode mode;
	bool is_kept;
};

static const struct small_row rows[] = {
	{ "element by element",
	  DTYPE_FLOAT32,
	  4,
	  { 60, 2, 3, 2 },
	  { 0, 2, 3, 1 },
	  { 0 },
	  { 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "bytes by tiles",
	  DTYPE_UINT8,
	  4,
	  { 103, 2, 13, 2 },
	  { 0, 2, 3, 1 },
	  { 0 },
	  { 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "squares", DTYPE_FLOAT16, 3, { 61, 13, 20 }, { 0, 2, 1 }, { 0 }, { 0 }, PAD_MODE_CONSTANT, true },
	{ "squares by tiles",
	  DTYPE_FLOAT32,
	  3,
	  { 250, 3, 3 },
	  { 0, 2, 1 },
	  { 0 },
	  { 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "runs of 3 bytes",
	  DTYPE_UINT8,
	  4,
	  { 40, 20, 5, 3 },
	  { 2, 0, 1, 3 },
	  { 0 },
	  { 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "runs of 7 bytes",
	  DTYPE_UINT8,
	  3,
	  { 40, 90, 7 },
	  { 1, 0, 2 },
	  { 0 },
	  { 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "rows", DTYPE_FLOAT32, 3, { 9, 20, 40 }, { 1, 0, 2 }, { 0 }, { 0 }, PAD_MODE_CONSTANT, true },
	{ "a transpose", DTYPE_FLOAT32, 2, { 64, 96 }, { 1, 0 }, { 0 }, { 0 }, PAD_MODE_CONSTANT, true },
	{ "a crop of short rows",
	  DTYPE_UINT8,
	  2,
	  { 900, 7 },
	  { 0, 1 },
	  { 0 },
	  { 0, -2 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "a border on each side",
	  DTYPE_UINT8,
	  3,
	  { 12, 50, 9 },
	  { 0, 2, 1 },
	  { 0, 1, 3 },
	  { 2, 1, 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "reflected, permuted",
	  DTYPE_FLOAT16,
	  3,
	  { 12, 50, 9 },
	  { 2, 0, 1 },
	  { 0, 1, 0 },
	  { 2, 0, 0 },
	  PAD_MODE_REFLECT,
	  true },
	{ "nothing but fill",
	  DTYPE_UINT8,
	  2,
	  { 0, 50 },
	  { 0, 1 },
	  { 3, 0 },
	  { 0, 0 },
	  PAD_MODE_CONSTANT,
	  true },
	{ "too many subregions",
	  DTYPE_UINT8,
	  4,
	  { 5, 5, 5, 5 },
	  { 0, 1, 2, 3 },
	  { 1, 1, 1, 1 },
	  { 1, 1, 1, 1 },
	  PAD_MODE_REFLECT,
	  false },
};

static void make_case(const struct small_row *row, struct small_case *ret)
{
	struct error err;
	int64_t shape[5];
	*ret = (struct small_case){ 0 };
	struct transform_spec *spec = &ret->spec;
	spec->n_perm = spec->n_before = spec->n_after = row->rank;
	spec->mode = row->mode;
	for (int d = 0; d < row->rank; d++) {
		spec->perm[d] = row->perm[d];
		spec->before[d] = row->before[d];
		spec->after[d] = row->after[d];
		shape[d] = row->shape[row->perm[d]] + row->before[d] + row->after[d];
	}
	cr_assert_eq(tensor_layout_init(&spec->src, row->dtype, row->rank, row->shape, NULL, "src", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec->dst, row->dtype, row->rank, shape, NULL, "dst", &err), 0);
	plan_case(ret);
}

Test(small_plan, rows)
{
	open_all();
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			const struct cpu_isa *isa = cpu_isa_get((enum cpu_isa_level)level);
			struct small_case c;
			if (!isa)
				continue;
			make_case(&rows[i], &c);
			cr_assert_null(find(&c, isa), "%s: kept when it was first seen", rows[i].name);
			struct small_plan *plan = find(&c, isa);
			cr_assert_eq(plan != NULL, rows[i].is_kept, "%s", rows[i].name);
			if (!plan)
				continue;
			check(rows[i].name, &c, plan, dst + ROOM, src);
			cr_assert_eq(find(&c, isa), plan, "%s: forgotten", rows[i].name);
			check(rows[i].name, &c, plan, dst + 5 * ROOM, src + 3 * ROOM);
		}
	close_all();
}

/* ---- What plans depend on ---------------------------------------------------------------------------- */

/* A plan must not point into the job that it was made for, which is gone when the plan is used again. */
Test(small_plan, each_value_has_its_plan)
{
	open_all();
	struct small_case c[2];
	struct small_plan *plan[2] = { 0 };
	for (int i = 0; i < 2; i++) {
		make_case(&rows[9], &c[i]);
		c[i].spec.value = (struct scalar){ .u = (uint64_t)(3 + i) };
		plan_case(&c[i]);
		find(&c[i], cpu_isa_best());
		plan[i] = find(&c[i], cpu_isa_best());
		cr_assert(plan[i]);
		memset(c[i].transform.fill, 0xee, sizeof(c[i].transform.fill));
	}
	cr_assert_neq(plan[0], plan[1]);
	for (int i = 0; i < 2; i++)
		check("a value", &c[i], plan[i], dst + ROOM, src);
	close_all();
}

/* ---- How a transform was divided --------------------------------------------------------------------- */

/* Bytes that may still be kept of how transforms were divided. */
static atomic_llong room;

/* Divides the transform for the n-th time, at other places each time. */
static void divide(struct kept_plans *kept, const struct small_row *row, unsigned n)
{
	static struct partition partition;
	struct partitioner partitioner;
	atomic_bool stopped = false;
	struct small_case c;
	make_case(row, &c);
	struct task task = task_of(&c, cpu_isa_best());
	task.place.dst += ROOM * (1 + n);
	task.place.src += ROOM * n;
	task.place.fill = c.transform.fill;
	task.place.piece_bytes = n / 2 % 2 ? 1024 : 2048;
	task.place.tiled_bytes = 0;
	task.place.kept = kept;
	memset(dst, 0xa5, BYTES);
	memset(wanted, 0xa5, BYTES);
	oracle_run(&c.spec, (uint8_t *)wanted + ROOM * (1 + n), (const uint8_t *)task.place.src);
	partitioner_init(&partitioner, &task, 2);
	while (partitioner_left(&partitioner, 1)) {
		partitioner_next(&partitioner, &partition);
		cr_assert(partition_run(&partition, &stopped, scratch));
	}
	cr_assert(!memcmp(dst, wanted, BYTES), "%s, time %u: other bytes", row->name, n);
	memset(&c, 0xee, sizeof(c)); /* nothing that is kept may point here */
}

/* Plans for either piece size are found again. */
Test(small_plan, partitioners)
{
	open_all();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kept_plans kept = { .room = &room };
		unsigned planned[2];
		atomic_store(&room, CPU_KEPT_BYTES);
		for (unsigned n = 0; n < 4; n++)
			divide(&kept, &rows[i], n);
		planned[0] = atomic_load(&kept.planned);
		for (unsigned n = 4; n < 8; n++)
			divide(&kept, &rows[i], n);
		planned[1] = atomic_load(&kept.planned);
		cr_expect_gt(planned[0], 0, "%s", rows[i].name);
		cr_expect_eq(planned[1], planned[0], "%s: %u, then %u", rows[i].name, planned[0], planned[1]);
		kept_forget(&kept);
		cr_expect_eq(atomic_load(&room), CPU_KEPT_BYTES, "%s", rows[i].name);
	}
	close_all();
}

/* Without room, everything is planned anew. */
Test(small_plan, partitioners_without_room)
{
	open_all();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kept_plans kept = { .room = &room };
		atomic_store(&room, 64);
		divide(&kept, &rows[i], 0);
		const unsigned planned = atomic_load(&kept.planned);
		divide(&kept, &rows[i], 1);
		cr_expect_gt(atomic_load(&kept.planned), planned, "%s", rows[i].name);
		cr_expect_eq(atomic_load(&room), 64, "%s", rows[i].name);
		kept_forget(&kept);
	}
	close_all();
}

/* A thread that divides one layout again and again. */
struct divider {
	pthread_t thread;
	struct kept_plans *kept;
	const struct small_case *c;
	char *dst, *wanted;
	struct cpu_scratch *scratch;
	unsigned wrong;
};

#define DIVIDER_BYTES  (BYTES / 4)
#define DIVIDER_ROUNDS 500

static void *divide_over_and_over(void *arg)
{
	struct divider *own = arg;
	struct partition *partition = malloc(sizeof *partition);
	const atomic_bool stopped = false;

	for (unsigned n = 0; partition && n < DIVIDER_ROUNDS; n++) {
		const unsigned at = ROOM * (n % 3);
		struct task task = task_of(own->c, cpu_isa_best());
		struct partitioner partitioner;

		task.place.dst = own->dst + at;
		task.place.piece_bytes = 1024 + 256 * (n / 2 % 16);
		task.place.kept = own->kept;
		memset(own->dst, 0xa5, DIVIDER_BYTES);
		memset(own->wanted, 0xa5, DIVIDER_BYTES);
		oracle_run(&own->c->spec, (uint8_t *)own->wanted + at, (const uint8_t *)src);
		partitioner_init(&partitioner, &task, 2);
		while (partitioner_left(&partitioner, 1)) {
			partitioner_next(&partitioner, partition);
			own->wrong += !partition_run(partition, &stopped, own->scratch);
		}
		own->wrong += memcmp(own->dst, own->wanted, DIVIDER_BYTES) != 0;
	}
	own->wrong += !partition;
	free(partition);
	return NULL;
}

/* Threads of several crews may divide one layout at once. */
Test(small_plan, plans_of_two_threads)
{
	struct divider dividers[2];
	struct kept_plans kept = { .room = &room };
	struct small_case c;

	open_all();
	atomic_store(&room, CPU_KEPT_BYTES);
	make_case(&rows[7], &c);
	for (int i = 0; i < 2; i++) {
		struct divider *own = &dividers[i];

		*own = (struct divider){ .kept = &kept,
			                 .c = &c,
			                 .dst = dst + i * DIVIDER_BYTES,
			                 .wanted = wanted + i * DIVIDER_BYTES,
			                 .scratch = cpu_scratch_new() };
		cr_assert(own->scratch);
		cr_assert_eq(pthread_create(&own->thread, NULL, divide_over_and_over, own), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(dividers[i].thread, NULL);
		cr_expect_eq(dividers[i].wrong, 0, "thread %d: %u", i, dividers[i].wrong);
		cpu_scratch_free(dividers[i].scratch);
	}
	cr_expect_gt(atomic_load(&kept.bytes), 0);
	kept_forget(&kept);
	cr_expect_eq(atomic_load(&room), CPU_KEPT_BYTES);
	close_all();
}

/* ---- More than there is room for --------------------------------------------------------------------- */

#define MANY 300

/* Random transforms take turns, and a plan that is found is the transform's own. */
Test(small_plan, many)
{
	static struct small_case all[MANY + 1];
	open_all();
	unsigned kept = 0;
	for (unsigned round = 0; round < 8; round++)
		for (uint64_t seed = 1; seed <= MANY; seed++) {
			struct oracle_case c;
			struct small_case *own = &all[seed];
			char text[1024];
			oracle_random_case(seed, &c);
			own->spec = c.spec;
			plan_case(own);
			struct small_plan *plan = find(own, cpu_isa_best());
			if (!plan)
				continue;
			kept++;
			cr_assert(oracle_case_prepare(&c));
			small_plan_run(plan, own->plan.n_subregions, (char *)oracle_dst(&c) + c.dst_offset,
			               (const char *)oracle_src(&c) + c.src_offset, NULL, scratch);
			cr_expect(oracle_case_check(&c, text, sizeof(text)), "%s", text);
			oracle_case_free(&c);
		}
	cr_assert_gt(kept, MANY);
	close_all();
}

/* All plans stay if there is room for them, however long ago they were first seen. */
Test(small_plan, few_stay)
{
	struct small_case c[6];
	open_all();
	for (size_t i = 0; i < 6; i++)
		make_case(&rows[i], &c[i]);
	for (unsigned round = 0; round < 5; round++)
		for (size_t i = 0; i < 6; i++)
			cr_expect_eq(find(&c[i], cpu_isa_best()) != NULL, round > 0, "%s, round %u",
			             rows[i].name, round);
	close_all();
}
