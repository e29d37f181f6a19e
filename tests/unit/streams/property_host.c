/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random blocking calls between memory of a device and ordinary memory of the host, in several threads
 * at once: transforms, splits, conversions, scales that are computed, gathers and scatters. At least one side
 * lies on the device; everything else lies on either at random. The whole destination, with guards and gaps,
 * is compared with an oracle. Small tensors travel in several chunks here (packing.c). Environment variables:
 * PROPERTY_CASES: number of cases, instead of a share of FULL_CASES.
 * PROPERTY_SEED: seed of the first case, by default 1. A case depends on its own seed alone. */
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_request.h"
#include "client/tmaclient.h"
#include "tests/support/conversion_case.h"
#include "tests/support/tap.h"

#define FULL_CASES 20000
#define THREADS    3
#define MOST_BYTES (4u << 20) /* of a tensor and its guards */

enum kind { TRANSFORM, SPLIT, CONVERSION, AMAX, BLOCKS, KINDS };

static const char *const kind_names[KINDS] = { "transform", "split", "conversion", "amax", "blocks" };

/* Memory of a case in host memory, and its copy on the device if it is to lie there. */
struct place {
	uint8_t *host;
	size_t size;
	CUdeviceptr device; /* 0: the memory lies on the host */
};

enum { DST, SRC, SCALE, BIAS, INDEX, PLACES };

struct worker {
	pthread_t thread;
	tma_client *client;
	CUdeviceptr room[PLACES];
	struct place place[PLACES];
	uint64_t seed, state;
	char text[4096];
};

static CUcontext context;
static atomic_uint_fast64_t next_seed;
static uint64_t end_seed;
static atomic_uint failed, done[KINDS];

static __attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void must(bool is_true, const char *what)
{
	if (!is_true)
		die("property_host: %s", what);
}

#define cuda(call) must((call) == CUDA_SUCCESS, #call)

static __attribute__((format(printf, 2, 3))) bool says(struct worker *w, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(w->text, sizeof w->text, format, args);
	va_end(args);
	return false;
}

/* ---- Places ------------------------------------------------------------------------------------------- */

static void put_at(struct worker *w, int which, void *host, size_t size, bool is_on_device)
{
	struct place *place = &w->place[which];

	must(size <= MOST_BYTES, "a tensor is too large");
	*place = (struct place){ host, size, is_on_device ? w->room[which] : 0 };
	if (is_on_device && size > 0)
		cuda(cuMemcpyHtoDAsync(place->device, host, size, NULL));
}

static uint64_t address_of(const struct worker *w, int which)
{
	const struct place *place = &w->place[which];

	return place->device ? place->device : (uintptr_t)place->host;
}

/* Places dst and src so that at least one of them lies on the device. */
static void put_sides(struct worker *w, void *dst, size_t dst_size, void *src, size_t src_size)
{
	const int64_t which = oracle_between(&w->state, 0, 2);

	put_at(w, DST, dst, dst_size, which != 1);
	put_at(w, SRC, src, src_size, which != 2);
}

static void put_anywhere(struct worker *w, int which, void *host, size_t size)
{
	put_at(w, which, host, size, oracle_between(&w->state, 0, 1));
}

/* Copies the memory back from the device, if it lies there. */
static void fetch(struct worker *w, int which)
{
	const struct place *place = &w->place[which];

	if (place->device && place->size > 0)
		cuda(cuMemcpyDtoHAsync(place->host, place->device, place->size, NULL));
}

/* ---- Transforms --------------------------------------------------------------------------------------- */

static void put_case(struct worker *w, struct conversion_case *c, struct case_places *ret)
{
	put_sides(w, c->c.dst, c->c.dst_size + 2 * ORACLE_GUARD, c->c.src, c->c.src_size + 2 * ORACLE_GUARD);
	put_anywhere(w, SCALE, c->scale.bytes, c->scale.bytes ? c->scale.size : 0);
	put_anywhere(w, BIAS, c->bias.bytes, c->bias.bytes ? c->bias.size : 0);
	*ret = (struct case_places){ .dst = address_of(w, DST) + ORACLE_GUARD,
		                     .src = address_of(w, SRC) + ORACLE_GUARD,
		                     .scale = address_of(w, SCALE),
		                     .bias = address_of(w, BIAS) };
}

