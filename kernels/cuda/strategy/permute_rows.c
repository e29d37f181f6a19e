/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a tile: the runs of its destination, or parts of them. */
#include "permute_slots.h"
#include "permute_work.h"

#include "proto/arithmetic.h"

#define MOST_ROWS     4096
#define MOST_TABLE    1024  /* entries of a row's table; longer rows are cut */
#define LONGEST_TABLE 16000 /* where they cannot be */
#define LEAST_ROW     64    /* bytes */
#define TABLE_BYTES   65000 /* of all copies: notes have offsets of 16 bits */
#define MOST_PIECES   2048
#define LEAST_PIECE   16  /* bytes */
#define MOST_IDLE     8   /* of so many rows one may be missing in groups by two words */
#define SLOT_LEAD     128 /* bytes: the phase of slots may be that of lines */

/* ---- Where rows end ------------------------------------------------------------------------------------ */

/* Parts of a row share the table, so none may have a border that the others do not have. */
static bool can_be_cut(const struct permute_work *work, int d)
{
	return !is_padded(&work->nest->dim[d]);
}

/* Whether a row of `unit` bytes ends before a dimension in which it could not be cut: number i of the
 * destination's. */
static bool ends_before(const struct permute_work *work, int i, int shared, uint64_t unit)
{
	return i > 0 && i >= shared && unit >= LEAST_ROW && !can_be_cut(work, work->dst.dim[i]);
}

/* A row is as long as a table of its elements may be. What lies beyond steps from row to row, if the source's
 * runs have it too. */
static void cut_row(struct permute_work *work)
{
	const struct permute_chain *dst = &work->dst;
	struct permute_args *args = work->args;
	const uint64_t most = MOST_TABLE * work->nest->element;
	uint64_t unit = work->nest->element, part, whole;
	int i = 0, shared = dst->n; /* from there on, dimensions are in both chains */

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

/* Rows that begin or end within a sector get a margin of the tile before, so that each sector is written
 * once; but not if that were more than a quarter of the row. */
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

bool permute_cut_rows(struct permute_work *work)
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
	       permute_add_axis(args->row, &args->n_row, n, dim);
}

/* Rows step along dimension d, `part` of its indices at a time. If they step backwards, the first row has the
 * highest offset. All rows share one table, so a last row of fewer indices begins as if it had them all:
 * possibly ahead of the slots. */
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

/* From element to element. A dimension that is not in the source's runs leads from load to load. */
static bool set_elements(struct permute_work *work)
{
	struct permute_args *args = work->args;
	uint32_t load = 1;

	for (int i = 0; i < work->row_dims; i++) {
		const int d = work->dst.dim[i];
		const bool is_load = !permute_chain_has(&work->src, d);
		const uint64_t n = d == work->last && args->cut ? args->cut : work->n[d];

		if (!permute_add_axis(args->run, &args->n_run, n, &work->nest->dim[d]))
			return false;
		args->run_loads[i] = is_load ? load : 0;
		if (is_load)
			load *= (uint32_t)work->n[d];
	}
	return true;
}

bool permute_set_rows(struct permute_work *work)
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

/* The innermost dimension is a piece; the others step from piece to piece. */
static bool set_pieces(struct permute_work *work)
{
	struct permute_args *args = work->args;
	const struct loop_nest_dim *inner = &work->nest->dim[work->dst.dim[0]];
	uint64_t pieces = 1;

	/* Pieces with a border of their own would take more instructions than elements do. */
	if (work->src.dim[0] != work->dst.dim[0] || inner->src < 0 || is_padded(inner))
		return false;
	args->piece_rank = 1;
	for (uint32_t d = 1; d < args->n_run; d++)
		pieces *= args->run[d].by.n;
	args->by_piece = divisor_of(args->run[0].by.n * work->nest->element);
	args->pieces = (uint32_t)pieces;
	return args->by_piece.n >= LEAST_PIECE && pieces <= MOST_PIECES;
}

/* How many rows from the first on are neighbours in the slots, whatever is border: at least `most` of them,
 * if there are as many. *ret_dims: the dimensions that lead from row to row of these. */
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

/* A group has as many rows as fill `words` words. */
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
	const struct spacing spacing = spacing_of(work->args);

	return work->nest->element <= 2 && slot_bytes(work->args, &spacing) <= PERMUTE_MOST_SLOTS &&
	       (set_group(work, 2) || set_group(work, 1));
}

bool permute_set_how(struct permute_work *work)
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
		return permute_set_squares(work);
	default:
		return args->phases * (args->row_bytes / work->nest->element + 2 * 16) * 2 <= TABLE_BYTES;
	}
}
