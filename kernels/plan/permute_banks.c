/* SPDX-License-Identifier: Apache-2.0 */
/* Banks of shared memory: the search for pads between a tile's slots, a skew within them, and a number of
 * rows side by side in a warp, such that few lanes want different words of a bank. What each costs is counted
 * from the places that the lanes of two warps read.
 */
#include "permute_slots.h"

#define BANKS         32
#define MOST_SIDE     4 /* rows that lie side by side in a warp: a logarithm */
#define MOST_SHIFT    5
#define NO_SHIFT      31
#define LEAST_SKEW    7
#define MOST_SKEW     11
#define FEW_LOADS     16
#define MOST_ACCESSES 32
#define MOST_PARTS    768
#define MOST_SPACINGS (2 + 2 * (MOST_SHIFT + 1) + MOST_SKEW - LEAST_SKEW + 1)
#define SPLIT_LINES   6  /* wavefronts for a warp's chunks: what it costs that lines are read in two parts */
#define WORDS_ISSUE   16 /* likewise: what the instructions for chunks of words take */

/* ---- Where elements lie -------------------------------------------------------------------------------- */

/* Where an element lies: so many bytes into the slot of one of a stack's loads. */
struct spot {
	uint32_t load;
	uint32_t stack;
	uint32_t at;
	uint32_t src; /* where the load begins, from where the first one does; modulo 2^32 */
};

static void add_row(const struct permute_args *args, uint32_t r, struct spot *spot)
{
	uint32_t step = 1;

	for (uint32_t d = 0; d < args->n_row; d++) {
		const uint32_t n = (uint32_t)args->row[d].by.n, rest = divide_u32(r, &args->row[d].by);
		const uint32_t index = r - rest * n;

		r = rest;
		if (d < args->stack_row) {
			spot->at += index * (uint32_t)args->row[d].src;
		} else {
			spot->stack += index * step;
			spot->src += index * (uint32_t)args->load[args->stack_load + d - args->stack_row].src;
			step *= n;
		}
	}
}

static void add_entry(const struct permute_args *args, uint32_t j, struct spot *spot)
{
	for (uint32_t d = 0; d < args->n_run; d++) {
		const uint32_t n = (uint32_t)args->run[d].by.n, rest = divide_u32(j, &args->run[d].by);
		const uint32_t index = j - rest * n;

		j = rest;
		spot->load += index * args->run_loads[d];
		if (args->run_loads[d])
			spot->src += index * (uint32_t)args->run[d].src;
		else
			spot->at += index * (uint32_t)args->run[d].src;
	}
}

/* ---- Accesses ------------------------------------------------------------------------------------------ */

/* What a warp reads at a time: a part of it where elements are wide. */
struct access {
	int n;
	struct spot spot[WARP_THREADS];
};

/* How often shared memory is accessed for what it does at once if no two lanes want different words of a
 * bank. */
static uint32_t wavefronts(const struct permute_args *args, const struct access *access, uint32_t words,
                           const struct spacing *spacing)
{
	const uint32_t stack = stack_pitch_of(args, spacing);
	uint32_t seen[BANKS][WARP_THREADS], n[BANKS] = { 0 }, most = 0;

	for (int l = 0; l < access->n; l++) {
		const struct spot *spot = &access->spot[l];
		const uint32_t slot = spot->stack * stack + slot_of(args, spacing, spot->load);
		const uint32_t at = spot->at + slot + ((spot->src - slot) & spacing->phase_mask & ~15u);
		const uint32_t word = skewed(at, spacing->skew) / 4;

		for (uint32_t w = word; w < word + words; w++) {
			const uint32_t bank = w % BANKS;
			uint32_t s = 0;

			while (s < n[bank] && seen[bank][s] != w)
				s++;
			if (s < n[bank])
				continue;
			seen[bank][n[bank]++] = w;
			most = n[bank] > most ? n[bank] : most;
		}
	}
	return most;
}

/* How the bytes at an entry's place are read. */
struct reading {
	uint32_t times;
	uint32_t words;    /* of a lane at a time */
	uint32_t together; /* lanes at a time */
};

