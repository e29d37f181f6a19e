/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the flags of tmactl are parsed to, and which of them are refused. */
#include "client/tmactl/args.h"

#include <math.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

/* ---- Lists ------------------------------------------------------------------------------------------ */

struct list_row {
	char text[160];
	int n; /* -1: the text is refused */
	int perm[4];
	char error[64]; /* a part of the message */
};

ParameterizedTestParameters(args, permute)
{
	static struct list_row rows[] = {
		{ .text = "", .n = 0 },
		{ .text = "0", .n = 1, .perm = { 0 } },
		{ .text = "1,0", .n = 2, .perm = { 1, 0 } },
		{ .text = "3,-1,2", .n = 3, .perm = { 3, -1, 2 } },
		{ .text = "0,3,3,1", .n = 4, .perm = { 0, 3, 3, 1 } },
		{ .text = ",", .n = -1, .error = "--permute ,: " },
		{ .text = "1,", .n = -1, .error = "--permute 1,: " },
		{ .text = "1,,0", .n = -1, .error = "--permute 1,,0: " },
		{ .text = "1 0", .n = -1, .error = "as 1,0" },
		{ .text = " 1,0", .n = 2, .perm = { 1, 0 } },
		{ .text = "0, 3, 1 ,\t2 ", .n = 4, .perm = { 0, 3, 1, 2 } },
		{ .text = " ", .n = 0 },
		{ .text = "1, ", .n = -1, .error = "--permute 1, : " },
		{ .text = "- 1,0", .n = -1, .error = "as 1,0" },
		{ .text = "a", .n = -1, .error = "--permute a: " },
		{ .text = "1x", .n = -1, .error = "--permute 1x: " },
		{ .text = "1:0", .n = -1, .error = "--permute 1:0: " },
		{ .text = "99999999999", .n = -1, .error = "--permute 99999999999" },
		{ .text = "99999999999999999999", .n = -1, .error = "--permute 9999" },
		{ .text = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,"
		          "30,31,32",
		  .n = -1,
		  .error = "more than 32 dimensions" },
	};

	return cr_make_param_array(struct list_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct list_row *row, args, permute)
{
	struct view_args args = { 0 };
	struct failure f = { 0 };
	int rc = args_permute(&args, row->text, &f);

	cr_assert_eq(rc, row->n < 0 ? -1 : 0, "%s", row->text);
	if (rc) {
		cr_assert_eq(f.code, EXIT_USAGE, "%s", row->text);
		cr_assert_not_null(strstr(f.text, row->error), "%s: %s", row->text, f.text);
		return;
	}
	cr_assert_eq(args.n_perm, row->n, "%s", row->text);
	cr_assert_str_eq(args.permute, row->text);
	for (int d = 0; d < row->n; d++)
		cr_assert_eq(args.perm[d], row->perm[d], "%s: %d", row->text, d);
}

struct pad_row {
	char text[64];
	int n; /* -1: the text is refused */
	int64_t before[3];
	int64_t after[3];
};

ParameterizedTestParameters(args, pad)
{
	static struct pad_row rows[] = {
		{ .text = "", .n = 0 },
		{ .text = "1:2", .n = 1, .before = { 1 }, .after = { 2 } },
		{ .text = "1:2,0:0", .n = 2, .before = { 1, 0 }, .after = { 2, 0 } },
		{ .text = "-1:-2,+3:4,0:-0", .n = 3, .before = { -1, 3, 0 }, .after = { -2, 4, 0 } },
		{ .text = " 1 : 2, -3:4", .n = 2, .before = { 1, -3 }, .after = { 2, 4 } },
		{ .text = "1", .n = -1 },
		{ .text = "1 2", .n = -1 },
		{ .text = "1,2", .n = -1 },
		{ .text = "1:", .n = -1 },
		{ .text = ":1", .n = -1 },
		{ .text = "1:2:3", .n = -1 },
		{ .text = "1:2,", .n = -1 },
		{ .text = "1;2", .n = -1 },
		{ .text = "1:99999999999999999999", .n = -1 },
	};

	return cr_make_param_array(struct pad_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct pad_row *row, args, pad)
{
	struct view_args args = { 0 };
	struct failure f = { 0 };
	int rc = args_pad(&args, row->text, &f);

	cr_assert_eq(rc, row->n < 0 ? -1 : 0, "%s", row->text);
	if (rc) {
		cr_assert_eq(f.code, EXIT_USAGE, "%s", row->text);
		cr_assert_not_null(strstr(f.text, "before:after"), "%s: %s", row->text, f.text);
		return;
	}
	cr_assert_eq(args.n_pad, row->n, "%s", row->text);
	for (int d = 0; d < row->n; d++) {
		cr_assert_eq(args.before[d], row->before[d], "%s: %d", row->text, d);
		cr_assert_eq(args.after[d], row->after[d], "%s: %d", row->text, d);
	}
}

Test(args, shapes_have_no_negative_extent)
{
	struct failure f = { 0 };
	int64_t shape[TMA_MAX_RANK];
	int rank;

	cr_assert_eq(args_shape(shape, &rank, "64,0,3", &f), 0);
	cr_assert_eq(rank, 3);
	cr_assert_eq(shape[0], 64);
	cr_assert_eq(shape[1], 0);
	cr_assert_eq(shape[2], 3);
	cr_assert_eq(args_shape(shape, &rank, "64,-1", &f), -1);
	cr_assert_not_null(strstr(f.text, "--shape 64,-1"), "%s", f.text);
}

struct dtype_row {
	char text[16];
	int dtype; /* -1: the name is refused */
};

ParameterizedTestParameters(args, dtype)
{
	static struct dtype_row rows[] = {
		{ "float32", TMA_FLOAT32 },
		{ "bfloat16", TMA_BFLOAT16 },
		{ "b1", TMA_BOOL },
		{ "|b1", TMA_BOOL },
		{ "u1", TMA_UINT8 },
		{ "i1", TMA_INT8 },
		{ "<u2", TMA_UINT16 },
		{ "=i2", TMA_INT16 },
		{ "u4", TMA_UINT32 },
		{ "<i4", TMA_INT32 },
		{ "u8", TMA_UINT64 },
		{ "i8", TMA_INT64 },
		{ "f2", TMA_FLOAT16 },
		{ "<f4", TMA_FLOAT32 },
		{ "f8", TMA_FLOAT64 },
		{ "c8", TMA_COMPLEX64 },
		{ "<c16", TMA_COMPLEX128 },
		{ ">f4", -1 },
		{ "f3", -1 },
		{ "f", -1 },
		{ "<", -1 },
		{ "", -1 },
		{ "<<f4", -1 },
		{ "f4 ", -1 },
		{ "<float32", -1 },
		{ "F4", -1 },
		{ "fp16", TMA_FLOAT16 },
		{ "half", TMA_FLOAT16 },
		{ "bf16", TMA_BFLOAT16 },
		{ "BF16", TMA_BFLOAT16 },
		{ "fp32", TMA_FLOAT32 },
		{ "single", TMA_FLOAT32 },
		{ "double", TMA_FLOAT64 },
		{ "float", TMA_FLOAT64 },
		{ "fp8", TMA_FLOAT8_E4M3FN },
		{ "fp8_e4m3", TMA_FLOAT8_E4M3FN },
		{ "fp8_e5m2", TMA_FLOAT8_E5M2 },
		{ "float8_e4m3", -1 }, /* ml_dtypes has such a type, but with infinities */
		{ "fp", -1 },
		{ "half ", -1 },
	};

	return cr_make_param_array(struct dtype_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct dtype_row *row, args, dtype)
{
	enum tma_dtype dtype = TMA_BOOL;
	struct failure f = { 0 };
	int rc = args_dtype(&dtype, "--dtype", row->text, &f);

	cr_assert_eq(rc, row->dtype < 0 ? -1 : 0, "%s", row->text);
	if (!rc)
		cr_assert_eq((int)dtype, row->dtype, "%s: %d", row->text, dtype);
	else
		cr_assert(f.code == EXIT_USAGE && strstr(f.text, "--dtype "), "%s: %s", row->text, f.text);
}

struct check_row {
	char mode[12]; /* "": the flag is not given */
	char value[4];
	char pad[8];
	char error[48]; /* "": the flags are accepted together */
};

ParameterizedTestParameters(args, check)
{
	static struct check_row rows[] = {
		{ .error = "" },
		{ .pad = "1:1" },
		{ .pad = "0:0", .value = "3" },
		{ .pad = "1:1", .mode = "constant", .value = "3" },
		{ .pad = "1:1", .mode = "reflect" },
		{ .value = "3", .error = "--value 3: nothing is padded" },
		{ .mode = "reflect", .error = "--mode reflect: nothing is padded" },
		{ .mode = "constant", .error = "--mode constant: nothing is padded" },
		{ .pad = "1:1", .mode = "edge", .value = "3", .error = "--value 3: --mode edge takes" },
	};

	return cr_make_param_array(struct check_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct check_row *row, args, check)
{
	struct view_args args = { 0 };
	struct failure f = { 0 };

	if (*row->mode)
		cr_assert_eq(args_mode(&args, row->mode, &f), 0);
	if (*row->pad)
		cr_assert_eq(args_pad(&args, row->pad, &f), 0);
	cr_assert_eq(args_check(&args, *row->value ? row->value : NULL, &f), *row->error ? -1 : 0);
	cr_assert_eq(f.code, *row->error ? EXIT_USAGE : EXIT_DONE);
	cr_assert_not_null(strstr(f.text, row->error), "%s: %s", row->error, f.text);
}

Test(args, modes_by_name)
{
	struct view_args args = { 0 };
	struct failure f = { 0 };

	cr_assert_eq(args_mode(&args, "wrap", &f), 0);
	cr_assert_eq(args.mode, TMA_PAD_WRAP);
	cr_assert_eq(args_mode(&args, "Wrap", &f), -1);
	cr_assert_eq(f.code, EXIT_USAGE);
	cr_assert_not_null(strstr(f.text, "--mode Wrap: "), "%s", f.text);
}

/* ---- Numbers ---------------------------------------------------------------------------------------- */

struct value_row {
	char text[32];
	bool refused;
	enum tma_number_kind kind;
	int64_t i;
	uint64_t u;
	double re, im;
};

ParameterizedTestParameters(args, value)
{
	static struct value_row rows[] = {
		{ .text = "0", .kind = TMA_NUMBER_INT },
		{ .text = "-7", .kind = TMA_NUMBER_INT, .i = -7 },
		{ .text = "0x10", .kind = TMA_NUMBER_INT, .i = 16 },
		{ .text = "True", .kind = TMA_NUMBER_INT, .i = 1 },
		{ .text = "false", .kind = TMA_NUMBER_INT },
		{ .text = "9223372036854775807", .kind = TMA_NUMBER_INT, .i = INT64_MAX },
		{ .text = "18446744073709551615", .kind = TMA_NUMBER_UINT, .u = UINT64_MAX },
		{ .text = "18446744073709551616", .kind = TMA_NUMBER_REAL, .re = 18446744073709551616.0 },
		{ .text = "-0.5", .kind = TMA_NUMBER_REAL, .re = -0.5 },
		{ .text = "1e3", .kind = TMA_NUMBER_REAL, .re = 1000 },
		{ .text = "inf", .kind = TMA_NUMBER_REAL, .re = INFINITY },
		{ .text = "-inf", .kind = TMA_NUMBER_REAL, .re = -INFINITY },
		{ .text = "nan", .kind = TMA_NUMBER_REAL, .re = NAN },
		{ .text = "1,2", .kind = TMA_NUMBER_COMPLEX, .re = 1, .im = 2 },
		{ .text = "1+2j", .kind = TMA_NUMBER_COMPLEX, .re = 1, .im = 2 },
		{ .text = "-1.5-2e1j", .kind = TMA_NUMBER_COMPLEX, .re = -1.5, .im = -20 },
		{ .text = "2j", .kind = TMA_NUMBER_COMPLEX, .im = 2 },
		{ .text = "", .refused = true },
		{ .text = " 1", .refused = true },
		{ .text = "1 ", .refused = true },
		{ .text = "one", .refused = true },
		{ .text = "1,", .refused = true },
		{ .text = "1,2,3", .refused = true },
		{ .text = "1+j", .refused = true },
		{ .text = "1+2", .refused = true },
		{ .text = "1+2jj", .refused = true },
		{ .text = "1/255", .kind = TMA_NUMBER_REAL, .re = 1.0 / 255 },
		{ .text = "-1 / 0.5", .kind = TMA_NUMBER_REAL, .re = -2 },
		{ .text = "510/2", .kind = TMA_NUMBER_REAL, .re = 255 },
		{ .text = "1/0", .refused = true },
		{ .text = "1/-0.0", .refused = true },
		{ .text = "1/", .refused = true },
		{ .text = "/2", .refused = true },
		{ .text = "1/2/3", .refused = true },
		{ .text = "1/2j", .refused = true },
		{ .text = "1/2 ", .refused = true },
	};

	return cr_make_param_array(struct value_row, rows, sizeof rows / sizeof rows[0]);
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b;
}

ParameterizedTest(struct value_row *row, args, value)
{
	struct failure f = { 0 };
	struct tma_number n;
	int rc = args_value(&n, row->text, &f);

	cr_assert_eq(rc, row->refused ? -1 : 0, "%s", row->text);
	if (rc) {
		cr_assert_eq(f.code, EXIT_USAGE, "%s", row->text);
		cr_assert_not_null(strstr(f.text, "--value "), "%s", f.text);
		return;
	}
	cr_assert_eq(n.kind, row->kind, "%s: %d", row->text, n.kind);
	cr_assert_eq(n.i, row->i, "%s", row->text);
	cr_assert_eq(n.u, row->u, "%s", row->text);
	cr_assert(same(n.re, row->re) && same(n.im, row->im), "%s: %g %g", row->text, n.re, n.im);
}

struct bytes_row {
	char text[32];
	bool refused;
	uint64_t bytes;
};

ParameterizedTestParameters(args, bytes)
{
	static struct bytes_row rows[] = {
		{ .text = "4096", .bytes = 4096 },
		{ .text = "64K", .bytes = 65536 },
		{ .text = "2m", .bytes = 2 << 20 },
		{ .text = "1GiB", .bytes = 1 << 30 },
		{ .text = "1TB", .bytes = UINT64_C(1) << 40 },
		{ .text = "1.5G", .bytes = 3 << 29 },
		{ .text = "0.25kb", .bytes = 256 },
		{ .text = "1.1K", .bytes = 1126 },
		{ .text = "2.0M", .bytes = 2 << 20 },
		{ .text = "0.1G", .bytes = 107374182 },
		{ .text = "16777215.5T", .bytes = UINT64_MAX - (UINT64_C(1) << 39) + 1 },
		{ .text = "16777216T", .refused = true },
		{ .text = "1.5", .refused = true },
		{ .text = "1.", .refused = true },
		{ .text = "1.K", .refused = true },
		{ .text = ".5G", .refused = true },
		{ .text = "1.2.3G", .refused = true },
		{ .text = "1e3K", .refused = true },
		{ .text = "", .refused = true },
		{ .text = "M", .refused = true },
		{ .text = "-1", .refused = true },
		{ .text = "1X", .refused = true },
		{ .text = "1MM", .refused = true },
		{ .text = "99999999999T", .refused = true },
		{ .text = "99999999999999999999", .refused = true },
	};

	return cr_make_param_array(struct bytes_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct bytes_row *row, args, bytes)
{
	struct failure f = { 0 };
	uint64_t bytes;

	cr_assert_eq(args_bytes(&bytes, "--memory", row->text, &f), row->refused ? -1 : 0, "%s", row->text);
	if (!row->refused)
		cr_assert_eq(bytes, row->bytes, "%s", row->text);
	else
		cr_assert_not_null(strstr(f.text, "--memory "), "%s", f.text);
}
