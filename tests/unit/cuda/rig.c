/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rig: it opens and closes the engine, makes jobs and receives them when they have ended. */
#include "rig.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "tests/softgpu/live.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"

struct engine *engine;
struct engine_owner owner;
int wakeups;

struct engine_job *done[MOST_JOBS];
size_t n_done;

static void wake(void *arg)
{
	uint64_t one = 1;
	cr_assert_eq(*(int *)arg, wakeups);
	cr_assert_eq(write(wakeups, &one, sizeof one), (ssize_t)sizeof one);
}

static void on_done(struct engine_job *job)
{
	done[n_done++] = job;
}

static void open_with(const struct cuda_limits *limits, struct engine_options options)
{
	struct error err;

	options.tensor_maps = 16;
	options.plans = 64;
	options.wake = wake;
	options.wake_arg = &wakeups;
	cuda_limits_force(limits);
	n_done = 0;
	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cr_assert_geq(wakeups, 0);
	cr_assert_eq(engine_cuda_open(&engine, &options, &err), 0, "%s", err.message);
	engine_owner_init(&owner);
}

void open_engine(const struct cuda_limits *limits)
{
	open_with(limits, (struct engine_options){ 0 });
}

void open_driven_engine(const struct cuda_limits *limits)
{
	open_with(limits, (struct engine_options){ .drives = true });
}

void close_engine(void)
{
	char live[1000];
	engine_owner_deinit(&owner);
	plans_drop();
	engine_close(engine);
	engine = NULL;
	close(wakeups);
	cr_assert_eq(softgpu_live(live, sizeof live), 0, "%s", live);
	driver_close();
	cuda_limits_force(NULL);
}

void wait_done(size_t n)
{
	while (n_done < n) {
		uint64_t count;
		struct pollfd fd = { .fd = wakeups, .events = POLLIN };
		cr_assert_eq(poll(&fd, 1, 60000), 1, "%zu of %zu jobs came back", n_done, n);
		cr_assert_eq(read(wakeups, &count, sizeof count), (ssize_t)sizeof count);
		engine_reap(engine);
	}
}

struct engine_memory *new_memory(enum region_kind kind, uint64_t size)
{
	struct engine_memory *memory;
	struct engine_export export;
	struct error err;
	cr_assert_eq(engine_create(engine, kind, size, &memory, &export, &err), 0, "%s", err.message);
	if (export.fd >= 0)
		close(export.fd);
	return memory;
}

unsigned char *data(struct engine_memory *memory)
{
	return (unsigned char *)cuda_memory(memory)->address;
}

void work_init_spec(struct work *work, const struct transform_spec *spec, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset)
{
	uint64_t to = dst->base + dst_offset, from = src->base + src_offset;
	struct error err;
	cr_assert_eq(transform_init(&work->transform, spec, &err), 0, "%s", err.message);
	work->job = (struct engine_job){ .move = { .transform = &work->transform,
		                                   .plan = plan_for(engine, &work->transform, to, from),
		                                   .dst = dst,
		                                   .src = src,
		                                   .dst_offset = dst_offset,
		                                   .src_offset = src_offset },
		                         .on_done = on_done };
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
	work_init_spec(work, &spec, dst, 0, src, 0);
}

struct cuda_limits random_pack_limits(uint64_t *state)
{
	struct cuda_limits limits = small_limits();

	limits.owner_bytes = 1 << 30;
	limits.scratch_bytes = UINT64_C(16384) << oracle_between(state, 0, 8);
	limits.pack_threads = (uint32_t)oracle_between(state, 1, 3);
	limits.pack_slots = (uint32_t)oracle_between(state, 1, 6);
	limits.pack_slot_bytes = (uint64_t)oracle_between(state, 1, 5000);
	limits.pack_least_bytes = 0;
	limits.pack_run_bytes = 1;
	limits.pack_piece_bytes = UINT64_C(1) << oracle_between(state, 0, 16);
	limits.pack_stretch_bytes = UINT64_C(1) << oracle_between(state, 4, 20);
	return limits;
}