/* Runs a request by one of the calls that can, chosen at random. */
static int run(struct worker *w, struct tma_transform *t)
{
	struct tma_item item = { .transform = t };
	struct tma_result result;
	tma_ticket ticket;
	int rc;

	switch (oracle_between(&w->state, 0, 2)) {
	case 0:
		return tma_transform(w->client, t);
	case 1:
		rc = tma_run_items(w->client, &item, 1, NULL);
		return rc;
	default:
		rc = tma_submit(w->client, t, &ticket);
		return rc < 0 ? rc : tma_wait(w->client, ticket, &result);
	}
}

static bool transforms(struct worker *w)
{
	struct conversion_case c = { .changed = 0 };
	struct case_request request;
	struct case_places places;
	bool good;

	oracle_random_case(w->seed, &c.c);
	must(oracle_case_prepare(&c.c), "out of memory");
	put_case(w, &c, &places);
	case_request_init(&request, &c, false, &places);
	good = run(w, &request.transform) == 0 || says(w, "%s", tma_last_error(w->client));
	fetch(w, DST);
	good = good && oracle_case_check(&c.c, w->text, sizeof w->text);
	oracle_case_free(&c.c);
	return good;
}

static bool splits(struct worker *w)
{
	struct conversion_case c = { .changed = 0 };
	struct split_case s;
	struct case_request request;
	struct case_places places;
	bool good;

	split_random_case(w->seed, &s);
	must(split_case_prepare(&s), "out of memory");
	c.c = s.c;
	put_case(w, &c, &places);
	case_request_init(&request, &c, false, &places);
	case_request_split(&request, &s.dst, &s.src);
	good = run(w, &request.transform) == 0 || says(w, "%s", tma_last_error(w->client));
	fetch(w, DST);
	good = good && oracle_case_check(&c.c, w->text, sizeof w->text);
	oracle_case_free(&s.c);
	return good;
}

static bool converts(struct worker *w)
{
	struct conversion_case c;
	struct case_request request;
	struct case_places places;
	bool good;
	int rc, wanted;

	conversion_random_case(w->seed, &c);
	must(conversion_case_prepare(&c), "out of memory");
	put_case(w, &c, &places);
	case_request_init(&request, &c, true, &places);
	wanted = c.changed > 0 && c.c.spec.conversion.cast == CAST_EXACT ? TMA_OUT_OF_RANGE : 0;
	rc = run(w, &request.transform);
	good = rc == wanted || says(w, "%s: %s", tma_status_name(rc), tma_last_error(w->client));
	fetch(w, DST);
	good = good && conversion_case_check(&c, w->text, sizeof w->text);
	conversion_case_free(&c);
	return good;
}

/* ---- Scales that are computed -------------------------------------------------------------------------- */

/* A conversion that computes scales. The oracle is the CPU's engine, with everything on the host. */
struct scaled {
	int64_t rows, columns, block[2], steps[2]; /* steps are elements from one row to the next */
	float *src;
	uint8_t *dst;
	float *scales, *inverses;
	size_t n_src, n_dst, n_scales;
};

