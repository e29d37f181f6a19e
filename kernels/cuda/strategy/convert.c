/* SPDX-License-Identifier: Apache-2.0 */
/* `convert` turns elements into those of another type (kernels/cuda/launch/convert.c): by chunks of the
 * destination's rows, by tiles where the source's rows lie along another dimension, or element by element,
 * which always works.
 *
 * A border of a value is a fill around the window, as for other moves. What other borders repeat is converted
 * where it is written, element by element.
 */
#include "strategy_launch.h"

#include <stdlib.h>

#include "kernels/transform/conversion.h"
#include "kernels/transform/transform.h"
#include "proto/arithmetic.h"

/* Bytes of the destination's rows, below which there is no chunk to speak of, or no tile; and bytes of the
 * source's rows that are one row of a tile, or all of it. Not measured. */
#define CHUNKS_LEAST 64
#define TILES_LEAST  32
#define ROW_LEAST    16
#define PACKED_MOST  64

/* What the kernels for narrow lanes are for: elements of up to 4 bytes. */
static bool is_narrow(const struct transform *t)
{
	return t->conversion.arithmetic == ARITHMETIC_FLOAT32;
}

/* Whether elements of a side lie at multiples of their size. */
static bool is_aligned(const struct plan_facts *facts, uint8_t phase, int64_t offset, uint32_t element)
{
	return facts->align % element == 0 ||
	       (!facts->listed && !facts->spread && ((uint64_t)phase + (uint64_t)offset) % element == 0);
}

/* The nest's dimensions, innermost first, `second` as the second unless it is -1. */
static void set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	tma_set_dims(tma, nest, nest->rank - 1, second);
	for (uint32_t i = 0; i < tma->rank; i++) {
		const int own = tma_nest_dim(nest, second, (int)i);

		tma->convert.scale[i] = nest->dim[own].scale;
		tma->convert.bias[i] = nest->dim[own].bias;
	}
}

/* Of the destination's elements, or what they consist of where they are not aligned. */
static void set_border(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                       enum pad_mode mode)
{
	struct loop_nest border = *nest;

	border.converted = 0;
	if (facts->align < border.element)
		loop_nest_narrow(&border, facts->align, mode);
	tma_set_border(plan, &border, border.rank, mode);
}

int tma_source_row(const struct loop_nest *nest)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == nest->converted && nest->dim[d].n > 1)
			return d;
	return -1;
}

/* Whether tiles of all x can be written as one row, each with the same operands. */
static bool is_woven(const struct transform *t, const struct loop_nest *nest, const struct loop_nest_dim *x,
                     const struct loop_nest_dim *y)
{
	const int64_t row = x->n * nest->element;

	return is_narrow(t) && row < TILES_LEAST && y->dst == row && !x->scale && !x->bias && !y->scale &&
	       !y->bias && y->n * nest->converted >= ROW_LEAST;
}

/* Whether x is that of pixels, along which operands are the same, and y that of their three or four channels
 * of one byte, whose rows lie at the same phase. */
static bool is_of_channels(const struct transform *t, const struct loop_nest *nest,
                           const struct loop_nest_dim *x, const struct loop_nest_dim *y)
{
	return is_narrow(t) && nest->converted == 1 && (y->n == 3 || y->n == 4) && x->src == y->n &&
	       !x->scale && !x->bias && y->dst % 16 == 0 && x->n * nest->element >= CHUNKS_LEAST;
}

/* Whole lines of the destination, and of the source what is left of a tile. */
static void choose_tile(struct tma_convert *convert, const struct loop_nest_dim *x,
                        const struct loop_nest_dim *y, int64_t from, int64_t to)
{
	const int64_t line = CONVERT_ROW_BYTES / to, row = y->n * from;

	if (convert->woven) {
		convert->tile_x = (uint32_t)x->n;
		convert->tile_y =
		    (uint32_t)min_i64(y->n, CONVERT_TILE_BYTES / (x->n * from) / WARP_THREADS * WARP_THREADS);
	} else if (convert->packed) {
		convert->tile_x = (uint32_t)min_i64(x->n, max_i64(CONVERT_TILE_BYTES / row / line, 1) * line);
		convert->tile_y = (uint32_t)y->n;
	} else {
		convert->tile_x = (uint32_t)min_i64(x->n, max_i64(line, WARP_THREADS));
		convert->tile_y = (uint32_t)min_i64(
		    y->n, max_i64(min_i64(CONVERT_TILE_BYTES / convert->tile_x, 2 * CONVERT_ROW_BYTES) / from,
		                  WARP_THREADS));
	}
}

