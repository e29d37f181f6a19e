/* SPDX-License-Identifier: Apache-2.0 */
/* Random lists of blocks: a random transform for each block, with strides between blocks and layers and an
 * index, all decided by the seed alone; and the expected destination, computed block by block. */
#ifndef TESTS_SUPPORT_BLOCKS_H
#define TESTS_SUPPORT_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "oracle.h"

#define BLOCKS_CASE_ENTRIES 24
#define BLOCKS_CASE_BLOCKS  16
#define BLOCKS_CASE_LAYERS  4
#define BLOCKS_CASE_BYTES   (4u << 20) /* most bytes of either side's memory */

/* The positions of one side's blocks: bytes from the first byte of its memory to element [0, ..., 0] of block
 * 0 in layer 0, and the strides from there. */
struct blocks_side {
	uint64_t offset;
	uint64_t blocks;
	struct engine_blocks_side list;
	int64_t layers[BLOCKS_CASE_LAYERS];
	uint64_t end; /* bytes of the memory that are used */
};

struct blocks_case {
	struct oracle_case block;
	struct engine_blocks blocks; /* all members but the index */
	struct blocks_side dst, src;
	/* The block that each entry names, or a number that names no block. */
	int64_t dst_block[BLOCKS_CASE_ENTRIES];
	int64_t src_block[BLOCKS_CASE_ENTRIES];
	unsigned char packed[BLOCKS_CASE_ENTRIES * 16 + 1]; /* the packed index starts at the second byte */
	/* The expected counts of entries passed over and out of range. */
	uint64_t passed, beyond;
};

/* inline_index: every entry is in range or -1. *c must not be moved afterwards. */
void blocks_case_draw(uint64_t seed, struct blocks_case *c, bool inline_index);

/* dst and src are the first bytes of the memories. */
void blocks_case_expect(const struct blocks_case *c, unsigned char *dst, const unsigned char *src);

#endif
