/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parts of transforms between split tensors, and what split_init refuses with which message.
 * tests/unit/cpu/property_split.c tests that parts move the right elements. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/transform/split.h"
#include "tests/support/split_case.h"

struct list {
	int n;
	int64_t at[16];
};

#define LIST(...)                                                     \
	{                                                             \
		sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), \
		{                                                     \
			__VA_ARGS__                                   \
		}                                                     \
	}

/* A request as rows write it; a list with n 0 is absent. */
struct request {
	struct list src, src_split, dst, dst_split, dst_strides, perm, before, after;
	enum pad_mode mode;
};

static void list_of(const struct list *from, struct split_list *ret)
{
	ret->n = from->n / 2;
	for (int i = 0; i < ret->n; i++) {
		ret->dim[i] = from->at[2 * i];
		ret->by[i] = from->at[2 * i + 1];
	}
}

static int request_split(const struct request *r, struct split *ret, struct error *err)
{
	struct transform_spec spec = { .n_perm = r->perm.n ?: -1,
		                       .n_before = r->before.n ?: -1,
		                       .n_after = r->after.n ?: -1,
		                       .mode = r->mode };
	struct split_list dst, src;

	for (int d = 0; d < 16; d++) {
		spec.perm[d] = r->perm.at[d];
		spec.before[d] = r->before.at[d];
		spec.after[d] = r->after.at[d];
	}
	cr_assert_eq(tensor_layout_init(&spec.src, DTYPE_FLOAT16, r->src.n, r->src.at, NULL, "src", err), 0,
	             "%s", err->message);
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_FLOAT16, r->dst.n, r->dst.at,
	                                r->dst_strides.n ? r->dst_strides.at : NULL, "dst", err),
	             0, "%s", err->message);
	list_of(&r->dst_split, &dst);
	list_of(&r->src_split, &src);
	return split_init(ret, &spec, &dst, &src, err);
}

/* ---- Parts -------------------------------------------------------------------------------------------- */

struct part_row {
	char name[64];
	struct request request;
	int n_parts;
	/* The rest describes the largest part. */
	struct list dst;  /* its shape */
	struct list read; /* shape of its source */
	int64_t dst_offset, src_offset;
};

