/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a box into a tile: its place in the grid, its loads, the slots that they go to, and its rows, or the
 * squares that it consists of. permute_args.h explains the terms. */
#include "permute_plan.h"

#include "proto/arithmetic.h"
#include "tuning.h"

#define MOST_LOADS 4096

/* A tile under construction. */
struct permute_work {
	struct permute_tile *tile;
	struct permute_args *args; /* &tile->args */
	struct loop_nest *nest;    /* &tile->nest */
	const struct permute_sides *sides;
	const struct permute_box *box;
	struct permute_chain dst; /* the runs of the box */
	struct permute_chain src;
	/* The dimensions that are in neither run. stack.split is the one of which the box has only a part, or
	 * -1. */
	struct permute_chain stack;
	uint64_t n[TENSOR_MAX_RANK + 1]; /* extents of the box, with the margin */
	uint64_t m[TENSOR_MAX_RANK + 1]; /* maximum number of these indices that the source has */
	uint64_t load_run;               /* bytes from the start of a load to its end */

	/* Number of dimensions of the destination's chain that a row spans. Those after them step from row to
	 * row. */
	int row_dims;
	int last;           /* the outermost dimension of a row */
	uint64_t row_align; /* alignment of rows in bytes, at most a sector */
	uint64_t rows;      /* number of rows so far */
	uint64_t span;      /* bytes from the start of the first row to that of the last row so far */
	bool padded_row[PERMUTE_LIST_RANK];
};

/* Appends a dimension with this many indices to a list. Returns false if the list is full. */
static bool add_axis(struct permute_axis *list, uint32_t *n, uint64_t indices,
                     const struct loop_nest_dim *dim)
{
	if (*n == PERMUTE_LIST_RANK)
		return false;
	list[(*n)++] = (struct permute_axis){ divisor_of(indices), dim->dst, dim->src, (int32_t)dim->before,
		                              (int32_t)dim->source };
	return true;
}

/* ---- The box ------------------------------------------------------------------------------------------- */

/* Handles dimensions of the source's runs that run backwards, since these runs are read forwards. A dimension
 * that only the source's run has is reversed on both sides. One that the destination's run has as well is
 * read backwards from the slots. Returns false if the kernels cannot move the box. */
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

/* Sets the stack. The box may have only a part of the stack's last dimension, but must have all indices of
 * the others; returns false if it does not. */
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

/* Returns whether no tile's border needs an element that only another tile loads. With a constant or edge
 * border this always holds. With a reflected border it holds if the border is shorter than the window, so
 * that it does not turn around twice. */
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

/* Sets the number of tiles along each dimension, the destination's innermost first. */
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

/* Sets the bytes of a run of the source. If it has a split dimension, the kernel multiplies load_bytes by the
 * number of that dimension's indices in the tile. */
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
		if (!add_axis(args->load, &args->n_load, work->n[d], &nest->dim[d]))
			return false;
		loads *= work->n[d];
	}
	args->by_loads = divisor_of(loads);
	args->stack_load = args->n_load;
	for (int i = 0; i < work->stack.n; i++) {
		const int d = work->stack.dim[i];

		if (d == work->stack.split)
			args->stack_split = args->n_load;
		if (!add_axis(args->load, &args->n_load, work->n[d], &nest->dim[d]))
			return false;
		loads *= work->n[d];
	}
	args->loads = (uint32_t)loads;
	return work->load_run <= PERMUTE_MOST_SLOTS && loads <= MOST_LOADS &&
	       work->load_run * loads <= PERMUTE_MOST_SLOTS;
}

/* Returns the bytes of which the starts of all tiles' runs along the split dimension are multiples: those of
 * `indices` indices or, if there is a border or the dimension is read backwards, those of a single one. */
static uint64_t split_step(const struct permute_work *work, int split, uint64_t indices)
{
	const struct loop_nest_dim *dim = &work->nest->dim[split];

	return (uint64_t)magnitude_i64(dim->src) * (is_padded(dim) || work->args->back ? 1 : indices);
}

/* Sets the slots. A slot holds the aligned chunks around a run, at the run's phase. Returns false if the
 * kernels cannot move the tile. */
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

/* ---- Squares ------------------------------------------------------------------------------------------- */

