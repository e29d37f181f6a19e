/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in the arguments of the kernels that convert, and chooses the shape of their launches. */
#include "launch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/strategy/tuning.h"
#include "kernels/engine.h"
#include "kernels/transform/transform.h"
#include "proto/arithmetic.h"

static_assert(sizeof(struct amax_args) <= 4096, "more takes longer to launch");

static uint64_t operand_address(const struct engine_operand *operand)
{
	return operand->memory ? cuda_memory(operand->memory)->address + operand->offset : 0;
}

void convert_operands_init(struct convert_operands *ret, const struct engine_move *move, uint64_t changed,
                           uint64_t magnitudes)
{
	const struct engine_operand *scale = &move->operand[ROLE_SCALE], *bias = &move->operand[ROLE_BIAS];

	*ret = (struct convert_operands){ .scale = { scale->number, operand_address(scale) },
		                          .bias = { bias->number, operand_address(bias) },
		                          .amax_scale = operand_address(&move->operand[ROLE_AMAX_SCALE]),
		                          .amax_inverse = operand_address(&move->operand[ROLE_AMAX_INVERSE]),
		                          .changed = changed,
		                          .magnitudes = magnitudes };
}

/* ---- Arguments ---------------------------------------------------------------------------------------- */

/* Returns the number of bytes by which elements may be accessed: all of an element's bytes if the address is
 * a multiple of them, and 1 otherwise. The strides of both sides are multiples of an element. */
static uint32_t unit_of(uint64_t address, uint32_t element)
{
	return address % element ? 1 : element;
}

static struct convert_operand operand_args(const struct operand *operand, double number, uint64_t address,
                                           int64_t offset)
{
	struct convert_operand ret = { .number = number };

	if (operand->kind == OPERAND_NONE)
		return ret;
	ret.bytes = dtype_size(operand->dtype);
	if (operand->kind == OPERAND_TENSOR)
		ret.address = address + (uint64_t)offset;
	ret.unit = unit_of(ret.address, ret.bytes);
	return ret;
}

static void set_dims(struct convert_args *args, const struct tma_route_plan *tma)
{
	args->rank = tma->rank;
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];
		const int64_t reach = (dim->source - 1) * dim->src;

		args->dim[d] = (struct convert_dim){ dim->n,
			                             dim->dst,
			                             dim->src,
			                             dim->before,
			                             dim->source,
			                             tma->convert.scale[d],
			                             tma->convert.bias[d] };
		args->by[d] = divisor_of((uint64_t)dim->n);
		*(reach < 0 ? &args->low : &args->high) += (uint64_t)reach;
	}
}

static uint64_t value_of(const struct transform *transform)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < transform->element; i++)
		value |= (uint64_t)transform->fill[i] << 8 * i;
	return value;
}

/* Sets the arguments of tiles. The pitch of rows in shared memory leaves room for any phase and makes
 * consecutive rows begin in different banks. */
static void set_tiles(struct convert_args *args, const struct tma_convert *convert)
{
	const uint64_t row =
	    (convert->packed ? (uint64_t)convert->tile_x : 1) * convert->tile_y * args->from_bytes;
	const bool is_wide = args->lane != ARITHMETIC_FLOAT32;

	args->packed = convert->packed;
	args->woven = convert->woven;
	args->tile_x = convert->tile_x;
	args->tile_y = convert->tile_y;
	args->pitch = (uint32_t)divide_up_u64(row, 16) * 16 + 20;
	args->by_chunks = divisor_of(row_chunks(row));
	args->by_x =
	    divisor_of(is_wide || convert->woven ? convert->tile_x
	                                         : row_chunks((uint64_t)convert->tile_x * args->to_bytes));
	args->by[0] = divisor_of(divide_up_u64((uint64_t)args->dim[0].n, convert->tile_x));
	args->by[1] = divisor_of(divide_up_u64((uint64_t)args->dim[1].n, convert->tile_y));
}