static struct part_row part_rows[] = {
	{ "nothing is split",
	  { .src = LIST(6, 5), .dst = LIST(5, 6), .perm = LIST(1, 0) },
	  1,
	  LIST(5, 6),
	  LIST(6, 5),
	  0,
	  0 },
	{ "whole blocks are more dimensions",
	  { .src = LIST(2, 32, 7, 7),
	    .src_split = LIST(1, 16),
	    .dst = LIST(2, 2, 7, 7, 16),
	    .perm = LIST(0, 1, 3, 4, 2) },
	  1,
	  LIST(2, 2, 7, 7, 16),
	  LIST(2, 2, 16, 7, 7),
	  0,
	  0 },
	{ "nChw16c of 50 channels",
	  { .src = LIST(2, 50, 7, 7),
	    .src_split = LIST(1, 16),
	    .dst = LIST(2, 4, 7, 7, 16),
	    .perm = LIST(0, 1, 3, 4, 2) },
	  2,
	  LIST(2, 3, 7, 7, 16),
	  LIST(2, 3, 16, 7, 7),
	  0,
	  0 },
	{ "nChw16c of 15 channels: one block",
	  { .src = LIST(2, 15, 7, 7),
	    .src_split = LIST(1, 16),
	    .dst = LIST(2, 1, 7, 7, 16),
	    .perm = LIST(0, 1, 3, 4, 2) },
	  1,
	  LIST(2, 1, 7, 7, 16),
	  LIST(2, 1, 15, 7, 7),
	  0,
	  0 },
	{ "nChw16c to 50 channels",
	  { .src = LIST(2, 4, 7, 7, 16),
	    .dst = LIST(2, 50, 7, 7),
	    .dst_split = LIST(1, 16),
	    .perm = LIST(0, 1, 4, 2, 3) },
	  2,
	  LIST(2, 3, 16, 7, 7),
	  LIST(2, 3, 7, 7, 16),
	  0,
	  0 },
	{ "the last rows are the largest part",
	  { .src = LIST(10), .src_split = LIST(0, 32, 1, 8), .dst = LIST(1, 4, 8) },
	  2,
	  LIST(1, 3, 8),
	  LIST(1, 1, 2),
	  16,
	  16 },
	{ "scale factors, ragged M and K",
	  { .src = LIST(300, 10),
	    .src_split = LIST(0, 128, 1, 32, 3, 4),
	    .dst = LIST(3, 3, 32, 4, 4),
	    .perm = LIST(0, 3, 2, 1, 4) },
	  6,
	  LIST(2, 2, 32, 4, 4),
	  LIST(2, 4, 32, 2, 4),
	  0,
	  0 },
	{ "scale factors, M of whole rows of 32",
	  { .src = LIST(320, 8),
	    .src_split = LIST(0, 128, 1, 32, 3, 4),
	    .dst = LIST(3, 2, 32, 4, 4),
	    .perm = LIST(0, 3, 2, 1, 4) },
	  2,
	  LIST(2, 2, 32, 4, 4),
	  LIST(2, 4, 32, 2, 4),
	  0,
	  0 },
	{ "the same split on both sides",
	  { .src = LIST(100), .src_split = LIST(0, 32), .dst = LIST(100), .dst_split = LIST(0, 32) },
	  2,
	  LIST(3, 32),
	  LIST(3, 32),
	  0,
	  0 },
	{ "both sides ragged, of different lengths",
	  { .src = LIST(70), .src_split = LIST(0, 32), .dst = LIST(90), .dst_split = LIST(0, 32) },
	  2,
	  LIST(2, 32),
	  LIST(2, 32),
	  0,
	  0 },
	{ "a part that is only fill",
	  { .src = LIST(40), .src_split = LIST(0, 32, 1, 8), .dst = LIST(2, 4, 8) },
	  2,
	  LIST(1, 4, 8),
	  LIST(1, 4, 8),
	  0,
	  0 },
	{ "nothing of what is ragged exists",
	  { .src = LIST(0), .src_split = LIST(0, 32), .dst = LIST(0, 32) },
	  1,
	  LIST(0, 32),
	  LIST(0, 32),
	  0,
	  0 },
	{ "blocks larger than anything",
	  { .src = LIST(3),
	    .src_split = LIST(0, INT64_C(1) << 40),
	    .dst = LIST(3),
	    .dst_split = LIST(0, INT64_C(1) << 40) },
	  1,
	  LIST(1, 3),
	  LIST(1, 3),
	  0,
	  0 },
	{ "pads of other dimensions stay",
	  { .src = LIST(5, 20),
	    .src_split = LIST(1, 16),
	    .dst = LIST(2, 8, 16),
	    .perm = LIST(1, 0, 2),
	    .before = LIST(0, 1, 0),
	    .after = LIST(0, 2, 0) },
	  2,
	  LIST(1, 8, 16),
	  LIST(5, 1, 16),
	  0,
	  0 },
	{ "another mode, when only the destination is ragged",
	  { .src = LIST(5, 2, 16),
	    .dst = LIST(8, 20),
	    .dst_split = LIST(1, 16),
	    .before = LIST(1, 0, 0),
	    .after = LIST(2, 0, 0),
	    .mode = PAD_MODE_REFLECT },
	  2,
	  LIST(8, 1, 16),
	  LIST(5, 1, 16),
	  0,
	  0 },
};

ParameterizedTestParameters(split, parts)
{
	return cr_make_param_array(struct part_row, part_rows, sizeof part_rows / sizeof *part_rows);
}

static void assert_list(const char *name, const char *what, const struct list *list, int rank,
                        const int64_t *shape)
{
	char got[200], wanted[200];

	cr_assert_str_eq(tensor_shape_text(rank, shape, got, sizeof got),
	                 tensor_shape_text(list->n, list->at, wanted, sizeof wanted), "%s: %s: %s, not %s",
	                 name, what, got, wanted);
}

ParameterizedTest(struct part_row *row, split, parts)
{
	struct split_part part;
	struct split split;
	struct error err;

	cr_assert_eq(request_split(&row->request, &split, &err), 0, "%s: %s", row->name, err.message);
	cr_assert_eq(split.n_parts, row->n_parts, "%s: %d parts", row->name, split.n_parts);
	split_get(&split, split.largest, &part);
	assert_list(row->name, "dst", &row->dst, part.spec.dst.rank, part.spec.dst.shape);
	assert_list(row->name, "read", &row->read, part.spec.src.rank, part.spec.src.shape);
	cr_assert_eq(part.dst_offset, row->dst_offset, "%s", row->name);
	cr_assert_eq(part.src_offset, row->src_offset, "%s", row->name);
}

