/* SPDX-License-Identifier: Apache-2.0 */
/* Processes one draw after the other: encodes, loads, stores and compares. */
#include "conformance_run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conformance_args.h"
#include "conformance_beyond.h"
#include "conformance_draw.h"
#include "conformance_expect.h"
#include "conformance_gpu.h"
#include "kernels/cuda/driver/driver.h"

#define TILE_ROOM (256u << 10) /* more than the shared memory of any block */

struct run {
	struct gpu gpu;
	bool is_model; /* the stand-in: a launch that breaks a rule of the unit ends the context */
	uint64_t seed;
	struct rng rng; /* random numbers for the draw's data */
	struct results *results;
	unsigned char *image;  /* the expected contents of the device's memory */
	unsigned char *before; /* the same before a store */
	unsigned char *got;
	unsigned char *roles;
	unsigned char *tile; /* tile and marks have TILE_ROOM bytes, the other buffers IMAGE_BYTES */
	unsigned char *marks;
};

static int run_draws(struct run *run, struct error *err);
static int run_draw(struct run *run, struct error *err);
static int make_map(struct run *run, const struct draw *draw, CUtensorMap *map, struct error *err);
static int load(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int share(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int try_store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err);
static int check_image(struct run *run, struct error *err);
static int run_beyond(struct run *run, struct error *err);

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
}

int conformance_run(uint64_t seed, struct results *results, struct error *err)
{
	struct run run = { .seed = seed, .results = results };
	int r = start(&run, err);

	if (r == 0)
		printf("# %s, seed %" PRIu64 ", draws %" PRIu64 " to %" PRIu64 "\n", run.gpu.device.name,
		       seed, results->number, results->count - 1);
	if (r == 0)
		r = run_draws(&run, err);
	if (r == 0)
		r = check_image(&run, err);
	stop(&run);
	return r;
}

int conformance_run_beyond(uint64_t seed, struct results *results, struct error *err)
{
	struct run run = { .seed = seed, .results = results };
	int r = start(&run, err);

	while (r == 0 && results->beyond < beyond_count)
		r = run_beyond(&run, err);
	stop(&run);
	return r;
}

/* ---- A draw ------------------------------------------------------------------------------------------ */

static bool is_replaced(const struct run *run)
{
	return run->results->number % 2 == 0;
}

/* Reports in full what went wrong, while there is room for reports. Returns false. */
__attribute__((format(printf, 3, 4))) static bool wrong(struct run *run, const struct draw *draw,
                                                        const char *format, ...)
{
	uint64_t n = run->results->wrong++;
	char line[512];
	va_list args;
	size_t used;

	if (n >= SHOWN_IN_FULL)
		return false;
	used = (size_t)snprintf(run->results->shown[n], sizeof run->results->shown[n],
	                        "draw %" PRIu64 "%s [%s]\n#     ", run->results->number,
	                        is_replaced(run) ? ", its address replaced" : "",
	                        draw_print(draw, line, sizeof line));
	va_start(args, format);
	vsnprintf(run->results->shown[n] + used, sizeof run->results->shown[n] - used, format, args);
	va_end(args);
	return false;
}

static void count_lost(struct run *run, const struct draw *draw, const struct error *err)
{
	struct results *results = run->results;
	char line[512];

	features_count_lost(results->tally, draw, is_replaced(run));
	if (results->lost++ < LOST_SHOWN)
		printf("# draw %" PRIu64 " is the end of the context: %s [%s]\n", results->number,
		       err->message, draw_print(draw, line, sizeof line));
}

static bool is_late(const struct results *results)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec >= results->end_ns;
}

static int run_draws(struct run *run, struct error *err)
{
	int r = 0;

	while (r == 0 && run->results->number < run->results->count && !is_late(run->results)) {
		r = run_draw(run, err);
		run->results->number++;
	}
	return r;
}

static uint64_t address_of(const struct run *run, const struct draw *draw)
{
	return run->gpu.image + IMAGE_ORIGIN + draw->offset;
}

