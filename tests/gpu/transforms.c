/* SPDX-License-Identifier: Apache-2.0 */
/* Compares random transforms on the device with the oracle: the whole destination, including guards and gaps.
 *
 *    transforms [CASES [SEED]]    Output is TAP. Each case is decided by its seed alone.
 *
 * Each transform is moved as planned, then by one of the planner's alternatives, and then by a random tile of
 * several axes if one can be drawn; each time once with the whole device, and once with one or two of its
 * multiprocessors.
 *
 * Odd seeds draw from the oracle's own cases, which are small and of every kind. Even seeds draw larger ones:
 * a fourth of them are moved without the Tensor Memory Accelerator, and the others are aligned so that it can
 * move most of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/strategy/plan.h"
#include "random_tile.h"
#include "rig.h"
#include "tests/support/oracle.h"

#define DEFAULT_CASES 2000
#define LARGE_BYTES   (192 << 10)

/* ---- Aligned cases --------------------------------------------------------------------------------- */

/* Sets strides of a C-order tensor whose rows may have a gap that keeps them aligned. Returns the elements
 * spanned. */
static int64_t aligned_strides(uint64_t *state, int rank, const int64_t *shape, int64_t chunk, int64_t *ret)
{
	int64_t step = 1;

	for (int d = rank - 1; d >= 0; d--) {
		ret[d] = step;
		step *= shape[d];
		if (d == rank - 1 && oracle_between(state, 0, 3) == 0)
			step = (step + chunk) / chunk * chunk;
	}
	return step;
}

static void must(int r, const struct error *err)
{
	if (r < 0)
		rig_die("%s", err->message);
}

static void aligned_case(uint64_t seed, struct oracle_case *c)
{
	uint64_t state = seed;
	struct transform_spec *spec = &c->spec;
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);
	int64_t size = dtype_size(dtype), chunk = 16 / size, room = LARGE_BYTES / size;
	int64_t shape[TENSOR_MAX_RANK], made[TENSOR_MAX_RANK], stride[TENSOR_MAX_RANK];
	int rank = (int)oracle_between(&state, 1, 5);
	struct error err;

	*c = (struct oracle_case){ .seed = seed };
	spec->n_perm = rank;
	spec->n_before = spec->n_after = rank;
	for (int d = 0; d < rank; d++)
		spec->perm[d] = d;
	for (int d = rank - 1; d > 0 && oracle_between(&state, 0, 3); d--) {
		int64_t other = oracle_between(&state, 0, d), kept = spec->perm[d];

		spec->perm[d] = spec->perm[other];
		spec->perm[other] = kept;
	}
	/* The source's innermost dimension, and the one that becomes the destination's, mostly are whole
	 * chunks. */
	for (int d = 0; d < rank; d++) {
		bool inner = d == rank - 1 || d == spec->perm[rank - 1];
		int64_t most = inner ? 300 : 20;

		if (most > room)
			most = room;
		shape[d] = oracle_between(&state, 1, most);
		if (inner && oracle_between(&state, 0, 9) && shape[d] > chunk)
			shape[d] -= shape[d] % chunk;
		room /= shape[d];
	}
	for (int d = 0; d < rank; d++) {
		int64_t n = shape[spec->perm[d]];
		int64_t unit = oracle_between(&state, 0, 2) ? chunk : 1;
		bool inner = d == rank - 1;

		if (oracle_between(&state, 0, 3) == 0)
			spec->before[d] = oracle_between(&state, 0, 3) * (inner ? unit : 1);
		if (oracle_between(&state, 0, 3) == 0)
			spec->after[d] = oracle_between(&state, 0, 3) * (inner ? unit : 1);
		if (oracle_between(&state, 0, 7) == 0 && n > 8)
			spec->before[d] = -oracle_between(&state, 1, 4);
		if (oracle_between(&state, 0, 7) == 0 && n > 8)
			spec->after[d] = -oracle_between(&state, 1, 4);
		made[d] = n + spec->before[d] + spec->after[d];
	}
	spec->mode =
	    oracle_between(&state, 0, 3) ? PAD_MODE_CONSTANT : (enum pad_mode)oracle_between(&state, 0, 4);
	if (spec->mode == PAD_MODE_CONSTANT && dtype != DTYPE_BOOL && oracle_between(&state, 0, 3) == 0)
		spec->value = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = 7 };

	c->src_size = (size_t)(aligned_strides(&state, rank, shape, chunk, stride) * size);
	if (rank > 1 && oracle_between(&state, 0, 7) == 0)
		stride[oracle_between(&state, 0, rank - 2)] = 0;
	must(tensor_layout_init(&spec->src, dtype, rank, shape, stride, "src", &err), &err);
	c->dst_size = (size_t)(aligned_strides(&state, rank, made, chunk, stride) * size);
	must(tensor_layout_init(&spec->dst, dtype, rank, made, stride, "dst", &err), &err);
}