/* Returns the number of leading dimensions of a chain that the other chain does not have. */
static int own_dims(const struct permute_chain *chain, const struct permute_chain *other)
{
	int n = 0;

	while (n < chain->n && !permute_chain_has(other, chain->dim[n]))
		n++;
	return n;
}

static void end_after(struct permute_chain *chain, int n)
{
	if (n < chain->n)
		chain->split = -1;
	chain->n = n;
}

/* SQUARES: ends one side's run before the first dimension that the other side's run has as well. */
static void separate_runs(struct permute_work *work)
{
	const int dst = own_dims(&work->dst, &work->src);

	if (dst > 0)
		end_after(&work->dst, dst);
	else
		end_after(&work->src, own_dims(&work->src, &work->dst));
}

/* Returns whether the last tile along a split dimension, which may have fewer indices, still has whole
 * chunks. An index takes `step` bytes. */
static bool ends_whole(const struct permute_split *split, uint64_t step)
{
	return split->n % split->tile * step % CHUNK == 0;
}

/* Sets the fields for SQUARES. Returns false if the tile does not consist of squares. */
static bool set_squares(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const uint32_t chunks = (uint32_t)(work->load_run / CHUNK), element = work->nest->element;

	if (args->padded || args->stack_row < args->n_row || args->ragged || work->tile->unaligned_loads)
		return false;
	if (work->load_run != args->rows * (uint64_t)element || args->row_bytes % CHUNK)
		return false;
	if (args->load_by == PERMUTE_BY_SPLIT_SRC && !ends_whole(&args->split_src, args->load_bytes))
		return false;
	if (args->row_split && !ends_whole(&args->split_dst, args->row_unit))
		return false;
	args->by_parts = divisor_of(chunks);
	args->by_chunks = args->by_inner_chunks = divisor_of(args->row_bytes / CHUNK);
	args->pitch = (chunks | 1) * CHUNK;
	args->threads =
	    (uint32_t)divide_up_u64(args->loads * (uint64_t)chunks, SQUARES_BATCH(element) * WARP_THREADS) *
	    WARP_THREADS;
	return args->loads * work->load_run <= SQUARES_TILE_BYTES(element);
}

/* Returns the average number of lines that a run touches beyond those that it would fill if it were aligned,
 * divided by the number that it would fill. The run begins at any multiple of `align`. */
static double split_lines(uint64_t align, uint64_t run)
{
	return (double)(LINE - gcd_u64(align, run)) / (double)run;
}

/* SQUARES: sets load_lines and row_lines of the tile. */
static void count_lines(struct permute_work *work)
{
	const struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;
	const struct plan_facts *facts = work->sides->facts;
	const struct permute_split *dst = &args->split_dst, *src = &args->split_src;
	const uint64_t load_align =
	    permute_align(nest, &work->src, permute_src_stride,
	                  work->src.split < 0 ? 0 : (uint64_t)magnitude_i64(src->src) * src->tile,
	                  facts->src_phase + (uint64_t)nest->src_offset, LINE);
	const uint64_t row_align =
	    permute_align(nest, &work->dst, permute_dst_stride,
	                  work->dst.split < 0 ? 0 : (uint64_t)magnitude_i64(dst->dst) * dst->tile,
	                  facts->dst_phase + (uint64_t)nest->dst_offset, LINE);

	work->tile->load_lines = split_lines(load_align, work->load_run);
	work->tile->row_lines = split_lines(row_align, args->row_bytes);
}

#define MOST_ROWS     4096
#define LONGEST_TABLE 16000 /* maximum entries of a table where rows cannot be cut */
#define LEAST_PIECE   16    /* bytes */
#define MOST_IDLE     8     /* in groups of two words, at most one row in this many may be missing */
/* Bytes. slot_lead is a multiple of it, because slots may keep a phase within a line. */
#define SLOT_LEAD 128

/* ---- Where rows end ------------------------------------------------------------------------------------ */

/* Returns whether a row may be cut within dimension d. The parts of a row share one table, so they may not
 * differ in their border. */
static bool can_be_cut(const struct permute_work *work, int d)
{
	return !is_padded(&work->nest->dim[d]);
}