static int run_draw(struct run *run, struct error *err)
{
	struct rng rng = { run->seed * UINT64_C(0x632be59bd9b4e019) + run->results->number };
	struct draw draw;
	CUtensorMap map;
	uint64_t address;
	int r;

	draw_legal(&rng, &draw);
	if (rng_below(&rng, 4) == 0)
		draw_spoil(&rng, &draw);
	run->rng = rng;
	address = address_of(run, &draw);
	if (!judge_map(&run->results->judge, &draw, address, gpu_encode(&map, &draw.layout, address)))
		return 0;
	run->results->huge += draw_is_huge(&draw);
	if (draw_is_huge(&draw))
		return 0;
	if (tensor_map_tile_span(&draw.layout) + CONFORMANCE_GUARD + CONFORMANCE_BARRIER >
	    run->gpu.device.shared_bytes)
		return 0;
	r = make_map(run, &draw, &map, err);
	if (r == 0)
		r = load(run, &draw, &map, err);
	if (r == 0)
		r = share(run, &draw, &map, err);
	if (r == 0)
		r = try_store(run, &draw, &map, err);
	if (r < 0)
		count_lost(run, &draw, err);
	return r;
}

/* Every second map is encoded with another address and then patched, as the plan cache does. */
static int make_map(struct run *run, const struct draw *draw, CUtensorMap *map, struct error *err)
{
	CUtensorMap fresh = *map;
	int r;

	if (!is_replaced(run))
		return 0;
	r = driver_check(err, gpu_encode(map, &draw->layout, address_of(run, draw) + 4096),
	                 "cuTensorMapEncodeTiled");
	if (r == 0)
		r = driver_call(err, cuTensorMapReplaceAddress, (map, (void *)address_of(run, draw)));
	run->results->replaced++;
	run->results->replaced_otherwise += memcmp(map, &fresh, sizeof fresh) != 0;
	return r;
}

/* ---- Loads ------------------------------------------------------------------------------------------- */

static struct conformance_args args_of(const struct draw *draw, const CUtensorMap *map, uint32_t guard)
{
	struct conformance_args args = {
		.map = *map,
		.rank = draw->layout.rank,
		.expect = (uint32_t)tensor_map_tile_bytes(&draw->layout),
		.copied = (uint32_t)tensor_map_tile_span(&draw->layout) + guard,
	};

	memcpy(args.at, draw->at, sizeof args.at);
	return args;
}

/* Returns the number of bytes of shared memory up to the last that is not poison. */
static uint32_t written_bytes(const unsigned char *shared, uint32_t n)
{
	while (n > 0 && shared[n - 1] == CONFORMANCE_POISON)
		n--;
	return n;
}

/* The bytes between rows that are narrower than the swizzle may have any value. */
static bool check_load(struct run *run, const struct draw *draw, const struct conformance_args *args,
                       uint32_t status)
{
	uint32_t first = 0, differ = 0, n = args->copied;
	char pieces[256], want[EXPECT_PIECE_TEXT], got[EXPECT_PIECE_TEXT];

	for (uint32_t i = n; i-- > 0;)
		if (run->got[i] != run->tile[i] && (i >= n - CONFORMANCE_GUARD || run->marks[i])) {
			first = i;
			differ++;
		}
	if (status == CONFORMANCE_ARRIVED && differ == 0)
		return true;

	expect_print_pieces(draw, run->tile, run->got, n, pieces, sizeof pieces);
	if (status != CONFORMANCE_ARRIVED)
		return wrong(run, draw,
		             "load: the barrier did not get %u bytes; shared memory is written up to %u; "
		             "pieces lie at%s",
		             args->expect, written_bytes(run->got, n), pieces);
	return wrong(
	    run, draw,
	    "load: %u bytes of %u differ, the first being %u; from %u on there is %s, the model says "
	    "%s; pieces lie at%s",
	    differ, args->expect, first, first & ~15u, expect_print_piece(run->got, first, n, got),
	    expect_print_piece(run->tile, first, n, want), pieces);
}

static int load(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
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
		features_count(run->results->tally, draw, is_replaced(run), FEATURE_LOAD,
		               check_load(run, draw, &args, status));
	return r;
}

/* ---- Clusters ---------------------------------------------------------------------------------------- */

