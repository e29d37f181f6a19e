/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a view: --split divides dimensions of the input into blocks, --join puts blocks of the output
 * together, and --amax-block defines the blocks that have scales. */
#include "view.h"

#include <inttypes.h>
#include <string.h>

#include "proto/arithmetic.h"

/* ---- The input ---------------------------------------------------------------------------------------- */

static int check_split(const struct view_dims *dims, int64_t d, int64_t n, const char *text,
                       struct failure *f)
{
	if (d < 0 || d >= dims->rank)
		return fail(f, EXIT_USAGE, "--split %s: there is no dimension %" PRId64 " among %d", text, d,
		            dims->rank);
	if (n < 1)
		return fail(f, EXIT_USAGE, "--split %s: a block of %" PRId64 " has no element", text, n);
	if (dims->rank == TMA_MAX_RANK)
		return fail(f, EXIT_USAGE, "--split %s: more than %d dimensions", text, TMA_MAX_RANK);
	if (dims->is_inner[d] && dims->extent[d] % n)
		return fail(f, EXIT_USAGE,
		            "--split %s: blocks of %" PRId64 " do not divide dimension %" PRId64
		            ", which is a block of %" PRId64,
		            text, n, d, dims->extent[d]);
	return 0;
}

int view_split(struct view *v, struct view_dims *dims, const struct view_args *args, struct failure *f)
{
	struct view_splits *splits = &v->src_split;

	if (args->n_split > TMA_MAX_SPLIT)
		return fail(f, EXIT_USAGE, "--split %s: more than %d splits", args->split, TMA_MAX_SPLIT);
	for (int i = 0; i < args->n_split; i++) {
		int64_t d = args->split_dim[i] + (args->split_dim[i] < 0 ? dims->rank : 0),
			n = args->split_by[i];
		int64_t blocks;

		if (check_split(dims, d, n, args->split, f) < 0)
			return -1;
		blocks = dims->extent[d] / n + (dims->extent[d] % n != 0);
		for (int k = dims->rank++; k > d; k--) {
			dims->extent[k] = dims->extent[k - 1];
			dims->stride[k] = dims->stride[k - 1];
			dims->origin[k] = dims->origin[k - 1];
			dims->is_split[k] = dims->is_split[k - 1];
			dims->is_inner[k] = dims->is_inner[k - 1];
		}
		dims->extent[d] = blocks;
		dims->extent[d + 1] = n;
		dims->stride[d] = blocks > 1 ? n * dims->stride[d] : 0;
		dims->is_split[d] = dims->is_split[d + 1] = true;
		dims->is_inner[d + 1] = true;
		splits->pair[2 * i] = d;
		splits->pair[2 * i + 1] = n;
		splits->n++;
	}
	return 0;
}

/* Completes the ragged dimension in v->rest[v->n_rests], whose axes must be set: computes the digits of its
 * extent n. Drops it if all digits but the first are 0, because its last block is complete then. */
static void rest_end(struct view *v, int64_t n)
{
	struct view_rest *rest = &v->rest[v->n_rests];
	bool is_ragged = false;

	for (int j = rest->rank - 1; j >= 0; j--) {
		int64_t radix = v->axis[rest->axis[j]].extent;

		rest->digit[j] = j ? n % radix : n;
		n /= radix ? radix : 1;
		is_ragged |= j && rest->digit[j];
	}
	if (!is_ragged)
		return;
	for (int j = 0; j < rest->rank; j++)
		v->axis[rest->axis[j]].is_fixed = true;
	v->n_rests++;
}

void view_add_src_rests(struct view *v, const struct view_dims *dims, const int64_t *shape,
                        const struct view_args *args)
{
	for (int k = 0; k < dims->rank; k++) {
		struct view_rest *rest = &v->rest[v->n_rests];

		if (!dims->is_split[k] || dims->is_inner[k])
			continue;
		*rest = (struct view_rest){ .is_src = true };
		for (int i = k; i < dims->rank && dims->origin[i] == dims->origin[k]; i++)
			for (int d = 0; d < dims->rank; d++)
				if (view_dimension(args, dims->rank, d) == i)
					rest->axis[rest->rank++] = d;
		rest_end(v, shape[dims->origin[k]]);
	}
}

/* ---- The output --------------------------------------------------------------------------------------- */

/* The dimensions of the output while joins are carried out. Dimension d consists of the n[d] axes from
 * axis[d] on. */
struct joined {
	int rank;
	int axis[TMA_MAX_RANK];
	int n[TMA_MAX_RANK];
	bool has_rest[TMA_MAX_RANK]; /* the last block of the dimension is incomplete */
};

static int check_join(const struct view *v, const struct joined *j, int64_t d, int64_t to,
                      const bool *is_padded, const char *text, struct failure *f)
{
	const int64_t *shape = v->out_shape;
	int64_t most;

	if (d < 0 || d + 1 >= j->rank)
		return fail(f, EXIT_USAGE,
		            "--join %s: there are no dimensions %" PRId64 " and %" PRId64 " among %d", text,
		            d, d + 1, j->rank);
	if (j->has_rest[d + 1])
		return fail(f, EXIT_USAGE,
		            "--join %s: the last block of dimension %" PRId64
		            " is incomplete; only that of the outermost of joined dimensions may be",
		            text, d + 1);
	for (int64_t i = d; i < d + 2; i++)
		for (int k = 0; k < j->n[i]; k++)
			if (is_padded[j->axis[i] + k])
				return fail(f, EXIT_USAGE,
				            "--join %s: --pad changes dimension %d of what is joined", text,
				            j->axis[i] + k);
	if (__builtin_mul_overflow(shape[d], shape[d + 1], &most))
		return fail(f, EXIT_USAGE, "--join %s: the extent overflows 63 bits", text);
	if (to < 0 || to > most || (most && to <= most - shape[d + 1]))
		return fail(f, EXIT_USAGE,
		            "--join %s: %" PRId64 " elements, but %" PRId64 " blocks of %" PRId64
		            " hold %" PRId64 " to %" PRId64,
		            text, to, shape[d], shape[d + 1], most ? most - shape[d + 1] + 1 : 0, most);
	return 0;
}