static void scaled_init(struct scaled *s, uint64_t seed)
{
	uint64_t state = seed;

	s->rows = oracle_between(&state, 1, 40);
	s->columns = oracle_between(&state, 1, 60);
	s->block[0] = oracle_between(&state, 1, s->rows);
	s->block[1] = oracle_between(&state, 1, s->columns);
	s->steps[0] = s->columns + oracle_between(&state, 0, 3);
	s->steps[1] = s->columns + oracle_between(&state, 0, 3);
	s->n_dst = (size_t)(s->rows * s->steps[0]);
	s->n_src = (size_t)(s->rows * s->steps[1]);
	s->n_scales = (size_t)(((s->rows + s->block[0] - 1) / s->block[0]) *
	                       ((s->columns + s->block[1] - 1) / s->block[1]));
	s->src = malloc(s->n_src * sizeof *s->src);
	s->dst = malloc(s->n_dst);
	s->scales = malloc(s->n_scales * sizeof *s->scales);
	s->inverses = malloc(s->n_scales * sizeof *s->inverses);
	must(s->src && s->dst && s->scales && s->inverses, "out of memory");
	for (size_t i = 0; i < s->n_src; i++)
		s->src[i] = (float)oracle_between(&state, -1000, 1000) / 7;
	memset(s->dst, 0x5a, s->n_dst);
	memset(s->scales, 0x5a, s->n_scales * sizeof *s->scales);
	memset(s->inverses, 0x5a, s->n_scales * sizeof *s->inverses);
}

static void scaled_deinit(struct scaled *s)
{
	free(s->src);
	free(s->dst);
	free(s->scales);
	free(s->inverses);
}

static int quantize(struct worker *w, const struct scaled *s, uint64_t dst, uint64_t src, uint64_t scale,
                    uint64_t inverse)
{
	const int64_t dst_strides[] = { s->steps[0], 1 }, src_strides[] = { s->steps[1], 1 };
	const int64_t blocks[] = { (s->rows + s->block[0] - 1) / s->block[0],
		                   (s->columns + s->block[1] - 1) / s->block[1] };
	const struct tma_tensor to = { .offset = dst,
		                       .dtype = TMA_FLOAT8_E4M3FN,
		                       .rank = 2,
		                       .shape = { s->rows, s->columns },
		                       .strides = dst_strides };
	const struct tma_tensor from = { .offset = src,
		                         .dtype = TMA_FLOAT32,
		                         .rank = 2,
		                         .shape = { s->rows, s->columns },
		                         .strides = src_strides };
	const struct tma_tensor scales = {
		.offset = scale, .dtype = TMA_FLOAT32, .rank = 2, .shape = { blocks[0], blocks[1] }
	};
	struct tma_tensor inverses = scales;
	const struct tma_amax amax = { .block = s->block, .scale = &scales, .inverse = &inverses };
	const struct tma_conversion conversion = { .amax = &amax };
	struct tma_transform t = { .dst = &to, .src = &from, .conversion = &conversion };

	inverses.offset = inverse;
	return run(w, &t);
}

static bool scales(struct worker *w)
{
	struct scaled wanted, s;
	bool good;

	scaled_init(&wanted, w->seed);
	scaled_init(&s, w->seed);
	must(quantize(w, &wanted, (uintptr_t)wanted.dst, (uintptr_t)wanted.src, (uintptr_t)wanted.scales,
	              (uintptr_t)wanted.inverses) == 0,
	     tma_last_error(w->client));
	put_sides(w, s.dst, s.n_dst, s.src, s.n_src * sizeof *s.src);
	put_anywhere(w, SCALE, s.scales, s.n_scales * sizeof *s.scales);
	put_anywhere(w, BIAS, s.inverses, s.n_scales * sizeof *s.inverses);
	good = quantize(w, &s, address_of(w, DST), address_of(w, SRC), address_of(w, SCALE),
	                address_of(w, BIAS)) == 0 ||
	       says(w, "%s", tma_last_error(w->client));
	fetch(w, DST);
	fetch(w, SCALE);
	fetch(w, BIAS);
	if (good && (memcmp(s.dst, wanted.dst, s.n_dst) != 0 ||
	             memcmp(s.scales, wanted.scales, s.n_scales * sizeof *s.scales) != 0 ||
	             memcmp(s.inverses, wanted.inverses, s.n_scales * sizeof *s.inverses) != 0))
		good = says(w, "%" PRId64 " x %" PRId64 " by blocks of %" PRId64 " x %" PRId64 " differ",
		            s.rows, s.columns, s.block[0], s.block[1]);
	scaled_deinit(&wanted);
	scaled_deinit(&s);
	return good;
}

