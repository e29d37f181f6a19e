/* SPDX-License-Identifier: Apache-2.0 */
/* Turns options and a file's shape into axes: checks and applies permutation and pads, expresses items as
 * elements, and drops and fuses axes. */
#include "view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int check_perm(const struct view_args *args, int rank, struct failure *f);
static int view_axes(struct view *v, const struct npy *npy, const struct view_args *args, struct failure *f);
static int check_rests(const struct view *v, const struct view_args *args, struct failure *f);
static int axis_pad(struct view *v, struct view_axis *axis, int d, const struct view_args *args,
                    struct failure *f);
static int view_size(struct view *v, uint64_t item_bytes, struct failure *f);
static void view_carry_items(struct view *v, uint64_t item_bytes);
static void view_reduce(struct view *v);

int view_init(struct view *ret, const struct npy *npy, const struct view_args *args, struct failure *f)
{
	const uint64_t dst_item_bytes = args->dst_item_bytes ? args->dst_item_bytes : npy->descr.item_bytes;

	*ret = (struct view){ .mode = args->mode,
		              .src_offset = npy->data_offset,
		              .element = 1,
		              .channel_of = -1,
		              .channel = -1 };
	if (view_axes(ret, npy, args, f) < 0 || view_size(ret, dst_item_bytes, f) < 0 ||
	    check_rests(ret, args, f) < 0 || view_set_blocks(ret, args, f) < 0)
		return -1;
	if (!ret->dst_bytes)
		return 0;
	view_carry_items(ret, npy->descr.item_bytes);
	ret->dst_element = args->dst_item_bytes ? (uint32_t)args->dst_item_bytes : ret->element;
	view_reduce(ret);
	if (ret->rank > TMA_MAX_RANK)
		return fail(f, EXIT_FAILED,
		            "items of %" PRIu64 " bytes need a dimension of their own, and with it "
		            "there are %d; at most %d can be moved",
		            npy->descr.item_bytes, ret->rank, TMA_MAX_RANK);
	return 0;
}

static int check_perm(const struct view_args *args, int rank, struct failure *f)
{
	uint64_t seen = 0;
	char names[32];
	int i;

	if (!args->permute)
		return 0;
	snprintf(names, sizeof names, rank > 1 ? "each of 0..%d once" : rank ? "0" : "none", rank - 1);
	if (args->n_perm != rank)
		return fail(f, EXIT_USAGE, "--permute %s: it names %d dimension%s, but the file has %d",
		            args->permute, args->n_perm, args->n_perm == 1 ? "" : "s", rank);
	for (int d = 0; d < rank; d++) {
		i = view_dimension(args, rank, d);
		if (i < 0 || i >= rank)
			return fail(
			    f, EXIT_USAGE,
			    "--permute %s: there is no dimension %d; a permutation of %d dimension%s names "
			    "%s",
			    args->permute, args->perm[d], rank, rank == 1 ? "" : "s", names);
		if (seen >> i & 1)
			return fail(
			    f, EXIT_USAGE,
			    "--permute %s: %d appears twice; a permutation of %d dimension%s names %s",
			    args->permute, i, rank, rank == 1 ? "" : "s", names);
		seen |= UINT64_C(1) << i;
	}
	return 0;
}

/* Sets *ret to the input's dimensions after --split. */
static int view_dims_init(struct view *v, struct view_dims *ret, const struct npy *npy,
                          const struct view_args *args, struct failure *f)
{
	int64_t run = (int64_t)npy->descr.item_bytes;

	*ret = (struct view_dims){ .rank = npy->rank };
	for (int k = 0; k < npy->rank; k++) {
		int i = npy->fortran ? k : npy->rank - 1 - k;

		ret->extent[i] = npy->shape[i];
		ret->origin[i] = (int8_t)i;
		if (!npy->count)
			continue;
		ret->stride[i] = run;
		run *= npy->shape[i];
	}
	return view_split(v, ret, args, f);
}

