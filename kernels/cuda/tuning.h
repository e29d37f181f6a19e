/* Sizes that kernels, launches and plans must agree on, chosen by measurement (tests/bench/README.md). */
#ifndef KERNELS_CUDA_TUNING_H
#define KERNELS_CUDA_TUNING_H

/* tile_copy, bulk_copy: tiles of a block, loads under way, blocks of a multiprocessor. */
#define COPY_STAGES     3
#define COPY_AHEAD      2
#define COPY_BLOCKS     2
#define COPY_TILE_BYTES 32768

/* tile_transpose: tiles of a block, blocks of a multiprocessor; a tile's bytes, and those of it that are one
 * row of the destination; how many threads of a warp write one row. */
#define TRANSPOSE_STAGES        3
#define TRANSPOSE_BLOCKS        2
#define TRANSPOSE_TILE_BYTES    32768
#define TRANSPOSE_X_BYTES       256
#define TRANSPOSE_LANES_X       16
#define TRANSPOSE_BAND(element) ((element) < 4 ? 1 : 8) /* tiles along the destination, side by side */

/* strided_rows: bytes of a row that a warp takes, chunks that a thread reads before it writes. */
#define ROW_BYTES       8192
#define ROW_BATCH       8
#define ROW_SHORT_BYTES 1536 /* rows of at most so many are shared by fewer threads than a warp's */
#define ROW_SHORT_LANES 8

/* strided_tiles: blocks of a multiprocessor. */
#define TILES_BLOCKS(element) ((element) < 8 ? 3 : 4)

#endif
