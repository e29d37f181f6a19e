/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the kernel families. */
#include "words.h"

#include <stddef.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "timing.h"

#define FAST 1.25 /* a plan is fast if it takes at most this many times as long as a copy */

#define SEVERAL_AXES                                                                                    \
	"boxes of several axes: the source's runs are loaded into shared memory, by the Tensor Memory " \
	"Accelerator or by threads, which write whole rows of the destination from there"

/* The first row that fits a plan describes it. */
static const struct {
	const char *engine; /* NULL: any */
	const char *family; /* NULL: any */
	const char *method; /* NULL: any */
	int tiles;          /* least number of dimensions that the plan's tile has */
	int in_rows;        /* 1: only for a tile that lies in rows of shared memory */
	int is_fast;        /* judgement for a plan without a predicted time */
	const char *sentence;
} table[] = {
	{ "cpu", "convert", NULL, 0, 0, 1,
	  "rows of the destination, block by block: elements are loaded into vector registers, converted and stored "
	  "as the other type; where both sides do not have the same rows, a tile is permuted in the cache first" },
	{ "cuda", "convert", NULL, 0, 0, 1,
	  "elements are converted in registers, between a load and a store of 16 bytes; where both sides do not have "
	  "the same rows, a tile of the source is in shared memory in between" },
	{ "cpu", NULL, "tiles", 0, 0, 0,
	  "boxes of several axes, read run by run, permuted in the cache and written past it in whole lines" },
	{ "cpu", "memcpy", NULL, 0, 0, 1, "one run of bytes, copied as is" },
	{ "cpu", "tile_copy", NULL, 0, 0, 1, "whole rows, by the machine's widest loads and stores" },
	{ "cpu", "tile_transpose", NULL, 0, 0, 1, "square tiles, transposed in vector registers" },
	{ "cpu", "strided", NULL, 0, 0, 0,
	  "element by element, since neither side has rows that the other could take whole" },
	{ "cuda", "memcpy", NULL, 0, 0, 1, "one run of bytes, by the driver's own copy" },
	{ "cuda", "tile_copy", NULL, 2, 1, 1,
	  "boxes, loaded into shared memory by the Tensor Memory Accelerator and stored by it: no thread touches "
	  "a byte" },
	{ "cuda", "tile_copy", NULL, 0, 1, 1,
	  "long aligned runs, through shared memory by the Tensor Memory Accelerator's plain bulk copies" },
	{ "cuda", "tile_copy", NULL, 0, 0, 1, SEVERAL_AXES },
	{ "cuda", "tile_transpose", NULL, 0, 1, 1,
	  "boxes, loaded into swizzled shared memory by the Tensor Memory Accelerator, transposed in "
	  "registers and "
	  "written in whole rows" },
	{ "cuda", "tile_transpose", NULL, 0, 0, 1, SEVERAL_AXES },
	{ "cuda", "strided", NULL, 1, 0, 0,
	  "tiles through padded shared memory by the threads' own loads and stores, which take any address and "
	  "any stride" },
	{ "cuda", "strided", NULL, 0, 0, 0,
	  "rows, or wide elements one by one, by the threads' own loads and stores" },
	{ NULL, "fill", NULL, 0, 0, 1, "the value, over and over; the source is not read" },
};

static int row_of(const tma_document *plan)
{
	const char *engine = field_text(plan, "engine"), *family = field_text(plan, "family"),
		   *method = field_text(plan, "method");
	int tiles = (int)tma_document_count(tma_document_find(plan, "tile"));
	int in_rows = field_uint(plan, "tile_row") > 0;

	for (int i = 0; i < (int)(sizeof table / sizeof *table); i++)
		if ((!table[i].engine || !strcmp(table[i].engine, engine)) &&
		    (!table[i].family || !strcmp(table[i].family, family)) &&
		    (!table[i].method || !strcmp(table[i].method, method)) && tiles >= table[i].tiles &&
		    in_rows >= table[i].in_rows)
			return i;
	return -1;
}

const char *words_of_family(const tma_document *plan)
{
	int row = row_of(plan);

	return row < 0 ? "a way that this tmactl does not know" : table[row].sentence;
}

bool words_is_fast(const tma_document *plan)
{
	const double ratio = timing_cost(plan);
	const int row = row_of(plan);

	if (ratio > 0)
		return ratio <= FAST;
	return row < 0 || table[row].is_fast;
}

const char *words_of_speed(const tma_document *plan)
{
	const bool is_fast = words_is_fast(plan);

	if (timing_cost(plan) > 0)
		return is_fast ? "yes: about as fast as a copy of as many bytes"
		               : "no: a copy of as many bytes is faster";
	return is_fast ? "yes: it moves as fast as memory does"
	               : "no: the rules below rule the faster families out";
}
