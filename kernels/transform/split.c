/* SPDX-License-Identifier: Apache-2.0 */
/* Splits dimensions and divides ragged ones into boxes.
 *
 * Let e0 e1 e2 be the digits of an extent, where digit i is an index of the i-th dimension into which the
 * splits divide the extent's dimension. The numbers below the extent are those that start with a digit below
 * e0, those that start with e0 and then a digit below e1, and those that start with e0 e1 and then a digit
 * below e2. Each digit that is not 0 therefore gives one piece. In a source, the numbers from the extent on
 * read as the padding value, and become borders of these pieces: where a piece starts with digits of the
 * extent, it also covers the larger values of those digits, and the last piece covers all values of its own
 * digit. A part is the intersection of one piece of each ragged dimension.
 */
#include "split.h"

#include <inttypes.h>

/* ---- Views -------------------------------------------------------------------------------------------- */

/* A tensor to which splits are being applied. origin has, for each dimension of the view, the dimension of
 * the tensor that it comes from. */
struct view {
	const char *name;
	struct tensor_layout layout;
	int8_t origin[TENSOR_MAX_RANK];
	bool is_split[TENSOR_MAX_RANK];
	bool is_inner[TENSOR_MAX_RANK]; /* the dimension holds the elements within a block */
};

static int check_split(const struct view *view, int i, int64_t d, int64_t n, struct error *err)
{
	const int rank = view->layout.rank;

	if (d < 0 || d >= rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split[%d]: %" PRId64
		                 " is not a dimension; before this split there are %d",
		                 view->name, i, d, rank);
	if (n < 1)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split[%d]: blocks of %" PRId64 ", but a block has at least 1 element",
		                 view->name, i, n);
	if (rank == TENSOR_MAX_RANK)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split[%d]: dimension %d, but a tensor has at most %d after its splits",
		                 view->name, i, rank + 1, TENSOR_MAX_RANK);
	if (view->is_inner[d] && view->layout.shape[d] % n)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split[%d]: blocks of %" PRId64 " do not divide dimension %" PRId64
		                 ", which is a block of %" PRId64
		                 "; only the last of all blocks may be incomplete",
		                 view->name, i, n, d, view->layout.shape[d]);
	return 0;
}

/* Replaces dimension d by blocks of n elements. Strides that no element uses are set to 0, as is the stride
 * of a single block, so that no product overflows. */
static void split_dim(struct view *view, int d, int64_t n, bool is_empty)
{
	struct tensor_layout *layout = &view->layout;
	const int64_t extent = layout->shape[d], stride = layout->stride[d];
	const int64_t blocks = extent / n + (extent % n != 0);

	for (int i = layout->rank++; i > d; i--) {
		layout->shape[i] = layout->shape[i - 1];
		layout->stride[i] = layout->stride[i - 1];
		view->origin[i] = view->origin[i - 1];
		view->is_split[i] = view->is_split[i - 1];
		view->is_inner[i] = view->is_inner[i - 1];
	}
	layout->shape[d] = blocks;
	layout->shape[d + 1] = n;
	layout->stride[d] = is_empty || blocks <= 1 ? 0 : n * stride;
	view->is_split[d] = view->is_split[d + 1] = true;
	view->is_inner[d + 1] = true;
}

static int check_count(const struct view *view, struct error *err)
{
	int64_t count = 1;

	for (int d = 0; d < view->layout.rank; d++)
		if (__builtin_mul_overflow(count, view->layout.shape[d] ?: 1, &count))
			return error_set(
			    err, STATUS_INVALID_ARGUMENT,
			    "%s.split: whole blocks make the number of elements overflow 63 bits",
			    view->name);
	return 0;
}

