/* SPDX-License-Identifier: Apache-2.0 */
/* A move is one loop nest placed in memory, with its microkernel chosen, and divided into pieces that threads
 * can run side by side.
 *
 * A piece is a box of the loop nest. Pieces write disjoint bytes, and no two share a cache line of the
 * destination unless the loop nest's own rows do. A move owns no memory and may be copied. Microkernels,
 * tiles, conversions and amax each move a part of one.
 */
#ifndef KERNELS_CPU_MOVE_MOVE_H
#define KERNELS_CPU_MOVE_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/nest/loop_nest.h"
#include "kept.h"
#include "microkernel.h"
#include "proto/clock.h"

/* ---- A thread's scratch ----------------------------------------------------------------------------- */

/* A thread builds in its scratch what it writes, and keeps some plans there. The parts that keep plans begin
 * with a line of zeros. */
#define TILE_PLANS_BYTES  (1280 << 10)
#define SMALL_PLANS_BYTES ((256 << 10) + CPU_LINE)
#define MOVE_BYTES        (1536 << 10)
#define MADE_BYTES        (512 << 10)

struct cpu_scratch {
	/* These two are tile.c's and small.c's; nobody else writes there. tile.c's are for what no layout
	 * keeps. */
	_Alignas(CPU_LINE) char plans[TILE_PLANS_BYTES];
	_Alignas(CPU_LINE) char small_plans[SMALL_PLANS_BYTES];
	/* A running move uses this. Tiles with windows (partition.c) need the most. */
	_Alignas(CPU_LINE) char move[MOVE_BYTES];
	/* Results of moves are put together here. */
	_Alignas(CPU_LINE) char made[MADE_BYTES];
};

/* Returns NULL if there is no memory. */
static inline struct cpu_scratch *cpu_scratch_new(void)
{
	struct cpu_scratch *scratch = aligned_alloc(CPU_LINE, sizeof(*scratch));
	if (scratch) {
		memset(scratch->plans, 0, CPU_LINE);
		memset(scratch->small_plans, 0, CPU_LINE);
	}
	return scratch;
}

static inline void cpu_scratch_free(struct cpu_scratch *scratch)
{
	free(scratch);
}

/* ---- Moves ------------------------------------------------------------------------------------------ */

struct cpu_tile;
struct engine_explanation;
struct family_rules;

enum amax_pass {
	AMAX_NONE, /* the move computes no scales */
	AMAX_WHOLE,
	AMAX_REDUCE,
	AMAX_CONVERT,
};

/* A conversion has its operands and results in these places. */
struct convert_place {
	const struct conversion *conversion;
	const char *scale, *bias; /* element [0, ..., 0] of the tensor, or the number, a double; not NULL */
	uint64_t *changed; /* exact cast: elements whose value has changed are added here, atomically */
	char *amax_scale, *amax_inverse; /* element [0, ..., 0] of what amax writes; NULL: it does not */
};

struct move_dim {
	int64_t n;
	int64_t dst, src; /* strides, bytes */
	int64_t chunk;    /* extent of a piece, in units of this dimension */
	/* The window is as in a loop nest; tiles and pieces have all of it. source is 0 if there is no
	 * window. */
	int64_t before, source;
	int64_t scale, bias; /* strides of a conversion's operands */
	/* These are as in a loop nest. skew is also added to indices so that pieces begin with a block, where
	 * they have whole blocks. */
	int64_t block, skew, to_scale, to_inverse;
	int64_t to_magnitude; /* elements of the move's magnitudes from block to block */
};

struct move {
	const struct cpu_isa *isa;
	const struct cpu_strategy *strategy; /* NULL: the move must not be run */
	struct kept_plans *kept;             /* the place's */
	bool stream;                         /* The destination is written past the cache. */
	uint32_t unit;                       /* bytes of a unit */
	char *dst;                           /* the first unit */
	const char *src;
	int rank;
	int row_dim, col_dim; /* dimensions that the microkernel moves; -1: one unit */
	/* These are further dimensions of a transpose's microkernel, from the inside out: those that continue
	 * row_dim in the source, and those that continue col_dim in the destination. All but the last of each
	 * are whole in a piece. */
	int n_row, n_run;
	int8_t row_chain[MICROKERNEL_DIMS], run_chain[MICROKERNEL_DIMS];
	int64_t lead; /* added to indices of col_dim so that pieces begin with a line */
	int64_t pieces;
	bool in_place;  /* Tiles are built in the destination, not in scratch. */
	bool is_exact;  /* Nothing is written past an element there, even if it is overwritten later. */
	bool is_direct; /* Rows are converted where they lie, not in tiles. */
	/* Places of the operands of the first element and the results of the first block. */
	struct convert_place conversion;
	enum amax_pass pass;
	_Atomic uint32_t *magnitude; /* magnitudes of blocks; set in a move of two passes */
	bool bordered;               /* Some dimensions are windows. */
	enum pad_mode mode;          /* how their border is made; the place's */
	const void *fill;
	uint32_t fill_bytes;
	int64_t tile[TENSOR_MAX_RANK]; /* extents of a tile by dimension */
	/* Bytes to where the same move goes next in the source. It is 0 if that is not known, as after
	 * move_init. */
	int64_t ahead;
	struct move_dim dim[TENSOR_MAX_RANK];
};