/* ---- Awkward cases: what the kernels without the unit are for, large enough for all that they do ---- */

static void awkward_case(uint64_t seed, struct oracle_case *c)
{
	uint64_t state = seed;
	struct transform_spec *spec = &c->spec;
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);
	int64_t size = dtype_size(dtype), room = LARGE_BYTES / size, kind = oracle_between(&state, 0, 4);
	int64_t shape[6], made[6], stride[6], first = 0, span = 1;
	int rank = kind == 4 ? 6 : 3;
	struct error err;

	*c = (struct oracle_case){ .seed = seed };
	spec->n_perm = spec->n_before = spec->n_after = rank;
	for (int d = 0; d < rank; d++)
		spec->perm[d] = d;
	if (kind == 0) { /* pixels of a few channels, to planes or from them */
		int64_t channels = oracle_between(&state, 2, 8);
		int64_t pixels = oracle_between(&state, 1, 90) * (oracle_between(&state, 0, 7) ? 16 : 5);
		bool together = oracle_between(&state, 0, 1);

		shape[0] = oracle_between(&state, 1, 4);
		shape[1] = together ? pixels : channels;
		shape[2] = together ? channels : pixels;
		spec->perm[1] = 2;
		spec->perm[2] = 1;
	} else if (kind == 1 || kind == 2) { /* rows, forwards and backwards */
		shape[2] = oracle_between(&state, 1, kind == 1 ? 10000 / size : 600);
		shape[1] = oracle_between(&state, 1, 1 + room / shape[2] / 2);
		shape[0] = oracle_between(&state, 1, 2);
	} else if (kind == 3) { /* transposes */
		shape[2] = oracle_between(&state, 40, 500);
		shape[1] = oracle_between(&state, 1, 1 + room / shape[2]);
		shape[0] = 1;
		spec->perm[1] = 2;
		spec->perm[2] = 1;
	} else { /* many dimensions */
		for (int d = 0; d < rank; d++) {
			shape[d] = oracle_between(&state, 1, 4) * (d % 5 == 0 ? 8 : 1);
			spec->perm[d] = rank - 1 - d;
		}
	}
	for (int d = rank - 1; d >= 0; d--) {
		stride[d] = span;
		span *= shape[d];
		if (d == rank - 1 && oracle_between(&state, 0, 1))
			span += oracle_between(&state, 0, 5);
	}
	if (kind == 2) {
		stride[2] = -1;
		first = shape[2] - 1;
	}
	for (int d = 0; d < rank; d++) {
		if (oracle_between(&state, 0, 9) == 0)
			spec->before[d] = oracle_between(&state, 0, 5);
		if (oracle_between(&state, 0, 9) == 0)
			spec->after[d] = oracle_between(&state, 0, 5);
		made[d] = shape[spec->perm[d]] + spec->before[d] + spec->after[d];
	}
	if (oracle_between(&state, 0, 3) == 0)
		spec->mode = (enum pad_mode)oracle_between(&state, 0, 4);
	if (spec->mode == PAD_MODE_CONSTANT && dtype != DTYPE_BOOL && oracle_between(&state, 0, 3) == 0)
		spec->value = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = 7 };
	c->src_offset =
	    (size_t)((first + (oracle_between(&state, 0, 2) ? 0 : oracle_between(&state, 1, 7))) * size);
	c->dst_offset = (size_t)((oracle_between(&state, 0, 2) ? 0 : oracle_between(&state, 1, 7)) * size);
	c->src_size = (size_t)((span + 7) * size);
	must(tensor_layout_init(&spec->src, dtype, rank, shape, stride, "src", &err), &err);
	span = 7;
	for (int64_t d = 0, n = 1; d < rank; d++) {
		n *= made[d];
		span = n + 7;
	}
	c->dst_size = (size_t)(span * size);
	must(tensor_layout_init(&spec->dst, dtype, rank, made, NULL, "dst", &err), &err);
}