/* Moves the tile, and bytes of the image or of a block, in clusters. */
static int share(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
{
	struct cluster_memory memory = { run->image, run->tile, run->marks, run->got };
	struct rng rng = { run->seed ^ rng_next(&(struct rng){ run->results->number }) };
	struct window window;
	char text[512];
	int r = 0;

	for (int way = 0; way < CONFORMANCE_CLUSTER_WAYS && r == 0; way++) {
		if (way == CONFORMANCE_SHARE_TILE && !expect_window(draw, &window))
			continue;
		r = cluster_try(&run->gpu, (enum conformance_cluster_way)way, &rng, draw, map, memory,
		                TILE_ROOM, &run->results->cluster[way], text, sizeof text, err);
		if (r > 0)
			r = wrong(run, draw, "%s", text);
	}
	return r;
}

/* ---- Stores ------------------------------------------------------------------------------------------ */

static bool check_store(struct run *run, const struct draw *draw, const struct window *w)
{
	uint64_t first = 0, differ = 0;
	char want[EXPECT_PIECE_TEXT], got[EXPECT_PIECE_TEXT];

	for (uint64_t at = w->end; at-- > w->first;)
		if (run->got[at] != run->image[at] &&
		    (run->roles[at] == ROLE_TILE || run->roles[at] == ROLE_NONE)) {
			first = at;
			differ++;
		}
	if (differ == 0)
		return true;
	return wrong(run, draw,
	             "store: %" PRIu64 " bytes differ, the first being %" PRId64
	             " of the tensor (%s); its 16 are %s, the model says %s",
	             differ, (int64_t)(first - IMAGE_ORIGIN - draw->offset),
	             byte_role_names[run->roles[first]], expect_print_piece(run->got, first, w->end, got),
	             expect_print_piece(run->image, first, w->end, want));
}

static int try_store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
{
	if (expect_is_before(draw)) {
		run->results->before++;
		return 0;
	}
	if (run->is_model && expect_is_ragged(draw)) {
		run->results->unstored++;
		return 0;
	}
	return store(run, draw, map, err);
}

/* Stores the tile and compares. The image then takes over the actual bytes, from which the next draws
 * continue. */
static int store(struct run *run, const struct draw *draw, const CUtensorMap *map, struct error *err)
{
	struct conformance_args args = args_of(draw, map, 0);
	struct window w;
	int r;

	if (!expect_window(draw, &w))
		return 0;
	rng_fill(&run->rng, run->tile, args.copied);
	memcpy(run->before + w.first, run->image + w.first, w.end - w.first);
	if (!expect_store(draw, run->tile, &w, run->image, run->roles)) {
		run->results->unstored++;
		return 0;
	}

	r = gpu_write(&run->gpu, run->gpu.tile, run->tile, args.copied, err);
	if (r == 0)
		r = gpu_run(&run->gpu, run->gpu.store, &args, err);
	if (r == 0 && w.first < w.end)
		r = gpu_read(&run->gpu, run->got + w.first, run->gpu.image + w.first, w.end - w.first, err);
	if (r == 0) {
		margins_count(&run->results->margins, &w, run->roles, run->before, run->got);
		features_count(run->results->tally, draw, is_replaced(run), FEATURE_STORE,
		               check_store(run, draw, &w));
		memcpy(run->image + w.first, run->got + w.first, w.end - w.first);
	}
	return r;
}

/* Compares all memory with the image, where each store's own window has already been checked. */
static int check_image(struct run *run, struct error *err)
{
	int r = gpu_read(&run->gpu, run->got, run->gpu.image, IMAGE_BYTES, err);

	if (r == 0 && memcmp(run->got, run->image, IMAGE_BYTES) != 0)
		run->results->strays++;
	return r;
}

/* ---- Beyond ------------------------------------------------------------------------------------------ */

/* Prints the start of its line in advance, because the device may be lost before the end. */
static int run_beyond(struct run *run, struct error *err)
{
	const struct beyond *row = &beyond_rows[run->results->beyond++];
	uint64_t wrong = run->results->wrong;
	CUtensorMap map;
	CUresult result = gpu_encode(&map, &row->draw.layout, address_of(run, &row->draw));
	int r = 0;

	run->results->number = 1; /* the address of this draw is not shared with others */
	if (result == CUDA_SUCCESS)
		r = row->way == FEATURE_LOAD ? load(run, &row->draw, &map, err)
		                             : store(run, &row->draw, &map, err);
	if (result != CUDA_SUCCESS)
		printf("#   %s: the driver refuses the map, with result %d\n", row->name, (int)result);
	else if (r < 0)
		printf("#   %s: the end of the context, %s\n", row->name, err->message);
	else if (run->results->wrong == wrong)
		printf("#   %s: as the model has it\n", row->name);
	else
		printf("#   %s: otherwise; %s\n", row->name,
		       wrong < SHOWN_IN_FULL ? run->results->shown[wrong] : "");
	run->results->wrong = 0;
	return r;
}