/* Sets *ret to the input's dimension of the channels, or to -1 if no list is given. Fails if its extent is
 * not the length of the list. */
static int find_channels(const struct view_dims *dims, const struct view_args *args, int *ret,
                         struct failure *f)
{
	int i = args->channel < 0 ? args->channel + dims->rank : args->channel;

	*ret = args->channels ? i : -1;
	if (!args->channels)
		return 0;
	if (i < 0 || i >= dims->rank)
		return fail(f, EXIT_USAGE, "--channel-axis %d: there is no such dimension among %d",
		            args->channel, dims->rank);
	if (args->channels != dims->extent[i])
		return fail(f, EXIT_USAGE,
		            "the list %s has %" PRId64 " numbers, but dimension %d of the input has %" PRId64
		            " elements; --channel-axis names another dimension",
		            args->channels_text, args->channels, i, dims->extent[i]);
	return 0;
}

/* Sets the output's axes, its shape and the strides on both sides. */
static int view_axes(struct view *v, const struct npy *npy, const struct view_args *args, struct failure *f)
{
	bool is_padded[TMA_MAX_RANK] = { 0 };
	struct view_dims dims;
	int channel;

	if (view_dims_init(v, &dims, npy, args, f) < 0 || check_perm(args, dims.rank, f) < 0 ||
	    find_channels(&dims, args, &channel, f) < 0)
		return -1;
	if (args->pad && args->n_pad != dims.rank)
		return fail(f, EXIT_USAGE, "--pad %s: it names %d dimension%s, but the file has %d%s",
		            args->pad, args->n_pad, args->n_pad == 1 ? "" : "s", dims.rank,
		            args->split ? ", once it is split" : "");
	v->rank = v->out_rank = v->middle_rank = dims.rank;
	for (int d = 0; d < dims.rank; d++) {
		int i = view_dimension(args, dims.rank, d);

		v->axis[d] =
		    (struct view_axis){ .source = dims.extent[i], .extent = dims.extent[i], .of = d };
		v->axis[d].src_stride = dims.stride[i];
		is_padded[d] = args->pad && (args->before[d] || args->after[d]);
		if (is_padded[d] && dims.is_split[i])
			return fail(f, EXIT_USAGE,
			            "--pad %s: dimension %d comes of a split and cannot be padded", args->pad,
			            d);
		if (i == channel) {
			v->channel_of = d;
			v->axis[d].is_fixed = true;
			v->first_channel = args->pad && args->before[d] < 0 ? -args->before[d] : 0;
		}
		if (args->pad && axis_pad(v, &v->axis[d], d, args, f) < 0)
			return -1;
		v->out_shape[d] = v->axis[d].extent;
	}
	view_add_src_rests(v, &dims, npy->shape, args);
	return view_join(v, args, args->dst_item_bytes ? args->dst_item_bytes : npy->descr.item_bytes,
	                 is_padded, f);
}

static int check_rests(const struct view *v, const struct view_args *args, struct failure *f)
{
	for (int i = 0; i < v->n_rests; i++)
		if (v->rest[i].is_src && v->mode != TMA_PAD_CONSTANT)
			return fail(
			    f, EXIT_USAGE,
			    "--split %s: the last block is incomplete, and only --mode constant can fill it, not %s",
			    args->split, tma_pad_mode_name(v->mode));
	return 0;
}

static int axis_pad(struct view *v, struct view_axis *axis, int d, const struct view_args *args,
                    struct failure *f)
{
	int64_t before = args->before[d];
	int64_t after = args->after[d];
	int64_t crop_before = before < 0 ? before : 0;
	int64_t crop_after = after < 0 ? after : 0;
	int64_t n = axis->source;

