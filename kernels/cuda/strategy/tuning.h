/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that kernels, launches and plans must agree on. They were chosen by measurement unless a comment says
 * otherwise (tests/bench/EXPERIMENTS.md). The kernels assert the sizes that they can also derive.
 *
 * "Blocks of a multiprocessor" below means the number of resident thread blocks. A "note" is a small record
 * in shared memory that describes a tile or a row to the threads that move it.
 */
#ifndef KERNELS_CUDA_STRATEGY_TUNING_H
#define KERNELS_CUDA_STRATEGY_TUNING_H

/* Threads of a warp. Kernels whose threads work on tiles in shared memory have one extra warp, one thread of
 * which issues the TMA's loads and stores. In tile_copy and similar kernels that warp is the whole thread
 * block. */
#define WARP_THREADS 32

/* Dynamic shared memory of a ring of tiles (pipeline.cuh). Each stage has one tile and two barriers. */
#define BARRIER_BYTES            8
#define RING_BYTES(stages, tile) ((stages) * ((tile) + 2 * BARRIER_BYTES))

/* tile_copy and bulk_copy: tiles in a thread block's ring, loads in flight, blocks of a multiprocessor, and
 * bytes of a tile. */
#define COPY_STAGES     3
#define COPY_AHEAD      2
#define COPY_BLOCKS     2
#define COPY_TILE_BYTES 32768

/* blocks_copy: bytes of a multiprocessor's shared memory for tiles, maximum blocks of a multiprocessor, and
 * bytes of a tile's note. */
#define COPY_SHARED_BYTES 204800
#define COPY_MOST_BLOCKS  16
#define COPY_NOTE_BYTES   16

/* tile_pad: threads that write borders, elements that each of them reads before it writes, and bytes of a
 * tile's note. If more than one in PAD_SHARE elements is border, another launch writes the border. */
#define PAD_THREADS    256
#define PAD_BATCH      4
#define PAD_NOTE_BYTES 128
#define PAD_SHARE      8

/* tile_transpose: tiles in a thread block's ring, blocks of a multiprocessor, bytes of a tile, bytes of a
 * tile's row of the destination, bytes of a row of a box of the source, and lanes of a warp that write one
 * row. The grid of tiles is divided into strips, which thread blocks go through one after the other.
 * TRANSPOSE_RASTER is the width of a strip, in tiles along the destination. */
#define TRANSPOSE_STAGES          3
#define TRANSPOSE_BLOCKS          2
#define TRANSPOSE_TILE_BYTES      32768
#define TRANSPOSE_X_BYTES         256
#define TRANSPOSE_ROW_BYTES       128
#define TRANSPOSE_LANES_X         16
#define TRANSPOSE_RASTER(element) ((element) < 4 ? 1 : 8)

/* tile_transpose: squares of a tile, threads that transpose them in one or more rounds, and bytes of a tile's
 * note. A square has 16 / element elements a side, and one thread transposes it in registers. */
#define TRANSPOSE_SQUARES(element) (TRANSPOSE_TILE_BYTES / 16 / (16 / (element)))
#define TRANSPOSE_MOST_READERS     256
#define TRANSPOSE_READERS(element)                                                        \
	(TRANSPOSE_SQUARES(element) < TRANSPOSE_MOST_READERS ? TRANSPOSE_SQUARES(element) \
	                                                     : TRANSPOSE_MOST_READERS)
#define TRANSPOSE_NOTE_BYTES 24

/* tile_permute, tile_pieces and tile_words: threads of a thread block, and blocks of a multiprocessor, which
 * the registers limit. PERMUTE_BLOCKS is the number that a plan counts on; tiles that take little shared
 * memory may have PERMUTE_MOST_BLOCKS. PADDED_BLOCKS is the number for padded tiles, and WORDS_BLOCKS that
 * for tile_words. */
#define PERMUTE_THREADS     256
#define PERMUTE_BLOCKS      6
#define PERMUTE_MOST_BLOCKS 8
#define PADDED_BLOCKS       4
#define WORDS_BLOCKS        4

/* Maximum blocks of a multiprocessor for a launch that may occupy only some multiprocessors and has no limit
 * of its own. More blocks would not make up for the other multiprocessors. */
#define BOUNDED_BLOCKS 4

