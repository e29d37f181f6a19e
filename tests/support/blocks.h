/* SPDX-License-Identifier: Apache-2.0 */
/* Random lists of blocks: a transform of the oracle's for each block, steps, layers and an index, all by the
 * seed alone; and what the destination then has to be, block by block.
 */
#ifndef TESTS_SUPPORT_BLOCKS_H
#define TESTS_SUPPORT_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "oracle.h"

#define BLOCKS_CASE_ENTRIES 24
#define BLOCKS_CASE_BLOCKS  16
#define BLOCKS_CASE_LAYERS  4
#define BLOCKS_CASE_BYTES   (4u << 20) /* of either side's memory, at most */

/* Where the blocks of one side lie: bytes from its memory's first byte to element [0, ..., 0] of block 0 of
 * layer 0, and from there on. */
struct blocks_side {
	uint64_t offset;
	uint64_t blocks;
	struct engine_blocks_side list;
	int64_t layers[BLOCKS_CASE_LAYERS];
	uint64_t end; /* bytes of the memory that are used */
};

struct blocks_case {
	struct oracle_case block;
	struct engine_blocks blocks; /* but for the index */
	struct blocks_side dst, src;
	int64_t dst_block[BLOCKS_CASE_ENTRIES]; /* that an entry names, or what is no block */
	int64_t src_block[BLOCKS_CASE_ENTRIES];
	unsigned char packed[BLOCKS_CASE_ENTRIES * 16 + 1]; /* from the second byte on */
	uint64_t passed, beyond;                            /* as they have to be counted */
};

/* inline_index: every entry is in range or -1. *c must stay where it is. */
void blocks_case_draw(uint64_t seed, struct blocks_case *c, bool inline_index);

/* dst, src: the memories' first bytes. */
void blocks_case_expect(const struct blocks_case *c, unsigned char *dst, const unsigned char *src);

#endif
