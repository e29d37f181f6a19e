/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the tables for a tile's stages, and runs the stages. */
#include "tile_stages.h"

#include <string.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

/* ---- Packing ---------------------------------------------------------------------------------------- */

/* Number of runs by which prefetching is ahead of copying. The speed is the same, within noise, for 2 to 16
 * runs; without prefetching it is 0.9 times that. */
#define RUNS_AHEAD 4

/* Gaps of up to this many bytes that are no longer than the run before them are packed together with the
 * runs, because their lines are read anyway. This is not done if the runs' elements are contiguous in the
 * image too: packed without gaps, more of them then form a single run. */
#define GAP_MOST 32

/* Returns the dimension with the smallest stride in the source that is not in the bitmap `taken`, or -1. */
static int closest_in_source(const struct tile_dim *dim, int n, uint64_t taken)
{
	int ret = -1;
	for (int d = 0; d < n; d++)
		if (!(taken >> d & 1) && (ret < 0 || magnitude_i64(dim[d].src) < magnitude_i64(dim[ret].src)))
			ret = d;
	return ret;
}

static bool add_runs(struct tile_pack *pack, struct tile_dim *dim)
{
	int64_t stride = magnitude_i64(dim->src);
	if (pack->n * dim->n > TILE_PACK_RUNS)
		return false;
	for (int64_t i = 1; i < dim->n; i++)
		for (int64_t j = 0; j < pack->n; j++)
			pack->offset[i * pack->n + j] = pack->offset[j] + i * stride;
	dim->packed = pack->n * pack->pitch * (dim->src < 0 ? -1 : 1);
	pack->n *= dim->n;
	return true;
}

bool tile_pack_init(struct tile_pack *ret, int64_t element, struct tile_dim *dim, int n)
{
	uint64_t taken = 0, repeated;
	int64_t gap_most = GAP_MOST;
	int d;
	ret->n = 1;
	ret->bytes = element;
	ret->offset[0] = ret->low = ret->first = 0;
	for (d = 0; d < n; d++)
		if (dim[d].src == 0) {
			dim[d].packed = 0;
			taken |= UINT64_C(1) << d;
		}
	repeated = taken;
	while ((d = closest_in_source(dim, n, taken)) >= 0) {
		int64_t gap = magnitude_i64(dim[d].src) - ret->bytes;
		if (taken == repeated)
			gap_most = dim[d].image == element ? 0 : GAP_MOST;
		if (gap > min_i64(ret->bytes, gap_most))
			break;
		dim[d].packed = dim[d].src;
		ret->bytes += (dim[d].n - 1) * magnitude_i64(dim[d].src);
		taken |= UINT64_C(1) << d;
	}
	/* Leave a line between two runs, so that the same position in each falls into another set of the
	 * cache. Short runs are packed without gaps, as one run. */
	ret->pitch = ret->bytes;
	if (ret->bytes >= CPU_LINE)
		ret->pitch = divide_up_i64(ret->bytes, CPU_LINE) * CPU_LINE + CPU_LINE;
	for (; (d = closest_in_source(dim, n, taken)) >= 0; taken |= UINT64_C(1) << d)
		if (!add_runs(ret, &dim[d]))
			return false;
	for (d = 0; d < n; d++) {
		if (dim[d].src < 0) {
			ret->low += (dim[d].n - 1) * dim[d].src;
			ret->first -= (dim[d].n - 1) * dim[d].packed;
		}
	}
	return true;
}

int64_t tile_pack_size(const struct tile_pack *pack)
{
	return pack->n * pack->pitch + CPU_LINE;
}

void tile_pack_run(const struct tile_pack *pack, char *packed, const char *src)
{
	int64_t n = pack->n, bytes = pack->bytes;
	src += pack->low;
	for (int64_t i = 0; i < n; i++, packed += pack->pitch) {
		if (bytes <= CPU_LINE) {
			copy_short(packed, src + pack->offset[i], (uint32_t)bytes);
			continue;
		}
		for (int64_t at = 0; i + RUNS_AHEAD < n && at < bytes; at += CPU_LINE)
			__builtin_prefetch(src + pack->offset[i + RUNS_AHEAD] + at, 0, 2);
		memcpy(packed, src + pack->offset[i], (size_t)bytes);
	}
}

/* ---- Planes ----------------------------------------------------------------------------------------- */

