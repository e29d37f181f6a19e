/* SPDX-License-Identifier: Apache-2.0 */
/* `permute` moves tiles of many axes without a tensor map, with any kind of pad (permute_args.h). It sketches
 * boxes for many lengths of the runs on either side (permute_cost.c), builds the few tiles that look best,
 * and takes the one with the least predicted cost. Jobs wait for plans, so the number of boxes is bounded. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "permute_plan.h"
#include "plan.h"
#include "proto/arithmetic.h"
#include "strategy_launch.h"

/* ---- Sides --------------------------------------------------------------------------------------------- */

/* A side's chain lists the dimensions of a loop nest that follow one another in memory. */

#define MOST_GAP 64 /* maximum bytes between runs of the source that are loaded as one */

int64_t permute_dst_stride(const struct loop_nest *nest, int d)
{
	return nest->dim[d].dst;
}

int64_t permute_src_stride(const struct loop_nest *nest, int d)
{
	return nest->dim[d].src;
}

/* Returns the number of indices of dimension d on one side. The source has fewer if the dimension is
 * padded. */
static uint64_t count_of(const struct loop_nest *nest, int d, bool is_src)
{
	return (uint64_t)(is_src ? nest->dim[d].source : nest->dim[d].n);
}

/* Returns the dimension that continues where a run of this many bytes ends, or at most `gap` bytes later; -1
 * if there is none. */
static int next_of(const struct loop_nest *nest, bool is_src, uint64_t run, uint64_t gap)
{
	permute_stride *const stride = is_src ? permute_src_stride : permute_dst_stride;
	int best = -1;

	for (int d = 0; d < nest->rank; d++) {
		const uint64_t step = (uint64_t)magnitude_i64(stride(nest, d));

		if (count_of(nest, d, is_src) > 1 && step >= run && step - run <= gap &&
		    (best < 0 || step < (uint64_t)magnitude_i64(stride(nest, best))))
			best = d;
	}
	return best;
}

/* Returns the dimensions that follow one another in memory, forwards or backwards, starting with the
 * innermost. Two runs of the source are loaded as one if the gap between them is small, or small compared
 * with the run. */
static struct permute_chain chain_of(const struct loop_nest *nest, bool is_src)
{
	permute_stride *const stride = is_src ? permute_src_stride : permute_dst_stride;
	struct permute_chain chain = { .split = -1 };
	uint64_t run = nest->element, gap = 0;
	int d;

	while ((d = next_of(nest, is_src, run, gap)) >= 0) {
		chain.dim[chain.n++] = d;
		run = (uint64_t)magnitude_i64(stride(nest, d)) * count_of(nest, d, is_src);
		gap = !is_src ? 0 : run / 8 > MOST_GAP ? run / 8 : MOST_GAP;
	}
	return chain;
}

void permute_sides_init(struct permute_sides *ret, const struct loop_nest *nest,
                        const struct plan_facts *facts, enum pad_mode mode)
{
	*ret = (struct permute_sides){ nest, facts, mode, chain_of(nest, false), chain_of(nest, true) };
}

struct permute_chain permute_chain_within(const struct permute_chain *all, const struct loop_nest *nest,
                                          const struct permute_box *box)
{
	struct permute_chain chain = { .split = -1 };

	for (int i = 0; i < all->n && chain.split < 0; i++) {
		const int d = all->dim[i];

		if (box->n[d] == 1)
			break;
		chain.dim[chain.n++] = d;
		if (box->n[d] < nest->dim[d].n)
			chain.split = d;
	}
	return chain;
}

bool permute_chain_has(const struct permute_chain *chain, int d)
{
	for (int i = 0; i < chain->n; i++)
		if (chain->dim[i] == d)
			return true;
	return false;
}

uint64_t permute_align(const struct loop_nest *nest, const struct permute_chain *run, permute_stride *stride,
                       uint64_t step, uint64_t base, uint64_t most)
{
	uint64_t align = gcd_u64(most, base);

	for (int d = 0; d < nest->rank; d++)
		if (!permute_chain_has(run, d))
			align = gcd_u64(align, (uint64_t)magnitude_i64(stride(nest, d)));
	return gcd_u64(align, step);
}

#define CANDIDATES 8         /* number of boxes for which a tile is built */
#define FINALISTS  6         /* number of tiles whose bank conflicts are predicted */
#define SLACK      1.02      /* maximum ratio of a sketch's cost to the cost of its tile */
#define NEAR       (4.0 / 3) /* maximum ratio of two sizes of tiles that resemble each other */
#define MOST_SEEN  1024      /* entries of the hash table; more than the number of boxes that are made */