/* Or, where the rows of a side are short, of all of them. */
static bool try_tiles(struct tma_route_plan *tma, const struct transform *t, const struct loop_nest *nest,
                      int second)
{
	const struct loop_nest_dim *x = &nest->dim[nest->rank - 1], *y = &nest->dim[second];
	const int64_t row = y->n * (int64_t)nest->converted;
	struct tma_convert *convert = &tma->convert;

	convert->woven = is_woven(t, nest, x, y);
	convert->packed = !convert->woven && x->src == row && row <= PACKED_MOST;
	if (!convert->woven && (x->n * nest->element < TILES_LEAST || (!convert->packed && row < ROW_LEAST)))
		return false;
	choose_tile(convert, x, y, nest->converted, nest->element);
	convert->how = TMA_CONVERT_TILES;
	set_dims(tma, nest, second);
	tma->tiles =
	    divide_up_u64((uint64_t)x->n, convert->tile_x) * divide_up_u64((uint64_t)y->n, convert->tile_y);
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	return true;
}

/* Chunks of rows, along dimensions from `outer` on. */
static void set_slots(struct tma_route_plan *tma, const struct loop_nest *nest, uint32_t outer)
{
	tma->slots = row_chunks((uint64_t)tma->dim[0].n * nest->element);
	tma->tiles = tma->slots;
	for (uint32_t d = outer; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
}

static void set_chunks(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->convert.how = TMA_CONVERT_CHUNKS;
	set_dims(tma, nest, -1);
	set_slots(tma, nest, 1);
}

static void set_channels(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	tma->convert.how = TMA_CONVERT_CHANNELS;
	set_dims(tma, nest, second);
	set_slots(tma, nest, 2);
}

static void set_elements(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->convert.how = TMA_CONVERT_ELEMENTS;
	set_dims(tma, nest, -1);
	tma->tiles = (uint64_t)loop_nest_count(nest);
}

void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;
	struct loop_nest own = *nest;
	const struct loop_nest_dim *inner;
	bool aligned;
	int second;

	if (t->mode == PAD_MODE_CONSTANT && !tma_is_whole(&own)) {
		set_border(plan, &own, facts, t->mode);
		tma_shrink(&own, own.rank, facts->align, t->mode);
	}
	aligned = is_aligned(facts, facts->dst_phase, own.dst_offset, own.element) &&
	          is_aligned(facts, facts->src_phase, own.src_offset, own.converted);
	if (own.rank == 0 && !own.in_blocks) {
		own.rank = 1;
		own.dim[0] =
		    (struct loop_nest_dim){ .n = 1, .dst = own.element, .src = own.converted, .source = 1 };
	}
	tma->strategy = STRATEGY_convert;
	tma->element = own.element;
	tma->dst_offset = own.dst_offset;
	tma->src_offset = own.src_offset;
	tma->convert.scale_offset = own.scale_offset;
	tma->convert.bias_offset = own.bias_offset;
	tma->whole = tma_is_whole(&own);
	if (own.in_blocks) {
		tma_set_amax(tma, &own, aligned);
		return;
	}
	inner = &own.dim[own.rank - 1];
	second = tma_source_row(&own);
	if (!tma->whole || inner->dst != own.element ||
	    !is_aligned(facts, facts->dst_phase, own.dst_offset, own.element)) {
		set_elements(tma, &own);
		return;
	}
	if (second >= 0 && is_of_channels(t, &own, inner, &own.dim[second])) {
		set_channels(tma, &own, second);
		return;
	}
	if (second >= 0 && inner->src != own.converted && aligned && try_tiles(tma, t, &own, second))
		return;
	if (is_narrow(t) && inner->n * (int64_t)own.element >= CHUNKS_LEAST)
		set_chunks(tma, &own);
	else
		set_elements(tma, &own);
}

/* ---- The strategy ------------------------------------------------------------------------------------- */

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)plan;
	(void)mode;
	return 1;
}

#ifdef HAVE_CUDA
static int launch(const struct strategy_launch *launch, struct error *err)
{
	return launch_convert(launch->launcher, launch->stream, launch->transform, launch->plan, launch->dst,
	                      launch->src, launch->operands, NULL, NULL, err);
}
#endif

const struct strategy strategy_convert = {
	.name = "convert",
	.family = FAMILY_CONVERT,
	.turn = STRATEGY_NEVER,
	.has_border = true,
	.cost = cost,
	.launch = WITH_CUDA(launch),
};
