/* SPDX-License-Identifier: Apache-2.0 */
#include "permute_place.h"

#include "oracle.h"

/* Returns the index in the source, or -1 for border. */
static int64_t source_of(const struct permute_args *args, const struct permute_axis *axis, int64_t i)
{
	if (!args->padded)
		return i;
	return oracle_index(i, axis->before, axis->source, (enum pad_mode)args->mode);
}

/* ---- The tile ------------------------------------------------------------------------------------------ */

/* Returns the lowest source index that [start, start + n) reads, and sets how many indexes there are from it
 * to the highest. */
static int64_t span_of(const struct permute_args *args, const struct permute_axis *axis, int64_t start,
                       int64_t n, int64_t *ret_from)
{
	int64_t low = INT64_MAX, high = -1;

	for (int64_t i = start; i < start + n; i++) {
		const int64_t s = source_of(args, axis, i);

		if (s < 0)
			continue;
		low = s < low ? s : low;
		high = s > high ? s : high;
	}
	*ret_from = high < 0 ? 0 : low;
	return high < 0 ? 0 : high - low + 1;
}

static void set_range(const struct permute_split *split, int64_t index, int64_t *start, int64_t *n)
{
	*start = index * split->tile;
	*n = split->n - *start < split->tile ? split->n - *start : split->tile;
}

static void set_place(const struct permute_args *args, struct permute_place *t)
{
	int64_t rest = t->number;

	for (uint32_t d = 0; d < args->n_grid; d++) {
		const struct permute_axis *axis = &args->grid[d];
		const int64_t n = (int64_t)axis->by.n, index = rest % n;
		bool is_split = true;
		int64_t s = index;

		rest /= n;
		t->dst += index * axis->dst;
		if (d == args->split_dst.axis)
			set_range(&args->split_dst, index, &t->start_dst, &t->n_dst);
		else if (d == args->split_src.axis)
			set_range(&args->split_src, index, &t->start_src, &t->n_src);
		else if (d == args->split_stack.axis)
			set_range(&args->split_stack, index, &t->start_stack, &t->n_stack);
		else
			is_split = false;
		if (!is_split)
			s = source_of(args, axis, index);
		if (s < 0)
			t->outside = true;
		else if (!is_split || !args->padded)
			t->src += s * axis->src;
	}
}

static void set_margin(const struct permute_args *args, struct permute_place *t)
{
	const struct permute_split *split = &args->split_dst;

	if (split->axis == PERMUTE_NONE)
		return;
	t->first = t->start_dst == 0;
	t->last = t->start_dst + t->n_dst == split->n;
	t->margin = t->start_dst < args->margin ? t->start_dst : args->margin;
	t->start_dst -= t->margin;
	t->n_dst += t->margin;
	t->dst -= t->margin * split->dst;
	if (!args->padded)
		t->src -= t->margin * split->src;
}

static void set_loads(const struct permute_args *args, struct permute_place *t)
{
	const bool by_dst = args->load_by == PERMUTE_BY_SPLIT_DST;
	int64_t n = by_dst ? t->n_dst : t->n_src;

	t->load_bytes = args->load_bytes;
	if (args->load_by == PERMUTE_BY_NONE)
		return;
	if (args->padded && by_dst) {
		n = span_of(args, &args->grid[args->split_dst.axis], t->start_dst, n, &t->from_dst);
		t->src += t->from_dst * args->split_dst.src;
	} else if (args->padded) {
		n = span_of(args, &args->grid[args->split_src.axis], t->start_src, n, &t->from_src);
		t->src += t->from_src * args->split_src.src;
	} else if (args->back) {
		const int64_t reach = (t->n_dst - 1) * args->split_dst.src;

		t->src += reach;
		t->base -= reach;
		if (args->back_part) {
			const int64_t rows = (t->n_dst - args->back_part) * -args->split_dst.src;

			t->row_base += rows;
			t->base -= rows;
		}
	}
	if (n == 0)
		t->outside = true;
	t->load_bytes = t->load_bytes * n - args->load_gap;
}

struct permute_place permute_place_of(const struct tma_route_plan *tma, int64_t dst, int64_t src,
                                      int64_t number)
{
	const struct permute_args *args = &tma->permute;
	struct permute_place t = {
		.number = number,
		.dst = dst + tma->dst_offset + (int64_t)args->dst,
		.src = src + tma->src_offset + (int64_t)args->src,
		.n_dst = 1,
		.n_src = 1,
		.n_stack = 1,
		.base = args->run_base,
		.row_base = args->row_base,
		.first = true,
		.last = true,
	};

	set_place(args, &t);
	set_margin(args, &t);
	set_loads(args, &t);
	return t;
}

