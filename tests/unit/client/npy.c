/* SPDX-License-Identifier: Apache-2.0 */
/* Tests good and hostile .npy headers. */
#include "client/tmactl/npy/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

struct header_row {
	char text[320];
	char error[64]; /* part of the message; "": the header is accepted */
	bool fortran;
	int rank;
	int64_t shape[4];
	uint64_t item_bytes;
	uint64_t data_bytes;
	char descr[128];
};

ParameterizedTestParameters(npy, header)
{
	static struct header_row rows[] = {
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
		  .rank = 2,
		  .shape = { 3, 4 },
		  .item_bytes = 4,
		  .data_bytes = 48,
		  .descr = "'<f4'" },
		{ .text = "{\"shape\":(5,),\"descr\":\"|u1\",\"fortran_order\":True}",
		  .fortran = true,
		  .rank = 1,
		  .shape = { 5 },
		  .item_bytes = 1,
		  .data_bytes = 5,
		  .descr = "\"|u1\"" },
		{ .text = "\t{ 'descr' :\n'>c16' , 'fortran_order':False,'shape':()}",
		  .item_bytes = 16,
		  .data_bytes = 16,
		  .descr = "'>c16'" },
		{ .text = "{'descr': u'<i8', 'fortran_order': False, 'shape': (2L, 3L)}",
		  .rank = 2,
		  .shape = { 2, 3 },
		  .item_bytes = 8,
		  .data_bytes = 48,
		  .descr = "'<i8'" },
		{ .text = "{'descr': '|S0', 'fortran_order': False, 'shape': (7,)}",
		  .rank = 1,
		  .shape = { 7 },
		  .descr = "'|S0'" },
		{ .text = "{'descr': '<U7', 'fortran_order': False, 'shape': (2, 0, 3)}",
		  .rank = 3,
		  .shape = { 2, 0, 3 },
		  .item_bytes = 28,
		  .descr = "'<U7'" },
		{ .text = "{'descr': '<M8[25us]', 'fortran_order': False, 'shape': (1,)}",
		  .rank = 1,
		  .shape = { 1 },
		  .item_bytes = 8,
		  .data_bytes = 8,
		  .descr = "'<M8[25us]'" },
		{ .text = "{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}",
		  .rank = 1,
		  .shape = { 1 },
		  .item_bytes = 16,
		  .data_bytes = 16,
		  .descr = "'<f16'" },
		{ .text =
		      "{'descr': [('a', '<f4'), ('', '|V4'), ('b', '>i2', (2, 3)), ('n', [('x', '|b1')])], "
		      "'fortran_order': False, 'shape': (2,)}",
		  .rank = 1,
		  .shape = { 2 },
		  .item_bytes = 21,
		  .data_bytes = 42,
		  .descr = "[('a', '<f4'), ('', '|V4'), ('b', '>i2', (2, 3)), ('n', [('x', '|b1')])]" },
		{ .text =
		      "{'descr': [(('a \\' title', 'a'), '<f8', 3)], 'fortran_order': False, 'shape': (1,)}",
		  .rank = 1,
		  .shape = { 1 },
		  .item_bytes = 24,
		  .data_bytes = 24,
		  .descr = "[(('a \\' title', 'a'), '<f8', 3)]" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 99)}",
		  .rank = 3,
		  .shape = { 0, INT64_MAX, 99 },
		  .item_bytes = 4,
		  .descr = "'<f4'" },

		{ .text = "", .error = "a value expected at its byte 0" },
		{ .text = "{", .error = "damaged header" },
		{ .text = "[]", .error = "not a dict" },
		{ .text = "{}", .error = "descr is missing" },
		{ .text = "{'descr': '<f4', 'fortran_order': False}", .error = "shape is missing" },
		{ .text = "{'descr': '<f4', 'shape': (1,)}", .error = "fortran_order is missing" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
		  .error = "key x" },
		{ .text = "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
		  .error = "descr appears twice" },
		{ .text = "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", .error = "fortran_order" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", .error = "not a tuple" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
		  .error = "not a size: -1" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': ('1',)}",
		  .error = "not a size" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", .error = "the end" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,}", .error = "damaged" },
		{ .text = "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}", .error = "damaged" },
		{ .text = "{'descr': }", .error = "damaged" },
		{ .text = "{'descr'}", .error = "damaged" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
		  .error = "integer of 63 bits" },
		{ .text = "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 3)}",
		  .error = "overflows" },
		{ .text = "{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,)}",
		  .error = "overflows" },
		{ .text = "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
		  .error = "Python objects" },
		{ .text =
		      "{'descr': [('a', '<f4'), ('b', [('c', '|O8')])], 'fortran_order': False, 'shape': ()}",
		  .error = "Python objects" },
		{ .text = "{'descr': '<f5', 'fortran_order': False, 'shape': ()}", .error = "'<f5'" },
		{ .text = "{'descr': '<float32', 'fortran_order': False, 'shape': ()}",
		  .error = "'<float32'" },
		{ .text = "{'descr': 'Float32', 'fortran_order': False, 'shape': ()}", .error = "'Float32'" },
		{ .text = "{'descr': '2f4', 'fortran_order': False, 'shape': ()}", .error = "'2f4'" },
		{ .text = "{'descr': '<W4', 'fortran_order': False, 'shape': ()}", .error = "'<W4'" },
		{ .text = "{'descr': '<bfloat16', 'fortran_order': False, 'shape': ()}",
		  .error = "'<bfloat16'" },
		{ .text = "{'descr': 'object', 'fortran_order': False, 'shape': ()}",
		  .error = "Python objects" },
		{ .text = "{'descr': 'i[ns]', 'fortran_order': False, 'shape': ()}", .error = "'i[ns]'" },
		{ .text = "{'descr': '', 'fortran_order': False, 'shape': ()}", .error = "type code" },
		{ .text = "{'descr': '<', 'fortran_order': False, 'shape': ()}", .error = "'<'" },
		{ .text = "{'descr': '<i4[ns]', 'fortran_order': False, 'shape': ()}", .error = "'<i4[ns]'" },
		{ .text = "{'descr': '|T16', 'fortran_order': False, 'shape': ()}", .error = "'|T16'" },
		{ .text = "{'descr': '|S99999999999', 'fortran_order': False, 'shape': ()}",
		  .error = "'|S9999" },
		{ .text = "{'descr': 4, 'fortran_order': False, 'shape': ()}",
		  .error = "neither a type code" },
		{ .text = "{'descr': ['<f4'], 'fortran_order': False, 'shape': ()}", .error = "a field" },
		{ .text = "{'descr': [('a',)], 'fortran_order': False, 'shape': ()}", .error = "a field" },
		{ .text = "{'descr': [('a', '<f4', (2,), 1)], 'fortran_order': False, 'shape': ()}",
		  .error = "a field" },
		{ .text = "{'descr': [('a', '<f4', (-2,))], 'fortran_order': False, 'shape': ()}",
		  .error = "shape of a field" },
		{ .text = "{'descr': [('a', '<f4', (65536, 65536))], 'fortran_order': False, 'shape': ()}",
		  .error = "larger than 2 GiB" },
		{ .text =
		      "{'descr': [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		  .error = "less nesting" },
		{ .text =
		      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
		      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
		  .error = "33 dimensions" },
	};

	return cr_make_param_array(struct header_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct header_row *row, npy, header)
{
	struct failure f = { 0 };
	struct npy npy;
	int rc = npy_parse(&npy, row->text, strlen(row->text), false, "x.npy", &f);

	cr_assert_eq(rc, *row->error ? -1 : 0, "%s: %s", row->text, f.text);
	if (rc) {
		cr_assert_eq(f.code, EXIT_FAILED, "%s", row->text);
		cr_assert_not_null(strstr(f.text, row->error), "%s: %s", row->text, f.text);
		cr_assert_eq(strncmp(f.text, "x.npy: ", 7), 0, "%s: %s", row->text, f.text);
		cr_assert_null(strchr(f.text, '\n'), "%s: %s", row->text, f.text);
	} else {
		cr_assert_eq(npy.fortran, row->fortran, "%s", row->text);
		cr_assert_eq(npy.rank, row->rank, "%s", row->text);
		for (int d = 0; d < row->rank; d++)
			cr_assert_eq(npy.shape[d], row->shape[d], "%s", row->text);
		cr_assert_eq(npy.descr.item_bytes, row->item_bytes, "%s", row->text);
		cr_assert_eq(npy.data_bytes, row->data_bytes, "%s", row->text);
		cr_assert_str_eq(npy.descr_text, row->descr);
	}
	npy_deinit(&npy);
}