/* Compares the offsets of all parts of a transform. */
Test(split, offsets_of_parts)
{
	static const struct request request = { .src = LIST(2, 50, 7, 7),
		                                .src_split = LIST(1, 16),
		                                .dst = LIST(2, 4, 7, 7, 16),
		                                .perm = LIST(0, 1, 3, 4, 2) };
	struct split_part part;
	struct split split;
	struct error err;

	cr_assert_eq(request_split(&request, &split, &err), 0, "%s", err.message);
	split_get(&split, 1, &part);
	cr_assert_eq(part.dst_offset, 3 * 7 * 7 * 16 * 2);
	cr_assert_eq(part.src_offset, 48 * 7 * 7 * 2);
	cr_assert_eq(part.spec.src.shape[2], 2, "two channels are left");
	cr_assert_eq(part.spec.after[4], 14, "and what the block lacks is filled");
}

/* The parts have as many elements together as exist, and share no byte, so every element is written once. */
Test(split, parts_are_disjoint)
{
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		struct split_case c;
		struct split split;
		struct error err;
		int64_t count = 0;
		uint8_t *marks;

		split_random_case(seed, &c);
		cr_assert_eq(split_init(&split, &c.c.spec, &c.dst, &c.src, &err), 0, "seed %lu: %s", seed,
		             err.message);
		marks = calloc(c.c.dst_size + 1, 1);
		for (int i = 0; i < split.n_parts; i++) {
			struct transform_spec *spec;
			struct split_part part;
			int64_t index[TENSOR_MAX_RANK] = { 0 };
			int d;

			split_get(&split, i, &part);
			spec = &part.spec;
			count += tensor_count(&spec->dst);
			if (tensor_count(&spec->dst) == 0)
				continue;
			do {
				int64_t at = (int64_t)c.c.dst_offset + part.dst_offset;

				for (d = 0; d < spec->dst.rank; d++)
					at += index[d] * spec->dst.stride[d] * dtype_size(spec->dst.dtype);
				cr_assert_eq(marks[at]++, 0, "seed %lu: byte %ld twice", seed, at);
				for (d = spec->dst.rank - 1; d >= 0 && ++index[d] == spec->dst.shape[d]; d--)
					index[d] = 0;
			} while (d >= 0);
		}
		free(marks);
		cr_assert_eq(count, tensor_count(&c.c.spec.dst), "seed %lu", seed);
	}
}

/* ---- Refusals ----------------------------------------------------------------------------------------- */

struct refusal_row {
	char name[64];
	struct request request;
	int status;
	char message[200];
};