/* These return the types by which a kernel converts. Conversions among integers that wrap are done as int64
 * on both sides. Elements are still read and written with the bytes of their own types, and smaller ones are
 * extended by those types. */
static enum dtype from_of(const struct conversion *conversion)
{
	return conversion_wraps(conversion) && conversion->from == DTYPE_UINT64 ? DTYPE_INT64
	                                                                        : conversion->from;
}

static enum dtype to_of(const struct conversion *conversion)
{
	return conversion_wraps(conversion) && conversion->to != DTYPE_BOOL ? DTYPE_INT64 : conversion->to;
}

/* Returns the largest magnitude of lanes that the machine's instructions can convert. There is no instruction
 * that turns values too large for an 8-bit type into infinities or NaN. */
static float most_of(const struct conversion *conversion)
{
	if (conversion->cast == CAST_IEEE && conversion->to == DTYPE_FLOAT8_E4M3FN)
		return 448;
	if (conversion->cast == CAST_IEEE && conversion->to == DTYPE_FLOAT8_E5M2)
		return 57344;
	return INFINITY;
}

static void args_init(struct convert_args *ret, const struct transform *transform, const struct plan *plan,
                      uint64_t dst, uint64_t src, const struct convert_operands *operands)
{
	const struct conversion *conversion = &transform->conversion;
	const struct tma_route_plan *tma = &plan->tma;

	dst += (uint64_t)tma->dst_offset;
	src += (uint64_t)tma->src_offset;
	*ret = (struct convert_args){
		.dst = dst,
		.src = src,
		.low = src,
		.high = src + transform->src_element,
		.slots = tma->tiles,
		.changed = operands->changed,
		.value = value_of(transform),
		.scale = operand_args(&conversion->scale, operands->scale.number, operands->scale.address,
		                      tma->convert.scale_offset),
		.bias = operand_args(&conversion->bias, operands->bias.number, operands->bias.address,
		                     tma->convert.bias_offset),
		.mode = transform->mode,
		.lane = conversion->arithmetic,
		.from = from_of(conversion),
		.to = to_of(conversion),
		.lossy = conversion->is_lossy,
		.clamps = conversion->cast == CAST_SATURATE,
		.most = most_of(conversion),
		.from_bytes = transform->src_element,
		.to_bytes = transform->element,
		.from_unit = unit_of(src, transform->src_element),
		.to_unit = unit_of(dst, transform->element),
	};
	if (operands->changed || ret->scale.unit != ret->scale.bytes || ret->bias.unit != ret->bias.bytes)
		ret->most = -1;
	set_dims(ret, tma);
	if (tma->convert.how == TMA_CONVERT_CHUNKS || tma->convert.how == TMA_CONVERT_CHANNELS)
		ret->by_chunks = divisor_of(tma->slots);
	if (tma->convert.how == TMA_CONVERT_CHUNKS) {
		ret->ends = tma->tiles;
		ret->slots += 2 * (tma->tiles / tma->slots);
	}
	if (tma->convert.how == TMA_CONVERT_TILES)
		set_tiles(ret, &tma->convert);
}

/* Returns the kernel for elements of the sizes in args. `first` is the kernel for elements of one byte on
 * both sides, which the others of its kind follow. */
static uint32_t by_elements(enum kernel_id first, const struct convert_args *args)
{
	return (uint32_t)first + 3 * (uint32_t)__builtin_ctz(args->from_bytes) +
	       (uint32_t)__builtin_ctz(args->to_bytes);
}

/* ---- Rows that are aligned ---------------------------------------------------------------------------- */

/* Returns whether the rows of both sides lie at multiples of these units in bytes; if blocks is not NULL, in
 * every block of the list. Rows of the source lie along dimension `along`. */
