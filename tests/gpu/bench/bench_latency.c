/* SPDX-License-Identifier: Apache-2.0 */
/* What the service adds to a launch: the same small transpose between the same device memory, by a launch of
 * this process and a wait for it, and by a tmad on the same device, one at a time and many under way.
 *
 *   bench_latency SOCKET
 *
 * Both take turns, TURN requests each. A ping is the same way to the service and back without a transform.
 * Last, what explain says of transposes of more sizes: the time on the device that is predicted, and the one
 * that was measured.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/tmaclient.h"
#include "tests/gpu/rig.h"

#define TURNS    20
#define TURN     100
#define REQUESTS (TURNS * TURN)
#define WARM_UP  200
#define DEPTH    32 /* tickets under way */

#define EXPLAINED 20 /* runs before explain is asked */

static void must(tma_client *client, int r)
{
	if (r < 0)
		rig_die("%s", tma_last_error(client));
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* A transpose of n x n float32, known to both. */
struct work {
	struct rig *rig;
	tma_client *client;
	CUdeviceptr memory[2]; /* destination, source */
	tma_region *region[2];
	struct transform transform;
	struct plan plan;
	struct tma_tensor tensor[2];
};

static const int swapped[2] = { 1, 0 };

static void work_init(struct work *work, struct rig *rig, tma_client *client, int64_t n)
{
	struct transform_spec spec = { .n_perm = 2, .perm = { 1, 0 }, .n_before = -1, .n_after = -1 };
	const int64_t shape[2] = { n, n };
	struct error err;

	*work = (struct work){ .rig = rig, .client = client };
	if (tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, shape, NULL, "dst", &err) < 0 ||
	    transform_init(&work->transform, &spec, &err) < 0)
		rig_die("%s", err.message);
	for (int i = 0; i < 2; i++) {
		const size_t size = (size_t)(n * n) * 4;

		work->memory[i] = rig_new(size);
		rig_call(cuMemsetD8Async, (work->memory[i], 0xa5, size, rig->stream));
		must(client, tma_region_from_device_ptr(client, (const void *)work->memory[i], size, 0,
		                                        &work->region[i]));
		work->tensor[i] = (struct tma_tensor){
			.region = work->region[i], .dtype = TMA_FLOAT32, .rank = 2, .shape = { n, n }
		};
	}
	rig_plan(rig, &work->transform, work->memory[0], work->memory[1], &work->plan);
	rig_wait(rig);
}

static void work_deinit(struct work *work)
{
	for (int i = 0; i < 2; i++) {
		tma_region_release(work->region[i]);
		rig_free(work->memory[i]);
	}
}

static void launch(struct work *work)
{
	rig_launch(work->rig, &work->transform, &work->plan, work->memory[0], work->memory[1]);
}

static void direct(struct work *work)
{
	launch(work);
	rig_wait(work->rig);
}

static void served(struct work *work)
{
	must(work->client, tma_transpose(work->client, &work->tensor[0], &work->tensor[1], swapped));
}

static void ping(struct work *work)
{
	must(work->client, tma_ping(work->client));
}

typedef void way(struct work *work);

struct latency {
	const char *name;
	way *go;
	double us[REQUESTS];
};

static void latency_turn(struct latency *latency, struct work *work, int turn)
{
	for (int i = 0; i < TURN; i++) {
		double start = now_us();

		latency->go(work);
		latency->us[turn * TURN + i] = now_us() - start;
	}
}

static double direct_rate(struct work *work)
{
	double start = now_us();

	for (int i = 0; i < REQUESTS; i++)
		launch(work);
	rig_wait(work->rig);
	return REQUESTS / (now_us() - start) * 1e6;
}

