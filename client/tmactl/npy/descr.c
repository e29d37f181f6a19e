/* SPDX-License-Identifier: Apache-2.0 */
/* Parses NumPy's type codes, by a table, and the fields of structured types. */
#include "descr.h"

#include <stdio.h>
#include <string.h>

struct code {
	char kind;
	uint32_t bytes;
	int dtype;          /* enum tma_dtype as which a value is encoded; -1: only 0 can be encoded */
	uint32_t component; /* bytes of each number in a big-endian item, whose order is reversed */
	const char *name;
};

/* The codes that exist only in a few sizes, such as f4. */
static const struct code codes[] = {
	{ 'b', 1, TMA_BOOL, 0, "bool" },           { 'i', 1, TMA_INT8, 0, "int8" },
	{ 'i', 2, TMA_INT16, 2, "int16" },         { 'i', 4, TMA_INT32, 4, "int32" },
	{ 'i', 8, TMA_INT64, 8, "int64" },         { 'u', 1, TMA_UINT8, 0, "uint8" },
	{ 'u', 2, TMA_UINT16, 2, "uint16" },       { 'u', 4, TMA_UINT32, 4, "uint32" },
	{ 'u', 8, TMA_UINT64, 8, "uint64" },       { 'f', 2, TMA_FLOAT16, 2, "float16" },
	{ 'f', 4, TMA_FLOAT32, 4, "float32" },     { 'f', 8, TMA_FLOAT64, 8, "float64" },
	{ 'f', 12, -1, 0, "longdouble" },          { 'f', 16, -1, 0, "longdouble" },
	{ 'c', 8, TMA_COMPLEX64, 4, "complex64" }, { 'c', 16, TMA_COMPLEX128, 8, "complex128" },
	{ 'c', 24, -1, 0, "clongdouble" },         { 'c', 32, -1, 0, "clongdouble" },
	{ 'M', 8, TMA_INT64, 8, "datetime64" },    { 'm', 8, TMA_INT64, 8, "timedelta64" },
};

/* The codes that take any size, such as S10. The size counts units of unit_bytes. */
static const struct {
	char kind;
	uint32_t unit_bytes;
	const char *name;
} strings[] = {
	{ 'S', 1, "bytes" },
	{ 'a', 1, "bytes" },
	{ 'U', 4, "str" },
	{ 'V', 1, "void" },
};

/* Other spellings that numpy.dtype accepts for these codes: letters, which stand for C's types on this
 * machine, and names. */
static const struct {
	const char *text;
	const char *code;
} spellings[] = {
	{ "?", "b1" },
	{ "b", "i1" },
	{ "B", "u1" },
	{ "h", "i2" },
	{ "H", "u2" },
	{ "i", "i4" },
	{ "I", "u4" },
	{ "l", sizeof(long) == 8 ? "i8" : "i4" },
	{ "L", sizeof(long) == 8 ? "u8" : "u4" },
	{ "q", "i8" },
	{ "Q", "u8" },
	{ "p", sizeof(void *) == 8 ? "i8" : "i4" },
	{ "P", sizeof(void *) == 8 ? "u8" : "u4" },
	{ "n", sizeof(void *) == 8 ? "i8" : "i4" },
	{ "N", sizeof(void *) == 8 ? "u8" : "u4" },
	{ "e", "f2" },
	{ "f", "f4" },
	{ "d", "f8" },
	{ "g", sizeof(long double) == 12 ? "f12" : "f16" },
	{ "F", "c8" },
	{ "D", "c16" },
	{ "G", sizeof(long double) == 12 ? "c24" : "c32" },
	{ "c", "S1" },
	{ "M", "M8" },
	{ "m", "m8" },
	{ "bool", "b1" },
	{ "bool_", "b1" },
	{ "int8", "i1" },
	{ "byte", "i1" },
	{ "uint8", "u1" },
	{ "ubyte", "u1" },
	{ "int16", "i2" },
	{ "short", "i2" },
	{ "uint16", "u2" },
	{ "ushort", "u2" },
	{ "int32", "i4" },
	{ "intc", "i4" },
	{ "uint32", "u4" },
	{ "uintc", "u4" },
	{ "int64", "i8" },
	{ "longlong", "i8" },
	{ "uint64", "u8" },
	{ "ulonglong", "u8" },
	{ "long", sizeof(long) == 8 ? "i8" : "i4" },
	{ "ulong", sizeof(long) == 8 ? "u8" : "u4" },
	{ "int", sizeof(void *) == 8 ? "i8" : "i4" },
	{ "int_", sizeof(void *) == 8 ? "i8" : "i4" },
	{ "intp", sizeof(void *) == 8 ? "i8" : "i4" },
	{ "uint", sizeof(void *) == 8 ? "u8" : "u4" },
	{ "uintp", sizeof(void *) == 8 ? "u8" : "u4" },
	{ "float16", "f2" },
	{ "half", "f2" },
	{ "float32", "f4" },
	{ "single", "f4" },
	{ "float64", "f8" },
	{ "double", "f8" },
	{ "float", "f8" },
	{ "float_", "f8" },
	{ "longdouble", sizeof(long double) == 12 ? "f12" : "f16" },
	{ "float96", "f12" },
	{ "float128", "f16" },
	{ "complex64", "c8" },
	{ "csingle", "c8" },
	{ "complex128", "c16" },
	{ "cdouble", "c16" },
	{ "complex", "c16" },
	{ "complex_", "c16" },
	{ "clongdouble", sizeof(long double) == 12 ? "c24" : "c32" },
	{ "complex192", "c24" },
	{ "complex256", "c32" },
	{ "datetime64", "M8" },
	{ "timedelta64", "m8" },
	{ "bytes", "S" },
	{ "bytes_", "S" },
	{ "str", "U" },
	{ "str_", "U" },
	{ "void", "V" },
	{ "object", "O" },
	{ "object_", "O" },
};

