/* SPDX-License-Identifier: Apache-2.0 */
/* What requests do to each other: whether the device waits between long ones, and how long a short one takes
 * beside those of another connection.
 *
 *   bench_neighbour SOCKET
 *
 * All requests are transposes of float32 squares between regions on the device. A ratio compares two
 * measurements of one run.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/tmaclient.h"
#include "tests/gpu/rig.h"

#define DEPTH       8     /* requests of one connection under way */
#define BACK_TO     4e11  /* bytes read and written by requests back to back */
#define SHORT_SIDE  512   /* 1 MiB */
#define LONG_SIDE   23168 /* 2 GiB */
#define REQUESTS    2000
#define WARM_UP     50
#define LONG_SECOND 0.5

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* ---- Requests ------------------------------------------------------------------------------------------ */

/* A connection, and what it transposes. */
struct load {
	tma_client *client;
	CUdeviceptr memory[2]; /* destination, source */
	tma_region *region[2];
	struct tma_tensor tensor[2];
	double bytes; /* read and written by a request */
};

static const int swapped[2] = { 1, 0 };

static void must(const struct load *load, int r)
{
	if (r < 0)
		rig_die("%s", tma_last_error(load->client));
}

static void load_init(struct load *load, const char *path, int64_t side)
{
	const size_t size = (size_t)(side * side) * 4;

	*load = (struct load){ .client = tma_new(), .bytes = 2.0 * (double)size };
	if (!load->client)
		rig_die("out of memory");
	must(load, tma_connect(load->client, path));
	for (int i = 0; i < 2; i++) {
		load->memory[i] = rig_new(size);
		must(load, tma_region_from_device_ptr(load->client, (const void *)load->memory[i], size, 0,
		                                      &load->region[i]));
		load->tensor[i] = (struct tma_tensor){
			.region = load->region[i], .dtype = TMA_FLOAT32, .rank = 2, .shape = { side, side }
		};
	}
}

static void load_deinit(struct load *load)
{
	for (int i = 0; i < 2; i++) {
		tma_region_release(load->region[i]);
		rig_free(load->memory[i]);
	}
	tma_free(load->client);
}

/* `depth` under way until `go_on` says no. Gives back how many, and their time by the engine. */
static int keep_busy(struct load *load, int depth, bool (*go_on)(void *arg, int done), void *arg,
                     double *ret_ns)
{
	const struct tma_transform transform = { .dst = &load->tensor[0],
		                                 .src = &load->tensor[1],
		                                 .perm = swapped };
	tma_ticket ticket[DEPTH];
	int sent = 0, done = 0;

	*ret_ns = 0;
	while (done < sent || go_on(arg, sent)) {
		struct tma_result result;

		if (sent - done < depth && go_on(arg, sent)) {
			must(load, tma_submit(load->client, &transform, &ticket[sent++ % depth]));
			continue;
		}
		must(load, tma_wait(load->client, ticket[done++ % depth], &result));
		*ret_ns += (double)result.ns;
	}
	return done;
}

static bool is_below(void *arg, int done)
{
	return done < *(const int *)arg;
}

/* ---- Back to back -------------------------------------------------------------------------------------- */

static void back_to_back(const char *path, int64_t side)
{
	struct load load;
	double ns, start, us;
	int n = WARM_UP / 5;

	load_init(&load, path, side);
	keep_busy(&load, DEPTH, is_below, &n, &ns);
	n = (int)(BACK_TO / load.bytes) + DEPTH;
	start = now_us();
	keep_busy(&load, DEPTH, is_below, &n, &ns);
	us = now_us() - start;
	printf("back to back, %5.0f MiB, %d under way: %8.1f us each, by the engine %8.1f: %.3f; %.0f GB/s\n",
	       load.bytes / 2 / (1 << 20), DEPTH, us / n, ns / 1e3 / n, ns / 1e3 / us,
	       load.bytes * n / us / 1e3);
	load_deinit(&load);
}

/* ---- A short request beside long ones ------------------------------------------------------------------ */

struct latency {
	double p50, p99, most;
};

static struct latency latency_of(struct load *load)
{
	static double us[REQUESTS];

	for (int i = -WARM_UP; i < REQUESTS; i++) {
		const double start = now_us();

		must(load, tma_transpose(load->client, &load->tensor[0], &load->tensor[1], swapped));
		if (i >= 0)
			us[i] = now_us() - start;
	}
	qsort(us, REQUESTS, sizeof *us, by_value);
	return (struct latency){ us[REQUESTS / 2], us[REQUESTS * 99 / 100], us[REQUESTS - 1] };
}

struct background {
	struct load load;
	atomic_bool stop;
	double rate; /* GB/s */
};

static bool is_on(void *arg, int done)
{
	(void)done;
	return !atomic_load((atomic_bool *)arg);
}

static void *background_main(void *arg)
{
	struct background *background = arg;
	const double start = now_us();
	double ns;
	const int n = keep_busy(&background->load, 2, is_on, &background->stop, &ns);

	background->rate = background->load.bytes * n / (now_us() - start) / 1e3;
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

static void beside(const char *path)
{
	static struct background background;
	struct load load;
	struct latency alone, crowded;
	struct timespec pause = { .tv_nsec = (long)(LONG_SECOND * 1e9) };
	pthread_t thread;
	double rate, rate_beside;

	load_init(&load, path, SHORT_SIDE);
	load_init(&background.load, path, LONG_SIDE);
	alone = latency_of(&load);
	end(&background, begin(&background));
	thread = begin(&background);
	nanosleep(&pause, NULL);
	rate = end(&background, thread);
	thread = begin(&background);
	crowded = latency_of(&load);
	rate_beside = end(&background, thread);
	printf(
	    "1 MiB, one at a time: alone p50 %.1f p99 %.1f most %.1f us; beside another connection's 2 GiB p50 %.1f "
	    "p99 %.1f most %.1f us\n",
	    alone.p50, alone.p99, alone.most, crowded.p50, crowded.p99, crowded.most);
	printf("2 GiB, 2 under way: alone %.0f GB/s, beside %.0f GB/s: %.3f\n", rate, rate_beside,
	       rate_beside / rate);
	load_deinit(&background.load);
	load_deinit(&load);
}

int main(int argc, char **argv)
{
	static const int64_t sides[] = { 4096, 8192, 16384, 32768 };
	struct rig rig;
	struct error err;

	if (argc != 2) {
		fprintf(stderr, "bench_neighbour SOCKET\n");
		return 2;
	}
	if (!rig_open(&rig, NULL, &err))
		rig_die("bench_neighbour: %s", err.message);
	printf("%s\n", rig.device.name);
	for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
		back_to_back(argv[1], sides[i]);
	beside(argv[1]);
	rig_close(&rig);
	return 0;
}
