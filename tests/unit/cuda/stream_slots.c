/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the choice of the device's streams: short jobs take streams of the highest priority, and an owner's
 * long jobs share one of the lowest. Jobs of an engine stream keep their order across several of the device's
 * streams. */
#include "kernels/cuda/stage/jobs.h"

#include <criterion/criterion.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/sched/queue.h"
#include "rig.h"

/* Jobs move float32 [n, n]. small_limits' short_bytes lies between the bytes that a short and a long job read
 * and write. */
enum { SHORT_N = 32, LONG_N = 384, LONG_BYTES = LONG_N * LONG_N * 4, ROUNDS = 40 };

/* ---- The choice ---------------------------------------------------------------------------------------- */

Test(stream_slots, choice)
{
	static struct stream_slots slots;
	struct engine_owner one, other;
	struct stream_slot *first, *second, *third, *slow, *slower, *urgent;
	bool is_first;

	engine_owner_init(&one);
	engine_owner_init(&other);
	for (int i = 0; i < STREAM_SLOTS; i++)
		slots.slot[i].priority = stream_slot_priority(i);
	first = stream_slots_take(&slots, &one, NULL, JOB_SHORT, &is_first);
	cr_expect(is_first && first->priority == STREAM_HIGHEST);
	cr_expect_eq(stream_slots_take(&slots, &one, first, JOB_SHORT, &is_first), first,
	             "behind the job before it");
	cr_expect_not(is_first);
	second = stream_slots_take(&slots, &one, NULL, JOB_SHORT, &is_first);
	cr_expect(is_first && second != first, "another engine stream's");
	slow = stream_slots_take(&slots, &one, first, JOB_LONG, &is_first);
	cr_expect(is_first && slow->priority == STREAM_LOWEST);
	cr_expect_eq(stream_slots_take(&slots, &one, NULL, JOB_LONG, &is_first), slow,
	             "an owner's long jobs");
	cr_expect_not(is_first);
	slower = stream_slots_take(&slots, &other, NULL, JOB_LONG, &is_first);
	cr_expect(is_first && slower->priority == STREAM_LOWEST && slower != slow, "another owner's");
	urgent = stream_slots_take(&slots, &one, slow, JOB_URGENT, &is_first);
	cr_expect(is_first && urgent->priority == STREAM_MIDDLE, "an urgent one behind a long one");
	cr_expect_eq(one.long_jobs, 2);
	cr_expect_eq(one.urgent_jobs, 1);
	cr_expect(stream_slot_give(urgent, &one, JOB_URGENT));
	cr_expect_eq(one.urgent_jobs, 0);
	third = stream_slots_take(&slots, &one, slow, JOB_SHORT, &is_first);
	cr_expect(is_first && third->priority == STREAM_HIGHEST, "a short one behind a long one");
	cr_expect_neq(stream_slots_take(&slots, &one, NULL, JOB_BESIDE, &is_first), slow,
	              "one that is in no turn");
	cr_expect(is_first);
	cr_expect_not(stream_slot_give(slow, &one, JOB_LONG));
	cr_expect_eq(one.long_jobs, 1);
	cr_expect(stream_slot_give(slow, &one, JOB_LONG));
	cr_expect(stream_slot_give(slower, &other, JOB_LONG));
	cr_expect_not(stream_slot_give(first, &one, JOB_SHORT));
	cr_expect(stream_slot_give(first, &one, JOB_SHORT));
	cr_expect_eq(one.long_jobs + other.long_jobs, 0);
}

/* ---- On the device ----------------------------------------------------------------------------------- */

static struct made {
	CUstream stream;
	int priority;
} made[64];
static int n_made;

/* For each priority, the last stream that was launched on, and how many different ones there were. */
static CUstream last_of[3];
static int n_of[3];

static __typeof__(driver.cuStreamCreateWithPriority) create_stream;
static __typeof__(driver.cuLaunchKernelEx) launch_kernel;

static CUresult note_stream(CUstream *ret, unsigned flags, int priority)
{
	CUresult result = create_stream(ret, flags, priority);

	made[n_made++] = (struct made){ *ret, priority };
	return result;
}

static CUresult note_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	int i = 0, least, greatest;

	driver.cuCtxGetStreamPriorityRange(&least, &greatest);
	while (made[i].stream != config->hStream)
		cr_assert_lt(++i, n_made, "a stream of nobody's");
	const int priority = made[i].priority == greatest ? STREAM_HIGHEST
	                     : made[i].priority == least  ? STREAM_LOWEST
	                                                  : STREAM_MIDDLE;

	n_of[priority] += last_of[priority] != config->hStream;
	last_of[priority] = config->hStream;
	return launch_kernel(config, function, params, extra);
}

static void open_noted(const struct cuda_limits *limits)
{
	struct error err;

	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	create_stream = driver.cuStreamCreateWithPriority;
	driver.cuStreamCreateWithPriority = note_stream;
	launch_kernel = driver.cuLaunchKernelEx;
	driver.cuLaunchKernelEx = note_launch;
	open_engine(limits);
}

