/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a layout that comes again is not planned again: it is not divided again, and its tiles are not
 * planned again, whichever thread moves it and between whichever places. */
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/run/tuning.h"
#include "kernels/cpu/tile/tile.h"
#include "rig.h"
#include "tests/support/plans.h"

#define APART   4096  /* bytes between the places of one run and those of the next */
#define SCALES  16384 /* greatest size of the scales of all blocks, in bytes */
#define ROUNDS  6
#define WARM    3 /* rounds after which nothing is planned any more */
#define INLINE  (128 << 10)
#define THREADS 3
#define MOST    24 /* moves of a batch, or blocks of a list */

struct repeat_row {
	char name[48];
	enum dtype from, to;
	int rank;
	int64_t shape[3], perm[3]; /* shape of the source */
	int64_t block[3];          /* amax block of the destination; zeros: no amax */
	int64_t pad[3];            /* elements before and after each dimension of the destination */
	enum pad_mode mode;
	bool is_small, is_streamed;
	uint32_t moves, blocks; /* both 0: the job is a single move */
};

#define BYTE  .from = DTYPE_UINT8, .to = DTYPE_UINT8
#define FLOAT .from = DTYPE_FLOAT32, .to = DTYPE_FLOAT32
#define HALF  .from = DTYPE_FLOAT32, .to = DTYPE_FLOAT16
#define FP8   .from = DTYPE_FLOAT32, .to = DTYPE_FLOAT8_E4M3FN
#define TILES .rank = 3, .shape = { 2000, 7, 20 }, .perm = { 1, 0, 2 }

static struct repeat_row rows[] = {
	{ "tiles", BYTE, TILES },
	{ "a microkernel", FLOAT, .rank = 2, .shape = { 300, 500 }, .perm = { 1, 0 } },
	{ "a conversion", HALF, .rank = 2, .shape = { 300, 500 }, .perm = { 0, 1 } },
	{ "a conversion by tiles", .from = DTYPE_UINT8, .to = DTYPE_FLOAT32, .rank = 2, .shape = { 300, 500 },
	  .perm = { 1, 0 } },
	{ "scales", FP8, .rank = 2, .shape = { 300, 512 }, .perm = { 0, 1 }, .block = { 1, 128 } },
	{ "scales by tiles", FP8, .rank = 2, .shape = { 512, 300 }, .perm = { 1, 0 }, .block = { 1, 128 } },
	{ "scales of large blocks", FP8, .rank = 2, .shape = { 512, 400 }, .perm = { 0, 1 },
	  .block = { 512, 300 } },
	{ "scales of large blocks by tiles", FP8, .rank = 2, .shape = { 512, 400 }, .perm = { 1, 0 },
	  .block = { 300, 512 } },
	{ "scales of groups of large blocks", FP8, .rank = 2, .shape = { 1300, 4096 }, .perm = { 0, 1 },
	  .block = { 300, 4096 } },

	{ "a border", FLOAT, .rank = 2, .shape = { 300, 500 }, .perm = { 0, 1 }, .pad = { 9, 700 } },
	{ "a border around tiles", BYTE, TILES, .pad = { 1, 900, 0 } },
	{ "a border that wraps", FLOAT, .rank = 2, .shape = { 90, 200 }, .perm = { 0, 1 }, .pad = { 80, 700 },
	  .mode = PAD_MODE_WRAP },
	{ "a converted border", HALF, .rank = 2, .shape = { 90, 700 }, .perm = { 0, 1 }, .pad = { 80, 600 },
	  .mode = PAD_MODE_REFLECT },
	{ "short borders", BYTE, .rank = 3, .shape = { 30, 200, 50 }, .perm = { 0, 1, 2 },
	  .pad = { 0, 1, 1 } },
	{ "short borders past the cache", BYTE, .rank = 3, .shape = { 30, 200, 50 }, .perm = { 0, 1, 2 },
	  .pad = { 0, 1, 1 }, .is_streamed = true },
	{ "scratch blocks", FLOAT, .rank = 3, .shape = { 63, 56, 56 }, .perm = { 0, 1, 2 },
	  .pad = { 0, 1, 1 }, .is_streamed = true },
	{ "small borders", FLOAT, .rank = 3, .shape = { 40, 2, 3 }, .perm = { 0, 1, 2 },
	  .pad = { 30, 1, 1 } },