/* Sets the output strides of the axes. They may overflow and are meaningless then; view_init() refuses such
 * sizes later. */
static void set_strides(struct view *v, const struct joined *j, uint64_t item_bytes)
{
	uint64_t run = item_bytes;

	for (int d = j->rank - 1; d >= 0; d--) {
		uint64_t stride = run;

		for (int k = j->n[d] - 1; k >= 0; k--) {
			struct view_axis *axis = &v->axis[j->axis[d] + k];

			axis->dst_stride = (int64_t)stride;
			stride *= (uint64_t)axis->extent;
		}
		run *= (uint64_t)v->out_shape[d];
	}
}

static void add_dst_rests(struct view *v, const struct joined *j)
{
	for (int d = 0; d < j->rank; d++) {
		struct view_rest *rest = &v->rest[v->n_rests];

		if (j->n[d] == 1)
			continue;
		*rest = (struct view_rest){ .rank = j->n[d] };
		for (int k = 0; k < j->n[d]; k++)
			rest->axis[k] = j->axis[d] + k;
		rest_end(v, v->out_shape[d]);
	}
}

/* Records join i of n as a split of the output, as the library describes blocks on either side. Splits undo
 * the joins, so the last join becomes the first split. */
static void join_is_split(struct view_splits *splits, int i, int n, int64_t d, int64_t by)
{
	splits->n = n;
	splits->pair[2 * (n - 1 - i)] = d;
	splits->pair[2 * (n - 1 - i) + 1] = by;
}

int view_join(struct view *v, const struct view_args *args, uint64_t item_bytes, const bool *is_padded,
              struct failure *f)
{
	struct joined j = { .rank = v->out_rank };

	if (args->n_join > TMA_MAX_SPLIT)
		return fail(f, EXIT_USAGE, "--join %s: more than %d joins", args->join, TMA_MAX_SPLIT);
	for (int d = 0; d < j.rank; d++) {
		j.axis[d] = d;
		j.n[d] = 1;
	}
	for (int i = 0; i < args->n_join; i++) {
		int64_t d = args->join_dim[i] + (args->join_dim[i] < 0 ? j.rank : 0), to = args->join_to[i];

		if (check_join(v, &j, d, to, is_padded, args->join, f) < 0)
			return -1;
		join_is_split(&v->dst_split, i, args->n_join, d, v->out_shape[d + 1]);
		j.has_rest[d] |= to != v->out_shape[d] * v->out_shape[d + 1];
		v->out_shape[d] = to;
		j.n[d] += j.n[d + 1];
		j.rank--;
		for (int64_t k = d + 1; k < j.rank; k++) {
			v->out_shape[k] = v->out_shape[k + 1];
			j.axis[k] = j.axis[k + 1];
			j.n[k] = j.n[k + 1];
			j.has_rest[k] = j.has_rest[k + 1];
		}
	}
	v->out_rank = j.rank;
	add_dst_rests(v, &j);
	set_strides(v, &j, item_bytes);
	return 0;
}

/* ---- Scales ------------------------------------------------------------------------------------------- */

static int check_blocks(const struct view *v, const struct view_args *args, struct failure *f)
{
	if (args->join)
		return fail(f, EXIT_USAGE,
		            "--amax-block %s: not beside --join; blocks are of dimensions as they are moved",
		            args->block_text);
	if (args->n_block > v->out_rank)
		return fail(f, EXIT_USAGE, "--amax-block %s: it names %d dimension%s, but the output has %d",
		            args->block_text, args->n_block, args->n_block == 1 ? "" : "s", v->out_rank);
	if (v->n_rests)
		return fail(
		    f, EXIT_USAGE,
		    "--amax-block %s: the last block of --split %s is incomplete, and would be filled",
		    args->block_text, args->split);
	for (int d = 0; d < v->out_rank; d++)
		if (v->axis[d].extent != v->axis[d].source)
			return fail(f, EXIT_USAGE,
			            "--amax-block %s: --pad %s adds to dimension %d; beside blocks it can "
			            "only crop",
			            args->block_text, args->pad, d);
	return 0;
}

int view_set_blocks(struct view *v, const struct view_args *args, struct failure *f)
{
	const int missing = v->out_rank - args->n_block;

	if (!args->block_text)
		return 0;
	if (check_blocks(v, args, f) < 0)
		return -1;
	v->scale_element = args->scale_item_bytes;
	v->scale_bytes = args->scale_item_bytes;
	for (int d = 0; d < v->out_rank; d++) {
		struct view_axis *axis = &v->axis[d];
		const int64_t whole = max_i64(axis->extent, 1);

		axis->is_fixed = true;
		axis->block = d < missing                      ? 1
		              : args->block[d - missing] == -1 ? whole
		                                               : min_i64(args->block[d - missing], whole);
		v->scale_shape[d] = divide_up_i64(axis->extent, axis->block);
		v->scale_bytes *= (uint64_t)v->scale_shape[d]; /* at most 4 times dst_bytes: no overflow */
	}
	return 0;
}