/* Maximum number of dimensions of a pixel: each has an extent of 2 or more, and all together at most 16. */
#define PIXEL_DIMS 4

/* Returns the dimension whose packed stride is `at`, or -1. */
static int find_next(const struct tile_dim *dim, int n, int64_t at)
{
	for (int d = 0; d < n; d++)
		if (dim[d].packed == at)
			return d;
	return -1;
}

/* Returns the dimension with the smallest packed stride that is not in the bitmap `taken`, or -1 if all
 * are. */
static int closest_in_packed(const struct tile_dim *dim, int n, uint64_t taken)
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

	/* In a plane, the dimensions further out follow the pixels. */
	for (int i = 0; i < n_after; i++) {
		dim[after[i]].packed = plane;
		plane *= dim[after[i]].n;
	}
	while ((d = closest_in_packed(dim, n, taken)) >= 0) {
		ret->outer[ret->n_outer++] =
		    (struct tile_dim){ .n = dim[d].n, .image = plane, .packed = dim[d].packed };
		dim[d].packed = plane;
		plane *= dim[d].n;
		taken |= UINT64_C(1) << d;
	}
	/* Leave a line between planes, so that the same position in each falls into another set of the
	 * cache. */
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

/* ---- Borders ---------------------------------------------------------------------------------------- */

/* Bytes of the shortest row that is assembled by shuffles. */
#define ROW_LEAST 16

/* Maximum number of windows for each 16 bytes of a row: more than are needed for elements of one byte along a
 * wrapped axis of three elements. */
#define WINDOWS_MOST 8

static bool is_windowed(const struct tile_border_dim *dim)
{
	return dim->before != 0 || dim->source != dim->n;
}

static int64_t source_of(const struct tile_border_dim *dim, enum pad_mode mode, int64_t i)
{
	const struct loop_nest_dim window = { .n = dim->n, .before = dim->before, .source = dim->source };
	return loop_nest_window_source(&window, mode, i);
}

/* Returns how many indices of the dimension a row takes, at most `most`: a whole window, or 0 if that has
 * more than `most` indices. */
static int64_t part_of(const struct tile_border_dim *dim, int64_t most)
{
	if (is_windowed(dim))
		return dim->n <= most ? dim->n : 0;
	return min_i64(dim->n, most) > 1 ? min_i64(dim->n, most) : 0;
}

static int64_t row_most(int64_t element)
{
	return min_i64(TILE_TABLE, TILE_STEPS * 16 / 2 / element);
}

bool tile_border_is_cheap(int64_t element, const struct tile_border_dim *dim, int n)
{
	int64_t have = 1, part = 1;
	for (int d = 0; d < n && part > 0 && dim[d].image == have * element; d++) {
		part = part_of(&dim[d], row_most(element) / have);
		have *= max_i64(part, 1);
		if (part < dim[d].n)
			break;
	}
	return have * element >= ROW_LEAST;
}

/* Takes dimensions into the row as long as the image is contiguous and the table can hold their offsets.
 * Returns the number of elements. *ret_d is the first dimension that is not in the row, or of which only
 * *ret_part indices are. */
static int64_t take_row(struct tile_border *border, int64_t element, enum pad_mode mode,
                        const struct tile_border_dim *dim, int n, int *ret_d, int64_t *ret_part)
{
	int64_t have = 1;
	int d = 0;
	border->at[0] = 0;
	*ret_part = 1;
	for (; d < n && dim[d].image == have * element; d++) {
		int64_t part = part_of(&dim[d], row_most(element) / have);
		if (part == 0)
			break;
		for (int64_t i = part - 1; i >= 0; i--) {
			int64_t source = source_of(&dim[d], mode, i);
			for (int64_t j = 0; j < have; j++)
				border->at[i * have + j] =
				    source < 0 || border->at[j] == SHUFFLE_FILL
					? SHUFFLE_FILL
					: (uint32_t)(border->at[j] + source * dim[d].core);
		}
		have *= part;
		if (part < dim[d].n) {
			*ret_part = part;
			break;
		}
	}
	*ret_d = d;
	return have;
}

/* Makes the shuffles of a row. If they are not possible, windows is 0 and rows are assembled element by
 * element. */
