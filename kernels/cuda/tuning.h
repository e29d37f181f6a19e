/* Sizes that kernels, launches and plans must agree on, chosen by measurement (tests/bench/README.md). */
#ifndef KERNELS_CUDA_TUNING_H
#define KERNELS_CUDA_TUNING_H

/* tile_copy, bulk_copy: tiles of a block, loads under way, blocks of a multiprocessor. */
#ifndef COPY_STAGES
#define COPY_STAGES 6
#endif
#ifndef COPY_AHEAD
#define COPY_AHEAD 4
#endif
#ifndef COPY_BLOCKS
#define COPY_BLOCKS 2
#endif
#ifndef COPY_TILE_BYTES
#define COPY_TILE_BYTES 16384
#endif

/* tile_transpose: tiles of a block, blocks of a multiprocessor. */
#ifndef TRANSPOSE_STAGES
#define TRANSPOSE_STAGES 4
#endif
#ifndef TRANSPOSE_BLOCKS
#define TRANSPOSE_BLOCKS 3
#endif
#ifndef TRANSPOSE_BAND
#define TRANSPOSE_BAND 8
#endif
#ifndef TRANSPOSE_WRITE
#define TRANSPOSE_WRITE stream_write
#endif

#endif
