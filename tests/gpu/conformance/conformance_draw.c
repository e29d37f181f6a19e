/* SPDX-License-Identifier: Apache-2.0 */
/* Small numbers are more likely throughout, because corner cases have small tiles, ragged tensors and
 * coordinates just outside. */
#include "conformance_draw.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TILE_BYTES       (24 << 10) /* approximate limit of a tile's shared memory */
#define LARGE_TILE_BYTES (150 << 10)

static void draw_box(struct rng *rng, struct tensor_map_layout *l);
static void draw_tensor(struct rng *rng, struct tensor_map_layout *l);
static void draw_at(struct rng *rng, struct draw *draw);

/* ---- Numbers ----------------------------------------------------------------------------------------- */

uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t rng_below(struct rng *rng, uint32_t n)
{
	return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

void rng_fill(struct rng *rng, void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
		uint64_t word = rng_next(rng);

		memcpy((char *)bytes + i, &word, n - i < sizeof word ? n - i : sizeof word);
	}
}

static bool one_in(struct rng *rng, uint32_t n)
{
	return rng_below(rng, n) == 0;
}

/* Draws from 1 to most, choosing the number of bits first. */
static uint32_t skewed(struct rng *rng, uint32_t most)
{
	uint32_t bits = 32 - (uint32_t)__builtin_clz(most);
	uint32_t n = (rng_below(rng, 1u << rng_below(rng, bits)) | 1u << rng_below(rng, bits)) % most;

	return n + 1;
}

/* ---- Legal ------------------------------------------------------------------------------------------- */

void draw_legal(struct rng *rng, struct draw *ret)
{
	struct tensor_map_layout *l = &ret->layout;

	*ret = (struct draw){ 0 };
	l->type = rng_below(rng, TENSOR_MAP_TFLOAT32_FTZ + 1);
	l->rank = 1 + rng_below(rng, TENSOR_MAP_MAX_RANK);
	l->swizzle = rng_below(rng, TENSOR_MAP_SWIZZLE_128B + 1);
	l->l2 = rng_below(rng, TENSOR_MAP_L2_256B + 1);
	if (l->rank >= 3 && one_in(rng, 3))
		l->interleave = 1 + rng_below(rng, 2);
	if (l->interleave == TENSOR_MAP_INTERLEAVE_32B)
		l->swizzle = TENSOR_MAP_SWIZZLE_32B;
	if (l->type >= TENSOR_MAP_FLOAT16)
		l->fill = rng_below(rng, 2);
	draw_box(rng, l);
	draw_tensor(rng, l);
	ret->offset = (uint64_t)rng_below(rng, 16) * tensor_map_align(l);
	draw_at(rng, ret);
}

/* Returns the most elements of an inner box that the swizzle or the box limit allows. */
static uint32_t inner_most(const struct tensor_map_layout *l, uint32_t size)
{
	return l->swizzle ? 16u << l->swizzle : 256 * size;
}

static void draw_box(struct rng *rng, struct tensor_map_layout *l)
{
	uint32_t size = tensor_map_type_size(l->type), span;
	uint32_t most = one_in(rng, 40) ? LARGE_TILE_BYTES : TILE_BYTES;

	for (uint32_t d = 0; d < l->rank; d++)
		l->element_stride[d] = one_in(rng, d == 0 ? 8 : 3) ? 1 + rng_below(rng, 8) : 1;
	l->box[0] = l->interleave ? skewed(rng, 256) : 16 * skewed(rng, inner_most(l, size) / 16) / size;

	for (uint32_t d = 1; d < l->rank; d++)
		l->box[d] = 1;
	span = (uint32_t)tensor_map_tile_span(l);
	for (uint32_t d = 1; d < l->rank; d++) {
		uint32_t room = span < most ? most / span * l->element_stride[d] : 1;

		l->box[d] = skewed(rng, room < 256 ? room : 256);
		span *= tensor_map_tile_extent(l, d);
	}
}

/* Returns the stride of dimension d if rows lay side by side. */
static uint64_t dense_stride(const struct tensor_map_layout *l, uint32_t d)
{
	uint32_t align = tensor_map_align(l);
	uint64_t inner = l->interleave ? 16u << (l->interleave - 1) : tensor_map_type_size(l->type);
	uint64_t bytes = l->dim[d - 1] * (d == 1 ? inner : l->stride[d - 2]);

	return (bytes + align - 1) / align * align;
}

static void draw_tensor(struct rng *rng, struct tensor_map_layout *l)
{
	static const uint32_t most[TENSOR_MAP_MAX_RANK] = { 40000, 600, 80, 30, 16 };
	uint32_t align = tensor_map_align(l);

	for (uint32_t d = 0; d < l->rank; d++)
		l->dim[d] = one_in(rng, 40) ? UINT64_C(1) << 32 : skewed(rng, most[l->rank - 1]);
	for (uint32_t d = 1; d < l->rank; d++) {
		uint64_t *stride = &l->stride[d - 1];

		*stride = dense_stride(l, d);
		if (one_in(rng, 3))
			*stride += (uint64_t)skewed(rng, 16) * align;
		if (*stride >= UINT64_C(1) << 24 || one_in(rng, 12)) /* allows overlapping rows */
			*stride = (uint64_t)rng_below(rng, 64) * align;
		if (one_in(rng, 20))
			*stride = 0;
	}
}

static void align_at(struct draw *draw)
{
	uint32_t size = tensor_map_type_size(draw->layout.type), pieces = size ? 16 / size : 1;

	if (!draw->layout.interleave)
		draw->at[0] &= -(int32_t)pieces;
}

