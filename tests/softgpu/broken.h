/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels with mistakes: what they are called with. */
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
#define BROKEN_SHARED     4096 /* bytes, dynamic */
#define BROKEN_TILE_X     32   /* uint32_t; a tile is 1 KiB */
#define BROKEN_TILE_Y     8
#define BROKEN_TILE_BYTES (4 * BROKEN_TILE_X * BROKEN_TILE_Y)
#define BROKEN_TILES      2 /* one behind the other in dimension 1 */

struct broken_args {
	CUtensorMap load;
	CUtensorMap store;
	uint64_t in;      /* memory of BROKEN_TILES tiles */
	uint64_t outside; /* an address that is nobody's */
	uint32_t mistake; /* enum mistake */
};

#endif
