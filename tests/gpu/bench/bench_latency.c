/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what the service adds to a launch: the same small transpose between the same device memory, by a
 * launch of this process that it waits for, and by a tmad on the same device, one at a time and with many
 * under way.
 *
 *    bench_latency SOCKET
 *
 * Both take turns of TURN requests each. A ping makes the same trip to the service and back without a
 * transform. At the end, explain gives the predicted and the measured time on the device for transposes of
 * more sizes.
 */
#include <stdio.h>

#include "figures.h"
#include "transpose.h"

#define TURNS    20
#define TURN     100
#define REQUESTS (TURNS * TURN)
#define WARM_UP  200
#define DEPTH    32 /* tickets under way */

#define EXPLAINED 20 /* runs before explain is called */

struct latency {
	const char *name;
	transpose_way *go;
	double us[REQUESTS];
};

static void latency_turn(struct latency *latency, struct transpose *work, int turn)
{
	for (int i = 0; i < TURN; i++) {
		double start = now_us();

		latency->go(work);
		latency->us[turn * TURN + i] = now_us() - start;
	}
}

static double direct_rate(struct transpose *work)
{
	double start = now_us();

	for (int i = 0; i < REQUESTS; i++)
		transpose_launch(work);
	rig_wait(work->rig);
	return REQUESTS / (now_us() - start) * 1e6;
}

static double served_rate(struct transpose *work)
{
	const struct tma_transform transform = { .dst = &work->tensor[0],
		                                 .src = &work->tensor[1],
		                                 .perm = transpose_perm };
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
	static struct latency latencies[] = { { "launch and wait", transpose_direct, { 0 } },
		                              { "by the service", transpose_served, { 0 } },
		                              { "ping", transpose_ping, { 0 } } };
	const size_t count = sizeof latencies / sizeof *latencies;
	double p50[3], p99[3];
	struct transpose work;

	transpose_init(&work, rig, client, n);
	for (size_t l = 0; l < count; l++)
		for (int i = 0; i < WARM_UP; i++)
			latencies[l].go(&work);
	for (int turn = 0; turn < TURNS; turn++)
		for (size_t l = 0; l < count; l++)
			latency_turn(&latencies[l], &work, turn);
	printf("transpose of %ld KiB (%s), microseconds\n", (long)(n * n * 4 / 1024),
	       family_names[work.plan.family]);
	for (size_t l = 0; l < count; l++) {
		sort_values(latencies[l].us, REQUESTS);
		p50[l] = quantile(latencies[l].us, REQUESTS, 0.5);
		p99[l] = quantile(latencies[l].us, REQUESTS, 0.99);
		printf("    %-20s p50 %8.1f  p99 %8.1f\n", latencies[l].name, p50[l], p99[l]);
	}
	printf("    %-20s p50 %8.1f  p99 %8.1f\n", "the service adds", p50[1] - p50[0], p99[1] - p99[0]);
	printf("    many under way: %.0f launches a second, %.0f requests by the service with %d under way\n",
	       direct_rate(&work), served_rate(&work), DEPTH);
	transpose_deinit(&work);
}

static double explained_us(const tma_document *plan, const char *key)
{
	return (double)tma_document_int(tma_document_find(plan, key)) / 1e3;
}

/* The first runs load code and tensor maps; explain takes the median of the last ones. Small tensors are in
 * the L2 by then, which the prediction does not take into account. */
static void explain(struct rig *rig, tma_client *client, int64_t n)
{
	struct transpose work;
	const struct tma_transform transform = { .dst = &work.tensor[0],
		                                 .src = &work.tensor[1],
		                                 .perm = transpose_perm };
	tma_document *plan;

	transpose_init(&work, rig, client, n);
	for (int i = 0; i < EXPLAINED; i++)
		transpose_served(&work);
	must(client, tma_explain(client, &transform, &plan));
	printf("    %8ld KiB %-16s predicted %9.1f  measured %9.1f  a copy, predicted %9.1f\n",
	       (long)(n * n * 4 / 1024), family_names[work.plan.family], explained_us(plan, "predicted_ns"),
	       explained_us(plan, "measured_ns"), explained_us(plan, "copy_ns"));
	tma_document_free(plan);
	transpose_deinit(&work);
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
