/* SPDX-License-Identifier: Apache-2.0 */
/* Cases for tiles of several axes that the unit loads from one tensor and stores to another without threads
 * touching them: permutations that keep the innermost axis, and conversions between NHWC and the layouts with
 * channels in groups of 8 or 16 (NC/8HWC8, NC/16HWC16). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "expect.h"
#include "rig.h"
#include "tests/support/tap.h"

enum { BARRIER = 16, TO = 100 << 10 /* offset of the second tensor from the start of the first, in bytes */ };

static uint8_t tensor[RIG_TENSOR_BYTES], tiles[RIG_TILE_BYTES], wanted[RIG_TENSOR_BYTES];

/* wanted is the expected contents of all memory. args has all members but the maps. */
static void move(struct seed_move_args args, const struct tensor_map_layout *load,
                 const struct tensor_map_layout *store, const char *name)
{
	struct expect_size size = expect_size(load);
	struct rig_launch launch = {
		.kernel = KERNEL_seed_move,
		.grid = { 1 },
		.threads = 32,
		.shared_bytes = size.span + BARRIER,
		.args = &args,
	};
	bool good;

	args.load_rank = load->rank;
	args.store_rank = store->rank;
	args.bytes = size.moved;
	for (uint32_t a = 0; a < args.axes; a++)
		launch.grid[0] *= args.axis[a].tiles;
	good = rig_encode(&args.load, load, 0) && rig_encode(&args.store, store, TO) && rig_run(&launch);
	if (good)
		rig_read_tensor(tensor);
	for (int32_t i = 0; i < RIG_TENSOR_BYTES && good; i++) {
		good = tensor[i] == wanted[i];
		if (!good)
			tap_note("byte %" PRId32 " of the second tensor is 0x%02x, not 0x%02x",
			         i - RIG_GUARD - TO, tensor[i], wanted[i]);
	}
	tap_case(good, "%s", name);
}

static uint32_t ceil_of(uint64_t n, uint32_t by)
{
	return (uint32_t)((n + by - 1) / by);
}

/* ---- Permutations ---------------------------------------------------------------------------------- */

/* Returns the destination's layout. order lists the source's axes as they lie in the destination, innermost
 * first; its strides are listed in the order of the source's axes, with as many bytes between rows as in the
 * source. */
static struct tensor_map_layout permuted(const struct tensor_map_layout *from, const uint32_t *order)
{
	struct tensor_map_layout to = *from, side_by_side = *from;

	for (uint32_t d = 0; d < from->rank; d++)
		side_by_side.dim[d] = from->dim[order[d]];
	case_fill_strides(&side_by_side, 16);
	for (uint32_t d = 1; d < from->rank; d++)
		to.stride[order[d] - 1] = side_by_side.stride[d - 1];
	return to;
}

/* Computes the expected destination element by element. */
static void expect_permuted(const struct tensor_map_layout *from, const struct tensor_map_layout *to)
{
	uint32_t bytes = tensor_map_type_size(from->type), i[TENSOR_MAP_MAX_RANK] = { 0 };

	memcpy(wanted, tensor, sizeof(tensor));
	for (uint32_t d = 0; d < from->rank;) {
		uint64_t at = i[0] * (uint64_t)bytes, put = at;

		for (uint32_t k = 1; k < from->rank; k++) {
			at += i[k] * from->stride[k - 1];
			put += i[k] * to->stride[k - 1];
		}
		memcpy(wanted + RIG_GUARD + TO + put, tensor + RIG_GUARD + at, bytes);
		for (d = 0; d < from->rank && ++i[d] == from->dim[d]; d++)
			i[d] = 0;
	}
}

static void permute(const struct tensor_map_layout *from, const uint32_t *order)
{
	struct tensor_map_layout to = permuted(from, order);
	struct seed_move_args args = { .axes = from->rank };
	char name[96], axes[2 * TENSOR_MAP_MAX_RANK + 1] = "";

	for (uint32_t d = 0; d < from->rank; d++) {
		args.axis[d] = (struct seed_move_axis){ ceil_of(from->dim[d], from->box[d]), d, d,
			                                (int32_t)from->box[d], (int32_t)from->box[d] };
		snprintf(axes + 2 * d, sizeof(axes) - 2 * d, " %" PRIu32, order[d]);
	}
	if (!case_begins())
		return;
	case_prepare(tensor, tiles, from->rank);
	expect_permuted(from, &to);
	snprintf(name, sizeof(name), "boxes of rank %" PRIu32 " by %" PRIu32 " bytes, %s, to the order%s",
	         from->rank, from->box[0] * tensor_map_type_size(from->type),
	         tensor_map_type_names[from->type], axes);
	move(args, from, &to, name);
}

/* Visits every order of the axes from `at` on. */
static void permute_all(const struct tensor_map_layout *from, uint32_t *order, uint32_t at)
{
	if (at == from->rank) {
		permute(from, order);
		return;
	}
	for (uint32_t d = at; d < from->rank; d++) {
		uint32_t first = order[at];

		order[at] = order[d];
		order[d] = first;
		permute_all(from, order, at + 1);
		order[d] = order[at];
		order[at] = first;
	}
}

