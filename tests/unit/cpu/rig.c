/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rig: it opens and closes the engine, makes jobs and receives them when they have ended. */
#include "rig.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cpu/run/tuning.h"
#include "kernels/cpu/run/watcher.h"
#include "kernels/host/memory.h"
#include "tests/support/plans.h"

struct engine *engine;
struct engine_owner owner;
int wakeups;

struct engine_job *done[MOST_JOBS];
size_t n_done;

atomic_bool hold;
static pthread_t submitter;

void wake(void *arg)
{
	uint64_t one = 1;
	cr_assert_eq(*(int *)arg, wakeups);
	cr_assert_eq(write(wakeups, &one, sizeof(one)), (ssize_t)sizeof(one));
	while (atomic_load(&hold) && !pthread_equal(pthread_self(), submitter))
		usleep(1000);
}

static void on_done(struct engine_job *job)
{
	done[n_done++] = job;
}

void open_engine(uint32_t threads, int64_t inline_bytes)
{
	open_engine_words(threads, inline_bytes, WATCHER_MOST_WORDS);
}

void open_engine_words(uint32_t threads, int64_t inline_bytes, uint32_t wait_words)
{
	struct cpu_tuning tuning = cpu_tuning_get();
	struct engine_options options = { .threads = threads, .wake = wake, .wake_arg = &wakeups };
	struct error err;
	tuning.inline_bytes = inline_bytes;
	tuning.wait_words = wait_words;
	tuning.piece_least = tuning.piece_most = 4096;
	cpu_tuning_force(&tuning);
	submitter = pthread_self();
	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cr_assert_geq(wakeups, 0);
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0, "%s", err.message);
	engine_owner_init(&owner);
}

void close_engine(void)
{
	engine_owner_deinit(&owner);
	plans_drop();
	engine_close(engine);
	engine = NULL;
	close(wakeups);
	cpu_tuning_force(NULL);
}

void wait_done(size_t n)
{
	while (n_done < n) {
		uint64_t count;
		struct pollfd fd = { .fd = wakeups, .events = POLLIN };
		cr_assert_eq(poll(&fd, 1, 20000), 1, "%zu of %zu jobs came back", n_done, n);
		cr_assert_eq(read(wakeups, &count, sizeof(count)), (ssize_t)sizeof(count));
		engine_reap(engine);
	}
}

struct engine_memory *new_memory(uint64_t size)
{
	struct engine_memory *memory;
	struct error err;
	struct engine_export made;
	cr_assert_eq(engine_create(engine, REGION_KIND_MEMFD, size, &memory, &made, &err), 0, "%s",
	             err.message);
	close(made.fd);
	return memory;
}

char *data(struct engine_memory *memory)
{
	return host_memory(memory)->data;
}

void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src)
{
	struct transform_spec spec = {
		.n_perm = 2, .perm = { transposed, !transposed }, .n_before = -1, .n_after = -1
	};
	struct error err;
	int64_t shape[2] = { n, n };
	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err);
	cr_assert_eq(transform_init(&work->transform, &spec, &err), 0, "%s", err.message);
	work->job = (struct engine_job){ .move = { .transform = &work->transform,
		                                   .plan = plan_for(engine, &work->transform, 0, 0),
		                                   .dst = dst,
		                                   .src = src },
		                         .on_done = on_done };
}

void hold_thread(struct work *work, struct engine_stream *stream, struct engine_memory *dst,
                 struct engine_memory *src)
{
	atomic_store(&hold, true);
	work_init(work, 32, true, dst, src);
	engine_submit(engine, stream, &work->job);
	wait_done(1);
	n_done = 0;
}

void list_work_init(struct list_work *work, int64_t bytes, uint64_t n, uint32_t layers, bool scatter,
                    struct engine_memory *dst, struct engine_memory *src)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;
	uint64_t limit = (scatter ? dst : src)->size / (uint64_t)bytes / layers;
	tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, &bytes, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_UINT8, 1, &bytes, NULL, "src", &err);
	cr_assert_eq(transform_init(&work->transform, &spec, &err), 0, "%s", err.message);
	work->blocks = (struct engine_blocks){
		.n = n,
		.layers = layers,
		.scatter = scatter,
		.index_bytes = 4,
		.limit = limit,
		.dst = { .step = (uint64_t)bytes, .layer_step = (scatter ? limit : n) * (uint64_t)bytes },
		.src = { .step = (uint64_t)bytes, .layer_step = (scatter ? n : limit) * (uint64_t)bytes },
	};
	work->job = (struct engine_job){ .move = { .transform = &work->transform,
		                                   .plan = plan_for(engine, &work->transform, 0, 0),
		                                   .dst = dst,
		                                   .src = src },
		                         .blocks = &work->blocks,
		                         .on_done = on_done };
}

void break_memory(struct engine_memory *memory, size_t from)
{
	struct fault_range mapped = host_memory(memory)->mapped;
	int fd = memfd_create("short", 0);
	cr_assert_neq(mmap((char *)mapped.start + from, mapped.size - from, PROT_READ | PROT_WRITE,
	                   MAP_SHARED | MAP_FIXED, fd, 0),
	              MAP_FAILED);
	close(fd);
}
