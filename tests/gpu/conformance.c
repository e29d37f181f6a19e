/* Whether the unit does what the software model says: random tensor maps, each judged by our rules and by the
 * driver, and the legal ones loaded and stored, bit for bit.
 *
 *   conformance [SEED [COUNT [FIRST]]]
 *
 * Draws FIRST to COUNT - 1 of the seed; a draw depends on nothing but the seed and its number. Runs on
 * whatever libcuda.so.1 is found. TAP: a test point for each feature, over all draws that have it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_args.h"
#include "conformance_draw.h"
#include "conformance_expect.h"
#include "conformance_features.h"
#include "conformance_gpu.h"
#include "conformance_judge.h"
#include "conformance_margins.h"
#include "kernels/cuda/driver.h"

#define TILE_ROOM (256u << 10) /* shared memory of any block, and more */
#define MAX_SHOWN 24           /* lines on what went wrong */

struct run {
	struct gpu gpu;
	bool is_model; /* it ends a launch that breaks a rule of the unit, and there is no going on */
	uint64_t seed;
	uint64_t number; /* of the draw */
	struct rng rng;  /* of the draw's data */
	struct feature_tally tally[FEATURE_COUNT];
	struct judge judge;
	struct margins margins;
	uint64_t replaced, replaced_otherwise; /* maps patched; of another encoding than a fresh one */
	uint64_t unstored;                     /* tiles that are no store's, or not the model's */
	int shown;
	unsigned char *image;  /* what the device's memory holds */
	unsigned char *before; /* the same before a store */
	unsigned char *got;
	unsigned char *roles;
	unsigned char *tile; /* TILE_ROOM, as marks; the others IMAGE_BYTES */
	unsigned char *marks;
};