struct descr_row {
	char text[24];
	char name[24];
	uint64_t item_bytes;
	int dtype;
	uint32_t swap_bytes;
};

/* The rows have all that numpy.dtype takes, with ml_dtypes imported and without it. */
ParameterizedTestParameters(npy, descr)
{
	static struct descr_row rows[] = {
		{ "float32", "float32", 4, TMA_FLOAT32, 0 },
		{ "?", "bool", 1, TMA_BOOL, 0 },
		{ "|?", "bool", 1, TMA_BOOL, 0 },
		{ ">b1", "bool", 1, TMA_BOOL, 0 },
		{ "bool_", "bool", 1, TMA_BOOL, 0 },
		{ "b", "int8", 1, TMA_INT8, 0 },
		{ "B", "uint8", 1, TMA_UINT8, 0 },
		{ "<f", "float32", 4, TMA_FLOAT32, 0 },
		{ ">h", "int16", 2, TMA_INT16, 2 },
		{ ">D", "complex128", 16, TMA_COMPLEX128, 8 },
		{ "e", "float16", 2, TMA_FLOAT16, 0 },
		{ "half", "float16", 2, TMA_FLOAT16, 0 },
		{ "float", "float64", 8, TMA_FLOAT64, 0 },
		{ "double", "float64", 8, TMA_FLOAT64, 0 },
		{ "q", "int64", 8, TMA_INT64, 0 },
		{ "intc", "int32", 4, TMA_INT32, 0 },
		{ "f04", "float32", 4, TMA_FLOAT32, 0 },
		{ "c", "bytes", 1, -1, 0 },
		{ "S", "bytes", 0, -1, 0 },
		{ "bytes", "bytes", 0, -1, 0 },
		{ "float128", "longdouble", 16, -1, 0 },
		{ "M", "datetime64", 8, TMA_INT64, 0 },
		{ ">M[ns]", "datetime64", 8, TMA_INT64, 8 },
		{ "datetime64[25us]", "datetime64", 8, TMA_INT64, 0 },
		{ "timedelta64", "timedelta64", 8, TMA_INT64, 0 },
		{ "|V1", "void", 1, -1, 0 },
		{ "<V2", "void", 2, -1, 0 },
		{ "<f1", "float8_e5m2", 1, TMA_FLOAT8_E5M2, 0 },
		{ "|f1", "float8_e5m2", 1, TMA_FLOAT8_E5M2, 0 },
		{ "float8_e5m2", "float8_e5m2", 1, TMA_FLOAT8_E5M2, 0 },
		{ "float8_e4m3fn", "float8_e4m3fn", 1, TMA_FLOAT8_E4M3FN, 0 },
		{ "bfloat16", "bfloat16", 2, TMA_BFLOAT16, 0 },
		{ "float8_e4m3b11fnuz", "float8_e4m3b11fnuz", 1, -1, 0 },
		{ "float8_e8m0fnu", "float8_e8m0fnu", 1, -1, 0 },
		{ "float4_e2m1fn", "float4_e2m1fn", 1, -1, 0 },
		{ "int4", "int4", 1, -1, 0 },
	};

	return cr_make_param_array(struct descr_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct descr_row *row, npy, descr)
{
	struct failure f = { 0 };
	struct npy npy;
	char text[128];

	snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3,)}", row->text);
	cr_assert_eq(npy_parse(&npy, text, strlen(text), false, "x.npy", &f), 0, "%s", f.text);
	cr_assert_str_eq(npy.descr.name, row->name, "%s", row->text);
	cr_assert_eq(npy.descr.item_bytes, row->item_bytes, "%s", row->text);
	cr_assert_eq(npy.data_bytes, 3 * row->item_bytes, "%s", row->text);
	cr_assert_eq(npy.descr.dtype, row->dtype, "%s", row->text);
	cr_assert_eq(npy.descr.swap_bytes, row->swap_bytes, "%s", row->text);
	npy_deinit(&npy);
}

