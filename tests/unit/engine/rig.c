/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/run/tuning.h"
#include "kernels/process/process.h"
#include "tests/emulated/emulated.h"
#include "tests/support/prepared.h"
#ifdef HAVE_CUDA
#include "kernels/cuda/driver/driver.h"
#include "tests/softgpu/live.h"
#include "tests/support/small_limits.h"
#endif

static const struct config {
	const char *name;
	const char *opener;
	bool is_cuda, is_process, drives;
} configs[RIG_ENGINES] = {
	[RIG_CPU] = { "cpu", "cpu" },
	[RIG_CPU_PIECES] = { "cpu in pieces", "pieces" },
	[RIG_CPU_PROCESS] = { "cpu in a process", "cpu", .is_process = true },
	[RIG_CPU_PROCESS_NAPS] = { "cpu in a process, napping, driven", "naps", .is_process = true,
	                           .drives = true },
	[RIG_CUDA] = { "cuda", "small", .is_cuda = true },
	[RIG_CUDA_DRIVEN] = { "cuda, driven", "cuda", .is_cuda = true, .drives = true },
	[RIG_CUDA_PROCESS] = { "cuda in a process", "small", .is_cuda = true, .is_process = true },
};

struct engine *engine;
struct engine_owner owner;
char rig_text[160];
uint64_t rig_scratch_bytes = 64 << 10;

static const struct config *config;
static int wakeups; /* an eventfd that the engine signals when jobs have come back */

/* ---- Engines ------------------------------------------------------------------------------------------ */

static int open_tuned(uint32_t wait_words, struct engine **ret, const struct engine_options *options,
                      struct error *err)
{
	struct cpu_tuning tuning = cpu_tuning_get();

	tuning.inline_bytes = 0;
	tuning.piece_least = tuning.piece_most = 4096;
	tuning.wait_words = wait_words;
	cpu_tuning_force(&tuning);
	return engine_cpu_open(ret, options, err);
}

static int open_pieces(struct engine **ret, const struct engine_options *options, struct error *err)
{
	return open_tuned(cpu_tuning_get().wait_words, ret, options, err);
}

static int open_naps(struct engine **ret, const struct engine_options *options, struct error *err)
{
	return open_tuned(0, ret, options, err);
}

#ifdef HAVE_CUDA
static int open_small(struct engine **ret, const struct engine_options *options, struct error *err)
{
	struct cuda_limits limits = small_limits();

	limits.owner_bytes = 1 << 30;
	limits.scratch_bytes = rig_scratch_bytes;
	cuda_limits_force(&limits);
	return engine_cuda_open(ret, options, err);
}
#endif

static const struct engine_process_opener openers[] = {
	{ "cpu", engine_cpu_open },
	{ "pieces", open_pieces },
	{ "naps", open_naps },
#ifdef HAVE_CUDA
	{ "cuda", engine_cuda_open },
	{ "small", open_small },
#endif
	{ NULL, NULL },
};

/* Runs before Criterion parses the arguments, and turns this program into an engine's process if it was
 * started as one. */
__attribute__((constructor)) static void be_an_engine(int argc, char **argv)
{
	if (argc > 0 && engine_process_is_child(argv))
		exit(engine_process_run(openers));
}

bool rig_is_cuda(enum rig_engine which)
{
	return configs[which].is_cuda;
}

bool rig_is_process(enum rig_engine which)
{
	return configs[which].is_process;
}

/* Returns whether this build has the engine. An emulator renames processes, so that the program cannot be
 * started again as an engine's process. */
static bool is_built(const struct config *of)
{
#ifndef HAVE_CUDA
	if (of->is_cuda)
		return false;
#endif
	return !of->is_process || !emulated();
}

size_t rig_rows(struct row *rows, uint32_t n, bool (*suits)(enum rig_engine which, uint32_t i))
{
	size_t n_rows = 0;

	for (int which = 0; which < RIG_ENGINES; which++)
		for (uint32_t i = 0; i < n && is_built(&configs[which]); i++)
			if (!suits || suits((enum rig_engine)which, i))
				rows[n_rows++] = (struct row){ (enum rig_engine)which, i };
	return n_rows;
}

static void wake(void *arg)
{
	const uint64_t one = 1;

	cr_assert_eq(write(*(int *)arg, &one, sizeof one), (ssize_t)sizeof one);
}