/* Returns whether a row of `unit` bytes ends before dimension i of the destination's chain because it could
 * not be cut within that dimension. The dimensions from `shared` on are also in the source's runs. */
static bool ends_before(const struct permute_work *work, int i, int shared, uint64_t unit)
{
	return i > 0 && i >= shared && unit >= LEAST_ROW && !can_be_cut(work, work->dst.dim[i]);
}

/* Chooses the end of a row so that the table of its elements does not get too long. The dimensions beyond
 * that end step from row to row, and the source's runs must have them too. */
static void cut_row(struct permute_work *work)
{
	const struct permute_chain *dst = &work->dst;
	struct permute_args *args = work->args;
	const uint64_t most = MOST_TABLE * work->nest->element;
	uint64_t unit = work->nest->element, part, whole;
	int i = 0, shared = dst->n; /* index of the first of the trailing dimensions that both chains have */

	work->row_dims = dst->n;
	while (shared > 0 && permute_chain_has(&work->src, dst->dim[shared - 1]))
		shared--;
	for (; i < dst->n - 1; i++) {
		const int d = dst->dim[i];

		if (unit * work->n[d] > most && (can_be_cut(work, d) || ends_before(work, i, shared, unit)))
			break;
		unit *= work->n[d];
	}
	if (args->how != PERMUTE_PIECES && i < shared && shared > 0) {
		work->row_dims = shared;
	} else if (args->how != PERMUTE_PIECES && unit * work->n[dst->dim[i]] > most &&
	           ends_before(work, i, shared, unit)) {
		work->row_dims = i;
	} else if (args->how != PERMUTE_PIECES) {
		work->row_dims = i + 1;
		part = most / unit;
		whole = SECTOR / gcd_u64(SECTOR, unit);
		if (part > 0 && part < work->n[dst->dim[i]] && can_be_cut(work, dst->dim[i]))
			args->cut = (uint32_t)(part > whole ? part / whole * whole : part);
	}
	work->last = dst->dim[work->row_dims - 1];
	unit = work->nest->element;
	for (i = 0; i < work->row_dims - 1; i++)
		unit *= work->n[dst->dim[i]];
	args->row_unit = (uint32_t)unit;
	args->row_split = work->last == dst->split;
}

/* Gives rows that begin or end within a sector a margin of indices from the tile before, so that each sector
 * is written once. It does not do so if the margin exceeds a quarter of the row. */
static void set_margin(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const uint64_t margin = divide_up_u64(SECTOR - 1, args->row_unit);

	if (!args->exact || !args->row_split || args->cut || margin * 4 > work->n[work->last] ||
	    args->how == PERMUTE_SQUARES)
		return;
	args->margin = (uint32_t)margin;
	args->exact = 0;
	work->n[work->last] += margin;
	work->m[work->last] =
	    min_u64(work->m[work->last] + margin, (uint64_t)work->nest->dim[work->last].source);
	work->row_align = gcd_u64(work->row_align, margin * args->row_unit);
}

/* Chooses where a row ends, and the margin. This must come before set_loads, because the loads include the
 * margin. Returns false if the rows are not aligned to an element. */
static bool cut_rows(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;
	const int split = work->dst.split;
	const uint64_t step =
	    split < 0 ? 0 : (uint64_t)magnitude_i64(nest->dim[split].dst) * work->box->n[split];
	struct permute_chain row = work->dst;

	cut_row(work);
	row.n = work->row_dims;
	work->row_align = permute_align(nest, &row, permute_dst_stride, step,
	                                work->sides->facts->dst_phase + (uint64_t)nest->dst_offset, SECTOR);
	if (args->cut)
		work->row_align = gcd_u64(work->row_align, (uint64_t)args->row_unit * args->cut);
	args->exact = work->row_align % SECTOR != 0;
	set_margin(work);
	args->last_n = (uint32_t)work->n[work->last];
	return work->row_align >= nest->element;
}

/* ---- From row to row ----------------------------------------------------------------------------------- */

