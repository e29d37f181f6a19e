/* What requests cost without a service: a copy of 64 KiB as a function call, and plans
 * found in the cache or made. One line of JSON, medians of batches in nanoseconds; service.py prints it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/plan_cache.h"
#include "kernels/transform.h"

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

/* The median batch's time for one call. */
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

static const struct plan_facts facts = { .engine = "cpu", .threads = 1, .align = 16 };

static void transpose_spec(struct transform_spec *ret, int64_t rows, int64_t columns)
{
	const int64_t src[] = { rows, columns }, dst[] = { columns, rows };
	struct error err;

	memset(ret, 0, sizeof *ret);
	if (tensor_layout_init(&ret->src, DTYPE_FLOAT32, 2, src, NULL, "src", &err) < 0 ||
	    tensor_layout_init(&ret->dst, DTYPE_FLOAT32, 2, dst, NULL, "dst", &err) < 0)
		fatal(err.message);
	ret->n_perm = 2;
	ret->perm[0] = 1;
	ret->n_before = ret->n_after = -1;
}

struct lookup {
	struct plan_cache cache;
	struct transform_spec spec[2];
	int specs; /* asked for in turn */
};

static void look_up(void *arg, int i)
{
	struct lookup *l = arg;
	struct plan_entry *entry;
	struct error err;

	if (plan_cache_get(&l->cache, &l->spec[i % l->specs], &facts, &entry, &err) < 0)
		fatal(err.message);
	plan_entry_unref(entry);
}

/* A cache of one entry: two layouts in turn are never found. */
static double measure_plans(int specs)
{
	struct lookup l = { .specs = specs };
	double ns;

	if (plan_cache_init(&l.cache, 1, 1) < 0)
		fatal("no memory");
	transpose_spec(&l.spec[0], SIDE, SIDE);
	transpose_spec(&l.spec[1], SIDE, 2 * SIDE);
	ns = measure(look_up, &l);
	if ((l.cache.misses > 1) != (specs > 1))
		fatal("the cache did not do what is measured");
	plan_cache_deinit(&l.cache);
	return ns;
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
	printf("{\"copy_64k_ns\": %.1f, \"plan_hit_ns\": %.1f, \"plan_miss_ns\": %.1f}\n", measure_copy(),
	       measure_plans(1), measure_plans(2));
	return 0;
}
