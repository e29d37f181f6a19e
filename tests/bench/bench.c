/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the CPU engine with memcpy row by row: the time from submitting a job until it has been reaped,
 * and the time that memcpy takes for as many bytes on as many threads (measure.h, baseline.h). Rows and their
 * bars are in rows.h. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "measure.h"
#include "neighbours.h"
#include "program.h"
#include "proto/arithmetic.h"
#include "rows.h"

#define NEIGHBOUR_LEAST (1 << 20) /* least bytes that a neighbour copies */

static struct measure *measure;
static struct neighbours *neighbours;

/* The bar of blocks is lower the shorter they are, because shorter stretches interrupt the memory's
 * prefetching more often. */
static double bar(const struct bench_row *row)
{
	int64_t bytes = dtype_size(row->dtype);

	for (int d = 0; d < row->rank; d++)
		bytes *= row->shape[d];
	if (row->blocks)
		return row->rank > 1 || (bytes > 4 << 10 && bytes < 32 << 10) ? 0.8
		       : bytes < 32 << 10                                     ? 0.7
		                                                              : 0.9;
	return row->ragged ? 0.65 : dtype_size(row->dtype) < 4 ? 0.8 : 0.9;
}

/* Writes text such as "AMD EPYC 9654, 2 CPUs, Linux 6.1.0". */
static void describe_machine(char *text, size_t size)
{
	char line[160], model[96] = "";
	struct utsname system;
	FILE *file = fopen("/proc/cpuinfo", "re");

	uname(&system);
	while (file && !*model && fgets(line, sizeof(line), file))
		sscanf(line, "model name : %95[^\n]", model);
	if (file)
		fclose(file);
	snprintf(text, size, "%s, %ld CPUs, Linux %.32s", *model ? model : system.machine,
	         sysconf(_SC_NPROCESSORS_ONLN), system.release);
}

static uint64_t beyond_cache(void)
{
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);

	return cache > 32 << 20 ? 2 * (uint64_t)cache : 64 << 20;
}

/* Writes text such as "cpu engine, plain and avx2, 2 threads, beside 2 processes that copy". */
static void describe_engine(struct report *head, unsigned beside)
{
	size_t size = sizeof(head->engine), len = (size_t)snprintf(head->engine, size, "cpu engine, ");

	for (int i = 0; i < head->n_isas; i++)
		len += (size_t)snprintf(head->engine + len, size - len, "%s%s",
		                        i == 0                  ? ""
		                        : i == head->n_isas - 1 ? " and "
		                                                : ", ",
		                        head->isa[i]);
	len += (size_t)snprintf(head->engine + len, size - len, ", %d thread%s", head->threads,
	                        head->threads == 1 ? "" : "s");
	if (beside)
		snprintf(head->engine + len, size - len, ", beside %u process%s", beside,
		         beside == 1 ? " that copies" : "es that copy");
}

/* Together the neighbours copy more than fits the cache. */
static int start_neighbours(unsigned n, uint64_t round_bytes, struct error *err)
{
	if (!n)
		return 0;
	return neighbours_new(&neighbours, n, (size_t)max_i64((int64_t)round_bytes / n, NEIGHBOUR_LEAST),
	                      err);
}

static int open_engine(const struct program_options *options, struct report *head, struct error *err)
{
	struct measure_options wanted = {
		.threads = options->threads,
		.isa = options->isa,
		.candidates = options->candidates,
		.sample_ns = options->quick ? 1e4 : 2e6,
		.round_bytes = options->quick ? 1 << 20 : beyond_cache(),
	};
	int r = start_neighbours(options->beside, wanted.round_bytes, err);

	if (r == 0)
		r = measure_open(&measure, &wanted, err);
	if (r < 0)
		return r;
	describe_machine(head->machine, sizeof(head->machine));
	snprintf(head->base, sizeof(head->base), "memcpy");
	head->threads = (int)measure_threads(measure);
	head->n_isas = measure_n_variants(measure);
	for (int i = 0; i < head->n_isas; i++)
		snprintf(head->isa[i], sizeof(head->isa[i]), "%s", measure_variant(measure, i));
	describe_engine(head, options->beside);
	return 0;
}

static int measure_one(const struct bench_row *row, const struct program_options *options,
                       struct report_row *ret, struct error *err)
{
	return measure_row(measure, row, options->runs, ret, err);
}

static void close_engine(void)
{
	measure_close(measure);
	neighbours_free(neighbours);
}

int main(int argc, char **argv)
{
	static const struct program program = {
		.name = "bench",
		.about =
		    "The CPU engine against memcpy: as many bytes, as many threads, in the same memory, taking turns.\n"
		    "A row: what is done, element type, source shape, family; GB/s of both (bytes read plus written),\n"
		    "the ratio, what the middle half of the runs' ratios lies between, and the bar. All are medians.\n"
		    "memcpy's threads stand by while they are timed; the engine's job is timed from submit to reap.\n"
		    "gather and scatter: one job over so many blocks of that shape, picked by chance out of twice as\n"
		    "many; memcpy has the same bytes in one piece.\n"
		    "Where memcpy would give a thread less than 64 KiB it takes fewer. Short calls are repeated.\n"
		    "Each row is checked before and after; a wrong byte ends the program with 1.\n"
		    "memcpy's threads are bound to CPUs; the engine's are not, nor are the processes of --beside.\n"
		    "Of several instruction sets each row has a line for each; they take turns with one memcpy.\n",
		.is_cpu = true,
		.runs = 9,
		.rows = bench_rows,
		.n_rows = sizeof(bench_rows) / sizeof(bench_rows[0]),
		.bar = bar,
		.open = open_engine,
		.measure = measure_one,
		.close = close_engine,
	};
	return program_main(&program, argc, argv);
}