/* ---- One case -------------------------------------------------------------------------------------- */

struct bench {
	struct rig rig;
	CUdeviceptr dst;
	CUdeviceptr src;
	size_t room;
	uint64_t families[FAMILY_COUNT];
	uint64_t routes[STRATEGY_COUNT];
	uint64_t patched;
	uint64_t tiles[PERMUTE_HOWS];    /* random tiles by kind */
	uint64_t others[STRATEGY_COUNT]; /* alternative plans by strategy */
	struct alternatives alternatives;
};

static bool complain(const struct oracle_case *c, const struct plan *plan, const char *what)
{
	char text[1024];

	oracle_case_text(c, text, sizeof text);
	printf("# seed %" PRIu64 ", %s: %s: %s\n", c->seed, plan ? family_names[plan->family] : "-", what,
	       text);
	return false;
}

static bool move_within(struct bench *bench, struct oracle_case *c, const struct transform *transform,
                        const struct plan *plan, uint64_t dst, uint64_t src)
{
	const size_t dst_bytes = c->dst_size + 2 * ORACLE_GUARD, src_bytes = c->src_size + 2 * ORACLE_GUARD;
	struct error err;
	char text[2048];

	rig_call(cuMemcpyHtoDAsync, (bench->dst, c->dst, dst_bytes, bench->rig.stream));
	rig_call(cuMemcpyHtoDAsync, (bench->src, c->src, src_bytes, bench->rig.stream));
	if (launch_transform(&bench->rig.launcher, bench->rig.stream, transform, plan, dst, src, NULL, &err) <
	    0)
		return complain(c, plan, err.message);
	rig_call(cuMemcpyDtoHAsync, (c->dst, bench->dst, dst_bytes, bench->rig.stream));
	rig_wait(&bench->rig);
	if (!oracle_case_check(c, text, sizeof text))
		return complain(c, plan, text);
	return true;
}

/* Moves twice, with and without a limit of multiprocessors. before holds the destination's original bytes. */
static bool move(struct bench *bench, struct oracle_case *c, const struct transform *transform,
                 const struct plan *plan, uint64_t dst, uint64_t src, const uint8_t *before)
{
	const uint32_t few = 1 + (uint32_t)(c->seed / 2 % 2);
	bool good;

	bench->rig.launcher.multiprocessors = 0;
	good = move_within(bench, c, transform, plan, dst, src);
	if (!good)
		return false;
	memcpy(c->dst, before, c->dst_size + 2 * ORACLE_GUARD);
	bench->rig.launcher.multiprocessors = few;
	good = move_within(bench, c, transform, plan, dst, src);
	if (!good)
		printf("# seed %" PRIu64 ": with %" PRIu32 " multiprocessors\n", c->seed, few);
	return good;
}

/* Makes an alternative the plan. Returns false if there is none. */
static bool take_alternative(struct bench *bench, uint64_t *state, const struct transform *transform,
                             const struct plan_facts *facts, struct plan *plan)
{
	struct alternatives *list = &bench->alternatives;

	alternatives_init(list, plan, transform, facts);
	if (list->n == 1)
		return false;
	*plan = list->plan[oracle_between(state, 1, list->n - 1)];
	bench->others[plan->tma.strategy]++;
	return true;
}