/* The types that the Python package ml_dtypes adds. It saves float8_e5m2 as '<f1', bfloat16 as '<V2' and all
 * others as '<V1', which does not tell the type. */
#define E5M2 "float8_e5m2"
static const char *const extensions[] = {
	E5M2,
	"bfloat16",
	"float8_e4m3fn",
	"float8_e3m4",
	"float8_e4m3",
	"float8_e4m3b11fnuz",
	"float8_e4m3fnuz",
	"float8_e5m2fnuz",
	"float8_e8m0fnu",
	"float6_e2m3fn",
	"float6_e3m2fn",
	"float4_e2m1fn",
	"int1",
	"int2",
	"int4",
	"uint1",
	"uint2",
	"uint4",
};

static int parse_code(struct descr *ret, const char *code, size_t len, const char *path, struct failure *f);
static int parse_fields(struct descr *ret, const struct literals *l, const struct literal *node,
                        const char *path, struct failure *f);
static int parse_field(uint64_t *ret_bytes, const struct literals *l, const struct literal *node,
                       const char *path, struct failure *f);

int descr_parse(struct descr *ret, const struct literals *l, const struct literal *node, const char *path,
                struct failure *f)
{
	*ret = (struct descr){ .dtype = -1 };
	if (node->kind == LITERAL_STRING)
		return parse_code(ret, l->text + node->start, node->end - node->start, path, f);
	if (node->kind == LITERAL_LIST)
		return parse_fields(ret, l, node, path, f);
	return fail(f, EXIT_FAILED, "%s: the header's descr is neither a type code nor a list of fields",
	            path);
}

/* ---- Type codes ------------------------------------------------------------------------------------- */

/* Parses the digits at the start of text. Returns how many there are, or -1 if their value exceeds
 * INT32_MAX. */
static int parse_digits(const char *text, size_t len, uint64_t *ret)
{
	size_t i;

	*ret = 0;
	for (i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		*ret = *ret * 10 + (uint64_t)(text[i] - '0');
		if (*ret > INT32_MAX)
			return -1;
	}
	return (int)i;
}

/* Returns the type code that another spelling stands for, or NULL if text is none of them. Only a letter may
 * follow a byte order (has_order). Sets *ret_len to the length of the spelling, after which a unit of time
 * may follow. */
static const char *code_of(const char *text, size_t len, bool has_order, size_t *ret_len)
{
	for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
		const char *code = spellings[i].code;
		size_t n = strlen(spellings[i].text);

		if (n > len || memcmp(text, spellings[i].text, n) != 0 || (has_order && n > 1))
			continue;
		if (n < len && (text[n] != '[' || (*code != 'M' && *code != 'm')))
			continue;
		*ret_len = n;
		return code;
	}
	return NULL;
}