/* ---- Blocks ------------------------------------------------------------------------------------------- */

#define MOST_LAYERS 4
#define MOST_COUNT  40

/* A pool of matrices of uint16; a list moves them to another pool, transposed or as they are. */
struct pool {
	int64_t stride[2]; /* of a block, in elements */
	int64_t step;      /* elements, as layer_step */
	int64_t layer_step;
	int64_t layers[MOST_LAYERS]; /* offsets in bytes */
	bool has_layers;
	int64_t count; /* blocks in a layer */
	size_t bytes;
	uint16_t *data;
};

struct listed {
	bool scatter, pairs, is_transposed, is_in_place, is_long;
	int64_t shape[2]; /* of a block of src */
	int64_t layers, n;
	/* The blocks of each entry; -1: the entry is skipped. */
	int64_t dst_block[MOST_COUNT], src_block[MOST_COUNT];
	int64_t numbers[2 * MOST_COUNT]; /* the list as it is sent */
	uint64_t passed;
	struct pool dst, src;
	uint16_t *wanted;
};

static void pool_init(struct pool *pool, int64_t rows, int64_t columns, int64_t count, int64_t layers,
                      uint64_t *state)
{
	int64_t block, last = 0;

	pool->count = count;
	pool->stride[1] = oracle_between(state, 1, 5) == 1 ? 2 : 1;
	pool->stride[0] =
	    columns * pool->stride[1] + oracle_between(state, 0, 1) * oracle_between(state, 0, 3);
	block = rows * pool->stride[0];
	pool->step = block + oracle_between(state, 0, 1) * oracle_between(state, 0, 9);
	pool->layer_step = pool->step * count + oracle_between(state, 0, 5);
	pool->has_layers = oracle_between(state, 0, 1);
	for (int64_t l = 0; l < layers; l++) {
		last = l * pool->layer_step;
		pool->layers[l] = (int64_t)sizeof(uint16_t) * (layers - 1 - l) * pool->layer_step;
	}
	pool->bytes = (size_t)(last + pool->layer_step + block) * sizeof *pool->data;
	pool->data = malloc(pool->bytes);
	must(pool->data, "out of memory");
	for (size_t i = 0; i < pool->bytes / sizeof *pool->data; i++)
		pool->data[i] = (uint16_t)oracle_random(state);
}

static int64_t at(const struct pool *pool, int64_t layer, int64_t block, int64_t r, int64_t c)
{
	const int64_t start =
	    pool->has_layers ? pool->layers[layer] / (int64_t)sizeof(uint16_t) : layer * pool->layer_step;

	return start + block * pool->step + r * pool->stride[0] + c * pool->stride[1];
}

/* Draws a list that names each block of dst at most once. */
static void draw_index(struct listed *list, int64_t dst_limit, int64_t src_limit, uint64_t *state)
{
	bool is_taken[2 * MOST_COUNT] = { false };
	int64_t *number = list->numbers;

	list->passed = 0;
	for (int64_t i = 0; i < list->n; i++) {
		int64_t *dst = &list->dst_block[i], *src = &list->src_block[i];

		*dst = *src = i;
		if (!list->scatter)
			*number++ = *src = oracle_between(state, -1, src_limit - 1);
		if (list->scatter || list->pairs) {
			*dst = oracle_between(state, -1, dst_limit - 1);
			if (*dst >= 0 && is_taken[*dst])
				*dst = -1;
			if (*dst >= 0)
				is_taken[*dst] = true;
			*number++ = *dst;
		}
		list->passed += *dst < 0 || *src < 0;
	}
}

