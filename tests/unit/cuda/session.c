/* SPDX-License-Identifier: Apache-2.0 */
/* One session of an engine from open to close, for tests that make the driver fail in the middle. The session
 * copes with any failure and prints a line of five numbers:
 * opened lost done wrong live
 * They say whether the engine opened, and was lost; how many jobs were reported as done, and how many of
 * these wrote wrong bytes; and how many of the driver's objects were left at the end. LD_LIBRARY_PATH has to
 * name tests/softgpu/lib. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/stage/jobs.h"
#include "kernels/engine.h"
#include "tests/support/plans.h"

#define N     24
#define BYTES (N * N * 4)
#define JOBS  7
#define LISTS 4 /* index of the first job that is a list of one block, which is packed */

static struct engine *engine;
static int wakeups;
static int n_done;

static void fail(const char *what)
{
	fprintf(stderr, "session: %s\n", what);
	abort();
}

static void wake(void *arg)
{
	uint64_t one = 1;
	if (write(*(int *)arg, &one, sizeof one) != sizeof one)
		fail("wake");
}

static void on_done(struct engine_job *job)
{
	(void)job;
	n_done++;
}

static void wait_done(int n)
{
	while (n_done < n) {
		uint64_t count;
		struct pollfd fd = { .fd = wakeups, .events = POLLIN };
		if (poll(&fd, 1, 30000) != 1 || read(wakeups, &count, sizeof count) != sizeof count)
			fail("a job does not come back");
		engine_reap(engine);
	}
}

/* ---- Memory ---------------------------------------------------------------------------------------------
 */

static struct engine_memory *create(enum region_kind kind, struct engine_export *ret)
{
	struct engine_memory *memory = NULL;
	struct error err;
	*ret = (struct engine_export){ .fd = -1 };
	return engine_create(engine, kind, BYTES, &memory, ret, &err) < 0 ? NULL : memory;
}

static struct engine_memory *new_memory(enum region_kind kind)
{
	struct engine_export made;
	struct engine_memory *memory = create(kind, &made);
	if (made.fd >= 0)
		close(made.fd);
	return memory;
}

/* Returns memory that is mapped by the fd of other memory. */
static struct engine_memory *mapped_memory(void)
{
	struct engine_export made;
	struct engine_memory *mapped = NULL, *memory = create(REGION_KIND_CUDA_FD, &made);
	struct engine_handle handle = {
		.kind = REGION_KIND_CUDA_FD, .fd = made.fd, .size = BYTES, .writable = true
	};
	struct error err;
	if (!memory)
		return NULL;
	if (engine_map(engine, &handle, &mapped, &err) < 0)
		mapped = NULL;
	engine_unmap(engine, memory);
	close(made.fd);
	return mapped;
}

static uint32_t *words(struct engine_memory *memory)
{
	return (uint32_t *)cuda_memory(memory)->address;
}

/* ---- Jobs ------------------------------------------------------------------------------------------------
 */

struct work {
	struct engine_job job;
	struct transform transform;
	struct engine_blocks blocks;
};

static void work_init(struct work *work, struct engine_memory *dst, struct engine_memory *src)
{
	struct transform_spec spec = { .n_perm = 2, .perm = { 1, 0 }, .n_before = -1, .n_after = -1 };
	int64_t shape[2] = { N, N };
	struct error err;
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err);
	if (transform_init(&work->transform, &spec, &err) < 0)
		fail(err.message);
	work->job = (struct engine_job){ .move = { .transform = &work->transform,
		                                   .plan = plan_for(engine, &work->transform, 0, 0),
		                                   .dst = dst,
		                                   .src = src },
		                         .on_done = on_done };
}

static void make_list(struct work *work)
{
	static const int32_t index = 0;

	work->blocks = (struct engine_blocks){ .n = 1,
		                               .layers = 1,
		                               .index_bytes = sizeof index,
		                               .limit = 1,
		                               .index = &index,
		                               .dst.step = BYTES + 16,
		                               .src.step = BYTES + 16 };
	work->job.blocks = &work->blocks;
}

static bool is_right(struct engine_memory *dst)
{
	for (uint32_t i = 0; i < N * N; i++)
		if (words(dst)[i] != i % N * N + i / N + 1)
			return false;
	return true;
}

/* Each job waits for what the one before signals. A job that failed has not signalled, so its word is set
 * here. */