void rig_open(enum rig_engine which, const char *name)
{
	struct engine_options options = { .threads = 2,
		                          .tensor_maps = 16,
		                          .plans = 64,
		                          .wake = wake,
		                          .wake_arg = &wakeups,
		                          .drives = configs[which].drives };
	const struct engine_process_opener *opener = openers;
	struct error err;

	config = &configs[which];
	snprintf(rig_text, sizeof rig_text, "%s%s%s", config->name, *name ? ": " : "", name);
	n_done = 0;
	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cr_assert_geq(wakeups, 0);
	options.wake_fd = wakeups;
	if (config->is_process) {
		cr_assert_eq(engine_process_start(&engine, config->opener, &options, &err), 0, "%s: %s",
		             rig_text, err.message);
		cr_assert_eq(engine_process_await(engine, &err), 0, "%s: %s", rig_text, err.message);
	} else {
		while (strcmp(opener->name, config->opener) != 0)
			opener++;
		cr_assert_eq(opener->open(&engine, &options, &err), 0, "%s: %s", rig_text, err.message);
	}
	engine_owner_init(&owner);
}

void rig_close(void)
{
	works_free();
	engine_owner_deinit(&owner);
	cr_assert_eq(atomic_load(&engine->memories), 0, "%s: %u memories are left", rig_text,
	             atomic_load(&engine->memories));
	cr_assert_not(engine->lost, "%s: %s", rig_text, engine->lost_why);
	engine_close(engine);
	engine = NULL;
	close(wakeups);
#ifdef HAVE_CUDA
	char live[1000];

	cr_assert_eq(softgpu_live(live, sizeof live), 0, "%s: %s", rig_text, live);
	driver_close();
#endif
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

struct memory memory_new(enum region_kind kind, uint64_t size)
{
	struct engine_export made = { .fd = -1 };
	struct memory ret = { .size = size };
	struct error err;

	cr_assert_eq(engine_create(engine, kind, size, &ret.of, &made, &err), 0, "%s: %s", rig_text,
	             err.message);
	ret.fd = made.fd;
	if (ret.of->host) {
		ret.bytes = ret.of->host;
	} else if (kind == REGION_KIND_CUDA_FD) { /* the stand-in driver's allocations are files */
		ret.mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
		cr_assert_neq(ret.mapped, MAP_FAILED);
		ret.bytes = ret.mapped;
	} else {
		cr_assert_not(config->is_process);
		ret.bytes = (unsigned char *)(uintptr_t)ret.of->address;
	}
	return ret;
}

struct memory memory_of_file(uint64_t size)
{
	struct memory ret = { .size = size, .fd = memfd_create("client", MFD_CLOEXEC) };
	struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = ret.fd, .size = size, .writable = true
	};
	struct error err;

	cr_assert_geq(ret.fd, 0);
	cr_assert_eq(ftruncate(ret.fd, (off_t)size), 0);
	ret.mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ret.fd, 0);
	cr_assert_neq(ret.mapped, MAP_FAILED);
	memset(ret.mapped, 0, size); /* leaves no holes in the file */
	ret.bytes = ret.mapped;
	cr_assert_eq(engine_map(engine, &handle, &ret.of, &err), 0, "%s: %s", rig_text, err.message);
	return ret;
}

void memory_free(struct memory *memory)
{
	if (memory->mapped)
		munmap(memory->mapped, memory->size);
	engine_unmap(engine, memory->of);
	if (memory->fd >= 0)
		close(memory->fd);
}

void layers_init(struct layers *ret, uint32_t n, const struct memory *memory, const uint64_t *offset)
{
	struct error err;

	for (uint32_t l = 0; l < n; l++) {
		const struct engine_memory *of = ret->memories[l] = memory[l].of;

		ret->places[l] = (struct layer_place){ .at = { .memory = { of->memory[0], of->memory[1] },
			                                       .base = of->base,
			                                       .offset = offset[l],
			                                       .size = of->size },
			                               .address = of->address + offset[l] };
	}
	ret->table = (struct layer_table){ .n = n,
		                           .places = ret->places,
		                           .memories = ret->memories,
		                           .noun = "table",
		                           .layers = ret->distances,
		                           .order = ret->order };
	cr_assert_eq(layer_table_init(&ret->table, "places", &err), 0, "%s", err.message);
}

enum region_kind memory_kind(void)
{
	return engine->kind;
}

static uint64_t *word_of(const struct memory *memory, uint64_t offset)
{
	return (uint64_t *)(void *)(memory->bytes + offset);
}

uint64_t word_get(const struct memory *memory, uint64_t offset)
{
	return __atomic_load_n(word_of(memory, offset), __ATOMIC_ACQUIRE);
}

