/* SPDX-License-Identifier: Apache-2.0 */
/* Launches random transforms, conversions and gathers into streams of several threads, captures some of them
 * in graphs that are replayed, and compares the whole destination, with guards and gaps, with the oracles.
 * Environment variables:
 * PROPERTY_CASES: number of cases, instead of a share of FULL_CASES.
 * PROPERTY_SEED: seed of the first case, by default 1. A case depends on its own seed alone. */
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_request.h"
#include "client/tmaclient.h"
#include "tests/support/conversion_case.h"
#include "tests/support/tap.h"

#define FULL_CASES    20000
#define THREADS       4
#define STREAMS       2 /* of each thread */
#define MOST_LAUNCHES 6 /* of a round on one stream */
#define SIDE_BYTES    (512u << 10)
#define ENTRIES       6000 /* more entries than the arguments of a launch hold */
#define ROW_BYTES     48
#define ROWS          64

static __attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

#define cuda(call)                                         \
	do {                                               \
		CUresult cuda_result = call;               \
		if (cuda_result != CUDA_SUCCESS)           \
			die("%s: %d", #call, cuda_result); \
	} while (0)

/* A launch: what is moved, and where that lies on the device. */
enum kind { TRANSFORM, CONVERSION, GATHER, KINDS };

struct launch {
	enum kind kind;
	uint64_t seed;
	struct conversion_case c; /* a transform uses its member c */
	int64_t *index;           /* list of a gather */
	size_t n;
	uint8_t *rows, *gathered, *expected;
	CUdeviceptr dst, src, scale, bias;
};

struct lane {
	tma_client *client; /* each lane has a client of its own, because counts are kept for each client */
	CUstream stream;
	struct launch launch[MOST_LAUNCHES];
	int n;
	bool is_captured;
	CUgraphExec exec;
};

struct worker {
	pthread_t thread;
	struct lane lane[STREAMS];
};

static CUcontext context;
static atomic_uint_fast64_t next_seed;
static uint64_t end_seed;
static atomic_uint failed;

/* ---- Cases -------------------------------------------------------------------------------------------- */

static void must(bool is_true)
{
	if (!is_true)
		die("out of memory");
}

static void draw_gather(struct launch *launch, uint64_t *state)
{
	launch->n = (size_t)(oracle_between(state, 0, 3) ? oracle_between(state, 1, 70)
	                                                 : oracle_between(state, 3000, ENTRIES));
	launch->index = malloc(launch->n * sizeof *launch->index);
	launch->rows = malloc(ROWS * ROW_BYTES);
	launch->gathered = malloc(launch->n * ROW_BYTES);
	launch->expected = malloc(launch->n * ROW_BYTES);
	must(launch->index && launch->rows && launch->gathered && launch->expected);
	for (size_t i = 0; i < ROWS * ROW_BYTES; i++)
		launch->rows[i] = (uint8_t)oracle_random(state);
	memset(launch->expected, 0xa5, launch->n * ROW_BYTES);
	memset(launch->gathered, 0xa5, launch->n * ROW_BYTES);
	for (size_t i = 0; i < launch->n; i++) {
		launch->index[i] = oracle_between(state, -1, ROWS - 1);
		if (launch->index[i] >= 0)
			memcpy(launch->expected + i * ROW_BYTES, launch->rows + launch->index[i] * ROW_BYTES,
			       ROW_BYTES);
	}
}

static void draw(struct launch *launch, uint64_t seed)
{
	uint64_t state = seed;

	launch->seed = seed;
	launch->kind = (enum kind)oracle_between(&state, 0, KINDS - 1);
	switch (launch->kind) {
	case TRANSFORM:
		oracle_random_case(seed, &launch->c.c);
		must(oracle_case_prepare(&launch->c.c));
		break;
	case CONVERSION:
		conversion_random_case(seed, &launch->c);
		must(conversion_case_prepare(&launch->c));
		break;
	default:
		draw_gather(launch, &state);
	}
}

static void drop(struct launch *launch)
{
	if (launch->kind == TRANSFORM)
		oracle_case_free(&launch->c.c);
	else if (launch->kind == CONVERSION)
		conversion_case_free(&launch->c);
	free(launch->index);
	free(launch->rows);
	free(launch->gathered);
	free(launch->expected);
	launch->index = NULL;
	launch->rows = launch->gathered = launch->expected = NULL;
}

/* ---- The device --------------------------------------------------------------------------------------- */

static void put(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	if (bytes > SIDE_BYTES)
		die("a case has %zu bytes", bytes);
	if (bytes > 0)
		cuda(cuMemcpyHtoDAsync(to, from, bytes, stream));
}

static size_t dst_bytes(const struct launch *launch)
{
	return launch->kind == GATHER ? launch->n * ROW_BYTES : launch->c.c.dst_size + 2 * ORACLE_GUARD;
}

/* Copies the launch's initial data to the device. */
static void put_all(const struct launch *launch, CUstream stream)
{
	const struct oracle_case *c = &launch->c.c;

	if (launch->kind == GATHER) {
		put(launch->src, launch->rows, ROWS * ROW_BYTES, stream);
		put(launch->dst, launch->gathered, launch->n * ROW_BYTES, stream);
		return;
	}
	put(launch->src, c->src, c->src_size + 2 * ORACLE_GUARD, stream);
	put(launch->dst, c->dst, c->dst_size + 2 * ORACLE_GUARD, stream);
	if (launch->kind == CONVERSION && launch->c.scale.bytes)
		put(launch->scale, launch->c.scale.bytes, launch->c.scale.size, stream);
	if (launch->kind == CONVERSION && launch->c.bias.bytes)
		put(launch->bias, launch->c.bias.bytes, launch->c.bias.size, stream);
}

/* Fills the launch's memory with other bytes, which the first replay moves before the real ones are there. */
static void put_others(const struct launch *launch, CUstream stream)
{
	cuda(cuMemsetD8Async(launch->src, 0x3c, SIDE_BYTES, stream));
	cuda(cuMemsetD8Async(launch->dst, 0xc3, SIDE_BYTES, stream));
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static int launch_gather(tma_client *client, const struct launch *launch, CUstream stream)
{
	const struct tma_tensor
	    dst = { .offset = launch->dst, .dtype = TMA_UINT8, .rank = 1, .shape = { ROW_BYTES } },
	    src = { .offset = launch->src, .dtype = TMA_UINT8, .rank = 1, .shape = { ROW_BYTES } };
	const struct tma_transform row = { .dst = &dst, .src = &src };
	const struct tma_blocks blocks = { .transform = &row,
		                           .index = launch->index,
		                           .index_dtype = TMA_INT64,
		                           .count = launch->n,
		                           .limit = ROWS };

	return tma_enqueue_gather(client, &blocks, stream);
}

static int launch_transform(tma_client *client, const struct launch *launch, CUstream stream)
{
	struct case_request request;

	case_request_init(&request, &launch->c, launch->kind == CONVERSION,
	                  &(struct case_places){ .dst = launch->dst + ORACLE_GUARD,
	                                         .src = launch->src + ORACLE_GUARD,
	                                         .scale = launch->scale,
	                                         .bias = launch->bias });
	return tma_enqueue(client, &request.transform, stream);
}

static bool launch_all(struct lane *lane)
{
	for (int i = 0; i < lane->n; i++) {
		const struct launch *launch = &lane->launch[i];
		int rc = launch->kind == GATHER ? launch_gather(lane->client, launch, lane->stream)
		                                : launch_transform(lane->client, launch, lane->stream);

		if (rc < 0) {
			fprintf(stderr, "property_streams: seed %" PRIu64 ": %s: %s\n", launch->seed,
			        tma_status_name(rc), tma_last_error(lane->client));
			return false;
		}
	}
	return true;
}

/* ---- Rounds ------------------------------------------------------------------------------------------- */

static bool check(struct launch *launch, CUstream stream)
{
	char text[4096] = "gathered rows differ";
	struct oracle_case *c = &launch->c.c;
	uint8_t *got = launch->kind == GATHER ? launch->gathered : c->dst;
	bool good;

	cuda(cuMemcpyDtoHAsync(got, launch->dst, dst_bytes(launch), stream));
	cuda(cuStreamSynchronize(stream));
	good = launch->kind == TRANSFORM    ? oracle_case_check(c, text, sizeof text)
	       : launch->kind == CONVERSION ? conversion_case_check(&launch->c, text, sizeof text)
	                                    : memcmp(got, launch->expected, dst_bytes(launch)) == 0;
	if (!good)
		fprintf(stderr, "property_streams: seed %" PRIu64 ": %s\n", launch->seed, text);
	return good;
}

/* Captures the launches. The first replay moves other data. */
static bool capture(struct lane *lane)
{
	CUgraph graph;
	bool good;

	for (int i = 0; i < lane->n; i++)
		put_others(&lane->launch[i], lane->stream);
	cuda(cuStreamBeginCapture(lane->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	good = launch_all(lane);
	cuda(cuStreamEndCapture(lane->stream, &graph));
	cuda(cuGraphInstantiateWithFlags(&lane->exec, graph, 0));
	cuda(cuGraphDestroy(graph));
	cuda(cuGraphLaunch(lane->exec, lane->stream));
	return good;
}

/* Adds the count of changed elements. Elements of a border that repeats the source may be counted once each
 * or as often as they are written, so *ret_is_exact is cleared for these. */
static void add_changed(const struct launch *launch, uint64_t *ret, bool *ret_is_exact)
{
	if (launch->kind != CONVERSION)
		return;
	*ret += launch->c.changed;
	*ret_is_exact &= launch->c.c.spec.mode == PAD_MODE_CONSTANT || launch->c.changed == 0;
}

static bool counts_are(const struct lane *lane)
{
	struct tma_enqueued counts;
	uint64_t changed = 0;
	bool is_exact = true;

	for (int i = 0; i < lane->n; i++)
		add_changed(&lane->launch[i], &changed, &is_exact);
	if (tma_enqueued(lane->client, lane->stream, &counts) < 0)
		die("tma_enqueued: %s", tma_last_error(lane->client));
	if (is_exact ? counts.changed == changed : !counts.changed == !changed)
		return true;
	fprintf(stderr,
	        "property_streams: seeds from %" PRIu64 ": %" PRIu64 " values changed, not %" PRIu64 "\n",
	        lane->launch[0].seed, counts.changed, changed);
	return false;
}

static bool begin(struct lane *lane)
{
	bool good = true;

	if (lane->is_captured)
		good = capture(lane);
	for (int i = 0; i < lane->n; i++)
		put_all(&lane->launch[i], lane->stream);
	if (lane->is_captured) {
		struct tma_enqueued ignored;

		if (tma_enqueued(lane->client, lane->stream, &ignored) < 0)
			die("tma_enqueued: %s", tma_last_error(lane->client));
		cuda(cuGraphLaunch(lane->exec, lane->stream));
		return good;
	}
	return launch_all(lane);
}

static bool end(struct lane *lane)
{
	bool good = counts_are(lane);

	for (int i = 0; i < lane->n; i++) {
		good &= check(&lane->launch[i], lane->stream);
		drop(&lane->launch[i]);
	}
	if (lane->is_captured)
		cuda(cuGraphExecDestroy(lane->exec));
	return good;
}

/* Draws the launches of a round. Returns false if no cases are left. */
static bool draw_lane(struct lane *lane)
{
	const uint64_t first = atomic_fetch_add(&next_seed, MOST_LAUNCHES);
	uint64_t state = first;

	if (first >= end_seed)
		return false;
	lane->is_captured = oracle_between(&state, 0, 2) == 0;
	lane->n = first + MOST_LAUNCHES <= end_seed ? MOST_LAUNCHES : (int)(end_seed - first);
	for (int i = 0; i < lane->n; i++)
		draw(&lane->launch[i], first + (uint64_t)i);
	return true;
}

/* A thread launches into both of its streams before it checks the first. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	bool more = true;

	cuda(cuCtxSetCurrent(context));
	while (more) {
		int n = 0;

		while (n < STREAMS && (more = draw_lane(&worker->lane[n])))
			atomic_fetch_add(&failed, !begin(&worker->lane[n++]));
		for (int i = 0; i < n; i++)
			atomic_fetch_add(&failed, !end(&worker->lane[i]));
	}
	return NULL;
}

/* ---- Main --------------------------------------------------------------------------------------------- */

static void lane_open(struct lane *lane)
{
	lane->client = tma_new();
	if (tma_connect(lane->client, "local:") < 0)
		die("tma_connect: %s", tma_last_error(lane->client));
	cuda(cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING, 0));
	for (int i = 0; i < MOST_LAUNCHES; i++) {
		struct launch *launch = &lane->launch[i];

		cuda(cuMemAlloc(&launch->dst, SIDE_BYTES));
		cuda(cuMemAlloc(&launch->src, SIDE_BYTES));
		cuda(cuMemAlloc(&launch->scale, CONVERSION_OPERAND_BYTES));
		cuda(cuMemAlloc(&launch->bias, CONVERSION_OPERAND_BYTES));
	}
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
	static struct worker worker[THREADS];
	const uint64_t cases = number("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	const uint64_t seed = number("PROPERTY_SEED", 1);

	cuda(cuInit(0));
	cuda(cuDevicePrimaryCtxRetain(&context, 0));
	cuda(cuCtxSetCurrent(context));
	atomic_store(&next_seed, seed);
	end_seed = seed + cases;
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < STREAMS; k++)
			lane_open(&worker[i].lane[k]);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&worker[i].thread, NULL, work, &worker[i]) != 0)
			die("no thread");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(worker[i].thread, NULL);
		for (int k = 0; k < STREAMS; k++)
			tma_free(worker[i].lane[k].client);
	}
	tap_case(failed == 0, "%" PRIu64 " launches on %d streams of %d threads, a third of them in graphs",
	         cases, THREADS * STREAMS, THREADS);
	return tap_end();
}
