/* SPDX-License-Identifier: Apache-2.0 */
/* The table of NumPy's type codes, and the fields of structured types. */
#include "descr.h"

#include <stdio.h>
#include <string.h>

struct code {
	char kind;
	uint32_t bytes;
	int dtype;
	uint32_t component; /* bytes that a big-endian item swaps together */
	const char *name;
};

/* Sizes that are part of the type. */
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

/* Sizes that the code chooses: so many units. */
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

/* Digits at the front of text: their number, or -1 when the value passes 2^31. */
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

static int parse_code(struct descr *ret, const char *code, size_t len, const char *path, struct failure *f)
{
	int shown = len < 40 ? (int)len : 40;
	size_t order = len && strchr("<>|=", code[0]) && code[0] ? 1 : 0;
	const char *rest;
	uint64_t size;
	int digits;
	char kind;

	if (order == len)
		return fail(f, EXIT_FAILED, "%s: dtype '%.*s' is not a NumPy type code", path, shown, code);
	kind = code[order];
	rest = code + order + 1;
	len -= order + 1;
	digits = parse_digits(rest, len, &size);
	if (kind == 'O')
		return fail(
		    f, EXIT_FAILED,
		    "%s: dtype '%.*s' holds Python objects, which mean nothing outside the process that "
		    "saved them; save it with a plain dtype",
		    path, shown, code);
	for (size_t i = 0; digits >= 0 && i < sizeof strings / sizeof strings[0]; i++) {
		if (strings[i].kind != kind || (size_t)digits != len)
			continue;
		ret->item_bytes = size * strings[i].unit_bytes;
		snprintf(ret->name, sizeof ret->name, "%s", strings[i].name);
		return 0;
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
		ret->swap_bytes = order && code[0] == '>' ? codes[i].component : 0;
		snprintf(ret->name, sizeof ret->name, "%s", codes[i].name);
		return 0;
	}
	return fail(f, EXIT_FAILED, "%s: dtype '%.*s' is not a supported NumPy type code", path, shown, code);
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

/* (name, descr) or (name, descr, shape); name may be (title, name). */
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
		return fail(f, EXIT_USAGE, "--value %s: items of %s can be padded only with 0 (zero bytes)",
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
