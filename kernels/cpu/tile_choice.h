/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a tile while its way is chosen; shared by the files that know a way each. */
#ifndef KERNELS_CPU_TILE_CHOICE_H
#define KERNELS_CPU_TILE_CHOICE_H

#include "tile_fill.h"

/* Those that the way takes are marked; the others become loops around it. */
struct tile_choice {
	struct tile_fill *fill;
	bool direct;
	int n;
	uint64_t taken;
	int64_t used; /* rows of a panel that are no gaps */
	struct tile_dim dim[TILE_DIMS];
};

bool choice_is_taken(const struct tile_choice *choice, int d);
void choice_take(struct tile_choice *choice, int d);

/* The dimension of that stride that is not taken; -1: none. */
int choice_find_image(const struct tile_choice *choice, int64_t stride);
int choice_find_src(const struct tile_choice *choice, int64_t stride); /* of either sign */

/* Makes dimension d at most `most` long, which it may be already, by cutting it in two; the other part
 * follows it. false: it has no such divisor. */
bool choice_shorten(struct tile_choice *choice, int d, int64_t most);

/* Multiplies the `have` offsets of a table by a dimension. */
void choice_extend(int64_t *table, int64_t have, int64_t n, int64_t stride);

/* The windows of the 16 bytes from byte `from` of units that lie at `at`; most + 1 when there are more. Units
 * at SHUFFLE_FILL are in no window. */
#define SHUFFLE_FILL UINT32_MAX
int64_t shuffle_windows(const uint32_t *at, int64_t unit, int64_t from, int64_t most,
                        struct cpu_shuffle_step *step);

/* Windows from the n-th on that have nothing. */
void shuffle_add_windows(struct cpu_shuffle_step *step, int64_t n, int64_t windows);

/* Instructions for 16 bytes, about: unit by unit, and of pixels that need no room, to take them apart. */
#define TILE_UNITS_COST 40.0
#define TILE_SPLIT_COST 5.0

/* What pixels cost that take so many bytes of the next power of two; full: of those that take all. */
double pixel_cost(int64_t bytes, double full);

/* Each sets the way and takes its dimensions, or leaves the choice as it is and returns false. Panels and
 * pixels are for units of 1, 2, 4, 8 or 16 bytes that are contiguous in different dimensions of the source
 * and of the image. A shuffle that costs more than `most` is not chosen. */
bool choose_panel(struct tile_choice *choice);
bool panel_is_full(const struct tile_fill *fill); /* hardly anything is faster */
bool choose_few(struct tile_choice *choice);
bool choose_pixels(struct tile_choice *choice);
bool choose_shuffle(struct tile_choice *choice, double most);
void choose_table(struct tile_choice *choice);

void few_rows_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch);
void few_cols_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch);
void table_run(const struct tile_fill *fill, char *image, const char *src);

#endif
