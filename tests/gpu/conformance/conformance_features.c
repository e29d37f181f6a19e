/* SPDX-License-Identifier: Apache-2.0 */
/* A table of features: each is a predicate of a draw, with a number where several features differ only in
 * that. */
#include "conformance_features.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WORST 10 /* features that are listed */

typedef bool has_feature(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value);

static has_feature has_type, has_rank, has_interleave, has_swizzle, has_l2, has_element_strides,
    has_idle_element_stride, is_filled, is_inside, is_before, is_past, has_stride_0, has_overlap, is_ragged;

static const struct {
	const char *name;
	has_feature *has; /* NULL: the feature of patched addresses */
	uint32_t value;
} features[] = {
	{ "type uint8", has_type, TENSOR_MAP_UINT8 },
	{ "type uint16", has_type, TENSOR_MAP_UINT16 },
	{ "type uint32", has_type, TENSOR_MAP_UINT32 },
	{ "type int32", has_type, TENSOR_MAP_INT32 },
	{ "type uint64", has_type, TENSOR_MAP_UINT64 },
	{ "type int64", has_type, TENSOR_MAP_INT64 },
	{ "type float16", has_type, TENSOR_MAP_FLOAT16 },
	{ "type float32", has_type, TENSOR_MAP_FLOAT32 },
	{ "type float64", has_type, TENSOR_MAP_FLOAT64 },
	{ "type bfloat16", has_type, TENSOR_MAP_BFLOAT16 },
	{ "type float32_ftz", has_type, TENSOR_MAP_FLOAT32_FTZ },
	{ "type tfloat32", has_type, TENSOR_MAP_TFLOAT32 },
	{ "type tfloat32_ftz", has_type, TENSOR_MAP_TFLOAT32_FTZ },
	{ "rank 1", has_rank, 1 },
	{ "rank 2", has_rank, 2 },
	{ "rank 3", has_rank, 3 },
	{ "rank 4", has_rank, 4 },
	{ "rank 5", has_rank, 5 },
	{ "interleave none", has_interleave, TENSOR_MAP_INTERLEAVE_NONE },
	{ "interleave 16B", has_interleave, TENSOR_MAP_INTERLEAVE_16B },
	{ "interleave 32B", has_interleave, TENSOR_MAP_INTERLEAVE_32B },
	{ "swizzle none", has_swizzle, TENSOR_MAP_SWIZZLE_NONE },
	{ "swizzle 32B", has_swizzle, TENSOR_MAP_SWIZZLE_32B },
	{ "swizzle 64B", has_swizzle, TENSOR_MAP_SWIZZLE_64B },
	{ "swizzle 128B", has_swizzle, TENSOR_MAP_SWIZZLE_128B },
	{ "L2 promotion none", has_l2, TENSOR_MAP_L2_NONE },
	{ "L2 promotion 64B", has_l2, TENSOR_MAP_L2_64B },
	{ "L2 promotion 128B", has_l2, TENSOR_MAP_L2_128B },
	{ "L2 promotion 256B", has_l2, TENSOR_MAP_L2_256B },
	{ "element strides", has_element_strides, 0 },
	{ "element stride of dimension 0, which is not interleaved", has_idle_element_stride, 0 },
	{ "tile inside of the tensor", is_inside, 0 },
	{ "tile from before the tensor", is_before, 0 },
	{ "tile past the tensor's end", is_past, 0 },
	{ "tile not inside, zero fill", is_filled, TENSOR_MAP_FILL_ZERO },
	{ "tile not inside, NaN fill", is_filled, TENSOR_MAP_FILL_NAN },
	{ "stride 0", has_stride_0, 0 },
	{ "rows that overlap", has_overlap, 0 },
	{ "inner extent of no multiple of 16 bytes", is_ragged, 0 },
	{ "address replaced", NULL, 0 },
};

static_assert(sizeof features / sizeof *features == FEATURE_COUNT, "the tallies have a place for each");

static bool has(int feature, const struct draw *draw, bool replaced)
{
	return features[feature].has ? features[feature].has(&draw->layout, draw, features[feature].value)
	                             : replaced;
}