/* ---- Files ------------------------------------------------------------------------------------------ */

static int file_of(const void *data, size_t len)
{
	int fd = memfd_create("npy", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, data, len), (ssize_t)len);
	return fd;
}

/* Writes a version 1 file of 3 x 2 uint16 and returns its length. */
static size_t sample_file(char out[512])
{
	static const char dict[] = "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2)}";
	size_t len = sizeof dict - 1;

	memcpy(out, "\x93NUMPY\x01\x00", 8);
	out[8] = (char)len;
	out[9] = 0;
	memcpy(out + 10, dict, len);
	memset(out + 10 + len, 7, 12);
	return 10 + len + 12;
}

Test(npy, a_file_cut_at_any_byte_is_refused_and_names_itself)
{
	char data[512];
	size_t len = sample_file(data);

	for (size_t cut = 0; cut <= len; cut++) {
		int fd = file_of(data, cut);
		struct failure f = { 0 };
		struct npy npy;
		int rc = npy_read(&npy, &(struct source){ .fd = fd, .bytes = cut, .path = "cut.npy" }, &f);

		cr_assert_eq(rc, cut == len ? 0 : -1, "%zu: %s", cut, f.text);
		if (rc)
			cr_assert_eq(strncmp(f.text, "cut.npy: ", 9), 0, "%zu: %s", cut, f.text);
		npy_deinit(&npy);
		close(fd);
	}
}