static int view_init(struct view *view, const char *name, const struct tensor_layout *layout,
                     const struct split_list *list, struct error *err)
{
	const bool is_empty = tensor_count(layout) == 0;

	*view = (struct view){ .name = name, .layout = *layout };
	for (int d = 0; d < layout->rank; d++)
		view->origin[d] = (int8_t)d;
	for (int i = 0; i < list->n; i++) {
		int r = check_split(view, i, list->dim[i], list->by[i], err);

		if (r < 0)
			return r;
		split_dim(view, (int)list->dim[i], list->by[i], is_empty);
	}
	return check_count(view, err);
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static int source_dim(const struct transform_spec *spec, int d)
{
	return spec->n_perm >= 0 ? (int)spec->perm[d] : d;
}

/* Checks shapes, perm, pads and the value, but no stride: the elements that an incomplete block lacks do not
 * exist and may lie anywhere. */
static int check_shapes(const struct transform_spec *spec, struct error *err)
{
	struct transform_spec shapes = *spec;
	struct transform t;

	for (int d = 0; d < TENSOR_MAX_RANK; d++)
		shapes.dst.stride[d] = shapes.src.stride[d] = 0;
	return transform_init(&t, &shapes, err);
}

static int check_pads(const struct transform_spec *spec, const struct view *dst, const struct view *src,
                      struct error *err)
{
	for (int d = 0; d < spec->dst.rank; d++) {
		const int64_t before = spec->n_before >= 0 ? spec->before[d] : 0;
		const int64_t after = spec->n_after >= 0 ? spec->after[d] : 0;

		if ((before || after) && (dst->is_split[d] || src->is_split[source_dim(spec, d)]))
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: %" PRId64 " for dimension %d, which a split made; it must be 0",
			                 before ? "before" : "after", before ?: after, d);
	}
	return 0;
}

/* ---- Ragged dimensions -------------------------------------------------------------------------------- */

/* Appends dimension k of the tensor to the ragged ones if it is ragged. */
static void add_rest(struct split *split, const struct view *view, int k, int64_t extent, bool is_src)
{
	const struct transform_spec *spec = &split->spec;
	struct split_rest *rest = &split->rest[split->n_rests];
	int64_t left = extent;

	*rest = (struct split_rest){ .is_src = is_src };
	for (int d = 0; d < view->layout.rank; d++)
		if (view->origin[d] == k && view->is_split[d])
			rest->dim[rest->rank++] = (int8_t)d;
	for (int j = rest->rank - 1; j >= 0; j--) {
		const int64_t n = view->layout.shape[rest->dim[j]];

		rest->digit[j] = j ? left % n : left;
		left /= n ?: 1;
		if (rest->digit[j] && !rest->last)
			rest->last = j;
	}
	if (rest->rank == 0 || rest->last == 0)
		return;
	if (is_src)
		for (int j = 0; j < rest->rank; j++)
			for (int d = 0; d < spec->dst.rank; d++)
				if (source_dim(spec, d) == rest->dim[j]) {
					rest->dim[j] = (int8_t)d;
					break;
				}
	split->n_rests++;
}

static void add_rests(struct split *split, const struct view *view, const struct tensor_layout *whole,
                      bool is_src)
{
	for (int k = 0; k < whole->rank; k++)
		add_rest(split, view, k, whole->shape[k], is_src);
}

static int check_mode(const struct split *split, struct error *err)
{
	const enum pad_mode mode = split->spec.mode;

	for (int i = 0; i < split->n_rests && mode != PAD_MODE_CONSTANT; i++)
		if (split->rest[i].is_src)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "mode: %s cannot fill the incomplete last block of src.split; only "
			                 "constant can",
			                 pad_mode_names[mode]);
	return 0;
}

/* ---- Parts -------------------------------------------------------------------------------------------- */

/* The output indices [start, end) of one dimension that a part covers, and those, [read_start, read_end),
 * that read the source. */
struct range {
	int64_t start, end;
	int64_t read_start, read_end;
};

static void limit(int64_t *start, int64_t *end, int64_t low, int64_t high)
{
	*start = low > *start ? low : *start;
	*end = high < *end ? high : *end;
}