/* tile_squares: chunks that a thread loads before it writes, which are all that it loads; maximum bytes of a
 * tile, maximum threads of a thread block, and blocks of a multiprocessor, which the registers limit. */
#define SQUARES_BATCH(element)      ((element) <= 2 ? 8 : 4)
#define SQUARES_TILE_BYTES(element) ((element) <= 2 ? 32768 : 16384)
#define SQUARES_MOST_THREADS        256
#define SQUARES_BLOCKS(element)     ((element) <= 2 ? 4 : 5)

/* strided_rows: bytes of a row that a warp moves at a time, and chunks that a lane reads before it writes. */
#define ROW_BYTES 8192
#define ROW_BATCH 8

/* many_short: blocks of a multiprocessor, maximum bytes of a row, bytes of shared memory for a thread block's
 * rows, and bytes of a row's note. */
#define SHORT_BLOCKS     4
#define SHORT_ROW_BYTES  1536
#define SHORT_TILE_BYTES 24576
#define SHORT_NOTE_BYTES 16

/* strided_channels: blocks of a multiprocessor, for up to CHANNELS_FEW channels and for more. */
#define CHANNELS_FEW                  4
#define CHANNELS_FEW_BLOCKS(element)  ((element) == 8 ? 6 : 5)
#define CHANNELS_MANY_BLOCKS(element) ((element) == 1 ? 2 : (element) == 8 ? 4 : 3)

/* strided_elements: blocks of a multiprocessor, and elements that a thread reads before it writes. */
#define ELEMENTS_BLOCKS(element) ((element) == 8 ? 8 : 6)
#define ELEMENTS_BATCH(element)  ((element) == 4 ? 8 : 4)

/* strided_gather: chunks that a thread reads before it writes. */
#define GATHER_BATCH 2

/* many_tiles: blocks of a multiprocessor, and the shape of a tile. A tile has TILES_ROWS rows of the source,
 * each of TILES_COLUMNS words of at least 4 bytes. Rows of the destination are written from multiples of
 * TILES_ALIGN bytes, for which a tile has a margin. With elements of less than 4 bytes, one word of each row
 * is lost, because two words are needed to make a shifted one. A tile that is moved element by element is
 * read TILES_BATCH elements at a time. */
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

/* convert_units_*: elements of a unit, which is 16 bytes on the side with the longer elements, and units that
 * a thread reads before it writes. */
#define CONVERT_UNIT(from, to)  (16 / ((from) > (to) ? (from) : (to)))
#define CONVERT_UNITS(from, to) (CONVERT_UNIT(from, to) == 16 ? 2 : 4)

/* convert_turned_*: bytes that a thread reads of each of its source rows, and elements of a tile in both
 * directions. A thread takes as many source rows as a chunk of the destination has elements. */
#define TURNED_BYTES(from, to) ((to) == 1 ? 8 : 16)
#define TURNED_X(to)           (16 * 16 / (to))
#define TURNED_Y(from, to)     (16 * TURNED_BYTES(from, to) / (from))

/* Other convert_* kernels: elements that a thread reads before it writes, elements of a thread block, chunks
 * of a tile that a thread reads before it writes, bytes of a tile's row on each side, and bytes of a tile. */
#define CONVERT_BATCH      2
#define CONVERT_ELEMENTS   (CONVERT_BATCH * ROWS_THREADS)
#define CONVERT_READS      4
#define CONVERT_ROW_BYTES  128
#define CONVERT_TILE_BYTES 16384

/* amax_units_*: units of 16 bytes of the source that a thread holds in registers, elements of a tile if the
 * scaling blocks allow it, and maximum threads of a thread block. */
#define AMAX_UNITS         8
#define AMAX_UNITS_TILE    16384
#define AMAX_UNITS_THREADS 1024

/* amax_*: maximum scaling blocks of a tile; elements of a scaling block that one team of threads goes through
 * at a time; elements of a row that one warp goes through at a time; maximum elements of a scaling block for
 * which one warp is enough; and maximum magnitudes that are kept between two passes. These were not
 * measured. */
#define AMAX_TILE_BLOCKS   1024
#define AMAX_PART          65536
#define AMAX_RUN           1024
#define AMAX_WARP_ELEMENTS 2048
#define AMAX_MAGNITUDES    16384

#endif