static struct reading reading_of(const struct permute_args *args, uint32_t element)
{
	const uint32_t bytes = args->how == PERMUTE_WORDS ? element << args->log_group : element;
	const uint32_t wide = bytes < 4 ? 4 : bytes;

	/* Words that are not aligned are shifted, which takes one more. */
	if (args->how == PERMUTE_WORDS && args->aligned < bytes)
		return (struct reading){ bytes / 4 + (args->aligned < 4), 1, WARP_THREADS };
	return (struct reading){ 1, wide / 4, WARP_THREADS * 4 / wide };
}

/* The accesses of a warp's chunks, of which the first is number `first`: one for each entry, and for as many
 * lanes as read at a time. */
static int find_accesses(const struct permute_args *args, uint32_t element, uint32_t side, uint32_t first,
                         struct access *ret)
{
	const uint32_t chunks = permute_inner_chunks(args, side), some = 16 / element;
	const struct divisor by_chunks = divisor_of(chunks);
	const uint32_t together = reading_of(args, element).together;
	struct access *access = ret;

	for (uint32_t k = 0; k < some; k++) {
		for (uint32_t lane = 0; lane < WARP_THREADS; lane += together, access++) {
			access->n = 0;
			for (uint32_t l = lane; l < lane + together; l++) {
				const uint32_t i = first + l, column = i >> side;
				const uint32_t group = divide_u32(column, &by_chunks);
				const uint32_t r = ((group << side) + (i & ((1u << side) - 1)))
				                   << args->log_group;
				const uint32_t j = (column - group * chunks) * some + k;
				struct spot *spot = &access->spot[access->n];

				if (r >= args->rows || j >= args->row_bytes / element)
					continue;
				*spot = (struct spot){ 0 };
				add_row(args, r, spot);
				add_entry(args, j, spot);
				access->n++;
			}
		}
	}
	return (int)(access - ret);
}

/* ---- Costs --------------------------------------------------------------------------------------------- */

/* Wavefronts of a warp's store: one for each line. */
static uint32_t store_wavefronts(uint32_t side)
{
	return side <= 2 ? 5 : side == 3 ? 9 : 17;
}

/* Wavefronts for a warp's chunks, of which the accesses take `sum`, or what takes as long: the copies that
 * bring the slots, for a skew two instructions for each access of a lane, and the instructions of lanes that
 * write no chunk. */
static double chunk_wavefronts(const struct permute_tile *tile, const struct spacing *spacing, uint32_t side,
                               double sum)
{
	const struct permute_args *args = &tile->args;
	const uint32_t group = 1u << args->log_group, rows = group << side;
	const double idle = (double)((args->rows - 1) / rows + 1) * rows / args->rows;
	const double times = (double)reading_of(args, tile->nest.element).times / group;
	const double issue = args->how == PERMUTE_WORDS ? WORDS_ISSUE : 0;
	double helpers = 1, shuffles = 0;

	if (args->how == PERMUTE_WORDS && args->ragged) {
		helpers = (double)WARP_THREADS / (WARP_THREADS - (1u << side));
		shuffles = 4;
	}
	sum *= times;
	if (spacing->skew != PERMUTE_NO_SKEW)
		sum += 16.0 / tile->nest.element * times / 2;
	return (sum + shuffles + store_wavefronts(side)) * idle * helpers + issue * (idle * helpers - 1) +
	       args->loads * parts_of(spacing) * WARP_THREADS * 16 / tile->useful;
}

/* ---- Search -------------------------------------------------------------------------------------------- */

/* Slots in which each load begins as many bytes past a line as in the source. Entries of the table are the
 * same for all of the stack, so that its indices have to be whole lines apart. false: they are not. */