static bool add_row(struct permute_work *work, uint64_t n, const struct loop_nest_dim *dim)
{
	struct permute_args *args = work->args;
	const uint64_t reach = (n - 1) * (uint64_t)magnitude_i64(dim->dst);

	work->rows *= n;
	work->span += reach;
	if (dim->dst < 0)
		args->row_lead += (uint32_t)reach;
	if (args->n_row < PERMUTE_LIST_RANK)
		work->padded_row[args->n_row] = is_padded(dim);
	return work->rows <= MOST_ROWS && work->span <= UINT32_MAX - 2 * PERMUTE_MOST_SLOTS &&
	       add_axis(args->row, &args->n_row, n, dim);
}

/* Accounts for rows that step along dimension d, `part` indices at a time. If the source runs backwards
 * there, the first row has the highest offset. All rows share one table. The last row may have fewer indices,
 * but it starts as if it had all of them. That start may lie before the slots, so slot_lead makes room for
 * it. */
static void set_back(struct permute_work *work, int d, uint64_t part)
{
	struct permute_args *args = work->args;
	const struct loop_nest_dim *dim = &work->nest->dim[d];
	const uint64_t step = (uint64_t)magnitude_i64(dim->src);

	if (dim->src > 0)
		return;
	if (gcd_u64(work->n[d], (uint64_t)dim->n) % part) {
		args->slot_lead = (uint32_t)divide_up_u64(part * step, SLOT_LEAD) * SLOT_LEAD;
		args->row_base += args->slot_lead;
	}
	if (args->back && d == work->dst.split) {
		args->back_part = (uint32_t)part;
		return;
	}
	args->row_base += (uint32_t)(((uint64_t)dim->source - part) * step);
	args->run_base -= (uint32_t)(((uint64_t)dim->source - part) * step);
}

static bool set_steps(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest *nest = work->nest;

	work->rows = 1;
	for (int i = 0; i < work->src.n; i++) {
		const int d = work->src.dim[i];

		if (permute_chain_has(&work->dst, d))
			continue;
		if (d == work->src.split)
			args->limited_row = args->n_row;
		if (!add_row(work, work->n[d], &nest->dim[d]))
			return false;
	}
	if (args->cut) {
		struct loop_nest_dim part = nest->dim[work->last];

		part.dst *= args->cut;
		part.src *= args->cut;
		args->cut_row = args->n_row;
		set_back(work, work->last, args->cut);
		if (!add_row(work, divide_up_u64(work->n[work->last], args->cut), &part))
			return false;
	}
	for (int i = work->row_dims; i < work->dst.n; i++) {
		const int d = work->dst.dim[i];

		if (d == work->dst.split)
			args->split_row = args->n_row;
		set_back(work, d, 1);
		if (!add_row(work, work->n[d], &nest->dim[d]))
			return false;
	}
	args->stack_row = args->n_row;
	for (int i = 0; i < work->stack.n; i++)
		if (!add_row(work, work->n[work->stack.dim[i]], &nest->dim[work->stack.dim[i]]))
			return false;
	return true;
}

/* Sets the steps from element to element within a row. A dimension that the source's runs do not have steps
 * from load to load. */
static bool set_elements(struct permute_work *work)
{
	struct permute_args *args = work->args;
	uint32_t load = 1;

	for (int i = 0; i < work->row_dims; i++) {
		const int d = work->dst.dim[i];
		const bool is_load = !permute_chain_has(&work->src, d);
		const uint64_t n = d == work->last && args->cut ? args->cut : work->n[d];

		if (!add_axis(args->run, &args->n_run, n, &work->nest->dim[d]))
			return false;
		args->run_loads[i] = is_load ? load : 0;
		if (is_load)
			load *= (uint32_t)work->n[d];
	}
	return true;
}

/* Sets the steps from row to row and from element to element. Returns false if a list is full or a row is too
 * long. */
static bool set_row_steps(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const uint64_t bytes = args->row_unit * (args->cut ? args->cut : work->n[work->last]);

	if (!set_steps(work) || !set_elements(work))
		return false;
	args->rows = (uint32_t)work->rows;
	args->dst -= args->row_lead;
	args->row_bytes = (uint32_t)bytes;
	return bytes <= (args->how == PERMUTE_PIECES ? UINT16_MAX : LONGEST_TABLE * work->nest->element);
}

/* ---- How they are moved -------------------------------------------------------------------------------- */

/* Makes the innermost dimension a piece; the other dimensions step from piece to piece. Returns false if the
 * tile does not suit PIECES. */
