/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes headers of the .npy format, versions 1.0, 2.0 and 3.0. A file consists of a magic, a
 * version, the header's length, a Python dict (the header) and the items. */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC            "\x93NUMPY"
#define MAGIC_BYTES      6
#define MAX_HEADER_BYTES (1024 * 1024)
#define ALIGN_BYTES      64 /* alignment of the first item in the file */
#define GROWTH_DIGITS    21 /* space for the first extent, so that it can be changed in place later */

static int read_preamble(struct source *source, int *ret_major, uint64_t *ret_offset, uint64_t *ret_len,
                         struct failure *f);
static int parse_shape(struct npy *npy, const struct literals *l, const struct literal *node,
                       const char *path, struct failure *f);
static int parse_dict(struct npy *npy, const struct literals *l, const char *path, struct failure *f);

int npy_read(struct npy *ret, struct source *source, struct failure *f)
{
	const char *path = source->path;
	uint64_t offset = 0;
	uint64_t len = 0;
	char *text;
	int major = 0;
	int rc;

	*ret = (struct npy){ 0 };
	if (read_preamble(source, &major, &offset, &len, f) < 0)
		return -1;
	if (len > MAX_HEADER_BYTES)
		return fail(f, EXIT_FAILED, "%s: a header of %" PRIu64 " bytes; at most %d are supported",
		            path, len, MAX_HEADER_BYTES);
	if (offset + len > source->bytes)
		return fail(f, EXIT_FAILED,
		            "%s: truncated: the header ends at byte %" PRIu64 ", the file at %" PRIu64, path,
		            offset + len, source->bytes);
	text = malloc(len + 1);
	if (!text)
		return fail(f, EXIT_FAILED, "out of memory");
	rc = source_read(source, text, len, offset, f);
	if (!rc)
		rc = npy_parse(ret, text, len, major == 3, path, f);
	free(text);
	if (rc < 0)
		return rc;
	ret->data_offset = offset + len;
	if (ret->data_bytes > source->bytes - ret->data_offset)
		return fail(f, EXIT_FAILED,
		            "%s: truncated: its shape needs %" PRIu64
		            " bytes of data, but the file has %" PRIu64,
		            path, ret->data_bytes, source->bytes - ret->data_offset);
	return 0;
}

/* Reads magic, version and header length. Reads no more bytes than these have, because bytes that were read
 * from a pipe cannot be put back. */
static int read_preamble(struct source *source, int *ret_major, uint64_t *ret_offset, uint64_t *ret_len,
                         struct failure *f)
{
	const char *path = source->path;
	uint8_t b[MAGIC_BYTES + 6];
	int len_bytes;

	if (source->bytes < MAGIC_BYTES)
		return fail(f, EXIT_FAILED, "%s: not an .npy file: it has %" PRIu64 " bytes", path,
		            source->bytes);
	if (source_read(source, b, MAGIC_BYTES, 0, f) < 0)
		return -1;
	if (memcmp(b, MAGIC, MAGIC_BYTES))
		return fail(f, EXIT_FAILED, "%s: not an .npy file%s", path,
		            b[0] == 'P' && b[1] == 'K'
		                ? " (an .npz archive is read from a file, as ARCHIVE:NAME)"
		                : "");
	if (source->bytes < sizeof b)
		return fail(f, EXIT_FAILED, "%s: truncated: %" PRIu64 " bytes is less than a header", path,
		            source->bytes);
	if (source_read(source, b + MAGIC_BYTES, 2, MAGIC_BYTES, f) < 0)
		return -1;
	*ret_major = b[6];
	if (b[6] < 1 || b[6] > 3 || b[7])
		return fail(f, EXIT_FAILED, "%s: .npy version %d.%d; 1.0, 2.0 and 3.0 are supported", path,
		            b[6], b[7]);
	len_bytes = b[6] == 1 ? 2 : 4;
	if (source_read(source, b + 8, (size_t)len_bytes, 8, f) < 0)
		return -1;
	*ret_offset = 8 + (uint64_t)len_bytes;
	for (int i = 0; i < len_bytes; i++)
		*ret_len |= (uint64_t)b[8 + i] << (8 * i);
	return 0;
}

void npy_deinit(struct npy *npy)
{
	free(npy->descr_text);
	npy->descr_text = NULL;
}

/* ---- The dict --------------------------------------------------------------------------------------- */

int npy_parse(struct npy *ret, const char *text, size_t len, bool utf8, const char *path, struct failure *f)
{
	struct literals l;
	const char *what;
	size_t at;
	int rc;

	*ret = (struct npy){ .utf8 = utf8 };
	if (literals_parse(&l, text, len, &at, &what) < 0)
		rc = fail(f, EXIT_FAILED, "%s: damaged header: %s expected at its byte %zu", path, what, at);
	else
		rc = parse_dict(ret, &l, path, f);
	literals_deinit(&l);
	return rc;
}