bool draw_is_huge(const struct draw *draw)
{
	for (uint32_t d = 0; d < draw->layout.rank; d++)
		if (draw->layout.dim[d] > UINT32_MAX)
			return true;
	return false;
}

/* Places the tile inside, across an end of the tensor, or outside. */
static void draw_at(struct rng *rng, struct draw *draw)
{
	const struct tensor_map_layout *l = &draw->layout;

	for (uint32_t d = 0; d < l->rank; d++) {
		int64_t dim = (int64_t)(l->dim[d] < 60000 ? l->dim[d] : 60000);
		int64_t box = l->box[d];

		switch (rng_below(rng, 8)) {
		case 0:
			draw->at[d] = (int32_t)(dim - 1 - rng_below(rng, (uint32_t)box));
			break;
		case 1:
			draw->at[d] = -(int32_t)skewed(rng, (uint32_t)box);
			break;
		case 2:
			draw->at[d] = (int32_t)(one_in(rng, 4) ? dim + rng_below(rng, 3) : dim - 1);
			break;
		case 3:
			draw->at[d] = 0;
			break;
		default:
			draw->at[d] = (int32_t)rng_below(rng, (uint32_t)dim);
			if (one_in(rng, 2))
				draw->at[d] &= ~15;
			break;
		}
	}
	align_at(draw);
}

/* ---- Illegal ----------------------------------------------------------------------------------------- */

static uint64_t pick(struct rng *rng, const uint64_t *values, uint32_t n)
{
	return values[rng_below(rng, n)];
}

#define PICK(rng, ...)                               \
	pick(rng, (const uint64_t[]){ __VA_ARGS__ }, \
	     sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

void draw_spoil(struct rng *rng, struct draw *draw)
{
	struct tensor_map_layout *l = &draw->layout;
	uint32_t n = 1 + rng_below(rng, 2);

	while (n-- > 0) {
		uint32_t d = rng_below(rng, l->rank && l->rank <= TENSOR_MAP_MAX_RANK ? l->rank : 1);

		switch (rng_below(rng, 12)) {
		case 0:
			l->type = (enum tensor_map_type)PICK(rng, 13, 14, 15, 16, 77);
			break;
		case 1:
			l->rank = (uint32_t)PICK(rng, 0, 1, 2, 6);
			break;
		case 2:
			draw->offset += PICK(rng, 1, 4, 8, 16);
			break;
		case 3:
			l->dim[d] = PICK(rng, 0, 1, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1);
			break;
		case 4:
			l->stride[d ? d - 1 : 0] += PICK(rng, 1, 8, 16, 32, UINT64_C(1) << 40);
			break;
		case 5:
			l->stride[d ? d - 1 : 0] =
			    PICK(rng, 0, 16, (UINT64_C(1) << 40) - 32, UINT64_C(1) << 40);
			break;
		case 6:
			l->box[d] = (uint32_t)PICK(rng, 0, 1, 255, 256, 257);
			break;
		case 7:
			l->box[0] += (uint32_t)PICK(rng, 1, 2, 16, 128);
			break;
		case 8:
			l->element_stride[d] = (uint32_t)PICK(rng, 0, 8, 9);
			break;
		case 9:
			l->interleave = (enum tensor_map_interleave)PICK(rng, 0, 1, 2, 3);
			break;
		case 10:
			l->swizzle = (enum tensor_map_swizzle)PICK(rng, 0, 1, 2, 3, 4, 5, 6, 7);
			break;
		default:
			l->fill = (enum tensor_map_fill)PICK(rng, 1, 1, 2);
			l->l2 = (enum tensor_map_l2)PICK(rng, 0, 3, 4);
			break;
		}
	}
	align_at(draw);
}

/* ---- In words ---------------------------------------------------------------------------------------- */

struct line {
	char *text;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line->text + line->used, line->size - line->used, format, args);
	va_end(args);
	line->used += (size_t)n < line->size - line->used ? (size_t)n : line->size - line->used - 1;
}

char *draw_print(const struct draw *draw, char *text, size_t size)
{
	const struct tensor_map_layout *l = &draw->layout;
	uint32_t rank = l->rank <= TENSOR_MAP_MAX_RANK ? l->rank : TENSOR_MAP_MAX_RANK;
	struct line line = { text, size, 0 };

	if (l->type < TENSOR_MAP_TYPE_COUNT)
		add(&line, "%s rank %u dim", tensor_map_type_names[l->type], l->rank);
	else
		add(&line, "type %u rank %u dim", l->type, l->rank);
	for (uint32_t d = 0; d < rank; d++)
		add(&line, "%c%" PRIu64, d ? ',' : ' ', l->dim[d]);
	for (uint32_t d = 0; d + 1 < rank; d++)
		add(&line, "%s%" PRIu64, d ? "," : " stride ", l->stride[d]);
	for (uint32_t d = 0; d < rank; d++)
		add(&line, "%s%u", d ? "," : " box ", l->box[d]);
	for (uint32_t d = 0; d < rank; d++)
		add(&line, "%s%u", d ? "," : " element_stride ", l->element_stride[d]);
	add(&line, " interleave %u swizzle %u l2 %u fill %u address +%" PRIu64, l->interleave, l->swizzle,
	    l->l2, l->fill, draw->offset);
	for (uint32_t d = 0; d < rank; d++)
		add(&line, "%s%d", d ? "," : " at ", draw->at[d]);
	return text;
}