static bool try_case(struct bench *bench, struct oracle_case *c)
{
	const size_t dst_bytes = c->dst_size + 2 * ORACLE_GUARD, src_bytes = c->src_size + 2 * ORACLE_GUARD;
	const uint64_t dst = bench->dst + ORACLE_GUARD + c->dst_offset,
		       src = bench->src + ORACLE_GUARD + c->src_offset;
	uint64_t state = c->seed;
	struct transform transform;
	struct plan plan;
	struct error err;
	uint8_t *before;
	bool good;

	if (dst_bytes > bench->room || src_bytes > bench->room)
		return complain(c, NULL, "larger than the room for it");
	if (transform_init(&transform, &c->spec, &err) < 0)
		return complain(c, NULL, err.message);
	before = malloc(dst_bytes);
	if (!before)
		rig_die("out of memory");
	memcpy(before, c->dst, dst_bytes);
	rig_plan(&bench->rig, &transform, dst, src, &plan);
	bench->families[plan.family]++;
	bench->routes[plan.tma.strategy]++;
	bench->patched += plan.tma.patched;
	good = move(bench, c, &transform, &plan, dst, src, before);
	const struct plan_facts facts = rig_facts(&bench->rig, dst, src);
	if (good && take_alternative(bench, &state, &transform, &facts, &plan)) {
		memcpy(c->dst, before, dst_bytes);
		good = move(bench, c, &transform, &plan, dst, src, before);
	}
	if (good && random_tile_plan(&state, &transform, &facts, &plan)) {
		memcpy(c->dst, before, dst_bytes);
		bench->tiles[plan.tma.permute.how]++;
		good = move(bench, c, &transform, &plan, dst, src, before);
	}
	free(before);
	return good;
}

static bool try_seed(struct bench *bench, uint64_t seed)
{
	struct oracle_case c;
	bool good;

	if (seed % 2)
		oracle_random_case(seed, &c);
	else if (seed % 8 == 0)
		awkward_case(seed, &c);
	else
		aligned_case(seed, &c);
	if (!oracle_case_prepare(&c))
		rig_die("out of memory");
	good = try_case(bench, &c);
	oracle_case_free(&c);
	return good;
}

static void print_routes(const char *what, const uint64_t *n)
{
	printf("# %s: none %" PRIu64 " memcpy %" PRIu64 " bulk %" PRIu64 " copy %" PRIu64
	       " transpose %" PRIu64 " rows %" PRIu64 " short %" PRIu64 " tiles %" PRIu64 " gather %" PRIu64
	       " channels %" PRIu64 " permute %" PRIu64 " elements %" PRIu64 "\n",
	       what, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11]);
}

/* Replaces the driver's occupancy query. Cases are small; with so few resident blocks, each block of a kernel
 * whose grid depends on occupancy has several tiles. */
static CUresult CUDAAPI one_block(int *ret, CUfunction function, int threads, size_t shared)
{
	(void)function, (void)threads, (void)shared;
	*ret = 1;
	return CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
	uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : DEFAULT_CASES;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, failed = 0;
	static struct bench bench = { .room = 16 << 20 };
	struct error err;

	if (!rig_open(&bench.rig, NULL, &err)) {
		printf("1..0 # SKIP %s\n", err.message);
		return 0;
	}
	driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = one_block;
	bench.dst = rig_new(bench.room);
	bench.src = rig_new(bench.room);
	for (uint64_t i = 0; i < cases && failed < 20; i++)
		failed += !try_seed(&bench, seed + i);
	rig_free(bench.dst);
	rig_free(bench.src);
	rig_close(&bench.rig);
	for (int f = 0; f < FAMILY_COUNT; f++)
		printf("# %" PRIu64 " by %s\n", bench.families[f], family_names[f]);
	printf("# %" PRIu64 " with a border in their tiles\n", bench.patched);
	print_routes("routes", bench.routes);
	print_routes("alternatives", bench.others);
	printf("# random tiles: %" PRIu64 " by elements, %" PRIu64 " by words, %" PRIu64
	       " by pieces, %" PRIu64 " by squares\n",
	       bench.tiles[PERMUTE_ELEMENTS], bench.tiles[PERMUTE_WORDS], bench.tiles[PERMUTE_PIECES],
	       bench.tiles[PERMUTE_SQUARES]);
	printf("1..1\n%s - %" PRIu64 " transforms from seed %" PRIu64 ", %" PRIu64 " wrong\n",
	       failed ? "not ok" : "ok", cases, seed, failed);
	return failed != 0;
}
