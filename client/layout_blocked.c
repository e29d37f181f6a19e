/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked layouts: how the dimensions of a plain tensor are divided into blocks, and the order of the
 * parts. */
#include "layout.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

/* Part of a dimension: a block of `size` elements or, with a size of 0, what is left of the dimension after
 * all of its blocks. */
struct part {
	char letter;
	int64_t size;
	int64_t extent;
};

/* Reads a part such as "16c" or "C", and moves *text past it and the blanks behind it. */
static struct part part_next(const char **text)
{
	char *end;
	struct part part = { .size = strtoll(*text, &end, 10) };

	part.letter = (char)tolower((unsigned char)*end);
	*text = end + 1;
	while (**text == ' ')
		++*text;
	return part;
}

/* Reads the parts of all dimensions. Returns their number, and sets *ret_rank to that of the dimensions. */
static int parts_read(const char *split, struct part parts[TMA_MAX_RANK], int *ret_rank)
{
	int n = 0;

	*ret_rank = 0;
	while (*split) {
		parts[n] = part_next(&split);
		*ret_rank += parts[n++].size == 0;
	}
	return n;
}

/* Divides the dimension whose parts are [at, end) and records the splits: the first one makes blocks that
 * contain all inner parts, and each further one divides the blocks of the one before. */
static void part_divide(struct tma_layout_blocking *ret, struct part *parts, int at, int end, int64_t extent)
{
	int64_t block = 1;

	for (int i = at + 1; i < end; i++) {
		parts[i].extent = parts[i].size;
		block *= parts[i].size;
	}
	parts[at].extent = extent / block + (extent % block != 0);
	for (int i = at; i + 1 < end; i++) {
		ret->split[2 * ret->n_split] = i;
		ret->split[2 * ret->n_split++ + 1] = block;
		block /= parts[i + 1].size;
	}
}

static void order_read(struct tma_layout_blocking *ret, const char *order, const struct part *parts)
{
	bool is_used[TMA_MAX_RANK] = { false };

	for (int d = 0; d < ret->rank; d++) {
		const struct part next = part_next(&order);
		int i = 0;

		while (is_used[i] || parts[i].letter != next.letter || parts[i].size != next.size)
			i++;
		is_used[i] = true;
		ret->perm[d] = i;
		ret->inverse[i] = d;
		ret->shape[d] = parts[i].extent;
	}
}

static int count_check(const struct tma_layout_blocking *blocking, int rank, const int64_t *shape,
                       struct error *err)
{
	int64_t count = 1;

	for (int d = 0; d < rank; d++)
		if (shape[d] == 0)
			return 0;
	for (int d = 0; d < blocking->rank; d++)
		if (__builtin_mul_overflow(count, blocking->shape[d], &count))
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "shape: in blocks, its number of elements overflows 63 bits");
	return 0;
}

int tma_layout_split(tma_client *client, const tma_layout *layout, int rank, const int64_t *shape,
                     struct tma_layout_blocking *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct tma_layout_blocking blocking = { 0 };
	struct part parts[TMA_MAX_RANK];
	int dimensions, at = 0, rc;

	if (!layout)
		return error_set(err, STATUS_INVALID_ARGUMENT, "layout: NULL, which names no layout");
	if (!layout->split)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layout: %s is of KV caches, not of blocked tensors", layout->name);
	blocking.rank = parts_read(layout->split, parts, &dimensions);
	if (rank != dimensions)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "rank: %d, but tensors of %s have %d dimensions", rank, layout->name,
		                 dimensions);
	if (!shape)
		return error_set(err, STATUS_INVALID_ARGUMENT, "shape is NULL, but rank is %d", rank);
	for (int d = 0; d < rank; d++) {
		int end = at + 1;

		if (shape[d] < 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "shape: dimension %d is %" PRId64
			                 ", but no dimension can be negative",
			                 d, shape[d]);
		while (end < blocking.rank && parts[end].size)
			end++;
		part_divide(&blocking, parts, at, end, shape[d]);
		at = end;
	}
	order_read(&blocking, layout->order, parts);
	rc = count_check(&blocking, rank, shape, err);
	if (rc == 0)
		rc = pointer_check(ret, "ret", "the blocking goes", err);
	if (rc == 0)
		*ret = blocking;
	return rc;
}