static int parse_dict(struct npy *npy, const struct literals *l, const char *path, struct failure *f)
{
	static const char *const keys[] = { "descr", "fortran_order", "shape" };
	const struct literal *values[3] = { NULL, NULL, NULL };
	const struct literal *key = literal_child(l, l->nodes);
	const struct literal *value;
	int i;

	if (l->nodes->kind != LITERAL_DICT)
		return fail(f, EXIT_FAILED, "%s: damaged header: it is not a dict", path);
	for (; key; key = literal_next(l, value)) {
		value = literal_next(l, key);
		for (i = 0; i < 3 && !literal_is(l, key, keys[i]); i++)
			;
		if (i == 3)
			return fail(f, EXIT_FAILED,
			            "%s: damaged header: key %.*s is not descr, fortran_order or shape", path,
			            (int)(key->end - key->start < 40 ? key->end - key->start : 40),
			            l->text + key->start);
		if (values[i])
			return fail(f, EXIT_FAILED, "%s: damaged header: %s appears twice", path, keys[i]);
		values[i] = value;
	}
	for (i = 0; i < 3; i++)
		if (!values[i])
			return fail(f, EXIT_FAILED, "%s: damaged header: %s is missing", path, keys[i]);
	if (values[1]->kind != LITERAL_BOOL)
		return fail(f, EXIT_FAILED, "%s: damaged header: fortran_order is neither True nor False",
		            path);
	npy->fortran = values[1]->value;
	if (descr_parse(&npy->descr, l, values[0], path, f) < 0 ||
	    parse_shape(npy, l, values[2], path, f) < 0)
		return -1;
	/* A string node excludes its quotes, but they are part of descr_text. */
	npy->descr_len = values[0]->end - values[0]->start + (values[0]->kind == LITERAL_STRING ? 2 : 0);
	npy->descr_text = malloc(npy->descr_len + 1);
	if (!npy->descr_text)
		return fail(f, EXIT_FAILED, "out of memory");
	memcpy(npy->descr_text, l->text + values[0]->start - (values[0]->kind == LITERAL_STRING),
	       npy->descr_len);
	npy->descr_text[npy->descr_len] = '\0';
	return 0;
}

static int parse_shape(struct npy *npy, const struct literals *l, const struct literal *node,
                       const char *path, struct failure *f)
{
	const struct literal *extent;
	bool overflow = false;

	if (node->kind != LITERAL_TUPLE)
		return fail(f, EXIT_FAILED, "%s: damaged header: shape is not a tuple", path);
	if (node->n > TMA_MAX_RANK)
		return fail(f, EXIT_FAILED, "%s: it has %u dimensions; at most %d can be moved", path,
		            (unsigned)node->n, TMA_MAX_RANK);
	npy->count = 1;
	for (extent = literal_child(l, node); extent; extent = literal_next(l, extent)) {
		if (extent->kind != LITERAL_INT || extent->value < 0)
			return fail(
			    f, EXIT_FAILED, "%s: damaged header: an extent of the shape is not a size: %.*s",
			    path, (int)(extent->end - extent->start < 40 ? extent->end - extent->start : 40),
			    l->text + extent->start);
		npy->shape[npy->rank++] = extent->value;
		if (!extent->value)
			npy->count = 0;
	}
	for (int d = 0; npy->count && d < npy->rank; d++)
		overflow |= __builtin_mul_overflow(npy->count, (uint64_t)npy->shape[d], &npy->count);
	overflow |= __builtin_mul_overflow(npy->count, npy->descr.item_bytes, &npy->data_bytes);
	if (overflow || npy->count > INT64_MAX || npy->data_bytes > INT64_MAX / 2)
		return fail(f, EXIT_FAILED,
		            "%s: its shape times its items of %" PRIu64 " bytes overflows 62 bits", path,
		            npy->descr.item_bytes);
	return 0;
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

static bool is_ascii(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] > 0x7f)
			return false;
	return true;
}

/* Writes the text of the dict, and blanks after it as space for a longer first extent. Returns the length of
 * both, even if it exceeds size. */
static size_t print_dict(char *text, size_t size, const struct npy *like, int rank, const int64_t *shape)
{
	size_t n = 0;
	int digits;

#define PUT(...) n += (size_t)snprintf(n < size ? text + n : NULL, n < size ? size - n : 0, __VA_ARGS__)
	PUT("{'descr': ");
	if (n < size && like->descr_len < size - n)
		memcpy(text + n, like->descr_text, like->descr_len);
	n += like->descr_len;
	PUT(", 'fortran_order': False, 'shape': (");
	for (int d = 0; d < rank; d++)
		PUT("%s%" PRId64, d ? ", " : "", shape[d]);
	PUT("%s), }", rank == 1 ? "," : "");
	digits = rank ? snprintf(NULL, 0, "%" PRId64, shape[0]) : GROWTH_DIGITS;
	PUT("%*s", GROWTH_DIGITS - digits, "");
#undef PUT
	return n;
}

int npy_format(const struct npy *like, int rank, const int64_t *shape, char **ret, size_t *ret_len,
               struct failure *f)
{
	size_t size = like->descr_len + 1024;
	char *dict = malloc(size);
	int version = like->utf8 && !is_ascii(like->descr_text, like->descr_len) ? 3 : 1;
	size_t preamble;
	size_t total;
	size_t len;
	char *out;

	if (!dict)
		return fail(f, EXIT_FAILED, "out of memory");
	len = print_dict(dict, size, like, rank, shape);
	preamble = version == 1 ? MAGIC_BYTES + 4 : MAGIC_BYTES + 6;
	total = ((preamble + len + 1) / ALIGN_BYTES + 1) * ALIGN_BYTES;
	if (version == 1 && total - preamble > UINT16_MAX) {
		version = 2;
		preamble = MAGIC_BYTES + 6;
		total = ((preamble + len + 1) / ALIGN_BYTES + 1) * ALIGN_BYTES;
	}
	out = malloc(total);
	if (!out) {
		free(dict);
		return fail(f, EXIT_FAILED, "out of memory");
	}
	memset(out, ' ', total);
	memcpy(out, MAGIC, MAGIC_BYTES);
	out[6] = (char)version;
	out[7] = 0;
	for (size_t i = 0; i < preamble - 8; i++)
		out[8 + i] = (char)((total - preamble) >> (8 * i));
	memcpy(out + preamble, dict, len);
	out[total - 1] = '\n';
	free(dict);
	*ret = out;
	*ret_len = total;
	return 0;
}
