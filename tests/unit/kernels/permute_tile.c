/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a box becomes: its loads and rows are compared with numbers worked out by hand, and boxes that
 * no kernel can move are refused. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/strategy/permute_plan.h"

#define DIM(n, dst, src)          \
	{                         \
		n, dst, src, 0, n \
	}
#define PADDED(n, dst, src, before, source) \
	{                                   \
		n, dst, src, before, source \
	}
#define NEST(element_, rank_, ...) .nest = { .rank = rank_, .element = element_, .dim = { __VA_ARGS__ } }
#define BOX(...)                   .box = { { __VA_ARGS__ } }

/* 64 rows of 96 become 96 rows of 64, and 63 rows of 95 become 95 rows of 63. */
#define EVEN NEST(4, 2, DIM(96, 256, 4), DIM(64, 4, 384))
#define ODD  NEST(4, 2, DIM(95, 252, 4), DIM(63, 4, 380))
/* The inner two of three axes are swapped. */
#define THREE NEST(4, 3, DIM(6, 8192, 8192), DIM(64, 128, 4), DIM(32, 4, 256))

struct tile_row {
	char name[56];
	struct loop_nest nest;
	enum pad_mode mode;
	uint8_t dst_phase, src_phase;
	struct permute_box box;
	enum permute_how how;

	uint64_t tiles;
	uint32_t loads, load_bytes, load_by, load_gap;
	uint32_t rows, row_bytes, row_lead;
	uint32_t margin, cut, run_base;
	uint32_t row_base, back_part, slot_lead;
	bool exact, ragged, unaligned_loads, back;
	uint32_t run_loads[3];
	uint32_t stack; /* indices of the stack in one tile */
	int64_t dst, src;
	uint32_t log_group, aligned; /* only in tiles of words */
};

