/* SPDX-License-Identifier: Apache-2.0 */
/* Cases are drawn starting from the views: consecutive extents of the result may be the digits of one split
 * dimension of the destination, of the source, or of both. */
#include "split_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arithmetic.h"

#define MOST_DIMS 8 /* most dimensions of a view */

/* ---- The oracle --------------------------------------------------------------------------------------- */

static int view_of(const struct tensor_layout *layout, const struct split_list *list, int64_t *extents)
{
	int rank = layout->rank;

	memcpy(extents, layout->shape, sizeof layout->shape);
	for (int i = 0; i < list->n; i++) {
		int64_t d = list->dim[i], n = list->by[i];

		memmove(&extents[d + 1], &extents[d], (size_t)(rank++ - d) * sizeof *extents);
		extents[d] = extents[d] / n + (extents[d] % n > 0);
		extents[d + 1] = n;
	}
	return rank;
}

/* Converts an index of the view to bytes from element [0, ..., 0]. Returns false if there is no such
 * element. */
static bool find_element(const struct tensor_layout *layout, const struct split_list *list,
                         const int64_t *index, int64_t *ret)
{
	int64_t joined[TENSOR_MAX_RANK];
	int rank = layout->rank + list->n;

	memcpy(joined, index, sizeof joined);
	for (int i = list->n - 1; i >= 0; i--) {
		int64_t d = list->dim[i];

		joined[d] = joined[d] * list->by[i] + joined[d + 1];
		memmove(&joined[d + 1], &joined[d + 2], (size_t)(rank-- - d - 2) * sizeof *joined);
	}
	*ret = 0;
	for (int d = 0; d < layout->rank; d++) {
		if (joined[d] >= layout->shape[d])
			return false;
		*ret += joined[d] * layout->stride[d] * dtype_size(layout->dtype);
	}
	return true;
}

void split_oracle_walk(const struct transform_spec *spec, const struct split_list *dst,
                       const struct split_list *src, split_visit_fn *visit, void *arg)
{
	int64_t from[TENSOR_MAX_RANK], o[TENSOR_MAX_RANK] = { 0 }, index[TENSOR_MAX_RANK] = { 0 };
	int64_t permuted[TENSOR_MAX_RANK] = { 0 };
	int64_t source[TENSOR_MAX_RANK], before, after, to, at;
	int d, rank = view_of(&spec->src, src, from);

	view_of(&spec->dst, dst, source);
	for (d = 0; d < rank; d++)
		if (!source[d])
			return;
	do {
		bool read = true;

		for (d = 0; d < rank; d++) {
			int s = spec->n_perm < 0 ? d : (int)spec->perm[d];

			before = spec->n_before < 0 ? 0 : spec->before[d];
			after = spec->n_after < 0 ? 0 : spec->after[d];
			index[s] = oracle_index(o[d], before > 0 ? before : 0,
			                        from[s] + (before < 0 ? before : 0) + (after < 0 ? after : 0),
			                        spec->mode);
			read &= index[s] >= 0;
			index[s] -= before < 0 ? before : 0;
			permuted[d] = index[s];
		}
		if (find_element(&spec->dst, dst, o, &to)) {
			read = read && find_element(&spec->src, src, index, &at);
			visit(arg, to, read ? &at : NULL, permuted);
		}
		for (d = rank - 1; d >= 0 && ++o[d] == source[d]; d--)
			o[d] = 0;
	} while (d >= 0);
}

struct moved {
	uint8_t *dst;
	const uint8_t *src;
	size_t size;
	uint8_t value[TENSOR_MAX_ELEMENT];
};

static void move_element(void *arg, int64_t to, const int64_t *from, const int64_t *index)
{
	const struct moved *moved = arg;

	(void)index;
	memcpy(moved->dst + to, from ? moved->src + *from : moved->value, moved->size);
}

void split_oracle_run(const struct transform_spec *spec, const struct split_list *dst,
                      const struct split_list *src, uint8_t *dst_origin, const uint8_t *src_origin)
{
	struct moved moved = { .dst = dst_origin, .src = src_origin, .size = dtype_size(spec->dst.dtype) };
	struct error err;

	if (scalar_encode(&spec->value, spec->dst.dtype, moved.value, "value", &err))
		abort();
	split_oracle_walk(spec, dst, src, move_element, &moved);
}