static void listed_init(struct listed *list, uint64_t seed)
{
	uint64_t state = seed;
	int64_t dst_count = oracle_between(&state, 1, 2 * MOST_COUNT), src_count = dst_count;
	bool is_wide = oracle_between(&state, 0, 4) == 0; /* makes a block larger than a chunk */

	list->scatter = oracle_between(&state, 0, 1);
	list->pairs = !list->scatter && oracle_between(&state, 0, 1);
	list->is_transposed = oracle_between(&state, 0, 1);
	list->is_in_place = oracle_between(&state, 0, 1);
	list->is_long = oracle_between(&state, 0, 1);
	list->shape[0] = oracle_between(&state, 1, is_wide ? 40 : 6);
	list->shape[1] = oracle_between(&state, 1, is_wide ? 40 : 6);
	list->layers = oracle_between(&state, 1, MOST_LAYERS);
	list->n = oracle_between(&state, 1, MOST_COUNT);
	if (list->scatter)
		src_count = list->n;
	else if (list->pairs)
		src_count = oracle_between(&state, 1, 2 * MOST_COUNT);
	else
		dst_count = list->n;
	draw_index(list, dst_count, src_count, &state);
	pool_init(&list->dst, list->shape[list->is_transposed], list->shape[!list->is_transposed], dst_count,
	          list->layers, &state);
	pool_init(&list->src, list->shape[0], list->shape[1], src_count, list->layers, &state);
	list->wanted = malloc(list->dst.bytes);
	must(list->wanted, "out of memory");
	memcpy(list->wanted, list->dst.data, list->dst.bytes);
}

static void move_block(const struct listed *list, int64_t layer, int64_t dst, int64_t src)
{
	for (int64_t r = 0; r < list->shape[0]; r++)
		for (int64_t c = 0; c < list->shape[1]; c++)
			list->wanted[at(&list->dst, layer, dst, list->is_transposed ? c : r,
			                list->is_transposed ? r : c)] =
			    list->src.data[at(&list->src, layer, src, r, c)];
}

static void move_all(const struct listed *list)
{
	for (int64_t layer = 0; layer < list->layers; layer++)
		for (int64_t i = 0; i < list->n; i++)
			if (list->dst_block[i] >= 0 && list->src_block[i] >= 0)
				move_block(list, layer, list->dst_block[i], list->src_block[i]);
}

static struct tma_tensor block_of(const struct listed *list, const struct pool *pool, uint64_t address)
{
	const bool is_turned = pool == &list->dst && list->is_transposed;

	return (struct tma_tensor){ .offset = address,
		                    .dtype = TMA_UINT16,
		                    .rank = 2,
		                    .shape = { list->shape[is_turned], list->shape[!is_turned] },
		                    .strides = pool->stride };
}

static int run_list(struct worker *w, const struct listed *list, const void *index)
{
	const struct tma_tensor dst = block_of(list, &list->dst, address_of(w, DST));
	const struct tma_tensor src = block_of(list, &list->src, address_of(w, SRC));
	const struct tma_transform block = { .dst = &dst,
		                             .src = &src,
		                             .perm = list->is_transposed ? (const int[]){ 1, 0 } : NULL };
	const struct tma_blocks blocks = {
		.transform = &block,
		.count = (size_t)list->n,
		.index_dtype = list->is_long ? TMA_INT64 : TMA_INT32,
		.index = list->is_in_place ? NULL : index,
		.index_at.offset = list->is_in_place ? address_of(w, INDEX) : 0,
		.limit = (uint64_t)(list->scatter ? list->dst.count : list->src.count),
		.pairs = list->pairs,
		.dst_limit = list->pairs ? (uint64_t)list->dst.count : 0,
		.dst_step = (uint64_t)list->dst.step * sizeof(uint16_t),
		.src_step = (uint64_t)list->src.step * sizeof(uint16_t),
		.layers = (uint32_t)list->layers,
		.dst_layer_step =
		    list->dst.has_layers ? 0 : (uint64_t)list->dst.layer_step * sizeof(uint16_t),
		.src_layer_step =
		    list->src.has_layers ? 0 : (uint64_t)list->src.layer_step * sizeof(uint16_t),
		.dst_layers = list->dst.has_layers ? list->dst.layers : NULL,
		.src_layers = list->src.has_layers ? list->src.layers : NULL,
	};

	return list->scatter ? tma_scatter(w->client, &blocks) : tma_gather(w->client, &blocks);
}

