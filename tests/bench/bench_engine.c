/* The CPU engine against memcpy: the same number of bytes, the same threads, the same run.
 *
 *   bench_engine [THREADS [PATTERN]]
 *
 * PATTERN picks rows by a part of their name. Each figure is the median of RUNS; GB/s counts bytes read plus
 * bytes written. memcpy works on memory of the engine's own making, one stretch a thread; the two take turns,
 * so that both meet the same machine.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/memory.h"
#include "kernels/engine.h"

#define RUNS        7
#define MAX_THREADS 256

/* A copy of fewer bytes is done sooner than threads are made: it is timed on one. */
#define SINGLE_BYTES (1 << 20)

struct row {
	const char *name;
	enum dtype dtype;
	int rank;
	int64_t shape[5]; /* of the source */
	int64_t perm[5];
	int64_t pad[5]; /* on both sides */
	bool repeated;  /* source dimension 0 has stride 0 */
	bool reversed;  /* the last source dimension runs backwards */
};

#define TRANSPOSE_2D(label, type, a, b)                                                              \
	{                                                                                            \
		.name = label, .dtype = DTYPE_##type, .rank = 2, .shape = { a, b }, .perm = { 1, 0 } \
	}

static const struct row rows[] = {
	TRANSPOSE_2D("transpose 1 byte  16384x16384", UINT8, 16384, 16384),
	TRANSPOSE_2D("transpose 2 bytes 8192x16384", FLOAT16, 8192, 16384),
	TRANSPOSE_2D("transpose 4 bytes 8192x8192", FLOAT32, 8192, 8192),
	TRANSPOSE_2D("transpose 8 bytes 4096x8192", FLOAT64, 4096, 8192),
	TRANSPOSE_2D("transpose 16 bytes 4096x4096", COMPLEX128, 4096, 4096),
	TRANSPOSE_2D("transpose 1 byte  16383x16385", UINT8, 16383, 16385),
	TRANSPOSE_2D("transpose 2 bytes 8191x16385", FLOAT16, 8191, 16385),
	TRANSPOSE_2D("transpose 4 bytes 8191x8193", FLOAT32, 8191, 8193),
	TRANSPOSE_2D("transpose 8 bytes 4095x8193", FLOAT64, 4095, 8193),
	TRANSPOSE_2D("transpose 16 bytes 4095x4097", COMPLEX128, 4095, 4097),
	TRANSPOSE_2D("transpose 4 bytes 1000x1000", FLOAT32, 1000, 1000),
	TRANSPOSE_2D("transpose 4 bytes 128x128", FLOAT32, 128, 128),
	TRANSPOSE_2D("transpose 4 bytes 3x8000000", FLOAT32, 3, 8000000),
	TRANSPOSE_2D("transpose 4 bytes 8000000x3", FLOAT32, 8000000, 3),
	{ .name = "NHWC->NCHW f32 [64,56,56,256]",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .shape = { 64, 56, 56, 256 },
	  .perm = { 0, 3, 1, 2 } },
	{ .name = "NCHW->NHWC u8 [256,3,224,224]",
	  .dtype = DTYPE_UINT8,
	  .rank = 4,
	  .shape = { 256, 3, 224, 224 },
	  .perm = { 0, 2, 3, 1 } },
	{ .name = "swap 0,1 f16 [512,64,16,128]",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .shape = { 512, 64, 16, 128 },
	  .perm = { 1, 0, 2, 3 } },
	{ .name = "copy f32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 0, 1 } },
	{ .name = "pad f32 [64,256,56,56] by 1",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .shape = { 64, 256, 56, 56 },
	  .perm = { 0, 1, 2, 3 },
	  .pad = { 0, 0, 1, 1 } },
	{ .name = "pad f32 8000x8000 by 100",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8000, 8000 },
	  .perm = { 0, 1 },
	  .pad = { 100, 100 } },
	{ .name = "pad all f32 [1,1] by 4000",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 1, 1 },
	  .perm = { 0, 1 },
	  .pad = { 4000, 4000 } },
	{ .name = "broadcast f32 [8192,8192], rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 0, 1 },
	  .repeated = true },
	{ .name = "broadcast f32 [8192,8192], columns",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 1, 0 },
	  .repeated = true },
	{ .name = "reversed f32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 0, 1 },
	  .reversed = true },
	{ .name = "reversed transpose f32 8192x8192",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 8192, 8192 },
	  .perm = { 1, 0 },
	  .reversed = true },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static bool awake;
static bool finished;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *seconds)
{
	qsort(seconds, RUNS, sizeof(*seconds), compare);
	return seconds[RUNS / 2];
}

static void fail(const char *name, const struct error *err)
{
	fprintf(stderr, "bench_engine: %s: %s\n", name, err->message);
	exit(1);
}

/* ---- memcpy ----------------------------------------------------------------------------------------- */

struct stretch {
	char *dst;
	const char *src;
	size_t n;
	pthread_t thread;
};

static void *copy_stretch(void *arg)
{
	struct stretch *s = arg;
	memcpy(s->dst, s->src, s->n);
	return NULL;
}

