/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the axes that result from tmactl's flags and a file's shape. */
#include "client/tmactl/copy/view.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "client/tmactl/args.h"

/* Describes an axis of a file; its stride in the output is set elsewhere. */
#define AXIS(n, pad, from, stride)                                                       \
	{                                                                                \
		.extent = (n), .before = (pad), .source = (from), .src_stride = (stride) \
	}

struct view_row {
	char name[40];
	uint64_t item_bytes;
	bool fortran;
	int rank;
	int64_t shape[4];
	char permute[16]; /* "-": the flag is not given */
	char pad[40];
	enum tma_pad_mode mode;

	char error[96]; /* part of the message; "": accepted */
	int axes;       /* number of axes after reduction */
	struct view_axis axis[4];
	uint32_t element;
	int64_t out_shape[4];
	uint64_t src_offset;
};

ParameterizedTestParameters(view, init)
{
	static struct view_row rows[] = {
		{ .name = "a plain copy is one axis",
		  .item_bytes = 4,
		  .rank = 3,
		  .shape = { 2, 3, 5 },
		  .permute = "-",
		  .pad = "-",
		  .axes = 1,
		  .axis = { AXIS(30, 0, 30, 4) },
		  .element = 4,
		  .out_shape = { 2, 3, 5 } },
		{ .name = "transpose",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 2, 3 },
		  .permute = "1,0",
		  .pad = "-",
		  .axes = 2,
		  .axis = { AXIS(3, 0, 3, 4), AXIS(2, 0, 2, 12) },
		  .element = 4,
		  .out_shape = { 3, 2 } },
		{ .name = "Fortran order is a transpose",
		  .item_bytes = 8,
		  .fortran = true,
		  .rank = 2,
		  .shape = { 2, 3 },
		  .permute = "-",
		  .pad = "-",
		  .axes = 2,
		  .axis = { AXIS(2, 0, 2, 8), AXIS(3, 0, 3, 16) },
		  .element = 8,
		  .out_shape = { 2, 3 } },
		{ .name = "Fortran order, permuted back",
		  .item_bytes = 8,
		  .fortran = true,
		  .rank = 2,
		  .shape = { 2, 3 },
		  .permute = "1,0",
		  .pad = "-",
		  .axes = 1,
		  .axis = { AXIS(6, 0, 6, 8) },
		  .element = 8,
		  .out_shape = { 3, 2 } },
		{ .name = "an outer pad fuses",
		  .item_bytes = 1,
		  .rank = 2,
		  .shape = { 4, 5 },
		  .permute = "-",
		  .pad = "1:2,0:0",
		  .axes = 1,
		  .axis = { AXIS(35, 5, 20, 1) },
		  .element = 1,
		  .out_shape = { 7, 5 } },
		{ .name = "an outer edge pad does not",
		  .item_bytes = 1,
		  .rank = 2,
		  .shape = { 4, 5 },
		  .permute = "-",
		  .pad = "1:2,0:0",
		  .mode = TMA_PAD_EDGE,
		  .axes = 2,
		  .axis = { AXIS(7, 1, 4, 5), AXIS(5, 0, 5, 1) },
		  .element = 1,
		  .out_shape = { 7, 5 } },
		{ .name = "crop",
		  .item_bytes = 2,
		  .rank = 2,
		  .shape = { 4, 5 },
		  .permute = "-",
		  .pad = "-1:0,-2:1",
		  .axes = 2,
		  .axis = { AXIS(3, 0, 3, 10), AXIS(4, 0, 3, 2) },
		  .element = 2,
		  .out_shape = { 3, 4 },
		  .src_offset = 14 },
		{ .name = "items of 12 bytes",
		  .item_bytes = 12,
		  .rank = 2,
		  .shape = { 2, 3 },
		  .permute = "1,0",
		  .pad = "-",
		  .axes = 3,
		  .axis = { AXIS(3, 0, 3, 12), AXIS(2, 0, 2, 36), AXIS(3, 0, 3, 4) },
		  .element = 4,
		  .out_shape = { 3, 2 } },
		{ .name = "items of 32 bytes",
		  .item_bytes = 32,
		  .rank = 1,
		  .shape = { 2 },
		  .permute = "-",
		  .pad = "-",
		  .axes = 1,
		  .axis = { AXIS(4, 0, 4, 16) },
		  .element = 16,
		  .out_shape = { 2 } },
		{ .name = "one element", .item_bytes = 4, .permute = "", .pad = "", .axes = 0, .element = 4 },
		{ .name = "all border",
		  .item_bytes = 4,
		  .rank = 1,
		  .shape = { 0 },
		  .permute = "-",
		  .pad = "2:1",
		  .axes = 1,
		  .axis = { AXIS(3, 2, 0, 0) },
		  .element = 4,
		  .out_shape = { 3 } },
		{ .name = "empty",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 0, 3 },
		  .permute = "1,0",
		  .pad = "-",
		  .axes = 2,
		  .axis = { AXIS(3, 0, 3, 0), AXIS(0, 0, 0, 0) },
		  .element = 1,
		  .out_shape = { 3, 0 } },

		{ .name = "twice",
		  .item_bytes = 4,
		  .rank = 4,
		  .shape = { 1, 2, 3, 4 },
		  .permute = "0,3,3,1",
		  .pad = "-",
		  .error =
		      "--permute 0,3,3,1: 3 appears twice; a permutation of 4 dimensions names each of 0..3 once" },
		{ .name = "no such dimension",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 1, 2 },
		  .permute = "0,2",
		  .pad = "-",
		  .error = "--permute 0,2: there is no dimension 2" },
		{ .name = "negative dimension",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 1, 2 },
		  .permute = "0,-3",
		  .pad = "-",
		  .error = "--permute 0,-3: there is no dimension -3" },
		{ .name = "one dimension twice, once from the last",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 1, 2 },
		  .permute = "1,-1",
		  .pad = "-",
		  .error = "--permute 1,-1: 1 appears twice" },
		{ .name = "too few",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 1, 2 },
		  .permute = "0",
		  .pad = "-",
		  .error = "--permute 0: it names 1 dimension, but the file has 2" },
		{ .name = "pads of another rank",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 1, 2 },
		  .permute = "-",
		  .pad = "0:0",
		  .error = "--pad 0:0: it names 1 dimension, but the file has 2" },
		{ .name = "cropped away",
		  .item_bytes = 4,
		  .rank = 1,
		  .shape = { 5 },
		  .permute = "-",
		  .pad = "-2:-3",
		  .error = "--pad -2:-3: dimension 0: cropping 2 and 3 leaves nothing of 5" },
		{ .name = "cropped beyond",
		  .item_bytes = 4,
		  .rank = 1,
		  .shape = { 5 },
		  .permute = "-",
		  .pad = "-9:9",
		  .error = "leaves nothing of 5" },
		{ .name = "empty and edge",
		  .item_bytes = 4,
		  .rank = 1,
		  .shape = { 0 },
		  .permute = "-",
		  .pad = "1:0",
		  .mode = TMA_PAD_EDGE,
		  .error = "dimension 0 is empty" },
		{ .name = "huge pad",
		  .item_bytes = 4,
		  .rank = 1,
		  .shape = { 5 },
		  .permute = "-",
		  .pad = "9223372036854775807:0",
		  .error = "a pad exceeds" },
		{ .name = "overflow",
		  .item_bytes = 4,
		  .rank = 2,
		  .shape = { 5, 5 },
		  .permute = "-",
		  .pad = "2147483648:0,1073741824:0",
		  .error = "overflows" },
	};

	return cr_make_param_array(struct view_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct view_row *row, view, init)
{
	struct view_args args = { .mode = row->mode };
	struct npy npy = { .fortran = row->fortran, .rank = row->rank, .count = 1 };
	struct failure f = { 0 };
	struct view view;
	int rc;

	npy.descr.item_bytes = row->item_bytes;
	for (int d = 0; d < row->rank; d++) {
		npy.shape[d] = row->shape[d];
		npy.count *= (uint64_t)row->shape[d];
	}
	if (strcmp(row->permute, "-"))
		cr_assert_eq(args_permute(&args, row->permute, &f), 0, "%s", row->name);
	if (strcmp(row->pad, "-"))
		cr_assert_eq(args_pad(&args, row->pad, &f), 0, "%s", row->name);
	rc = view_init(&view, &npy, &args, &f);
	cr_assert_eq(rc, *row->error ? -1 : 0, "%s: %s", row->name, f.text);
	if (rc) {
		cr_assert_eq(f.code, EXIT_USAGE, "%s", row->name);
		cr_assert_not_null(strstr(f.text, row->error), "%s: %s", row->name, f.text);
		return;
	}
	cr_assert_eq(view.rank, row->axes, "%s: %d", row->name, view.rank);
	cr_assert_eq(view.out_rank, row->rank, "%s", row->name);
	cr_assert_eq(view.element, row->element, "%s", row->name);
	cr_assert_eq(view.src_offset, row->src_offset, "%s: %d", row->name, (int)view.src_offset);
	for (int d = 0; d < row->rank; d++)
		cr_assert_eq(view.out_shape[d], row->out_shape[d], "%s: %d", row->name, d);
	for (int d = 0; d < row->axes; d++) {
		cr_assert_eq(view.axis[d].extent, row->axis[d].extent, "%s: %d", row->name, d);
		cr_assert_eq(view.axis[d].before, row->axis[d].before, "%s: %d", row->name, d);
		cr_assert_eq(view.axis[d].source, row->axis[d].source, "%s: %d", row->name, d);
		cr_assert_eq(view.axis[d].src_stride, row->axis[d].src_stride, "%s: %d", row->name, d);
	}
}