static bool set_pieces(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest_dim *inner = &work->nest->dim[work->dst.dim[0]];
	uint64_t pieces = 1;

	/* A border within pieces would take more instructions than ELEMENTS does. */
	if (work->src.dim[0] != work->dst.dim[0] || inner->src < 0 || is_padded(inner))
		return false;
	args->piece_rank = 1;
	for (uint32_t d = 1; d < args->n_run; d++)
		pieces *= args->run[d].by.n;
	args->by_piece = divisor_of(args->run[0].by.n * work->nest->element);
	args->pieces = (uint32_t)pieces;
	return args->by_piece.n >= LEAST_PIECE && pieces <= MOST_PIECES;
}

/* Returns the number of rows, counted from the first, that are neighbours in the slots regardless of the
 * border. Counting stops at a multiple of `most`. Sets *ret_dims to the number of dimensions that these rows
 * step along. */
static uint64_t rows_together(const struct permute_work *work, uint32_t most, uint32_t *ret_dims)
{
	const struct permute_args *args = work->args;
	uint64_t together = 1;
	uint32_t d = 0;

	for (; d < args->stack_row && together % most; d++) {
		if (args->row[d].src != (int64_t)(together * work->nest->element) || work->padded_row[d])
			break;
		together *= args->row[d].by.n;
	}
	*ret_dims = d;
	return together;
}

static void align_words(struct permute_args *args, int64_t bytes)
{
	args->aligned = (uint32_t)gcd_u64(args->aligned, (uint64_t)magnitude_i64(bytes));
}

/* Makes groups of as many rows as fill `words` words. Returns false if the rows do not suit that. */
static bool set_group(struct permute_work *work, uint32_t words)
{
	struct permute_args *args = work->args;
	const uint32_t rows = 4 * words / work->nest->element;
	uint32_t dims;
	const uint64_t together = rows_together(work, rows, &dims), rest = together % rows;

	if (together < rows || (rest && together != args->rows))
		return false;
	if (words > 1 && rest && (rows - rest) * MOST_IDLE > together)
		return false;
	args->log_group = (uint32_t)__builtin_ctz(rows);
	align_words(args, 4 * words);
	for (uint32_t d = dims; d < args->stack_row; d++)
		align_words(args, args->row[d].src);
	for (uint32_t d = 0; d < args->n_run; d++)
		if (args->run_loads[d] == 0)
			align_words(args, args->run[d].src);
	align_words(args, args->run_base);
	return true;
}

static bool set_words(struct permute_work *work)
{
	return work->nest->element <= 2 && permute_slots_fit(work->args) &&
	       (set_group(work, 2) || set_group(work, 1));
}

/* Sets the fields that only args->how needs. Returns false if the rows do not suit it. */
static bool set_how(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const uint32_t align = (uint32_t)min_u64(work->row_align, 16);

	args->ragged = align < 16;
	args->phase_shift = args->how == PERMUTE_WORDS ? 4 : align < 4 ? 2 : (uint32_t)__builtin_ctz(align);
	args->phases = 16u >> args->phase_shift;
	switch ((enum permute_how)args->how) {
	case PERMUTE_PIECES:
		return set_pieces(work);
	case PERMUTE_WORDS:
		return set_words(work);
	case PERMUTE_SQUARES:
		return set_squares(work);
	default:
		return args->phases * (args->row_bytes / work->nest->element + 2 * 16) * 2 <= TABLE_BYTES;
	}
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
		separate_runs(&work);
	if (work.src.n == 0 || work.dst.n == 0)
		return false;
	for (int d = 0; d < sides->nest->rank; d++) {
		work.n[d] = box->n[d];
		work.m[d] = min_u64(box->n[d], (uint64_t)sides->nest->dim[d].source);
		args->padded |= is_padded(&sides->nest->dim[d]);
	}
	if (!orient(&work) || (args->padded && !can_be_padded(&work)) || !set_stack(&work) ||
	    !set_grid(&work) || !cut_rows(&work) || !set_loads(&work) || !set_row_steps(&work) ||
	    !set_slots(&work) || !set_how(&work))
		return false;
	set_facts(&work);
	if (how == PERMUTE_SQUARES)
		count_lines(&work);
	return true;
}
