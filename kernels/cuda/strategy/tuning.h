/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that kernels, launches and plans must agree on, chosen by measurement (tests/bench/EXPERIMENTS.md).
 * Kernels assert those that they could derive otherwise. */
#ifndef KERNELS_CUDA_STRATEGY_TUNING_H
#define KERNELS_CUDA_STRATEGY_TUNING_H

/* A warp. Of a block whose threads work on tiles in shared memory one warp more loads, and stores, by the
 * unit; of tile_copy and its kin it is the whole block. */
#define WARP_THREADS 32

/* Dynamic shared memory of a ring of tiles (pipeline.cuh): each stage has its tile and two barriers. */
#define BARRIER_BYTES            8
#define RING_BYTES(stages, tile) ((stages) * ((tile) + 2 * BARRIER_BYTES))

/* tile_copy, bulk_copy: tiles of a block, loads under way, blocks of a multiprocessor. */
#define COPY_STAGES     3
#define COPY_AHEAD      2
#define COPY_BLOCKS     2
#define COPY_TILE_BYTES 32768

/* Copies of many blocks: shared memory of a multiprocessor that their tiles share, blocks of one at most;
 * what a tile's note takes. */
#define COPY_SHARED_BYTES 204800
#define COPY_MOST_BLOCKS  16
#define COPY_NOTE_BYTES   16

/* tile_pad: threads that write borders, elements that one of them reads before it writes; what a tile's note
 * takes. A border of more than one in PAD_SHARE elements is another launch's. */
#define PAD_THREADS    256
#define PAD_BATCH      4
#define PAD_NOTE_BYTES 128
#define PAD_SHARE      8

/* tile_transpose: tiles of a block, blocks of a multiprocessor; a tile's bytes, those of it that are one row
 * of the destination, and those that are one row of a box of the source; how many threads of a warp write one
 * row. RASTER: the width of a strip, in tiles along the destination, that blocks go through together. */
#define TRANSPOSE_STAGES          3
#define TRANSPOSE_BLOCKS          2
#define TRANSPOSE_TILE_BYTES      32768
#define TRANSPOSE_X_BYTES         256
#define TRANSPOSE_ROW_BYTES       128
#define TRANSPOSE_LANES_X         16
#define TRANSPOSE_RASTER(element) ((element) < 4 ? 1 : 8)

/* Squares of a tile, of 16 / element elements a side, each transposed in the registers of one thread; the
 * threads that do so, in as many rounds as it takes; what a tile's note takes. */
#define TRANSPOSE_SQUARES(element) (TRANSPOSE_TILE_BYTES / 16 / (16 / (element)))
#define TRANSPOSE_MOST_READERS     256
#define TRANSPOSE_READERS(element)                                                        \
	(TRANSPOSE_SQUARES(element) < TRANSPOSE_MOST_READERS ? TRANSPOSE_SQUARES(element) \
	                                                     : TRANSPOSE_MOST_READERS)
#define TRANSPOSE_NOTE_BYTES 24

/* tile_permute: threads of a block; blocks of a multiprocessor, by registers: those that a plan counts on,
 * and those that a tile which takes little shared memory may have. */
#define PERMUTE_THREADS     256
#define PERMUTE_BLOCKS      6
#define PERMUTE_MOST_BLOCKS 8
#define PADDED_BLOCKS       4
#define WORDS_BLOCKS        4

/* A launch that may occupy only some multiprocessors has at most this many blocks on each: more blocks would
 * not make up for the other multiprocessors. */
#define BOUNDED_BLOCKS 4

/* tile_squares: chunks that a thread loads before it writes, which is all it loads; bytes of a tile at most,
 * and threads of a block; blocks of a multiprocessor, by registers. */
#define SQUARES_BATCH(element)      ((element) <= 2 ? 8 : 4)
#define SQUARES_TILE_BYTES(element) ((element) <= 2 ? 32768 : 16384)
#define SQUARES_MOST_THREADS        256
#define SQUARES_BLOCKS(element)     ((element) <= 2 ? 4 : 5)

/* strided_rows: bytes of a row that a warp takes, chunks that a thread reads before it writes. */
#define ROW_BYTES 8192
#define ROW_BATCH 8

/* many_short: blocks of a multiprocessor; bytes of a row at most; of the rows of a block, in shared
 * memory; what a row's note takes. */
