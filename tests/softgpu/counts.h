/* SPDX-License-Identifier: Apache-2.0 */
/* The memory traffic of kernels, which the model counts while a test asks for it.
 *
 * Instructions are counted for a warp: one that several lanes execute together counts once (model/count.c
 * says which those are). Traffic is counted in sectors of 32 bytes, which multiprocessors exchange with the
 * L2. An instruction moves each sector that its lanes touch once; the unit moves each sector of a row of a
 * box, or of a bulk load or store, once, to however many blocks. There is no model of caches: a sector that
 * two instructions touch counts twice.
 *
 * Shared memory has 32 banks of 4 bytes. The lanes of an instruction are served together if each accesses up
 * to 4 bytes, by half-warps if 8, by quarter-warps if 16. Each group takes as many wavefronts as there are
 * words of one bank in it, at most; the ideal is one for each group. Counted are tile_read and tile_write,
 * not plain accesses of shared memory.
 */
#ifndef TESTS_SOFTGPU_COUNTS_H
#define TESTS_SOFTGPU_COUNTS_H

#include <stdint.h>

#define SOFTGPU_SECTOR 32

enum softgpu_instruction {
#define INSTRUCTION(id, name) SOFTGPU_##id,
#include "counts.def"
	SOFTGPU_INSTRUCTIONS
};

/* Sectors, by what moves them. */
struct softgpu_sectors {
	uint64_t warps;
	uint64_t unit;
	uint64_t driver; /* copies and sets */
};

struct softgpu_counts {
	uint64_t launches;
	uint64_t blocks;
	uint64_t instructions[SOFTGPU_INSTRUCTIONS]; /* of the unit: requests, each of one thread */
	struct softgpu_sectors read;
	struct softgpu_sectors written;
	uint64_t copied;     /* bytes, from one block's shared memory to another's */
	uint64_t wavefronts; /* of shared memory */
	uint64_t ideal_wavefronts;
	uint64_t in_flight; /* bytes: the most that loads of the unit had still to bring to one block */
	uint32_t threads;   /* of that block, and its dynamic shared memory */
	uint32_t shared_bytes;
};

/* From now on, launches, copies and sets add to *counts; NULL: to nothing. To be called while the device is
 * idle. */
void softgpu_count(struct softgpu_counts *counts);

static inline uint64_t softgpu_sum(const struct softgpu_sectors *sectors)
{
	return sectors->warps + sectors->unit + sectors->driver;
}

#endif