static bool rows_are_aligned(const struct convert_args *args, const struct engine_blocks *blocks,
                             uint32_t dst_unit, uint32_t src_unit, uint32_t along)
{
	uint64_t dst = args->dst, src = args->src;

	for (uint32_t d = 0; d < args->rank; d++) {
		dst |= d == 0 ? 0 : (uint64_t)args->dim[d].dst;
		src |= d == along ? 0 : (uint64_t)args->dim[d].src;
	}
	if (blocks) {
		dst |= blocks_side_bits(&blocks->dst, UINT64_MAX, blocks->layers);
		src |= blocks_side_bits(&blocks->src, UINT64_MAX, blocks->layers);
	}
	return dst % dst_unit == 0 && src % src_unit == 0;
}

static bool operands_are_constant(const struct convert_args *args)
{
	for (uint32_t d = 0; d < args->rank; d++)
		if (args->dim[d].scale || args->dim[d].bias)
			return false;
	return true;
}

/* Turns a conversion by chunks into one by units, whose slots are units. Returns false if that is not
 * possible. */
static bool try_units(struct convert_args *args, const struct tma_route_plan *tma,
                      const struct engine_blocks *blocks)
{
	const uint32_t n = CONVERT_UNIT(args->from_bytes, args->to_bytes);

	if (args->changed || args->dim[0].src != args->from_bytes || !operands_are_constant(args) ||
	    !rows_are_aligned(args, blocks, n * args->to_bytes, n * args->from_bytes, 0))
		return false;
	args->by_chunks = divisor_of(divide_up_u64((uint64_t)args->dim[0].n, n));
	args->slots = tma->tiles / tma->slots * args->by_chunks.n;
	return true;
}

static struct shape units_shape_of(const struct convert_args *args)
{
	const uint32_t own = ROWS_THREADS * CONVERT_UNITS(args->from_bytes, args->to_bytes);

	return (struct shape){ .kernel = by_elements(KERNEL_convert_units_1_1, args),
		               .blocks = divide_up_u64(args->slots, own),
		               .threads = ROWS_THREADS };
}

/* Returns whether all or most of n elements are in whole parts of `part` elements. */
static bool fills(int64_t n, uint32_t part)
{
	return n % part == 0 || n >= 8 * part;
}

/* Turns a conversion by tiles into one that needs no shared memory (convert_turned). Returns false if that is
 * not possible. */
static bool try_turned(struct convert_args *args, const struct engine_blocks *blocks)
{
	const uint32_t from = args->from_bytes, to = args->to_bytes, piece = TURNED_BYTES(from, to);
	const struct convert_dim *x = &args->dim[0], *y = &args->dim[1];

	if (args->changed || args->lane != ARITHMETIC_FLOAT32 || args->packed || args->woven || x->scale ||
	    x->bias || !fills(x->n, 16 / to) || !fills(y->n, piece / from) ||
	    !rows_are_aligned(args, blocks, 16, piece, 1))
		return false;
	args->tile_x = TURNED_X(to);
	args->tile_y = TURNED_Y(from, to);
	for (uint32_t d = 0; d < 2; d++) {
		const uint64_t tiles =
		    divide_up_u64((uint64_t)args->dim[d].n, d ? args->tile_y : args->tile_x);

		args->slots = args->slots / args->by[d].n * tiles;
		args->by[d] = divisor_of(tiles);
	}
	return true;
}

static struct shape turned_shape_of(const struct convert_args *args)
{
	return (struct shape){ .kernel = by_elements(KERNEL_convert_turned_1_1, args),
		               .blocks = args->slots,
		               .threads = ROWS_THREADS };
}

/* ---- With scales -------------------------------------------------------------------------------------- */

static uint64_t blocks_along(const struct tma_convert *convert, const struct tma_route_plan *tma, uint32_t d)
{
	return amax_blocks(tma->dim[d].n, convert->amax.skew[d], convert->amax.block[d]);
}