/* Tiles that the ends of the tensor clip, and the whole tensor as one tile. */
static void cases_of_permutations(void)
{
	static const uint64_t dim[] = { 48, 7, 5, 4, 3 };
	static const uint32_t box[] = { 32, 3, 2, 3, 2 };
	static const enum tensor_map_type types[] = { TENSOR_MAP_UINT32, TENSOR_MAP_UINT16,
		                                      TENSOR_MAP_UINT8 };

	for (uint32_t rank = 3; rank <= TENSOR_MAP_MAX_RANK; rank++)
		for (int whole = 0; whole < 2; whole++) {
			struct tensor_map_layout from = { .type = types[rank - 3], .rank = rank };
			uint32_t order[] = { 0, 1, 2, 3, 4 };

			for (uint32_t d = 0; d < rank; d++) {
				from.dim[d] = dim[d];
				from.box[d] = whole ? (uint32_t)dim[d] : box[d];
				from.element_stride[d] = 1;
			}
			case_fill_strides(&from, 16);
			permute_all(&from, order, 1);
		}
}

/* ---- Groups of channels ---------------------------------------------------------------------------- */

struct images {
	uint32_t c, w, h, n;
	uint32_t pixel_bytes; /* bytes from one pixel to the next in NHWC */
};

enum { HALF = 2, TILE_W = 8, TILE_H = 4 };

static struct tensor_map_layout nhwc(struct images images, uint32_t group)
{
	return (struct tensor_map_layout){
		.type = TENSOR_MAP_FLOAT16,
		.rank = 4,
		.dim = { images.c, images.w, images.h, images.n },
		.stride = { images.pixel_bytes, (uint64_t)images.w * images.pixel_bytes,
		            (uint64_t)images.h * images.w * images.pixel_bytes },
		.box = { group, TILE_W, TILE_H, 1 },
		.element_stride = { 1, 1, 1, 1 },
		.swizzle = group == 16 ? TENSOR_MAP_SWIZZLE_32B : TENSOR_MAP_SWIZZLE_NONE,
	};
}

/* A slice is a group of channels of a pixel; the last dimension but one counts groups. */
static struct tensor_map_layout grouped(struct images images, uint32_t group)
{
	uint32_t slice = group * HALF, groups = ceil_of(images.c, group);

	return (struct tensor_map_layout){
		.type = TENSOR_MAP_FLOAT16,
		.rank = 4,
		.dim = { images.w, images.h, groups, images.n },
		.stride = { (uint64_t)images.w * slice, (uint64_t)images.h * images.w * slice,
		            (uint64_t)groups * images.h * images.w * slice },
		.box = { TILE_W, TILE_H, 1, 1 },
		.element_stride = { 1, 1, 1, 1 },
		.interleave = group == 16 ? TENSOR_MAP_INTERLEAVE_32B : TENSOR_MAP_INTERLEAVE_16B,
		.swizzle = group == 16 ? TENSOR_MAP_SWIZZLE_32B : TENSOR_MAP_SWIZZLE_NONE,
	};
}

/* Computes the expected images channel by channel. Channels that pad the last group are zeros. */
static void expect_grouped(struct images images, uint32_t group, bool back)
{
	uint32_t groups = ceil_of(images.c, group);
	uint8_t *to = wanted + RIG_GUARD + TO;
	const uint8_t *from = tensor + RIG_GUARD;

	memcpy(wanted, tensor, sizeof(tensor));
	for (uint32_t n = 0; n < images.n; n++)
		for (uint32_t c = 0; c < groups * group; c++)
			for (uint32_t y = 0; y < images.h; y++)
				for (uint32_t x = 0; x < images.w; x++) {
					uint32_t pixel = (n * images.h + y) * images.w + x;
					uint32_t plain = pixel * images.pixel_bytes + c * HALF;
					uint32_t image = (n * groups + c / group) * images.h;
					uint32_t slice = (image + y) * images.w + x;
					uint32_t sliced = (slice * group + c % group) * HALF;

					if (back)
						memcpy(to + plain, from + sliced, HALF);
					else if (c < images.c)
						memcpy(to + sliced, from + plain, HALF);
					else
						memset(to + sliced, 0, HALF);
				}
}

static void regroup(struct images images, uint32_t group, bool back)
{
	struct tensor_map_layout plain = nhwc(images, group), sliced = grouped(images, group);
	struct seed_move_args args = {
		.axes = 4,
		.axis = { { ceil_of(images.c, group), 0, 2, (int32_t)group, 1 },
		          { ceil_of(images.w, TILE_W), 1, 0, TILE_W, TILE_W },
		          { ceil_of(images.h, TILE_H), 2, 1, TILE_H, TILE_H },
		          { images.n, 3, 3, 1, 1 } },
	};
	char name[96];

	for (uint32_t a = 0; a < args.axes && back; a++) {
		struct seed_move_axis forth = args.axis[a];

		args.axis[a] = (struct seed_move_axis){ forth.tiles, forth.store_dim, forth.load_dim,
			                                forth.store_step, forth.load_step };
	}
	if (!case_begins())
		return;
	case_prepare(tensor, tiles, images.c);
	expect_grouped(images, group, back);
	snprintf(name, sizeof(name),
	         "%" PRIu32 " channels %s groups of %" PRIu32 ", %" PRIu32 " x %" PRIu32 " pixels", images.c,
	         back ? "from" : "to", group, images.w, images.h);
	move(args, back ? &sliced : &plain, back ? &plain : &sliced, name);
}

void cases_of_moves(void)
{
	static const struct images images[] = {
		{ 32, 16, 8, 1, 64 },
		{ 48, 13, 6, 3, 96 },
		{ 16, 9, 7, 2, 32 },
		{ 48, 5, 3, 2, 112 },
	};
	static const struct images ragged = { 20, 13, 6, 2, 48 };

	cases_of_permutations();
	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++)
		for (uint32_t group = 8; group <= 16; group += 8) {
			regroup(images[i], group, false);
			regroup(images[i], group, true);
		}
	regroup(ragged, 8, false);
	regroup(ragged, 16, false);
}
