/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions and memory traffic of kernels, which the model counts while a test asks for it.
 *
 * Instructions are counted per warp: one that several lanes execute together counts once (model/count.c says
 * how they are matched).
 *
 * Traffic is counted in sectors of 32 bytes, the unit of transfer between the multiprocessors and the L2. An
 * instruction moves each sector that its lanes touch once. The TMA unit moves each sector of a box's row, or
 * of a bulk load or store, once, even if several blocks receive it. Caches are not modelled: a sector that
 * two instructions touch counts twice.
 *
 * Shared memory has 32 banks of 4 bytes. The lanes of an instruction are served together if each accesses up
 * to 4 bytes, by half-warps if 8, by quarter-warps if 16. Each such group takes as many wavefronts as its
 * most used bank has distinct words; the ideal is one. Only tile_read and tile_write are counted, not plain
 * accesses of shared memory.
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

/* Sectors by what moves them: warps' instructions, the TMA unit, the driver. */
struct softgpu_sectors {
	uint64_t warps;
	uint64_t unit;
	uint64_t driver; /* copies and sets of the driver */
};

struct softgpu_counts {
	uint64_t launches;
	uint64_t blocks;
	/* Requests to the TMA unit count one per issuing thread. */
	uint64_t instructions[SOFTGPU_INSTRUCTIONS];
	struct softgpu_sectors read;
	struct softgpu_sectors written;
	uint64_t copied;     /* bytes from one block's shared memory to another's */
	uint64_t wavefronts; /* wavefronts of shared memory accesses */
	uint64_t ideal_wavefronts;
	uint64_t in_flight; /* most bytes that the loads under way to one block had yet to deliver */
	uint32_t threads;   /* threads and bytes of dynamic shared memory of that block */
	uint32_t shared_bytes;
};

/* From now on, launches, copies and sets add to *counts; with NULL, nothing is counted. To be called while
 * the device is idle. */
void softgpu_count(struct softgpu_counts *counts);

static inline uint64_t softgpu_sum(const struct softgpu_sectors *sectors)
{
	return sectors->warps + sectors->unit + sectors->driver;
}

#endif
