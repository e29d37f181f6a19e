/* The engine as its owner sees it: order within a stream, streams side by side, cancelling, failing memory,
 * and that it sleeps when there is nothing to do. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/tuning.h"
#include "kernels/engine.h"

#define MOST_JOBS 512

static struct engine *engine;
static struct engine_owner owner;
static int wakeups; /* an eventfd */

static struct engine_job *done[MOST_JOBS];
static size_t n_done;

static atomic_bool hold; /* a thread of the engine's that wakes the owner stays in wake */
static pthread_t submitter;

static void wake(void *arg)
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

/* Everything small enough to be looked at goes to the threads, in many pieces. */
static void open_engine(uint32_t threads, int64_t inline_bytes)
{
	struct cpu_tuning tuning = cpu_tuning_get();
	struct engine_options options = { .threads = threads, .wake = wake, .wake_arg = &wakeups };
	struct error err;
	tuning.inline_bytes = inline_bytes;
	tuning.piece_least = tuning.piece_most = 4096;
	cpu_tuning_force(&tuning);
	submitter = pthread_self();
	wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cr_assert_geq(wakeups, 0);
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0, "%s", err.message);
	engine_owner_init(&owner);
}

static void close_engine(void)
{
	engine_owner_deinit(&owner);
	engine_close(engine);
	engine = NULL;
	close(wakeups);
	cpu_tuning_force(NULL);
}

static void wait_done(size_t n)
{
	while (n_done < n) {
		uint64_t count;
		struct pollfd fd = { .fd = wakeups, .events = POLLIN };
		cr_assert_eq(poll(&fd, 1, 20000), 1, "%zu of %zu jobs came back", n_done, n);
		cr_assert_eq(read(wakeups, &count, sizeof(count)), (ssize_t)sizeof(count));
		engine_reap(engine);
	}
}

static struct engine_memory *new_memory(uint64_t size)
{
	struct engine_memory *memory;
	struct error err;
	int fd;
	cr_assert_eq(engine_create(engine, size, &memory, &fd, &err), 0, "%s", err.message);
	close(fd);
	return memory;
}

static char *data(struct engine_memory *memory)
{
	return cpu_memory(memory)->data;
}

/* A job with its transform and plan, of float32 [n, n]; perm 1, 0 when transposed. */
struct work {
	struct engine_job job;
	struct transform transform;
	struct plan plan;
};

static void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
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
	plan_init(&work->plan, &work->transform, &engine->facts);
	work->job = (struct engine_job){
		.transform = &work->transform, .plan = &work->plan, .dst = dst, .src = src, .on_done = on_done
	};
}

/* Keeps the only thread in wake until hold is false again; everything submitted meanwhile is there when it
 * comes back. */
static void hold_thread(struct work *work, struct engine_stream *stream, struct engine_memory *dst,
                        struct engine_memory *src)
{
	atomic_store(&hold, true);
	work_init(work, 32, true, dst, src);
	engine_submit(engine, stream, &work->job);
	wait_done(1);
	n_done = 0;
}

Test(engine, says_what_it_is)
{
	struct engine_options options = { .threads = 3, .wake = wake, .wake_arg = &wakeups };
	struct error err;
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0);
	cr_assert_str_eq(engine->name, "cpu");
	cr_assert_not_null(strstr(engine->device, ", 3 threads"), "%s", engine->device);
	cr_assert_not_null(strstr(engine->device, cpu_isa_best()->name), "%s", engine->device);
	cr_assert_eq(engine->facts.threads, 3);
	cr_assert_eq(engine->kind, REGION_KIND_MEMFD);
	engine_close(engine);
	options.threads = 0;
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0);
	cr_assert_geq(engine->facts.threads, 1);
	engine_close(engine);
	engine_close(NULL);
}

struct order_row {
	char name[24];
	uint32_t threads;
	int64_t inline_bytes;
	int64_t n;
};