/* Returns where in its slot a load begins, in bytes. */
static int64_t phase_of(const struct permute_args *args, int64_t src, int64_t slot)
{
	return (src - slot) & args->phase_mask;
}

/* ---- In the tile ------------------------------------------------------------------------------------- */

int64_t permute_slot_of(const struct permute_args *args, int64_t load)
{
	return load * args->pitch + (load >> args->pad_shift) * args->pad;
}

int64_t permute_in_slots(const struct permute_args *args, int64_t number, int64_t src)
{
	const int64_t n = (int64_t)args->by_loads.n;
	const int64_t slot = number / n * args->stack_pitch + permute_slot_of(args, number % n);

	return args->slot_lead + slot + phase_of(args, src, slot);
}

int64_t permute_load_of(const struct permute_args *args, const struct permute_place *t, int64_t number)
{
	int64_t src = t->src;

	for (uint32_t d = 0; d < args->n_load; d++) {
		const struct permute_axis *axis = &args->load[d];
		const int64_t n = (int64_t)axis->by.n, index = number % n;
		const int64_t start = !args->padded             ? 0
		                      : d == args->limited_load ? t->start_dst
		                      : d == args->stack_split  ? t->start_stack
		                                                : 0;
		int64_t s;

		number /= n;
		if ((d == args->limited_load && index >= t->n_dst) ||
		    (d == args->stack_split && index >= t->n_stack))
			return -1;
		s = source_of(args, axis, start + index);
		if (s < 0)
			return -1;
		src += s * axis->src;
	}
	return src;
}

struct permute_row permute_row_of(const struct permute_args *args, const struct permute_place *t,
                                  int64_t number)
{
	const int64_t last_n = args->row_split ? t->n_dst : args->last_n;
	struct permute_row row = { .dst = t->dst + args->row_lead,
		                   .at = t->row_base,
		                   .bytes = args->cut ? (int64_t)args->row_unit * args->cut
		                                      : (int64_t)args->row_unit * last_n,
		                   .border = t->outside };
	int64_t src = t->src, slot = 0;

	for (uint32_t d = 0; d < args->n_row; d++) {
		const struct permute_axis *axis = &args->row[d];
		const int64_t n = (int64_t)axis->by.n, index = number % n;
		const bool is_stack = d >= args->stack_row;
		const uint32_t load = is_stack ? args->stack_load + d - args->stack_row : 0;
		const bool is_split_stack = is_stack && load == args->stack_split;
		int64_t start = 0, from = 0, s;

		number /= n;
		row.dst += index * axis->dst;
		if ((d == args->limited_row && index >= t->n_src) ||
		    (d == args->split_row && index >= t->n_dst) || (is_split_stack && index >= t->n_stack))
			row.bytes = 0;
		if (d == args->cut_row) {
			const int64_t rest = last_n - index * args->cut;

			if (rest < args->cut && row.bytes)
				row.bytes = rest > 0 ? args->row_unit * rest : 0;
		}
		if (args->padded && d == args->limited_row) {
			start = t->start_src;
			from = t->from_src;
		} else if (args->padded && d == args->split_row) {
			start = t->start_dst;
			from = t->from_dst;
		} else if (args->padded && is_split_stack) {
			start = t->start_stack;
		}
		s = source_of(args, axis, start + index);
		if (s < 0)
			row.border = true;
		if (!is_stack) {
			row.at += (s - from) * axis->src;
			continue;
		}
		slot += index * axis->src;
		src += s * args->load[load].src;
	}
	row.at += slot + (args->row_phase ? phase_of(args, src, slot) : 0);
	return row;
}

int64_t permute_element_of(const struct permute_args *args, const struct permute_place *t, int64_t number)
{
	int64_t at = t->base, src = t->src, load = 0, slot;

	for (uint32_t d = 0; d < args->n_run; d++) {
		const struct permute_axis *axis = &args->run[d];
		const bool is_split = args->padded && d + 1 == args->n_run && args->row_split;
		const int64_t n = (int64_t)axis->by.n, index = d + 1 < args->n_run ? number % n : number;
		const int64_t s = source_of(args, axis, index + (is_split ? t->start_dst : 0));

		number /= n;
		if (s < 0)
			return -1;
		load += index * args->run_loads[d];
		if (args->run_loads[d])
			src += s * axis->src;
		else
			at += (s - (is_split ? t->from_dst : 0)) * axis->src;
	}
	slot = permute_slot_of(args, load);
	return at + slot + (args->row_phase ? 0 : phase_of(args, src, slot));
}