	{ "small tiles", BYTE, .rank = 3, .shape = { 40, 90, 7 }, .perm = { 1, 0, 2 }, .is_small = true },
	{ "a small conversion", HALF, .rank = 2, .shape = { 30, 50 }, .perm = { 0, 1 }, .is_small = true },
	{ "a small one by tiles", .from = DTYPE_UINT8, .to = DTYPE_FLOAT32, .rank = 2, .shape = { 30, 50 },
	  .perm = { 1, 0 }, .is_small = true },
	{ "small scales", FP8, .rank = 2, .shape = { 30, 64 }, .perm = { 0, 1 }, .block = { 1, 32 },
	  .is_small = true },
	{ "a small border that wraps", FLOAT, .rank = 2, .shape = { 9, 5 }, .perm = { 1, 0 },
	  .pad = { 14, 20 }, .mode = PAD_MODE_WRAP, .is_small = true },

	{ "a batch", FLOAT, .rank = 2, .shape = { 20, 20 }, .perm = { 1, 0 }, .moves = MOST },
	{ "a batch of conversions", HALF, .rank = 2, .shape = { 20, 20 }, .perm = { 1, 0 }, .moves = MOST },
	{ "a batch of scales", FP8, .rank = 2, .shape = { 4, 64 }, .perm = { 0, 1 }, .block = { 1, 32 },
	  .moves = MOST },
	{ "a batch of borders", FLOAT, .rank = 2, .shape = { 7, 9 }, .perm = { 1, 0 }, .pad = { 1, 2 },
	  .moves = MOST },
	{ "a batch by tiles", BYTE, .rank = 3, .shape = { 300, 7, 20 }, .perm = { 1, 0, 2 }, .moves = 3 },
	{ "a batch of large blocks", FP8, .rank = 2, .shape = { 512, 400 }, .perm = { 0, 1 },
	  .block = { 512, 300 }, .moves = 3 },
	{ "a small batch", FLOAT, .rank = 2, .shape = { 10, 10 }, .perm = { 1, 0 }, .moves = MOST,
	  .is_small = true },

	{ "a list", FLOAT, .rank = 2, .shape = { 20, 20 }, .perm = { 1, 0 }, .blocks = MOST },
	{ "a list of conversions", HALF, .rank = 2, .shape = { 20, 20 }, .perm = { 1, 0 }, .blocks = MOST },
	{ "a list of borders", FLOAT, .rank = 2, .shape = { 7, 9 }, .perm = { 1, 0 }, .pad = { 1, 2 },
	  .blocks = MOST },
	{ "a list by tiles", BYTE, .rank = 3, .shape = { 300, 7, 20 }, .perm = { 1, 0, 2 }, .blocks = 3 },
	{ "a small list", FLOAT, .rank = 2, .shape = { 10, 10 }, .perm = { 1, 0 }, .blocks = MOST,
	  .is_small = true },
};

