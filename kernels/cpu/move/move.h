/* SPDX-License-Identifier: Apache-2.0 */
/* A move is one loop nest placed in memory, with its strategy chosen, and divided into pieces that threads
 * can run concurrently.
 *
 * A piece is a box of the loop nest. Pieces write disjoint bytes, and no two share a cache line of the
 * destination unless the loop nest's own rows do. A move owns no memory and may be copied. Microkernels,
 * tiles, conversions and amax each implement strategies.
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

/* Scratch memory of one thread, in which it assembles what it writes, and keeps some plans. The two parts
 * that keep plans begin with a line of zeros. */
#define TILE_PLANS_BYTES  (1280 << 10)
#define SMALL_PLANS_BYTES ((256 << 10) + CPU_LINE)
#define MOVE_BYTES        (1536 << 10)
#define MADE_BYTES        (512 << 10)

struct cpu_scratch {
	/* Plans kept by tile.c (those that no layout keeps) and by small.c; no other code writes here. */
	_Alignas(CPU_LINE) char plans[TILE_PLANS_BYTES];
	_Alignas(CPU_LINE) char small_plans[SMALL_PLANS_BYTES];
	/* Used by the move that is running. Tiles with windows (partition.c) need the most. */
	_Alignas(CPU_LINE) char move[MOVE_BYTES];
	/* Results of moves are assembled here. */
	_Alignas(CPU_LINE) char made[MADE_BYTES];
};

/* Returns NULL if out of memory. */
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

/* This says how a move handles the scales of blocks (amax.h). AMAX_WHOLE finds the magnitudes of whole blocks
 * and converts these at once; AMAX_REDUCE finds the largest magnitudes, and AMAX_CONVERT then converts. */
enum amax_pass {
	AMAX_NONE, /* the move computes no scales */
	AMAX_WHOLE,
	AMAX_REDUCE,
	AMAX_CONVERT,
};

/* Addresses of the operands and results of a conversion. */
struct convert_place {
	const struct conversion *conversion;
	/* Address of element [0, ..., 0] of the tensor, or of the number, a double; never NULL. */
	const char *scale, *bias;
	/* Exact cast: the number of elements whose value has changed is added here, atomically. */
	uint64_t *changed;
	/* Address of element [0, ..., 0] of the results of amax; valid only if it writes them. */
	char *amax_scale, *amax_inverse;
};

struct move_dim {
	int64_t n;
	int64_t dst, src; /* strides in bytes */
	int64_t chunk;    /* extent of a piece, in units of this dimension */
	/* The window, as in a loop nest. Tiles and pieces contain all of it. source is 0 if there is no
	 * window. */
	int64_t before, source;
	int64_t scale, bias; /* strides of a conversion's operands in bytes */
	/* This means the same as in struct loop_nest_dim. If pieces contain whole blocks, skew is also added
	 * to indices, so that pieces begin with a block. */
	int64_t block, skew, to_scale, to_inverse;
	int64_t to_magnitude; /* distance of the next block in the move's magnitudes, in elements */
};

struct move {
	const struct cpu_isa *isa;
	const struct cpu_strategy *strategy; /* NULL: the move cannot be run */
	struct kept_plans *kept;             /* those of struct move_place */
	bool stream;                         /* the destination is written past the cache */
	uint32_t unit;                       /* bytes of a unit (microkernel.h) */
	/* Address of the first unit in the destination; src is that in the source. */
	char *dst;
	const char *src;
	int rank;
	int row_dim, col_dim; /* dimensions that the microkernel moves; -1: one unit */
	/* Further dimensions of a transpose's microkernel, innermost first: those that continue row_dim in
	 * the source, and those that continue col_dim in the destination. In a piece, all but the last of
	 * each list are whole. */
	int n_row, n_run;
	int8_t row_chain[MICROKERNEL_DIMS], run_chain[MICROKERNEL_DIMS];
	int64_t lead; /* added to indices of col_dim, so that pieces begin on a cache line */
	int64_t pieces;
	bool in_place; /* tiles are assembled in the destination, not in scratch */
	/* Nothing is written beyond an element of the destination, even if it would be overwritten later. */
	bool is_exact;
	bool is_direct; /* rows are converted straight from the source, without tiles */
	/* Addresses of the operands of the first element and of the results of the first block. */
	struct convert_place conversion;
	enum amax_pass pass;
	_Atomic uint32_t *magnitude; /* largest magnitudes of blocks; set in a move with two passes */
	bool bordered;               /* some dimensions are windows */
	enum pad_mode mode;          /* how borders of windows are made; that of struct move_place */
	const void *fill;
	uint32_t fill_bytes;
	int64_t tile[TENSOR_MAX_RANK]; /* extents of a tile by dimension */
	/* Bytes to where the same move goes next in the source. 0 if that is unknown, as after move_init. */
	int64_t ahead;
	struct move_dim dim[TENSOR_MAX_RANK];
};