/* Limits the ranges to piece i of a ragged dimension. */
static void take_piece(const struct split_rest *rest, int i, struct range *ranges)
{
	for (int j = 0; j <= i; j++) {
		struct range *range = &ranges[rest->dim[j]];
		const int64_t low = j < i ? rest->digit[j] : 0;
		const int64_t high = j < i ? rest->digit[j] + 1 : rest->digit[j];

		if (!rest->is_src) {
			limit(&range->start, &range->end, low, high);
			continue;
		}
		limit(&range->start, &range->end, low, j < i || i == rest->last ? INT64_MAX : high);
		limit(&range->read_start, &range->read_end, low, high);
	}
}

/* Sets the ranges of the part that is the intersection of the first n pieces. Returns false if the part is
 * empty. */
static bool take_pieces(const struct split *split, const uint8_t *pieces, int n, struct range *ranges)
{
	for (int d = 0; d < split->spec.dst.rank; d++)
		ranges[d] = (struct range){ 0, split->spec.dst.shape[d], 0, split->spec.dst.shape[d] };
	for (int i = 0; i < n; i++)
		take_piece(&split->rest[i], pieces[i], ranges);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < split->rest[i].rank; j++) {
			const struct range *range = &ranges[split->rest[i].dim[j]];

			if (range->start >= range->end)
				return false;
		}
	return true;
}

static int64_t count_of(const struct split *split, const struct range *ranges)
{
	int64_t count = 1;

	for (int d = 0; d < split->spec.dst.rank; d++)
		count *= ranges[d].end - ranges[d].start;
	return count;
}

static int refuse_many(const struct split *split, struct error *err)
{
	return error_set(err, STATUS_UNSUPPORTED,
	                 "split: the incomplete last blocks of %d dimensions divide the transform "
	                 "into more than %d parts",
	                 split->n_rests, SPLIT_MAX_PARTS);
}

/* Limits the effort of the search for parts: refuses a transform in which the ragged dimensions of either
 * side alone have too many combinations of pieces. */
static int check_pieces(const struct split *split, struct error *err)
{
	int n[2] = { 1, 1 };

	for (int i = 0; i < split->n_rests; i++) {
		const struct split_rest *rest = &split->rest[i];
		int pieces = 0;

		for (int j = 0; j <= rest->last; j++)
			pieces += rest->digit[j] != 0;
		n[rest->is_src] *= pieces;
		if (n[rest->is_src] > SPLIT_MAX_PARTS)
			return refuse_many(split, err);
	}
	return 0;
}

/* Adds all parts whose pieces in the first n ragged dimensions are given. *most is the number of elements of
 * the largest part so far. The pieces of a source's ragged dimension cover the whole result, so every branch
 * that is not empty ends in a part. */
static int add_parts(struct split *split, uint8_t *pieces, int n, int64_t *most, struct error *err)
{
	struct range ranges[TENSOR_MAX_RANK];
	int r = 0;

	if (!take_pieces(split, pieces, n, ranges))
		return 0;
	if (n < split->n_rests) {
		const struct split_rest *rest = &split->rest[n];

		for (int i = 0; i <= rest->last && r == 0; i++) {
			pieces[n] = (uint8_t)i;
			if (rest->digit[i])
				r = add_parts(split, pieces, n + 1, most, err);
		}
		return r;
	}
	if (split->n_parts == SPLIT_MAX_PARTS)
		return refuse_many(split, err);
	for (int i = 0; i < n; i++)
		split->piece[split->n_parts][i] = pieces[i];
	if (count_of(split, ranges) > *most) {
		*most = count_of(split, ranges);
		split->largest = split->n_parts;
	}
	split->n_parts++;
	return 0;
}

void split_none(struct split *ret, const struct transform_spec *spec)
{
	ret->spec = *spec;
	ret->dst = spec->dst;
	ret->src = spec->src;
	ret->dst_extent = tensor_extent(&spec->dst);
	ret->src_extent = tensor_extent(&spec->src);
	ret->n_rests = ret->largest = 0;
	ret->n_parts = 1;
}

/* Refuses operands that are tensors if there is a ragged dimension, because each part would need its own part
 * of them. */