/* ---- Boxes --------------------------------------------------------------------------------------------- */

/* Returns how many of a dimension's n indices a box takes if it needs about `need`: all of them, or a part of
 * which a whole number of tiles just covers the dimension. */
static uint64_t part_along(uint64_t n, uint64_t need)
{
	return n < need + need / 2 ? n : divide_up_u64(n, divide_up_u64(n, need));
}

/* Extends the box along a chain until its run has this many bytes. It adds whole dimensions first and then a
 * part of one, which divides the dimension evenly and, if possible, gives a multiple of a sector. */
static void extend(struct permute_box *box, const struct permute_chain *chain, const struct loop_nest *nest,
                   bool is_dst, uint64_t bytes)
{
	for (int i = 0; i < chain->n; i++) {
		const int d = chain->dim[i];
		const uint64_t step = (uint64_t)llabs(is_dst ? nest->dim[d].dst : nest->dim[d].src);
		const uint64_t n = (uint64_t)nest->dim[d].n;
		uint64_t whole, part;

		if (step >= bytes)
			break;
		if (box->n[d] == n)
			continue;
		part = part_along(n, divide_up_u64(bytes, step));
		if (part == n) {
			box->n[d] = (uint32_t)n;
			continue;
		}
		whole = SECTOR / ((step | SECTOR) & -(step | SECTOR));
		if (whole < part)
			part = (part + whole - 1) / whole * whole;
		part = min_u64(part, n);
		if (part > box->n[d])
			box->n[d] = (uint32_t)part;
		break;
	}
}

/* Extends the box along dimensions that neither run uses, beginning with the destination's innermost, until
 * it has this many bytes. Returns false if the box stays as it is. */
static bool extend_stack(struct permute_box *box, const struct loop_nest *nest, uint64_t bytes)
{
	uint64_t own = nest->element;
	bool is_longer = false;

	for (int d = 0; d < nest->rank; d++)
		own *= box->n[d];
	for (int d = nest->rank - 1; d >= 0 && own * 2 <= bytes; d--) {
		const uint64_t n = (uint64_t)nest->dim[d].n, need = bytes / own;

		if (box->n[d] > 1 || n == 1)
			continue;
		box->n[d] = (uint32_t)part_along(n, need);
		own *= box->n[d];
		is_longer = true;
		if (box->n[d] < n)
			break;
	}
	return is_longer;
}

/* ---- The choice ---------------------------------------------------------------------------------------- */

/* A box that looks good, and one way to move it. */
struct candidate {
	enum permute_how how;
	int src_dims; /* maximum number of dimensions of a run of the source; dst_dims: of the destination */
	int dst_dims;
	struct permute_sketch sketch;
	struct permute_box box;
};

struct choice {
	const struct permute_sides *sides;
	bool is_varied; /* no two candidates may resemble each other */
	double limit;   /* a candidate that costs this or more is of no use */
	double most;    /* limit, or the worst candidate's cost once the list is full */
	int n;
	struct candidate candidate[CANDIDATES]; /* the cheapest sketches so far; sorted by cost in the end */
	uint64_t seen[MOST_SEEN];               /* hashes of the boxes considered so far; 0: free entry */
};

/* Returns false if the box has been considered before, and records it otherwise. Different run lengths often
 * give the same box. */
static bool is_new(struct choice *choice, const struct permute_box *box)
{
	uint64_t hash = 1;

	for (int d = 0; d < choice->sides->nest->rank; d++) {
		hash = (hash ^ box->n[d]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	hash |= 1;
	for (uint64_t i = hash >> 1;; i++) {
		uint64_t *const seen = &choice->seen[i % MOST_SEEN];

		if (*seen == hash)
			return false;
		if (*seen)
			continue;
		*seen = hash;
		return true;
	}
}

struct permute_sizes permute_sizes_of(const struct permute_tile *tile)
{
	return (struct permute_sizes){ tile->useful, tile->load_run, tile->row_run };
}

bool permute_sizes_are_near(const struct permute_sizes *a, const struct permute_sizes *b)
{
	const double sizes[][2] = { { a->tile, b->tile }, { a->load, b->load }, { a->row, b->row } };

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i][0] * NEAR < sizes[i][1] || sizes[i][1] * NEAR < sizes[i][0])
			return false;
	return true;
}

/* Drops the candidates that the new one resembles. Returns false if one of them costs no more than the new
 * one. */