/* The owner has three engine streams. */
Test(stream_slots, long_jobs_of_an_owner_share_a_stream_of_the_lowest_priority)
{
	static struct work work[6];
	struct cuda_limits limits = small_limits();
	struct engine_stream *stream[3];

	open_noted(&limits);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, LONG_BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, LONG_BYTES);

	for (int i = 0; i < 3; i++) {
		stream[i] = engine_stream_new(engine, &owner);
		work_init(&work[2 * i], LONG_N, true, dst, src);
		work_init(&work[2 * i + 1], SHORT_N, true, dst, src);
		engine_submit(engine, stream[i], &work[2 * i].job);
		engine_submit(engine, stream[i], &work[2 * i + 1].job);
	}
	wait_done(6);
	cr_expect_eq(n_of[STREAM_LOWEST], 1, "%d of the lowest priority", n_of[STREAM_LOWEST]);
	cr_expect_geq(n_of[STREAM_HIGHEST], 1, "none of the highest");
	for (int i = 0; i < 3; i++)
		engine_stream_free(engine, stream[i]);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

/* On a busy machine the long jobs may end before the other job is submitted, but hardly in every try. */
#define TRIES 20

/* Runs a job of `owner`, which has already used the device for ns, beside long jobs of another owner, which
 * has not used it. n_of then tells the priorities of the streams that were launched on. */
static void run_beside_others(uint64_t ns, int64_t n, enum job_priority priority)
{
	enum { N_LONG = 8 };
	static struct work work[N_LONG + 1];
	const struct cuda_limits limits = small_limits();
	struct engine_owner other;
	struct engine_stream *theirs, *own;

	open_noted(&limits);
	engine_owner_init(&other);
	owner.ns = ns;
	theirs = engine_stream_new(engine, &other);
	own = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, LONG_BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, LONG_BYTES);

	for (int i = 0; i <= N_LONG; i++)
		work_init(&work[i], i < N_LONG ? LONG_N : n, true, dst, src);
	work[N_LONG].job.share.priority = priority;
	for (int i = 0; i < N_LONG; i++)
		engine_submit(engine, theirs, &work[i].job);
	engine_submit(engine, own, &work[N_LONG].job);
	wait_done(N_LONG + 1);
	engine_stream_free(engine, own);
	engine_stream_free(engine, theirs);
	engine_owner_deinit(&other);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

Test(stream_slots, short_jobs_pass_those_of_an_owner_who_has_had_as_much)
{
	for (int i = 0; i < TRIES && n_of[STREAM_HIGHEST] == 0; i++)
		run_beside_others(0, SHORT_N, JOB_PRIORITY_NORMAL);
	cr_expect_gt(n_of[STREAM_HIGHEST], 0);
}

Test(stream_slots, short_jobs_of_an_owner_who_has_had_more_pass_nobody)
{
	run_beside_others(UINT64_C(1) << 50, SHORT_N, JOB_PRIORITY_NORMAL);
	cr_expect_eq(n_of[STREAM_HIGHEST], 0);
}

Test(stream_slots, urgent_long_jobs_pass_those_of_an_owner_who_has_had_as_much)
{
	for (int i = 0; i < TRIES && n_of[STREAM_MIDDLE] == 0; i++)
		run_beside_others(0, LONG_N, JOB_PRIORITY_URGENT);
	cr_expect_gt(n_of[STREAM_MIDDLE], 0);
}

Test(stream_slots, urgent_long_jobs_of_an_owner_who_has_had_more_pass_nobody)
{
	run_beside_others(UINT64_C(1) << 50, LONG_N, JOB_PRIORITY_URGENT);
	cr_expect_eq(n_of[STREAM_MIDDLE], 0);
}

/* Such a job only waits for a point or signals one; the contents of its list of moves are not read. */
Test(stream_slots, a_batch_of_no_moves_is_short)
{
	static struct engine_move none[1];
	struct engine_job job = { .moves = none };
	const struct cuda_limits limits = { 0 };

	cr_expect_eq(job_weight(&job, &limits), JOB_SHORT);
}

/* Long jobs alternate with short ones that change a part of what the long ones write and read. */
Test(stream_slots, jobs_of_an_engine_stream_keep_their_order)
{
	static struct work work[2 * ROUNDS];
	static float expected[2][LONG_N * LONG_N], square[SHORT_N * SHORT_N];
	struct cuda_limits limits = small_limits();

	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *side[2] = { new_memory(REGION_KIND_CUDA_FD, LONG_BYTES),
		                          new_memory(REGION_KIND_CUDA_FD, LONG_BYTES) };

	for (int i = 0; i < LONG_N * LONG_N; i++)
		expected[0][i] = (float)i;
	memcpy(data(side[0]), expected[0], LONG_BYTES);
	for (int r = 0; r < ROUNDS; r++) {
		float *to = expected[(r + 1) % 2], *from = expected[r % 2];

		work_init(&work[2 * r], LONG_N, true, side[(r + 1) % 2], side[r % 2]);
		work_init(&work[2 * r + 1], SHORT_N, true, side[r % 2], side[(r + 1) % 2]);
		engine_submit(engine, stream, &work[2 * r].job);
		engine_submit(engine, stream, &work[2 * r + 1].job);
		for (int i = 0; i < LONG_N * LONG_N; i++)
			to[i] = from[i % LONG_N * LONG_N + i / LONG_N];
		memcpy(square, to, sizeof square);
		for (int i = 0; i < SHORT_N * SHORT_N; i++)
			from[i] = square[i % SHORT_N * SHORT_N + i / SHORT_N];
	}
	wait_done(2 * ROUNDS);
	for (int r = 0; r < 2 * ROUNDS; r++)
		cr_assert_eq(work[r].job.status, 0, "job %d: %d", r, work[r].job.status);
	for (int s = 0; s < 2; s++)
		cr_assert_arr_eq(data(side[s]), expected[s], LONG_BYTES, "side %d", s);
	engine_unmap(engine, side[0]);
	engine_unmap(engine, side[1]);
	engine_stream_free(engine, stream);
	close_engine();
}
