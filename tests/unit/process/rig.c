/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the rig: it opens and closes engines, makes jobs and receives them when they have ended. */
#include "rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/process/front.h"
#include "tests/emulated/emulated.h"
#include "tests/support/plans.h"

static void wake(void *arg);
static void be_a_front(void);

/* Runs before Criterion parses the arguments, and turns this program into an engine's process or a front if
 * it was started as one. */
__attribute__((constructor)) static void be_another(int argc, char **argv)
{
	if (emulated()) {
		puts("1..0 # SKIP an emulator has its own way with the names of processes");
		exit(0);
	}
	if (argc > 0 && engine_process_is_child(argv))
		exit(engine_process_run(rig_openers));
	if (argc > 0 && strcmp(argv[0], RIG_FRONT) == 0)
		be_a_front();
}

/* Writes the pid of the process that it has started to standard output, and waits to be killed. */
static void be_a_front(void)
{
	static struct rig rig;
	struct engine_options options = { .threads = 1, .wake = wake, .wake_arg = &rig };
	struct error err;
	pid_t pid;

	options.wake_fd = rig.wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine_process_start(&rig.engine, rig_openers[0].name, &options, &err) < 0 ||
	    engine_process_await(rig.engine, &err) < 0)
		exit(1);
	pid = rig_child(&rig);
	if (write(STDOUT_FILENO, &pid, sizeof pid) == (ssize_t)sizeof pid)
		pause();
	exit(1);
}

static void wake(void *arg)
{
	const struct rig *rig = arg;
	const uint64_t one = 1;

	cr_assert_eq(write(rig->wakeups, &one, sizeof one), (ssize_t)sizeof one);
}

static void on_done(struct engine_job *job)
{
	struct work *work = (struct work *)job;

	work->rig->n_done++;
}

/* ---- Engines ------------------------------------------------------------------------------------------ */

static struct engine_options init(struct rig *rig, const struct engine_options *options)
{
	struct engine_options all = options ? *options : (struct engine_options){ .threads = 2 };

	all.wake = wake;
	all.wake_arg = rig;
	*rig = (struct rig){ .wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .drives = all.drives };
	cr_assert_gt(rig->wakeups, 0);
	all.wake_fd = rig->wakeups;
	engine_owner_init(&rig->owner);
	return all;
}

void rig_open_here(struct rig *rig, const char *name, const struct engine_options *options)
{
	const struct engine_options all = init(rig, options);
	const struct engine_process_opener *opener = rig_openers;
	struct error err;

	while (strcmp(opener->name, name) != 0)
		opener++;
	cr_assert_eq(opener->open(&rig->engine, &all, &err), 0, "%s", err.message);
}

void rig_start(struct rig *rig, const char *name, const struct engine_options *options)
{
	const struct engine_options all = init(rig, options);
	struct error err;

	cr_assert_eq(engine_process_start(&rig->engine, name, &all, &err), 0, "%s", err.message);
}

void rig_await(struct rig *rig)
{
	struct error err;

	cr_assert_eq(engine_process_await(rig->engine, &err), 0, "%s", err.message);
}

void rig_open(struct rig *rig, const char *name, const struct engine_options *options)
{
	rig_start(rig, name, options);
	rig_await(rig);
}

pid_t rig_child(const struct rig *rig)
{
	struct front *front = (struct front *)rig->engine;
	pid_t pid;

	pthread_mutex_lock(&front->lock);
	pid = front->child ? front->child->pid : 0;
	pthread_mutex_unlock(&front->lock);
	return pid;
}

void rig_close(struct rig *rig)
{
	engine_owner_deinit(&rig->owner);
	plans_drop();
	engine_close(rig->engine);
	close(rig->wakeups);
}

/* ---- The owner's turns -------------------------------------------------------------------------------- */