static void set_amax_dims(struct amax_args *args, const struct tma_route_plan *tma)
{
	const struct tma_convert *convert = &tma->convert;
	int64_t magnitudes = 1;

	for (uint32_t d = 0; d < tma->rank; d++) {
		args->dim[d] = (struct amax_dim){ .by_block = divisor_of((uint64_t)convert->amax.block[d]),
			                          .skew = convert->amax.skew[d],
			                          .to_magnitude = magnitudes };
		args->move.dim[d].scale = convert->amax.to_scale[d];
		args->move.dim[d].bias = convert->amax.to_inverse[d];
		magnitudes *= (int64_t)blocks_along(convert, tma, d);
		if (convert->how == TMA_CONVERT_AMAX_BOXES)
			args->move.by[d] = divisor_of(blocks_along(convert, tma, d));
	}
}

/* Sets the tiles along dimension d, which is 0 or 1; a tile has `tile` elements along it. Returns the number
 * of scaling blocks of a tile along it. */
static uint32_t set_amax_tile(struct amax_args *args, const struct tma_route_plan *tma, uint32_t d,
                              uint32_t tile)
{
	const int64_t block = tma->convert.amax.block[d];

	args->by_tiles[d] = divisor_of(amax_blocks(block, 0, tile));
	args->move.by[d] = divisor_of(amax_tiles(tma->dim[d].n, tma->convert.amax.skew[d], block, tile));
	return (uint32_t)amax_blocks(tile, 0, block);
}

static void set_amax_tiles(struct amax_args *args, const struct tma_route_plan *tma)
{
	const struct tma_convert *convert = &tma->convert;
	struct convert_args *move = &args->move;
	const uint32_t blocks_x = set_amax_tile(args, tma, 0, convert->tile_x),
		       blocks_y = set_amax_tile(args, tma, 1, convert->tile_y),
		       along = convert->amax.alike ? 0 : 1;
	const uint64_t row = along ? convert->tile_y : convert->tile_x, bytes = row * move->from_bytes,
		       block = (uint64_t)convert->amax.block[along],
		       run = divide_up_u64(block < row ? block : row, AMAX_RUN);

	move->tile_x = convert->tile_x;
	move->tile_y = convert->tile_y;
	move->pitch = (uint32_t)amax_pitch(bytes, convert->amax.alike);
	move->by_chunks = divisor_of(row_chunks(bytes));
	move->by_x = divisor_of(row_chunks((uint64_t)convert->tile_x * move->to_bytes));
	args->alike = convert->amax.alike;
	args->blocks_x = blocks_x;
	args->shared_blocks = (uint32_t)divide_up_u64(blocks_x * blocks_y * sizeof(uint32_t), 16) * 16;
	args->by_run = divisor_of(run);
	args->by_runs = divisor_of(run * (along ? blocks_y : blocks_x));
}

static uint64_t result_place(uint64_t address, int64_t offset)
{
	return address ? address + (uint64_t)offset : 0;
}

static void amax_args_init(struct amax_args *ret, const struct transform *transform, const struct plan *plan,
                           uint64_t dst, uint64_t src, const struct convert_operands *operands)
{
	const struct amax *amax = &transform->conversion.amax;
	const struct tma_convert *convert = &plan->tma.convert;

	args_init(&ret->move, transform, plan, dst, src, operands);
	ret->scale = result_place(operands->amax_scale, convert->amax.scale_offset);
	ret->inverse = result_place(operands->amax_inverse, convert->amax.inverse_offset);
	ret->magnitudes = operands->magnitudes;
	ret->elements = convert->amax.elements;
	ret->rule = amax->rule;
	ret->scale_bytes = dtype_size(amax->scale.dtype);
	ret->inverse_bytes = dtype_size(amax->inverse.dtype);
	ret->move.team = convert->amax.elements > AMAX_WARP_ELEMENTS ? ROWS_THREADS : WARP_THREADS;
	ret->by_parts = divisor_of(convert->amax.parts);
	set_amax_dims(ret, &plan->tma);
	if (convert->how == TMA_CONVERT_AMAX_TILES)
		set_amax_tiles(ret, &plan->tma);
}

/* Adds the list to the arguments. Elements are accessed byte by byte if the blocks of the list do not lie at
 * multiples of an element. */