static bool replace_similar(struct choice *choice, enum permute_how how, const struct permute_sketch *sketch)
{
	int n = 0;

	for (int i = 0; i < choice->n; i++) {
		const struct candidate *other = &choice->candidate[i];
		const bool is_similar =
		    other->how == how && permute_sizes_are_near(&sketch->sizes, &other->sketch.sizes);

		if (is_similar && other->sketch.cost <= sketch->cost)
			return false;
		if (!is_similar && n++ < i)
			choice->candidate[n - 1] = *other;
	}
	choice->n = n;
	return true;
}

/* Returns the index of the most expensive candidate. */
static int find_worst(const struct choice *choice)
{
	int worst = 0;

	for (int i = 1; i < choice->n; i++)
		if (choice->candidate[i].sketch.cost > choice->candidate[worst].sketch.cost)
			worst = i;
	return worst;
}

static void consider(struct choice *choice, const struct permute_box *box, enum permute_how how,
                     const struct permute_sketch *sketch)
{
	const struct permute_sides *sides = choice->sides;
	struct candidate *own;

	if (sketch->cost >= choice->most || (choice->is_varied && !replace_similar(choice, how, sketch)))
		return;
	own = &choice->candidate[choice->n < CANDIDATES ? choice->n++ : find_worst(choice)];
	own->how = how;
	own->src_dims = sides->src.n;
	own->dst_dims = sides->dst.n;
	own->sketch = *sketch;
	memcpy(own->box.n, box->n, (size_t)sides->nest->rank * sizeof *box->n);
	choice->most =
	    choice->n < CANDIDATES ? choice->limit : choice->candidate[find_worst(choice)].sketch.cost;
}

static int by_cost(const void *a, const void *b)
{
	const double x = ((const struct candidate *)a)->sketch.cost,
		     y = ((const struct candidate *)b)->sketch.cost;

	return (x > y) - (x < y);
}

static bool is_same(const struct permute_box *a, const struct permute_box *b, int rank)
{
	uint32_t differ = 0;

	for (int d = 0; d < rank; d++)
		differ |= a->n[d] ^ b->n[d];
	return differ == 0;
}

static void try_box(struct choice *choice, const struct permute_box *box)
{
	struct permute_sketch sketch[PERMUTE_HOWS];

	permute_sketch(choice->sides, box, choice->most, sketch);
	for (int how = 0; how < PERMUTE_HOWS; how++)
		consider(choice, box, (enum permute_how)how, &sketch[how]);
}

/* Considers boxes with these runs and with stacks of several sizes. */
static void consider_stacks(struct choice *choice, const struct permute_box *runs)
{
	static const uint16_t sizes[] = { 12288, 24576, 40960 };
	const struct loop_nest *nest = choice->sides->nest;

	try_box(choice, runs);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct permute_box box = *runs;

		if (extend_stack(&box, nest, sizes[i]) && is_new(choice, &box))
			try_box(choice, &box);
	}
}

/* Considers boxes for all combinations of run lengths. The likeliest lengths come first, so that most later
 * boxes exceed the cost limit early. */
static void consider_all(struct choice *choice)
{
	static const uint16_t lengths[] = { 512, 1024, 256,  2048, 384, 768,   192,
		                            128, 4096, 8192, 96,   64,  16384, 32768 };
	const struct loop_nest *nest = choice->sides->nest;
	const size_t n = sizeof lengths / sizeof *lengths;
	struct permute_box src[sizeof lengths / sizeof *lengths];
	size_t n_src = 0;

	memset(choice->seen, 0, sizeof choice->seen);
	for (size_t i = 0; i < n; i++) {
		bool is_known = false;

		for (int d = 0; d < nest->rank; d++)
			src[n_src].n[d] = 1;
		extend(&src[n_src], &choice->sides->src, nest, false, lengths[i]);
		for (size_t k = 0; k < n_src && !is_known; k++)
			is_known = is_same(&src[k], &src[n_src], nest->rank);
		n_src += !is_known;
		for (size_t k = 0; k < n && !is_known; k++) {
			struct permute_box runs = src[n_src - 1];

			extend(&runs, &choice->sides->dst, nest, true, lengths[k]);
			if (is_new(choice, &runs))
				consider_stacks(choice, &runs);
		}
	}
}

static int place_in(const struct permute_chain *chain, int d)
{
	int i = 0;

	while (i < chain->n && chain->dim[i] != d)
		i++;
	return i;
}

/* Considers runs that end earlier than they could, in two cases. In mode wrap, the border of a dimension
 * needs both of its ends, so a tile that has only a part of that dimension must load each of its indices
 * separately. A dimension that is read backwards prevents the words of several rows from being read at once;
 * if the destination's runs end before it, it can be reversed on both sides, or it belongs to the stack. */
