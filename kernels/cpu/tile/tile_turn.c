/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the pixels of a tile, lays out their planes, and takes them apart. */
#include "tile_turn.h"

#include "proto/arithmetic.h"

/* Dimensions of a pixel of two channels or more each, at most. */
#define PIXEL_DIMS 4

/* The dimension that goes on at `at` bytes of what is packed; -1: none. */
static int find_next(const struct tile_dim *dim, int n, int64_t at)
{
	for (int d = 0; d < n; d++)
		if (dim[d].packed == at)
			return d;
	return -1;
}

/* The closest of those that are not taken; -1: none is left. */
static int find_closest(const struct tile_dim *dim, int n, uint64_t taken)
{
	int ret = -1;
	for (int d = 0; d < n; d++)
		if (!(taken >> d & 1) && (ret < 0 || dim[d].packed < dim[ret].packed))
			ret = d;
	return ret;
}

bool tile_turn_init(struct tile_turn *ret, const struct cpu_isa *isa, int64_t element, struct tile_dim *dim,
                    int n)
{
	int64_t pixel = element;
	int d, in_pixel[PIXEL_DIMS], n_pixel = 0;
	uint64_t taken = 0;
	for (d = 0; d < n; d++) {
		if (dim[d].packed < 0)
			return false;
		if (dim[d].packed == 0)
			taken |= UINT64_C(1) << d;
	}
	for (d = find_next(dim, n, pixel); d >= 0 && n_pixel < PIXEL_DIMS && pixel * dim[d].n <= 16;
	     d = find_next(dim, n, pixel)) {
		in_pixel[n_pixel++] = d;
		taken |= UINT64_C(1) << d;
		pixel *= dim[d].n;
	}
	if (n_pixel == 0)
		return false;
	int after[TENSOR_MAX_RANK], n_after = 0;
	int64_t pixels = 1, plane = element;
	for (; d >= 0; d = find_next(dim, n, pixel * pixels)) {
		after[n_after++] = d;
		taken |= UINT64_C(1) << d;
		pixels *= dim[d].n;
	}
	if (pixels * element < CPU_LINE)
		return false;
	*ret = (struct tile_turn){ .isa = isa,
		                   .cost = pixel_cost(pixel, TILE_SPLIT_COST) + 1,
		                   .unit = element,
		                   .channels = pixel / element,
		                   .pixels = pixels };

	/* In a plane, behind the pixels, comes what lies further out. */
	for (int i = 0; i < n_after; i++) {
		dim[after[i]].packed = plane;
		plane *= dim[after[i]].n;
	}
	while ((d = find_closest(dim, n, taken)) >= 0) {
		ret->outer[ret->n_outer++] =
		    (struct tile_dim){ .n = dim[d].n, .image = plane, .packed = dim[d].packed };
		dim[d].packed = plane;
		plane *= dim[d].n;
		taken |= UINT64_C(1) << d;
	}
	/* A line between planes: so the same place in each falls into another set of the cache. */
	int64_t pitch = divide_up_i64(plane, CPU_LINE) * CPU_LINE + CPU_LINE, have = 1;
	for (int i = 0; i < n_pixel; i++) {
		dim[in_pixel[i]].packed = have * pitch;
		have *= dim[in_pixel[i]].n;
	}
	for (int64_t c = 0; c < ret->channels; c++)
		ret->row[c] = c * pitch;
	return true;
}

void tile_turn_run(const struct tile_turn *turn, char *planes, const char *packed)
{
	int64_t at[TENSOR_MAX_RANK] = { 0 };
	int shift = __builtin_ctzll((uint64_t)turn->unit), d;
	do {
		turn->isa->split[shift](planes, turn->row, packed, turn->channels, turn->pixels);
		for (d = 0; d < turn->n_outer; d++) {
			const struct tile_dim *dim = &turn->outer[d];
			planes += dim->image;
			packed += dim->packed;
			if (++at[d] < dim->n)
				break;
			at[d] = 0;
			planes -= dim->n * dim->image;
			packed -= dim->n * dim->packed;
		}
	} while (d < turn->n_outer);
}