/* A loop nest's base addresses, and the way in which the nest is to be run. */
struct move_place {
	char *dst;
	const char *src;
	const void *fill; /* the fill pattern, one element, which must outlive the move */
	uint32_t fill_bytes;
	enum pad_mode mode;
	int64_t piece_bytes; /* approximate bytes of the lines that a piece touches on one side */
	int64_t tiled_bytes; /* that of struct cpu_tuning */
	bool stream;
	struct convert_place conversion; /* set if the loop nest is converted */
	/* Where the layout keeps plans; NULL: they are kept by the thread alone. */
	struct kept_plans *kept;
};

/* A box of a move: the addresses of its element [0, ..., 0], and its extents by dimension of the move. */
struct move_box {
	char *dst;
	const char *src;
	int64_t n[TENSOR_MAX_RANK];
};

/* A way to move a loop nest. Each strategy is one constant, in the file that has its code. strategies.def
 * lists them all, and the chooser (cpu_choice.c) goes through that list. */
struct cpu_strategy {
	const char *name;
	/* Number of kinds of tiles that the strategy can use. If it is not 0, the strategy may be chosen
	 * instead of the first legal strategy that has none. */
	int variants;

	/* Returns whether the strategy is legal for the nest. */
	bool (*probe)(const struct loop_nest *nest);

	/* Returns the predicted cost (cpu_choice.h). NULL: the cost is not predicted, and if the strategy is
	 * the first legal one, no other is considered. */
	double (*cost)(const struct loop_nest *nest, const struct cpu_tile *tile);

	/* Sets the strategy's dimensions, tiles and pieces of a move. The move already has the dimensions of
	 * the nest; offsets and place matter only for where the move lies. Returns false if the tiles do not
	 * fit a thread's scratch. */
	bool (*plan)(struct move *move, const struct loop_nest *nest, const struct move_place *place,
	             const struct cpu_tile *tile);

	/* Moves a box; `first` has the indices of its first element in the move's dimensions. This pointer is
	 * NULL if there is a microkernel. */
	void (*run)(const struct move *move, const struct move_box *box, const int64_t *first,
	            struct cpu_scratch *scratch);

	/* Moves boxes of two dimensions. If set, the move's pieces are divided into such boxes. */
	microkernel_fn *microkernel;

	/* Sets the tile that `explain` reports. NULL: there is none. */
	void (*describe)(struct engine_explanation *ret, const struct loop_nest *nest,
	                 const struct cpu_tile *tile);

	/* Adds the rules that exclude the nest from families of this strategy. NULL: none are reported. */
	void (*explain)(const struct loop_nest *nest, struct family_rules *ret);
};

#define STRATEGY(name) extern const struct cpu_strategy cpu_strategy_##name;
#include "strategies.def"

enum {
#define STRATEGY(name) CPU_STRATEGY_##name,
#include "strategies.def"
	CPU_STRATEGY_COUNT
};

/* Chooses a strategy and plans the move, or reuses what the layout keeps of an equal loop nest. A loop nest
 * with windows is always moved by tiles. Its windows must be those that windows_choose (partition.h) chooses
 * for this place. While that function still tries windows, their tiles may not fit; the move then has no
 * strategy. */
void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place);

/* For measurements: makes all later moves use this candidate (cpu_choice.h) if they can; -1 ends that. No job
 * may be running during the call. */
void move_force(int candidate);
int move_forced(void); /* Returns the last argument of move_force, or -1. */

/* Makes a converting move, which was planned for the operands and results at `from`, use those at `to`. */
void move_convert_at(struct move *move, const struct convert_place *from, const struct convert_place *to);

/* Shifts the move by these numbers of bytes. src must be 0 for a fill. */
void move_shift(struct move *move, int64_t dst, int64_t src);

/* Runs one piece, from 0 to pieces - 1. scratch belongs to the calling thread. Writes past the cache are
 * ordered only once the caller has called isa->fence. */
void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch);

/* Sets *ret to a piece as a loop nest of units, and *ret_dst and *ret_src to its addresses. The nest may have
 * strides of any sign on both sides. */
void move_piece_nest(const struct move *move, int64_t piece, struct loop_nest *ret, char **ret_dst,
                     const char **ret_src);

/* ---- Whether memory is in a cache ------------------------------------------------------------------- */

/* The time that it takes to read a few lines shows whether memory that will be written is in a cache. */
#define COLD_READS 4

/* Reads a few of the n bytes at start, and returns whether that took cold_ns or longer. The clock is read
 * before and after. The answer is a guess, and either answer is safe. If cold_ns is 0, returns true without
 * reading; if it is UINT64_MAX, false. Must be called under a guard, like any access to client memory.
 *
 * The distances between the lines differ from one destination to the next. With lines a quarter of a
 * destination apart, 60 % of consecutive destinations in memory were answered as fast as by a cache, and with
 * these distances none; the speed of uint8 [256,256] transposed is 0.54 and 0.66 of memcpy's. Other threads
 * may be writing to the memory; what is read is discarded.
 */
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
