/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how jobs end when one of their calls fails, and on a device that is lost. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

/* ---- A call that fails ----------------------------------------------------------------------------- */

struct fail_row {
	char name[24];
	enum region_kind kind;
	char variable[64];
	char with[32];
	int status;
};

ParameterizedTestParameters(cuda_end, one_job_fails)
{
	static struct fail_row rows[] = {
		{ "launch", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:2",
		  "SOFTGPU_FAIL_WITH=701", STATUS_DEVICE },
		{ "launch, memory", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:2",
		  "SOFTGPU_FAIL_WITH=2", STATUS_NO_MEMORY },
		{ "launch, value", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:2",
		  "SOFTGPU_FAIL_WITH=1", STATUS_DEVICE },
		{ "time", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuEventElapsedTime:2",
		  "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
		{ "bring in", REGION_KIND_MEMFD, "SOFTGPU_FAIL_CALL=cuMemcpy2DAsync:9",
		  "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
		{ "round's launch", REGION_KIND_MEMFD, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:9",
		  "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
		{ "take out", REGION_KIND_MEMFD, "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync:9",
		  "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
		{ "wait", REGION_KIND_MEMFD, "SOFTGPU_FAIL_CALL=cuStreamWaitEvent:17",
		  "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
	};
	return cr_make_param_array(struct fail_row, rows, sizeof rows / sizeof *rows);
}

/* The second of three jobs fails; the others end as without it, and the engine goes on. */
ParameterizedTest(struct fail_row *row, cuda_end, one_job_fails)
{
	enum { N = 40 };
	struct cuda_limits limits = small_limits();
	static struct work work[3];
	struct engine_memory *dst[3];
	putenv(row->variable);
	putenv(row->with);
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(row->kind, N * N * 4);
	memset(data(src), 5, N * N * 4);
	for (size_t i = 0; i < 3; i++) {
		dst[i] = new_memory(row->kind, N * N * 4);
		work_init(&work[i], N, true, dst[i], src);
		engine_submit(engine, stream, &work[i].job);
	}
	wait_done(3);
	for (int i = 0; i < 3; i++) {
		int wanted = i == 1 ? row->status : 0;
		cr_assert_eq(done[i], &work[i].job, "%s: job %d", row->name, i);
		cr_assert_eq(work[i].job.status, wanted, "%s: job %d: %d", row->name, i, work[i].job.status);
		if (wanted == 0)
			for (int b = 0; b < N * N * 4; b++)
				cr_assert_eq(data(dst[i])[b], 5, "%s: job %d, byte %d", row->name, i, b);
	}
	cr_assert_not(engine->lost, "%s: %s", row->name, engine->lost_why);
	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		engine_unmap(engine, dst[i]);
	engine_unmap(engine, src);
	close_engine();
}

/* ---- A device that is lost ------------------------------------------------------------------------ */

struct lost_row {
	char name[24];
	enum region_kind kind;
	char variable[64];
	char with[32];
};

ParameterizedTestParameters(cuda_end, lost)
{
	static struct lost_row rows[] = {
		{ "a kernel, device", REGION_KIND_CUDA_FD, "SOFTGPU_FAULT=5", "" },
		{ "a kernel, host", REGION_KIND_MEMFD, "SOFTGPU_FAULT=25", "" },
		{ "a launch", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuLaunchKernelEx:5",
		  "SOFTGPU_FAIL_WITH=719" },
		{ "a copy", REGION_KIND_MEMFD, "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync:25",
		  "SOFTGPU_FAIL_WITH=700" },
		{ "a look", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuEventQuery:9",
		  "SOFTGPU_FAIL_WITH=716" },
		{ "not to be seen", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuEventQuery:9",
		  "SOFTGPU_FAIL_WITH=400" },
		{ "not to be waited for", REGION_KIND_CUDA_FD, "SOFTGPU_FAIL_CALL=cuEventRecord:2",
		  "SOFTGPU_FAIL_WITH=400" },
	};
	return cr_make_param_array(struct lost_row, rows, sizeof rows / sizeof *rows);
}

/* Jobs that had ended are right. From then on every job ends as lost, whatever is called, and nothing
 * hangs. */
ParameterizedTest(struct lost_row *row, cuda_end, lost)
{
	enum { STREAMS = 3, JOBS = 10, N = 40 };
	struct cuda_limits limits = small_limits();
	struct work *work = calloc(STREAMS * JOBS + 1, sizeof *work);
	struct engine_stream *stream[STREAMS];
	struct engine_memory *dst[STREAMS * JOBS], *memory;
	struct engine_export made;
	struct error err;
	size_t good = 0;
	putenv(row->variable);
	if (*row->with)
		putenv(row->with);
	open_engine(&limits);
	struct engine_memory *src = new_memory(row->kind, N * N * 4);
	memset(data(src), 5, N * N * 4);
	for (int i = 0; i < STREAMS * JOBS; i++)
		dst[i] = new_memory(row->kind, N * N * 4);
	for (int s = 0; s < STREAMS; s++)
		stream[s] = engine_stream_new(engine, &owner);
	for (int i = 0; i < STREAMS * JOBS; i++) {
		work_init(&work[i], N, true, dst[i], src);
		engine_submit(engine, stream[i % STREAMS], &work[i].job);
	}
	wait_done(STREAMS * JOBS);
	for (int i = 0; i < STREAMS * JOBS; i++) {
		int status = work[i].job.status;
		cr_assert(status == 0 || status == STATUS_DEVICE_LOST, "%s: job %d: %d", row->name, i,
		          status);
		good += status == 0;
		for (int b = 0; status == 0 && b < N * N * 4; b++)
			cr_assert_eq(data(dst[i])[b], 5, "%s: job %d, byte %d", row->name, i, b);
	}
	cr_assert_lt(good, STREAMS * JOBS, "%s", row->name);
	cr_assert(engine->lost, "%s", row->name);
	cr_assert_neq(strlen(engine->lost_why), 0, "%s", row->name);

	work_init(&work[STREAMS * JOBS], N, true, dst[0], src);
	engine_submit(engine, stream[0], &work[STREAMS * JOBS].job);
	wait_done(STREAMS * JOBS + 1);
	cr_assert_eq(work[STREAMS * JOBS].job.status, STATUS_DEVICE_LOST, "%s", row->name);
	engine_stream_cancel(engine, stream[0]);
	cr_assert_eq(engine_create(engine, row->kind, 100, &memory, &made, &err), STATUS_DEVICE_LOST, "%s",
	             row->name);
	for (int s = 0; s < STREAMS; s++)
		engine_stream_free(engine, stream[s]);
	for (int i = 0; i < STREAMS * JOBS; i++)
		engine_unmap(engine, dst[i]);
	engine_unmap(engine, src);
	engine_owner_deinit(&owner);
	engine_close(engine);
	free(work);
}

struct mapping_row {
	char name[24];
	char variable[64];
	char with[32];
	char says[40];
};

ParameterizedTestParameters(cuda_end, lost_while_mapping)
{
	static struct mapping_row rows[] = {
		{ "a sticky error", "SOFTGPU_FAIL_CALL=cuMemCreate", "SOFTGPU_FAIL_WITH=700",
		  "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ "not to be waited for", "SOFTGPU_FAIL_CALL=cuStreamSynchronize", "SOFTGPU_FAIL_WITH=400",
		  "cuStreamSynchronize" },
	};
	return cr_make_param_array(struct mapping_row, rows, sizeof rows / sizeof *rows);
}

/* A call that maps memory finds the device lost while nothing is under way; the owner is woken to learn of
 * it. */
ParameterizedTest(struct mapping_row *row, cuda_end, lost_while_mapping)
{
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;
	putenv(row->variable);
	putenv(row->with);
	open_engine(NULL);
	cr_assert_eq(engine_create(engine, REGION_KIND_CUDA_FD, 100, &memory, &made, &err),
	             STATUS_DEVICE_LOST, "%s", row->name);
	for (int i = 0; i < 1000 && !engine->lost; i++) {
		uint64_t count;
		usleep(1000);
		if (read(wakeups, &count, sizeof count) == sizeof count)
			engine_reap(engine);
	}
	cr_assert(engine->lost, "%s", row->name);
	cr_assert_not_null(strstr(engine->lost_why, row->says), "%s: %s", row->name, engine->lost_why);
	engine_owner_deinit(&owner);
	engine_close(engine);
}
