/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what requests cost without a service: a copy of 64 KiB as a function call, and plans found in the
 * cache or made. Prints one line of JSON with medians of batches in nanoseconds; service.py formats it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/engine.h"

#define BATCHES 101
#define BATCH   500
#define SIDE    128

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the time of one call in the median batch. */
static double measure(void (*call)(void *arg, int i), void *arg)
{
	double ns[BATCHES];

	for (int b = 0; b < BATCHES; b++) {
		double start = now_ns();

		for (int i = 0; i < BATCH; i++)
			call(arg, i);
		ns[b] = (now_ns() - start) / BATCH;
	}
	qsort(ns, BATCHES, sizeof ns[0], compare);
	return ns[BATCHES / 2];
}

static void fatal(const char *what)
{
	fprintf(stderr, "bench_calls: %s\n", what);
	exit(1);
}

/* ---- The plan cache --------------------------------------------------------------------------------- */

static void layouts(struct transform_spec *spec, int rank, const int64_t *dst, const int64_t *src)
{
	struct error err;

	memset(spec, 0, sizeof *spec);
	if (tensor_layout_init(&spec->src, DTYPE_FLOAT32, rank, src, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&spec->dst, DTYPE_FLOAT32, rank, dst, NULL, "dst", &err) < 0)
		fatal(err.message);
	spec->n_before = spec->n_after = -1;
}

/* Transposes a matrix. */
static void spec_matrix(struct transform_spec *spec, int64_t n)
{
	layouts(spec, 2, (const int64_t[]){ SIDE, n }, (const int64_t[]){ n, SIDE });
	spec->n_perm = 2;
	spec->perm[0] = 1;
}

/* Changes NHWC to NCHW with a border of one zero. */
static void spec_image(struct transform_spec *spec, int64_t n)
{
	static const int64_t perm[] = { 0, 3, 1, 2 }, pad[] = { 0, 0, 1, 1 };

	layouts(spec, 4, (const int64_t[]){ n, 64, 58, 58 }, (const int64_t[]){ n, 56, 56, 64 });
	spec->n_perm = spec->n_before = spec->n_after = 4;
	memcpy(spec->perm, perm, sizeof perm);
	memcpy(spec->before, pad, sizeof pad);
	memcpy(spec->after, pad, sizeof pad);
}

#define MOST_SPECS 8

struct lookup {
	struct engine *engine;
	struct transform_spec spec[MOST_SPECS];
	int specs; /* number of layouts, which are asked for in turn */
};

static void look_up(void *arg, int i)
{
	struct lookup *l = arg;
	struct engine_plan *plan;
	struct error err;

	if (engine_prepare(l->engine, &l->spec[i % l->specs], plan_places(0, 0), &plan, &err) < 0)
		fatal(err.message);
	engine_plan_unref(plan);
}

static void on_wake(void *arg)
{
	(void)arg;
}

/* Plans so many layouts in turn, with a cache of so many entries. */
static double measure_plans(void (*spec)(struct transform_spec *spec, int64_t n), int specs,
                            uint64_t capacity)
{
	const struct engine_options options = { .threads = 1, .plans = capacity, .wake = on_wake };
	struct lookup l = { .specs = specs };
	struct engine_cache_stats stats;
	struct error err;
	double ns;

	if (engine_cpu_open(&l.engine, &options, &err) < 0)
		fatal(err.message);
	for (int i = 0; i < specs; i++)
		spec(&l.spec[i], SIDE + 8 * i);
	ns = measure(look_up, &l);
	engine_plan_stats(l.engine, &stats);
	if ((stats.misses > (uint64_t)specs) != ((uint64_t)specs > capacity))
		fatal("the cache did not do what is measured");
	engine_close(l.engine);
	return ns;
}

static void print_plans(const char *name, void (*spec)(struct transform_spec *spec, int64_t n))
{
	printf(", \"%s\": {\"again_ns\": %.1f, \"in_turn_ns\": %.1f, \"made_ns\": %.1f}", name,
	       measure_plans(spec, 1, 1), measure_plans(spec, MOST_SPECS, MOST_SPECS),
	       measure_plans(spec, 2, 1));
}

/* ---- Moving ----------------------------------------------------------------------------------------- */

struct copy {
	char *dst;
	const char *src;
	size_t len;
};

static void copy_call(void *arg, int i)
{
	const struct copy *copy = arg;

	(void)i;
	memcpy(copy->dst, copy->src, copy->len);
	__asm__ volatile("" ::: "memory");
}

static double measure_copy(void)
{
	size_t len = (size_t)SIDE * SIDE * 4;
	char *memory = aligned_alloc(4096, 2 * len);
	struct copy copy = { memory, memory + len, len };
	double ns;

	if (!memory)
		fatal("no memory");
	memset(memory, 1, 2 * len);
	ns = measure(copy_call, &copy);
	free(memory);
	return ns;
}

int main(void)
{
	printf("{\"copy_64k_ns\": %.1f", measure_copy());
	print_plans("matrix", spec_matrix);
	print_plans("image", spec_image);
	puts("}");
	return 0;
}
