/* SPDX-License-Identifier: Apache-2.0 */
/* A box becomes a tile: its place in the grid, its loads, and the slots that these go to. */
#include "permute_work.h"

#include "proto/arithmetic.h"
#include "tuning.h"

#define MOST_LOADS 4096

bool permute_add_axis(struct permute_axis *list, uint32_t *n, uint64_t indices,
                      const struct loop_nest_dim *dim)
{
	if (*n == PERMUTE_LIST_RANK)
		return false;
	list[(*n)++] = (struct permute_axis){ divisor_of(indices), dim->dst, dim->src, (int32_t)dim->before,
		                              (int32_t)dim->source };
	return true;
}

/* ---- The box ------------------------------------------------------------------------------------------- */

/* The source's runs are read forwards. A dimension of these alone is reversed, on both sides; one that the
 * destination's runs have too is read backwards in the slots. */
static bool orient(struct permute_work *work)
{
	struct loop_nest *nest = work->nest;
	struct permute_args *args = work->args;

	*nest = *work->sides->nest;
	for (int i = 0; i < work->src.n; i++) {
		const int d = work->src.dim[i];
		struct loop_nest_dim *dim = &nest->dim[d];
		const int64_t reach = (dim->source - 1) * dim->src;

		if (dim->src > 0)
			continue;
		if (!permute_chain_has(&work->dst, d)) {
			nest->dst_offset += (dim->n - 1) * dim->dst;
			nest->src_offset += reach;
			dim->dst = -dim->dst;
			dim->src = -dim->src;
			dim->before = dim->n - dim->before - dim->source;
		} else if (d == work->src.split) {
			args->back = 1;
			if (d != work->dst.split || args->padded)
				return false;
		} else {
			args->run_base += (uint32_t)-reach;
			args->src += (uint64_t)reach;
		}
	}
	return true;
}

static struct permute_split split_of(const struct permute_work *work, int d)
{
	const struct loop_nest_dim *dim = &work->nest->dim[d < 0 ? 0 : d];

	if (d < 0)
		return (struct permute_split){ .axis = PERMUTE_NONE, .n = 1, .tile = 1 };
	return (struct permute_split){ PERMUTE_NONE, (uint32_t)dim->n, work->box->n[d], dim->dst, dim->src };
}

/* The dimensions that are in neither run; the box may have a part of the last of them. */
static bool set_stack(struct permute_work *work)
{
	work->stack.split = -1;
	for (int d = work->nest->rank - 1; d >= 0; d--) {
		if (work->box->n[d] == 1 || permute_chain_has(&work->src, d) ||
		    permute_chain_has(&work->dst, d))
			continue;
		if (work->stack.split >= 0)
			return false;
		work->stack.dim[work->stack.n++] = d;
		if (work->box->n[d] < work->nest->dim[d].n)
			work->stack.split = d;
	}
	return true;
}

/* The border must not need what only another tile has. With a value, or the nearest edge, it never does;
 * reflected, it stays close to the window as long as it does not turn around twice. */
static bool can_be_padded(const struct permute_work *work)
{
	const int split = work->dst.split >= 0 && permute_chain_has(&work->src, work->dst.split)
	                      ? work->dst.split
	                      : work->src.split;
	const struct loop_nest_dim *dim = &work->nest->dim[split < 0 ? 0 : split];
	const enum pad_mode mode = work->sides->mode;

	if (split < 0 || !is_padded(dim) || mode == PAD_MODE_CONSTANT || mode == PAD_MODE_EDGE)
		return true;
	return mode != PAD_MODE_WRAP && dim->before < dim->source &&
	       dim->n - dim->before - dim->source < dim->source;
}

/* The tiles along each dimension, the destination's innermost first. */
static bool set_grid(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;

	args->split_dst = split_of(work, work->dst.split);
	args->split_src = split_of(work, work->src.split);
	args->split_stack = split_of(work, work->stack.split);
	work->tile->tiles = 1;
	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];
		const uint32_t size = work->box->n[d];
		const uint64_t n = divide_up_u64((uint64_t)dim->n, size);

		if (n == 1)
			continue;
		if (args->n_grid == PERMUTE_GRID_RANK)
			return false;
		if (d == work->dst.split)
			args->split_dst.axis = args->n_grid;
		else if (d == work->src.split)
			args->split_src.axis = args->n_grid;
		else if (d == work->stack.split)
			args->split_stack.axis = args->n_grid;
		args->grid[args->n_grid++] =
		    (struct permute_axis){ divisor_of(n), dim->dst * size, dim->src * size,
			                   (int32_t)dim->before, (int32_t)dim->source };
		work->tile->tiles *= n;
		if (work->tile->tiles > INT32_MAX)
			return false;
	}
	return true;
}

/* ---- Loads --------------------------------------------------------------------------------------------- */

/* The bytes of a run of the source; those of its split dimension are counted in the tile. */
static void set_load_run(struct permute_work *work)
{
	struct permute_args *args = work->args;

	work->load_run = work->nest->element;
	for (int i = 0; i < work->src.n; i++) {
		const int d = work->src.dim[i];
		const uint64_t step = (uint64_t)magnitude_i64(work->nest->dim[d].src), inner = work->load_run;

		work->load_run += (work->m[d] - 1) * step;
		args->load_bytes = (uint32_t)work->load_run;
		if (d == work->dst.split || d == work->src.split) {
			args->load_by = d == work->dst.split ? PERMUTE_BY_SPLIT_DST : PERMUTE_BY_SPLIT_SRC;
			args->load_bytes = (uint32_t)step;
			args->load_gap = (uint32_t)(step - inner);
		}
	}
}

