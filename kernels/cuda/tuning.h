/* Sizes that kernels, launches and plans must agree on, chosen by measurement (tests/bench/README.md). */
#ifndef KERNELS_CUDA_TUNING_H
#define KERNELS_CUDA_TUNING_H

/* tile_copy, bulk_copy: tiles of a block, loads under way, blocks of a multiprocessor. */
#ifndef COPY_STAGES
#define COPY_STAGES 3
#endif
#ifndef COPY_AHEAD
#define COPY_AHEAD 2
#endif
#ifndef COPY_BLOCKS
#define COPY_BLOCKS 2
#endif
#ifndef COPY_TILE_BYTES
#define COPY_TILE_BYTES 32768
#endif

/* tile_transpose: tiles of a block, blocks of a multiprocessor. */
#ifndef TRANSPOSE_X_BYTES
#define TRANSPOSE_X_BYTES 256
#endif
#ifndef TRANSPOSE_TILE_BYTES
#define TRANSPOSE_TILE_BYTES 32768
#endif
#define TRANSPOSE_X(element)                                                                     \
	(TRANSPOSE_X_BYTES / (element) > TRANSPOSE_TILE_BYTES / 128 ? TRANSPOSE_TILE_BYTES / 128 \
	 : TRANSPOSE_X_BYTES / (element) > 256                      ? 256                        \
	                                                            : TRANSPOSE_X_BYTES / (element))
#ifndef TRANSPOSE_STAGES
#define TRANSPOSE_STAGES 3
#endif
#ifndef TRANSPOSE_BLOCKS
#define TRANSPOSE_BLOCKS 2
#endif
#ifndef TRANSPOSE_BAND
#define TRANSPOSE_BAND 1
#endif
#ifndef LANES_X
#define LANES_X 16
#endif
#ifndef TRANSPOSE_WRITE
#define TRANSPOSE_WRITE stream_write
#endif

/* strided_rows: chunks that a thread reads before it writes. */
#ifndef ROW_SLOTS
#define ROW_SLOTS 4
#endif

/* strided_tiles: blocks of a multiprocessor. */
#ifndef TILES_BLOCKS
#define TILES_BLOCKS 3
#endif

#endif
