/* SPDX-License-Identifier: Apache-2.0 */
/* Tests loop nests that are moved by tables of offsets against one element after the other, and that nothing
 * around them is written. */
#include "kernels/cpu/move/offsets.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum way { NOT_TAKEN, BY_ELEMENTS, BY_SQUARES };

/* A permuted dense source of this shape. A negative axis, -1 - axis, runs backwards. gap is the number of
 * bytes after each row of the destination's innermost axis. */
struct offsets_row {
	const char *name;
	enum way way;
	uint32_t unit;
	int rank;
	int64_t shape[5];
	int axis[5];
	int64_t gap;
};

static const struct offsets_row rows[] = {
	{ "a chain on each side", BY_SQUARES, 2, 5, { 61, 3, 3, 5, 3 }, { 1, 4, 2, 3, 0 }, 0 },
	{ "fewer rows than a vector", BY_SQUARES, 1, 3, { 19, 50, 13 }, { 0, 2, 1 }, 0 },
	{ "fewer columns than a vector", BY_SQUARES, 1, 3, { 19, 12, 28 }, { 0, 2, 1 }, 0 },
	{ "less than a vector on both sides", BY_SQUARES, 4, 3, { 50, 3, 3 }, { 0, 2, 1 }, 0 },
	{ "rows that are divided", BY_SQUARES, 1, 3, { 5, 7, 300 }, { 2, 1, 0 }, 0 },
	{ "columns that are divided", BY_SQUARES, 8, 3, { 33, 3, 2 }, { 2, 1, 0 }, 0 },
	{ "the same axes on both sides", BY_ELEMENTS, 1, 4, { 103, 2, 3, 2 }, { 0, 2, 3, 1 }, 0 },
	{ "wide elements", BY_ELEMENTS, 16, 4, { 2, 33, 2, 3 }, { 1, 3, 2, 0 }, 0 },
	{ "short rows backwards", BY_ELEMENTS, 2, 3, { 509, 3, 5 }, { 0, 1, -3 }, 0 },
	{ "an outer axis backwards", BY_SQUARES, 2, 3, { 20, 3, 31 }, { 2, -2, 0 }, 0 },
	{ "gaps in the destination", BY_SQUARES, 1, 3, { 19, 12, 28 }, { 0, 2, 1 }, 3 },
	{ "gaps, element by element", BY_ELEMENTS, 1, 4, { 103, 2, 3, 2 }, { 0, 2, 3, 1 }, 1 },
	{ "lines on both sides", NOT_TAKEN, 4, 2, { 64, 64 }, { 1, 0 }, 0 },
	{ "few channels, many pixels", NOT_TAKEN, 1, 2, { 4096, 3 }, { 1, 0 }, 0 },
	{ "rows as they are", NOT_TAKEN, 2, 3, { 9, 8, 40 }, { 1, 0, 2 }, 0 },
	{ "units that are no element", NOT_TAKEN, 6, 2, { 70, 30 }, { 1, 0 }, 0 },
};

#define ROOM   64
#define BYTES  (1 << 16)
#define POISON 0xa5

static void make_nest(const struct offsets_row *row, struct loop_nest *ret)
{
	int64_t stride[5], bytes = row->unit;
	*ret = (struct loop_nest){ .rank = row->rank, .element = row->unit };
	for (int d = row->rank - 1; d >= 0; d--) {
		stride[d] = bytes;
		bytes *= row->shape[d];
	}
	bytes = row->unit;
	for (int d = row->rank - 1; d >= 0; d--) {
		int axis = row->axis[d] < 0 ? -1 - row->axis[d] : row->axis[d];
		ret->dim[d] =
		    (struct loop_nest_dim){ .n = row->shape[axis], .dst = bytes, .src = stride[axis] };
		if (row->axis[d] < 0) {
			ret->dim[d].src = -stride[axis];
			ret->src_offset += (row->shape[axis] - 1) * stride[axis];
		}
		bytes *= row->shape[axis];
		bytes += d == row->rank - 1 ? row->gap : 0;
	}
}

static void move_plainly(const struct loop_nest *nest, int d, char *dst, const char *src)
{
	if (d == nest->rank) {
		memcpy(dst, src, nest->element);
		return;
	}
	for (int64_t i = 0; i < nest->dim[d].n; i++)
		move_plainly(nest, d + 1, dst + i * nest->dim[d].dst, src + i * nest->dim[d].src);
}

static enum way way_of(const struct loop_nest *nest, struct offsets *offsets)
{
	return !offsets_init(offsets, nest) ? NOT_TAKEN : offsets->transposes ? BY_SQUARES : BY_ELEMENTS;
}

/* The source ends where its allocation does, so that sanitizers notice reads past it. */
static void check(const struct offsets_row *row, const struct cpu_isa *isa)
{
	struct loop_nest nest;
	struct offsets offsets;
	size_t n = row->unit;
	make_nest(row, &nest);
	cr_assert_eq(way_of(&nest, &offsets), row->way, "%s: another way", row->name);
	if (row->way == NOT_TAKEN)
		return;
	for (int d = 0; d < row->rank; d++)
		n *= (size_t)row->shape[d];
	char *src = malloc(n), *dst = malloc(BYTES), *wanted = malloc(BYTES);
	cr_assert(src && dst && wanted);
	for (size_t i = 0; i < n; i++)
		src[i] = (char)(i * 2654435761u >> 13);
	memset(dst, POISON, BYTES);
	memset(wanted, POISON, BYTES);
	move_plainly(&nest, 0, wanted + ROOM, src + nest.src_offset);
	offsets_run(&offsets, isa, dst + ROOM, src);
	cr_expect(!memcmp(dst, wanted, BYTES), "%s, %s: other bytes", row->name, isa->name);
	free(src);
	free(dst);
	free(wanted);
}

Test(offsets, rows)
{
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (size_t i = 0;
		     i < sizeof(rows) / sizeof(rows[0]) && cpu_isa_get((enum cpu_isa_level)level); i++)
			check(&rows[i], cpu_isa_get((enum cpu_isa_level)level));
}
