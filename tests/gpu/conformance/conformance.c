/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the TMA unit does what the software model says. Random tensor maps are judged by
 * tensor_map_check and by the driver; tiles of the legal ones are loaded and stored, and compared bit for
 * bit. Each such tile is also loaded for blocks of a cluster, and bytes are moved within clusters.
 *
 *    conformance [SEED [COUNT [FIRST [SECONDS]]]]
 *
 * It runs draws FIRST to COUNT - 1 of the seed, as many as the time allows, on whatever libcuda.so.1 is
 * found. A draw depends only on the seed and its number. Output is TAP, with a test point for each feature,
 * over all draws that have it. At the end the first failures are described in full, followed by what the
 * device does in cases that the draws avoid.
 *
 * A child runs the draws and shares the results: if a draw ends the context, only that draw is lost, and
 * another child continues after it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance_run.h"

#define SECONDS 300

enum child_end { CHILD_DONE, CHILD_SKIPS, CHILD_LOST };

/* The work of a child: conformance_run or conformance_run_beyond. */
typedef int child_work(uint64_t seed, struct results *results, struct error *err);

static enum child_end run_draws(uint64_t seed, struct results *results);
static void run_beyond(struct results *results);
static bool report(const struct results *results);

static uint64_t argument(int argc, char **argv, int i, uint64_t otherwise)
{
	return i < argc ? strtoull(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	struct results *results =
	    mmap(NULL, 2 * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = argument(argc, argv, 1, 1);
	struct timespec now;
	bool good;

	if (results == MAP_FAILED)
		return EXIT_FAILURE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	results->count = argument(argc, argv, 2, 1000);
	results->number = argument(argc, argv, 3, 0);
	results->end_ns =
	    ((uint64_t)now.tv_sec + argument(argc, argv, 4, SECONDS)) * 1000000000 + (uint64_t)now.tv_nsec;
	if (run_draws(seed, results) == CHILD_SKIPS)
		return EXIT_SUCCESS;
	good = report(results);
	run_beyond(results + 1);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Children ---------------------------------------------------------------------------------------- */

static enum child_end be_child(child_work *work, uint64_t seed, struct results *results)
{
	uint64_t lost = results->lost;
	struct error err;
	int r = work(seed, results, &err);

	if (r == STATUS_UNSUPPORTED)
		printf("1..0 # SKIP %s\n", err.message);
	else if (r < 0 && results->lost == lost && !results->beyond)
		printf("# %s\n", err.message);
	return r == STATUS_UNSUPPORTED ? CHILD_SKIPS : r < 0 ? CHILD_LOST : CHILD_DONE;
}

static enum child_end run_child(child_work *work, uint64_t seed, struct results *results)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		exit(be_child(work, seed, results));
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return CHILD_LOST;
	if (WIFEXITED(status))
		return (enum child_end)WEXITSTATUS(status);
	printf("# draw %" PRIu64 " ended by signal %d\n", results->number++, WTERMSIG(status));
	results->lost++;
	return CHILD_LOST;
}

/* Starts children until one makes no progress. */
static enum child_end run_draws(uint64_t seed, struct results *results)
{
	enum child_end end;
	uint64_t first;

	do {
		first = results->number;
		end = run_child(conformance_run, seed, results);
	} while (end == CHILD_LOST && results->number > first);
	return end;
}

static void run_beyond(struct results *results)
{
	enum child_end end;
	int first;

	printf("# what the draws keep away from; not judged:\n");
	do {
		first = results->beyond;
		end = run_child(conformance_run_beyond, 0, results);
	} while (end == CHILD_LOST && results->beyond > first);
}

/* ---- Report ------------------------------------------------------------------------------------------ */

struct points {
	int n;
	bool all_right;
};

__attribute__((format(printf, 3, 4))) static void point(struct points *points, bool right, const char *format,
                                                        ...)
{
	va_list args;

	printf("%s %d - ", right ? "ok" : "not ok", ++points->n);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	points->all_right = points->all_right && right;
}

static void report_feature(struct points *points, const char *name, const struct feature_tally *tally)
{
	const uint64_t *done = tally->done, *wrong = tally->wrong;

	point(points, wrong[FEATURE_LOAD] + wrong[FEATURE_STORE] + tally->lost == 0,
	      "%s: loads %" PRIu64 ", wrong %" PRIu64 "; stores %" PRIu64 ", wrong %" PRIu64
	      "; draws lost %" PRIu64 "%s",
	      name, done[FEATURE_LOAD], wrong[FEATURE_LOAD], done[FEATURE_STORE], wrong[FEATURE_STORE],
	      tally->lost,
	      done[FEATURE_LOAD] + done[FEATURE_STORE] + tally->lost ? "" : " # SKIP none drawn");
}

static void report_cluster(struct points *points, const char *name, const struct cluster_tally *tally)
{
	for (int i = 0; i < CLUSTER_SIZES; i++)
		point(points, tally->wrong[i] + tally->lost[i] == 0,
		      "cluster of %d, %s: moves %" PRIu64 ", wrong %" PRIu64 "; lost %" PRIu64 "%s", 2 << i,
		      name, tally->done[i], tally->wrong[i], tally->lost[i],
		      tally->done[i] + tally->lost[i] ? "" : " # SKIP none drawn");
}

static void report_wrong(const struct results *results)
{
	for (uint64_t i = 0; i < results->wrong && i < SHOWN_IN_FULL; i++)
		printf("# wrong %" PRIu64 " of %" PRIu64 ": %s\n", i + 1, results->wrong, results->shown[i]);
	features_print_worst(results->tally);
}

/* Prints the results and returns whether all are right. What the unit does next to a store's bytes, and known
 * deviations of the driver from its documentation, are reported but not judged. */
static bool report(const struct results *results)
{
	const struct judge *j = &results->judge;
	struct points points = { .all_right = true };

	point(&points, j->apart == 0,
	      "rules: %" PRIu64 " legal and %" PRIu64 " illegal maps judged alike, %" PRIu64 " not", j->legal,
	      j->illegal, j->apart);
	for (int f = 0; f < FEATURE_COUNT; f++)
		report_feature(&points, feature_name(f), &results->tally[f]);
	for (int way = 0; way < CONFORMANCE_CLUSTER_WAYS; way++)
		report_cluster(&points, cluster_way_names[way], &results->cluster[way]);
	point(&points, results->strays == 0, "stores: nothing is written far from where it is to be");
	point(&points, results->lost == 0, "device: %" PRIu64 " draws were the end of their context",
	      results->lost);
	printf("1..%d\n", points.n);

	if (results->number < results->count)
		printf("# stopped before draw %" PRIu64 " of %" PRIu64 "\n", results->number, results->count);
	printf("# replaced addresses: %" PRIu64 " maps, of which %" PRIu64 " differ from fresh ones\n",
	       results->replaced, results->replaced_otherwise);
	printf("# not moved: %" PRIu64 " draws with a dimension of 2^32; not stored: %" PRIu64
	       " tiles from before the tensor, %" PRIu64 " others\n",
	       results->huge, results->before, results->unstored);
	judge_print_deviations(j);
	margins_print(&results->margins);
	report_wrong(results);
	return points.all_right;
}
