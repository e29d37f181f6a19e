/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and sizes of the kernels with mistakes (broken.cu, broken_grid.cu). */
#ifndef TESTS_SOFTGPU_BROKEN_H
#define TESTS_SOFTGPU_BROKEN_H

#include <cuda.h>
#include <stdint.h>

enum mistake {
	MISTAKE_NONE,
#define MISTAKE(name, kernel, report) MISTAKE_##name,
#include "broken.def"
	MISTAKE_COUNT
};

#define BROKEN_THREADS    64
#define BROKEN_SHARED     4096 /* bytes of dynamic shared memory */
#define BROKEN_TILE_X     32   /* elements of type uint32_t in a row; a tile is 1 KiB */
#define BROKEN_TILE_Y     8
#define BROKEN_TILE_BYTES (4 * BROKEN_TILE_X * BROKEN_TILE_Y)
#define BROKEN_TILES      2 /* tiles of the tensor, along dimension 1 */

struct broken_args {
	CUtensorMap load;
	CUtensorMap store;
	uint64_t in;      /* device memory of BROKEN_TILES tiles */
	uint64_t outside; /* an address without memory */
	uint32_t mistake; /* enum mistake */
};

#endif
