/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what requests do to each other: whether the device idles between long ones, and how long a short
 * one takes beside those of another connection. All are transposes of float32 squares between regions on the
 * device. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "figures.h"
#include "neighbour.h"
#include "neighbour_load.h"
#include "neighbour_sample.h"
#include "transpose.h"

#define LONG_SECONDS 0.5

/* A connection with its load and its memory. */
struct connection {
	tma_client *client;
	struct memory dst, src;
	struct load load;
};

static void connection_init(struct connection *connection, const struct bench *bench, int64_t side)
{
	connection->client = tma_new();
	if (!connection->client)
		rig_die("out of memory");
	must(connection->client, tma_connect(connection->client, bench->socket));
	memory_init(&connection->dst, connection->client, SIDE_DEVICE, (size_t)(side * side) * 4);
	memory_init(&connection->src, connection->client, SIDE_DEVICE, (size_t)(side * side) * 4);
	load_init_square(&connection->load, connection->client, &connection->dst, &connection->src, side);
}

static void connection_deinit(struct connection *connection)
{
	load_deinit(&connection->load);
	memory_deinit(&connection->src);
	memory_deinit(&connection->dst);
	tma_free(connection->client);
}

/* ---- Back to back -------------------------------------------------------------------------------------- */

static bool is_below(void *arg, int sent)
{
	return sent < *(const int *)arg;
}

static void back_to_back(const struct bench *bench, int64_t side)
{
	struct connection connection;
	struct load *load = &connection.load;
	double ns, start, us;
	int n;

	connection_init(&connection, bench, side);
	load->depth = LOAD_DEPTH;
	load_repeat(load, bench->scale->warm_up);
	n = (int)(bench->scale->back_to_back / load->bytes) + LOAD_DEPTH;
	start = now_us();
	load_keep_busy(load, is_below, &n, &ns);
	us = now_us() - start;
	printf("back to back, %7.1f MiB, %d under way: %8.1f us each, by the engine %8.1f: %.3f; %.0f GB/s\n",
	       load->bytes / 2 / (1 << 20), LOAD_DEPTH, us / n, ns / 1e3 / n, ns / 1e3 / us,
	       load->bytes * n / us / 1e3);
	fflush(stdout);
	connection_deinit(&connection);
}

/* ---- A short request beside long ones ------------------------------------------------------------------ */

struct background {
	struct connection connection;
	atomic_bool stop;
	double rate; /* GB/s */
};

static bool is_on(void *arg, int sent)
{
	(void)sent;
	return !atomic_load((atomic_bool *)arg);
}

static void *background_main(void *arg)
{
	struct background *background = arg;
	struct load *load = &background->connection.load;
	const double start = now_us();
	double ns;
	const int n = load_keep_busy(load, is_on, &background->stop, &ns);

	background->rate = load->bytes * n / (now_us() - start) / 1e3;
	return NULL;
}

static pthread_t begin(struct background *background)
{
	pthread_t thread;

	atomic_store(&background->stop, false);
	if (pthread_create(&thread, NULL, background_main, background))
		rig_die("no thread");
	return thread;
}

static double end(struct background *background, pthread_t thread)
{
	atomic_store(&background->stop, true);
	pthread_join(thread, NULL);
	return background->rate;
}

static void beside(struct bench *bench)
{
	static struct background background;
	const struct scale *scale = bench->scale;
	struct transpose transpose;
	struct timed timed = { transpose_served, &transpose };
	struct latency alone, crowded;
	double rate, rate_beside;
	pthread_t thread;

	transpose_init(&transpose, &bench->rig, bench->client, scale->short_side);
	connection_init(&background.connection, bench, scale->long_side);
	background.connection.load.depth = 2;
	load_repeat(&background.connection.load, scale->warm_up);
	alone = latency_measure(timed_sample, &timed, scale);
	thread = begin(&background);
	nap_us(scale->seconds * LONG_SECONDS * 1e6);
	rate = end(&background, thread);
	thread = begin(&background);
	crowded = latency_measure(timed_sample, &timed, scale);
	rate_beside = end(&background, thread);
	printf(
	    "%.0f KiB, one at a time: alone p50 %.1f p99 %.1f most %.1f us; beside another connection's %.0f MiB "
	    "p50 %.1f p99 %.1f most %.1f us\n",
	    (double)(scale->short_side * scale->short_side) / 256, alone.p50, alone.p99, alone.most,
	    background.connection.load.bytes / 2 / (1 << 20), crowded.p50, crowded.p99, crowded.most);
	printf("the long ones, 2 under way: alone %.0f GB/s, beside %.0f GB/s: %.3f\n", rate, rate_beside,
	       rate_beside / rate);
	connection_deinit(&background.connection);
	transpose_deinit(&transpose);
}

void pairs_run(struct bench *bench)
{
	for (size_t i = 0; i < sizeof bench->scale->squares / sizeof *bench->scale->squares; i++)
		back_to_back(bench, bench->scale->squares[i]);
	beside(bench);
}