/* ---- Random cases ------------------------------------------------------------------------------------- */

static bool one_in(uint64_t *state, int n)
{
	return oracle_between(state, 1, n) == 1;
}

/* Splits tensor dimension k into extents of the n view dimensions from d on, counting either from the
 * outermost or from the innermost. */
static void add_splits(uint64_t *state, struct split_list *list, int d, int n, const int64_t *extents)
{
	bool outside = one_in(state, 2);
	int64_t inner = 1;

	for (int i = 1; i < n; i++)
		inner *= extents[i];
	for (int i = 1; i < n; i++) {
		list->dim[list->n] = outside ? d + i - 1 : d;
		list->by[list->n++] = outside ? inner : extents[n - i];
		inner /= extents[i];
	}
}

/* Makes a tensor that has this view, by joining some runs of dimensions without padding. Splits are listed
 * from the first dimension on, so a later one's dimension number counts the dimensions that earlier splits
 * have made. */
static void join_dims(uint64_t *state, int rank, const int64_t *extents, const bool *is_padded,
                      struct tensor_layout *ret, struct split_list *list)
{
	int d = 0, n;

	list->n = ret->rank = 0;
	while (d < rank) {
		int64_t inner = 1, blocks = extents[d];

		for (n = 1; d + n < rank && n < 4 && !is_padded[d] && !is_padded[d + n] && extents[d + n] &&
		            blocks && !one_in(state, 3);
		     n++)
			inner *= extents[d + n];
		ret->shape[ret->rank++] = n == 1 || one_in(state, 5)
		                              ? blocks * inner
		                              : (blocks - 1) * inner + oracle_between(state, 1, inner);
		if (n > 1)
			add_splits(state, list, d, n, &extents[d]);
		d += n;
	}
}

static void random_order(uint64_t *state, int n, int64_t *order)
{
	for (int i = 0; i < n; i++) {
		int j = (int)oracle_between(state, 0, i);

		order[i] = order[j];
		order[j] = i;
	}
}

static void random_strides(uint64_t *state, struct tensor_layout *layout, bool repeat)
{
	int64_t order[TENSOR_MAX_RANK], step = one_in(state, 6) ? oracle_between(state, 2, 3) : 1;
	bool shuffled = one_in(state, 3), gaps = one_in(state, 3), turned = one_in(state, 3);

	random_order(state, layout->rank, order);
	for (int i = 0; i < layout->rank; i++) {
		int d = shuffled ? (int)order[i] : layout->rank - 1 - i;

		layout->stride[d] = repeat && one_in(state, 3)   ? 0
		                    : turned && one_in(state, 2) ? -step
		                                                 : step;
		step *= layout->stride[d] && layout->shape[d] ? layout->shape[d] : 1;
		step += gaps && step < 1000 ? oracle_between(state, 0, 5) : 0;
	}
}

static void random_place(uint64_t *state, const struct tensor_layout *layout, uint64_t *ret_offset,
                         size_t *ret_size)
{
	struct tensor_extent extent = tensor_extent(layout);
	int64_t lead = one_in(state, 2) ? 16 * oracle_between(state, 0, 2) : oracle_between(state, 0, 33);

	*ret_offset = (uint64_t)(lead - extent.low);
	*ret_size = (size_t)(lead - extent.low + extent.high + oracle_between(state, 0, 17));
}

static bool has_rest(const struct tensor_layout *layout, const struct split_list *list)
{
	int64_t extents[TENSOR_MAX_RANK], view = 1, count = 1;
	int rank = view_of(layout, list, extents);

	for (int d = 0; d < rank; d++)
		view *= extents[d] ?: 1;
	for (int d = 0; d < layout->rank; d++)
		count *= layout->shape[d] ?: 1;
	return view != count;
}