/* Parses the name of a type of ml_dtypes. An item of a type that the service does not have is taken to be one
 * byte. Returns false if ml_dtypes has no such type. */
static bool parse_extension(struct descr *ret, const char *text, size_t len)
{
	char name[sizeof ret->name];
	int dtype;

	if (len >= sizeof name)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)len, text);
	for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
		if (strcmp(name, extensions[i]) != 0)
			continue;
		dtype = tma_dtype_parse(name);
		*ret = (struct descr){ .dtype = dtype < 0 ? -1 : dtype,
			               .item_bytes = dtype < 0 ? 1 : tma_dtype_size((enum tma_dtype)dtype) };
		memcpy(ret->name, name, sizeof name);
		return true;
	}
	return false;
}

/* Parses a code without its byte order: a kind, a size and, for times, a unit in brackets. Returns false if
 * there is no such code. is_swapped says that the items are big-endian. */
static bool parse_plain(struct descr *ret, const char *code, size_t len, bool is_swapped)
{
	const char kind = *code, *rest = code + 1;
	uint64_t size;
	int digits = parse_digits(rest, --len, &size);

	for (size_t i = 0; digits >= 0 && i < sizeof strings / sizeof strings[0]; i++) {
		if (strings[i].kind != kind || (size_t)digits != len)
			continue;
		ret->item_bytes = size * strings[i].unit_bytes;
		snprintf(ret->name, sizeof ret->name, "%s", strings[i].name);
		return true;
	}
	for (size_t i = 0; digits > 0 && i < sizeof codes / sizeof codes[0]; i++) {
		bool has_unit = kind == 'M' || kind == 'm';
		size_t left = len - (size_t)digits;

		if (codes[i].kind != kind || codes[i].bytes != size)
			continue;
		if (left && !(has_unit && left > 2 && rest[digits] == '[' && rest[len - 1] == ']'))
			continue;
		ret->item_bytes = size;
		ret->dtype = codes[i].dtype;
		ret->swap_bytes = is_swapped ? codes[i].component : 0;
		snprintf(ret->name, sizeof ret->name, "%s", codes[i].name);
		return true;
	}
	return false;
}

static int parse_code(struct descr *ret, const char *code, size_t len, const char *path, struct failure *f)
{
	int shown = len < 40 ? (int)len : 40;
	size_t order = len && strchr("<>|=", code[0]) && code[0] ? 1 : 0;
	const char *rest = code + order, *other;
	char plain[64];
	size_t used;

	len -= order;
	if (!len)
		return fail(f, EXIT_FAILED, "%s: dtype '%.*s' is not a NumPy type code", path, shown, code);
	other = code_of(rest, len, order, &used);
	if (other) {
		snprintf(plain, sizeof plain, "%s%.*s", other, (int)(len - used < 40 ? len - used : 40),
		         rest + used);
		rest = plain;
		len = strlen(plain);
	}
	if (*rest == 'O')
		return fail(
		    f, EXIT_FAILED,
		    "%s: dtype '%.*s' holds Python objects, which mean nothing outside the process that "
		    "saved them; save it with a plain dtype",
		    path, shown, code);
	if ((!order && parse_extension(ret, rest, len)) ||
	    (len == 2 && !memcmp(rest, "f1", 2) && parse_extension(ret, E5M2, strlen(E5M2))) ||
	    parse_plain(ret, rest, len, order && *code == '>'))
		return 0;
	return fail(f, EXIT_FAILED,
	            "%s: dtype '%.*s' is not a supported NumPy type code; save the array as one that is, or "
	            "its bytes: array.view('V2') if items have 2",
	            path, shown, code);
}

void descr_of(struct descr *ret, enum tma_dtype dtype, char ret_text[DESCR_TEXT])
{
	const unsigned bytes = (unsigned)tma_dtype_size(dtype);
	char kind = 'V';

	*ret = (struct descr){ .item_bytes = bytes, .dtype = (int)dtype };
	snprintf(ret->name, sizeof ret->name, "%s", tma_dtype_name(dtype));
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i].dtype == (int)dtype && !strcmp(codes[i].name, ret->name))
			kind = codes[i].kind;
	snprintf(ret_text, DESCR_TEXT, "'%c%c%u'", bytes == 1 || kind == 'V' ? '|' : '<', kind, bytes % 100);
}