static void set_list(struct convert_args *args, const struct engine_blocks *blocks,
                     const struct block_list *list)
{
	args->list = *list;
	args->list.by_slots = divisor_of(args->slots);
	args->slots *= blocks->n * blocks->layers;
	if (blocks_side_bits(&blocks->src, UINT64_MAX, blocks->layers) % args->from_bytes)
		args->from_unit = 1;
	if (blocks_side_bits(&blocks->dst, UINT64_MAX, blocks->layers) % args->to_bytes)
		args->to_unit = 1;
}

/* ---- Launches ----------------------------------------------------------------------------------------- */

static uint32_t by_channels(const struct convert_args *args)
{
	return (args->dim[1].n == 3 ? KERNEL_convert_channels_3_1 : KERNEL_convert_channels_4_1) +
	       (uint32_t)__builtin_ctz(args->to_bytes);
}

static struct shape shape_of(const struct convert_args *args, enum tma_convert_how how)
{
	struct shape shape = { .threads = ROWS_THREADS };

	switch (how) {
	case TMA_CONVERT_ELEMENTS:
		shape.kernel = KERNEL_convert_elements;
		shape.blocks = divide_up_u64(args->slots, CONVERT_ELEMENTS);
		break;
	case TMA_CONVERT_CHUNKS:
		shape.kernel = by_elements(KERNEL_convert_chunks_1_1, args);
		shape.blocks = divide_up_u64(args->slots, ROWS_THREADS);
		break;
	case TMA_CONVERT_CHANNELS:
		shape.kernel = by_channels(args);
		shape.blocks = divide_up_u64(args->slots, ROWS_THREADS);
		break;
	case TMA_CONVERT_TILES:
		shape.kernel = args->lane == ARITHMETIC_FLOAT32 ? by_elements(KERNEL_convert_tiles_1_1, args)
		                                                : KERNEL_convert_tiles_wide;
		shape.blocks = args->slots;
		shape.shared = args->packed ? args->pitch : args->tile_x * args->pitch;
		break;
	case TMA_CONVERT_AMAX_TILES:
	case TMA_CONVERT_AMAX_BOXES:
		break;
	}
	return shape;
}

/* Returns whether amax_units can do the conversion. For that, the rows of a tile must consist of aligned
 * units, and each unit must lie in one scaling block. The last unit of a row may be incomplete. */
static bool takes_amax_units(const struct amax_args *args, const struct tma_convert *convert)
{
	const struct convert_args *move = &args->move;
	const uint32_t n = 16 / move->from_bytes;
	const int64_t block = convert->amax.block[0], skew = convert->amax.skew[0];
	const bool is_one = skew + move->dim[0].n <= block && convert->tile_x >= move->dim[0].n;

	return convert->amax.alike && !move->changed &&
	       (is_one || (block % n == 0 && skew % n == 0 && convert->tile_x % n == 0)) &&
	       convert->tile_y * divide_up_u64(convert->tile_x, n) <= AMAX_UNITS_THREADS * AMAX_UNITS &&
	       rows_are_aligned(move, NULL, n * move->to_bytes, n * move->from_bytes, 0);
}

/* Returns amax_args.group for tiles whose rows have `row` units of n elements: the binary logarithm of a
 * number of consecutive units that lie in one scaling block, wherever a tile begins. It is at most that of a
 * warp's threads. */
static uint32_t group_of(const struct tma_convert *convert, uint32_t row, uint32_t n)
{
	const uint64_t block = (uint64_t)convert->amax.block[0];
	uint32_t both = row | WARP_THREADS;

	if (convert->amax.skew[0] > 0)
		return 0;
	if (block < convert->tile_x)
		both |= (uint32_t)(block / n);
	return (uint32_t)__builtin_ctz(both);
}

static struct shape amax_units_shape_of(struct amax_args *args, const struct tma_convert *convert)
{
	const uint32_t n = 16 / args->move.from_bytes, row = (uint32_t)divide_up_u64(convert->tile_x, n),
		       threads = (uint32_t)divide_up_u64(convert->tile_y * row, AMAX_UNITS);