void word_set(const struct memory *memory, uint64_t offset, uint64_t value)
{
	__atomic_store_n(word_of(memory, offset), value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word_of(memory, offset), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

struct engine_job *done[RIG_MOST_JOBS];
size_t n_done;

static struct engine_move *prepared;
static size_t n_prepared, room;

static void on_done(struct engine_job *job)
{
	struct work *work = (struct work *)job;

	cr_assert(work->is_submitted, "%s: a job came back twice", rig_text);
	work->is_submitted = false;
	done[n_done++ % RIG_MOST_JOBS] = job;
}

/* Keeps a copy of the move for works_free, which frees what was allocated for the move. */
static void keep(const struct engine_move *move)
{
	if (n_prepared == room) {
		room = room ? 2 * room : 64;
		prepared = realloc(prepared, room * sizeof *prepared);
		cr_assert(prepared);
	}
	prepared[n_prepared++] = *move;
}

void works_free(void)
{
	while (n_prepared > 0)
		prepared_free(&prepared[--n_prepared]);
	free(prepared);
	prepared = NULL;
	room = 0;
}

void work_init(struct work *work, const struct transform_spec *spec, struct engine_blocks *blocks,
               const struct memory *dst, uint64_t dst_offset, const struct memory *src, uint64_t src_offset)
{
	struct error err;

	*work = (struct work){ .job = { .move = { .dst = dst->of,
		                                  .src = src->of,
		                                  .dst_offset = dst_offset,
		                                  .src_offset = src_offset },
		                        .blocks = blocks,
		                        .on_done = on_done } };
	cr_assert_eq(prepare(engine, spec, blocks, &work->job.move, &err), 0, "%s: %s", rig_text,
	             err.message);
	keep(&work->job.move);
}

static void dense(struct transform_spec *ret, enum dtype dtype, int rank, const int64_t *shape,
                  bool transposed)
{
	struct error err;

	*ret = (struct transform_spec){ .n_perm = rank, .n_before = -1, .n_after = -1 };
	for (int d = 0; d < rank; d++)
		ret->perm[d] = transposed ? rank - 1 - d : d;
	tensor_layout_init(&ret->dst, dtype, rank, shape, NULL, "dst", &err);
	tensor_layout_init(&ret->src, dtype, rank, shape, NULL, "src", &err);
}

void work_init_square(struct work *work, int64_t n, bool transposed, const struct memory *dst,
                      const struct memory *src)
{
	struct transform_spec spec;

	dense(&spec, DTYPE_FLOAT32, 2, (int64_t[]){ n, n }, transposed);
	work_init(work, &spec, NULL, dst, 0, src, 0);
}

void work_init_copy(struct work *work, int64_t bytes, const struct memory *dst, uint64_t dst_offset,
                    const struct memory *src, uint64_t src_offset)
{
	struct transform_spec spec;

	dense(&spec, DTYPE_UINT8, 1, &bytes, false);
	work_init(work, &spec, NULL, dst, dst_offset, src, src_offset);
}

void work_init_batch(struct work *work, struct engine_move *moves, uint32_t n)
{
	*work = (struct work){ .job = { .moves = moves, .n_moves = n, .on_done = on_done } };
}

void submit(struct engine_stream *stream, struct work *work)
{
	const size_t before = n_done;

	cr_assert_not(work->is_submitted);
	work->is_submitted = true;
	engine_submit(engine, stream, &work->job);
	cr_assert_eq(n_done, before, "%s: a job came back before it was reaped", rig_text);
}

void drive(void)
{
	if (config->drives)
		engine_drive(engine, 0);
}

/* An owner reaps before it sleeps, and drives the engine if it has said that it would. */
void wait_done(size_t n)
{
	struct pollfd fd = { .fd = wakeups, .events = POLLIN };
	uint64_t count;

	for (;;) {
		if (config->drives)
			engine_drive(engine, 20000);
		engine_reap(engine);
		if (n_done >= n)
			return;
		if (config->drives && engine_drive(engine, 0))
			continue;
		cr_assert_eq(poll(&fd, 1, 60000), 1, "%s: %zu of %zu jobs came back", rig_text, n_done, n);
		cr_assert_eq(read(wakeups, &count, sizeof count), (ssize_t)sizeof count);
	}
}

int run(struct engine_stream *stream, struct work *work)
{
	n_done = 0;
	submit(stream, work);
	wait_done(1);
	return work->job.status;
}

void cancel(struct engine_stream *stream, struct work *work)
{
	while (!engine_cancel(engine, stream, &work->job)) {
		cr_assert(config->is_process, "%s: it was not cancelled", rig_text);
		engine_reap(engine);
		if (!work->is_submitted)
			return;
		poll(NULL, 0, 10);
	}
}