static struct refusal_row refusal_rows[] = {
	{ "no such dimension",
	  { .src = LIST(6, 4), .src_split = LIST(0, 2, 3, 2), .dst = LIST(3, 2, 4) },
	  STATUS_INVALID_ARGUMENT,
	  "src.split[1]: 3 is not a dimension; before this split there are 3" },
	{ "a negative dimension",
	  { .src = LIST(6), .dst = LIST(6), .dst_split = LIST(-1, 2) },
	  STATUS_INVALID_ARGUMENT,
	  "dst.split[0]: -1 is not a dimension; before this split there are 1" },
	{ "blocks of nothing",
	  { .src = LIST(6), .src_split = LIST(0, 0), .dst = LIST(6) },
	  STATUS_INVALID_ARGUMENT,
	  "src.split[0]: blocks of 0, but a block has at least 1 element" },
	{ "blocks of less",
	  { .src = LIST(6), .src_split = LIST(0, INT64_MIN), .dst = LIST(6) },
	  STATUS_INVALID_ARGUMENT,
	  "src.split[0]: blocks of -9223372036854775808, but a block has at least 1 element" },
	{ "an incomplete block in every block",
	  { .src = LIST(256), .src_split = LIST(0, 128, 1, 48), .dst = LIST(2, 3, 48) },
	  STATUS_INVALID_ARGUMENT,
	  "src.split[1]: blocks of 48 do not divide dimension 1, which is a block of 128; only the last of all blocks "
	  "may be incomplete" },
	{ "blocks overflow",
	  { .src = LIST(1, 1),
	    .src_split = LIST(0, INT64_C(1) << 40, 2, INT64_C(1) << 40),
	    .dst = LIST(1, 1) },
	  STATUS_INVALID_ARGUMENT,
	  "src.split: whole blocks make the number of elements overflow 63 bits" },
	{ "views of different ranks",
	  { .src = LIST(64), .src_split = LIST(0, 32), .dst = LIST(64) },
	  STATUS_INVALID_ARGUMENT,
	  "dst.shape: rank 1, but src has rank 2; a transform does not change the rank" },
	{ "views of different extents",
	  { .src = LIST(65), .src_split = LIST(0, 32), .dst = LIST(2, 32) },
	  STATUS_INVALID_ARGUMENT,
	  "dst.shape: dimension 0 is 2, but the transform produces 3" },
	{ "perm of the tensor's rank",
	  { .src = LIST(64), .src_split = LIST(0, 32), .dst = LIST(2, 32), .perm = LIST(0) },
	  STATUS_INVALID_ARGUMENT,
	  "perm: length 1, but src has rank 2; each dimension needs one entry" },
	{ "a pad of a source's block",
	  { .src = LIST(64), .src_split = LIST(0, 32), .dst = LIST(2, 33), .before = LIST(0, 1) },
	  STATUS_INVALID_ARGUMENT,
	  "before: 1 for dimension 1, which a split made; it must be 0" },
	{ "a crop of a destination's blocks",
	  { .src = LIST(3, 32), .dst = LIST(64), .dst_split = LIST(0, 32), .after = LIST(-1, 0) },
	  STATUS_INVALID_ARGUMENT,
	  "after: -1 for dimension 0, which a split made; it must be 0" },
	{ "an incomplete block without a value",
	  { .src = LIST(60), .src_split = LIST(0, 32), .dst = LIST(2, 32), .mode = PAD_MODE_EDGE },
	  STATUS_INVALID_ARGUMENT,
	  "mode: edge cannot fill the incomplete last block of src.split; only constant can" },
	{ "a destination that overlaps itself",
	  { .src = LIST(64), .src_split = LIST(0, 32), .dst = LIST(2, 32), .dst_strides = LIST(31, 1) },
	  STATUS_OVERLAP,
	  "dst.strides: two elements share bytes" },
	{ "too many parts",
	  { .src = LIST(3, 3, 3, 3, 3, 3, 3),
	    .src_split = LIST(0, 2, 2, 2, 4, 2, 6, 2, 8, 2, 10, 2, 12, 2),
	    .dst = LIST(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2) },
	  STATUS_UNSUPPORTED,
	  "split: the incomplete last blocks of 7 dimensions divide the transform into more than 64 parts" },
};

ParameterizedTestParameters(split, refusals)
{
	return cr_make_param_array(struct refusal_row, refusal_rows,
	                           sizeof refusal_rows / sizeof *refusal_rows);
}

ParameterizedTest(struct refusal_row *row, split, refusals)
{
	struct split split;
	struct error err;

	cr_assert_eq(request_split(&row->request, &split, &err), row->status, "%s", row->name);
	cr_assert_str_eq(err.message, row->message, "%s", row->name);
}

/* 32 dimensions are accepted, and 33 are refused. */
Test(split, at_most_32_dimensions)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct split_list list = { .n = 16 };
	int64_t shape[TENSOR_MAX_RANK];
	struct split split;
	struct error err;

	for (int d = 0; d < TENSOR_MAX_RANK; d++)
		shape[d] = 1;
	for (int i = 0; i < list.n; i++) {
		list.dim[i] = 0;
		list.by[i] = 1;
	}
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_INT8, 16, shape, NULL, "dst", &err), 0);
	spec.src = spec.dst;
	cr_assert_eq(split_init(&split, &spec, &list, &list, &err), 0, "%s", err.message);
	cr_assert_eq(split.spec.dst.rank, 32);
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_INT8, 17, shape, NULL, "dst", &err), 0);
	spec.src = spec.dst;
	cr_assert_eq(split_init(&split, &spec, &list, &list, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_str_eq(err.message,
	                 "dst.split[15]: dimension 33, but a tensor has at most 32 after its splits");
}
