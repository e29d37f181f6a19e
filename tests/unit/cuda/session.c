/* One session from open to close, over and over, with the Nth call of the driver failing, for every N: nothing
 * crashes, hangs or leaks, and what is reported as done is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/memory.h"
#include "rig.h"
#include "tests/softgpu/live.h"

#define N     24
#define BYTES (N * N * 4)
#define JOBS  6

/* What a session says of itself to the test: it runs in a child, so that a driver that sticks goes with it. */
struct report {
	unsigned long long calls;
	bool opened;
	bool lost;
	int done;  /* jobs that are reported so */
	int wrong; /* of those, with other bytes */
	bool leaked;
	bool ended; /* the session came to its end */
	char text[600];
};

static struct report *report;

static struct engine_memory *try_memory(enum region_kind kind)
{
	struct engine_memory *memory = NULL;
	struct engine_export made;
	struct error err;
	if (engine_create(engine, kind, BYTES, &memory, &made, &err) < 0)
		return NULL;
	if (made.fd >= 0)
		close(made.fd);
	return memory;
}

/* Memory by the fd of other memory. */
static struct engine_memory *try_map(void)
{
	struct engine_memory *made, *mapped = NULL;
	struct engine_export export;
	struct error err;
	if (engine_create(engine, REGION_KIND_CUDA_FD, BYTES, &made, &export, &err) < 0)
		return NULL;
	struct engine_handle handle = {
		.kind = REGION_KIND_CUDA_FD, .fd = export.fd, .size = BYTES, .writable = true
	};
	engine_map(engine, &handle, &mapped, &err);
	engine_unmap(engine, made);
	close(export.fd);
	return mapped;
}

static void check(const struct work *work, struct engine_memory *dst)
{
	const uint32_t *is = (const uint32_t *)data(dst);
	bool wrong = false;
	if (work->job.status)
		return;
	report->done++;
	for (int i = 0; i < N * N; i++)
		wrong |= is[i] != (uint32_t)(i % N * N + i / N) + 1;
	report->wrong += wrong;
}

static void run_jobs(struct engine_memory **memory)
{
	static struct work work[JOBS];
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src[] = { memory[0], memory[2] };
	size_t n = 0;
	for (int s = 0; s < 2; s++)
		for (uint32_t i = 0; src[s] && i < N * N; i++)
			((uint32_t *)data(src[s]))[i] = i + 1;
	for (int i = 0; i < JOBS; i++) {
		struct engine_memory *from = src[i % 2], *to = memory[i % 3 ? 3 : 1];
		if (!from || !to)
			continue;
		/* One at a time, or what is checked would be overwritten. */
		memset(data(to), 0, BYTES);
		work_init(&work[i], N, true, to, from);
		engine_submit(engine, stream, &work[i].job);
		wait_done(++n);
		check(&work[i], to);
	}
	engine_stream_free(engine, stream);
}

static void session(void)
{
	struct cuda_limits limits = small_limits();
	struct engine_options options = { .tensor_maps = 4, .wake = rig_wake, .wake_arg = &wakeups };
	struct engine_memory *memory[4];
	struct error err;
	limits.jobs = 2;
	rig_prepare(&limits);
	report->opened = engine_cuda_open(&engine, &options, &err) == 0;
	if (report->opened) {
		engine_owner_init(&owner);
		memory[0] = try_memory(REGION_KIND_MEMFD);
		memory[1] = try_memory(REGION_KIND_MEMFD);
		memory[2] = try_memory(REGION_KIND_CUDA_IPC);
		memory[3] = try_map();
		run_jobs(memory);
		for (int i = 0; i < 4; i++)
			engine_unmap(engine, memory[i]);
		engine_owner_deinit(&owner);
		report->lost = engine->lost;
		engine_close(engine);
	}
	report->leaked = softgpu_live(report->text, sizeof report->text) > 0;
	driver_close();
	report->ended = true;
}

static unsigned long long count_of(const char *path)
{
	unsigned long long calls = 0;
	FILE *file = fopen(path, "r");
	if (file) {
		cr_assert_eq(fscanf(file, "%llu", &calls), 1);
		fclose(file);
	}
	return calls;
}

/* The Nth call fails with result; N 0: none. */
static void run_session(unsigned long long n, int result, const char *name)
{
	char path[] = "/tmp/session-XXXXXX", text[24];
	int status;
	close(mkstemp(path));
	memset(report, 0, sizeof *report);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		snprintf(text, sizeof text, "%llu", n);
		setenv("SOFTGPU_FAIL", text, 1);
		snprintf(text, sizeof text, "%d", result);
		setenv("SOFTGPU_FAIL_WITH", text, 1);
		setenv("SOFTGPU_COUNT", path, 1);
		alarm(60);
		session();
		exit(0); /* the sanitizer looks for what leaked */
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	report->calls = count_of(path);
	unlink(path);
	cr_assert_eq(status, 0, "%s: call %llu: the session ended with %x", name, n, (unsigned)status);
	cr_assert(report->ended, "%s: call %llu", name, n);
	cr_assert_eq(report->wrong, 0, "%s: call %llu: %d jobs with wrong bytes", name, n, report->wrong);
}

struct session_row {
	char name[24];
	int result;
	bool sticky;
};

ParameterizedTestParameters(cuda_session, the_nth_call_fails)
{
	static struct session_row rows[] = {
		{ "out of memory", CUDA_ERROR_OUT_OF_MEMORY, false },
		{ "invalid value", CUDA_ERROR_INVALID_VALUE, false },
		{ "illegal address", CUDA_ERROR_ILLEGAL_ADDRESS, true },
	};
	return cr_make_param_array(struct session_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct session_row *row, cuda_session, the_nth_call_fails, .timeout = 900)
{
	int sessions_lost = 0, sessions_with_less = 0;
	report =
	    mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	run_session(0, row->result, row->name);
	cr_assert(report->opened && !report->lost && !report->leaked, "%s", report->text);
	cr_assert_eq(report->done, JOBS);
	unsigned long long calls = report->calls;
	cr_assert_gt(calls, 200);
	for (unsigned long long n = 1; n <= calls; n++) {
		run_session(n, row->result, row->name);
		sessions_lost += report->lost;
		sessions_with_less += !report->opened || report->done < JOBS;
	}
	cr_assert_gt(sessions_with_less, 100, "%s: %d", row->name, sessions_with_less);
	if (row->sticky)
		cr_assert_gt(sessions_lost, 50, "%s: %d", row->name, sessions_lost);
	munmap(report, sizeof *report);
}