/* A chain of jobs of which each needs the one before: A to B transposed, B to C, C to A, ... */
ParameterizedTestParameters(engine, order_in_a_stream)
{
	static struct order_row rows[] = {
		{ "one thread", 1, 0, 100 },
		{ "four threads", 4, 0, 100 },
		{ "where submitted", 2, 1 << 20, 100 },
		{ "large", 3, 0, 700 },
		{ "one element", 2, 0, 1 },
		{ "no element", 2, 0, 0 },
	};
	return cr_make_param_array(struct order_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct order_row *row, engine, order_in_a_stream)
{
	enum { JOBS = 61 };
	struct work *work = calloc(JOBS, sizeof(*work));
	struct engine_memory *memory[3];
	size_t count = (size_t)(row->n * row->n);
	open_engine(row->threads, row->inline_bytes);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	for (int i = 0; i < 3; i++)
		memory[i] = new_memory(count * 4 + 4);
	uint32_t *start = calloc(count + 1, 4);
	for (size_t i = 0; i < count; i++)
		start[i] = (uint32_t)i + 1;
	memcpy(data(memory[0]), start, count * 4);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], row->n, i % 2 == 0, memory[(i + 1) % 3], memory[i % 3]);
		engine_submit(engine, stream, &work[i].job);
	}
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "%s: job %d came out of order", row->name, i);
		cr_assert_eq(work[i].job.status, 0, "%s: job %d", row->name, i);
	}
	const uint32_t *last = (const uint32_t *)data(memory[JOBS % 3]);
	for (int64_t r = 0; r < row->n; r++) /* 31 transposes */
		for (int64_t c = 0; c < row->n; c++)
			cr_assert_eq(last[r * row->n + c], start[c * row->n + r], "%s: [%ld, %ld]", row->name,
			             (long)r, (long)c);
	cr_assert_eq(((uint32_t *)data(memory[JOBS % 3]))[count], 0, "%s", row->name);
	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
	free(start);
	free(work);
}

/* Streams at once, each a chain of its own. */
Test(engine, many_streams)
{
	enum { STREAMS = 24, JOBS = 20, N = 90 };
	struct work *work = calloc(STREAMS * JOBS, sizeof(*work));
	struct engine_stream *stream[STREAMS];
	struct engine_memory *memory[STREAMS][2];
	open_engine(4, 0);
	for (int s = 0; s < STREAMS; s++) {
		stream[s] = engine_stream_new(engine, &owner);
		memory[s][0] = new_memory(N * N * 4);
		memory[s][1] = new_memory(N * N * 4);
		for (int i = 0; i < N * N; i++)
			((uint32_t *)data(memory[s][0]))[i] = (uint32_t)(s * 100000 + i);
	}
	for (int j = 0; j < JOBS; j++)
		for (int s = 0; s < STREAMS; s++) {
			struct work *w = &work[s * JOBS + j];
			work_init(w, N, true, memory[s][(j + 1) % 2], memory[s][j % 2]);
			engine_submit(engine, stream[s], &w->job);
		}
	wait_done(STREAMS * JOBS);
	for (int s = 0; s < STREAMS; s++) {
		for (int i = 0; i < N * N; i++)
			cr_assert_eq(((uint32_t *)data(memory[s][JOBS % 2]))[i], (uint32_t)(s * 100000 + i),
			             "stream %d, element %d", s, i);
		engine_stream_free(engine, stream[s]);
		engine_unmap(engine, memory[s][0]);
		engine_unmap(engine, memory[s][1]);
	}
	close_engine();
	free(work);
}

/* With one thread, a small job submitted after a large one on another stream comes back first. */
Test(engine, streams_share)
{
	static struct work first, large, small;
	open_engine(1, 0);
	struct engine_stream *a = engine_stream_new(engine, &owner), *b = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(2048 * 2048 * 4), *src = new_memory(2048 * 2048 * 4);
	struct engine_memory *other = new_memory(64 * 64 * 4);
	work_init(&large, 2048, true, dst, src);
	work_init(&small, 64, false, other, src);
	hold_thread(&first, a, other, src);
	engine_submit(engine, a, &large.job);
	engine_submit(engine, b, &small.job);
	atomic_store(&hold, false);
	wait_done(2);
	cr_assert_eq(done[0], &small.job);
	cr_assert_gt(large.job.ns, 0);
	engine_stream_free(engine, a);
	engine_stream_free(engine, b);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, other);
	close_engine();
}