static double served_rate(struct work *work)
{
	const struct tma_transform transform = { .dst = &work->tensor[0],
		                                 .src = &work->tensor[1],
		                                 .perm = swapped };
	tma_ticket ticket[DEPTH];
	double start = now_us();

	for (int i = 0; i < REQUESTS + DEPTH; i++) {
		if (i >= DEPTH)
			must(work->client, tma_wait(work->client, ticket[i % DEPTH], NULL));
		if (i < REQUESTS)
			must(work->client, tma_submit(work->client, &transform, &ticket[i % DEPTH]));
	}
	return REQUESTS / (now_us() - start) * 1e6;
}

static void run(struct rig *rig, tma_client *client, int64_t n)
{
	static struct latency latencies[] = { { "launch and wait", direct, { 0 } },
		                              { "by the service", served, { 0 } },
		                              { "ping", ping, { 0 } } };
	const size_t count = sizeof latencies / sizeof *latencies;
	double p50[3], p99[3];
	struct work work;

	work_init(&work, rig, client, n);
	for (size_t l = 0; l < count; l++)
		for (int i = 0; i < WARM_UP; i++)
			latencies[l].go(&work);
	for (int turn = 0; turn < TURNS; turn++)
		for (size_t l = 0; l < count; l++)
			latency_turn(&latencies[l], &work, turn);
	printf("transpose of %ld KiB (%s), microseconds\n", (long)(n * n * 4 / 1024),
	       family_names[work.plan.family]);
	for (size_t l = 0; l < count; l++) {
		qsort(latencies[l].us, REQUESTS, sizeof(double), by_value);
		p50[l] = latencies[l].us[REQUESTS / 2];
		p99[l] = latencies[l].us[REQUESTS * 99 / 100];
		printf("    %-20s p50 %8.1f  p99 %8.1f\n", latencies[l].name, p50[l], p99[l]);
	}
	printf("    %-20s p50 %8.1f  p99 %8.1f\n", "the service adds", p50[1] - p50[0], p99[1] - p99[0]);
	printf("    many under way: %.0f launches a second, %.0f requests by the service with %d under way\n",
	       direct_rate(&work), served_rate(&work), DEPTH);
	work_deinit(&work);
}

static double explained_us(const tma_document *plan, const char *key)
{
	return (double)tma_document_int(tma_document_find(plan, key)) / 1e3;
}

/* The first runs bring code and tensor maps; explain takes the median of the last ones. What is small is in
 * the L2 by then, which is not predicted. */
static void explain(struct rig *rig, tma_client *client, int64_t n)
{
	struct work work;
	const struct tma_transform transform = { .dst = &work.tensor[0],
		                                 .src = &work.tensor[1],
		                                 .perm = swapped };
	tma_document *plan;

	work_init(&work, rig, client, n);
	for (int i = 0; i < EXPLAINED; i++)
		served(&work);
	must(client, tma_explain(client, &transform, &plan));
	printf("    %8ld KiB %-16s predicted %9.1f  measured %9.1f  a copy, predicted %9.1f\n",
	       (long)(n * n * 4 / 1024), family_names[work.plan.family], explained_us(plan, "predicted_ns"),
	       explained_us(plan, "measured_ns"), explained_us(plan, "copy_ns"));
	tma_document_free(plan);
	work_deinit(&work);
}

int main(int argc, char **argv)
{
	static const int64_t sides[] = { 128, 512, 1024, 2048, 2047, 4096, 8192, 8191, 16384 };
	struct rig rig;
	struct error err;
	tma_client *client = tma_new();

	if (argc != 2 || !client) {
		fprintf(stderr, "bench_latency SOCKET\n");
		return 2;
	}
	if (!rig_open(&rig, NULL, &err))
		rig_die("bench_latency: %s", err.message);
	must(client, tma_connect(client, argv[1]));
	printf("%s, medians and 99th percentiles of %d, turns of %d\n", rig.device.name, REQUESTS, TURN);
	run(&rig, client, 128);
	run(&rig, client, 512);
	printf("explain, microseconds on the device\n");
	for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
		explain(&rig, client, sides[i]);
	tma_free(client);
	rig_close(&rig);
	return 0;
}