/* ---- Structured types ------------------------------------------------------------------------------- */

static int too_large(const char *path, struct failure *f)
{
	return fail(f, EXIT_FAILED, "%s: an item of its dtype is larger than 2 GiB", path);
}

static int parse_fields(struct descr *ret, const struct literals *l, const struct literal *node,
                        const char *path, struct failure *f)
{
	uint64_t bytes = 0;

	snprintf(ret->name, sizeof ret->name, "structured");
	for (const struct literal *field = literal_child(l, node); field; field = literal_next(l, field)) {
		if (parse_field(&bytes, l, field, path, f) < 0)
			return -1;
		ret->item_bytes += bytes;
		if (ret->item_bytes > INT32_MAX)
			return too_large(path, f);
	}
	return 0;
}

/* Parses a field, which is (name, descr) or (name, descr, shape), where name may be (title, name), and sets
 * *ret_bytes to its size. */
static int parse_field(uint64_t *ret_bytes, const struct literals *l, const struct literal *node,
                       const char *path, struct failure *f)
{
	const struct literal *name = node->kind == LITERAL_TUPLE ? literal_child(l, node) : NULL;
	const struct literal *type = name ? literal_next(l, name) : NULL;
	const struct literal *shape = type ? literal_next(l, type) : NULL;
	const struct literal *extent;
	struct descr inner;

	if (!type || node->n > 3 || (name->kind != LITERAL_STRING && name->kind != LITERAL_TUPLE) ||
	    (shape && shape->kind != LITERAL_TUPLE && shape->kind != LITERAL_INT))
		return fail(
		    f, EXIT_FAILED,
		    "%s: a field of the header's descr is neither (name, type) nor (name, type, shape)",
		    path);
	if (descr_parse(&inner, l, type, path, f) < 0)
		return -1;
	*ret_bytes = inner.item_bytes;
	extent = !shape || shape->kind == LITERAL_INT ? shape : literal_child(l, shape);
	for (; extent; extent = extent == shape ? NULL : literal_next(l, extent)) {
		if (extent->kind != LITERAL_INT || extent->value < 0)
			return fail(f, EXIT_FAILED,
			            "%s: the shape of a field has an extent that is not a size", path);
		if (__builtin_mul_overflow(*ret_bytes, (uint64_t)extent->value, ret_bytes) ||
		    *ret_bytes > INT32_MAX)
			return too_large(path, f);
	}
	return 0;
}

/* ---- Values ----------------------------------------------------------------------------------------- */

static bool number_is_zero(const struct tma_number *n)
{
	switch (n->kind) {
	case TMA_NUMBER_INT:
		return !n->i;
	case TMA_NUMBER_UINT:
		return !n->u;
	case TMA_NUMBER_REAL:
		return n->re == 0;
	default:
		return n->re == 0 && n->im == 0;
	}
}

int descr_encode(const struct descr *descr, const struct tma_number *value, const char *text, uint8_t ret[16],
                 struct failure *f)
{
	uint8_t swap;

	memset(ret, 0, 16);
	if (descr->dtype < 0) {
		if (number_is_zero(value))
			return 0;
		return fail(
		    f, EXIT_USAGE,
		    "--value %s: items of %s can be padded only with 0 (zero bytes), unless --from-dtype and --to-dtype name their type",
		    text, descr->name);
	}
	if (tma_number_encode((enum tma_dtype)descr->dtype, value, ret) < 0)
		return fail(f, EXIT_USAGE, "--value %s: %s cannot hold it", text, descr->name);
	for (uint64_t at = 0; descr->swap_bytes && at < descr->item_bytes; at += descr->swap_bytes) {
		for (uint32_t i = 0; i < descr->swap_bytes / 2; i++) {
			swap = ret[at + i];
			ret[at + i] = ret[at + descr->swap_bytes - 1 - i];
			ret[at + descr->swap_bytes - 1 - i] = swap;
		}
	}
	return 0;
}