void features_count(struct feature_tally *tally, const struct draw *draw, bool replaced, enum feature_way way,
                    bool right)
{
	for (int f = 0; f < FEATURE_COUNT; f++) {
		if (!has(f, draw, replaced))
			continue;
		tally[f].done[way]++;
		tally[f].wrong[way] += !right;
	}
}

void features_count_lost(struct feature_tally *tally, const struct draw *draw, bool replaced)
{
	for (int f = 0; f < FEATURE_COUNT; f++)
		tally[f].lost += has(f, draw, replaced);
}

/* ---- What is worst ------------------------------------------------------------------------------------- */

struct share {
	int feature;
	uint64_t wrong;
	uint64_t all;
};

static int by_share(const void *a, const void *b)
{
	const struct share *x = a, *y = b;
	double of_x = (double)x->wrong / (double)x->all, of_y = (double)y->wrong / (double)y->all;

	if (of_x != of_y)
		return of_x < of_y ? 1 : -1;
	return x->wrong != y->wrong ? (x->wrong < y->wrong ? 1 : -1) : x->feature - y->feature;
}

void features_print_worst(const struct feature_tally *tally)
{
	struct share worst[FEATURE_COUNT];
	int n = 0;

	for (int f = 0; f < FEATURE_COUNT; f++) {
		struct share share = { f, tally[f].lost, tally[f].lost };

		for (int way = 0; way < FEATURE_WAYS; way++) {
			share.wrong += tally[f].wrong[way];
			share.all += tally[f].done[way];
		}
		if (share.wrong > 0)
			worst[n++] = share;
	}
	qsort(worst, (size_t)n, sizeof *worst, by_share);
	if (n > 0)
		printf("# wrong or lost, by feature:\n");
	for (int i = 0; i < n && i < WORST; i++)
		printf("#   %5.1f%% (%" PRIu64 " of %" PRIu64 ") of %s\n",
		       100 * (double)worst[i].wrong / (double)worst[i].all, worst[i].wrong, worst[i].all,
		       feature_name(worst[i].feature));
}

const char *feature_name(int feature)
{
	return features[feature].name;
}

/* ---- Questions --------------------------------------------------------------------------------------- */

static bool has_type(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	return l->type == value;
}

static bool has_rank(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	return l->rank == value;
}

static bool has_interleave(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	return l->interleave == value;
}

static bool has_swizzle(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	return l->swizzle == value;
}

static bool has_l2(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	return l->l2 == value;
}

static bool has_element_strides(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	(void)value;
	for (uint32_t d = l->interleave ? 0 : 1; d < l->rank; d++)
		if (l->element_stride[d] > 1)
			return true;
	return false;
}

static bool has_idle_element_stride(const struct tensor_map_layout *l, const struct draw *draw,
                                    uint32_t value)
{
	(void)draw;
	(void)value;
	return !l->interleave && l->element_stride[0] > 1;
}

static bool is_before(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)value;
	for (uint32_t d = 0; d < l->rank; d++)
		if (draw->at[d] < 0)
			return true;
	return false;
}

static bool is_past(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)value;
	for (uint32_t d = 0; d < l->rank; d++)
		if (draw->at[d] + (int64_t)l->box[d] > (int64_t)l->dim[d])
			return true;
	return false;
}

static bool is_inside(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	return !is_before(l, draw, value) && !is_past(l, draw, value);
}

static bool is_filled(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	return l->fill == value && !is_inside(l, draw, value);
}

static bool has_stride_0(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	(void)value;
	for (uint32_t d = 1; d < l->rank; d++)
		if (l->stride[d - 1] == 0 && l->dim[d] > 1)
			return true;
	return false;
}

static bool has_overlap(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	(void)value;
	return l->rank > 1 && !l->interleave && l->dim[1] > 1 && l->stride[0] > 0 &&
	       l->stride[0] < l->dim[0] * tensor_map_type_size(l->type);
}

static bool is_ragged(const struct tensor_map_layout *l, const struct draw *draw, uint32_t value)
{
	(void)draw;
	(void)value;
	return !l->interleave && l->dim[0] * tensor_map_type_size(l->type) % 16;
}