static void make_steps(struct tile_border *border, int64_t element)
{
	struct cpu_shuffle_step step[WINDOWS_MOST];
	int64_t n = divide_up_i64(border->bytes, 16), windows = 1;
	border->windows = 0;
	border->is_filled = false;
	if (border->bytes < ROW_LEAST)
		return;
	for (int64_t i = 0; i < n; i++)
		windows =
		    max_i64(windows, shuffle_windows(border->at, element, min_i64(i * 16, border->bytes - 16),
		                                     WINDOWS_MOST, step));
	if (windows > WINDOWS_MOST || windows * n > TILE_STEPS)
		return;
	border->windows = windows;
	for (int64_t i = 0; i < n; i++) {
		int64_t from = min_i64(i * 16, border->bytes - 16);
		struct cpu_shuffle_step *to = border->step + i * windows;
		shuffle_add_windows(to, shuffle_windows(border->at, element, from, windows, to), windows);
		for (int64_t b = 0; b < 16; b++) {
			bool is_fill = border->at[(from + b) / element] == SHUFFLE_FILL;
			border->fill[i * 16 + b] = is_fill ? border->line[(from + b) % CPU_LINE] : 0;
			border->is_filled |= is_fill;
		}
	}
}

/* Makes the loops over rows. part is the number of indices of the first dimension that are in a row. */
static void make_loops(struct tile_border *border, enum pad_mode mode, const struct tile_border_dim *dim,
                       int n, int64_t part)
{
	int32_t have = 0;
	border->n_outer = 0;
	for (int d = 0; d < n; d++, part = 1) {
		struct tile_border_loop *loop = &border->outer[border->n_outer++];
		*loop = (struct tile_border_loop){ .n = divide_up_i64(dim[d].n, part),
			                           .step = part,
			                           .last = dim[d].n - part,
			                           .image = dim[d].image,
			                           .core = dim[d].core,
			                           .first = -1 };
		if (!is_windowed(&dim[d]))
			continue;
		loop->first = have;
		for (int64_t i = 0; i < dim[d].n; i++) {
			int64_t source = source_of(&dim[d], mode, i);
			border->core[have++] = source < 0 ? -1 : source * dim[d].core;
		}
	}
}

void tile_border_init(struct tile_border *ret, const struct cpu_isa *isa, int64_t element,
                      const struct tile_border_fill *fill, const struct tile_border_dim *dim, int n)
{
	int64_t part;
	int d;
	ret->isa = isa;
	ret->element = element;
	for (uint32_t b = 0; b < CPU_LINE; b++)
		ret->line[b] =
		    fill->mode == PAD_MODE_CONSTANT ? ((const uint8_t *)fill->value)[b % fill->bytes] : 0;
	ret->bytes = take_row(ret, element, fill->mode, dim, n, &d, &part) * element;
	make_steps(ret, element);
	make_loops(ret, fill->mode, dim + d, n - d, part);
}

/* Fills a row with the border's value. */
static void fill_row(const struct tile_border *border, char *image)
{
	int64_t at = 0;
	for (; at + CPU_LINE <= border->bytes; at += CPU_LINE)
		memcpy(image + at, border->line, CPU_LINE);
	memcpy(image + at, border->line, (size_t)(border->bytes - at));
}

static void put_elements(const struct tile_border *border, char *image, const char *core)
{
	size_t element = (size_t)border->element;
	for (int64_t i = 0; i * border->element < border->bytes; i++, image += element)
		memcpy(image,
		       border->at[i] == SHUFFLE_FILL ? (const char *)border->line : core + border->at[i],
		       element);
}

void tile_border_run(const struct tile_border *border, char *image, const char *core)
{
	const struct cpu_shuffle shuffle = { border->bytes, border->windows, border->step,
		                             border->is_filled ? border->fill : NULL };
	int64_t at[TENSOR_MAX_RANK] = { 0 };
	int d;
	do {
		char *to = image;
		int64_t from = 0;
		bool is_value = false;
		for (d = 0; d < border->n_outer; d++) {
			const struct tile_border_loop *loop = &border->outer[d];
			int64_t i = min_i64(at[d] * loop->step, loop->last);
			int64_t place = loop->first < 0 ? i * loop->core : border->core[loop->first + i];
			is_value |= place < 0;
			from += place;
			to += i * loop->image;
		}
		if (is_value)
			fill_row(border, to);
		else if (!border->windows)
			put_elements(border, to, core + from);
		else
			border->isa->shuffle(to, core + from, &shuffle);
		for (d = 0; d < border->n_outer && ++at[d] == border->outer[d].n; d++)
			at[d] = 0;
	} while (d < border->n_outer);
}
