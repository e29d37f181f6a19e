/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels as one translation unit, and so one image. */
#include "tile_copy.cu"
#include "tile_pad.cu"
#include "tile_transpose.cu"
#include "strided_rows.cu"
#include "strided_short.cu"
#include "strided_tiles.cu"
#include "strided_gather.cu"
#include "strided_channels.cu"
#include "fill.cu"
#include "blocks_copy.cu"
#include "blocks_rows.cu"