#define SHORT_BLOCKS     4
#define SHORT_ROW_BYTES  1536
#define SHORT_TILE_BYTES 24576
#define SHORT_NOTE_BYTES 16

/* strided_channels: blocks of a multiprocessor, by channels. */
#define CHANNELS_FEW                  4
#define CHANNELS_FEW_BLOCKS(element)  ((element) == 8 ? 6 : 5)
#define CHANNELS_MANY_BLOCKS(element) ((element) == 1 ? 2 : (element) == 8 ? 4 : 3)

/* strided_elements: blocks of a multiprocessor; elements that a thread reads before it writes. */
#define ELEMENTS_BLOCKS(element) ((element) == 8 ? 8 : 6)
#define ELEMENTS_BATCH(element)  ((element) == 4 ? 8 : 4)

/* strided_gather: chunks that a thread reads before it writes. */
#define GATHER_BATCH 2

/* many_tiles: blocks of a multiprocessor. A tile is so many rows of the source by words of at least 4 bytes;
 * the destination's rows are written from multiples of so many bytes, for which a tile has a margin. Smaller
 * elements lose a word, since it takes two to shift one. A tile by elements is read so many at once.
 */
#define TILES_BLOCKS           3
#define TILES_BATCH(element)   ((element) < 8 ? 8 : 32 / (element))
#define TILES_WORD(element)    ((element) < 4 ? 4 : (element))
#define TILES_ROWS(element)    ((element) <= 2 ? 128 : (element) <= 8 ? 64 : 32)
#define TILES_COLUMNS(element) ((element) == 4 ? 64 : 32)
#define TILES_ALIGN(element)   ((element) == 16 ? 16 : 32)
#define TILES_MARGIN(element)  ((element) < TILES_ALIGN(element) ? TILES_ALIGN(element) / (element) : 0)
#define TILES_X(element)       (TILES_ROWS(element) - TILES_MARGIN(element))
#define TILES_Y(element) \
	((element) < 4 ? (TILES_COLUMNS(element) - 1) * 4 / (element) : TILES_COLUMNS(element))
#define TILES_PITCH(element) (TILES_ROWS(element) * (element) / TILES_WORD(element) + 1)
#define TILES_BYTES(element) \
	(TILES_COLUMNS(element) * TILES_WORD(element) / (element)*TILES_PITCH(element) * TILES_WORD(element))

/* convert_units_*: elements of a unit, 16 bytes of the side with the longer ones, and how many units a thread
 * reads before it writes. */
#define CONVERT_UNIT(from, to)  (16 / ((from) > (to) ? (from) : (to)))
#define CONVERT_UNITS(from, to) (CONVERT_UNIT(from, to) == 16 ? 2 : 4)

/* convert_turned_*: bytes of a row of the source that a thread reads of each of as many rows as a chunk of
 * the destination has elements; and a tile's elements. */
#define TURNED_BYTES(from, to) ((to) == 1 ? 8 : 16)
#define TURNED_X(to)           (16 * 16 / (to))
#define TURNED_Y(from, to)     (16 * TURNED_BYTES(from, to) / (from))

/* convert_*: elements, and chunks of a tile that a thread reads before it writes; bytes of a tile's row on
 * each side, and of a tile. */
#define CONVERT_BATCH      2
#define CONVERT_ELEMENTS   (CONVERT_BATCH * ROWS_THREADS)
#define CONVERT_READS      4
#define CONVERT_ROW_BYTES  128
#define CONVERT_TILE_BYTES 16384

/* amax_units_*: units of 16 bytes of the source that a thread holds, and elements of a tile, if blocks allow;
 * most threads of a block. */
#define AMAX_UNITS         8
#define AMAX_UNITS_TILE    16384
#define AMAX_UNITS_THREADS 1024

/* amax_*: blocks of a tile at most; elements of a block that one group of threads goes through at a
 * time, and along a row one warp; elements of a block up to which a warp is enough for it; magnitudes that
 * lie between two passes. Not measured. */
#define AMAX_TILE_BLOCKS   1024
#define AMAX_PART          65536
#define AMAX_RUN           1024
#define AMAX_WARP_ELEMENTS 2048
#define AMAX_MAGNITUDES    16384

#endif