/* With one thread, one owner's many streams are one share: who has one stream and comes last still has half.
 */
Test(engine, owners_share)
{
	enum { STREAMS = 50, N = 512 };
	static struct work flood[STREAMS], polite;
	struct engine_stream *streams[STREAMS];
	struct engine_owner other;
	open_engine(1, 0);
	engine_owner_init(&other);
	struct engine_stream *stream = engine_stream_new(engine, &other);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	struct engine_memory *other_dst = new_memory(N * N * 4);
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = engine_stream_new(engine, &owner);
		work_init(&flood[i], N, true, dst, src);
		engine_submit(engine, streams[i], &flood[i].job);
	}
	work_init(&polite, N, true, other_dst, src);
	engine_submit(engine, stream, &polite.job);
	wait_done(STREAMS + 1);
	size_t before = 0;
	while (done[before] != &polite.job)
		before++;
	cr_assert_lt(before, STREAMS / 2, "%zu of the other owner's %d jobs came first", before, STREAMS);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, streams[i]);
	engine_stream_free(engine, stream);
	engine_owner_deinit(&other);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, other_dst);
	close_engine();
}

Test(engine, an_owner_outlives_its_streams, .signal = SIGABRT)
{
	open_engine(1, 0);
	engine_stream_new(engine, &owner);
	engine_owner_deinit(&owner);
}

/* The only thread is held, so that no job of the stream can begin before it is cancelled. */
Test(engine, cancel_before_it_runs)
{
	enum { JOBS = 8, N = 100 };
	struct work *work = calloc(JOBS + 2, sizeof(*work));
	open_engine(1, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner),
			     *other = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	memset(data(src), 1, N * N * 4);
	struct engine_memory *aside = new_memory(N * N * 4);
	hold_thread(&work[JOBS], other, aside, src);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], N, true, dst, src);
		engine_submit(engine, stream, &work[i].job);
	}
	engine_stream_cancel(engine, stream);
	engine_stream_cancel(engine, other); /* has nothing */
	atomic_store(&hold, false);
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "job %d", i);
		cr_assert_eq(work[i].job.status, STATUS_CANCELED, "job %d: %d", i, work[i].job.status);
	}
	for (int i = 0; i < N * N * 4; i++)
		cr_assert_eq(data(dst)[i], 0);

	/* The stream is as good as new. */
	work_init(&work[JOBS + 1], N, true, dst, src);
	engine_submit(engine, stream, &work[JOBS + 1].job);
	wait_done(JOBS + 1);
	cr_assert_eq(work[JOBS + 1].job.status, 0);
	cr_assert_eq(data(dst)[N * N * 4 - 1], 1);
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	engine_unmap(engine, aside);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
	free(work);
}