	args->move.by_x = divisor_of(row);
	args->group = group_of(convert, row, n);
	return (struct shape){ .kernel = KERNEL_amax_units_2_1 + 2 * (args->move.from_bytes == 4) +
		                         (args->move.to_bytes == 2),
		               .blocks = args->move.slots,
		               .threads = (uint32_t)divide_up_u64(threads, WARP_THREADS) * WARP_THREADS,
		               .shared = args->shared_blocks };
}

static struct shape amax_shape_of(struct amax_args *args, const struct tma_convert *convert)
{
	struct shape shape = { .threads = ROWS_THREADS };

	if (convert->how == TMA_CONVERT_AMAX_BOXES) {
		shape.kernel = KERNEL_amax_boxes;
		shape.blocks = divide_up_u64(args->move.slots, ROWS_THREADS / args->move.team);
		shape.shared = ROWS_THREADS / args->move.team * sizeof(uint32_t);
		return shape;
	}
	if (takes_amax_units(args, convert))
		return amax_units_shape_of(args, convert);
	shape.kernel = KERNEL_amax_tiles_2_1 + 2 * (args->move.from_bytes == 4) + (args->move.to_bytes == 2);
	shape.blocks = args->move.slots;
	shape.shared =
	    args->shared_blocks + (args->alike ? convert->tile_y : convert->tile_x) * args->move.pitch;
	return shape;
}

uint64_t launch_magnitudes(const struct plan *plan)
{
	const struct tma_amax_plan *amax = &plan->tma.convert.amax;

	return plan->tma.strategy == STRATEGY_convert && amax->two_passes ? amax->blocks : 0;
}

/* Launches a conversion that computes scales. The magnitudes may still be in use by the move before, but
 * stream order protects them. */
static int launch_amax(struct launcher *launcher, CUstream stream, const struct transform *transform,
                       const struct plan *plan, uint64_t dst, uint64_t src,
                       const struct convert_operands *operands, struct error *err)
{
	struct amax_args args;
	int r;

	amax_args_init(&args, transform, plan, dst, src, operands);
	const struct shape shape = amax_shape_of(&args, &plan->tma.convert);

	args.pass = AMAX_PASS_WHOLE;
	if (plan->tma.convert.amax.two_passes) {
		r = driver_call(err, cuMemsetD8Async,
		                (args.magnitudes, 0, launch_magnitudes(plan) * sizeof(uint32_t), stream));
		args.pass = AMAX_PASS_REDUCE;
		if (r == 0)
			r = shape_launch(&shape, launcher, stream, &args, err);
		if (r < 0)
			return r;
		args.pass = AMAX_PASS_CONVERT;
	}
	return shape_launch(&shape, launcher, stream, &args, err);
}

/* Chooses the kernel and adapts the arguments to it. If list is NULL, the move runs once. */
static struct shape listed_shape_of(struct convert_args *args, const struct plan *plan,
                                    const struct engine_blocks *blocks, const struct block_list *list)
{
	const enum tma_convert_how how = plan->tma.convert.how;
	const struct engine_blocks *listed = list ? blocks : NULL;
	const bool by_units = how == TMA_CONVERT_CHUNKS && try_units(args, &plan->tma, listed),
		   is_turned = how == TMA_CONVERT_TILES && try_turned(args, listed);

	if (list)
		set_list(args, blocks, list);
	if (by_units)
		return units_shape_of(args);
	if (is_turned)
		return turned_shape_of(args);
	return shape_of(args, how);
}

int launch_convert(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct plan *plan, uint64_t dst, uint64_t src,
                   const struct convert_operands *operands, const struct engine_blocks *blocks,
                   const struct block_list *list, struct error *err)
{
	struct convert_args args;

	if (transform->conversion.amax.is)
		return launch_amax(launcher, stream, transform, plan, dst, src, operands, err);
	args_init(&args, transform, plan, dst, src, operands);
	const struct shape shape = listed_shape_of(&args, plan, blocks, list);

	return shape_launch(&shape, launcher, stream, &args, err);
}