static bool moves_blocks(struct worker *w)
{
	const struct tma_result *result = tma_last_result(w->client);
	struct listed list;
	int32_t half[2 * MOST_COUNT];
	int64_t n;
	void *index;
	bool good;

	listed_init(&list, w->seed);
	move_all(&list);
	n = list.pairs ? 2 * list.n : list.n;
	for (int64_t i = 0; i < n; i++)
		half[i] = (int32_t)list.numbers[i];
	index = list.is_long ? (void *)list.numbers : (void *)half;
	put_sides(w, list.dst.data, list.dst.bytes, list.src.data, list.src.bytes);
	put_anywhere(w, INDEX, index, (size_t)n * (list.is_long ? 8 : 4));
	good = run_list(w, &list, index) == 0 || says(w, "%s", tma_last_error(w->client));
	if (good && (result->passed != list.passed || result->moved != (uint64_t)list.n - list.passed))
		good = says(w, "%" PRIu64 " moved and %" PRIu64 " passed over of %" PRId64, result->moved,
		            result->passed, list.n);
	fetch(w, DST);
	if (good && memcmp(list.dst.data, list.wanted, list.dst.bytes) != 0)
		good = says(
		    w, "%s of %" PRId64 " blocks of %" PRId64 " x %" PRId64 " in %" PRId64 " layers differs",
		    list.scatter ? "scatter"
		    : list.pairs ? "list of pairs"
				 : "gather",
		    list.n, list.shape[0], list.shape[1], list.layers);
	free(list.dst.data);
	free(list.src.data);
	free(list.wanted);
	return good;
}

/* ---- Main --------------------------------------------------------------------------------------------- */

typedef bool try_fn(struct worker *w);

static try_fn *const tries[KINDS] = { transforms, splits, converts, scales, moves_blocks };

static void *work(void *arg)
{
	struct worker *w = arg;

	cuda(cuCtxSetCurrent(context));
	while ((w->seed = atomic_fetch_add(&next_seed, 1)) < end_seed) {
		int kind;

		w->state = w->seed * 3 + 1;
		kind = (int)oracle_between(&w->state, 0, KINDS - 1);
		atomic_fetch_add(&done[kind], 1);
		if (tries[kind](w))
			continue;
		atomic_fetch_add(&failed, 1);
		fprintf(stderr, "property_host: seed %" PRIu64 ": %s, dst on the %s, src on the %s: %s\n",
		        w->seed, kind_names[kind], w->place[DST].device ? "device" : "host",
		        w->place[SRC].device ? "device" : "host", w->text);
	}
	return NULL;
}

static void worker_open(struct worker *w)
{
	w->client = tma_new();
	must(tma_connect(w->client, "local:") == 0, tma_last_error(w->client));
	for (int i = 0; i < PLACES; i++)
		cuda(cuMemAlloc(&w->room[i], MOST_BYTES));
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
	static struct worker worker[THREADS];
	const uint64_t cases = number("PROPERTY_CASES", (uint64_t)tap_portion(FULL_CASES));
	const uint64_t seed = number("PROPERTY_SEED", 1);

	cuda(cuInit(0));
	cuda(cuDevicePrimaryCtxRetain(&context, 0));
	cuda(cuCtxSetCurrent(context));
	atomic_store(&next_seed, seed);
	end_seed = seed + cases;
	for (int i = 0; i < THREADS; i++) {
		worker_open(&worker[i]);
		must(pthread_create(&worker[i].thread, NULL, work, &worker[i]) == 0, "no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(worker[i].thread, NULL);
		tma_free(worker[i].client);
	}
	tap_case(failed == 0,
	         "%u transforms, %u splits, %u conversions, %u with amax and %u lists of blocks between host "
	         "and device, %u wrong",
	         done[TRANSFORM], done[SPLIT], done[CONVERSION], done[AMAX], done[BLOCKS], failed);
	return tap_end();
}