static int check_operands(const struct split *split, struct error *err)
{
	const struct conversion_spec *conversion = &split->spec.conversion;
	bool scale = conversion->scale.kind == OPERAND_TENSOR, bias = conversion->bias.kind == OPERAND_TENSOR;

	if (split->n_rests && conversion->amax.is_given)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "amax: the last block of src.split is incomplete, which is padded; with amax it can "
		    "only be cropped");
	if (split->n_rests == 0 || (!scale && !bias))
		return 0;
	return error_set(err, STATUS_UNSUPPORTED,
	                 "%s: a tensor, but the last block of %s.split is incomplete; then only a number",
	                 scale ? "scale" : "bias", split->rest[0].is_src ? "src" : "dst");
}

int split_init(struct split *ret, const struct transform_spec *spec, const struct split_list *dst,
               const struct split_list *src, struct error *err)
{
	uint8_t pieces[2 * SPLIT_MAX];
	struct view to, from;
	int64_t most = -1;
	int r;

	if (spec->conversion.amax.is_given && dst->n > 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "amax: dst is split; blocks are of dst's own dimensions, and only src may be split");
	split_none(ret, spec);
	ret->n_parts = 0;
	ret->spec.dst_is_checked = true;
	r = view_init(&to, "dst", &spec->dst, dst, err);
	if (r == 0)
		r = view_init(&from, "src", &spec->src, src, err);
	if (r < 0)
		return r;
	ret->spec.dst = to.layout;
	ret->spec.src = from.layout;
	r = check_shapes(&ret->spec, err);
	if (r == 0)
		r = check_pads(&ret->spec, &to, &from, err);
	if (r == 0)
		r = transform_check_self_overlap(&spec->dst, "dst", err);
	if (r < 0)
		return r;
	add_rests(ret, &to, &spec->dst, false);
	add_rests(ret, &from, &spec->src, true);
	r = check_mode(ret, err);
	if (r == 0)
		r = check_operands(ret, err);
	if (r == 0)
		r = check_pieces(ret, err);
	if (r == 0)
		r = add_parts(ret, pieces, 0, &most, err);
	return r;
}

/* ---- A part ------------------------------------------------------------------------------------------- */

/* Sets dimension d of the part to a range. Pads and crops of dimensions that no split made are not
 * touched. */
static void set_dim(struct split_part *part, int d, const struct range *range)
{
	struct transform_spec *spec = &part->spec;
	const int s = source_dim(spec, d);
	const int64_t dst_size = dtype_size(spec->dst.dtype), src_size = dtype_size(spec->src.dtype);
	int64_t start = range->read_start, end = range->read_end;

	limit(&start, &end, range->start, range->end);
	if (end < start)
		start = end = range->start;
	spec->dst.shape[d] = range->end - range->start;
	spec->src.shape[s] = end - start;
	spec->before[d] = start - range->start;
	spec->after[d] = range->end - end;
	part->dst_offset += range->start * spec->dst.stride[d] * dst_size;
	if (end > start)
		part->src_offset += start * spec->src.stride[s] * src_size;
}

void split_get(const struct split *split, int i, struct split_part *ret)
{
	struct range ranges[TENSOR_MAX_RANK];
	struct transform_spec *spec = &ret->spec;
	bool is_set[TENSOR_MAX_RANK] = { 0 };

	*ret = (struct split_part){ .spec = split->spec };
	if (split->n_rests == 0)
		return;
	for (int d = 0; d < spec->dst.rank; d++) {
		spec->before[d] = spec->n_before >= 0 ? spec->before[d] : 0;
		spec->after[d] = spec->n_after >= 0 ? spec->after[d] : 0;
	}
	spec->n_before = spec->n_after = spec->dst.rank;
	take_pieces(split, split->piece[i], split->n_rests, ranges);
	for (int g = 0; g < split->n_rests; g++)
		for (int j = 0; j < split->rest[g].rank; j++) {
			const int d = split->rest[g].dim[j];

			if (!is_set[d])
				set_dim(ret, d, &ranges[d]);
			is_set[d] = true;
		}
}

struct transform_sides split_sides(const struct split *split)
{
	return (struct transform_sides){ .dst = &split->dst,
		                         .src = &split->src,
		                         .dst_extent = split->dst_extent,
		                         .src_extent = split->src_extent };
}