ParameterizedTestParameters(repeats, plan_nothing)
{
	return cr_make_param_array(struct repeat_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void spec_of(const struct repeat_row *row, struct transform_spec *ret)
{
	struct amax_spec *amax = &ret->conversion.amax;
	int64_t shape[3], blocks[3];
	struct error err;
	*ret = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	for (int d = 0; d < row->rank; d++) {
		ret->perm[d] = row->perm[d];
		ret->before[d] = ret->after[d] = row->pad[d];
		shape[d] = row->shape[row->perm[d]] + 2 * row->pad[d];
		blocks[d] = row->block[d] ? (shape[d] + row->block[d] - 1) / row->block[d] : 0;
	}
	tensor_layout_init(&ret->dst, row->to, row->rank, shape, NULL, "dst", &err);
	tensor_layout_init(&ret->src, row->from, row->rank, row->shape, NULL, "src", &err);
	ret->conversion.is_given = row->from != row->to;
	ret->conversion.scale.kind =
	    ret->conversion.is_given && !row->block[0] ? OPERAND_NUMBER : OPERAND_NONE;
	if (!row->block[0])
		return;
	amax->is_given = amax->scale.is_given = true;
	amax->least = 1e-12;
	amax->n_block = row->rank;
	for (int d = 0; d < row->rank; d++)
		amax->block[d] = row->block[d];
	tensor_layout_init(&amax->scale.layout, DTYPE_FLOAT32, row->rank, blocks, NULL, "scales", &err);
}

/* A job that is run between other places each time. Its moves, or blocks, lie one after the other. */
struct repeat {
	const struct repeat_row *row;
	struct transform transform;
	struct work work;
	struct engine_move moves[MOST];
	struct engine_blocks blocks;
	int32_t index[MOST];
	struct engine_memory *dst, *src, *scales;
	uint32_t n;
	uint64_t dst_bytes, src_bytes; /* bytes of one move */
	uint64_t room;                 /* bytes that the places of all rounds take */
	uint32_t n_scales;             /* scales of one move */
};

static void repeat_init(struct repeat *repeat, const struct repeat_row *row)
{
	struct transform_spec spec;
	struct error err;

	*repeat = (struct repeat){ .row = row, .n = row->moves ? row->moves : row->blocks ? row->blocks : 1 };
	spec_of(row, &spec);
	cr_assert_eq(transform_init(&repeat->transform, &spec, &err), 0, "%s: %s", row->name, err.message);
	const struct transform *t = &repeat->transform;
	repeat->n_scales = row->block[0] ? 1 : 0;
	for (int d = 0; d < row->rank && row->block[0]; d++)
		repeat->n_scales *= (uint32_t)spec.conversion.amax.scale.layout.shape[d];
	repeat->dst_bytes = (uint64_t)(t->count * t->element);
	repeat->src_bytes = (uint64_t)t->src_element;
	for (int d = 0; d < row->rank; d++)
		repeat->src_bytes *= (uint64_t)row->shape[d];
	const uint64_t larger = repeat->dst_bytes > repeat->src_bytes ? repeat->dst_bytes : repeat->src_bytes;
	repeat->room = (repeat->n * larger + (ROUNDS + 1) * APART) / APART * APART;
	repeat->dst = new_memory(2 * repeat->room);
	repeat->src = new_memory(2 * repeat->room);
	repeat->scales = new_memory(2 * ROUNDS * APART + MOST * SCALES);
	work_init(&repeat->work, 4, false, repeat->dst, repeat->src); /* sets what is not part of the move */
	repeat->work.job.moves = row->moves ? repeat->moves : NULL;
	repeat->work.job.n_moves = row->moves;
	repeat->work.job.blocks = row->blocks ? &repeat->blocks : NULL;
	for (uint32_t i = 0; i < repeat->n; i++)
		repeat->index[i] = (int32_t)(repeat->n - 1 - i);
	repeat->blocks = (struct engine_blocks){ .n = row->blocks,
		                                 .layers = 1,
		                                 .index_bytes = 4,
		                                 .index = repeat->index,
		                                 .limit = row->blocks,
		                                 .dst = { .step = repeat->dst_bytes },
		                                 .src = { .step = repeat->src_bytes } };
}

static void repeat_deinit(struct repeat *repeat)
{
	engine_unmap(engine, repeat->dst);
	engine_unmap(engine, repeat->src);
	engine_unmap(engine, repeat->scales);
}

/* Runs the job with this plan, dst, src and scales being the offsets of its places in bytes. */
static void repeat_run(struct repeat *repeat, struct engine_stream *stream, struct engine_plan *plan,
                       uint64_t dst, uint64_t src, uint64_t scales)
{
	struct engine_job *job = &repeat->work.job;

	for (uint32_t i = 0; i < repeat->n; i++) {
		struct engine_move *move = repeat->row->moves ? &repeat->moves[i] : &job->move;

		if (repeat->row->blocks && i > 0)
			break;
		*move = (struct engine_move){ .transform = &repeat->transform,
			                      .plan = plan,
			                      .dst = repeat->dst,
			                      .src = repeat->src,
			                      .dst_offset = dst + i * repeat->dst_bytes,
			                      .src_offset = src + i * repeat->src_bytes,
			                      .operand[ROLE_SCALE].number = 3 };
		if (repeat->row->block[0]) {
			move->operand[ROLE_AMAX_SCALE].memory = repeat->scales;
			move->operand[ROLE_AMAX_SCALE].offset = scales + i * SCALES;
		}
	}
	engine_submit(engine, stream, job);
	n_done = 0;
	wait_done(1);
	cr_assert_eq(job->status, 0, "%s: %d", repeat->row->name, job->status);
	for (uint32_t i = 0; i < repeat->row->moves; i++)
		cr_assert_eq(repeat->moves[i].status, 0, "%s, move %u: %d", repeat->row->name, i,
		             repeat->moves[i].status);
}

static void open_for(const struct repeat_row *row)
{
	struct cpu_tuning tuning = cpu_tuning_get();

	if (row->is_streamed)
		tuning.stream_bytes = 0;
	cpu_tuning_force(&tuning);
	open_engine(THREADS, row->is_small ? INLINE : 0);
}

ParameterizedTest(struct repeat_row *row, repeats, plan_nothing)
{
	static struct repeat repeat;
	unsigned planned = 0;

	open_for(row);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	repeat_init(&repeat, row);
	struct engine_plan *plan = plan_for(engine, &repeat.transform, 0, 0);
	const atomic_uint *count = &cpu_plan(plan)->kept.planned;
	/* The source lies behind the places that the rounds use. */
	const uint64_t bytes = repeat.n * repeat.src_bytes, first = repeat.room;
	for (uint64_t i = 0; i < bytes; i++)
		data(repeat.src)[first + i] = (char)(i * i % 61);
	for (unsigned round = 0; round < ROUNDS; round++) {
		const uint64_t at = round * APART;

		memset(data(repeat.dst), 0xa5, repeat.room);
		memset(data(repeat.scales), 0xa5, repeat.scales->size);
		memcpy(data(repeat.src) + at, data(repeat.src) + first, bytes);
		repeat_run(&repeat, stream, plan, at, at, at);
		if (round < WARM) {
			planned = atomic_load(count);
			cr_assert_gt(planned, 0, "%s: nothing was planned", row->name);
		}
		cr_assert_eq(atomic_load(count), planned, "%s, round %u: planned %u times, then %u",
		             row->name, round, planned, atomic_load(count));
	}
	/* A new plan writes the same bytes as the last round did. */
	const uint64_t last = (ROUNDS - 1) * APART;
	static char scales[MOST * SCALES];
	memcpy(scales, data(repeat.scales) + last, sizeof(scales));
	for (uint32_t i = 0; i < repeat.n_scales; i++)
		cr_expect_neq(scales[4 * i + 3], (char)0xa5, "%s: scale %u is missing", row->name, i);
	memset(data(repeat.scales), 0xa5, repeat.scales->size);
	repeat_run(&repeat, stream, plan_for(engine, &repeat.transform, 0, 0), repeat.room, last, last);
	cr_expect(
	    !memcmp(data(repeat.dst) + last, data(repeat.dst) + repeat.room, repeat.n * repeat.dst_bytes),
	    "%s: other bytes", row->name);
	cr_expect(!memcmp(data(repeat.scales) + last, scales, sizeof(scales)), "%s: other scales", row->name);
	engine_stream_free(engine, stream);
	repeat_deinit(&repeat);
	close_engine();
}

/* ---- Tiles -------------------------------------------------------------------------------------------- */

static atomic_bool stopped;

/* Runs the task with new scratch memory, for which nothing has been planned, and returns how often tiles were
 * planned. */
static unsigned run_on_a_new_thread(const struct task *task)
{
	static struct partition partition;
	struct cpu_scratch *scratch = cpu_scratch_new();
	cr_assert(scratch);
	partition_whole(&partition, task);
	unsigned before = atomic_load(&task->plan->kept.planned);
	cr_assert(partition_run(&partition, &stopped, scratch));
	cpu_scratch_free(scratch);
	return atomic_load(&task->plan->kept.planned) - before;
}

static void tiles_are_kept(long long bytes, bool is_kept)
{
	const struct repeat_row row = { "", BYTE, TILES };
	static char dst[2000 * 7 * 20], src[2000 * 7 * 20];
	static struct cpu_plan plan;
	struct transform_spec spec;
	struct transform transform;
	struct error err;
	atomic_llong room = bytes;
	spec_of(&row, &spec);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s", err.message);
	cpu_plan_init(&plan, &transform, CPU_ALIGN);
	plan.kept.room = &room;
	const struct task task = { .isa = cpu_isa_best(),
		                   .transform = &transform,
		                   .plan = &plan,
		                   .place = { .dst = dst,
		                              .src = src,
		                              .fill = transform.fill,
		                              .fill_bytes = transform.element,
		                              .piece_bytes = 64 << 10,
		                              .kept = &plan.kept } };
	const unsigned first = run_on_a_new_thread(&task), second = run_on_a_new_thread(&task);
	cr_expect_gt(first, 0, "%lld bytes: it has no tiles", bytes);
	cr_expect_eq(second, is_kept ? 0 : first, "%lld bytes: planned %u times, then %u", bytes, first,
	             second);
	cr_expect_eq(atomic_load(&room) < bytes, is_kept, "%lld bytes: %lld are left", bytes,
	             atomic_load(&room));
	kept_forget(&plan.kept);
	cr_expect_eq(atomic_load(&room), bytes, "%lld bytes: %lld after the end", bytes, atomic_load(&room));
}

/* While there is room, every thread finds the tiles that another one has planned. */
Test(repeats, tiles_are_for_all_threads)
{
	tiles_are_kept(CPU_KEPT_BYTES, true);
	tiles_are_kept(100, false);
}

/* ---- Room --------------------------------------------------------------------------------------------- */

/* A layout keeps no more than its share of the room, and finds what it has kept. */
Test(repeats, a_layout_keeps_its_share)
{
	static char plan[64 << 10];
	atomic_llong room = 2 * KEPT_MOST;
	struct kept_plans kept = { .room = &room };
	uint64_t n = 0, n_found = 0;
	for (uint64_t key[3] = { 0 }; key[0] < 2 * KEPT_MOST / sizeof(plan); key[0]++) {
		memcpy(plan, key, sizeof(key));
		kept_add(&kept, key, sizeof(key), kept_hash(key, sizeof(key)), plan, sizeof(plan));
	}
	for (uint64_t key[3] = { 0 }; key[0] < 2 * KEPT_MOST / sizeof(plan); key[0]++, n++) {
		const char *found = kept_find(&kept, key, sizeof(key), kept_hash(key, sizeof(key)));
		cr_assert(!found || !memcmp(found, key, sizeof(key)));
		n_found += found != NULL;
	}
	cr_expect_eq(n_found, KEPT_MOST / sizeof(plan) - 1, "%lu of %lu", (unsigned long)n_found,
	             (unsigned long)n);
	cr_expect_geq(atomic_load(&room), KEPT_MOST);
	kept_forget(&kept);
	cr_expect_eq(atomic_load(&room), 2 * KEPT_MOST);
	cr_expect_eq(atomic_load(&kept.bytes), 0);
}