static struct tile_row rows[] = {
	{ .name = "the whole of a transpose",
	  NEST(4, 2, DIM(32, 128, 4), DIM(32, 4, 128)),
	  BOX(32, 32),
	  .tiles = 1,
	  .loads = 1,
	  .load_bytes = 4096,
	  .rows = 1,
	  .row_bytes = 4096,
	  .run_loads = { 0, 0 },
	  .stack = 1 },
	{ .name = "a part of both sides' runs",
	  EVEN,
	  BOX(32, 32),
	  .tiles = 6,
	  .loads = 32,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 128,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "both run into the same dimension",
	  EVEN,
	  BOX(8, 64),
	  .tiles = 12,
	  .loads = 64,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 1,
	  .row_bytes = 2048,
	  .run_loads = { 1, 0 },
	  .stack = 1 },
	{ .name = "a long run is cut where the table ends",
	  EVEN,
	  BOX(40, 64),
	  .tiles = 3,
	  .loads = 64,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 3,
	  .row_bytes = 4096,
	  .cut = 16,
	  .run_loads = { 1, 0 },
	  .stack = 1 },
	{ .name = "ends within sectors take a margin",
	  ODD,
	  BOX(32, 48),
	  .tiles = 6,
	  .loads = 56,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 224,
	  .margin = 8,
	  .ragged = true,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "unless it is more than a quarter",
	  ODD,
	  BOX(32, 31),
	  .tiles = 9,
	  .loads = 31,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 124,
	  .exact = true,
	  .ragged = true,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "a base within a sector takes one",
	  EVEN,
	  BOX(32, 32),
	  .dst_phase = 16,
	  .tiles = 6,
	  .loads = 40,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 160,
	  .margin = 8,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "a stack",
	  THREE,
	  BOX(2, 32, 32),
	  .tiles = 6,
	  .loads = 64,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 2,
	  .row_bytes = 4096,
	  .run_loads = { 1, 0 },
	  .stack = 2 },
	{ .name = "pieces, and border between them",
	  NEST(4, 3, PADDED(6, 2048, 1024, 1, 4), PADDED(8, 256, 256, 2, 4), DIM(64, 4, 4)),
	  BOX(2, 8, 64),
	  .how = PERMUTE_PIECES,
	  .tiles = 3,
	  .loads = 1,
	  .load_bytes = 1024,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 1,
	  .row_bytes = 4096,
	  .run_loads = { 0, 0, 0 },
	  .stack = 1 },
	{ .name = "pieces, with a gap between two of them",
	  NEST(16, 3, DIM(3, 256, 512), DIM(4, 64, 128), DIM(4, 16, 16)),
	  BOX(1, 2, 4),
	  .how = PERMUTE_PIECES,
	  .tiles = 6,
	  .loads = 1,
	  .load_bytes = 128,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .load_gap = 64,
	  .rows = 1,
	  .row_bytes = 128,
	  .run_loads = { 0, 0 },
	  .stack = 1 },
	{ .name = "words of two elements",
	  NEST(2, 2, DIM(96, 128, 2), DIM(64, 2, 192)),
	  BOX(32, 32),
	  .how = PERMUTE_WORDS,
	  .tiles = 6,
	  .loads = 32,
	  .load_bytes = 2,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 64,
	  .run_loads = { 1 },
	  .stack = 1,
	  .log_group = 2,
	  .aligned = 8 },
	{ .name = "words",
	  NEST(1, 2, DIM(96, 64, 1), DIM(64, 1, 96)),
	  BOX(32, 32),
	  .how = PERMUTE_WORDS,
	  .tiles = 6,
	  .loads = 32,
	  .load_bytes = 1,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 32,
	  .run_loads = { 1 },
	  .stack = 1,
	  .log_group = 3,
	  .aligned = 8 },
	{ .name = "words of twelve rows",
	  NEST(1, 2, DIM(96, 64, 1), DIM(64, 1, 96)),
	  BOX(12, 32),
	  .how = PERMUTE_WORDS,
	  .tiles = 16,
	  .loads = 32,
	  .load_bytes = 1,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 12,
	  .row_bytes = 32,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1,
	  .log_group = 2,
	  .aligned = 4 },
	{ .name = "words of fifteen rows",
	  NEST(1, 2, DIM(95, 64, 1), DIM(64, 1, 95)),
	  BOX(15, 32),
	  .how = PERMUTE_WORDS,
	  .tiles = 14,
	  .loads = 32,
	  .load_bytes = 1,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 15,
	  .row_bytes = 32,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1,
	  .log_group = 3,
	  .aligned = 1 },
	{ .name = "squares",
	  EVEN,
	  BOX(32, 32),
	  .how = PERMUTE_SQUARES,
	  .tiles = 6,
	  .loads = 32,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 128,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "squares, where the rows' dimension follows the source's",
	  NEST(8, 2, DIM(256, 128, 8), DIM(16, 8, 2048)),
	  BOX(32, 16),
	  .how = PERMUTE_SQUARES,
	  .tiles = 8,
	  .loads = 16,
	  .load_bytes = 8,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 128,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "squares, where the source's dimension follows the rows'",
	  NEST(8, 2, DIM(16, 2048, 8), DIM(256, 8, 128)),
	  BOX(16, 32),
	  .how = PERMUTE_SQUARES,
	  .tiles = 8,
	  .loads = 32,
	  .load_bytes = 128,
	  .rows = 16,
	  .row_bytes = 256,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "squares of rows written to lower and lower addresses",
	  NEST(4, 2, DIM(96, 256, -4), DIM(64, 4, 384)),
	  BOX(48, 32),
	  .how = PERMUTE_SQUARES,
	  .tiles = 4,
	  .loads = 32,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 48,
	  .row_bytes = 128,
	  .row_lead = 47 * 256,
	  .src_phase = 12,
	  .run_loads = { 1 },
	  .stack = 1,
	  .dst = -47 * 256 },
	{ .name = "backwards in the source alone",
	  NEST(4, 2, DIM(96, 256, -4), DIM(64, 4, 384)),
	  BOX(48, 32),
	  .tiles = 4,
	  .loads = 32,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 48,
	  .row_bytes = 128,
	  .row_lead = 47 * 256,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1,
	  .dst = -47 * 256 },
	{ .name = "backwards within the runs of both",
	  NEST(4, 2, DIM(96, 256, 256), DIM(64, 4, -4)),
	  BOX(8, 64),
	  .tiles = 12,
	  .loads = 1,
	  .load_bytes = 256,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 1,
	  .row_bytes = 2048,
	  .run_base = 63 * 4,
	  .unaligned_loads = true,
	  .run_loads = { 0, 0 },
	  .stack = 1,
	  .src = -63 * 4 },
	{ .name = "a part of what is backwards",
	  NEST(4, 2, DIM(96, 512, 512), DIM(64, 4, -4)),
	  BOX(1, 32),
	  .tiles = 192,
	  .loads = 1,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 1,
	  .row_bytes = 128,
	  .back = true,
	  .unaligned_loads = true,
	  .run_loads = { 0 },
	  .stack = 1 },
	{ .name = "what is backwards, cut where the table ends",
	  NEST(4, 2, DIM(96, 256, -256), DIM(64, 4, 4)),
	  BOX(96, 64),
	  .tiles = 1,
	  .loads = 1,
	  .load_bytes = 96 * 256,
	  .rows = 6,
	  .row_bytes = 4096,
	  .cut = 16,
	  .run_base = 15 * 256,
	  .row_base = 80 * 256,
	  .run_loads = { 0, 0 },
	  .stack = 1,
	  .src = -95 * 256 },
	{ .name = "its last part is shorter than the others",
	  NEST(4, 2, DIM(40, 256, -256), DIM(64, 4, 4)),
	  BOX(40, 64),
	  .tiles = 1,
	  .loads = 1,
	  .load_bytes = 40 * 256,
	  .rows = 3,
	  .row_bytes = 4096,
	  .cut = 16,
	  .run_base = 15 * 256,
	  .row_base = 24 * 256 + 4096,
	  .slot_lead = 4096,
	  .run_loads = { 0, 0 },
	  .stack = 1,
	  .src = -39 * 256 },
	{ .name = "a part of what is backwards, cut",
	  NEST(4, 2, DIM(100, 260, -260), DIM(65, 4, 4)),
	  BOX(36, 65),
	  .tiles = 3,
	  .loads = 1,
	  .load_bytes = 260,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 5,
	  .row_bytes = 8 * 260,
	  .cut = 8,
	  .row_base = 17 * 128,
	  .back_part = 8,
	  .slot_lead = 17 * 128,
	  .back = true,
	  .exact = true,
	  .unaligned_loads = true,
	  .run_loads = { 0, 0 },
	  .stack = 1 },
	{ .name = "what is backwards beyond the cut",
	  NEST(4, 3, DIM(8, 8192, -8192), DIM(32, 256, 256), DIM(64, 4, 4)),
	  BOX(4, 32, 64),
	  .tiles = 2,
	  .loads = 1,
	  .load_bytes = 8192,
	  .load_by = PERMUTE_BY_SPLIT_DST,
	  .rows = 8,
	  .row_bytes = 4096,
	  .cut = 16,
	  .back_part = 1,
	  .back = true,
	  .run_loads = { 0, 0 },
	  .stack = 1 },
	{ .name = "pads of a value, in a run",
	  NEST(4, 2, DIM(64, 288, 4), PADDED(72, 4, 256, 4, 64)),
	  BOX(32, 36),
	  .tiles = 4,
	  .loads = 44,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 176,
	  .margin = 8,
	  .run_loads = { 1 },
	  .stack = 1 },
	{ .name = "pads move what is loaded by single indices",
	  NEST(4, 2, PADDED(72, 256, 4, 4, 64), DIM(64, 4, 256)),
	  BOX(32, 32),
	  .tiles = 6,
	  .loads = 32,
	  .load_bytes = 4,
	  .load_by = PERMUTE_BY_SPLIT_SRC,
	  .rows = 32,
	  .row_bytes = 128,
	  .unaligned_loads = true,
	  .run_loads = { 1 },
	  .stack = 1 },
};