static int run_draws(struct run *run, uint64_t first, uint64_t count, struct error *err);
static int run_draw(struct run *run, struct error *err);
static int make_map(struct run *run, const struct draw *draw, CUtensorMap *map, struct error *err);
static int try_load(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int try_store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int check_image(struct run *run, bool *ret_same, struct error *err);
static bool report(struct run *run, bool image_same);

/* ---- Life -------------------------------------------------------------------------------------------- */

static int start(struct run *run, struct error *err)
{
	struct rng rng = { run->seed };
	int r;

	run->image = malloc(IMAGE_BYTES);
	run->before = malloc(IMAGE_BYTES);
	run->got = malloc(IMAGE_BYTES);
	run->roles = malloc(IMAGE_BYTES);
	run->tile = malloc(TILE_ROOM);
	run->marks = malloc(TILE_ROOM);
	if (!run->image || !run->before || !run->got || !run->roles || !run->tile || !run->marks)
		return error_set(err, STATUS_NO_MEMORY, "no memory");
	r = gpu_open(&run->gpu, IMAGE_BYTES, TILE_ROOM, err);
	if (r < 0)
		return r;
	run->is_model = !strcmp(run->gpu.device.name, "softgpu");
	rng_fill(&rng, run->image, IMAGE_BYTES);
	return gpu_write(&run->gpu, run->gpu.image, run->image, IMAGE_BYTES, err);
}

static void stop(struct run *run)
{
	gpu_close(&run->gpu);
	free(run->image);
	free(run->before);
	free(run->got);
	free(run->roles);
	free(run->tile);
	free(run->marks);
	free(run);
}

static uint64_t argument(int argc, char **argv, int i, uint64_t otherwise)
{
	return i < argc ? strtoull(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	struct run *run = calloc(1, sizeof *run);
	uint64_t count = argument(argc, argv, 2, 1000), first = argument(argc, argv, 3, 0);
	bool image_same = false, right = false;
	struct error err;
	int r;

	if (!run)
		return EXIT_FAILURE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	run->seed = argument(argc, argv, 1, 1);
	r = start(run, &err);
	if (r == STATUS_UNSUPPORTED) {
		printf("1..0 # SKIP %s\n", err.message);
		stop(run);
		return EXIT_SUCCESS;
	}
	if (r == 0) {
		printf("# %s, seed %" PRIu64 ", draws %" PRIu64 " to %" PRIu64 "\n", run->gpu.device.name,
		       run->seed, first, count - 1);
		r = run_draws(run, first, count, &err);
	}
	if (r == 0)
		r = check_image(run, &image_same, &err);
	if (r < 0)
		printf("Bail out! draw %" PRIu64 ": %s\n", run->number, err.message);
	else
		right = report(run, image_same);
	stop(run);
	return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- A draw ------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static void show(struct run *run, const struct draw *draw,
                                                       const char *format, ...)
{
	char text[512];
	va_list args;

	if (run->shown++ >= MAX_SHOWN)
		return;
	printf("# draw %" PRIu64 ": ", run->number);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(" [%s]\n", draw_print(draw, text, sizeof text));
}

static int run_draws(struct run *run, uint64_t first, uint64_t count, struct error *err)
{
	for (run->number = first; run->number < count; run->number++) {
		int r = run_draw(run, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static uint64_t address_of(const struct run *run, const struct draw *draw)
{
	return run->gpu.image + IMAGE_ORIGIN + draw->offset;
}

static int run_draw(struct run *run, struct error *err)
{
	struct rng rng = { run->seed * UINT64_C(0x632be59bd9b4e019) + run->number };
	struct draw draw;
	CUtensorMap map;
	uint64_t address;
	int r;

	draw_legal(&rng, &draw);
	if (rng_below(&rng, 4) == 0)
		draw_spoil(&rng, &draw);
	run->rng = rng;
	address = address_of(run, &draw);
	if (!judge_map(&run->judge, &draw, address, gpu_encode(&map, &draw.layout, address)))
		return 0;
	if (tensor_map_tile_bytes(&draw.layout) + CONFORMANCE_GUARD + 128 + CONFORMANCE_BARRIER >
	    run->gpu.device.shared_bytes)
		return 0;
	r = make_map(run, &draw, &map, err);
	if (r == 0)
		r = try_load(run, &draw, &map, err);
	return r < 0 ? r : try_store(run, &draw, &map, err);
}

/* Every second map is encoded elsewhere and patched, as the cache does it. */
static int make_map(struct run *run, const struct draw *draw, CUtensorMap *map, struct error *err)
{
	CUtensorMap fresh = *map;
	int r;

	if (run->number % 2)
		return 0;
	r = driver_check(err, gpu_encode(map, &draw->layout, address_of(run, draw) + 4096),
	                 "cuTensorMapEncodeTiled");
	if (r == 0)
		r = driver_call(err, cuTensorMapReplaceAddress, (map, (void *)address_of(run, draw)));
	run->replaced++;
	run->replaced_otherwise += memcmp(map, &fresh, sizeof fresh) != 0;
	return r;
}

/* ---- Loads ------------------------------------------------------------------------------------------- */

/* A swizzle moves pieces within lines of 128 bytes: those of the last one lie anywhere in it. */
static uint32_t whole_lines(uint32_t bytes)
{
	return (bytes + 127) / 128 * 128;
}

static struct conformance_args args_of(const struct draw *draw, const CUtensorMap *map, uint32_t guard)
{
	struct conformance_args args = {
		.map = *map,
		.rank = draw->layout.rank,
		.expect = (uint32_t)tensor_map_tile_bytes(&draw->layout),
	};

	args.copied = whole_lines(args.expect) + guard;
	memcpy(args.at, draw->at, sizeof args.at);
	return args;
}

/* Bytes of shared memory up to the last that is not poison any more. */
static uint32_t written_bytes(const unsigned char *shared, uint32_t n)
{
	while (n > 0 && shared[n - 1] == CONFORMANCE_POISON)
		n--;
	return n;
}

static bool check_load(struct run *run, const struct draw *draw, const struct conformance_args *args,
                       uint32_t status)
{
	char pieces[256];

	if (status != CONFORMANCE_ARRIVED) {
		show(run, draw, "load: %u bytes did not come; of shared memory %u are written", args->expect,
		     written_bytes(run->got, args->copied));
		return false;
	}
	for (uint32_t i = 0; i < args->copied; i++) {
		if (run->got[i] == run->tile[i] || (i < args->expect && !run->marks[i]))
			continue;
		expect_print_pieces(draw, run->tile, run->got, args->copied, pieces, sizeof pieces);
		show(run, draw, "load: byte %u of %u is 0x%02x, the model says 0x%02x; pieces lie at%s", i,
		     args->expect, run->got[i], run->tile[i], pieces);
		return false;
	}
	return true;
}

static int try_load(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
{
	struct conformance_args args = args_of(draw, map, CONFORMANCE_GUARD);
	struct window window;
	uint32_t status = CONFORMANCE_NONE;
	int r;

	if (!expect_window(draw, &window))
		return 0;
	memset(run->tile, CONFORMANCE_POISON, args.copied);
	memset(run->marks, 0, args.copied);
	expect_load(draw, run->image, run->tile, run->marks);

	r = gpu_write(&run->gpu, run->gpu.status, &status, sizeof status, err);
	if (r == 0)
		r = gpu_run(&run->gpu, run->gpu.load, &args, err);
	if (r == 0)
		r = gpu_read(&run->gpu, &status, run->gpu.status, sizeof status, err);
	if (r == 0)
		r = gpu_read(&run->gpu, run->got, run->gpu.tile, args.copied, err);
	if (r == 0)
		features_count(run->tally, draw, run->number % 2 == 0, FEATURE_LOAD,
		               check_load(run, draw, &args, status));
	return r;
}

/* ---- Stores ------------------------------------------------------------------------------------------ */

static bool check_store(struct run *run, const struct draw *draw, const struct window *w)
{
	for (uint64_t at = w->first; at < w->end; at++) {
		enum role role = (enum role)run->roles[at];

		if (run->got[at] != run->image[at] && (role == ROLE_TILE || role == ROLE_NONE)) {
			show(run, draw,
			     "store: byte %" PRIu64 " of the tensor (%s) is 0x%02x, the model says 0x%02x",
			     at - IMAGE_ORIGIN - draw->offset, role_names[role], run->got[at],
			     run->image[at]);
			return false;
		}
	}
	return true;
}

/* The image takes what the model says, then what there is: the next draws go on from there. */
static int try_store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
{
	struct conformance_args args = args_of(draw, map, 0);
	struct window w;
	int r;

	if (!expect_window(draw, &w))
		return 0;
	if (run->is_model && !expect_model_takes_store(draw)) {
		run->unstored++;
		return 0;
	}
	rng_fill(&run->rng, run->tile, args.copied);
	memcpy(run->before + w.first, run->image + w.first, w.end - w.first);
	if (!expect_store(draw, run->tile, &w, run->image, run->roles)) {
		run->unstored++;
		return 0;
	}

	r = gpu_write(&run->gpu, run->gpu.tile, run->tile, args.copied, err);
	if (r == 0)
		r = gpu_run(&run->gpu, run->gpu.store, &args, err);
	if (r == 0 && w.first < w.end)
		r = gpu_read(&run->gpu, run->got + w.first, run->gpu.image + w.first, w.end - w.first, err);
	if (r == 0) {
		margins_count(&run->margins, &w, run->roles, run->before, run->got);
		features_count(run->tally, draw, run->number % 2 == 0, FEATURE_STORE,
		               check_store(run, draw, &w));
		memcpy(run->image + w.first, run->got + w.first, w.end - w.first);
	}
	return r;
}

/* ---- Report ------------------------------------------------------------------------------------------ */

/* Whether all of the memory is as the stores, each looked at where it was to write, left it. */
static int check_image(struct run *run, bool *ret_same, struct error *err)
{
	int r = gpu_read(&run->gpu, run->got, run->gpu.image, IMAGE_BYTES, err);

	if (r == 0)
		*ret_same = !memcmp(run->got, run->image, IMAGE_BYTES);
	return r;
}

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
static bool report(struct run *run, bool image_same)
{
	const struct judge *j = &run->judge;
	struct points points = { .all_right = true };

	point(&points, j->apart == 0,
	      "rules: %" PRIu64 " legal and %" PRIu64 " illegal maps judged alike, %" PRIu64 " not", j->legal,
	      j->illegal, j->apart);
	for (int f = 0; f < FEATURE_COUNT; f++)
		report_feature(&points, feature_name(f), &run->tally[f]);
	point(&points, image_same, "stores: nothing is written far from where it is to be");
	printf("1..%d\n", points.n);

	printf("# replaced addresses: %" PRIu64 " maps, of which %" PRIu64 " differ from fresh ones\n",
	       run->replaced, run->replaced_otherwise);
	printf("# stores left out: %" PRIu64 "\n", run->unstored);
	margins_print(&run->margins);
	return points.all_right;
}
