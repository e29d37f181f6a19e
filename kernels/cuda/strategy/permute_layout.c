/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out a tile's shared memory: the offsets and sizes of its slots, its rows' notes, its table and its
 * masks.
 *
 * permute_arrange searches for a spacing of the slots with few bank conflicts. It varies pads between slots,
 * a skew within them, and the number of rows side by side in a warp. It counts the cost of each combination
 * from the places that the lanes of two warps read; a sample of these places stands for all.
 */
#include "permute_plan.h"

#include <assert.h>
#include <string.h>

#include "proto/arithmetic.h"

#define FEW_CHUNKS 8 /* chunks of a row to which one more may be added at little cost */

/* ---- Slots --------------------------------------------------------------------------------------------- */

/* The fields of permute_args that keep the slots out of each other's banks. */
struct spacing {
	uint32_t pitch;
	uint32_t pad_shift;
	uint32_t skew;
	uint32_t phase_mask;
};

static struct spacing spacing_of(const struct permute_args *args)
{
	return (struct spacing){ args->pitch, args->pad_shift, args->skew, args->phase_mask };
}

static uint32_t round_up(uint32_t n, uint32_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t slot_of(const struct permute_args *args, const struct spacing *spacing, uint32_t load)
{
	return load * spacing->pitch + (load >> spacing->pad_shift) * args->pad;
}

static uint32_t skewed(uint32_t at, uint32_t skew)
{
	return at + (at >> skew) * 16;
}

/* Returns the bytes from one stack index to the next. */
static uint32_t stack_pitch_of(const struct permute_args *args, const struct spacing *spacing)
{
	return round_up(slot_of(args, spacing, (uint32_t)args->by_loads.n), spacing->phase_mask + 1);
}

/* Returns the bytes past the slots that WORDS may read, because it reads the last part of a cut run as if it
 * were as long as the others. They count as bytes of the slots, because WORDS adds the places of two entries
 * at once, as sums of 16 bits, which must not overflow. */
static uint32_t past_slots(const struct permute_args *args)
{
	const int64_t step = args->run[args->n_run - 1].src;

	if (args->how != PERMUTE_WORDS || args->cut == 0 || step < 0)
		return 0;
	return ((uint32_t)args->row[args->cut_row].by.n * args->cut - args->last_n) * (uint32_t)step;
}

/* Returns the bytes of the slots before the skew is applied. */
static uint32_t slot_bytes(const struct permute_args *args, const struct spacing *spacing)
{
	return args->slot_lead + past_slots(args) +
	       args->loads / (uint32_t)args->by_loads.n * stack_pitch_of(args, spacing) +
	       (spacing->phase_mask & ~15u);
}

static uint32_t parts_of(const struct spacing *spacing)
{
	return spacing->skew == PERMUTE_NO_SKEW ? 1 : (spacing->pitch >> spacing->skew) + 2;
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

static uint32_t chunks_of(const struct permute_args *args)
{
	return (args->row_bytes + (args->ragged ? 15 : 0) + 15) / 16;
}

/* Returns the maximum number of chunks of a row in tiles in which no run of the destination begins or ends.
 * These tiles leave the sectors that they share to other tiles, so they have fewer chunks. WORDS counts
 * chunks from the row's first byte, the other ways from the first byte that is written. */
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

/* Returns the number of chunks that lanes step through for a row of `chunks` chunks, with 1 << side rows side
 * by side in a warp. It may exceed `chunks`: it is rounded up so that no warp begins or ends within a sector
 * and, if that costs little, so that a warp always takes 32 >> side chunks of each of its rows. */
static uint32_t lane_chunks(const struct permute_args *args, uint32_t chunks, uint32_t side)
{
	const uint32_t whole = round_up(chunks, WARP_THREADS >> side);

	if (args->how == PERMUTE_WORDS || chunks < FEW_CHUNKS)
		return chunks;
	return whole <= chunks + chunks / FEW_CHUNKS ? whole : round_up(chunks, 2);
}

/* Returns permute_args.by_inner_chunks for 1 << side groups side by side in a warp. */
static uint32_t inner_lane_chunks(const struct permute_args *args, uint32_t side)
{
	return lane_chunks(args, inner_chunks_of(args), side);
}

/* ---- Places -------------------------------------------------------------------------------------------- */

/* Returns the offset from the first slot up to which a chunk's elements may be read. A row that is shorter
 * than others, or a chunk of which a row has only a part, is read as if it were complete. */
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

bool permute_slots_fit(const struct permute_args *args)
{
	const struct spacing spacing = spacing_of(args);

	return slot_bytes(args, &spacing) <= PERMUTE_MOST_SLOTS;
}

/* Lays out a tile for SQUARES. */
static void lay_out_squares(struct permute_args *args)
{
	args->stack_pitch = args->loads * args->pitch;
	args->row_notes = args->rows;
	args->rows_at = PERMUTE_SLOTS_AT + args->stack_pitch;
	args->table_at = args->masks_at = args->shared =
	    args->rows_at + (uint32_t)divide_up_u64(args->rows * PERMUTE_SQUARES_NOTE, CHUNK) * CHUNK;
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
		lay_out_squares(args);
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
	args->by_inner_chunks = divisor_of(inner_lane_chunks(args, args->log_side));
	at +=
	    skewed(max_u32(slot_bytes(args, &spacing), reach_of(args, &spacing, element)) + 16, spacing.skew);
	at += pieces ? 32 : 0; /* bytes that are read past the last one */
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

/* ---- Banks --------------------------------------------------------------------------------------------- */

#define BANKS         32
#define NO_LIMIT      1e30
#define MOST_SIDE     4 /* binary logarithm of the maximum number of rows side by side in a warp */
#define MOST_SHIFT    5
#define NO_SHIFT      31
#define LEAST_SKEW    7
#define MOST_SKEW     11
#define FEW_LOADS     16
#define MOST_ACCESSES 8  /* maximum sampled accesses of a warp */
#define MOST_ENTRIES  16 /* entries of a chunk */
/* Entries of each chunk that are sampled while arrangements are compared. */
#define FEW_SAMPLES 1
/* Entries of each chunk that are sampled for the best arrangements. Three are sampled where the entries do
 * not divide evenly. */
#define MORE_SAMPLES 2
/* First lane of the warp that is sampled besides the first warp. */
#define SECOND_WARP (5 * WARP_THREADS)
#define MOST_CHUNKS (SECOND_WARP + WARP_THREADS)
#define MOST_PARTS  768
/* Number of arrangements that are compared again with more samples. */
#define MOST_ARRANGEMENTS 2
#define MOST_SPACINGS     (2 + 2 * (MOST_SHIFT + 1) + MOST_SKEW - LEAST_SKEW + 1)
/* Cost of reading lines in two parts, in wavefronts for a warp's chunks. */
#define SPLIT_LINES 6
/* Cost of the instructions for chunks of words, in the same unit. */
#define WORDS_ISSUE 16

/* ---- Where elements lie ---------------------------------------------------------------------------- */

/* The place of an element: `at` bytes into the slot of load `load` of stack index `stack`. It is the sum of
 * the spot where the element's row begins and the spot of its entry relative to that. */
struct spot {
	uint32_t load;
	uint32_t stack;
	uint32_t at;
	uint32_t src; /* bytes in the source from the first load to this load, modulo 2^32 */
};

static struct spot row_spot(const struct permute_args *args, uint32_t r)
{
	struct spot spot = { 0 };
	uint32_t step = 1;

	for (uint32_t d = 0; d < args->n_row; d++) {
		const uint32_t n = (uint32_t)args->row[d].by.n, rest = divide_u32(r, &args->row[d].by);
		const uint32_t index = r - rest * n;

		r = rest;
		if (d < args->stack_row) {
			spot.at += index * (uint32_t)args->row[d].src;
		} else {
			spot.stack += index * step;
			spot.src += index * (uint32_t)args->load[args->stack_load + d - args->stack_row].src;
			step *= n;
		}
	}
	return spot;
}

static struct spot entry_spot(const struct permute_args *args, uint32_t j)
{
	struct spot spot = { 0 };

	for (uint32_t d = 0; d < args->n_run; d++) {
		const uint32_t n = (uint32_t)args->run[d].by.n, rest = divide_u32(j, &args->run[d].by);
		const uint32_t index = j - rest * n;

		j = rest;
		spot.load += index * args->run_loads[d];
		if (args->run_loads[d])
			spot.src += index * (uint32_t)args->run[d].src;
		else
			spot.at += index * (uint32_t)args->run[d].src;
	}
	return spot;
}

/* The spots of the rows and entries that the lanes of two warps read. Each is computed once, for all
 * arrangements. */
struct places {
	const struct permute_args *args;
	uint32_t element;
	uint32_t entries;          /* entries of a row */
	bool has_row[MOST_CHUNKS]; /* indexed by the group number of the row */
	bool has_entry[MOST_CHUNKS * MOST_ENTRIES];
	struct spot row[MOST_CHUNKS];
	struct spot entry[MOST_CHUNKS * MOST_ENTRIES];
};

static const struct spot *find_row(struct places *places, uint32_t group)
{
	if (!places->has_row[group])
		places->row[group] = row_spot(places->args, group << places->args->log_group);
	places->has_row[group] = true;
	return &places->row[group];
}

static const struct spot *find_entry(struct places *places, uint32_t j)
{
	if (!places->has_entry[j])
		places->entry[j] = entry_spot(places->args, j);
	places->has_entry[j] = true;
	return &places->entry[j];
}

/* ---- Accesses ------------------------------------------------------------------------------------------ */

/* A set of reads that lanes make at the same time. Where elements are wide, only a part of a warp reads at a
 * time. */
struct access {
	uint32_t n;
	uint32_t weight;             /* number of accesses that this sample stands for */
	uint32_t load[WARP_THREADS]; /* load, stack, at and src: each lane's spot */
	uint32_t stack[WARP_THREADS];
	uint32_t at[WARP_THREADS];
	uint32_t src[WARP_THREADS];
};

/* The different words that lanes read, by bank. */
struct wanted {
	uint32_t most;
	uint32_t n[BANKS];
	uint32_t word[BANKS][WARP_THREADS];
};

static inline void want(struct wanted *wanted, uint32_t word)
{
	const uint32_t bank = word % BANKS, n = wanted->n[bank];
	uint32_t *const words = wanted->word[bank];

	for (uint32_t i = 0; i < n; i++)
		if (words[i] == word)
			return;
	words[n] = word;
	wanted->n[bank] = n + 1;
	if (n >= wanted->most)
		wanted->most = n + 1;
}

/* Returns the number of wavefronts of an access. It is 1 if no two lanes read different words of the same
 * bank. Each lane reads `words` words. Counting stops once the number exceeds `enough`. */
static uint32_t wavefronts(const struct permute_args *args, const struct access *access, uint32_t words,
                           const struct spacing *spacing, uint32_t enough)
{
	const uint32_t stack = stack_pitch_of(args, spacing), pad = args->pad;
	const uint32_t pitch = spacing->pitch, shift = spacing->pad_shift, skew = spacing->skew;
	const uint32_t mask = spacing->phase_mask & ~15u;
	uint32_t word[WARP_THREADS];
	struct wanted wanted;

	/* This also computes lanes that do not exist, because the compiler vectorizes a loop of 32. */
	for (uint32_t l = 0; l < WARP_THREADS; l++) {
		const uint32_t load = access->load[l];
		const uint32_t slot = access->stack[l] * stack + load * pitch + (load >> shift) * pad;
		const uint32_t at = access->at[l] + slot + ((access->src[l] - slot) & mask);

		word[l] = skewed(at, skew) / 4;
	}
	wanted.most = 0;
	memset(wanted.n, 0, sizeof wanted.n);
	for (uint32_t l = 0; l < access->n && wanted.most <= enough; l++)
		for (uint32_t w = 0; w < words; w++)
			want(&wanted, word[l] + w);
	return wanted.most;
}

/* The way in which the bytes at an entry's place are read. */
struct reading {
	uint32_t times;
	uint32_t words;    /* words of a lane in each access */
	uint32_t together; /* lanes in each access */
};

static struct reading reading_of(const struct permute_args *args, uint32_t element)
{
	const uint32_t bytes = args->how == PERMUTE_WORDS ? element << args->log_group : element;
	const uint32_t wide = bytes < 4 ? 4 : bytes;

	/* Unaligned words are shifted, which takes one more word. */
	if (args->how == PERMUTE_WORDS && args->aligned < bytes)
		return (struct reading){ bytes / 4 + (args->aligned < 4), 1, WARP_THREADS };
	return (struct reading){ 1, wide / 4, WARP_THREADS * 4 / wide };
}

/* The accesses of two warps. */
struct warps {
	uint32_t n;
	uint32_t words;  /* words of a lane in each access */
	uint32_t fewest; /* number of wavefronts without any bank conflict: one for each access */
	struct access access[2 * MOST_ACCESSES];
};

static void add_lane(struct access *access, const struct spot *row, const struct spot *entry)
{
	access->load[access->n] = entry->load;
	access->stack[access->n] = row->stack;
	access->at[access->n] = row->at + entry->at;
	access->src[access->n++] = row->src + entry->src;
}

/* Sets *ret to the spots of n lanes that read entry k of their chunks. `first` is the number of the first
 * lane's chunk. */
static void find_lanes(struct places *places, uint32_t n, uint32_t side, uint32_t chunks, uint32_t first,
                       uint32_t k, struct access *ret)
{
	const struct permute_args *args = places->args;
	const uint32_t some = 16 / places->element;
	const struct divisor by_chunks = divisor_of(chunks);

	ret->n = 0;
	for (uint32_t i = first; i < first + n; i++) {
		const uint32_t column = i >> side, rows = divide_u32(column, &by_chunks);
		const uint32_t group = (rows << side) + (i & ((1u << side) - 1));
		const uint32_t j = (column - rows * chunks) * some + k;

		if (group << args->log_group < args->rows && j < places->entries)
			add_lane(ret, find_row(places, group), find_entry(places, j));
	}
}

/* Finds the accesses of two warps. `samples` entries of each chunk stand for all of them. */
static void find_warps(struct places *places, uint32_t side, uint32_t samples, struct warps *ret)
{
	const struct reading reading = reading_of(places->args, places->element);
	const uint32_t chunks = inner_lane_chunks(places->args, side);
	const uint32_t some = min_u32(16 / places->element, places->entries);
	const uint32_t step = max_u32(some / samples, 1);

	ret->n = ret->fewest = 0;
	ret->words = reading.words;
	for (uint32_t warp = 0; warp < 2; warp++)
		for (uint32_t lane = 0; lane < WARP_THREADS; lane += reading.together)
			for (uint32_t k = warp * (step / 2); k < some; k += step) {
				struct access *access = &ret->access[ret->n];

				assert(ret->n < 2 * MOST_ACCESSES);
				find_lanes(places, reading.together, side, chunks, warp * SECOND_WARP + lane,
				           k, access);
				access->weight = step;
				ret->fewest += access->n > 0 ? step : 0;
				ret->n += access->n > 0;
			}
}

/* ---- Costs --------------------------------------------------------------------------------------------- */

/* Returns the wavefronts of a warp's store: one for each line, and one more. */
static uint32_t store_wavefronts(uint32_t side)
{
	return side <= 2 ? 5 : side == 3 ? 9 : 17;
}

/* The cost of a warp's chunks, in wavefronts: `base` plus `each` times the wavefronts of the warp's
 * accesses. */
struct chunk_cost {
	double base;
	double each;
};

/* Returns the cost of a warp's chunks with this spacing. It counts the accesses, the copies that bring the
 * slots, two instructions for each access of a lane if there is a skew, and the instructions of lanes that
 * write no chunk. */
static struct chunk_cost chunk_cost_of(const struct permute_tile *tile, const struct spacing *spacing,
                                       uint32_t side)
{
	const struct permute_args *args = &tile->args;
	const uint32_t group = 1u << args->log_group, rows = group << side;
	const double idle = (double)((args->rows - 1) / rows + 1) * rows / args->rows;
	const double times = (double)reading_of(args, tile->nest.element).times / group;
	const double issue = args->how == PERMUTE_WORDS ? WORDS_ISSUE : 0;
	double helpers = 1, other = store_wavefronts(side);

	if (args->how == PERMUTE_WORDS && args->ragged) {
		helpers = (double)WARP_THREADS / (WARP_THREADS - (1u << side));
		other += 4; /* lanes exchange words by shuffles */
	}
	if (spacing->skew != PERMUTE_NO_SKEW)
		other += 16.0 / tile->nest.element * times / 2;
	return (struct chunk_cost){ other * idle * helpers + issue * (idle * helpers - 1) +
		                        args->loads * parts_of(spacing) * WARP_THREADS * 16 / tile->useful,
		                    times * idle * helpers };
}

/* ---- Search -------------------------------------------------------------------------------------------- */

/* Sets *ret to a spacing with which each load begins as many bytes past the start of a line in the slots as
 * it does in the source. All stack indices share the table's entries, so their loads must be whole lines
 * apart in the source. Returns false if they are not, or if the slots get too large. */
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
		/* A pitch that follows the source's stride gives every load the same phase. */
		ret->pitch += (step - args->pitch) % LINE;
	else
		ret->pitch = round_up((uint32_t)tile->load_run + LINE - 1, LINE);
	return slot_bytes(args, ret) <= PERMUTE_MOST_SLOTS;
}

/* Sets ret[0] and the entries after it to the spacings to compare, and returns their number. Pads after slots
 * help where there are many loads; a skew helps where there are few. */
static int find_spacings(const struct permute_tile *tile, struct spacing *ret)
{
	const struct permute_args *args = &tile->args;
	int n = 0;

	n += match_lines(tile, &ret[n]);
	ret[n++] = spacing_of(args);
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

/* Returns the wavefronts that the accesses of a warp's chunks take with this spacing, or some number above
 * `most` if they take more than that. */
static double sum_wavefronts(const struct places *places, const struct warps *warps,
                             const struct spacing *spacing, double most)
{
	double sum = warps->fewest;

	for (uint32_t a = 0; a < warps->n && sum <= 2 * most; a++) {
		const struct access *access = &warps->access[a];
		const double left = (2 * most - sum) / access->weight + 1;
		const uint32_t enough = left < WARP_THREADS ? (uint32_t)left : WARP_THREADS;

		sum +=
		    access->weight * (wavefronts(places->args, access, warps->words, spacing, enough) - 1.0);
	}
	return sum / 2;
}

/* A spacing and a number of rows side by side (1 << side), with their estimated cost in wavefronts. */
struct arrangement {
	struct spacing spacing;
	uint32_t side;
	double cost;
};

struct arrangements {
	int n;
	struct arrangement best[MOST_ARRANGEMENTS]; /* the cheapest ones, by rising cost */
};

/* Returns the cost at or above which an arrangement is of no use. */
static double most_of(const struct arrangements *list)
{
	return list->n < MOST_ARRANGEMENTS ? NO_LIMIT : list->best[list->n - 1].cost;
}

static void add(struct arrangements *list, const struct spacing *spacing, uint32_t side, double cost)
{
	int at;

	if (cost >= most_of(list))
		return;
	at = list->n < MOST_ARRANGEMENTS ? list->n++ : MOST_ARRANGEMENTS - 1;
	for (; at > 0 && list->best[at - 1].cost > cost; at--)
		list->best[at] = list->best[at - 1];
	list->best[at] = (struct arrangement){ *spacing, side, cost };
}

static double min_double(double a, double b)
{
	return a < b ? a : b;
}

/* Returns the extra cost of a spacing with which lines of the source are read in two parts. */
static double pad_cost(uint32_t pitch, const struct spacing *spacing)
{
	return spacing->phase_mask < LINE - 1 ? SPLIT_LINES + (spacing->pitch - pitch) * 0.02 : 0;
}

/* Finds the arrangements that look best with few samples. It drops an arrangement as soon as its cost must
 * exceed `most` or that of the best ones. */
static void find_arrangements(const struct permute_tile *tile, struct places *places, double most,
                              struct arrangements *ret)
{
	const struct permute_args *args = &tile->args;
	struct spacing spacings[MOST_SPACINGS];
	const int n = find_spacings(tile, spacings);
	struct warps warps;

	for (uint32_t side = 0; side <= MOST_SIDE && (side == 0 || 1u << side <= 2 * args->rows); side++) {
		struct chunk_cost cost = chunk_cost_of(tile, &spacings[0], side);

		if (side > 0 && cost.base + cost.each * warps.fewest / 2 >= most_of(ret))
			continue;
		find_warps(places, side, FEW_SAMPLES, &warps);
		for (int i = 0; i < n; i++) {
			const double pad = pad_cost(args->pitch, &spacings[i]);
			double left;

			if (slot_bytes(args, &spacings[i]) > PERMUTE_MOST_SLOTS ||
			    args->loads * parts_of(&spacings[i]) > MOST_PARTS)
				continue;
			cost = chunk_cost_of(tile, &spacings[i], side);
			cost.base += pad;
			left = (min_double(most_of(ret), most + pad) - cost.base) / cost.each;
			if (left > warps.fewest / 2.0)
				add(ret, &spacings[i], side,
				    cost.base +
				        cost.each * sum_wavefronts(places, &warps, &spacings[i], left));
		}
	}
}

bool permute_arrange(struct permute_tile *tile, double most)
{
	struct permute_args *args = &tile->args;
	struct arrangements list = { .n = 0 };
	struct spacing spacings[MOST_SPACINGS];
	struct places places;
	const uint32_t pitch = args->pitch;
	double least = NO_LIMIT;

	if (args->how == PERMUTE_SQUARES)
		return true;
	if (args->how == PERMUTE_PIECES) {
		find_spacings(tile, spacings);
		set_spacing(tile, &spacings[0]);
		return true;
	}
	places.args = args;
	places.element = tile->nest.element;
	places.entries = args->row_bytes / tile->nest.element;
	memset(places.has_row, 0, sizeof places.has_row);
	memset(places.has_entry, 0, min_u32(places.entries, sizeof places.has_entry));
	find_arrangements(tile, &places, most * WARP_THREADS, &list);
	for (int i = 0; i < list.n; i++) {
		const struct arrangement *own = &list.best[i];
		const struct chunk_cost cost = chunk_cost_of(tile, &own->spacing, own->side);
		const double pad = pad_cost(pitch, &own->spacing);
		struct warps warps;
		double sum;

		find_warps(&places, own->side, MORE_SAMPLES, &warps);
		sum = cost.base + cost.each * sum_wavefronts(&places, &warps, &own->spacing,
		                                             (least - pad - cost.base) / cost.each);
		if (sum + pad >= least)
			continue;
		least = sum + pad;
		tile->wavefronts = sum / WARP_THREADS;
		args->log_side = own->side;
		set_spacing(tile, &own->spacing);
	}
	return list.n > 0;
}