void split_random_case(uint64_t seed, struct split_case *ret)
{
	static const int64_t likely[] = { 1, 2, 3, 4, 4, 5, 7, 8, 16, 17 };
	uint64_t state = seed;
	struct transform_spec *spec = &ret->c.spec;
	enum dtype dtype = (enum dtype)oracle_between(&state, 0, DTYPE_COUNT - 1);
	int rank = (int)oracle_between(&state, 1, MOST_DIMS);
	int64_t from[TENSOR_MAX_RANK], to[TENSOR_MAX_RANK], room = 12000 / dtype_size(dtype), growth = 1;
	bool from_padded[TENSOR_MAX_RANK] = { 0 }, to_padded[TENSOR_MAX_RANK] = { 0 };

	*ret = (struct split_case){ .c = { .seed = seed } };
	for (int d = 0; d < rank; d++) {
		from[d] = likely[oracle_between(&state, 0, sizeof likely / sizeof *likely - 1)];
		from[d] = from[d] > room ? 1 : from[d];
		room /= from[d];
	}
	if (one_in(&state, 50))
		from[oracle_between(&state, 0, rank - 1)] = 0;
	spec->n_perm = one_in(&state, 5) ? -1 : rank;
	random_order(&state, rank, spec->perm);
	for (int d = 0; d < rank; d++)
		to_padded[d] = from_padded[spec->n_perm < 0 ? d : spec->perm[d]] = one_in(&state, 6);

	spec->src.dtype = spec->dst.dtype = dtype;
	join_dims(&state, rank, from, from_padded, &spec->src, &ret->src);
	spec->n_before = spec->n_after = one_in(&state, 8) ? -1 : rank;
	spec->mode = has_rest(&spec->src, &ret->src)
	                 ? PAD_MODE_CONSTANT
	                 : (enum pad_mode)oracle_between(&state, 0, PAD_MODE_COUNT - 1);
	for (int d = 0; d < rank; d++) {
		int64_t n = from[spec->n_perm < 0 ? d : spec->perm[d]];

		to[d] = n;
		if (!to_padded[d] || spec->n_before < 0 || n == 0 || growth > 3)
			continue;
		spec->before[d] = oracle_between(&state, n > 2 ? -1 : 0, 3);
		spec->after[d] = oracle_between(&state, n > 2 ? -1 : 0, 3);
		to[d] += spec->before[d] + spec->after[d];
		growth *= to[d] > n ? divide_up_i64(to[d], n) : 1;
	}
	join_dims(&state, rank, to, to_padded, &spec->dst, &ret->dst);
	if (spec->mode == PAD_MODE_CONSTANT)
		spec->value =
		    (struct scalar){ .kind = SCALAR_UNSIGNED, .u = (uint64_t)oracle_between(&state, 0, 1) };
	random_strides(&state, &spec->src, one_in(&state, 6));
	random_strides(&state, &spec->dst, false);
	random_place(&state, &spec->src, &ret->c.src_offset, &ret->c.src_size);
	random_place(&state, &spec->dst, &ret->c.dst_offset, &ret->c.dst_size);
}

bool split_case_prepare(struct split_case *c)
{
	if (!oracle_case_allocate(&c->c))
		return false;
	split_oracle_run(&c->c.spec, &c->dst, &c->src, c->c.expected + ORACLE_GUARD + c->c.dst_offset,
	                 oracle_src(&c->c) + c->c.src_offset);
	return true;
}

static size_t append_list(char *text, size_t size, const char *name, const struct split_list *list)
{
	size_t len = (size_t)snprintf(text, size, " %s", name);

	for (int i = 0; i < list->n && len < size; i++)
		len += (size_t)snprintf(text + len, size - len, " %" PRId64 ":%" PRId64, list->dim[i],
		                        list->by[i]);
	return len < size ? len : size;
}

void split_case_text(const struct split_case *c, char *text, size_t text_size)
{
	size_t len;

	oracle_case_text(&c->c, text, text_size);
	len = strlen(text);
	len += append_list(text + len, text_size - len, "src split", &c->src);
	if (len < text_size)
		append_list(text + len, text_size - len, "dst split", &c->dst);
}
