/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the layout of a tile in shared memory: its parts are aligned and do not overlap, fit what the device
 * has, and lanes seldom use the same bank at once. */
#include <criterion/criterion.h>

#include "kernels/cuda/strategy/permute_plan.h"
#include "kernels/cuda/strategy/plan.h"
#include "proto/arithmetic.h"
#include "tests/gpu/random_tile.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

#define CASES       60000
#define MOST_SHARED (227 * 1024) /* bytes that a thread block can have */
#define BANKS       32

/* ---- Places
 * ------------------------------------------------------------------------------------------------ */

/* Checks the parts that a kernel keeps in shared memory, in bytes. */
static void check_layout(uint64_t seed, const struct permute_args *args, uint32_t element)
{
	const bool pieces = args->how == PERMUTE_PIECES, words = args->how == PERMUTE_WORDS,
		   squares = args->how == PERMUTE_SQUARES;
	const uint32_t chunks = (args->row_bytes + (args->ragged ? 15 : 0) + 15) / 16;
	const uint32_t notes = args->row_notes * (words     ? PERMUTE_WORDS_NOTE + PERMUTE_WORDS_PLACE
	                                          : squares ? PERMUTE_SQUARES_NOTE
	                                                    : PERMUTE_NOTE);
	const uint32_t table = 2 * (pieces    ? args->pieces
	                            : squares ? 0
	                                      : args->phases * (chunks * (16 / element) + PERMUTE_LEAD));
	const uint32_t masks = args->padded && !pieces ? 2 * args->phases * chunks : 0;
	const struct {
		const char *name;
		uint32_t at, end;
	} parts[] = {
		{ "barrier", 0, 8 },
		{ "slots", PERMUTE_SLOTS_AT - (pieces ? 16 : 0),
		  PERMUTE_SLOTS_AT + args->slot_lead +
		      args->loads / (uint32_t)args->by_loads.n * args->stack_pitch },
		{ "rows", args->rows_at, args->rows_at + notes },
		{ "table", args->table_at, args->table_at + table },
		{ "masks", args->masks_at, args->masks_at + masks },
		{ "the end", args->shared, args->shared },
	};

	for (size_t i = 1; i < sizeof parts / sizeof *parts; i++) {
		cr_assert_eq(parts[i].at % 16, 0, "seed %lu: %s at %u", (unsigned long)seed, parts[i].name,
		             parts[i].at);
		cr_assert_geq(parts[i].at, parts[i - 1].end, "seed %lu: %s at %u, but %s end at %u",
		              (unsigned long)seed, parts[i].name, parts[i].at, parts[i - 1].name,
		              parts[i - 1].end);
	}
	cr_assert_leq(args->shared, MOST_SHARED, "seed %lu: %u bytes", (unsigned long)seed, args->shared);
	cr_assert(args->threads >= 32 && args->threads <= 256 && args->threads % 32 == 0,
	          "seed %lu: %u threads", (unsigned long)seed, args->threads);
	cr_assert_geq(args->row_notes, args->rows, "seed %lu: %u notes", (unsigned long)seed,
	              args->row_notes);
	cr_assert_eq(args->row_notes % (1u << args->log_group << args->log_side), 0, "seed %lu: %u notes",
	             (unsigned long)seed, args->row_notes);
	cr_assert_eq(args->pitch % 16, 0, "seed %lu: a pitch of %u", (unsigned long)seed, args->pitch);
	cr_assert_eq(args->stack_pitch % 16, 0, "seed %lu: a stack's pitch of %u", (unsigned long)seed,
	             args->stack_pitch);
	cr_assert_eq(args->pad % 16, 0, "seed %lu: a pad of %u", (unsigned long)seed, args->pad);
}

static bool draw(uint64_t seed, struct oracle_case *c, struct plan *ret)
{
	struct plan_facts facts = { .threads = 132 };
	uint64_t state = seed, bits;
	struct transform t;
	struct error err;

	oracle_random_case(seed, c);
	cr_assert_eq(transform_init(&t, &c->spec, &err), 0, "seed %lu: %s", (unsigned long)seed, err.message);
	bits = c->dst_offset | c->src_offset | 16;
	facts.align = (uint32_t)(bits & -bits);
	facts.dst_phase = c->dst_offset % PLAN_PHASE;
	facts.src_phase = c->src_offset % PLAN_PHASE;
	return random_tile_plan(&state, &t, &facts, ret);
}

Test(permute_layout, nothing_overlaps, .timeout = 300)
{
	const long cases = tap_portion(CASES);
	long n = 0;

	for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++) {
		struct oracle_case c;
		struct plan plan;

		if (!draw(seed, &c, &plan))
			continue;
		n++;
		check_layout(seed, &plan.tma.permute, plan.tma.element);
	}
	cr_assert_geq(n, cases / 4, "%ld of %ld", n, cases);
}

/* ---- Banks
 * ------------------------------------------------------------------------------------------------- */

/* Returns how often a warp reads shared memory for its first chunks, counting the bank conflicts of the words
 * that each lane reads. The tile has a load for each element of a row, and elements of 4 bytes. */
