/* SPDX-License-Identifier: Apache-2.0 */
/* Ways by a table of where each unit comes from: shuffles of 16 bytes, and unit by unit. */
#include <string.h>

#include "kernels/cpu/isa/short.h"
#include "proto/arithmetic.h"
#include "tile_fill.h"

/* Dense tables of fewer units cost more in calls than a second table does. */
#define DENSE_LEAST 32

/* Shuffles of fewer bytes, likewise. */
#define SHUFFLE_LEAST 64

/* Takes dimensions into a table of at most `most` units, innermost first; dense: only such in which the image
 * is contiguous. Gives the units. */
static int64_t take_units(struct tile_choice *choice, bool dense, int64_t most)
{
	struct tile_fill *fill = choice->fill;
	int64_t n = 1;
	fill->shift = 0;
	fill->at[0] = 0;
	fill->image[0] = 0;
	for (int d = 0; d < choice->n; d++) {
		if (choice_is_taken(choice, d))
			continue;
		if ((dense && choice->dim[d].image != n * fill->unit) || !choice_shorten(choice, d, most / n))
			break;
		const struct tile_dim *dim = &choice->dim[d];
		int64_t back = dim->packed < 0 ? (dim->n - 1) * -dim->packed : 0;
		fill->shift -= back;
		for (int64_t i = 0; i < n; i++)
			fill->at[i] += (uint32_t)back;
		for (int64_t i = 1; i < dim->n; i++)
			for (int64_t j = 0; j < n; j++)
				fill->at[i * n + j] = (uint32_t)(fill->at[j] + i * dim->packed);
		if (!dense)
			choice_extend(fill->image, n, dim->n, dim->image);
		n *= dim->n;
		choice_take(choice, d);
	}
	return n;
}

/* ---- Shuffles --------------------------------------------------------------------------------------- */

int64_t shuffle_windows(const uint32_t *at, int64_t unit, int64_t from, int64_t most,
                        struct cpu_shuffle_step *step)
{
	int64_t n = 0;
	uint32_t place[16], open = 0;
	for (int64_t b = 0; b < 16; b++) {
		uint32_t start = at[(from + b) / unit];
		place[b] = start + (uint32_t)((from + b) % unit);
		open |= (uint32_t)(start != SHUFFLE_FILL) << b;
	}
	for (; open && n < most; n++) {
		uint32_t low = UINT32_MAX;
		for (int b = 0; b < 16; b++)
			if (open >> b & 1 && place[b] < low)
				low = place[b];
		step[n].offset = low;
		for (int b = 0; b < 16; b++) {
			bool is_in = open >> b & 1 && place[b] - low < 16;
			step[n].mask[b] = is_in ? (uint8_t)(place[b] - low) : 0x80;
			open &= ~((uint32_t)is_in << b);
		}
	}
	return open ? most + 1 : n;
}

void shuffle_add_windows(struct cpu_shuffle_step *step, int64_t n, int64_t windows)
{
	for (; n < windows; n++) {
		step[n].offset = n ? step->offset : 0;
		memset(step[n].mask, 0x80, sizeof(step[n].mask));
	}
}

/* Windows that take as long as unit by unit, about. */
static int64_t most_windows(int64_t unit)
{
	return unit == 1 ? 9 : unit == 2 ? 6 : unit < 8 ? 4 : 2;
}

/* In the cache of a Zen 3, ns for 16 bytes: 0.7 by one window, 1.4 by two, 2.4 by four, 4.8 by eight; panels
 * of bytes, whose cost is 6, 0.8. */
static double shuffle_cost(int64_t windows)
{
	return 5 * (double)windows;
}

static bool try_shuffle(struct tile_choice *choice, int64_t most_units, double most_cost)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	struct cpu_shuffle_step step[16];
	int64_t bytes = take_units(choice, true, most_units) * fill->unit;
	int64_t most = most_windows(fill->unit), windows = 1, n = divide_up_i64(bytes, 16);
	while (most > 0 && shuffle_cost(most) > most_cost)
		most--;
	for (int64_t i = 0; bytes >= SHUFFLE_LEAST && i < n && windows <= most && windows * n <= TILE_STEPS;
	     i++)
		windows = max_i64(
		    windows, shuffle_windows(fill->at, fill->unit, min_i64(i * 16, bytes - 16), most, step));
	if (bytes < SHUFFLE_LEAST || windows > most || windows * n > TILE_STEPS) {
		*choice = before;
		return false;
	}
	for (int64_t i = 0; i < n; i++) {
		struct cpu_shuffle_step *to = fill->step + i * windows;
		shuffle_add_windows(
		    to, shuffle_windows(fill->at, fill->unit, min_i64(i * 16, bytes - 16), most, to),
		    windows);
	}
	fill->way = TILE_SHUFFLE;
	fill->windows = windows;
	fill->cost = shuffle_cost(windows);
	fill->cols = bytes / fill->unit;
	return true;
}