/* A place says where a loop nest's bases lie and how the nest is to be run. */
struct move_place {
	char *dst;
	const char *src;
	const void *fill; /* the pattern, one element; must outlive the move */
	uint32_t fill_bytes;
	enum pad_mode mode;
	int64_t piece_bytes; /* bytes of the lines that a piece touches on one side, about */
	int64_t tiled_bytes; /* the tuning's */
	bool stream;
	struct convert_place conversion; /* set if the loop nest is converted; its tensors are not NULL */
	struct kept_plans *kept;         /* the layout's; NULL: a thread keeps what it plans to itself */
};

/* A box of a move: where its element [0, ..., 0] lies on both sides, and its extents by dimension of the
 * move. */
struct move_box {
	char *dst;
	const char *src;
	int64_t n[TENSOR_MAX_RANK];
};

/* A strategy is a way to move a loop nest. Each is one constant, in the file with its code; strategies.def
 * lists them all, and the chooser (cpu_choice.c) goes through that list. */
struct cpu_strategy {
	const char *name;
	int variants; /* The strategy goes by tiles of so many kinds, and may be chosen instead of the first
	                 legal strategy that has none. */

	/* Returns whether the strategy is legal for the nest. */
	bool (*probe)(const struct loop_nest *nest);

	/* Returns the predicted cost (cpu_choice.h). NULL: it is not predicted, and no other strategy is
	 * better.
	 */
	double (*cost)(const struct loop_nest *nest, const struct cpu_tile *tile);

	/* Sets the strategy's dimensions, tiles and pieces of a move, which has those of the nest, whose
	 * offsets and place do not matter but for where the move is. Returns false if the tiles do not fit a
	 * thread's scratch. */
	bool (*plan)(struct move *move, const struct loop_nest *nest, const struct move_place *place,
	             const struct cpu_tile *tile);

	/* Runs a box, whose first element has these indices in the move's dimensions. NULL if there is a
	 * microkernel. */
	void (*run)(const struct move *move, const struct move_box *box, const int64_t *first,
	            struct cpu_scratch *scratch);

	/* Moves boxes of two dimensions. The move then has pieces of such boxes. */
	microkernel_fn *microkernel;

	/* Sets the tile that explain tells of; NULL: there is none. */
	void (*describe)(struct engine_explanation *ret, const struct loop_nest *nest,
	                 const struct cpu_tile *tile);

	/* Adds the rules that keep the nest from families of this strategy; NULL: no rule is told. */
	void (*explain)(const struct loop_nest *nest, struct family_rules *ret);
};

#define STRATEGY(name) extern const struct cpu_strategy cpu_strategy_##name;
#include "strategies.def"

enum {
#define STRATEGY(name) CPU_STRATEGY_##name,
#include "strategies.def"
	CPU_STRATEGY_COUNT
};

/* Chooses a strategy and plans the move, or takes what the layout keeps of a loop nest like this one. A loop
 * nest with windows always goes by tiles, in a place that is streamed. Its windows are those that partition.h
 * chooses for such a place. Where their tiles do not fit, as may be while it tries, the move has no strategy.
 */
void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place);

/* For measuring: from now on moves go by this candidate (cpu_choice.h) if they can; -1 ends that. No job may
 * run meanwhile. */
void move_force(int candidate);
int move_forced(void); /* Returns what move_force was given. */

/* Has a move that converts, and was planned for the operands and results at `from`, use those at `to`. */
void move_convert_at(struct move *move, const struct convert_place *from, const struct convert_place *to);

/* Shifts the move by so many bytes on either side; src must be 0 for a fill. */
void move_shift(struct move *move, int64_t dst, int64_t src);

/* Runs one piece, from 0 to pieces - 1. scratch is this thread's. What went past the cache is in order once
 * the caller has called isa->fence. */
void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch);

/* Sets *ret to a piece as a loop nest of units, and *ret_dst and *ret_src to where it lies. Its strides may
 * be of any sign on either side. */
void move_piece_nest(const struct move *move, int64_t piece, struct loop_nest *ret, char **ret_dst,
                     const char **ret_src);

/* ---- Whether memory is in a cache ------------------------------------------------------------------- */

/* The time that it takes to read a few lines tells whether memory that will be written is in a cache. */
#define COLD_READS 4

/* Reads a few of the n bytes at start, and returns whether that took cold_ns or longer by the clock, which is
 * asked before the reads and after them. The answer is a guess, and either one is safe. If cold_ns is 0 or
 * UINT64_MAX, it is yes or no without a look. The call must be under a guard, as any access must.
 *
 * No distance between the lines repeats from one destination to the next. With lines a quarter of it apart,
 * 60 % of the destinations in memory that follow each other were answered as fast as by a cache, with these
 * none; uint8 [256,256] transposed 0.54 and 0.66 of memcpy's speed. Other threads may be writing there: what
 * is read is thrown away. */
__attribute__((no_sanitize("thread"))) static inline bool
cold_is_by(uint64_t (*clock)(void), const char *start, int64_t n, uint64_t cold_ns)
{
	const volatile char *p = start;
	uint64_t state = (uintptr_t)start;
	int64_t part = n / COLD_READS;
	if (cold_ns == 0 || cold_ns == UINT64_MAX || part == 0)
		return cold_ns == 0;
	uint64_t start_ns = clock();
	for (int64_t i = 0; i < COLD_READS; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		(void)p[part * i + (int64_t)(state >> 33) % part];
	}
	return clock() - start_ns >= cold_ns;
}

static inline bool cold_is(const char *start, int64_t n, uint64_t cold_ns)
{
	return cold_is_by(clock_ns, start, n, cold_ns);
}

#endif
