/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the way of a tile, and runs the loops around it. */
#include "tile_fill.h"

#include <math.h>
#include <string.h>

#include "proto/arithmetic.h"

/* Panels of smaller units than this many bytes are faster packed than direct: a line of theirs is spread over
 * so many rows that its neighbours are forgotten meanwhile. Measured on two processors
 * (tests/bench/EXPERIMENTS.md): 1 and 2 bytes packed 0.50 to 0.64 of memcpy, direct 0.31 to 0.54; 4 bytes
 * packed 0.54, direct 0.65. */
#define DIRECT_UNIT 4

/* So are those whose rows are shorter. */
#define DIRECT_ROW CPU_LINE

/* ---- Dimensions ------------------------------------------------------------------------------------- */

bool choice_is_taken(const struct tile_choice *choice, int d)
{
	return choice->taken >> d & 1;
}

void choice_take(struct tile_choice *choice, int d)
{
	choice->taken |= UINT64_C(1) << d;
}

int choice_find_image(const struct tile_choice *choice, int64_t stride)
{
	for (int d = 0; d < choice->n; d++)
		if (!choice_is_taken(choice, d) && choice->dim[d].image == stride)
			return d;
	return -1;
}

int choice_find_src(const struct tile_choice *choice, int64_t stride)
{
	for (int d = 0; d < choice->n; d++)
		if (!choice_is_taken(choice, d) && magnitude_i64(choice->dim[d].packed) == stride)
			return d;
	return -1;
}

bool choice_shorten(struct tile_choice *choice, int d, int64_t most)
{
	struct tile_dim *dim = &choice->dim[d];
	if (dim->n <= most)
		return true;
	int64_t part = most;
	while (part > 1 && dim->n % part)
		part--;
	if (part < 2 || choice->n == TILE_DIMS)
		return false;
	memmove(dim + 2, dim + 1, (size_t)(choice->n - d - 1) * sizeof(*dim));
	dim[1] = (struct tile_dim){ dim->n / part, dim->image * part, dim->src * part, dim->packed * part };
	dim->n = part;
	choice->n++;
	uint64_t below = choice->taken & ((UINT64_C(2) << d) - 1);
	choice->taken = below | (choice->taken & ~below) << 1;
	return true;
}

void choice_extend(int64_t *table, int64_t have, int64_t n, int64_t stride)
{
	for (int64_t i = 1; i < n; i++)
		for (int64_t j = 0; j < have; j++)
			table[i * have + j] = table[j] + i * stride;
}

/* ---- The choice ------------------------------------------------------------------------------------- */

/* What is contiguous on both sides moves as one unit. */
static void join_units(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int d;
	while ((d = choice_find_image(choice, fill->unit)) >= 0 && choice->dim[d].packed == fill->unit) {
		fill->unit *= choice->dim[d].n;
		choice_take(choice, d);
	}
}

static bool choose(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	join_units(choice);
	if (fill->unit > CPU_LINE) {
		fill->way = TILE_RUNS;
		fill->cost = 2;
		return true;
	}
	int row = choice_find_src(choice, fill->unit), col = choice_find_image(choice, fill->unit);
	bool is_element = fill->unit <= 16 && !(fill->unit & (fill->unit - 1));
	bool is_crossed = is_element && row >= 0 && col >= 0 && row != col;
	if (is_crossed && choose_pixels(choice))
		return true;
	if (choice->direct)
		return is_crossed && fill->unit >= DIRECT_UNIT && choose_panel(choice) &&
		       fill->rows * fill->unit >= DIRECT_ROW;
	struct tile_choice before = *choice;
	double panel = HUGE_VAL, few = HUGE_VAL, units = TILE_UNITS_COST / (double)fill->unit;
	if (is_crossed && choose_panel(choice)) {
		panel = fill->cost;
		if (panel_is_full(fill))
			return true;
		*choice = before;
	}
	if (is_crossed && choose_few(choice)) {
		few = fill->cost;
		*choice = before;
	}
	double most = panel < few ? panel : few;
	most = units < most ? units : most;
	if (choose_shuffle(choice, most))
		return true;
	if (most == units)
		choose_table(choice);
	else if (most == panel)
		choose_panel(choice);
	else
		choose_few(choice);
	return true;
}

bool tile_fill_init(struct tile_fill *ret, const struct tile_shape *shape)
{
	struct tile_choice choice = { .fill = ret, .direct = shape->direct, .n = shape->n };
	memcpy(choice.dim, shape->dim, (size_t)shape->n * sizeof(shape->dim[0]));
	ret->isa = shape->isa;
	ret->unit = shape->element;
	ret->exact = shape->exact;
	ret->shift = 0;
	ret->n_outer = 0;
	if (!choose(&choice))
		return false;
	for (int d = 0; d < choice.n; d++)
		if (!choice_is_taken(&choice, d))
			ret->outer[ret->n_outer++] = choice.dim[d];
	return true;
}

/* ---- The loops -------------------------------------------------------------------------------------- */

static void run_way(const struct tile_fill *fill, char *image, const char *src, const char *next,
                    struct cpu_fetch *fetch)
{
	int shift = __builtin_ctzll((uint64_t)fill->unit);
	switch (fill->way) {
	case TILE_PANEL:
		if (fetch)
			fill->isa->panel[shift](image, fill->image, src, fill->src, fill->rows, fill->cols,
			                        fetch);
		else
			fill->isa->far_panel[shift](image, fill->image, src, fill->src, fill->rows,
			                            fill->cols, next);
		return;
	case TILE_FEW_ROWS:
		few_rows_run(fill, image, src, fetch);
		return;
	case TILE_FEW_COLS:
		few_cols_run(fill, image, src, fetch);
		return;
	case TILE_SPLIT:
		fill->isa->split[shift](image, fill->image, src, fill->rows, fill->cols);
		return;
	case TILE_MERGE:
		fill->isa->merge[shift](image, src, fill->src, fill->cols, fill->rows);
		return;
	case TILE_RUNS:
		memcpy(image, src, (size_t)fill->unit);
		return;
	default:
		table_run(fill, image, src);
		return;
	}
}

void tile_fill_run(const struct tile_fill *fill, char *image, const char *src, const char *next,
                   struct cpu_fetch *fetch)
{
	int64_t at[TILE_DIMS];
	for (int d = 0; d < fill->n_outer; d++)
		at[d] = 0;
	src += fill->shift;
	if (next)
		next += fill->shift;
	for (;;) {
		bool more = fill->n_outer > 0 && at[0] + 1 < fill->outer[0].n;
		run_way(fill, image, src, more ? src + fill->outer[0].packed : next, fetch);
		int d = 0;
		for (; d < fill->n_outer; d++) {
			const struct tile_dim *dim = &fill->outer[d];
			image += dim->image;
			src += dim->packed;
			if (++at[d] < dim->n)
				break;
			at[d] = 0;
			image -= dim->n * dim->image;
			src -= dim->n * dim->packed;
		}
		if (d == fill->n_outer)
			return;
	}
}