static double time_memcpy(char *dst, const char *src, size_t n, unsigned threads)
{
	struct stretch stretch[MAX_THREADS];
	double start = now();
	for (unsigned i = 0; i < threads; i++) {
		size_t from = n / threads * i;
		stretch[i] =
		    (struct stretch){ dst + from, src + from, i + 1 < threads ? n / threads : n - from, 0 };
		if (i + 1 < threads)
			pthread_create(&stretch[i].thread, NULL, copy_stretch, &stretch[i]);
		else
			copy_stretch(&stretch[i]);
	}
	for (unsigned i = 0; i + 1 < threads; i++)
		pthread_join(stretch[i].thread, NULL);
	return now() - start;
}

/* ---- The engine ------------------------------------------------------------------------------------- */

static void wake(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	awake = true;
	pthread_cond_signal(&woken);
	pthread_mutex_unlock(&lock);
}

static void on_done(struct engine_job *job)
{
	(void)job;
	finished = true;
}

static double time_engine(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	double start = now();
	finished = false;
	engine_submit(engine, stream, job);
	while (!finished) {
		pthread_mutex_lock(&lock);
		while (!awake)
			pthread_cond_wait(&woken, &lock);
		awake = false;
		pthread_mutex_unlock(&lock);
		engine_reap(engine);
	}
	if (job->status) {
		fprintf(stderr, "bench_engine: a job ended with %s\n", status_name(job->status));
		exit(1);
	}
	return now() - start;
}

static void row_spec(const struct row *row, struct transform_spec *spec, int64_t *ret_src_first)
{
	int64_t stride[5], shape[5];
	int64_t step = 1;
	struct error err;
	*spec = (struct transform_spec){ .n_perm = row->rank, .n_before = row->rank, .n_after = row->rank };
	for (int d = row->rank - 1; d >= 0; d--) {
		stride[d] = row->repeated && d == 0 ? 0 : step;
		step *= row->shape[d];
	}
	*ret_src_first = 0;
	if (row->reversed) {
		stride[row->rank - 1] = -1;
		*ret_src_first = row->shape[row->rank - 1] - 1;
	}
	for (int d = 0; d < row->rank; d++) {
		spec->perm[d] = row->perm[d];
		spec->before[d] = spec->after[d] = row->pad[d];
		shape[d] = row->shape[row->perm[d]] + 2 * row->pad[d];
	}
	if (tensor_layout_init(&spec->src, row->dtype, row->rank, row->shape, stride, "src", &err) < 0 ||
	    tensor_layout_init(&spec->dst, row->dtype, row->rank, shape, NULL, "dst", &err) < 0)
		fail(row->name, &err);
}

/* Memory that is not all one value, and none of it zero pages. */
static struct engine_memory *new_memory(struct engine *engine, size_t size)
{
	struct engine_memory *memory;
	struct error err;
	struct engine_export made;
	if (engine_create(engine, REGION_KIND_MEMFD, size, &memory, &made, &err) < 0)
		fail("memory", &err);
	for (size_t at = 0; at < size; at += 4096) {
		uint64_t value = at * 0x9e3779b97f4a7c15u;
		if (pwrite(made.fd, &value, sizeof(value) < size - at ? sizeof(value) : size - at,
		           (off_t)at) < 0)
			exit(1);
	}
	close(made.fd);
	return memory;
}

static void run_row(struct engine *engine, const struct row *row)
{
	struct transform_spec spec;
	struct transform transform;
	struct plan plan;
	struct error err;
	int64_t first;
	row_spec(row, &spec, &first);
	if (transform_init(&transform, &spec, &err) < 0)
		fail(row->name, &err);
	plan_init(&plan, &transform, &engine->facts);
	struct engine_owner owner;
	engine_owner_init(&owner);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_job job = {
		.transform = &transform,
		.plan = &plan,
		.dst = new_memory(engine, (size_t)transform.dst_extent.high),
		.src = new_memory(engine, (size_t)(tensor_count(&spec.src) * transform.element)),
		.src_offset = (uint64_t)(first * transform.element),
		.on_done = on_done,
	};
	/* A copy of as many bytes, between other memory of the same kind, taking turns with the engine. */
	size_t half = transform.bytes / 2;
	unsigned threads = half < SINGLE_BYTES ? 1 : engine->facts.threads;
	struct engine_memory *dst = new_memory(engine, half), *src = new_memory(engine, half);
	double copied[RUNS], moved[RUNS];
	for (int run = 0; run < RUNS; run++) {
		copied[run] = time_memcpy(cpu_memory(dst)->data, cpu_memory(src)->data, half, threads);
		moved[run] = time_engine(engine, stream, &job);
	}
	double copy = median(copied), move = median(moved);
	printf("%-36s %-15s %8.1f %8.1f %7.2f\n", row->name, family_names[plan.family],
	       (double)transform.bytes / copy / 1e9, (double)transform.bytes / move / 1e9, copy / move);
	fflush(stdout);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, job.dst);
	engine_unmap(engine, job.src);
	engine_stream_free(engine, stream);
	engine_owner_deinit(&owner);
}

int main(int argc, char **argv)
{
	struct engine_options options = { .threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 0, .wake = wake };
	struct engine *engine;
	struct error err;
	if (options.threads > MAX_THREADS)
		options.threads = MAX_THREADS;
	if (engine_cpu_open(&engine, &options, &err) < 0)
		fail("engine", &err);
	printf("%s %s; GB/s read plus written, median of %d\n", engine->name, engine->device, RUNS);
	printf("%-36s %-15s %8s %8s %7s\n", "", "family", "memcpy", "engine", "ratio");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (argc < 3 || strstr(rows[i].name, argv[2]))
			run_row(engine, &rows[i]);
	engine_close(engine);
	return 0;
}