static uint32_t count_reads(const struct permute_args *args)
{
	const uint32_t side = args->log_side, chunks = (uint32_t)args->by_chunks.n;
	uint32_t reads = 0;

	for (uint32_t k = 0; k < 4; k++) {
		uint32_t in_bank[BANKS] = { 0 }, most = 0;

		for (uint32_t lane = 0; lane < 32; lane++) {
			const uint32_t column = lane >> side,
				       row = (column / chunks << side) + lane % (1u << side);
			const uint32_t load = column % chunks * 4 + k;
			const uint32_t word =
			    (load * args->pitch + (load >> args->pad_shift) * args->pad) / 4 +
			    row * (uint32_t)args->row[0].src / 4;

			most = max_u32(most, ++in_bank[word % BANKS]);
		}
		reads += most;
	}
	return reads;
}

/* Makes a transpose of a matrix with `columns` columns, in tiles of 32 rows of the destination with 32
 * elements each. */
static void make_transpose(struct permute_tile *ret, struct loop_nest *nest, uint32_t element,
                           int64_t columns)
{
	const struct plan_facts facts = { .align = 16 };
	const struct permute_box box = { { 32, 32 } };
	struct permute_sides sides;

	*nest = (struct loop_nest){ .rank = 2,
		                    .element = element,
		                    .dim = { { columns, 64 * element, element, 0, columns },
		                             { 64, element, columns * element, 0, 64 } } };
	permute_sides_init(&sides, nest, &facts, PAD_MODE_CONSTANT);
	cr_assert(permute_tile_init(ret, &sides, &box, PERMUTE_ELEMENTS));
	permute_lay_out(ret);
}

/* Slots of 128 bytes all begin in the same bank, so that the eight lanes of a row read words of one bank, at
 * four rows a warp. */
Test(permute_layout, arranged_lanes_seldom_meet)
{
	struct permute_tile tile;
	struct loop_nest nest;

	make_transpose(&tile, &nest, 4, 64);
	cr_assert_eq(tile.args.pitch, 128);
	cr_assert_eq(count_reads(&tile.args), 4 * 8, "%u reads", count_reads(&tile.args));
	permute_arrange(&tile, PERMUTE_NEVER);
	permute_lay_out(&tile);
	cr_assert_leq(count_reads(&tile.args), 4 * 2, "%u reads", count_reads(&tile.args));
	check_layout(0, &tile.args, 4);
}

/* Rows of the source are a whole number of lines and 80 bytes apart. With slots as far apart, each load
 * begins at the same offset in a line as in the source, and in a bank of its own. */
Test(permute_layout, loads_keep_their_place_in_a_line)
{
	struct permute_tile tile;
	struct loop_nest nest;

	make_transpose(&tile, &nest, 16, 45);
	permute_arrange(&tile, PERMUTE_NEVER);
	permute_lay_out(&tile);
	cr_expect_eq(tile.args.phase_mask, 127);
	cr_expect_eq(tile.args.pitch, 512 + 80);
	cr_expect_not(tile.split_lines);
	check_layout(0, &tile.args, 16);

	/* Rows are 4 bytes more than whole lines apart: each load has another offset, for which its slot has
	 * room. */
	make_transpose(&tile, &nest, 4, 33);
	permute_arrange(&tile, PERMUTE_NEVER);
	permute_lay_out(&tile);
	cr_expect_eq(tile.args.phase_mask, 127);
	cr_expect_eq(tile.args.pitch, 256);

	/* Rows are whole lines apart, so without a phase all loads would begin in one bank. */
	make_transpose(&tile, &nest, 4, 64);
	permute_arrange(&tile, PERMUTE_NEVER);
	cr_expect_eq(tile.args.phase_mask, 15);
	cr_expect(tile.split_lines);
}

/* With an odd number of chunks, warps would begin and end within sectors. Where it costs little, a warp ends
 * with the part of a row that it writes at once. */
Test(permute_layout, lanes_go_through_whole_sectors)
{
	static const struct {
		uint32_t row_bytes, side, chunks;
	} rows[] = { { 112, 0, 7 }, { 240, 0, 16 }, { 208, 2, 14 }, { 240, 2, 16 }, { 496, 0, 32 } };
	struct permute_tile tile;
	struct loop_nest nest;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		make_transpose(&tile, &nest, 16, 45);
		tile.args.row_bytes = rows[i].row_bytes;
		tile.args.log_side = rows[i].side;
		permute_lay_out(&tile);
		cr_expect_eq(tile.args.by_chunks.n, rows[i].chunks, "%u bytes, side %u: %lu chunks",
		             rows[i].row_bytes, rows[i].side, (unsigned long)tile.args.by_chunks.n);
	}
}

/* Arranging never adds reads, wherever the rows of the source begin. */
Test(permute_layout, arranging_does_no_harm)
{
	for (int64_t columns = 32; columns <= 96; columns++) {
		struct permute_tile tile;
		struct loop_nest nest;
		uint32_t before;

		make_transpose(&tile, &nest, 4, columns);
		before = count_reads(&tile.args);
		permute_arrange(&tile, PERMUTE_NEVER);
		permute_lay_out(&tile);
		cr_assert_leq(count_reads(&tile.args), before, "%ld columns: %u reads, not %u", (long)columns,
		              count_reads(&tile.args), before);
	}
}