/* Wherever the threads are when it comes: what had ended has ended well, the rest is cancelled, in order. */
Test(engine, cancel_while_it_runs)
{
	enum { JOBS = 8, N = 1000, ROUNDS = 20 };
	struct work *work = calloc(JOBS, sizeof(*work));
	open_engine(2, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	for (int round = 0; round < ROUNDS; round++) {
		n_done = 0;
		for (int i = 0; i < JOBS; i++) {
			work_init(&work[i], N, true, dst, src);
			engine_submit(engine, stream, &work[i].job);
		}
		usleep((useconds_t)(round * 100));
		engine_stream_cancel(engine, stream);
		wait_done(JOBS);
		for (int i = 0; i < JOBS; i++) {
			int status = work[i].job.status;
			cr_assert_eq(done[i], &work[i].job, "round %d, job %d", round, i);
			cr_assert(status == STATUS_CANCELED ||
			              (status == 0 && (i == 0 || !work[i - 1].job.status)),
			          "round %d, job %d: %d", round, i, status);
		}
	}
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
	free(work);
}

/* Takes the second half of a mapping away, as a hole punched when memory is short would. */
static void break_half(struct engine_memory *memory)
{
	struct fault_range mapped = cpu_memory(memory)->mapped;
	size_t half = mapped.size / 2;
	int fd = memfd_create("short", 0);
	cr_assert_neq(
	    mmap((char *)mapped.start + half, half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
	    MAP_FAILED);
	close(fd);
}

struct fault_row {
	char name[24];
	int64_t inline_bytes;
	bool source;
};

ParameterizedTestParameters(engine, memory_that_fails)
{
	static struct fault_row rows[] = {
		{ "source, threads", 0, true },
		{ "destination, threads", 0, false },
		{ "source, inline", 1 << 20, true },
		{ "destination, inline", 1 << 20, false },
	};
	return cr_make_param_array(struct fault_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct fault_row *row, engine, memory_that_fails)
{
	static struct work bad, good;
	enum { N = 256 };
	open_engine(2, row->inline_bytes);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	struct engine_memory *broken = new_memory(N * N * 4);
	break_half(broken);
	work_init(&bad, N, true, row->source ? dst : broken, row->source ? broken : src);
	work_init(&good, N, true, dst, src);
	engine_submit(engine, stream, &bad.job);
	engine_submit(engine, stream, &good.job);
	wait_done(2);
	cr_assert_eq(bad.job.status, STATUS_DEVICE, "%s: %d", row->name, bad.job.status);
	cr_assert_eq(good.job.status, 0, "%s: %d", row->name, good.job.status);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, broken);
	close_engine();
}

/* A read-only source, mapped at an odd offset of the memfd that is the destination too. */
Test(engine, read_only_source_in_the_same_memory)
{
	static struct work work;
	struct error err;
	struct engine_memory *dst, *src;
	int fd;
	open_engine(2, 0);
	cr_assert_eq(engine_create(engine, 100000, &dst, &fd, &err), 0);
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .fd = fd, .offset = 50001, .size = 40000 };
	cr_assert_eq(engine_map(engine, &handle, &src, &err), 0, "%s", err.message);
	close(fd);
	cr_assert_eq(src->memory[1], dst->memory[1]);
	for (int i = 0; i < 40000; i++)
		data(dst)[50001 + i] = (char)(i * 7);
	work_init(&work, 100, false, dst, src);
	work.job.dst_offset = 3;
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_arr_eq(data(dst) + 3, data(dst) + 50001, 40000);
	cr_assert_eq(data(dst)[2], 0);
	cr_assert_eq(data(dst)[40003], 0);
	engine_stream_free(engine, stream);
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	close_engine();
}

/* One wake for a queue of finished jobs; another only after it was reaped. */
Test(engine, wakes_once_a_queue)
{
	enum { JOBS = 10 };
	static struct work work[2 * JOBS];
	uint64_t count;
	open_engine(1, 1 << 20);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(4096), *src = new_memory(4096);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < JOBS; i++) {
			work_init(&work[round * JOBS + i], 8, true, dst, src);
			engine_submit(engine, stream, &work[round * JOBS + i].job);
		}
		cr_assert_eq(n_done, (size_t)round * JOBS, "on_done is called from reap alone");
		cr_assert_eq(read(wakeups, &count, sizeof(count)), (ssize_t)sizeof(count));
		cr_assert_eq(count, 1, "round %d: %d wakes", round, (int)count);
		engine_reap(engine);
		cr_assert_eq(n_done, (size_t)(round + 1) * JOBS);
	}
	engine_reap(engine);
	cr_assert_eq(n_done, 2 * JOBS);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Test(engine, sleeps_when_idle)
{
	static struct work work;
	open_engine(4, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(1 << 20), *src = new_memory(1 << 20);
	work_init(&work, 512, true, dst, src);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	usleep(20000);
	double before = cpu_seconds();
	usleep(200000);
	cr_assert_lt(cpu_seconds() - before, 0.005);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}