	/* These limits keep the sums below from overflowing. */
	if (before < -INT64_MAX / 4 || before > INT64_MAX / 4 || after < -INT64_MAX / 4 ||
	    after > INT64_MAX / 4)
		return fail(f, EXIT_USAGE, "--pad %s: dimension %d: a pad exceeds %" PRId64, args->pad, d,
		            INT64_MAX / 4);
	if ((crop_before || crop_after) && n + crop_before + crop_after <= 0)
		return fail(f, EXIT_USAGE,
		            "--pad %s: dimension %d: cropping %" PRId64 " and %" PRId64
		            " leaves nothing of %" PRId64,
		            args->pad, d, -crop_before, -crop_after, n);
	if (!n && (before || after) && v->mode != TMA_PAD_CONSTANT)
		return fail(f, EXIT_USAGE,
		            "--pad %s: dimension %d is empty; only --mode constant can pad it, not %s",
		            args->pad, d, tma_pad_mode_name(v->mode));
	axis->source = n + crop_before + crop_after;
	axis->before = before - crop_before;
	axis->extent = axis->before + axis->source + (after - crop_after);
	v->src_offset += (uint64_t)(-crop_before * axis->src_stride);
	return 0;
}

static int view_size(struct view *v, uint64_t item_bytes, struct failure *f)
{
	bool overflow = false;

	v->dst_bytes = item_bytes;
	for (int d = 0; d < v->out_rank; d++)
		if (!v->out_shape[d])
			v->dst_bytes = 0;
	for (int d = 0; d < v->out_rank && v->dst_bytes; d++)
		overflow |= __builtin_mul_overflow(v->dst_bytes, (uint64_t)v->out_shape[d], &v->dst_bytes);
	if (overflow || v->dst_bytes > INT64_MAX / 2)
		return fail(f, EXIT_USAGE,
		            "the padded shape times its items of %" PRIu64 " bytes overflows 62 bits",
		            item_bytes);
	return 0;
}

/* Chooses the largest element size that divides the item size. If an item is larger than that element, adds
 * an innermost axis for the elements that make up an item. */
static void view_carry_items(struct view *v, uint64_t item_bytes)
{
	while (v->element < 16 && item_bytes % (2 * v->element) == 0)
		v->element *= 2;
	if (item_bytes == v->element)
		return;
	v->axis[v->rank].extent = v->axis[v->rank].source = (int64_t)(item_bytes / v->element);
	v->axis[v->rank].before = 0;
	v->axis[v->rank].src_stride = v->axis[v->rank].dst_stride = v->element;
	v->axis[v->rank].of = v->rank;
	v->rank++;
}

/* Returns the current index of the axis that had index `of` before axes were fused. That axis must not have
 * been dropped or fused into another. */
static int axis_of(const struct view *v, int of)
{
	int d = 0;

	while (v->axis[d].of != of)
		d++;
	return d;
}

/* Drops axes of one element and fuses axes that are contiguous on both sides. */
static void view_reduce(struct view *v)
{
	struct view_axis reduced[TMA_MAX_RANK + 1];
	struct view_axis *inner;
	int n = 0;

	for (int d = v->rank - 1; d >= 0; d--) {
		const struct view_axis *outer = &v->axis[d];

		if (outer->extent == 1 && outer->source == 1 && !outer->is_fixed)
			continue;
		inner = n ? &reduced[n - 1] : NULL;
		if (inner && inner->extent == inner->source && !inner->is_fixed && !outer->is_fixed &&
		    outer->dst_stride == inner->dst_stride * inner->extent &&
		    outer->src_stride == inner->src_stride * inner->source &&
		    (outer->extent == outer->source || v->mode == TMA_PAD_CONSTANT)) {
			inner->extent *= outer->extent;
			inner->before = outer->before * inner->source;
			inner->source *= outer->source;
		} else {
			reduced[n++] = *outer;
		}
	}
	v->rank = n;
	for (int d = 0; d < n; d++)
		v->axis[d] = reduced[n - 1 - d];
	if (v->channel_of >= 0)
		v->channel = axis_of(v, v->channel_of);
	for (int i = 0; i < v->n_rests; i++)
		for (int j = 0; j < v->rest[i].rank; j++)
			v->rest[i].axis[j] = axis_of(v, v->rest[i].axis[j]);
}