Test(npy, bytes_after_the_data_are_nobodys_business)
{
	char data[512];
	size_t len = sample_file(data);
	int fd = file_of(data, len + 5);
	struct failure f = { 0 };
	struct npy npy;

	cr_assert_eq(npy_read(&npy, &(struct source){ .fd = fd, .bytes = len + 5, .path = "x.npy" }, &f), 0,
	             "%s", f.text);
	cr_assert_eq(npy.data_offset, len - 12);
	cr_assert_eq(npy.data_bytes, 12);
	npy_deinit(&npy);
	close(fd);
}

struct magic_row {
	char name[24];
	char data[16];
	char error[64];
};

ParameterizedTestParameters(npy, magic)
{
	static struct magic_row rows[] = {
		{ .name = "an archive", .data = "PK\x03\x04xxxxxxxxxx", .error = ".npz" },
		{ .name = "text", .data = "hello, world...", .error = "not an .npy file" },
		{ .name = "version 4",
		  .data = "\x93NUMPY\x04\x00\x10\x00\x00\x00   ",
		  .error = "version 4.0" },
		{ .name = "version 1.1", .data = "\x93NUMPY\x01\x01\x10\x00      ", .error = "version 1.1" },
		{ .name = "version 0", .data = "\x93NUMPY\x00\x00\x10\x00      ", .error = "version 0.0" },
		{ .name = "4 GiB header",
		  .data = "\x93NUMPY\x02\x00\xff\xff\xff\xff   ",
		  .error = "4294967295" },
		{ .name = "long header", .data = "\x93NUMPY\x01\x00\xff\xff     ", .error = "truncated" },
	};

	return cr_make_param_array(struct magic_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct magic_row *row, npy, magic)
{
	int fd = file_of(row->data, sizeof row->data);
	struct failure f = { 0 };
	struct npy npy;

	cr_assert_eq(
	    npy_read(&npy, &(struct source){ .fd = fd, .bytes = sizeof row->data, .path = "x.npy" }, &f), -1,
	    "%s", row->name);
	cr_assert_not_null(strstr(f.text, row->error), "%s: %s", row->name, f.text);
	npy_deinit(&npy);
	close(fd);
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

struct format_row {
	char name[32];
	char descr[64];
	size_t repeat; /* times that descr stands in a list of fields; 0: descr is the whole dtype */
	bool utf8;
	int rank;
	int64_t shape[3];
	int version;
};

ParameterizedTestParameters(npy, format)
{
	static struct format_row rows[] = {
		{ .name = "scalar", .descr = "'<f4'", .version = 1 },
		{ .name = "vector", .descr = "'<f4'", .rank = 1, .shape = { 5 }, .version = 1 },
		{ .name = "long extents",
		  .descr = "'<f4'",
		  .rank = 2,
		  .shape = { 1234567890123, 1 },
		  .version = 1 },
		{ .name = "latin-1 field",
		  .descr = "[('\xe9', '|u1')]",
		  .rank = 1,
		  .shape = { 2 },
		  .version = 1 },
		{ .name = "utf-8 field",
		  .descr = "[('\xce\xb1', '|u1')]",
		  .utf8 = true,
		  .rank = 1,
		  .shape = { 2 },
		  .version = 3 },
		{ .name = "ascii of a version 3", .descr = "'|u1'", .utf8 = true, .version = 1 },
		{ .name = "more than 64 KiB",
		  .descr = "('name', '|u1')",
		  .repeat = 5000,
		  .rank = 2,
		  .shape = { 2, 0 },
		  .version = 2 },
	};

	return cr_make_param_array(struct format_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct format_row *row, npy, format)
{
	struct npy like = { .utf8 = row->utf8 };
	struct failure f = { 0 };
	struct npy back;
	size_t len;
	char *out;
	int fd;

	like.descr_text = calloc(1, 100 + 32 * row->repeat);
	strcpy(like.descr_text, row->repeat ? "[" : row->descr);
	for (size_t i = 0; i < row->repeat; i++)
		sprintf(strchr(like.descr_text + (i ? 16 * i : 0), '\0'), "%s,", row->descr);
	if (row->repeat)
		strcat(like.descr_text, "]");
	like.descr_len = strlen(like.descr_text);
	cr_assert_eq(npy_format(&like, row->rank, row->shape, &out, &len, &f), 0, "%s", row->name);
	cr_assert_eq(len % 64, 0, "%s", row->name);
	cr_assert_eq(out[len - 1], '\n', "%s", row->name);
	cr_assert_eq(out[6], row->version, "%s: %d", row->name, out[6]);

	fd = file_of(out, len);
	cr_assert_eq(npy_read(&back, &(struct source){ .fd = fd, .bytes = INT64_MAX, .path = "x.npy" }, &f),
	             0, "%s: %s", row->name, f.text);
	cr_assert_eq(back.data_offset, len, "%s", row->name);
	cr_assert_eq(back.rank, row->rank, "%s", row->name);
	for (int d = 0; d < row->rank; d++)
		cr_assert_eq(back.shape[d], row->shape[d], "%s", row->name);
	cr_assert_str_eq(back.descr_text, like.descr_text);
	close(fd);
	npy_deinit(&back);
	npy_deinit(&like);
	free(out);
}

/* ---- Mutation --------------------------------------------------------------------------------------- */

Test(npy, damaged_headers_never_do_more_than_fail)
{
	static const char *const seeds[] = {
		"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
		"{'descr': [('a', '<f4'), ('', '|V4'), ('b', '>i2', (2, 3))], 'fortran_order': True, 'shape': ()}",
		"{'descr': [(('t', 'a'), [('x', '<M8[ns]', 3)])], 'fortran_order': False, 'shape': (9, 8L, 7)}",
	};
	static const char bytes[] = "{}[]()'\",:0129-LFTuUSVO<>|=\\ \n\t";
	unsigned random = 1;

	for (int i = 0; i < 60000; i++) {
		const char *seed = seeds[i % 3];
		size_t len = strlen(seed);
		char *text = malloc(len);
		struct failure f = { 0 };
		struct npy npy;

		memcpy(text, seed, len);
		for (int n = 0; n < 1 + i % 4; n++) {
			size_t at;

			random = random * 1664525 + 1013904223;
			at = (random >> 8) % len;
			random = random * 1664525 + 1013904223;
			text[at] =
			    random >> 31 ? (char)(random >> 16) : bytes[(random >> 8) % (sizeof bytes - 1)];
		}
		if (i % 5 == 0)
			len -= (random >> 8) % len;
		if (!npy_parse(&npy, text, len, false, "x.npy", &f)) {
			uint64_t count = 1;

			cr_assert_leq(npy.rank, TMA_MAX_RANK);
			for (int d = 0; d < npy.rank; d++)
				count *= (uint64_t)npy.shape[d];
			cr_assert_eq(npy.count, count, "%.*s", (int)len, text);
			cr_assert_eq(npy.data_bytes, count * npy.descr.item_bytes, "%.*s", (int)len, text);
		} else {
			cr_assert_eq(f.code, EXIT_FAILED);
		}
		npy_deinit(&npy);
		free(text);
	}
}

/* ---- Values ----------------------------------------------------------------------------------------- */

struct encode_row {
	char code[16];
	struct tma_number value;
	bool refused;
	uint8_t bits[16];
};

ParameterizedTestParameters(npy, encode)
{
	static struct encode_row rows[] = {
		{ .code = "<f4",
		  .value = { .kind = TMA_NUMBER_REAL, .re = 1 },
		  .bits = { 0, 0, 0x80, 0x3f } },
		{ .code = ">f4",
		  .value = { .kind = TMA_NUMBER_REAL, .re = 1 },
		  .bits = { 0x3f, 0x80, 0, 0 } },
		{ .code = ">u2", .value = { .kind = TMA_NUMBER_INT, .i = 258 }, .bits = { 1, 2 } },
		{ .code = ">c8",
		  .value = { .kind = TMA_NUMBER_COMPLEX, .re = 1, .im = 2 },
		  .bits = { 0x3f, 0x80, 0, 0, 0x40, 0, 0, 0 } },
		{ .code = "|b1", .value = { .kind = TMA_NUMBER_INT, .i = 1 }, .bits = { 1 } },
		{ .code = "|b1", .value = { .kind = TMA_NUMBER_INT, .i = 2 }, .refused = true },
		{ .code = "|u1", .value = { .kind = TMA_NUMBER_INT, .i = 300 }, .refused = true },
		{ .code = "|i1", .value = { .kind = TMA_NUMBER_REAL, .re = 0.5 }, .refused = true },
		{ .code = ">M8[ns]",
		  .value = { .kind = TMA_NUMBER_INT, .i = 3 },
		  .bits = { 0, 0, 0, 0, 0, 0, 0, 3 } },
		{ .code = "<m8[s]",
		  .value = { .kind = TMA_NUMBER_INT, .i = -1 },
		  .bits = { 255, 255, 255, 255, 255, 255, 255, 255 } },
		{ .code = "|S5", .value = { .kind = TMA_NUMBER_INT, .i = 0 } },
		{ .code = "|S5", .value = { .kind = TMA_NUMBER_INT, .i = 1 }, .refused = true },
		{ .code = "<f16", .value = { .kind = TMA_NUMBER_REAL, .re = 0 } },
		{ .code = "<f16", .value = { .kind = TMA_NUMBER_REAL, .re = 1 }, .refused = true },
	};

	return cr_make_param_array(struct encode_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct encode_row *row, npy, encode)
{
	struct failure f = { 0 };
	uint8_t bits[16];
	char text[128];
	struct npy npy;

	snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': ()}", row->code);
	cr_assert_eq(npy_parse(&npy, text, strlen(text), false, "x.npy", &f), 0, "%s: %s", row->code, f.text);
	cr_assert_eq(descr_encode(&npy.descr, &row->value, "V", bits, &f), row->refused ? -1 : 0, "%s",
	             row->code);
	if (row->refused)
		cr_assert(f.code == EXIT_USAGE && strstr(f.text, "--value V: "), "%s: %s", row->code, f.text);
	else
		cr_assert_arr_eq(bits, row->bits, sizeof bits, "%s", row->code);
	npy_deinit(&npy);
}