static void add_points(struct engine_job *job, struct engine_memory *timeline, uint64_t i)
{
	uint64_t *word = (uint64_t *)cuda_memory(timeline)->address;
	*word = i;
	job->wait = (struct engine_point){ timeline, 0, i };
	job->wait_until_ns = UINT64_MAX;
	job->signal = (struct engine_point){ timeline, 0, i + 1 };
}

static bool is_signalled(const struct engine_job *job)
{
	return !job->signal.memory ||
	       *(uint64_t *)cuda_memory(job->signal.memory)->address == job->signal.value;
}

/* Jobs run one at a time, because the next one would overwrite what is checked. */
static void run_jobs(struct engine_memory **dst, struct engine_memory **src, struct engine_memory *timeline,
                     int *ret_done, int *ret_wrong)
{
	static struct work work[JOBS];
	struct engine_owner owner;
	int n = 0;
	engine_owner_init(&owner);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	for (int i = 0; i < JOBS; i++) {
		struct engine_memory *to = dst[i / 2 % 2], *from = src[i % 2];
		if (!to || !from)
			continue;
		for (uint32_t w = 0; w < N * N; w++) {
			words(from)[w] = w + 1;
			words(to)[w] = 0;
		}
		work_init(&work[i], to, from);
		if (i >= LISTS)
			make_list(&work[i]);
		if (timeline)
			add_points(&work[i].job, timeline, (uint64_t)i);
		engine_submit(engine, stream, &work[i].job);
		wait_done(++n);
		*ret_done += work[i].job.status == 0;
		*ret_wrong += work[i].job.status == 0 && (!is_right(to) || !is_signalled(&work[i].job));
	}
	engine_stream_free(engine, stream);
	engine_owner_deinit(&owner);
}

static size_t count_live(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	size_t (*live)(char *, size_t) = library ? dlsym(library, "softgpu_live") : NULL;
	char text[1000];
	size_t n = live ? live(text, sizeof text) : 0;
	if (n > 0)
		fputs(text, stderr);
	return n;
}

int main(void)
{
	/* Few in-flight jobs and small rounds keep the number of calls low, but make every kind of call. */
	struct cuda_limits limits = { .jobs = 2,
		                      .stream_jobs = 2,
		                      .owner_bytes = 1 << 20,
		                      .short_bytes = 1 << 19,
		                      .short_host_bytes = 1 << 16,
		                      .long_jobs = 2,
		                      .ahead_ns = 5000000,
		                      .quick_moves = 8,
		                      .staged_jobs = 2,
		                      .direct_bytes = 256,
		                      .round_bytes = 1000,
		                      .row_bytes = 8,
		                      .tile_bytes = 144,
		                      .tile_row_bytes = 8,
		                      .scratch_bytes = 64 << 10,
		                      .scratch_idle_ns = 10000000000,
		                      .sharing_slack_ns = 500000,
		                      .pack_threads = 2,
		                      .pack_slots = 3,
		                      .pack_alone = true,
		                      .pack_slot_bytes = 1200,
		                      .pack_run_bytes = 1,
		                      .pack_piece_bytes = 1 << 20,
		                      .pack_stretch_bytes = 1 << 20,
		                      .spin_ns = 20000,
		                      .most_sleep_ns = 1000000 };
	struct engine_options options = { .tensor_maps = 4, .wake = wake, .wake_arg = &wakeups };
	struct engine_memory *dst[2], *src[2], *timeline;
	int done = 0, wrong = 0;
	bool lost = false;
	struct error err;
	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cuda_limits_force(&limits);
	bool opened = engine_cuda_open(&engine, &options, &err) == 0;
	if (opened) {
		dst[0] = new_memory(REGION_KIND_MEMFD);
		src[0] = new_memory(REGION_KIND_MEMFD);
		src[1] = new_memory(REGION_KIND_CUDA_IPC);
		dst[1] = mapped_memory();
		timeline = new_memory(REGION_KIND_CUDA_FD);
		run_jobs(dst, src, timeline, &done, &wrong);
		engine_unmap(engine, timeline);
		for (int i = 0; i < 2; i++) {
			engine_unmap(engine, dst[i]);
			engine_unmap(engine, src[i]);
		}
		engine_reap(engine);
		lost = engine->lost;
		plans_drop();
		engine_close(engine);
	}
	close(wakeups);
	printf("%d %d %d %d %zu\n", opened, lost, done, wrong, count_live());
	return 0;
}
