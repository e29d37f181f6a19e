/* Whether the unit does what the software model says: random tensor maps, each judged by our rules and by the
 * driver, and the legal ones loaded and stored, bit for bit.
 *
 *   conformance [SEED [COUNT [FIRST]]]
 *
 * Draws FIRST to COUNT - 1 of the seed; a draw depends on nothing but the seed and its number. Runs on
 * whatever libcuda.so.1 is found. TAP: a test point for each feature, over all draws that have it.
 *
 * The draws are made by a child, which shares the results: a draw that is the end of the context costs that
 * draw, and another child goes on after it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance_run.h"

#define MAX_LOST 20 /* children: then there is no use in going on */

enum child_end { CHILD_DONE, CHILD_SKIPS, CHILD_LOST };

static enum child_end run_child(uint64_t seed, struct results *results);
static bool report(const struct results *results, int lost);

static uint64_t argument(int argc, char **argv, int i, uint64_t otherwise)
{
	return i < argc ? strtoull(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	struct results *results =
	    mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed = argument(argc, argv, 1, 1);
	int lost = 0;

	if (results == MAP_FAILED)
		return EXIT_FAILURE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	results->count = argument(argc, argv, 2, 1000);
	results->number = argument(argc, argv, 3, 0);
	for (;;) {
		uint64_t first = results->number;
		enum child_end end = run_child(seed, results);

		if (end == CHILD_SKIPS)
			return EXIT_SUCCESS;
		if (end == CHILD_DONE || ++lost == MAX_LOST || results->number == first)
			break;
	}
	return report(results, lost) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Children ---------------------------------------------------------------------------------------- */

static enum child_end be_child(uint64_t seed, struct results *results)
{
	struct error err;
	int r = conformance_run(seed, results, &err);

	if (r == STATUS_UNSUPPORTED)
		printf("1..0 # SKIP %s\n", err.message);
	else if (r < 0)
		printf("# %s\n", err.message);
	return r == STATUS_UNSUPPORTED ? CHILD_SKIPS : r < 0 ? CHILD_LOST : CHILD_DONE;
}

static enum child_end run_child(uint64_t seed, struct results *results)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		exit(be_child(seed, results));
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return CHILD_LOST;
	if (WIFEXITED(status))
		return (enum child_end)WEXITSTATUS(status);
	printf("# draw %" PRIu64 " ended by signal %d\n", results->number++, WTERMSIG(status));
	return CHILD_LOST;
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

	point(points, wrong[FEATURE_LOAD] + wrong[FEATURE_STORE] == 0,
	      "%s: loads %" PRIu64 ", wrong %" PRIu64 "; stores %" PRIu64 ", wrong %" PRIu64 "%s", name,
	      done[FEATURE_LOAD], wrong[FEATURE_LOAD], done[FEATURE_STORE], wrong[FEATURE_STORE],
	      done[FEATURE_LOAD] + done[FEATURE_STORE] ? "" : " # SKIP none drawn");
}

/* Whether all is right. What the unit does next to a store's bytes is told and not judged. */
static bool report(const struct results *results, int lost)
{
	const struct judge *j = &results->judge;
	struct points points = { .all_right = true };

	point(&points, j->apart == 0,
	      "rules: %" PRIu64 " legal and %" PRIu64 " illegal maps judged alike, %" PRIu64 " not", j->legal,
	      j->illegal, j->apart);
	for (int f = 0; f < FEATURE_COUNT; f++)
		report_feature(&points, feature_name(f), &results->tally[f]);
	point(&points, results->strays == 0, "stores: nothing is written far from where it is to be");
	point(&points, lost == 0, "device: %d times there was no going on", lost);
	printf("1..%d\n", points.n);

	printf("# replaced addresses: %" PRIu64 " maps, of which %" PRIu64 " differ from fresh ones\n",
	       results->replaced, results->replaced_otherwise);
	printf("# stores left out: %" PRIu64 "\n", results->unstored);
	margins_print(&results->margins);
	return points.all_right;
}