static bool match_lines(const struct permute_tile *tile, struct spacing *ret)
{
	const struct permute_args *args = &tile->args;
	const bool is_linear = !args->padded || args->mode == PAD_MODE_CONSTANT;
	uint32_t step = 0, others = 0;

	for (uint32_t d = 0; d < args->n_load; d++) {
		const uint32_t past = (uint32_t)args->load[d].src % LINE;

		if (d >= args->stack_load && past && !args->row_phase)
			return false;
		if (d == 0 && args->stack_load > 0 && is_linear)
			step = past;
		else
			others |= past;
	}
	*ret = spacing_of(args);
	ret->phase_mask = LINE - 1;
	if (step % 16 == 0 && others == 0 && (step == 0 || args->stack_load == 1))
		/* A pitch that follows the source keeps one phase. */
		ret->pitch += (step - args->pitch) % LINE;
	else
		ret->pitch = round_up((uint32_t)tile->load_run + LINE - 1, LINE);
	return slot_bytes(args, ret) <= PERMUTE_MOST_SLOTS;
}

/* Pads after slots help where loads are many, a skew where they are few. */
static int find_spacings(const struct permute_tile *tile, struct spacing *ret)
{
	const struct permute_args *args = &tile->args;
	int n = 0;

	ret[n++] = spacing_of(args);
	n += match_lines(tile, &ret[n]);
	for (uint32_t pad = 0; pad <= 16; pad += 16)
		for (uint32_t shift = pad ? 0 : 1; shift <= MOST_SHIFT && args->by_loads.n >> shift > 0;
		     shift++)
			ret[n++] = (struct spacing){ args->pitch + pad, shift ? shift : NO_SHIFT,
				                     PERMUTE_NO_SKEW, 15 };
	for (uint32_t skew = LEAST_SKEW; args->loads <= FEW_LOADS && skew <= MOST_SKEW; skew++)
		ret[n++] = (struct spacing){ args->pitch, NO_SHIFT, skew, 15 };
	return n;
}

static void set_spacing(struct permute_tile *tile, const struct spacing *spacing)
{
	tile->args.pitch = spacing->pitch;
	tile->args.pad_shift = spacing->pad_shift;
	tile->args.skew = spacing->skew;
	tile->args.phase_mask = spacing->phase_mask;
	tile->split_lines = spacing->phase_mask < LINE - 1;
}

void permute_arrange(struct permute_tile *tile)
{
	struct permute_args *args = &tile->args;
	const uint32_t element = tile->nest.element, words = reading_of(args, element).words;
	struct spacing spacings[MOST_SPACINGS], best = spacing_of(args);
	const int n_spacings = find_spacings(tile, spacings);
	double least = 1e30;

	if (args->how == PERMUTE_SQUARES)
		return;
	if (args->how == PERMUTE_PIECES) {
		set_spacing(tile, &spacings[n_spacings > 1 && spacings[1].phase_mask == LINE - 1]);
		return;
	}
	/* A combination is given up as soon as it must cost more than the best so far. */
	for (uint32_t side = 0; side <= MOST_SIDE && (side == 0 || 1u << side <= 2 * args->rows); side++) {
		struct access access[2 * MOST_ACCESSES];
		const int n = find_accesses(args, element, side, 0, access),
			  both = n + find_accesses(args, element, side, 5 * WARP_THREADS, access + n);
		uint32_t fewest = 0; /* wavefronts: one for each access */

		for (int a = 0; a < both; a++)
			fewest += access[a].n > 0;

		for (int i = 0; i < n_spacings; i++) {
			const struct spacing *spacing = &spacings[i];
			const double pad = spacing->phase_mask < LINE - 1
			                       ? SPLIT_LINES + (spacing->pitch - args->pitch) * 0.02
			                       : 0;
			uint32_t sum = fewest;
			double cost = chunk_wavefronts(tile, spacing, side, sum / 2.0);

			if (slot_bytes(args, spacing) > PERMUTE_MOST_SLOTS ||
			    args->loads * parts_of(spacing) > MOST_PARTS)
				continue;
			for (int a = 0; a < both && cost + pad < least; a++) {
				if (access[a].n == 0)
					continue;
				sum += wavefronts(args, &access[a], words, spacing) - 1;
				cost = chunk_wavefronts(tile, spacing, side, sum / 2.0);
			}
			if (cost + pad >= least)
				continue;
			least = cost + pad;
			tile->wavefronts = cost / WARP_THREADS;
			args->log_side = side;
			best = *spacing;
		}
	}
	set_spacing(tile, &best);
}