static void consider_shorter_runs(struct choice *choice)
{
	const struct permute_sides *all = choice->sides;
	struct permute_sides shorter = *all;

	choice->sides = &shorter;
	for (int i = 0; i < all->src.n; i++) {
		const struct loop_nest_dim *dim = &all->nest->dim[all->src.dim[i]];
		const int in_dst = place_in(&all->dst, all->src.dim[i]);
		const bool is_wrapped = i > 0 && all->mode == PAD_MODE_WRAP && dim->source != dim->n;

		if (!is_wrapped && (dim->src > 0 || in_dst == 0 || in_dst == all->dst.n))
			continue;
		shorter.src.n = i > 0 ? i : all->src.n;
		shorter.dst.n = is_wrapped ? all->dst.n : in_dst;
		consider_all(choice);
	}
	choice->sides = all;
}

static void choice_init(struct choice *choice, const struct permute_sides *sides, bool is_varied, double most)
{
	choice->sides = sides;
	choice->is_varied = is_varied;
	choice->limit = choice->most = most;
	choice->n = 0;
	consider_all(choice);
	consider_shorter_runs(choice);
	qsort(choice->candidate, (size_t)choice->n, sizeof *choice->candidate, by_cost);
}

/* Builds the tile of a candidate and predicts its cost without bank conflicts. Returns false if the kernels
 * cannot move it or its runs are too short. */
static bool work_out(const struct choice *choice, int i, struct permute_tile *ret)
{
	const struct candidate *candidate = &choice->candidate[i];
	struct permute_sides sides = *choice->sides;

	sides.src.n = candidate->src_dims;
	sides.dst.n = candidate->dst_dims;
	if (!permute_tile_init(ret, &sides, &candidate->box, candidate->how) || ret->load_run < LEAST_RUN ||
	    ret->row_run < LEAST_RUN)
		return false;
	permute_lay_out(ret);
	ret->cost = permute_cost(ret);
	return ret->cost < PERMUTE_NEVER;
}

/* Predicts the cost with bank conflicts, which takes long. It stops early, with PERMUTE_NEVER, once the cost
 * reaches `most`. */
static double final_cost(struct permute_tile *tile, double most)
{
	if (!permute_arrange(tile, permute_most_wavefronts(tile, most)))
		return PERMUTE_NEVER;
	permute_lay_out(tile);
	return tile->cost = permute_cost(tile);
}

/* Sets *best and *best_box to the cheapest tile. Returns false if no tile costs less than `most`. Bank
 * conflicts never make a tile cheaper, so they are predicted only for tiles that cost less than the best one
 * without them. */
static bool choose(struct permute_tile *best, struct permute_box *best_box, const struct permute_sides *sides,
                   double most)
{
	struct choice choice;
	double least = most;
	int n = 0;

	choice_init(&choice, sides, false, most);
	for (int i = 0; i < choice.n && n < FINALISTS && choice.candidate[i].sketch.cost < least * SLACK;
	     i++) {
		struct permute_tile tile;

		if (!work_out(&choice, i, &tile) || tile.cost >= least)
			continue;
		n++;
		if (final_cost(&tile, least) >= least)
			continue;
		least = tile.cost;
		*best = tile;
		*best_box = choice.candidate[i].box;
	}
	return least < most;
}

/* Splits each padded dimension whose length and window are multiples of n indices into a padded dimension of
 * groups and, inside it, an unpadded dimension of n indices, within which runs may end. The border must be
 * constant. */
static void loosen(struct loop_nest *nest)
{
	for (int d = 0; d < nest->rank && nest->rank < TENSOR_MAX_RANK; d++) {
		struct loop_nest_dim *dim = &nest->dim[d];
		const int64_t n =
		    (int64_t)gcd_u64(gcd_u64((uint64_t)dim->n, (uint64_t)dim->before), (uint64_t)dim->source);

		if (dim->source == dim->n || n == 1 || dim->source == 0)
			continue;
		memmove(dim + 1, dim, (size_t)(nest->rank++ - d) * sizeof *dim);
		dim[1] = (struct loop_nest_dim){ .n = n, .dst = dim->dst, .src = dim->src, .source = n };
		dim[0] = (struct loop_nest_dim){ .n = dim->n / n,
			                         .dst = dim->dst * n,
			                         .src = dim->src * n,
			                         .before = dim->before / n,
			                         .source = dim->source / n };
	}
}