bool choose_shuffle(struct tile_choice *choice, double most)
{
	int64_t unit = choice->fill->unit;
	return unit < 16 &&
	       (try_shuffle(choice, TILE_TABLE, most) || try_shuffle(choice, TILE_TABLE / 2 / unit, most));
}

/* ---- Unit by unit ----------------------------------------------------------------------------------- */

void choose_table(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	fill->way = TILE_DENSE;
	fill->cost = TILE_UNITS_COST / (double)fill->unit;
	fill->cols = take_units(choice, true, TILE_TABLE);
	if (fill->cols >= DENSE_LEAST)
		return;
	*choice = before;
	fill->way = TILE_SPARSE;
	fill->cost = 1.5 * TILE_UNITS_COST / (double)fill->unit;
	fill->cols = take_units(choice, false, TILE_TABLE);
}

/* size: bytes that are moved of a unit, or more: what is written too much is written over by the next unit,
 * or lies between the image's rows. */
#define DEFINE_TABLE(name, unit, size)                                                        \
	static void dense_##name(const struct tile_fill *fill, char *image, const char *src)  \
	{                                                                                     \
		const uint32_t *at = fill->at;                                                \
		int64_t n = fill->cols, step = unit;                                          \
		for (int64_t i = 0; i < n; i++, image += step)                                \
			memcpy(image, src + at[i], size);                                     \
	}                                                                                     \
	static void sparse_##name(const struct tile_fill *fill, char *image, const char *src) \
	{                                                                                     \
		const uint32_t *at = fill->at;                                                \
		const int64_t *to = fill->image;                                              \
		int64_t n = fill->cols;                                                       \
		for (int64_t i = 0; i < n; i++)                                               \
			memcpy(image + to[i], src + at[i], size);                             \
	}
DEFINE_TABLE(1, 1, 1)
DEFINE_TABLE(2, 2, 2)
DEFINE_TABLE(4, 4, 4)
DEFINE_TABLE(8, 8, 8)
DEFINE_TABLE(16, 16, 16)
DEFINE_TABLE(most_16, fill->unit, 16)
DEFINE_TABLE(most_32, fill->unit, 32)
DEFINE_TABLE(most_64, fill->unit, 64)

static void dense_exact(const struct tile_fill *fill, char *image, const char *src)
{
	for (int64_t i = 0; i < fill->cols; i++)
		copy_short(image + i * fill->unit, src + fill->at[i], (uint32_t)fill->unit);
}

static void sparse_exact(const struct tile_fill *fill, char *image, const char *src)
{
	for (int64_t i = 0; i < fill->cols; i++)
		copy_short(image + fill->image[i], src + fill->at[i], (uint32_t)fill->unit);
}

typedef void table_fn(const struct tile_fill *fill, char *image, const char *src);

static table_fn *table_of(const struct tile_fill *fill)
{
#define EITHER(name) (fill->way == TILE_DENSE ? dense_##name : sparse_##name)
	switch (fill->unit) {
	case 1:
		return EITHER(1);
	case 2:
		return EITHER(2);
	case 4:
		return EITHER(4);
	case 8:
		return EITHER(8);
	case 16:
		return EITHER(16);
	default:
		break;
	}
	if (fill->exact)
		return EITHER(exact);
	return fill->unit < 16 ? EITHER(most_16) : fill->unit <= 32 ? EITHER(most_32) : EITHER(most_64);
#undef EITHER
}

void table_run(const struct tile_fill *fill, char *image, const char *src)
{
	if (fill->way == TILE_SHUFFLE)
		fill->isa->shuffle(
		    image, src,
		    &(struct cpu_shuffle){ fill->cols * fill->unit, fill->windows, fill->step, NULL });
	else
		table_of(fill)(fill, image, src);
}