void rig_turn(struct rig *rig, int ms)
{
	struct pollfd fd = { .fd = rig->wakeups, .events = POLLIN };
	uint64_t count;

	if (rig->drives && engine_drive(rig->engine, 20000)) {
		engine_reap(rig->engine);
		engine_drive(rig->engine, 0);
		ms = 0;
	}
	if (poll(&fd, 1, ms) == 1)
		cr_assert_eq(read(rig->wakeups, &count, sizeof count), (ssize_t)sizeof count);
	engine_reap(rig->engine);
}

void rig_wait(struct rig *rig, uint64_t n)
{
	while (rig->n_done < n) {
		const uint64_t before = rig->n_done;
		struct pollfd fd = { .fd = rig->wakeups, .events = POLLIN };

		rig_turn(rig, 0);
		if (rig->n_done == before && rig->n_done < n && !rig->drives)
			cr_assert_eq(poll(&fd, 1, 60000), 1, "%lu of %lu jobs came back",
			             (unsigned long)rig->n_done, (unsigned long)n);
	}
}

void rig_wait_for_return(struct rig *rig, uint32_t losses)
{
	for (int i = 0; rig->engine->losses < losses || rig->engine->lost; i++) {
		rig_turn(rig, 100);
		cr_assert_lt(i, 10000, "the engine does not come back: %s", rig->engine->lost_why);
	}
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

struct engine_memory *rig_make(struct rig *rig, enum region_kind kind, uint64_t size)
{
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;

	cr_assert_eq(engine_create(rig->engine, kind, size, &memory, &made, &err), 0, "%s", err.message);
	if (made.fd >= 0)
		close(made.fd);
	return memory;
}

int rig_file(uint64_t size)
{
	const int fd = memfd_create("rig", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	cr_assert_eq(posix_fallocate(fd, 0, (off_t)size), 0);
	return fd;
}

struct engine_memory *rig_map(struct rig *rig, int fd, uint64_t size)
{
	const struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = fd, .size = size, .writable = true
	};
	struct engine_memory *memory;
	struct error err;

	cr_assert_eq(engine_map(rig->engine, &handle, &memory, &err), 0, "%s", err.message);
	return memory;
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

void work_init_spec(struct work *work, struct rig *rig, const struct transform_spec *spec,
                    struct engine_memory *dst, uint64_t dst_offset, struct engine_memory *src,
                    uint64_t src_offset)
{
	const uint64_t to = dst->base + dst_offset, from = src->base + src_offset;
	struct error err;

	memset(work, 0, sizeof *work);
	cr_assert_eq(transform_init(&work->transform, spec, &err), 0, "%s", err.message);
	work->rig = rig;
	work->job = (struct engine_job){ .move = { .transform = &work->transform,
		                                   .plan = plan_for(rig->engine, &work->transform, to, from),
		                                   .dst = dst,
		                                   .src = src,
		                                   .dst_offset = dst_offset,
		                                   .src_offset = src_offset },
		                         .on_done = on_done };
}

static void init_dense(struct work *work, struct rig *rig, int rank, const int64_t *shape, enum dtype dtype,
                       bool transposed, struct engine_memory *dst, uint64_t dst_offset,
                       struct engine_memory *src, uint64_t src_offset)
{
	struct transform_spec spec = { .n_perm = rank, .n_before = -1, .n_after = -1 };
	struct error err;

	for (int i = 0; i < rank; i++)
		spec.perm[i] = transposed ? rank - 1 - i : i;
	tensor_layout_init(&spec.dst, dtype, rank, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, dtype, rank, shape, NULL, "src", &err);
	work_init_spec(work, rig, &spec, dst, dst_offset, src, src_offset);
}

void work_init(struct work *work, struct rig *rig, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src)
{
	init_dense(work, rig, 2, (int64_t[]){ n, n }, DTYPE_FLOAT32, transposed, dst, 0, src, 0);
}

void work_init_copy(struct work *work, struct rig *rig, int64_t bytes, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset)
{
	init_dense(work, rig, 1, &bytes, DTYPE_UINT8, false, dst, dst_offset, src, src_offset);
}