void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box)
{
	struct tma_route_plan *tma = &plan->tma;

	plan->tile_rank = tile->nest.rank;
	for (int d = 0; d < plan->tile_rank; d++)
		plan->tile[d] = box->n[d];
	plan->swizzle = "none";
	tma->cost = tile->cost;
	tma->sizes = permute_sizes_of(tile);
	tma->permute = tile->args;
	tma->element = tile->nest.element;
	tma->dst_offset = tile->nest.dst_offset;
	tma->src_offset = tile->nest.src_offset;
	tma->repeats = 1;
	tma->tiles = tile->tiles;
	tma->strategy = STRATEGY_permute;
	tma->alike = tile->alike;
	tma_set_dims(tma, &tile->nest, tile->nest.rank - 1, -1);
}

/* Sets *loose to a copy of the nest, with loosened dimensions if the border is constant, and *ret to the
 * sides, which refer to *loose. Returns false if a dimension is too long. */
static bool set_sides(struct permute_sides *ret, struct loop_nest *loose, const struct loop_nest *nest,
                      const struct plan_facts *facts, enum pad_mode mode)
{
	for (int d = 0; d < nest->rank; d++)
		if (nest->dim[d].n > TMA_LONGEST)
			return false;
	*loose = *nest;
	if (mode == PAD_MODE_CONSTANT)
		loosen(loose);
	permute_sides_init(ret, loose, facts, mode);
	return true;
}

bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode, double most)
{
	struct permute_sides sides;
	struct permute_tile tile;
	struct permute_box box;
	struct loop_nest loose;

	if (!set_sides(&sides, &loose, nest, facts, mode) || !choose(&tile, &box, &sides, most))
		return false;
	tma_set_permute(plan, &tile, &box);
	return true;
}

void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode, double most)
{
	struct permute_sides sides;
	struct loop_nest loose;
	struct choice choice;

	if (!set_sides(&sides, &loose, inner, facts, mode))
		return;
	choice_init(&choice, &sides, true, most);
	for (int i = 0; i < choice.n; i++) {
		struct plan other = *base;
		struct permute_tile tile;

		if (!work_out(&choice, i, &tile) || tile.cost >= most || final_cost(&tile, most) >= most)
			continue;
		tma_set_permute(&other, &tile, &choice.candidate[i].box);
		other.predicted = tma_cost(&other, nest, outer, mode);
		alternatives_add(list, &other);
	}
}

/* ---- The strategy ------------------------------------------------------------------------------------- */

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	return tma_try_permute(plan, c->nest, c->facts, c->mode, c->most);
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)mode;
	return plan->tma.cost;
}

/* The plan's dimensions are those of the loop nest, and plan->tile has an entry for each of them. */
static void describe(const struct plan *plan, struct plan_tile *ret)
{
	ret->rank = 0;
	for (int d = 0; d < plan->tile_rank; d++) {
		if (plan->tile[d] == 1)
			continue;
		ret->n[ret->rank] = plan->tile[d];
		plan_tile_set_dim(ret, plan, ret->rank++, plan->tile_rank - 1 - d);
	}
}

#ifdef HAVE_CUDA
static int launch(const struct strategy_launch *launch, struct error *err)
{
	const struct tma_route_plan *tma = &launch->plan->tma;
	const uint64_t dst = strategy_dst(launch), src = strategy_src(launch);
	struct permute_args args = tma->permute;
	enum kernel_id kernel =
	    args.how == PERMUTE_SQUARES  ? by_element(KERNEL_tile_squares_1, tma->element)
	    : args.how == PERMUTE_PIECES ? args.padded ? KERNEL_padded_pieces : KERNEL_tile_pieces
	    : args.how == PERMUTE_WORDS
		? by_element(args.padded ? KERNEL_padded_words_1 : KERNEL_tile_words_1, tma->element)
		: by_element(args.padded ? KERNEL_padded_permute_1 : KERNEL_tile_permute_1, tma->element);

	args.low = src;
	args.high = src + tma->element;
	for (uint32_t d = 0; d < tma->rank; d++) {
		const int64_t reach = (tma->dim[d].source - 1) * tma->dim[d].src;

		*(reach < 0 ? &args.low : &args.high) += (uint64_t)reach;
	}
	args.dst += dst;
	args.src += src;
	args.tiles = (uint32_t)tma->tiles;
	tma_fill_pattern(launch->transform, dst, args.pattern);
	return shape_launch(
	    &(struct shape){
		.kernel = kernel, .blocks = tma->tiles, .threads = args.threads, .shared = args.shared },
	    launch->launcher, launch->stream, &args, err);
}
#endif

const struct strategy strategy_permute = {
	.name = "permute",
	.family = FAMILY_TILE_TRANSPOSE,
	.turn = STRATEGY_INSTEAD,
	.has_border = true,
	.probe = probe,
	.cost = cost,
	.describe = describe,
	.launch = WITH_CUDA(launch),
};
