/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies in a tile's shared memory: its slots, its rows' notes, its table and its masks, and
 * how many of each there are.
 */
#include "permute_slots.h"

#include "proto/arithmetic.h"

#define FEW_CHUNKS 8 /* of a row */

/* ---- Chunks -------------------------------------------------------------------------------------------- */

static uint32_t chunks_of(const struct permute_args *args)
{
	return (args->row_bytes + (args->ragged ? 15 : 0) + 15) / 16;
}

/* The same of tiles with which no run begins or ends, whose rows leave sectors that they share to other
 * tiles: fewer, wherever rows begin. Those of WORDS count from the row's first byte, of others from the first
 * that is written. */
static uint32_t inner_chunks_of(const struct permute_args *args)
{
	const uint32_t lead = args->how == PERMUTE_WORDS ? 0 : args->margin * args->row_unit;
	const uint32_t whole = args->how == PERMUTE_WORDS ? 16 : SECTOR;
	uint32_t most = 1;

	if (args->exact)
		return chunks_of(args);
	for (uint32_t start = 0; start < SECTOR; start += args->ragged ? 1 : 16) {
		const uint32_t end = (start + args->row_bytes) / SECTOR * SECTOR,
			       first = (start + lead) / whole * whole;

		most = max_u32(most, end > first ? (end - first) / 16 : 0);
	}
	return most;
}

/* How many chunks the lanes of a warp go through, some of which a row may not have: so that a warp neither
 * begins nor ends within a sector, nor, if that costs little, within what it writes of a row at once. */
static uint32_t lane_chunks(const struct permute_args *args, uint32_t chunks, uint32_t side)
{
	const uint32_t whole = round_up(chunks, WARP_THREADS >> side);

	if (args->how == PERMUTE_WORDS || chunks < FEW_CHUNKS)
		return chunks;
	return whole <= chunks + chunks / FEW_CHUNKS ? whole : round_up(chunks, 2);
}

uint32_t permute_inner_chunks(const struct permute_args *args, uint32_t side)
{
	return lane_chunks(args, inner_chunks_of(args), side);
}

/* ---- Places -------------------------------------------------------------------------------------------- */

/* Bytes from the first slot that a chunk's elements may be read from: a row that is shorter than others, or a
 * chunk that is not all of one, is read as if there were more of it. */
static uint32_t reach_of(const struct permute_args *args, const struct spacing *spacing, uint32_t element)
{
	uint32_t reach = spacing->phase_mask + element, loads = 0;

	for (uint32_t d = 0; d < args->n_row; d++)
		reach += (uint32_t)(args->row[d].by.n - 1) * (uint32_t)magnitude_i64(args->row[d].src);
	for (uint32_t d = 0; d < args->n_run; d++) {
		const uint32_t last = (uint32_t)args->run[d].by.n - 1;

		loads += last * args->run_loads[d];
		if (!args->run_loads[d] && args->run[d].src > 0)
			reach += last * (uint32_t)args->run[d].src;
		else if (!args->run_loads[d] && args->back && args->row_split && d + 1 == args->n_run)
			reach += last * (uint32_t)-args->run[d].src;
	}
	return reach + args->run_base + args->slot_lead + slot_of(args, spacing, loads);
}

void permute_lay_out(struct permute_tile *tile)
{
	struct permute_args *args = &tile->args;
	const uint32_t element = tile->nest.element;
	const uint32_t group = 1u << args->log_group << args->log_side;
	const uint32_t chunks = chunks_of(args);
	const struct spacing spacing = spacing_of(args);
	const bool pieces = args->how == PERMUTE_PIECES;
	uint32_t at = PERMUTE_SLOTS_AT, step = stack_pitch_of(args, &spacing);

	if (args->how == PERMUTE_SQUARES) {
		permute_lay_out_squares(args);
		return;
	}
	args->stack_pitch = step;
	for (uint32_t d = args->stack_row; d < args->n_row; d++) {
		args->row[d].src = step;
		step *= (uint32_t)args->row[d].by.n;
	}
	args->by_parts = divisor_of(parts_of(&spacing));
	args->row_notes = (uint32_t)divide_up_u64(args->rows, group) * group;
	args->by_chunks = divisor_of(lane_chunks(args, chunks, args->log_side));
	args->by_inner_chunks = divisor_of(permute_inner_chunks(args, args->log_side));
	at +=
	    skewed(max_u32(slot_bytes(args, &spacing), reach_of(args, &spacing, element)) + 16, spacing.skew);
	at += pieces ? 32 : 0; /* what is read after the last byte */
	args->rows_at = at = round_up(at, 16);
	at += args->row_notes *
	      (args->how == PERMUTE_WORDS ? PERMUTE_WORDS_NOTE + PERMUTE_WORDS_PLACE : PERMUTE_NOTE);
	args->table_at = at = round_up(at, 16);
	args->table = pieces ? args->pieces : chunks * (16 / element);
	at += pieces ? args->table * 2 : args->phases * (args->table + PERMUTE_LEAD) * 2;
	args->masks_at = at = round_up(at, 16);
	if (args->padded && !pieces)
		at += round_up(args->phases * chunks * 2, 16);
	args->shared = at;
}