ParameterizedTestParameters(permute_tile, boxes)
{
	return cr_make_param_array(struct tile_row, rows, sizeof rows / sizeof *rows);
}

static bool make(const struct tile_row *row, struct permute_tile *ret)
{
	const struct plan_facts facts = { .align = 16,
		                          .dst_phase = row->dst_phase,
		                          .src_phase = row->src_phase };
	struct permute_sides sides;

	permute_sides_init(&sides, &row->nest, &facts, row->mode);
	return permute_tile_init(ret, &sides, &row->box, row->how);
}

#define EXPECT(field) \
	cr_expect_eq(args->field, row->field, "%s: " #field " is %ld", row->name, (long)args->field)

ParameterizedTest(struct tile_row *row, permute_tile, boxes)
{
	struct permute_tile tile;
	const struct permute_args *args = &tile.args;

	cr_assert(make(row, &tile), "%s: refused", row->name);
	cr_expect_eq(tile.tiles, row->tiles, "%s: %lu tiles", row->name, (unsigned long)tile.tiles);
	EXPECT(loads);
	EXPECT(load_bytes);
	EXPECT(load_by);
	EXPECT(load_gap);
	EXPECT(rows);
	EXPECT(row_bytes);
	EXPECT(row_lead);
	EXPECT(margin);
	EXPECT(cut);
	EXPECT(run_base);
	EXPECT(row_base);
	EXPECT(back_part);
	EXPECT(slot_lead);
	EXPECT(exact);
	EXPECT(ragged);
	EXPECT(back);
	EXPECT(log_group);
	if (row->how == PERMUTE_WORDS)
		EXPECT(aligned);
	for (uint32_t d = 0; d < 3; d++)
		cr_expect_eq(d < args->n_run ? args->run_loads[d] : 0, row->run_loads[d],
		             "%s: run_loads[%u] is %u", row->name, d, args->run_loads[d]);
	cr_expect_eq(args->loads / args->by_loads.n, row->stack, "%s: a stack of %lu", row->name,
	             (unsigned long)(args->loads / args->by_loads.n));
	cr_expect_eq((int64_t)args->dst, row->dst, "%s: dst %ld", row->name, (long)args->dst);
	cr_expect_eq((int64_t)args->src, row->src, "%s: src %ld", row->name, (long)args->src);
	cr_expect_eq(tile.unaligned_loads, row->unaligned_loads, "%s: loads are of whole chunks: %d",
	             row->name, !tile.unaligned_loads);
}

/* ---- Refused
 * ----------------------------------------------------------------------------------------------- */

#define REVERSED NEST(4, 2, DIM(96, 256, 256), DIM(64, 4, -4))
#define BESIDE   DIM(64, 288, 4) /* a dimension of the source's runs that is in no row of the destination */

static struct tile_row refused[] = {
	{ .name = "no run at all", EVEN, BOX(1, 1) },
	{ .name = "none of the source", EVEN, BOX(1, 64) },
	{ .name = "elements that are not aligned", EVEN, BOX(32, 32), .dst_phase = 2 },
	{ .name = "words of elements of 4 bytes", EVEN, BOX(32, 32), .how = PERMUTE_WORDS },
	{ .name = "rows of words that are no neighbours",
	  NEST(1, 2, DIM(96, 64, 1), DIM(64, 1, 96)),
	  BOX(32, 64),
	  .how = PERMUTE_WORDS },
	{ .name = "words of three rows and a gap",
	  NEST(1, 3, DIM(8, 192, 4), DIM(3, 64, 1), DIM(64, 1, 32)),
	  BOX(4, 3, 32),
	  .how = PERMUTE_WORDS },
	{ .name = "words of a short last part, 16 bits from the first",
	  NEST(2, 4, DIM(2, 94320, 2), DIM(15, 6288, 4), DIM(12, 524, 15840), DIM(262, 2, 60)),
	  BOX(2, 15, 4, 262),
	  .how = PERMUTE_WORDS },
	{ .name = "pieces that begin with other dimensions", EVEN, BOX(32, 32), .how = PERMUTE_PIECES },
	{ .name = "pieces of 8 bytes",
	  NEST(8, 2, DIM(64, 8, 8), DIM(64, 512, 1024)),
	  BOX(1, 64),
	  .how = PERMUTE_PIECES },
	{ .name = "pieces with a border of their own",
	  NEST(4, 2, DIM(64, 264, 256), PADDED(66, 4, 4, 1, 64)),
	  BOX(8, 66),
	  .how = PERMUTE_PIECES },
	{ .name = "pieces backwards", REVERSED, BOX(8, 64), .how = PERMUTE_PIECES },
	{ .name = "squares of pieces",
	  NEST(8, 2, DIM(64, 8, 8), DIM(64, 512, 1024)),
	  BOX(64, 2),
	  .how = PERMUTE_SQUARES },
	{ .name = "squares of odd rows", ODD, BOX(32, 32), .how = PERMUTE_SQUARES },
	{ .name = "squares of loads of 120 bytes", EVEN, BOX(30, 32), .how = PERMUTE_SQUARES },
	{ .name = "squares of rows of 120 bytes", EVEN, BOX(32, 30), .how = PERMUTE_SQUARES },
	{ .name = "squares, the last loads of which have 8 bytes",
	  NEST(4, 2, DIM(98, 256, 4), DIM(64, 4, 400)),
	  BOX(32, 32),
	  .how = PERMUTE_SQUARES },
	{ .name = "squares, the last rows of which have 8 bytes",
	  NEST(4, 2, DIM(96, 272, 4), DIM(66, 4, 384)),
	  BOX(32, 32),
	  .how = PERMUTE_SQUARES },
	{ .name = "squares of loads with gaps",
	  NEST(4, 3, DIM(4, 1024, 64), DIM(8, 128, 4), DIM(32, 4, 256)),
	  BOX(4, 8, 32),
	  .how = PERMUTE_SQUARES },
	{ .name = "squares, and a border",
	  NEST(4, 2, DIM(64, 288, 4), PADDED(72, 4, 256, 4, 64)),
	  BOX(32, 36),
	  .how = PERMUTE_SQUARES },
	{ .name = "a stack of squares", THREE, BOX(2, 32, 32), .how = PERMUTE_SQUARES },
	{ .name = "more squares than a block has registers for", EVEN, BOX(96, 64), .how = PERMUTE_SQUARES },
	{ .name = "parts of two dimensions of a stack",
	  NEST(4, 4, DIM(6, 65536, 8192), DIM(6, 8192, 65536), DIM(64, 128, 4), DIM(32, 4, 256)),
	  BOX(2, 2, 32, 32) },
	{ .name = "a stack of other phases",
	  NEST(4, 3, DIM(6, 8192, 8200), DIM(64, 128, 4), DIM(32, 4, 256)),
	  BOX(2, 32, 32) },
	{ .name = "a part of what is backwards, and padded",
	  NEST(4, 2, PADDED(96, 512, 512, 1, 94), DIM(64, 4, -4)),
	  BOX(2, 32) },
	{ .name = "more bytes than slots have",
	  NEST(4, 2, DIM(256, 1024, 4), DIM(256, 4, 1024)),
	  BOX(255, 255) },
	{ .name = "more loads than there may be",
	  NEST(1, 2, DIM(64, 8192, 1), DIM(8192, 1, 64)),
	  BOX(2, 4097) },
	{ .name = "more rows than there may be",
	  NEST(1, 2, DIM(8192, 64, 1), DIM(64, 1, 8192)),
	  BOX(4097, 2) },
	{ .name = "a border from the other end, in parts",
	  NEST(4, 2, BESIDE, PADDED(72, 4, 256, 4, 64)),
	  .mode = PAD_MODE_WRAP,
	  BOX(64, 36) },
};

ParameterizedTestParameters(permute_tile, refused)
{
	return cr_make_param_array(struct tile_row, refused, sizeof refused / sizeof *refused);
}

ParameterizedTest(struct tile_row *row, permute_tile, refused)
{
	struct permute_tile tile;

	cr_assert(!make(row, &tile), "%s: a tile of %u loads and %u rows", row->name, tile.args.loads,
	          tile.args.rows);
}

/* The pad mode decides whether a box may have a part of a padded dimension of the source's runs, if the
 * border has one index less than the source (allowed[mode][0]) or as many (allowed[mode][1]). */
Test(permute_tile, padded_parts)
{
	static const bool allowed[PAD_MODE_COUNT][2] = {
		[PAD_MODE_CONSTANT] = { true, true }, [PAD_MODE_EDGE] = { true, true },
		[PAD_MODE_REFLECT] = { true, false }, [PAD_MODE_SYMMETRIC] = { true, false },
		[PAD_MODE_WRAP] = { false, false },
	};

	for (int mode = 0; mode < PAD_MODE_COUNT; mode++)
		for (int as_many = 0; as_many < 2; as_many++)
			for (int after = 0; after < 2; after++) {
				const int64_t border = 31 + as_many, before = after ? 1 : border;
				const struct tile_row row = {
					NEST(4, 2, PADDED(32 + border + 1, 256, 4, before, 32),
					     DIM(64, 4, 128)),
					.mode = (enum pad_mode)mode,
					BOX(16, 32),
				};
				struct permute_tile tile;

				cr_expect_eq(make(&row, &tile), allowed[mode][as_many], "%s, %ld %s it",
				             pad_mode_names[mode], (long)border, after ? "after" : "before");
			}
}

/* The next dimension is padded and cannot be cut, and a table for all of it would be too long. */
Test(permute_tile, rows_end_before_a_padded_dimension)
{
	const struct plan_facts facts = { .align = 16 };
	const struct permute_box box = { { 40, 700 } };
	struct loop_nest nest = { .rank = 2,
		                  .element = 1,
		                  .dim = { { 40, 700, 700, 5, 30 }, { 700, 1, 1, 0, 700 } } };
	struct permute_sides sides;
	struct permute_tile tile;

	permute_sides_init(&sides, &nest, &facts, PAD_MODE_EDGE);
	cr_assert(permute_tile_init(&tile, &sides, &box, PERMUTE_ELEMENTS));
	cr_expect_eq(tile.args.row_bytes, 700, "%u", tile.args.row_bytes);
	cr_expect_eq(tile.args.rows, 40, "%u", tile.args.rows);
	cr_expect_eq(tile.args.cut, 0);
}