static bool set_loads(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;
	uint64_t loads = 1;

	set_load_run(work);
	for (int i = 0; i < work->dst.n; i++) {
		const int d = work->dst.dim[i];

		if (permute_chain_has(&work->src, d))
			continue;
		if (d == work->dst.split)
			args->limited_load = args->n_load;
		if (!permute_add_axis(args->load, &args->n_load, work->n[d], &nest->dim[d]))
			return false;
		loads *= work->n[d];
	}
	args->by_loads = divisor_of(loads);
	args->stack_load = args->n_load;
	for (int i = 0; i < work->stack.n; i++) {
		const int d = work->stack.dim[i];

		if (d == work->stack.split)
			args->stack_split = args->n_load;
		if (!permute_add_axis(args->load, &args->n_load, work->n[d], &nest->dim[d]))
			return false;
		loads *= work->n[d];
	}
	args->loads = (uint32_t)loads;
	return work->load_run <= PERMUTE_MOST_SLOTS && loads <= MOST_LOADS &&
	       work->load_run * loads <= PERMUTE_MOST_SLOTS;
}

/* What the start of a tile's runs is a multiple of, by the split dimension: the border and the ends of what
 * is read backwards move it by single indices. */
static uint64_t split_step(const struct permute_work *work, int split, uint64_t indices)
{
	const struct loop_nest_dim *dim = &work->nest->dim[split];

	return (uint64_t)magnitude_i64(dim->src) * (is_padded(dim) || work->args->back ? 1 : indices);
}

/* A slot has the chunks around a run, whose phase it keeps. */
static bool set_slots(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;
	const int dst = work->dst.split, src = work->src.split;
	uint64_t align = permute_align(
	    nest, &work->src, permute_src_stride, src < 0 ? 0 : split_step(work, src, work->box->n[src]),
	    work->sides->facts->src_phase + (uint64_t)nest->src_offset + args->src, 16);

	if (dst >= 0 && permute_chain_has(&work->src, dst))
		align = gcd_u64(align, split_step(work, dst, gcd_u64(args->margin, work->box->n[dst])));
	work->tile->unaligned_loads = align < 16 || work->load_run % 16;
	args->aligned = (uint32_t)gcd_u64(align, 8);
	args->pitch = (uint32_t)divide_up_u64(work->load_run + (align < 16 ? 30 : 0), 16) * 16;
	args->pad_shift = 31;
	args->pad = 16;
	args->phase_mask = 15;
	args->skew = PERMUTE_NO_SKEW;
	args->by_parts = divisor_of(1);
	args->row_phase = args->by_loads.n == 1;
	for (int i = 0; i < work->stack.n && !args->row_phase; i++)
		if (nest->dim[work->stack.dim[i]].src % 16)
			return false;
	return args->slot_lead + args->loads * (uint64_t)args->pitch <= PERMUTE_MOST_SLOTS;
}

/* ---- The tile ------------------------------------------------------------------------------------------ */

static void set_facts(struct permute_work *work)
{
	struct permute_tile *tile = work->tile;
	const struct loop_nest *nest = work->nest;

	tile->processors = work->sides->facts->threads;
	tile->wavefronts = 0;
	tile->load_lines = tile->row_lines = 0;
	tile->split_lines = false;
	tile->useful = nest->element;
	tile->wasted = 1;
	for (int d = 0; d < nest->rank; d++) {
		const uint64_t n = (uint64_t)nest->dim[d].n, part = work->box->n[d];

		tile->useful *= (double)part;
		tile->wasted *= (double)(divide_up_u64(n, part) * part) / (double)n;
	}
	tile->gaps = (double)work->load_run / nest->element;
	for (int i = 0; i < work->src.n; i++)
		tile->gaps /= (double)work->m[work->src.dim[i]];
	tile->alike = work->src.dim[0] == work->dst.dim[0];
	tile->load_run = (double)work->load_run;
	tile->row_run = work->args->row_bytes - work->args->margin * (double)work->args->row_unit;
}

bool permute_tile_init(struct permute_tile *ret, const struct permute_sides *sides,
                       const struct permute_box *box, enum permute_how how)
{
	struct permute_args *args = &ret->args;
	struct permute_work work = {
		.tile = ret,
		.args = args,
		.nest = &ret->nest,
		.sides = sides,
		.box = box,
		.dst = permute_chain_within(&sides->dst, sides->nest, box),
		.src = permute_chain_within(&sides->src, sides->nest, box),
	};

	*args = (struct permute_args){ .limited_load = PERMUTE_NONE,
		                       .limited_row = PERMUTE_NONE,
		                       .split_row = PERMUTE_NONE,
		                       .cut_row = PERMUTE_NONE,
		                       .stack_split = PERMUTE_NONE,
		                       .mode = (uint32_t)sides->mode,
		                       .how = how,
		                       .threads = PERMUTE_THREADS };
	if (how == PERMUTE_SQUARES)
		permute_separate_runs(&work);
	if (work.src.n == 0 || work.dst.n == 0)
		return false;
	for (int d = 0; d < sides->nest->rank; d++) {
		work.n[d] = box->n[d];
		work.m[d] = min_u64(box->n[d], (uint64_t)sides->nest->dim[d].source);
		args->padded |= is_padded(&sides->nest->dim[d]);
	}
	if (!orient(&work) || (args->padded && !can_be_padded(&work)) || !set_stack(&work) ||
	    !set_grid(&work) || !permute_cut_rows(&work) || !set_loads(&work) || !permute_set_rows(&work) ||
	    !set_slots(&work) || !permute_set_how(&work))
		return false;
	set_facts(&work);
	if (how == PERMUTE_SQUARES)
		permute_count_lines(&work);
	return true;
}
